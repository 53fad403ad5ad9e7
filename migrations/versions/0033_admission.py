"""Admission in one statement: a row that is held only where it is as its writer knows it."""

import re
from pathlib import Path

from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None

GUARDS = Path(__file__).resolve().parent.parent / "guards"


def _run(statements: str) -> None:
    # As it stands: neither ":name" nor "%" in it is a parameter.
    op.get_bind().exec_driver_sql(statements, execution_options={"no_parameters": True})


def upgrade() -> None:
    _run((GUARDS / "0033_admission.sql").read_text("utf-8"))


def downgrade() -> None:
    before = (GUARDS / "0028_processes.sql").read_text("utf-8")
    found = re.search(r"CREATE (FUNCTION published_text\(.*?END \$\$;)", before, re.DOTALL)
    assert found is not None
    _run("CREATE OR REPLACE " + found.group(1))
    op.execute("DROP FUNCTION hold_account(uuid, bigint, text, text, text[], timestamptz, uuid[], text[])")
    op.execute("DROP FUNCTION account_stand(uuid, text[])")
