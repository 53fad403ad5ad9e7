"""Every ledger begins with its rules, and there is one version of entries.

The relay states no rules any more. The database hashes no entry as it is, without commitments. An index finds
the rules of a dataset, which each writer judges by.
"""

from alembic import op

revision = "0101"
down_revision = "0100"

INDEX = """
DROP INDEX ix_entries_allow;
CREATE INDEX ix_entries_rules ON entries (dataset_id, seq)
    WHERE (kind = ANY (ARRAY['ALLOW', 'REGISTER', 'POLICY']));
"""

PUBLISHED_TEXT = r"""
-- Only places that hold an opening are looked up in the text: that parses it each time.
CREATE OR REPLACE FUNCTION published_text(document text) RETURNS text
    LANGUAGE plpgsql STABLE
    AS $$
DECLARE
    written jsonb := document;
    whole json := document;
    found text := document;
    place text[];
    part text;
BEGIN
    IF written ->> 'kind' = 'REVERSAL' THEN
        -- The corrected entry first: it may be a correction that quotes the same reservation.
        FOREACH part IN ARRAY ARRAY[(whole #> '{body,corrects}')::text, (whole #> '{body,reserve}')::text] LOOP
            found := replace(found, part, published_text(part));
        END LOOP;
    END IF;
    FOR place IN
        SELECT string_to_array(p.place, '/') FROM private_places p WHERE p.kind = written ->> 'kind'
        || CASE WHEN (written #> '{body,reserve,body,ex_post}') IS NULL THEN '' ELSE ' EX-POST' END
        AND written #> string_to_array(p.place, '/') ? 'salt'
    LOOP
        part := (whole #> place)::text;
        IF part ~ '^[{]"salt":"[0-9a-f]{32}","value":' THEN
            found := replace(found, part,
                '{"sha256":"' || encode(sha256(convert_to(part, 'UTF8')), 'hex') || '"}');
        END IF;
    END LOOP;
    RETURN found;
END $$;
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
        WHEN 'worker' THEN NEW.kind IN ('VOID','COMMIT') AND EXISTS (
            SELECT FROM parts WHERE job_id = NEW.job_id AND state = 'running')
        WHEN 'relay' THEN CASE NEW.kind
            WHEN 'VOID' THEN EXISTS (SELECT FROM parts WHERE job_id = NEW.job_id AND state = 'running'
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


def upgrade() -> None:
    connection = op.get_bind()
    for statements in (INDEX, PUBLISHED_TEXT, GUARD_ENTRY):
        connection.exec_driver_sql(statements, execution_options={"no_parameters": True})
