-- A lease has a secret of 32 random bytes. Its worker alone knows it; its SHA-256 stands beside the lease. A worker
-- shows it to each transaction under the lease (`exchequer.lease`, transactions.rows.show), and these guards compare:
-- so a stolen worker can act on no job but those that it claimed itself. All workers share a role, so a right can't
-- tell them apart. Leases of before have no secret, and end as they began; a claim without one is refused.

ALTER TABLE parts ADD COLUMN lease_secret_sha256 bytea;

CREATE FUNCTION lease_shown() RETURNS bytea LANGUAGE sql STABLE AS $$
    SELECT sha256(decode(nullif(current_setting('exchequer.lease', true), ''), 'hex'))
$$;

-- The jobs with a part whose lease the transaction has shown to hold.
CREATE FUNCTION leased_jobs() RETURNS SETOF uuid LANGUAGE sql STABLE
SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT job_id FROM parts
    WHERE state = 'running' AND (lease_secret_sha256 IS NULL OR lease_secret_sha256 = lease_shown())
$$;

-- Whether this very transaction has changed a part of the job: guard_leases let it, and then it may end it whole.
CREATE FUNCTION changed_part(of_job uuid) RETURNS boolean LANGUAGE sql VOLATILE
SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT EXISTS (SELECT FROM parts WHERE job_id = of_job AND xmin = pg_current_xact_id_if_assigned()::xid)
$$;

CREATE FUNCTION holds_lease(of_job uuid) RETURNS boolean LANGUAGE sql VOLATILE
SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT of_job IN (SELECT leased_jobs()) OR changed_part(of_job)
$$;

-- --- who takes, renews and ends a lease ----------------------------------------------------------------

CREATE FUNCTION guard_leases() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = public, pg_temp AS $$
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
                WHEN 'worker' THEN coalesce(lease_secret_sha256 = lease_shown(), lease_secret_sha256 IS NULL)
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
CREATE TRIGGER parts_leases AFTER UPDATE ON parts REFERENCING OLD TABLE AS old_parts NEW TABLE AS new_parts
    FOR EACH STATEMENT EXECUTE FUNCTION guard_leases();

-- --- what a worker writes of a job ---------------------------------------------------------------------

CREATE FUNCTION guard_lease() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    IF calling_process() = 'worker' AND NOT holds_lease(NEW.job_id) THEN
        PERFORM refuse_act('it holds no lease on the job');
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER entries_lease AFTER INSERT ON entries FOR EACH ROW
    WHEN (NEW.kind IN ('COMMIT','VOID')) EXECUTE FUNCTION guard_lease();
CREATE TRIGGER artifacts_lease AFTER INSERT ON artifacts FOR EACH ROW EXECUTE FUNCTION guard_lease();
CREATE TRIGGER realized_ex_post_lease AFTER INSERT ON realized_ex_post FOR EACH ROW EXECUTE FUNCTION guard_lease();

CREATE FUNCTION guard_leased_job() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    IF NOT (CASE calling_process()
        WHEN 'worker' THEN holds_lease(OLD.id)
        WHEN 'relay' THEN OLD.state = 'awaiting_approval' AND NEW.state = 'expired' OR changed_part(OLD.id)
        ELSE true END)
    THEN
        PERFORM refuse_act('it holds no lease on the job');
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER jobs_lease BEFORE UPDATE ON jobs FOR EACH ROW EXECUTE FUNCTION guard_leased_job();

-- --- what a worker keeps of a job ----------------------------------------------------------------------

-- Who is no worker has column rights alone, and may delete what ends with a job.
ALTER TABLE job_keys ENABLE ROW LEVEL SECURITY;
CREATE POLICY leased ON job_keys
    USING ((SELECT calling_process()) <> 'worker' OR job_id IN (SELECT leased_jobs()));
ALTER TABLE kept_draws ENABLE ROW LEVEL SECURITY;
CREATE POLICY leased ON kept_draws
    USING ((SELECT calling_process()) <> 'worker' OR job_id IN (SELECT leased_jobs()));
