-- Webhooks, their deliveries, and the triggers that write them.

CREATE TABLE hooks (
    id uuid CONSTRAINT pk_hooks PRIMARY KEY,
    owner_id uuid NOT NULL CONSTRAINT fk_hooks_owner_id REFERENCES users,
    url text NOT NULL,
    events text[] NOT NULL,
    secret bytea NOT NULL,
    active boolean NOT NULL DEFAULT true,
    disabled_reason text,
    disabled_at timestamptz,
    last_success_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    removed_at timestamptz,
    CONSTRAINT ck_hooks_events CHECK (cardinality(events) >= 1),
    CONSTRAINT ck_hooks_active CHECK (NOT active OR (removed_at IS NULL AND disabled_at IS NULL)),
    CONSTRAINT ck_hooks_disabled CHECK ((disabled_at IS NULL) = (disabled_reason IS NULL))
);
CREATE INDEX ix_hooks_active ON hooks (owner_id) WHERE active;

CREATE TABLE hook_deliveries (
    id uuid CONSTRAINT pk_hook_deliveries PRIMARY KEY,
    hook_id uuid NOT NULL CONSTRAINT fk_hook_deliveries_hook_id REFERENCES hooks,
    event text NOT NULL,
    analyst_id uuid,
    facts jsonb NOT NULL,
    occurred_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    state text NOT NULL DEFAULT 'pending',
    attempts integer NOT NULL DEFAULT 0,
    began_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    due_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    claim uuid,
    status integer,
    problem text,
    attempted_at timestamptz,
    CONSTRAINT ck_hook_deliveries_state CHECK (state IN ('pending','delivered','failed','dropped')),
    CONSTRAINT ck_hook_deliveries_attempts CHECK (attempts >= 0)
);
CREATE INDEX ix_hook_deliveries_due ON hook_deliveries (hook_id, due_at) WHERE state = 'pending';
CREATE INDEX ix_hook_deliveries_log ON hook_deliveries (hook_id, occurred_at, id);

-- What follows runs in the transaction of the change itself. The first look is into an index that holds
-- active hooks alone, so that where there is none a change costs next to nothing.

CREATE FUNCTION hook_announce(event text, analyst uuid, facts jsonb) RETURNS void LANGUAGE sql AS $$
    INSERT INTO hook_deliveries (id, hook_id, event, analyst_id, facts)
    SELECT gen_random_uuid(), h.id, event, analyst, facts
    FROM hooks h JOIN users u ON u.id = h.owner_id
    WHERE h.active AND u.active AND event = ANY (h.events)
    AND (h.owner_id = analyst OR u.roles && ARRAY['steward','auditor'])
$$;

CREATE FUNCTION hook_job(job jobs) RETURNS void LANGUAGE sql AS $$
    SELECT hook_announce('job.' || job.state, job.analyst_id, jsonb_build_object(
        'job', job.id, 'dataset', d.name, 'mechanism', job.mechanism, 'analyst', u.name, 'state', job.state))
    FROM datasets d, users u WHERE d.id = job.dataset_id AND u.id = job.analyst_id
$$;

CREATE FUNCTION hook_new_jobs() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM hooks WHERE active) THEN
        PERFORM hook_job(j) FROM jobs j JOIN new_rows n ON n.id = j.id;
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION hook_changed_job() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM hooks WHERE active) THEN
        PERFORM hook_job(NEW);
    END IF;
    RETURN NULL;
END $$;

-- 0: there is room; 1: every filter has used nine tenths or is closed; 2: all of it; 3: overdrawn.
CREATE FUNCTION hook_stage(a accounts) RETURNS integer LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN CASE WHEN a.overdrawn THEN 3 WHEN a.epsilon IS NULL THEN 0 ELSE least(
        CASE WHEN a.renyi_closed > 0 OR a.renyi_spent + a.renyi_reserved >= a.renyi_limit THEN 2
            WHEN 10 * (a.renyi_spent + a.renyi_reserved) >= 9 * a.renyi_limit THEN 1 ELSE 0 END,
        CASE WHEN a.gaussian_closed > 0 OR a.gaussian_spent + a.gaussian_reserved >= a.gaussian_limit THEN 2
            WHEN 10 * (a.gaussian_spent + a.gaussian_reserved) >= 9 * a.gaussian_limit THEN 1 ELSE 0 END,
        CASE WHEN a.renyi2_closed > 0 OR a.renyi2_spent + a.renyi2_reserved >= a.renyi2_limit THEN 2
            WHEN 10 * (a.renyi2_spent + a.renyi2_reserved) >= 9 * a.renyi2_limit THEN 1 ELSE 0 END,
        CASE WHEN a.basic_closed > 0 OR a.basic_spent + a.basic_reserved >= a.basic_limit THEN 2
            WHEN 10 * (a.basic_spent + a.basic_reserved) >= 9 * a.basic_limit THEN 1 ELSE 0 END) END;
END $$;

CREATE FUNCTION hook_account() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- No WHEN: this row moves with every entry, and a condition of this size costs more than the look.
    IF EXISTS (SELECT FROM hooks WHERE active) AND hook_stage(NEW) > hook_stage(OLD) THEN
        PERFORM hook_announce(
            (ARRAY['dataset.low','dataset.exhausted','dataset.overdrawn'])[hook_stage(NEW)], NULL,
            jsonb_build_object('dataset', d.name, 'entry', NEW.chain_seq))
        FROM datasets d WHERE d.id = NEW.dataset_id;
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION hook_version() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM hooks WHERE active) THEN
        PERFORM hook_announce('version.' || NEW.state, NULL,
            jsonb_build_object('dataset', d.name, 'version', NEW.number, 'state', NEW.state))
        FROM datasets d WHERE d.id = NEW.dataset_id;
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION hook_proposal() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM hooks WHERE active) THEN
        PERFORM hook_announce('proposal.' || NEW.state, NULL, jsonb_build_object(
            'proposal', NEW.id, 'kind', NEW.kind, 'dataset', d.name, 'job', NEW.job_id, 'state', NEW.state))
        FROM datasets d WHERE d.id = NEW.dataset_id;
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION hook_checkpoint() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM hooks WHERE active) THEN
        PERFORM hook_announce('checkpoint.made', NULL,
            jsonb_build_object('dataset', d.name, 'entry', NEW.seq, 'key', NEW.key_id))
        FROM datasets d WHERE d.id = NEW.dataset_id;
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER hook_new_jobs AFTER INSERT ON jobs REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT
    EXECUTE FUNCTION hook_new_jobs();
CREATE TRIGGER hook_changed_job AFTER UPDATE ON jobs FOR EACH ROW
    WHEN (OLD.state IS DISTINCT FROM NEW.state) EXECUTE FUNCTION hook_changed_job();
CREATE TRIGGER hook_account AFTER UPDATE ON accounts FOR EACH ROW EXECUTE FUNCTION hook_account();
CREATE TRIGGER hook_version AFTER UPDATE ON dataset_versions FOR EACH ROW
    WHEN (OLD.state IS DISTINCT FROM NEW.state) EXECUTE FUNCTION hook_version();
CREATE TRIGGER hook_new_proposal AFTER INSERT ON proposals FOR EACH ROW EXECUTE FUNCTION hook_proposal();
CREATE TRIGGER hook_proposal AFTER UPDATE ON proposals FOR EACH ROW
    WHEN (OLD.state IS DISTINCT FROM NEW.state) EXECUTE FUNCTION hook_proposal();
CREATE TRIGGER hook_checkpoint AFTER INSERT ON checkpoints FOR EACH ROW EXECUTE FUNCTION hook_checkpoint();
