"""The database refuses an account whose basic filter's part of delta is passed, whichever filter
holds: it pays what is known by (epsilon, delta) alone, for all filters.
"""

from alembic import op

revision = "0118"
down_revision = "0117"


def upgrade() -> None:
    op.execute(
        "ALTER TABLE accounts ADD CONSTRAINT ck_accounts_deltas_fit CHECK ("
        "overdrawn OR basic_delta_spent + basic_delta_reserved <= basic_delta_limit)"
    )
