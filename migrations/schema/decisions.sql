CREATE TABLE decisions (
    id uuid CONSTRAINT pk_decisions PRIMARY KEY,
    kind text NOT NULL,
    dataset_id uuid NOT NULL CONSTRAINT fk_decisions_dataset_id REFERENCES datasets,
    job_id uuid CONSTRAINT fk_decisions_job_id REFERENCES jobs,
    asked jsonb NOT NULL,
    basis_seq bigint,
    reason text NOT NULL,
    state text DEFAULT 'open' NOT NULL,
    asked_by uuid NOT NULL CONSTRAINT fk_decisions_asked_by REFERENCES users,
    created_at timestamptz DEFAULT clock_timestamp() NOT NULL,
    expires_at timestamptz,
    answered_by uuid CONSTRAINT fk_decisions_answered_by REFERENCES users,
    answered_at timestamptz,
    answer text,
    entry_seq bigint,
    made_job uuid CONSTRAINT fk_decisions_made_job REFERENCES jobs,
    made_decision uuid CONSTRAINT fk_decisions_made_decision REFERENCES decisions,
    CONSTRAINT ck_decisions_answered CHECK ((state IN ('open', 'expired')) = (answered_by IS NULL)),
    CONSTRAINT ck_decisions_basis CHECK ((kind IN ('allowance', 'correction')) = (basis_seq IS NOT NULL)),
    CONSTRAINT ck_decisions_entry CHECK (
        (state = 'accepted' AND kind IN ('allowance', 'correction', 'loss')) = (entry_seq IS NOT NULL)),
    CONSTRAINT ck_decisions_job CHECK ((kind IN ('offer', 'correction', 'push')) = (job_id IS NOT NULL)),
    CONSTRAINT ck_decisions_kind CHECK (kind IN ('offer', 'allowance', 'correction', 'policy', 'access',
        'loss', 'overdraft', 'push')),
    CONSTRAINT ck_decisions_made_job CHECK (
        (state = 'accepted' AND kind IN ('offer', 'overdraft')) = (made_job IS NOT NULL)),
    CONSTRAINT ck_decisions_state CHECK (state IN ('open', 'accepted', 'refused', 'withdrawn', 'expired')),
    CONSTRAINT ck_decisions_two_people CHECK (
        state <> 'accepted' OR kind = 'offer' OR answered_by <> asked_by)
);
CREATE INDEX ix_decisions_asked_by ON decisions (asked_by, created_at);
CREATE INDEX ix_decisions_open ON decisions (created_at, id) WHERE state = 'open';
CREATE UNIQUE INDEX uq_decisions_access ON decisions (dataset_id, asked_by)
    WHERE kind = 'access' AND state = 'open';
CREATE UNIQUE INDEX uq_decisions_loss ON decisions (dataset_id) WHERE kind = 'loss' AND state = 'open';
CREATE UNIQUE INDEX uq_decisions_offer ON decisions (job_id) WHERE kind = 'offer';

CREATE FUNCTION hook_decision() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path TO 'public', 'pg_temp' AS $$
BEGIN
    IF EXISTS (SELECT FROM hooks) THEN
        PERFORM hook_announce('decision.' || NEW.state, NULL, jsonb_build_object(
            'decision', NEW.id, 'kind', NEW.kind, 'dataset', d.name, 'job', NEW.job_id, 'state', NEW.state))
        FROM datasets d WHERE d.id = NEW.dataset_id;
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER decisions_loss AFTER INSERT OR UPDATE ON decisions FOR EACH ROW
    WHEN (new.kind = 'loss' AND new.state IN ('open', 'accepted')) EXECUTE FUNCTION guard_loss();
CREATE TRIGGER hook_decision AFTER UPDATE ON decisions FOR EACH ROW
    WHEN (old.state IS DISTINCT FROM new.state) EXECUTE FUNCTION hook_decision();
CREATE TRIGGER hook_new_decision AFTER INSERT ON decisions FOR EACH ROW EXECUTE FUNCTION hook_decision();
