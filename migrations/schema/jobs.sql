CREATE TABLE jobs (
    id uuid CONSTRAINT pk_jobs PRIMARY KEY,
    dataset_id uuid NOT NULL CONSTRAINT fk_jobs_dataset_id REFERENCES datasets,
    version_id uuid NOT NULL CONSTRAINT fk_jobs_version_id REFERENCES dataset_versions,
    model_id uuid CONSTRAINT fk_jobs_model_id REFERENCES models,
    analyst_id uuid NOT NULL CONSTRAINT fk_jobs_analyst_id REFERENCES users,
    mechanism text NOT NULL,
    parameters jsonb NOT NULL,
    terms jsonb NOT NULL,
    resources jsonb DEFAULT '{}' NOT NULL,
    event jsonb,
    epsilon_alone double precision,
    breakdown jsonb NOT NULL,
    purpose text NOT NULL,
    project text,
    idempotency_key text,
    request_sha256 text NOT NULL,
    state text NOT NULL,
    refusal jsonb,
    decided_by uuid CONSTRAINT fk_jobs_decided_by REFERENCES users,
    decision_reason text,
    created_at timestamptz DEFAULT clock_timestamp() NOT NULL,
    approval_expires timestamptz,
    decided_at timestamptz,
    queued_at timestamptz,
    started_at timestamptz,
    finished_at timestamptz,
    attempt integer DEFAULT 0 NOT NULL,
    reading_began_at timestamptz,
    cancel_requested boolean DEFAULT false NOT NULL,
    output_sha256 text,
    failure text,
    source_job_id uuid CONSTRAINT fk_jobs_source_job_id REFERENCES jobs,
    sources jsonb DEFAULT '{}' NOT NULL,
    reads_records boolean DEFAULT true NOT NULL,
    to_reserve jsonb,
    place integer NOT NULL,
    CONSTRAINT ck_jobs_event CHECK ((event IS NULL) = (epsilon_alone IS NULL)),
    CONSTRAINT ck_jobs_output CHECK (
        (state = 'succeeded' AND mechanism <> 'charge') = (output_sha256 IS NOT NULL)),
    CONSTRAINT ck_jobs_reads_no_records CHECK (reads_records OR reading_began_at IS NULL),
    CONSTRAINT ck_jobs_refusal CHECK ((state = 'refused') = (refusal IS NOT NULL)),
    CONSTRAINT ck_jobs_source CHECK (source_job_id IS NULL OR NOT reads_records),
    CONSTRAINT ck_jobs_state CHECK (state IN ('submitted', 'awaiting_approval', 'awaiting_release',
        'refused', 'expired', 'queued', 'running', 'settling', 'succeeded', 'failed', 'cancelled')),
    CONSTRAINT uq_jobs_analyst_id_idempotency_key UNIQUE (analyst_id, idempotency_key),
    CONSTRAINT uq_jobs_place UNIQUE (dataset_id, place)
);
CREATE INDEX ix_jobs_analyst_id_jobs_created_at ON jobs (analyst_id, created_at);
CREATE INDEX ix_jobs_approval_expires ON jobs (approval_expires) WHERE state = 'awaiting_approval';
CREATE INDEX ix_jobs_created_at ON jobs (created_at, id);
CREATE INDEX ix_jobs_dataset_id_jobs_created_at ON jobs (dataset_id, created_at);
CREATE INDEX ix_jobs_decided_at ON jobs (decided_at, id, dataset_id) WHERE decided_by IS NOT NULL;
CREATE INDEX ix_jobs_decided_by ON jobs (decided_by, decided_at) WHERE decided_by IS NOT NULL;
CREATE INDEX ix_jobs_live ON jobs (state) WHERE state IN ('queued', 'running', 'settling');
CREATE INDEX ix_jobs_mechanism ON jobs (mechanism, created_at);
CREATE INDEX ix_jobs_refused ON jobs (finished_at, id, dataset_id, analyst_id) WHERE state = 'refused';
CREATE INDEX ix_jobs_state ON jobs (state, created_at);
-- How many jobs with a price one person has waiting (transactions.waiting_jobs).
CREATE INDEX ix_jobs_waiting ON jobs (analyst_id, state)
    WHERE reads_records AND state IN ('submitted', 'awaiting_approval', 'awaiting_release', 'queued');
-- A runner's signature asks for one charge and begins one, whoever sends it again.
CREATE UNIQUE INDEX uq_jobs_signature ON jobs ((parameters ->> 'signature')) WHERE mechanism = 'charge';

-- That a job began is a worker's to say, and of a charge the web's, for a client that holds its lease.
CREATE FUNCTION guard_begun() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path TO 'public', 'pg_temp' AS $$
BEGIN
    IF calling_process() = 'web' AND NOT (is_charge(OLD.id) AND holds_lease(OLD.id)) THEN
        PERFORM refuse_act('it begins no job of a worker''s, and no charge without its lease');
    END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION guard_job() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path TO 'public', 'pg_temp' AS $$
BEGIN
    IF calling_process() <> 'owner' THEN
        PERFORM refuse_act('that data was read stays recorded, and a job that ended stays as it is');
    END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION guard_leased_job() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path TO 'public', 'pg_temp' AS $$
BEGIN
    IF NOT (CASE calling_process()
        WHEN 'worker' THEN holds_lease(OLD.id)
        WHEN 'relay' THEN OLD.state = 'awaiting_approval' AND NEW.state = 'expired'
            OR OLD.state = 'awaiting_release' OR changed_part(OLD.id)
        ELSE true END)
    THEN
        PERFORM refuse_act('it holds no lease on the job');
    END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION guard_looked_at() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path TO 'public', 'pg_temp' AS $$
BEGIN
    IF calling_process() IN ('checks','relay') AND NOT (
        calling_process() = 'relay' AND OLD.state <> 'awaiting_release' AND
        (NEW.terms, NEW.epsilon_alone, NEW.breakdown, NEW.refusal) IS NOT DISTINCT FROM
        (OLD.terms, OLD.epsilon_alone, OLD.breakdown, OLD.refusal) OR
        OLD.state = CASE calling_process() WHEN 'relay' THEN 'awaiting_release' ELSE 'submitted' END
            AND NEW.terms - 'delta' = OLD.terms - 'delta' AND CASE NEW.state
            WHEN 'queued' THEN EXISTS (SELECT FROM entries WHERE job_id = NEW.id AND kind = 'RESERVE')
                AND (NEW.terms, NEW.epsilon_alone) IS NOT DISTINCT FROM (OLD.terms, OLD.epsilon_alone)
            ELSE NEW.state IN ('submitted','awaiting_approval','awaiting_release','refused') END
        OR OLD.state = 'refused' AND NEW.state = 'refused' AND NEW.terms = OLD.terms)
    THEN
        PERFORM refuse_act('the job does not wait for its look at a model, or nothing is reserved for it');
    END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION hook_changed_job() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path TO 'public', 'pg_temp' AS $$
BEGIN
    IF EXISTS (SELECT FROM hooks) THEN
        PERFORM hook_job(NEW);
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION hook_job(job jobs) RETURNS void LANGUAGE sql AS $$
    SELECT hook_announce('job.' || job.state, job.analyst_id, jsonb_build_object(
        'job', job.id, 'dataset', d.name, 'mechanism', job.mechanism, 'analyst', u.name, 'state', job.state))
    FROM datasets d, users u WHERE d.id = job.dataset_id AND u.id = job.analyst_id
$$;

CREATE FUNCTION hook_new_jobs() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path TO 'public', 'pg_temp' AS $$
BEGIN
    IF EXISTS (SELECT FROM hooks) THEN
        PERFORM hook_job(j) FROM jobs j JOIN new_rows n ON n.id = j.id;
    END IF;
    RETURN NULL;
END $$;

-- Whoever adds a job holds the dataset's account, so nobody takes the same place.
CREATE FUNCTION place_job() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.place := 1 + COALESCE(
        (SELECT place FROM jobs WHERE dataset_id = NEW.dataset_id ORDER BY place DESC LIMIT 1), 0
    );
    RETURN NEW;
END $$;

CREATE TRIGGER hook_changed_job AFTER UPDATE ON jobs FOR EACH ROW
    WHEN (old.state IS DISTINCT FROM new.state) EXECUTE FUNCTION hook_changed_job();
CREATE TRIGGER hook_new_jobs AFTER INSERT ON jobs REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT
    EXECUTE FUNCTION hook_new_jobs();
CREATE TRIGGER jobs_begun BEFORE UPDATE ON jobs FOR EACH ROW WHEN (
    (new.started_at, new.reading_began_at) IS DISTINCT FROM (old.started_at, old.reading_began_at)
    OR new.state IN ('running', 'settling') AND new.state <> old.state) EXECUTE FUNCTION guard_begun();
CREATE TRIGGER jobs_guard BEFORE UPDATE ON jobs FOR EACH ROW WHEN (
    old.reading_began_at IS NOT NULL AND new.reading_began_at IS DISTINCT FROM old.reading_began_at
    OR old.state IN ('succeeded', 'failed', 'cancelled', 'refused', 'expired') AND new.state <> old.state)
    EXECUTE FUNCTION guard_job();
CREATE TRIGGER jobs_lease BEFORE UPDATE ON jobs FOR EACH ROW EXECUTE FUNCTION guard_leased_job();
CREATE TRIGGER jobs_look BEFORE UPDATE ON jobs FOR EACH ROW EXECUTE FUNCTION guard_looked_at();
CREATE TRIGGER jobs_place BEFORE INSERT ON jobs FOR EACH ROW EXECUTE FUNCTION place_job();
