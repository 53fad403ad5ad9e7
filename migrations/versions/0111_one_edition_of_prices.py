"""There is one edition of prices: no account has another, so no row says which.

ALLOW entries keep the number, as a replay must get what they state.
"""

import sqlalchemy as sa
from alembic import op

revision = "0111"
down_revision = "0106"


def upgrade() -> None:
    connection = op.get_bind()
    if connection.scalar(
        sa.text("SELECT count(*) FROM accounts WHERE epsilon IS NOT NULL AND price_edition <> 2")
    ):
        raise RuntimeError("an account has prices of another edition, which nothing can replay")
    definition = connection.scalar(sa.text("SELECT pg_get_functiondef('guard_account'::regproc)"))
    guard = definition.replace(" NEW.price_edition,", "").replace(" OLD.price_edition,", "")
    connection.exec_driver_sql(guard, execution_options={"no_parameters": True})
    op.drop_column("accounts", "price_edition")
    op.create_check_constraint(
        op.f("ck_accounts_whole_epsilon"),
        "accounts",
        "CASE WHEN epsilon IS NULL THEN basic_whole_epsilon = 0 ELSE basic_whole_epsilon > 0 END",
    )
