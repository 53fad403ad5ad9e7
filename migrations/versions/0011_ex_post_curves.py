"""How the ex-post cost of a job grew, beside what it came to."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

COLUMNS = (("parts", "ex_post_curve"), ("realized_ex_post", "curve"))


def upgrade() -> None:
    for table, name in COLUMNS:
        op.add_column(table, sa.Column(name, postgresql.JSONB(astext_type=sa.Text()), nullable=True))


def downgrade() -> None:
    for table, name in COLUMNS:
        op.drop_column(table, name)
