"""The name under which a file was sent, as its sender called it; files sent before have none."""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("uploads", sa.Column("name", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("uploads", "name")
