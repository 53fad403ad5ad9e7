"""A database role a process: which role is which, and triggers of the owner's on what each may do.

An entry is posted by the process that may, with the hash of what it says; balances move only as the entries
of the same transaction say; that data was read stays recorded.
"""

from pathlib import Path

from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None

STATEMENTS = Path(__file__).resolve().parent.parent / "guards" / "0028_processes.sql"

_HOOKS = ("new_jobs", "changed_job", "account", "version", "proposal", "checkpoint")


def upgrade() -> None:
    # As it stands: neither ":name" nor "%" in it is a parameter.
    op.get_bind().exec_driver_sql(STATEMENTS.read_text("utf-8"), execution_options={"no_parameters": True})


def downgrade() -> None:
    for trigger, table, function in (
        ("entries_guard", "entries", "guard_entry()"),
        ("accounts_guard", "accounts", "guard_account()"),
        ("jobs_guard", "jobs", "guard_job()"),
        ("activity_guard", "activity", "guard_activity()"),
    ):
        op.execute(f"DROP TRIGGER {trigger} ON {table}")
        op.execute(f"DROP FUNCTION {function}")
    for function in (
        *("charge_on(jsonb, jsonb, text, text)", "settled_on(jsonb, jsonb, text, text)"),
        *("cost_on(jsonb, text, text)", "opened(jsonb)", "entry_hash(text)", "published_text(text)"),
        *("refuse_act(text)", "calling_process()"),
    ):
        op.execute(f"DROP FUNCTION {function}")
    for name in _HOOKS:
        op.execute(f"ALTER FUNCTION hook_{name}() SECURITY INVOKER RESET search_path")
    op.drop_table("checkpoint_requests")
    op.drop_table("private_places")
    op.drop_table("process_roles")
