"""Idempotency keys of what is made by request."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "idempotency_keys",
        sa.Column("person_id", sa.Uuid(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("request_sha256", sa.Text(), nullable=False),
        sa.Column("made", sa.Uuid(), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.ForeignKeyConstraint(["person_id"], ["users.id"], name=op.f("fk_idempotency_keys_person_id")),
        sa.PrimaryKeyConstraint("person_id", "key", name=op.f("pk_idempotency_keys")),
        sa.CheckConstraint("length(key) BETWEEN 1 AND 200", name=op.f("ck_idempotency_keys_length")),
    )


def downgrade() -> None:
    op.drop_table("idempotency_keys")
