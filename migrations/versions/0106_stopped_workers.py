"""Workers say where everybody sees it that they take no jobs."""

import sqlalchemy as sa
from alembic import op

revision = "0106"
down_revision = "0105"


def upgrade() -> None:
    op.create_table(
        "stopped_workers",
        sa.Column("worker", sa.Text, primary_key=True),
        sa.Column("why", sa.Text, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
    )
