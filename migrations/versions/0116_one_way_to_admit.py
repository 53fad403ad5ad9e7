"""No function compares an account with what a process expects of it: admission locks its row."""

from alembic import op

revision = "0116"
down_revision = "0115"


def upgrade() -> None:
    op.execute("DROP FUNCTION hold_account")
    op.execute("DROP FUNCTION account_stand")
    op.execute("DROP FUNCTION may_wait")
