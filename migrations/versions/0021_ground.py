"""Endpoints beside models, jobs that read public things only, several sources of a job, groups and secrets."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0021"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("models", sa.Column("endpoint", postgresql.JSONB(astext_type=sa.Text()), nullable=True))
    op.drop_constraint(op.f("ck_models_kind"), "models", type_="check")
    op.create_check_constraint(
        op.f("ck_models_kind"), "models", "kind IN ('language','embedding','endpoint')"
    )
    op.create_check_constraint(
        op.f("ck_models_endpoint"), "models", "(kind = 'endpoint') = (endpoint IS NOT NULL)"
    )


def downgrade() -> None:
    op.drop_constraint(op.f("ck_models_endpoint"), "models", type_="check")
    op.drop_constraint(op.f("ck_models_kind"), "models", type_="check")
    op.create_check_constraint(op.f("ck_models_kind"), "models", "kind IN ('language','embedding')")
    op.drop_column("models", "endpoint")
