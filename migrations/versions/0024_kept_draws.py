"""Draws of a job are kept until it ends; parts handed back by plan; free jobs have messages of their own."""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "kept_draws",
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("part", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id", "part"],
            ["parts.job_id", "parts.number"],
            name=op.f("fk_kept_draws_job_id_part"),
        ),
        sa.PrimaryKeyConstraint("job_id", "part", "number", name=op.f("pk_kept_draws")),
        sa.CheckConstraint("number >= 0", name=op.f("ck_kept_draws_number")),
    )
    op.add_column(
        "parts", sa.Column("handed_back", sa.Integer(), server_default=sa.text("0"), nullable=False)
    )
    op.create_check_constraint(
        op.f("ck_parts_handed_back"), "parts", "handed_back >= 0 AND handed_back < attempt"
    )
    _tasks("'generate','free','probe','check_dataset','check_model','check_corpus'")


def _tasks(names: str) -> None:
    op.drop_constraint(op.f("ck_outbox_task"), "outbox", type_="check")
    op.create_check_constraint(op.f("ck_outbox_task"), "outbox", f"task IN ({names})")


def downgrade() -> None:
    op.execute("UPDATE outbox SET task = 'generate' WHERE task = 'free'")
    _tasks("'generate','probe','check_dataset','check_model','check_corpus'")
    op.drop_constraint(op.f("ck_parts_handed_back"), "parts", type_="check")
    op.drop_column("parts", "handed_back")
    op.drop_table("kept_draws")
