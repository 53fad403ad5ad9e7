"""A version of data that never comes here has no address, and no files."""

from alembic import op

revision = "0125"
down_revision = "0124"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "ALTER TABLE dataset_versions ALTER COLUMN uri DROP NOT NULL, "
        "ADD CONSTRAINT ck_dataset_versions_no_data "
        "CHECK (uri IS NOT NULL OR (state = 'ready' AND data IS NULL))"
    )
