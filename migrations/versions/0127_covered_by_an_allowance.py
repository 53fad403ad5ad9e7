"""An overdrawn account is opened by an allowance or a correction alone, and by no refund."""

import sqlalchemy as sa
from alembic import op

revision = "0127"
down_revision = "0126"
branch_labels = None
depends_on = None

OLD = "    ELSIF NEW.overdraft_count <> OLD.overdraft_count + overdrafts\n"
NEW = (
    "    ELSIF OLD.overdrawn AND NOT NEW.overdrawn AND NOT allows AND NOT corrects THEN\n"
    "        PERFORM refuse_act('an account is opened by an allowance or a correction alone');\n"
)


def upgrade() -> None:
    connection = op.get_bind()
    query = sa.text("SELECT pg_get_functiondef('guard_account'::regproc)")
    guard = connection.scalar(query)
    if guard.count(OLD) != 1:
        raise RuntimeError("guard_account is not as an earlier revision made it")
    # As it stands: neither ":name" nor "%" in it is a parameter.
    guard = guard.replace(OLD, NEW + OLD)
    connection.exec_driver_sql(guard, execution_options={"no_parameters": True})
