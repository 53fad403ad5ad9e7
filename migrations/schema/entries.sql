CREATE TABLE entries (
    dataset_id uuid NOT NULL,
    seq bigint NOT NULL,
    kind text NOT NULL,
    at timestamptz NOT NULL,
    actor text NOT NULL,
    job_id uuid,
    document text NOT NULL,
    previous text NOT NULL,
    hash text NOT NULL,
    CONSTRAINT ck_entries_job CHECK (((kind = ANY (ARRAY['ALLOW', 'REGISTER', 'POLICY'])) = (job_id IS NULL))),
    CONSTRAINT ck_entries_kind CHECK ((kind = ANY (ARRAY['ALLOW', 'RESERVE', 'COMMIT', 'VOID', 'REVERSAL', 'REGISTER', 'POLICY']))),
    CONSTRAINT ck_entries_seq CHECK ((seq >= 1)),
    CONSTRAINT pk_entries PRIMARY KEY (dataset_id, seq),
    CONSTRAINT uq_entries_dataset_id_previous UNIQUE (dataset_id, previous),
    CONSTRAINT fk_entries_dataset_id FOREIGN KEY (dataset_id) REFERENCES datasets(id),
    CONSTRAINT fk_entries_job_id FOREIGN KEY (job_id) REFERENCES jobs(id)
);
CREATE INDEX ix_entries_actor ON entries (actor, at, dataset_id, seq, kind);
CREATE INDEX ix_entries_allow ON entries (dataset_id, seq) WHERE (kind = 'ALLOW');
CREATE INDEX ix_entries_at ON entries (at, dataset_id, seq, kind);
CREATE INDEX ix_entries_job_id ON entries (job_id, seq);
CREATE INDEX ix_entries_rare ON entries (kind, at, dataset_id, seq)
    WHERE (kind = ANY (ARRAY['ALLOW', 'VOID', 'REVERSAL', 'REGISTER', 'POLICY']));
CREATE UNIQUE INDEX uq_entries_reserved_once ON entries (job_id) WHERE (kind = 'RESERVE');
CREATE UNIQUE INDEX uq_entries_resolved_once ON entries (job_id)
    WHERE (kind = ANY (ARRAY['COMMIT', 'VOID']));

-- Entries are append-only for everybody, the owner included: rows by one trigger, TRUNCATE by another.
CREATE FUNCTION entries_are_append_only() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    RAISE EXCEPTION 'ledger entries are append-only: % refused', TG_OP
        USING ERRCODE = 'restrict_violation';
END $$;

-- What a document leaves out is never taken for what it should say.
CREATE FUNCTION guard_entry() RETURNS trigger
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
        WHEN 'worker' THEN NEW.kind IN ('VOID','COMMIT') AND EXISTS (
            SELECT FROM parts WHERE job_id = NEW.job_id AND state = 'running')
        WHEN 'relay' THEN CASE NEW.kind
            WHEN 'VOID' THEN EXISTS (SELECT FROM parts WHERE job_id = NEW.job_id AND state = 'running'
                AND lease_expires < clock_timestamp())
            WHEN 'COMMIT' THEN body ->> 'outcome' IN ('failed','cancelled') AND EXISTS (
                SELECT FROM parts WHERE job_id = NEW.job_id AND state = 'running'
                AND lease_expires < clock_timestamp())
            -- The rules of a ledger from before they were entries (transactions.registrations).
            WHEN 'REGISTER' THEN NEW.actor = 'service' AND NOT EXISTS (
                SELECT FROM entries WHERE dataset_id = NEW.dataset_id AND kind = 'POLICY' AND seq < NEW.seq
                AND kind IN ('ALLOW','VOID','REVERSAL','REGISTER','POLICY'))
            WHEN 'POLICY' THEN NEW.actor = 'service' AND NOT EXISTS (
                SELECT FROM entries WHERE dataset_id = NEW.dataset_id AND kind = 'POLICY' AND seq < NEW.seq
                AND kind IN ('ALLOW','VOID','REVERSAL','REGISTER','POLICY'))
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

CREATE FUNCTION guard_look() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    AS $$
BEGIN
    IF calling_process() <> 'checks' THEN
        RETURN NULL;
    END IF;
    IF NOT EXISTS (
        SELECT FROM jobs j JOIN users u ON u.id = j.analyst_id
        WHERE j.id = NEW.job_id AND u.name = NEW.actor AND unsealed(NEW.document::jsonb -> 'body') = j.to_reserve)
    THEN
        PERFORM refuse_act('it reserves what the web decided on, and nothing else');
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER entries_guard AFTER INSERT ON entries FOR EACH ROW EXECUTE FUNCTION guard_entry();
CREATE TRIGGER entries_lease AFTER INSERT ON entries FOR EACH ROW
    WHEN ((new.kind = ANY (ARRAY['COMMIT', 'VOID']))) EXECUTE FUNCTION guard_lease();
CREATE TRIGGER entries_look AFTER INSERT ON entries FOR EACH ROW WHEN ((new.kind = 'RESERVE'))
    EXECUTE FUNCTION guard_look();
CREATE TRIGGER entries_rows BEFORE DELETE OR UPDATE ON entries FOR EACH ROW
    EXECUTE FUNCTION entries_are_append_only();
CREATE TRIGGER entries_truncate BEFORE TRUNCATE ON entries FOR EACH STATEMENT
    EXECUTE FUNCTION entries_are_append_only();
