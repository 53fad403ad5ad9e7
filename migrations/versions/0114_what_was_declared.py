"""Three guards: on registrations, on leases and on jobs that no worker can take.

The process that checks data registers what a steward declared, and nothing else. Every lease has a
secret. A part that a worker refused, as entries make no order for it, stands in a table.
"""

from alembic import op

revision = "0114"
down_revision = "0113"

DECLARED = """
CREATE FUNCTION guard_declared() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    AS $$
DECLARE
    body CONSTANT jsonb := NEW.document::jsonb -> 'body';
    layout CONSTANT jsonb := opened(body -> 'layout')::jsonb;
BEGIN
    IF calling_process() = 'checks' AND NOT EXISTS (
        SELECT FROM datasets d JOIN dataset_versions v ON v.dataset_id = d.id JOIN users u ON u.id = v.created_by
        WHERE d.id = NEW.dataset_id AND v.number = (body ->> 'version')::integer AND u.name = NEW.actor
        AND body -> 'terms' = jsonb_build_object('unit_column', d.unit_column, 'neighbours', d.neighbours,
                'max_records_per_unit', d.max_records_per_unit, 'public_size', d.public_size,
                'labels', d.labels, 'groups', d.groups)
            || CASE d.unit_spelling WHEN 'refuse' THEN '{}'
                ELSE jsonb_build_object('unit_spelling', d.unit_spelling) END
            || CASE d.missing_units WHEN 'refuse' THEN '{}'
                ELSE jsonb_build_object('missing_units', d.missing_units) END
        AND layout - 'secrets' = jsonb_build_object('uri', v.uri, 'text_template', v.text_template,
            'label_column', v.label_column, 'group_column', v.group_column, 'secret_column', v.secret_column)
        -- Which secrets are declared, their hash says to a worker: it runs nothing under another.
        AND (layout ->> 'secrets' IS NULL) = (d.secret_patterns = '[]' AND d.secret_terms = '[]')
        AND opened(body -> 'data')::jsonb = v.data)
    THEN
        PERFORM refuse_act('it registers what a steward declared, and nothing else');
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER entries_declared AFTER INSERT ON entries FOR EACH ROW
    WHEN ((new.kind = 'REGISTER')) EXECUTE FUNCTION guard_declared();
"""

LEASES = """
-- The jobs with a part whose lease the transaction has shown to hold.
CREATE OR REPLACE FUNCTION leased_jobs() RETURNS SETOF uuid
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    AS $$
    SELECT job_id FROM parts WHERE state = 'running' AND lease_secret_sha256 = lease_shown()
$$;

CREATE OR REPLACE FUNCTION guard_leases() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    AS $$
DECLARE
    process text := calling_process();
BEGIN
    IF process IN ('owner','service') THEN
        RETURN NULL;
    END IF;
    -- `mine`: the lease may be ended by who asks: its holder, or the relay once its time is over.
    IF EXISTS (
        WITH was AS (
            SELECT *, state = 'running' AND CASE process
                WHEN 'worker' THEN lease_secret_sha256 = lease_shown()
                WHEN 'relay' THEN lease_expires < clock_timestamp()
                ELSE false END AS mine
            FROM old_parts)
        SELECT FROM was LEFT JOIN new_parts n USING (job_id, number)
        WHERE NOT coalesce(
            was.mine AND (process = 'worker' OR n.state IN ('queued','stopped'))
            -- Who ends a job ends all of its parts.
            OR n.state = 'stopped' AND (EXISTS (SELECT FROM was o WHERE o.job_id = was.job_id AND o.mine)
                OR process = 'worker' AND was.job_id IN (SELECT leased_jobs())
                OR process = 'web' AND NOT EXISTS (
                    SELECT FROM was o WHERE o.job_id = was.job_id AND o.state = 'running'))
            OR process = 'worker' AND was.state = 'queued' AND n.state = 'running'
                AND n.attempt = was.attempt AND n.lease_secret_sha256 = lease_shown(),
            false)
    ) THEN
        PERFORM refuse_act('the lease is another''s, or has not run out');
    END IF;
    RETURN NULL;
END $$;
"""

REFUSED = """
CREATE TABLE refused_parts (
    job_id uuid NOT NULL,
    number integer NOT NULL,
    at timestamptz DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT pk_refused_parts PRIMARY KEY (job_id, number),
    CONSTRAINT fk_refused_parts_job_id FOREIGN KEY (job_id) REFERENCES jobs(id)
);
"""


def upgrade() -> None:
    connection = op.get_bind()
    for statements in (DECLARED, LEASES, REFUSED):
        # As it stands: neither ":name" nor "%" in it is a parameter.
        connection.exec_driver_sql(statements, execution_options={"no_parameters": True})
