"""Fingerprints of privacy units, one account to each; every version of a dataset has its own reading layout.

Data that was found right before is read through again: its units have no fingerprints yet.
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "fingerprints",
        sa.Column("fingerprint", sa.LargeBinary(), nullable=False),
        sa.Column("dataset_id", sa.Uuid(), nullable=False),
        sa.Column("is_unit", sa.Boolean(), nullable=False),
        sa.CheckConstraint("octet_length(fingerprint) = 16", name=op.f("ck_fingerprints_length")),
        sa.ForeignKeyConstraint(["dataset_id"], ["datasets.id"], name=op.f("fk_fingerprints_dataset_id")),
        sa.PrimaryKeyConstraint("fingerprint", "dataset_id", name=op.f("pk_fingerprints")),
    )
    op.create_index(
        "uq_fingerprints_unit",
        "fingerprints",
        ["fingerprint"],
        unique=True,
        postgresql_where=sa.text("is_unit"),
    )
    op.create_table(
        "fingerprint_key",
        sa.Column("single", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("proof", sa.LargeBinary(), nullable=False),
        sa.CheckConstraint("single", name=op.f("ck_fingerprint_key_one_row")),
        sa.PrimaryKeyConstraint("single", name=op.f("pk_fingerprint_key")),
    )
    op.add_column("dataset_versions", sa.Column("text_template", sa.Text(), nullable=True))
    op.add_column("dataset_versions", sa.Column("unit_column", sa.Text(), nullable=True))
    op.add_column("dataset_versions", sa.Column("label_column", sa.Text(), nullable=True))
    op.execute(
        "UPDATE dataset_versions v SET text_template = d.text_template, unit_column = d.unit_column, "
        "label_column = d.label_column FROM datasets d WHERE d.id = v.dataset_id"
    )
    op.alter_column("dataset_versions", "text_template", existing_type=sa.Text(), nullable=False)
    op.drop_column("datasets", "text_template")
    op.drop_column("datasets", "label_column")
    op.execute(
        "INSERT INTO outbox (task, subject) "
        "SELECT 'check_dataset', id FROM dataset_versions WHERE state = 'ready' ORDER BY created_at"
    )
    op.execute("UPDATE dataset_versions SET state = 'checking' WHERE state = 'ready'")


def downgrade() -> None:
    op.add_column("datasets", sa.Column("label_column", sa.Text(), nullable=True))
    op.add_column("datasets", sa.Column("text_template", sa.Text(), nullable=True))
    op.execute(
        "UPDATE datasets d SET text_template = v.text_template, label_column = v.label_column "
        "FROM dataset_versions v WHERE v.dataset_id = d.id AND v.number = "
        "(SELECT max(number) FROM dataset_versions w WHERE w.dataset_id = d.id)"
    )
    op.alter_column("datasets", "text_template", existing_type=sa.Text(), nullable=False)
    for name in ("label_column", "unit_column", "text_template"):
        op.drop_column("dataset_versions", name)
    op.drop_table("fingerprint_key")
    op.drop_table("fingerprints")
