"""A process's powers over one job: a lease has a secret; a look at a model reserves what the web decided.

And an index, by which a person's waiting jobs are counted. What runs while this is applied goes on.
"""

from pathlib import Path

from alembic import op

revision = "0035"
down_revision = "0034"
branch_labels = None
depends_on = None

GUARDS = Path(__file__).resolve().parent.parent / "guards"

_TRIGGERS = {
    "parts_leases": "parts",
    "entries_lease": "entries",
    "artifacts_lease": "artifacts",
    "realized_ex_post_lease": "realized_ex_post",
    "jobs_lease": "jobs",
    "entries_look": "entries",
    "jobs_look": "jobs",
    "parts_look": "parts",
}


def upgrade() -> None:
    for name in ("0035_leases.sql", "0035_looks.sql", "0035_waiting.sql"):
        # As it stands: neither ":name" nor "%" in it is a parameter.
        statements = (GUARDS / name).read_text("utf-8")
        op.get_bind().exec_driver_sql(statements, execution_options={"no_parameters": True})


def downgrade() -> None:
    op.execute("DROP FUNCTION may_wait(uuid[], integer[], integer)")
    op.drop_index("ix_jobs_waiting", "jobs")
    for table in ("job_keys", "kept_draws"):
        op.execute(f"DROP POLICY leased ON {table}")
        op.execute(f"ALTER TABLE {table} DISABLE ROW LEVEL SECURITY")
    for trigger, table in _TRIGGERS.items():
        op.execute(f"DROP TRIGGER {trigger} ON {table}")
    for function in (
        *("guard_leased_job()", "guard_lease()", "guard_leases()", "holds_lease(uuid)"),
        *("changed_part(uuid)", "leased_jobs()", "lease_shown()"),
        *("guard_look()", "guard_looked_at()", "guard_looked_at_parts()", "unsealed(jsonb)"),
    ):
        op.execute(f"DROP FUNCTION {function}")
    op.drop_column("parts", "lease_secret_sha256")
    op.drop_column("jobs", "to_reserve")
