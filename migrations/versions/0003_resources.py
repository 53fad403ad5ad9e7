"""Public corpora beside datasets, and models that embed texts beside those that write them."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "corpora",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("uri", sa.Text(), nullable=False),
        sa.Column("text_template", sa.Text(), nullable=False),
        sa.Column("label_column", sa.Text(), nullable=True),
        sa.Column("declaration", sa.Text(), nullable=False),
        sa.Column("statement", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("facts", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("created_by", sa.Uuid(), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.CheckConstraint("declaration IN ('public','consented')", name=op.f("ck_corpora_declaration")),
        sa.CheckConstraint("state IN ('checking','ready','invalid')", name=op.f("ck_corpora_state")),
        sa.CheckConstraint(
            "(state = 'ready') = (facts IS NOT NULL)", name=op.f("ck_corpora_facts_when_ready")
        ),
        sa.ForeignKeyConstraint(["created_by"], ["users.id"], name=op.f("fk_corpora_created_by")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_corpora")),
        sa.UniqueConstraint("name", name=op.f("uq_corpora_name")),
    )
    op.add_column("models", sa.Column("kind", sa.Text(), server_default="language", nullable=False))
    op.create_check_constraint(op.f("ck_models_kind"), "models", "kind IN ('language','embedding')")
    op.drop_constraint(op.f("ck_outbox_task"), "outbox")
    op.create_check_constraint(
        op.f("ck_outbox_task"),
        "outbox",
        "task IN ('generate','probe','check_dataset','check_model','check_corpus')",
    )


def downgrade() -> None:
    op.execute("DELETE FROM outbox WHERE task = 'check_corpus'")
    op.drop_constraint(op.f("ck_outbox_task"), "outbox")
    op.create_check_constraint(
        op.f("ck_outbox_task"), "outbox", "task IN ('generate','probe','check_dataset','check_model')"
    )
    op.drop_constraint(op.f("ck_models_kind"), "models")
    op.drop_column("models", "kind")
    op.drop_table("corpora")
