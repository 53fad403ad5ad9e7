"""The whole schema, as SQL that never changes: a later revision changes the schema, never these files.

Revisions 0001 to 0019 were never released, and are gone; env.py tells who still has one what to do.
"""

from pathlib import Path

from alembic import op

revision = "0020"
down_revision = None
branch_labels = None
depends_on = None

BASELINE = Path(__file__).resolve().parent.parent / "baseline"
FILES = ("people.sql", "sources.sql", "ledger.sql", "webhooks.sql")  # each refers to those before it


def upgrade() -> None:
    for name in FILES:
        # As it stands: neither ":name" nor "%" in it is a parameter.
        statements = (BASELINE / name).read_text("utf-8")
        op.get_bind().exec_driver_sql(statements, execution_options={"no_parameters": True})


def downgrade() -> None:
    raise NotImplementedError("there is nothing below the baseline: a ledger is never taken down")
