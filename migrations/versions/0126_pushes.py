"""A second person answers whether a result goes to a hub: pushes are decisions."""

from alembic import op

revision = "0126"
down_revision = "0125"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "ALTER TABLE decisions DROP CONSTRAINT ck_decisions_kind, DROP CONSTRAINT ck_decisions_job; "
        "ALTER TABLE decisions ADD CONSTRAINT ck_decisions_kind CHECK (kind IN "
        "('offer','allowance','correction','policy','access','loss','overdraft','push')), "
        "ADD CONSTRAINT ck_decisions_job CHECK ("
        "(kind IN ('offer','correction','push')) = (job_id IS NOT NULL))"
    )
