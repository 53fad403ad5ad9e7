"""A job whose mechanism uses no model names none."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.alter_column("jobs", "model_id", existing_type=sa.Uuid(), nullable=True)


def downgrade() -> None:
    """Refused by the database where a job without a model exists."""
    op.alter_column("jobs", "model_id", existing_type=sa.Uuid(), nullable=False)
