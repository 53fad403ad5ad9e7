"""A key for each job that reads records, from its first claim to its end; how many jobs had secret batches."""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "job_keys",
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_job_keys_job_id")),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_job_keys")),
    )
    op.add_column(
        "accounts", sa.Column("coin_job_count", sa.Integer(), server_default=sa.text("0"), nullable=False)
    )
    op.create_check_constraint(op.f("ck_accounts_coin_job_count"), "accounts", "coin_job_count >= 0")


def downgrade() -> None:
    op.drop_constraint(op.f("ck_accounts_coin_job_count"), "accounts", type_="check")
    op.drop_column("accounts", "coin_job_count")
    op.drop_table("job_keys")
