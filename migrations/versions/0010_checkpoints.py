"""Signed checkpoints and the keys that signed them, both append-only."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

TABLES = ("signing_keys", "checkpoints")


def upgrade() -> None:
    op.create_table(
        "signing_keys",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("introduced_by", sa.Text(), nullable=False),
        sa.Column("introduced_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("document", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_signing_keys")),
        sa.UniqueConstraint("introduced_by", name=op.f("uq_signing_keys_introduced_by")),
    )
    op.create_table(
        "checkpoints",
        sa.Column("dataset_id", sa.Uuid(), nullable=False),
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.CheckConstraint("seq >= 0", name=op.f("ck_checkpoints_seq")),
        sa.ForeignKeyConstraint(["dataset_id"], ["datasets.id"], name=op.f("fk_checkpoints_dataset_id")),
        sa.ForeignKeyConstraint(["key_id"], ["signing_keys.id"], name=op.f("fk_checkpoints_key_id")),
        sa.PrimaryKeyConstraint("dataset_id", "seq", "key_id", name=op.f("pk_checkpoints")),
    )
    op.execute(
        """
        CREATE FUNCTION rows_are_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            RAISE EXCEPTION '% is append-only: % refused', TG_TABLE_NAME, TG_OP
                USING ERRCODE = 'restrict_violation';
        END $$
        """
    )
    for table in TABLES:
        op.execute(
            f"CREATE TRIGGER {table}_rows BEFORE UPDATE OR DELETE ON {table} "
            "FOR EACH ROW EXECUTE FUNCTION rows_are_append_only()"
        )
        op.execute(
            f"CREATE TRIGGER {table}_truncate BEFORE TRUNCATE ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION rows_are_append_only()"
        )


def downgrade() -> None:
    op.drop_table("checkpoints")
    op.drop_table("signing_keys")
    op.execute("DROP FUNCTION rows_are_append_only()")
