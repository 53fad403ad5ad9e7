"""Two people declare a charge that has happened already and is more than was left: an overdraft.

It alone, beside a correction, takes an account beyond its limits. It is reserved and charged at once,
whole, and never given back.
"""

import sqlalchemy as sa
from alembic import op

revision = "0123"
down_revision = "0122"
branch_labels = None
depends_on = None

ROWS = """
ALTER TABLE decisions DROP CONSTRAINT ck_decisions_kind, DROP CONSTRAINT ck_decisions_made_job;
ALTER TABLE decisions ADD CONSTRAINT ck_decisions_kind CHECK (
        kind IN ('offer','allowance','correction','policy','access','loss','overdraft')),
    ADD CONSTRAINT ck_decisions_made_job CHECK (
        (state = 'accepted' AND kind IN ('offer','overdraft')) = (made_job IS NOT NULL));

ALTER TABLE accounts ADD COLUMN overdraft_count integer DEFAULT 0 NOT NULL,
    ADD COLUMN overdraft_epsilon numeric(38,0) DEFAULT '0' NOT NULL,
    ADD CONSTRAINT ck_accounts_overdrafts CHECK (
        (overdraft_count > 0) = (overdraft_epsilon > 0) AND overdraft_count >= 0
        AND overdraft_epsilon < 'NaN');
ALTER TABLE standings DISABLE TRIGGER USER;
UPDATE standings SET account = account || '{"overdraft_count": 0, "overdraft_epsilon": 0}';
ALTER TABLE standings ENABLE TRIGGER USER;

-- Whether two people declared the job after it had happened, and what it costs then.
CREATE FUNCTION overdraft_costs(of_job uuid) RETURNS jsonb
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    AS $$
    SELECT document::jsonb #> '{body,costs}' FROM entries WHERE job_id = of_job AND kind = 'RESERVE'
        AND document::jsonb #> '{body,overdraft}' IS NOT NULL
$$;
"""

#: What changes in the functions that guard entries and accounts.
GUARDS = {
    "guard_entry": (
        (
            "AND is_charge(NEW.job_id)\n",
            "AND is_charge(NEW.job_id)\n"
            "            OR NEW.kind = 'COMMIT' AND body -> 'costs' = overdraft_costs(NEW.job_id)\n",
        ),
        (
            "job.reading_began_at IS NOT NULL OR",
            "job.reading_began_at IS NOT NULL OR overdraft_costs(NEW.job_id) IS NOT NULL OR",
        ),
    ),
    "guard_account": (
        (
            "    corrects boolean := false;\n",
            "    corrects boolean := false;\n    overdrafts integer := 0;\n",
        ),
        (
            "        whole := whole OR held ? 'whole';\n",
            "        whole := whole OR held ? 'whole';\n"
            "        overdrafts := overdrafts + (entry.kind = 'RESERVE' AND held ? 'overdraft')::integer;\n",
        ),
        (
            "NOT OLD.overdrawn AND NOT corrects THEN\n"
            "        PERFORM refuse_act('an account is overdrawn by a correction alone');",
            "NOT OLD.overdrawn AND NOT corrects AND overdrafts = 0 THEN\n"
            "        PERFORM refuse_act('an account is overdrawn by a correction or an overdraft alone');\n"
            "    ELSIF NEW.overdraft_count <> OLD.overdraft_count + overdrafts\n"
            "        OR (NEW.overdraft_epsilon > OLD.overdraft_epsilon) <> (overdrafts > 0)\n"
            "        OR NEW.overdraft_epsilon < OLD.overdraft_epsilon THEN\n"
            "        PERFORM refuse_act('the overdrafts are not those that the entries declare');",
        ),
    ),
}


def upgrade() -> None:
    connection = op.get_bind()
    # As it stands: neither ":name" nor "%" in it is a parameter.
    connection.exec_driver_sql(ROWS, execution_options={"no_parameters": True})
    for name, changes in GUARDS.items():
        query = sa.text("SELECT pg_get_functiondef(CAST(:name AS regproc))")
        guard = connection.scalar(query, {"name": name})
        for old, new in changes:
            if guard.count(old) != 1:
                raise RuntimeError(f"{name} is not as an earlier revision made it")
            guard = guard.replace(old, new)
        connection.exec_driver_sql(guard, execution_options={"no_parameters": True})
