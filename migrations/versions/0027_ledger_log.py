"""Where the log outside the database stood, so that a log that was cut short or exchanged is noticed."""

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "ledger_log_marks",
        sa.Column("n", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("log", sa.Text(), nullable=False),
        sa.Column("line", sa.Text(), nullable=False),
        sa.Column(
            "at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column("system", sa.Text(), nullable=False),
        sa.Column("timeline", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("n", name=op.f("pk_ledger_log_marks")),
        sa.CheckConstraint("n >= 0", name=op.f("ck_ledger_log_marks_n")),
    )


def downgrade() -> None:
    op.drop_table("ledger_log_marks")
