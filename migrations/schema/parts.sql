CREATE TABLE parts (
    job_id uuid NOT NULL CONSTRAINT fk_parts_job_id REFERENCES jobs,
    number integer NOT NULL CONSTRAINT ck_parts_number CHECK (number >= 0),
    state text NOT NULL CONSTRAINT ck_parts_state CHECK (state IN ('queued', 'running', 'done', 'stopped')),
    attempt integer NOT NULL,
    lease_token uuid,
    lease_expires timestamptz,
    worker text,
    progress_done bigint DEFAULT '0' NOT NULL,
    progress_total bigint DEFAULT '0' NOT NULL,
    staged_sha256 text,
    realized jsonb,
    realized_ex_post numeric(38,0),
    ex_post_curve jsonb,
    handed_back integer DEFAULT 0 NOT NULL,
    lease_secret_sha256 bytea,
    draft text,
    hardware text DEFAULT '' NOT NULL,
    CONSTRAINT ck_parts_expiry CHECK ((lease_token IS NULL) = (lease_expires IS NULL)),
    CONSTRAINT ck_parts_handed_back CHECK (handed_back >= 0 AND handed_back < attempt),
    CONSTRAINT ck_parts_lease CHECK ((state = 'running') = (lease_token IS NOT NULL)),
    CONSTRAINT pk_parts PRIMARY KEY (job_id, number)
);
CREATE INDEX ix_parts_live ON parts (state) WHERE state IN ('queued', 'running');

CREATE FUNCTION guard_leases() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path TO 'public', 'pg_temp' AS $$
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

-- The parts of a job, in the transaction that queues it.
CREATE FUNCTION guard_looked_at_parts() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path TO 'public', 'pg_temp' AS $$
BEGIN
    IF calling_process() NOT IN ('checks','relay') THEN
        RETURN NULL;
    END IF;
    IF NEW.state <> 'queued' OR NOT EXISTS (
        SELECT FROM jobs WHERE id = NEW.job_id AND state = 'queued'
        AND xmin = pg_current_xact_id_if_assigned()::xid)
    THEN
        PERFORM refuse_act('it queues what it looked at alone');
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER parts_leases AFTER UPDATE ON parts REFERENCING OLD TABLE AS old_parts NEW TABLE AS new_parts
    FOR EACH STATEMENT EXECUTE FUNCTION guard_leases();
CREATE TRIGGER parts_look AFTER INSERT ON parts FOR EACH ROW EXECUTE FUNCTION guard_looked_at_parts();
