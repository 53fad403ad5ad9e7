"""A job that reserved nothing can't be settled: its entry let a limit of the account change unseen.

What the reservation says was read as NULL then, and so was whether it takes the account for whole jobs.
"""

import re
from pathlib import Path

from alembic import op

revision = "0038"
down_revision = "0037"
branch_labels = None
depends_on = None

GUARDS = Path(__file__).resolve().parent.parent / "guards"

#: What `guard_account` asks first, and the line before which it does.
ASKED = """IF held IS NULL THEN
            PERFORM refuse_act('it settles what nobody reserved');
        END IF;
        """
BEFORE = "whole := whole OR held ? 'whole';"


def _replace(asked: str) -> None:
    text = (GUARDS / "0037_admission.sql").read_text("utf-8")
    found = re.search(r"CREATE OR REPLACE FUNCTION guard_account\(.*?\nEND \$\$;", text, re.DOTALL)
    assert found is not None
    assert found.group().count(BEFORE) == 1
    # As it stands: neither ":name" nor "%" in it is a parameter.
    function = found.group().replace(BEFORE, asked + BEFORE)
    op.get_bind().exec_driver_sql(function, execution_options={"no_parameters": True})


def upgrade() -> None:
    _replace(ASKED)


def downgrade() -> None:
    _replace("")
