"""Jobs wait for a release of a shared ε, and the relay admits them at the price that was decided on."""

import sqlalchemy as sa
from alembic import op

revision = "0128"
down_revision = "0127"
branch_labels = None
depends_on = None

#: What changes in each function of the guards, as it stands and as it becomes.
GUARDS = {
    "guard_entry": (
        (
            "        WHEN 'relay' THEN CASE NEW.kind\n",
            "        WHEN 'relay' THEN CASE NEW.kind\n"
            "            WHEN 'RESERVE' THEN job.state = 'awaiting_release'\n",
        ),
    ),
    "guard_look": (
        (
            "    IF calling_process() <> 'checks' THEN\n",
            "    IF calling_process() NOT IN ('checks','relay') THEN\n",
        ),
    ),
    "guard_leased_job": (
        (
            "OLD.state = 'awaiting_approval' AND NEW.state = 'expired' OR changed_part(OLD.id)",
            "OLD.state = 'awaiting_approval' AND NEW.state = 'expired' "
            "OR OLD.state = 'awaiting_release' OR changed_part(OLD.id)",
        ),
    ),
    "guard_looked_at": (
        (
            "    IF calling_process() = 'checks' AND NOT (\n        OLD.state = 'submitted' AND",
            "    IF calling_process() IN ('checks','relay') AND NOT (\n"
            "        calling_process() = 'relay' AND OLD.state <> 'awaiting_release' AND\n"
            "        (NEW.terms, NEW.epsilon_alone, NEW.breakdown, NEW.refusal) IS NOT DISTINCT FROM\n"
            "        (OLD.terms, OLD.epsilon_alone, OLD.breakdown, OLD.refusal) OR\n"
            "        OLD.state = CASE calling_process() WHEN 'relay' THEN 'awaiting_release' "
            "ELSE 'submitted' END AND",
        ),
        (
            "            ELSE NEW.state IN ('submitted','awaiting_approval','refused') END\n",
            "            ELSE NEW.state IN ('submitted','awaiting_approval','awaiting_release',"
            "'refused') END\n",
        ),
    ),
    "guard_looked_at_parts": (
        (
            "    IF calling_process() <> 'checks' THEN\n",
            "    IF calling_process() NOT IN ('checks','relay') THEN\n",
        ),
    ),
}
STATES = (
    "submitted",
    "awaiting_approval",
    "awaiting_release",
    "refused",
    "expired",
    "queued",
    "running",
    "settling",
    "succeeded",
    "failed",
    "cancelled",
)


def upgrade() -> None:
    connection = op.get_bind()
    for name, changes in GUARDS.items():
        query = sa.text(f"SELECT pg_get_functiondef('{name}'::regproc)")
        guard = connection.scalar(query)
        for old, new in changes:
            if guard.count(old) != 1:
                raise RuntimeError(f"{name} is not as an earlier revision made it")
            guard = guard.replace(old, new)
        # As it stands: neither ":name" nor "%" in it is a parameter.
        connection.exec_driver_sql(guard, execution_options={"no_parameters": True})
    states = ",".join(f"'{state}'" for state in STATES)
    op.execute(
        "ALTER TABLE jobs DROP CONSTRAINT ck_jobs_state, "
        f"ADD CONSTRAINT ck_jobs_state CHECK (state IN ({states}))"
    )
    op.execute("DROP INDEX ix_jobs_waiting")
    op.execute(
        "CREATE INDEX ix_jobs_waiting ON jobs (analyst_id, state) WHERE reads_records AND state IN "
        "('submitted','awaiting_approval','awaiting_release','queued')"
    )
