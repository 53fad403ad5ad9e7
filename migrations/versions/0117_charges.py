"""Charges of other programs: the web begins and settles them under a lease that the client holds.

No worker touches a charge. The web ends no other job that runs. A charge's COMMIT without a signature
costs what was reserved. One that nobody begins within a day is void.
"""

from alembic import op

revision = "0117"
down_revision = "0116"

ROWS = """
ALTER TABLE usage DROP CONSTRAINT ck_usage_kind;
ALTER TABLE usage ADD CONSTRAINT ck_usage_kind CHECK (kind IN ('analyst','project','stated','signed'));
ALTER TABLE jobs DROP CONSTRAINT ck_jobs_output;
ALTER TABLE jobs ADD CONSTRAINT ck_jobs_output CHECK (
    (state = 'succeeded' AND mechanism <> 'charge') = (output_sha256 IS NOT NULL));
"""

FUNCTIONS = r"""
-- Whether an entry reserves the job as a charge of another program: what its row says counts for nothing.
CREATE FUNCTION is_charge(of_job uuid) RETURNS boolean
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    AS $$
    SELECT EXISTS (SELECT FROM entries WHERE job_id = of_job AND kind = 'RESERVE'
        AND document::jsonb #>> '{body,mechanism}' = 'charge')
$$;

-- A charge that nobody has begun within a day.
CREATE FUNCTION is_left(of_job uuid) RETURNS boolean
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    AS $$
    SELECT EXISTS (SELECT FROM jobs WHERE id = of_job AND state = 'queued'
        AND queued_at < clock_timestamp() - interval '1 day') AND is_charge(of_job)
$$;

CREATE FUNCTION guard_charge() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    AS $$
DECLARE
    body CONSTANT jsonb := NEW.document::jsonb -> 'body';
    reserved jsonb;
BEGIN
    IF calling_process() = 'owner' THEN
        RETURN NULL;
    END IF;
    SELECT document::jsonb -> 'body' INTO reserved FROM entries WHERE job_id = NEW.job_id AND kind = 'RESERVE';
    IF reserved ->> 'mechanism' IS DISTINCT FROM 'charge' THEN
        RETURN NULL;
    END IF;
    IF calling_process() = 'worker' THEN
        PERFORM refuse_act('no worker runs a charge');
    ELSIF NEW.kind = 'COMMIT' AND body -> 'costs' IS DISTINCT FROM reserved -> 'costs'
        AND (body #>> '{evidence,signature}' IS NULL OR reserved #>> '{parameters,runner}' IS NULL
            OR body ->> 'outcome' IS DISTINCT FROM 'succeeded')
    THEN
        PERFORM refuse_act('a charge that no runner signed is charged whole');
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER entries_charge AFTER INSERT ON entries FOR EACH ROW
    WHEN ((new.kind = ANY (ARRAY['COMMIT', 'VOID']))) EXECUTE FUNCTION guard_charge();

-- That a job began is a worker's to say, and of a charge the web's, for a client that holds its lease.
CREATE FUNCTION guard_begun() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    AS $$
BEGIN
    IF calling_process() = 'web' AND NOT (is_charge(OLD.id) AND holds_lease(OLD.id)) THEN
        PERFORM refuse_act('it begins no job of a worker''s, and no charge without its lease');
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER jobs_begun BEFORE UPDATE ON jobs FOR EACH ROW WHEN (
    (new.started_at, new.reading_began_at) IS DISTINCT FROM (old.started_at, old.reading_began_at)
    OR new.state IN ('running','settling') AND new.state <> old.state)
    EXECUTE FUNCTION guard_begun();
"""

GUARD_ENTRY = r"""
CREATE OR REPLACE FUNCTION guard_entry() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    AS $$
DECLARE
    process text := calling_process();
    written jsonb;
    body jsonb;
    named text;
    job record;
BEGIN
    IF process = 'owner' THEN
        RETURN NULL;
    END IF;
    written := NEW.document::jsonb;
    body := written -> 'body';
    SELECT name INTO named FROM datasets WHERE id = NEW.dataset_id;
    IF NEW.hash IS DISTINCT FROM entry_hash(NEW.document)
        OR (written ->> 'seq')::bigint IS DISTINCT FROM NEW.seq
        OR written ->> 'kind' IS DISTINCT FROM NEW.kind
        OR written ->> 'previous' IS DISTINCT FROM NEW.previous
        OR written ->> 'job' IS DISTINCT FROM NEW.job_id::text
        OR written ->> 'dataset' IS DISTINCT FROM named
        OR opened(written -> 'actor') IS DISTINCT FROM NEW.actor
    THEN
        PERFORM refuse_act('the row of the entry is not what its document says, or its hash is another');
    END IF;
    SELECT dataset_id, state, reading_began_at INTO job FROM jobs WHERE id = NEW.job_id;
    IF NEW.job_id IS NOT NULL AND job.dataset_id IS DISTINCT FROM NEW.dataset_id THEN
        PERFORM refuse_act('the job is another dataset''s');
    END IF;
    IF NEW.kind NOT IN ('VOID','COMMIT') THEN
        IF process IN ('service','web') THEN
            RETURN NULL;
        END IF;
    ELSIF job.state NOT IN ('queued','running','settling') THEN
        PERFORM refuse_act('the job has no reservation to settle');
    ELSIF NEW.kind = 'VOID' AND (job.reading_began_at IS NOT NULL OR body ->> 'read' IS DISTINCT FROM 'false') THEN
        PERFORM refuse_act('a reservation under which data was read is not given back');
    END IF;
    IF (CASE process
        WHEN 'service' THEN true
        WHEN 'web' THEN body ->> 'outcome' = 'cancelled' AND NOT EXISTS (
                SELECT FROM parts WHERE job_id = NEW.job_id AND state = 'running')
            OR NEW.kind = 'COMMIT' AND NEW.job_id IN (SELECT leased_jobs()) AND is_charge(NEW.job_id)
        WHEN 'worker' THEN NEW.kind IN ('VOID','COMMIT') AND EXISTS (
            SELECT FROM parts WHERE job_id = NEW.job_id AND state = 'running')
        WHEN 'relay' THEN CASE NEW.kind
            WHEN 'VOID' THEN is_left(NEW.job_id) OR EXISTS (
                SELECT FROM parts WHERE job_id = NEW.job_id AND state = 'running'
                AND lease_expires < clock_timestamp())
            WHEN 'COMMIT' THEN body ->> 'outcome' IN ('failed','cancelled') AND EXISTS (
                SELECT FROM parts WHERE job_id = NEW.job_id AND state = 'running'
                AND lease_expires < clock_timestamp())
            ELSE false END
        WHEN 'checks' THEN CASE NEW.kind
            WHEN 'RESERVE' THEN job.state = 'submitted' AND body ->> 'approval' IS NULL
            WHEN 'REGISTER' THEN EXISTS (
                    SELECT FROM dataset_versions WHERE dataset_id = NEW.dataset_id AND state = 'ready'
                    AND number = (body ->> 'version')::integer)
                AND NOT EXISTS (SELECT FROM entries WHERE dataset_id = NEW.dataset_id AND kind = 'REGISTER'
                    AND kind IN ('ALLOW','VOID','REVERSAL','REGISTER','POLICY') AND seq < NEW.seq
                    AND document::jsonb #> '{body,version}' = body -> 'version')
            ELSE false END
        ELSE false END) IS NOT TRUE
    THEN
        PERFORM refuse_act(format('it does not post %s here', NEW.kind));
    END IF;
    RETURN NULL;
END $$;
"""

GUARD_LEASES = r"""
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
                WHEN 'web' THEN lease_secret_sha256 = lease_shown() AND is_charge(job_id)
                WHEN 'relay' THEN lease_expires < clock_timestamp()
                ELSE false END AS mine
            FROM old_parts)
        SELECT FROM was LEFT JOIN new_parts n USING (job_id, number)
        WHERE NOT coalesce(
            was.mine AND (process = 'worker' OR process = 'web' AND n.state IN ('running','stopped')
                OR n.state = 'stopped' OR n.state = 'queued' AND NOT is_charge(was.job_id))
            OR process = 'relay' AND n.state = 'stopped' AND is_left(was.job_id)
            -- Who ends a job ends all of its parts.
            OR n.state = 'stopped' AND (EXISTS (SELECT FROM was o WHERE o.job_id = was.job_id AND o.mine)
                OR process = 'worker' AND was.job_id IN (SELECT leased_jobs())
                OR process = 'web' AND NOT EXISTS (
                    SELECT FROM was o WHERE o.job_id = was.job_id AND o.state = 'running'))
            OR process IN ('worker','web') AND was.state = 'queued' AND n.state = 'running'
                AND n.attempt = was.attempt AND n.lease_secret_sha256 = lease_shown()
                AND is_charge(was.job_id) = (process = 'web'),
            false)
    ) THEN
        PERFORM refuse_act('the lease is another''s, or has not run out');
    END IF;
    RETURN NULL;
END $$;
"""


def upgrade() -> None:
    connection = op.get_bind()
    for statements in (ROWS, FUNCTIONS, GUARD_ENTRY, GUARD_LEASES):
        # As it stands: neither ":name" nor "%" in it is a parameter.
        connection.exec_driver_sql(statements, execution_options={"no_parameters": True})
