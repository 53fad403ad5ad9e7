"""The guards of an admission cost less processor time; what they refuse is what it was, and documents with gaps."""

import re
from pathlib import Path

from alembic import op

revision = "0037"
down_revision = "0036"
branch_labels = None
depends_on = None

GUARDS = Path(__file__).resolve().parent.parent / "guards"

#: Where each function stands as it was before.
_BEFORE = {
    "may_wait": "0035_waiting.sql",
    "account_stand": "0033_admission.sql",
    "guard_look": "0035_looks.sql",
    "guard_looked_at_parts": "0035_looks.sql",
    "guard_entry": "0028_processes.sql",
    "guard_account": "0028_processes.sql",
}


def _run(statements: str) -> None:
    # As it stands: neither ":name" nor "%" in it is a parameter.
    op.get_bind().exec_driver_sql(statements, execution_options={"no_parameters": True})


def upgrade() -> None:
    _run((GUARDS / "0037_admission.sql").read_text("utf-8"))


def downgrade() -> None:
    for function, file in _BEFORE.items():
        pattern = rf"CREATE (FUNCTION {function}\(.*?\n(END )?\$\$;)"
        found = re.search(pattern, (GUARDS / file).read_text("utf-8"), re.DOTALL)
        assert found is not None
        _run("CREATE OR REPLACE " + found.group(1))
