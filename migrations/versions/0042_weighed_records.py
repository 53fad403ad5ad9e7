"""Fingerprints of records are evidence by their weight; those of units by column alone belong to one account."""

from alembic import op

revision = "0042"
down_revision = "0040"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "UPDATE fingerprints f SET is_unit = false "
        "FROM datasets d WHERE d.id = f.dataset_id AND d.unit_column IS NULL"
    )


def downgrade() -> None:
    op.execute(
        "UPDATE fingerprints f SET is_unit = true "
        "FROM datasets d WHERE d.id = f.dataset_id AND d.unit_column IS NULL"
    )
