-- The guards of an admission, doing the same for two thirds of the time: planned once (plpgsql, where SQL functions are
-- planned at each call), and no look into another table where the process that asks does not need it.

-- Looks at no more rows than the limit has.
CREATE OR REPLACE FUNCTION may_wait(people uuid[], more integer[], most integer) RETURNS boolean LANGUAGE plpgsql STABLE
AS $$
BEGIN
    FOR n IN 1..cardinality(people) LOOP
        IF more[n] > most THEN
            RETURN false;
        END IF;
        PERFORM FROM jobs WHERE analyst_id = people[n]
            AND reads_records AND state IN ('submitted','awaiting_approval','queued')
            OFFSET most - more[n] LIMIT 1;
        IF FOUND THEN
            RETURN false;
        END IF;
    END LOOP;
    RETURN true;
END $$;

CREATE OR REPLACE FUNCTION account_stand(dataset uuid, names text[]) RETURNS text LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (
        SELECT concat_ws(' ', d.xmin, v.id, v.xmin, (
            SELECT string_agg(m.id::text || ' ' || m.xmin::text, ' ' ORDER BY m.name)
            FROM models m WHERE m.kind = 'language' AND m.name = ANY (names)))
        FROM datasets d LEFT JOIN LATERAL (
            SELECT id, xmin FROM dataset_versions
            WHERE dataset_id = d.id AND state = 'ready' ORDER BY number DESC LIMIT 1
        ) v ON true
        WHERE d.id = dataset);
END $$;

CREATE OR REPLACE FUNCTION guard_look() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = public, pg_temp AS $$
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

CREATE OR REPLACE FUNCTION guard_looked_at_parts() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    IF calling_process() <> 'checks' THEN
        RETURN NULL;
    END IF;
    IF NEW.state <> 'queued' OR NOT EXISTS (
        SELECT FROM jobs WHERE id = NEW.job_id AND state = 'queued' AND xmin = pg_current_xact_id_if_assigned()::xid)
    THEN
        PERFORM refuse_act('it queues what it looked at alone');
    END IF;
    RETURN NULL;
END $$;

-- As before, and what a document leaves out is never taken for what it should say.
CREATE OR REPLACE FUNCTION guard_entry() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = public, pg_temp AS $$
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

-- As before, with fewer steps for a RESERVE.
CREATE OR REPLACE FUNCTION guard_account() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
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
    costs jsonb;
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
        IF entry.kind = 'RESERVE' THEN
            costs := held -> 'costs';
            reserved := ARRAY[reserved[1] + cost_on(costs, 'renyi', 'main'), reserved[2] + cost_on(costs, 'gaussian', 'main'),
                reserved[3] + cost_on(costs, 'renyi2', 'main'), reserved[4] + cost_on(costs, 'basic', 'main'),
                reserved[5] + cost_on(costs, 'basic', 'delta')];
            FOR n IN 1..4 LOOP
                IF jsonb_typeof(costs -> filters[n]) = 'null' THEN
                    closes_least[n] := closes_least[n] + 1;
                    closes_most[n] := closes_most[n] + 1;
                END IF;
            END LOOP;
            ex_post_reserved := ex_post_reserved + coalesce((held #>> '{ex_post,cap}')::numeric, 0);
            secret_reserved := secret_reserved + coalesce((held #>> '{secret,cost}')::numeric, 0);
            CONTINUE;
        END IF;
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
                    WHEN entry.kind = 'VOID' THEN -1 ELSE 0 END;
            BEGIN
                IF entry.kind = 'REVERSAL' THEN
                    spent[n] := spent[n] + cost_on(body -> 'costs', name, part)
                        - charge_on(held, body -> 'corrects', name, part);
                ELSE
                    reserved[n] := reserved[n] - cost_on(held -> 'costs', name, part);
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
        ex_post_reserved := ex_post_reserved - cap;
        secret_reserved := secret_reserved - price;
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
    IF NOT allows AND
        (NEW.epsilon, NEW.delta, NEW.renyi_share, NEW.renyi_order, NEW.renyi_limit, NEW.gaussian_share,
            NEW.gaussian_order, NEW.gaussian_limit, NEW.renyi2_share, NEW.renyi2_order, NEW.renyi2_limit,
            NEW.basic_share, NEW.basic_order, NEW.basic_step_delta, NEW.price_edition, NEW.basic_whole_epsilon,
            NEW.ex_post_limit, NEW.ex_post_settlement, NEW.secret, NEW.secret_limit, NEW.largest_epsilon,
            NEW.largest_delta, NEW.largest_bound, NEW.raises_after_release)
        IS DISTINCT FROM
        (OLD.epsilon, OLD.delta, OLD.renyi_share, OLD.renyi_order, OLD.renyi_limit, OLD.gaussian_share,
            OLD.gaussian_order, OLD.gaussian_limit, OLD.renyi2_share, OLD.renyi2_order, OLD.renyi2_limit,
            OLD.basic_share, OLD.basic_order, OLD.basic_step_delta, OLD.price_edition, OLD.basic_whole_epsilon,
            OLD.ex_post_limit, OLD.ex_post_settlement, OLD.secret, OLD.secret_limit, OLD.largest_epsilon,
            OLD.largest_delta, OLD.largest_bound, OLD.raises_after_release)
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
