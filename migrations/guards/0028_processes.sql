-- Which role is which process, and what rows its rights reach. A right says which table may be changed; the
-- triggers here say by which entry. Whoever owns the tables is asked nothing: an owner may disable triggers.

CREATE TABLE process_roles (
    role text CONSTRAINT pk_process_roles PRIMARY KEY,
    process text NOT NULL,
    CONSTRAINT ck_process_roles_process
        CHECK (process IN ('service','web','relay','worker','checks','signer'))
);

-- Where entries of a kind hold private values (core.ledger.commitments); stated anew after every migration.
CREATE TABLE private_places (
    kind text NOT NULL,
    place text NOT NULL,
    CONSTRAINT pk_private_places PRIMARY KEY (kind, place)
);

CREATE TABLE checkpoint_requests (
    dataset_id uuid NOT NULL CONSTRAINT fk_checkpoint_requests_dataset_id REFERENCES datasets,
    seq bigint NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT pk_checkpoint_requests PRIMARY KEY (dataset_id, seq),
    CONSTRAINT ck_checkpoint_requests_seq CHECK (seq >= 0)
);

-- Messages to webhooks are the owner's to write: no process reads webhooks to announce what it did.
ALTER FUNCTION hook_new_jobs() SECURITY DEFINER SET search_path = public, pg_temp;
ALTER FUNCTION hook_changed_job() SECURITY DEFINER SET search_path = public, pg_temp;
ALTER FUNCTION hook_account() SECURITY DEFINER SET search_path = public, pg_temp;
ALTER FUNCTION hook_version() SECURITY DEFINER SET search_path = public, pg_temp;
ALTER FUNCTION hook_proposal() SECURITY DEFINER SET search_path = public, pg_temp;
ALTER FUNCTION hook_checkpoint() SECURITY DEFINER SET search_path = public, pg_temp;

-- The process that signed in: 'owner' of the tables, 'service' where one role is all of them, 'none' of them.
-- session_user: within a function of the owner's, current_user is the owner.
CREATE FUNCTION calling_process() RETURNS text LANGUAGE plpgsql STABLE
SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    IF pg_has_role(session_user, current_user, 'MEMBER') THEN
        RETURN 'owner';
    END IF;
    RETURN coalesce((SELECT process FROM process_roles WHERE role = session_user), 'none');
END $$;

CREATE FUNCTION refuse_act(why text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% may not do this: %', calling_process(), why USING ERRCODE = 'insufficient_privilege';
END $$;

-- --- the hash of an entry ------------------------------------------------------------------------------

-- What core.ledger.hash_chain.digest is: SHA-256 of the document with a commitment in place of each opening.
-- A document is canonical JSON, and so is each part of it: as the type json gives a part back, letter for
-- letter, it is what the commitment is of, and what is replaced. Its salt makes it the only such text.
CREATE FUNCTION published_text(document text) RETURNS text LANGUAGE plpgsql STABLE AS $$
DECLARE
    whole json := document;
    found text := document;
    place text[];
    part text;
BEGIN
    IF (whole ->> 'version')::integer = 1 THEN
        RETURN document;
    END IF;
    IF whole ->> 'kind' = 'REVERSAL' THEN
        -- The corrected entry first: it may be a correction that quotes the same reservation.
        FOREACH part IN ARRAY ARRAY[(whole #> '{body,corrects}')::text, (whole #> '{body,reserve}')::text] LOOP
            found := replace(found, part, published_text(part));
        END LOOP;
    END IF;
    FOR place IN
        SELECT string_to_array(p.place, '/') FROM private_places p WHERE p.kind = whole ->> 'kind'
        || CASE WHEN (whole #> '{body,reserve,body,ex_post}') IS NULL THEN '' ELSE ' EX-POST' END
    LOOP
        part := (whole #> place)::text;
        IF part ~ '^\{"salt":"[0-9a-f]{32}","value":' THEN
            found := replace(found, part,
                '{"sha256":"' || encode(sha256(convert_to(part, 'UTF8')), 'hex') || '"}');
        END IF;
    END LOOP;
    RETURN found;
END $$;

CREATE FUNCTION entry_hash(document text) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT encode(sha256(convert_to(published_text(document), 'UTF8')), 'hex')
$$;

-- A private value, opened: version 1 holds it plain.
CREATE FUNCTION opened(value jsonb) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE jsonb_typeof(value) WHEN 'object' THEN value ->> 'value' ELSE value #>> '{}' END
$$;

-- --- who may post what ---------------------------------------------------------------------------------

CREATE FUNCTION guard_entry() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    process text := calling_process();
    written jsonb;
    body jsonb;
    job jobs;
BEGIN
    IF process = 'owner' THEN
        RETURN NULL;
    END IF;
    written := NEW.document::jsonb;
    body := written -> 'body';
    IF NEW.hash <> entry_hash(NEW.document) OR (written ->> 'seq')::bigint <> NEW.seq
        OR written ->> 'kind' <> NEW.kind OR written ->> 'previous' <> NEW.previous
        OR written ->> 'job' IS DISTINCT FROM NEW.job_id::text
        OR written ->> 'dataset' IS DISTINCT FROM (SELECT name FROM datasets WHERE id = NEW.dataset_id)
        OR opened(written -> 'actor') IS DISTINCT FROM NEW.actor
    THEN
        PERFORM refuse_act('the row of the entry is not what its document says, or its hash is another');
    END IF;
    IF NEW.job_id IS NOT NULL THEN
        SELECT * INTO job FROM jobs WHERE id = NEW.job_id;
        IF job.dataset_id <> NEW.dataset_id THEN
            PERFORM refuse_act('the job is another dataset''s');
        END IF;
    END IF;
    IF NEW.kind IN ('VOID','COMMIT') AND job.state NOT IN ('queued','running','settling') THEN
        PERFORM refuse_act('the job has no reservation to settle');
    ELSIF NEW.kind = 'VOID' AND (job.reading_began_at IS NOT NULL OR body ->> 'read' <> 'false') THEN
        PERFORM refuse_act('a reservation under which data was read is not given back');
    ELSIF NOT (CASE process
        WHEN 'service' THEN true
        WHEN 'web' THEN NEW.kind NOT IN ('VOID','COMMIT') OR body ->> 'outcome' = 'cancelled' AND NOT EXISTS (
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
        ELSE false END)
    THEN
        PERFORM refuse_act(format('it does not post %s here', NEW.kind));
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER entries_guard AFTER INSERT ON entries FOR EACH ROW EXECUTE FUNCTION guard_entry();

-- --- balances are what the entries say -----------------------------------------------------------------

-- A cost on one filter: `part` main or delta. Where the filter has no price it closes, and nothing is added.
CREATE FUNCTION cost_on(costs jsonb, filter text, part text) RETURNS numeric LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce((costs -> filter ->> part)::numeric, 0)
$$;

-- What a COMMIT moves to spent (core.ledger.reservations.settled): the realized cost, where both have a price
-- without delta; else all that was reserved.
CREATE FUNCTION settled_on(held jsonb, realized jsonb, filter text, part text) RETURNS numeric
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN held -> filter IS NULL THEN 0
        WHEN cost_on(held, filter, 'delta') <> 0 OR cost_on(realized, filter, 'delta') <> 0
            OR coalesce(jsonb_typeof(realized -> filter), 'null') = 'null' THEN cost_on(held, filter, part)
        ELSE least(cost_on(realized, filter, part), cost_on(held, filter, part)) END
$$;

-- The charge on one filter after `current`, which settled or corrected the job reserved by `held`.
CREATE FUNCTION charge_on(held jsonb, current jsonb, filter text, part text) RETURNS numeric
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE current ->> 'kind' WHEN 'VOID' THEN 0
        WHEN 'COMMIT' THEN settled_on(held -> 'costs', current #> '{body,costs}', filter, part)
        ELSE cost_on(current #> '{body,costs}', filter, part) END
$$;

CREATE FUNCTION guard_account() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    -- Columns that an allowance alone changes.
    terms CONSTANT text[] := ARRAY['epsilon','delta','renyi_share','renyi_order','renyi_limit','gaussian_share',
        'gaussian_order','gaussian_limit','renyi2_share','renyi2_order','renyi2_limit','basic_share',
        'basic_order','basic_step_delta','price_edition','basic_whole_epsilon','ex_post_limit',
        'ex_post_settlement','secret','secret_limit','largest_epsilon','largest_delta','largest_bound',
        'raises_after_release'];
    old_row jsonb;
    new_row jsonb;
    entry record;
    head text := OLD.chain_head;
    count bigint := 0;
    allows boolean := false;
    corrects boolean := false;
    whole boolean := false;
    closes_least integer[] := ARRAY[0, 0, 0, 0];
    closes_most integer[] := ARRAY[0, 0, 0, 0];
    filters CONSTANT text[] := ARRAY['renyi','gaussian','renyi2','basic'];
    n integer;
    reserved numeric[] := ARRAY[0, 0, 0, 0, 0];  -- by filter, and the delta of the last
    spent numeric[] := ARRAY[0, 0, 0, 0, 0];
    ex_post_reserved numeric := 0;
    ex_post_spent numeric := 0;
    secret_reserved numeric := 0;
    secret_spent numeric := 0;
    held jsonb;
    body jsonb;
    cap numeric;
    price numeric;
BEGIN
    IF calling_process() = 'owner' OR NEW IS NOT DISTINCT FROM OLD THEN
        RETURN NULL;
    END IF;
    FOR entry IN
        SELECT e.seq, e.kind, e.previous, e.hash, e.document::jsonb -> 'body' AS body,
            CASE WHEN e.kind IN ('COMMIT','VOID') THEN (
                SELECT r.document::jsonb -> 'body' FROM entries r
                WHERE r.job_id = e.job_id AND r.kind = 'RESERVE') END AS held
        FROM entries e
        WHERE e.dataset_id = NEW.dataset_id AND e.seq > OLD.chain_seq AND e.seq <= NEW.chain_seq
        ORDER BY e.seq
    LOOP
        IF entry.previous <> head THEN
            PERFORM refuse_act('an entry does not follow the one before');
        END IF;
        head := entry.hash;
        count := count + 1;
        body := entry.body;
        held := CASE entry.kind WHEN 'RESERVE' THEN body WHEN 'REVERSAL' THEN body #> '{reserve,body}'
            ELSE entry.held END;
        IF entry.kind IN ('ALLOW','REGISTER','POLICY') THEN
            allows := allows OR entry.kind = 'ALLOW';
            CONTINUE;
        END IF;
        whole := whole OR held ? 'whole';
        cap := coalesce((held #>> '{ex_post,cap}')::numeric, 0);
        price := coalesce((held #>> '{secret,cost}')::numeric, 0);
        IF entry.kind = 'REVERSAL' THEN
            corrects := true;
            IF NOT EXISTS (SELECT FROM entries e WHERE e.dataset_id = NEW.dataset_id
                    AND e.seq = (body #>> '{corrects,seq}')::bigint AND e.document::jsonb = body -> 'corrects')
                OR NOT EXISTS (SELECT FROM entries e WHERE e.dataset_id = NEW.dataset_id
                    AND e.seq = (body #>> '{reserve,seq}')::bigint AND e.document::jsonb = body -> 'reserve')
            THEN
                PERFORM refuse_act('a correction quotes an entry that is not there');
            END IF;
        END IF;
        FOR n IN 1..5 LOOP
            DECLARE
                name CONSTANT text := filters[least(n, 4)];
                part CONSTANT text := CASE n WHEN 5 THEN 'delta' ELSE 'main' END;
                closing CONSTANT integer := CASE
                    WHEN n = 5 OR jsonb_typeof(held -> 'costs' -> name) IS DISTINCT FROM 'null' THEN 0
                    WHEN entry.kind = 'RESERVE' THEN 1 WHEN entry.kind = 'VOID' THEN -1 ELSE 0 END;
            BEGIN
                IF entry.kind = 'REVERSAL' THEN
                    spent[n] := spent[n] + cost_on(body -> 'costs', name, part)
                        - charge_on(held, body -> 'corrects', name, part);
                ELSE
                    reserved[n] := reserved[n] + cost_on(held -> 'costs', name, part)
                        * CASE entry.kind WHEN 'RESERVE' THEN 1 ELSE -1 END;
                    IF entry.kind = 'COMMIT' THEN
                        spent[n] := spent[n] + CASE WHEN body ->> 'outcome' IN ('failed','cancelled')
                            THEN cost_on(held -> 'costs', name, part)
                            ELSE settled_on(held -> 'costs', body -> 'costs', name, part) END;
                    END IF;
                END IF;
                IF n < 5 THEN
                    -- What closed filters for whole jobs may leave them closed when it is void.
                    closes_least[n] := closes_least[n] + closing;
                    closes_most[n] := closes_most[n]
                        + CASE WHEN entry.kind = 'VOID' AND held ? 'whole' THEN 0 ELSE closing END;
                END IF;
            END;
        END LOOP;
        IF entry.kind = 'REVERSAL' THEN
            ex_post_spent := ex_post_spent + opened(body -> 'ex_post')::numeric
                - CASE body #>> '{corrects,kind}' WHEN 'VOID' THEN 0
                    WHEN 'COMMIT' THEN coalesce(opened(body #> '{corrects,body,ex_post,cap}')::numeric, cap)
                    ELSE opened(body #> '{corrects,body,ex_post}')::numeric END;
            IF OLD.secret IS NOT NULL THEN
                secret_spent := secret_spent + (body ->> 'secret')::numeric
                    - CASE body #>> '{corrects,kind}' WHEN 'VOID' THEN 0
                        WHEN 'COMMIT' THEN coalesce((body #>> '{corrects,body,secret,cost}')::numeric, price)
                        ELSE (body #>> '{corrects,body,secret}')::numeric END;
            END IF;
            CONTINUE;
        END IF;
        ex_post_reserved := ex_post_reserved + CASE entry.kind WHEN 'RESERVE' THEN cap ELSE -cap END;
        secret_reserved := secret_reserved + CASE entry.kind WHEN 'RESERVE' THEN price ELSE -price END;
        IF entry.kind = 'COMMIT' THEN
            ex_post_spent := ex_post_spent + CASE WHEN NEW.ex_post_settlement = 'realized'
                THEN coalesce(opened(body #> '{ex_post,cap}')::numeric, cap) ELSE cap END;
            secret_spent := secret_spent + CASE WHEN NEW.secret ->> 'kind' = 'one' THEN price
                ELSE least(coalesce((body #>> '{secret,cost}')::numeric, price), price) END;
        END IF;
    END LOOP;
    IF count = 0 OR NEW.chain_seq <> OLD.chain_seq + count OR NEW.chain_head <> head THEN
        PERFORM refuse_act('balances move by entries that follow the last one, and by nothing else');
    END IF;
    old_row := to_jsonb(OLD);
    new_row := to_jsonb(NEW);
    IF NOT allows AND EXISTS (SELECT FROM unnest(terms) AS name WHERE old_row -> name IS DISTINCT FROM new_row -> name)
    THEN
        PERFORM refuse_act('an allowance changes by an ALLOW alone');
    ELSIF NOT allows AND (NEW.basic_limit, NEW.basic_delta_limit) IS DISTINCT FROM
        (OLD.basic_limit, OLD.basic_delta_limit)
        AND NOT (whole AND NEW.basic_limit <= NEW.epsilon AND NEW.basic_delta_limit <= NEW.delta)
    THEN
        PERFORM refuse_act('a limit changes by an ALLOW, or by what takes the account for whole jobs');
    ELSIF NEW.overdrawn AND NOT OLD.overdrawn AND NOT corrects THEN
        PERFORM refuse_act('an account is overdrawn by a correction alone');
    ELSIF (NEW.renyi_reserved, NEW.gaussian_reserved, NEW.renyi2_reserved, NEW.basic_reserved,
            NEW.basic_delta_reserved, NEW.ex_post_reserved, NEW.secret_reserved) IS DISTINCT FROM
        (OLD.renyi_reserved + reserved[1], OLD.gaussian_reserved + reserved[2],
            OLD.renyi2_reserved + reserved[3], OLD.basic_reserved + reserved[4],
            OLD.basic_delta_reserved + reserved[5], OLD.ex_post_reserved + ex_post_reserved,
            OLD.secret_reserved + secret_reserved)
        OR (NEW.renyi_spent, NEW.gaussian_spent, NEW.renyi2_spent, NEW.basic_spent,
            NEW.basic_delta_spent, NEW.ex_post_spent, NEW.secret_spent) IS DISTINCT FROM
        (OLD.renyi_spent + spent[1], OLD.gaussian_spent + spent[2],
            OLD.renyi2_spent + spent[3], OLD.basic_spent + spent[4],
            OLD.basic_delta_spent + spent[5], OLD.ex_post_spent + ex_post_spent,
            OLD.secret_spent + secret_spent)
    THEN
        PERFORM refuse_act('the balances are not what the entries say');
    ELSIF NOT corrects AND NOT (
        NEW.renyi_closed - OLD.renyi_closed BETWEEN closes_least[1] AND closes_most[1]
        AND NEW.gaussian_closed - OLD.gaussian_closed BETWEEN closes_least[2] AND closes_most[2]
        AND NEW.renyi2_closed - OLD.renyi2_closed BETWEEN closes_least[3] AND closes_most[3]
        AND NEW.basic_closed - OLD.basic_closed BETWEEN closes_least[4] AND closes_most[4])
    THEN
        PERFORM refuse_act('the closed filters are not what the entries say');
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER accounts_guard AFTER UPDATE ON accounts FOR EACH ROW EXECUTE FUNCTION guard_account();

-- --- what a job was stays so ---------------------------------------------------------------------------

CREATE FUNCTION guard_job() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    IF calling_process() <> 'owner' THEN
        PERFORM refuse_act('that data was read stays recorded, and a job that ended stays as it is');
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER jobs_guard BEFORE UPDATE ON jobs FOR EACH ROW WHEN (
    OLD.reading_began_at IS NOT NULL AND NEW.reading_began_at IS DISTINCT FROM OLD.reading_began_at
    OR OLD.state IN ('succeeded','failed','cancelled','refused','expired') AND NEW.state <> OLD.state
) EXECUTE FUNCTION guard_job();

-- --- what people did -----------------------------------------------------------------------------------

-- The check worker records whose data a registration met, and nothing else that anybody did.
CREATE FUNCTION guard_activity() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    IF calling_process() NOT IN ('owner','service','web') THEN
        PERFORM refuse_act('it records overlaps alone');
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER activity_guard AFTER INSERT ON activity FOR EACH ROW
    WHEN (NEW.action <> 'overlap found') EXECUTE FUNCTION guard_activity();
