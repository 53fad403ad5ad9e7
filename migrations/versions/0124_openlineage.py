"""An address may be told of ends of jobs in the form of OpenLineage."""

from alembic import op

revision = "0124"
down_revision = "0123"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "ALTER TABLE hooks DROP CONSTRAINT ck_hooks_kind; "
        "ALTER TABLE hooks ADD CONSTRAINT ck_hooks_kind "
        "CHECK (kind IN ('mail','chat','teams','json','openlineage'))"
    )
