"""No row says where an output lies: a published file is named by its SHA-256, and a draft by its attempt."""

import sqlalchemy as sa
from alembic import op

revision = "0104"
down_revision = "0103"


def upgrade() -> None:
    op.drop_constraint(op.f("ck_jobs_output"), "jobs")
    op.drop_column("jobs", "output_uri")
    op.create_check_constraint(
        op.f("ck_jobs_output"), "jobs", "(state = 'succeeded') = (output_sha256 IS NOT NULL)"
    )
    op.drop_column("artifacts", "uri")
    op.drop_column("parts", "staged_uri")
    op.add_column("parts", sa.Column("draft", sa.Text))
