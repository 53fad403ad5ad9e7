"""Parts wait for a class of workers, and workers say which they serve."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0119"
down_revision = "0118"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("parts", sa.Column("hardware", sa.Text, nullable=False, server_default=""))
    op.create_table(
        "live_workers",
        sa.Column("worker", sa.Text, primary_key=True),
        sa.Column("classes", postgresql.ARRAY(sa.Text), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
    )
