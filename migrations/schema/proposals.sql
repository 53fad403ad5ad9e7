CREATE TABLE proposals (
    id uuid NOT NULL,
    dataset_id uuid NOT NULL,
    kind text NOT NULL,
    job_id uuid,
    asked jsonb NOT NULL,
    basis_seq bigint,
    reason text NOT NULL,
    state text DEFAULT 'open' NOT NULL,
    proposed_by uuid NOT NULL,
    created_at timestamptz DEFAULT clock_timestamp() NOT NULL,
    expires_at timestamptz NOT NULL,
    decided_by uuid,
    decided_at timestamptz,
    decision_reason text,
    entry_seq bigint,
    CONSTRAINT ck_proposals_basis CHECK (((kind = 'policy') = (basis_seq IS NULL))),
    CONSTRAINT ck_proposals_entry CHECK ((((state = 'confirmed')
        AND (kind <> 'policy')) = (entry_seq IS NOT NULL))),
    CONSTRAINT ck_proposals_job CHECK (((kind = 'correction') = (job_id IS NOT NULL))),
    CONSTRAINT ck_proposals_kind CHECK ((kind = ANY (ARRAY['allowance', 'correction', 'policy']))),
    CONSTRAINT ck_proposals_state CHECK ((state = ANY (ARRAY['open', 'confirmed', 'withdrawn', 'expired']))),
    CONSTRAINT ck_proposals_two_people CHECK (((state <> 'confirmed') OR (decided_by <> proposed_by))),
    CONSTRAINT pk_proposals PRIMARY KEY (id),
    CONSTRAINT fk_proposals_dataset_id FOREIGN KEY (dataset_id) REFERENCES datasets(id),
    CONSTRAINT fk_proposals_decided_by FOREIGN KEY (decided_by) REFERENCES users(id),
    CONSTRAINT fk_proposals_job_id FOREIGN KEY (job_id) REFERENCES jobs(id),
    CONSTRAINT fk_proposals_proposed_by FOREIGN KEY (proposed_by) REFERENCES users(id)
);
CREATE INDEX ix_proposals_open ON proposals (expires_at) WHERE (state = 'open');

CREATE FUNCTION hook_proposal() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    AS $$
BEGIN
    IF EXISTS (SELECT FROM hooks) THEN
        PERFORM hook_announce('proposal.' || NEW.state, NULL, jsonb_build_object(
            'proposal', NEW.id, 'kind', NEW.kind, 'dataset', d.name, 'job', NEW.job_id, 'state', NEW.state))
        FROM datasets d WHERE d.id = NEW.dataset_id;
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER hook_new_proposal AFTER INSERT ON proposals FOR EACH ROW EXECUTE FUNCTION hook_proposal();
CREATE TRIGGER hook_proposal AFTER UPDATE ON proposals FOR EACH ROW
    WHEN ((old.state IS DISTINCT FROM new.state)) EXECUTE FUNCTION hook_proposal();
