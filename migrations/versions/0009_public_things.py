"""Jobs keep the registered public things that they name, with their hashes; reports are artifacts too."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "jobs",
        sa.Column("resources", postgresql.JSONB(astext_type=sa.Text()), server_default="{}", nullable=False),
    )
    _media_types("'application/json','application/x-safetensors','text/html'")


def _media_types(allowed: str) -> None:
    op.drop_constraint(op.f("ck_artifacts_media_type"), "artifacts")
    op.create_check_constraint(op.f("ck_artifacts_media_type"), "artifacts", f"media_type IN ({allowed})")


def downgrade() -> None:
    _media_types("'application/json','application/x-safetensors'")
    op.drop_column("jobs", "resources")
