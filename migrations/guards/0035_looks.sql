-- What the check worker may do to a job that waits for its look at the model: refuse it, leave it to a steward, or post
-- the very RESERVE that the web decided on when the job was asked for. It decides on no price, and queues nothing else.

ALTER TABLE jobs ADD COLUMN to_reserve jsonb;

-- A RESERVE's body with its private texts opened (core.ledger.commitments).
CREATE FUNCTION unsealed(body jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
    SELECT jsonb_set(body, '{parameters}', coalesce(jsonb_object_agg(key,
        CASE WHEN jsonb_typeof(value) = 'object' AND value ? 'salt' THEN value -> 'value' ELSE value END), '{}'))
    FROM jsonb_each(body -> 'parameters')
$$;

CREATE FUNCTION guard_look() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    IF calling_process() = 'checks' AND NOT EXISTS (
        SELECT FROM jobs j JOIN users u ON u.id = j.analyst_id
        WHERE j.id = NEW.job_id AND u.name = NEW.actor AND unsealed(NEW.document::jsonb -> 'body') = j.to_reserve)
    THEN
        PERFORM refuse_act('it reserves what the web decided on, and nothing else');
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER entries_look AFTER INSERT ON entries FOR EACH ROW
    WHEN (NEW.kind = 'RESERVE') EXECUTE FUNCTION guard_look();

CREATE FUNCTION guard_looked_at() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    IF calling_process() = 'checks' AND NOT (
        OLD.state = 'submitted' AND NEW.terms - 'delta' = OLD.terms - 'delta' AND CASE NEW.state
            WHEN 'queued' THEN EXISTS (SELECT FROM entries WHERE job_id = NEW.id AND kind = 'RESERVE')
                AND (NEW.terms, NEW.epsilon_alone) IS NOT DISTINCT FROM (OLD.terms, OLD.epsilon_alone)
            ELSE NEW.state IN ('submitted','awaiting_approval','refused') END
        OR OLD.state = 'refused' AND NEW.state = 'refused' AND NEW.terms = OLD.terms)
    THEN
        PERFORM refuse_act('the job does not wait for its look at a model, or nothing is reserved for it');
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER jobs_look BEFORE UPDATE ON jobs FOR EACH ROW EXECUTE FUNCTION guard_looked_at();

-- The parts of a job, in the transaction that queues it.
CREATE FUNCTION guard_looked_at_parts() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    IF calling_process() = 'checks' AND NOT (NEW.state = 'queued' AND EXISTS (
        SELECT FROM jobs WHERE id = NEW.job_id AND state = 'queued' AND xmin = pg_current_xact_id_if_assigned()::xid))
    THEN
        PERFORM refuse_act('it queues what it looked at alone');
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER parts_look AFTER INSERT ON parts FOR EACH ROW EXECUTE FUNCTION guard_looked_at_parts();
