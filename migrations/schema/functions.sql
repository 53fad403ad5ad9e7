-- What an admission goes by besides the account's row: the row of the dataset, its newest ready version and the
-- language models of these names. Each is named by the transaction that wrote it, so any change is another text.
CREATE FUNCTION account_stand(dataset uuid, names text[]) RETURNS text
    LANGUAGE plpgsql STABLE
    AS $$
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

-- The process that signed in: 'owner' of the tables, 'service' where one role is all of them, 'none' of them.
-- session_user: within a function of the owner's, current_user is the owner.
CREATE FUNCTION calling_process() RETURNS text
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    AS $$
BEGIN
    IF pg_has_role(session_user, current_user, 'MEMBER') THEN
        RETURN 'owner';
    END IF;
    RETURN coalesce((SELECT process FROM process_roles WHERE role = session_user), 'none');
END $$;

-- Whether this very transaction has changed a part of the job: guard_leases let it, and then it may end it whole.
CREATE FUNCTION changed_part(of_job uuid) RETURNS boolean
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    AS $$
    SELECT EXISTS (SELECT FROM parts WHERE job_id = of_job AND xmin = pg_current_xact_id_if_assigned()::xid)
$$;

-- The charge on one filter after `current`, which settled or corrected the job reserved by `held`.
CREATE FUNCTION charge_on(held jsonb, current jsonb, filter text, part text) RETURNS numeric
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT CASE current ->> 'kind' WHEN 'VOID' THEN 0
        WHEN 'COMMIT' THEN settled_on(held -> 'costs', current #> '{body,costs}', filter, part)
        ELSE cost_on(current #> '{body,costs}', filter, part) END
$$;

-- A cost on one filter: `part` main or delta. Where the filter has no price it closes, and nothing is added.
CREATE FUNCTION cost_on(costs jsonb, filter text, part text) RETURNS numeric
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT coalesce((costs -> filter ->> part)::numeric, 0)
$$;

CREATE FUNCTION entry_hash(document text) RETURNS text
    LANGUAGE plpgsql STABLE
    AS $$ BEGIN RETURN encode(sha256(convert_to(published_text(document), 'UTF8')), 'hex'); END $$;

-- Lock an account's row if it is free and all is as the caller knows it; the database's time then, else NULL.
-- VOLATILE: what is compared is read after the row is held, as under a lock taken in a statement before.
-- `at`: the time of the first entry to be written, from the database's clock as the caller knows it.
-- `analysts`, `keys`: idempotency keys that must be new.
CREATE FUNCTION hold_account(dataset uuid, seq bigint, head text, stand text, names text[], at timestamptz, analysts uuid[], keys text[]) RETURNS timestamptz
    LANGUAGE plpgsql
    AS $$
DECLARE
    now timestamptz;
BEGIN
    PERFORM FROM accounts a WHERE a.dataset_id = dataset AND a.chain_seq = seq AND a.chain_head = head
        FOR UPDATE SKIP LOCKED;
    IF NOT FOUND OR account_stand(dataset, names) IS DISTINCT FROM stand OR EXISTS (
        SELECT FROM unnest(analysts, keys) AS asked(analyst, key), LATERAL (
            SELECT FROM jobs j WHERE j.analyst_id = asked.analyst AND j.idempotency_key = asked.key LIMIT 1
        ) AS known)
    THEN
        RETURN NULL;
    END IF;
    now := clock_timestamp();
    RETURN CASE WHEN at BETWEEN now - interval '1 second' AND now THEN now END;
END $$;

CREATE FUNCTION holds_lease(of_job uuid) RETURNS boolean
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    AS $$
    SELECT of_job IN (SELECT leased_jobs()) OR changed_part(of_job)
$$;

-- What follows runs in the transaction of the change itself. The first look is into an index that holds
-- active hooks alone, so that where there is none a change costs next to nothing.
CREATE FUNCTION hook_announce(event text, analyst uuid, facts jsonb) RETURNS void
    LANGUAGE sql
    AS $$
    INSERT INTO hook_deliveries (id, hook_id, event, analyst_id, facts)
    SELECT gen_random_uuid(), h.id, event, analyst, facts
    FROM hooks h JOIN users u ON u.id = h.owner_id
    WHERE u.active AND event = ANY (h.events)
    AND (h.owner_id = analyst OR 'steward' = ANY (u.roles) AND EXISTS (SELECT FROM datasets d WHERE d.name = facts ->> 'dataset'
        AND (coalesce(jsonb_array_length(d.policy -> 'stewards'), 0) = 0 OR d.policy -> 'stewards' ? u.name)) OR 'auditor' = ANY (u.roles) AND EXISTS (SELECT FROM datasets d WHERE d.name = facts ->> 'dataset'
        AND (coalesce(jsonb_array_length(d.policy -> 'auditors'), 0) = 0 OR d.policy -> 'auditors' ? u.name)))
$$;

CREATE FUNCTION lease_shown() RETURNS bytea
    LANGUAGE sql STABLE
    AS $$
    SELECT sha256(decode(nullif(current_setting('exchequer.lease', true), ''), 'hex'))
$$;

-- The jobs with a part whose lease the transaction has shown to hold.
CREATE FUNCTION leased_jobs() RETURNS SETOF uuid
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    AS $$
    SELECT job_id FROM parts
    WHERE state = 'running' AND (lease_secret_sha256 IS NULL OR lease_secret_sha256 = lease_shown())
$$;

-- Looks at no more rows than the limit has.
CREATE FUNCTION may_wait(people uuid[], more integer[], most integer) RETURNS boolean
    LANGUAGE plpgsql STABLE
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

-- A private value, opened: version 1 holds it plain.
CREATE FUNCTION opened(value jsonb) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT CASE jsonb_typeof(value) WHEN 'object' THEN value ->> 'value' ELSE value #>> '{}' END
$$;

-- Only places that hold an opening are looked up in the text: that parses it each time.
CREATE FUNCTION published_text(document text) RETURNS text
    LANGUAGE plpgsql STABLE
    AS $$
DECLARE
    written jsonb := document;
    whole json := document;
    found text := document;
    place text[];
    part text;
BEGIN
    IF (written ->> 'version')::integer = 1 THEN
        RETURN document;
    END IF;
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

CREATE FUNCTION refuse_act(why text) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    RAISE EXCEPTION '% may not do this: %', calling_process(), why USING ERRCODE = 'insufficient_privilege';
END $$;

-- What a COMMIT moves to spent (core.ledger.reservations.settled): the realized cost, where both have a price
-- without delta; else all that was reserved.
CREATE FUNCTION settled_on(held jsonb, realized jsonb, filter text, part text) RETURNS numeric
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT CASE WHEN held -> filter IS NULL THEN 0
        WHEN cost_on(held, filter, 'delta') <> 0 OR cost_on(realized, filter, 'delta') <> 0
            OR coalesce(jsonb_typeof(realized -> filter), 'null') = 'null' THEN cost_on(held, filter, part)
        ELSE least(cost_on(realized, filter, part), cost_on(held, filter, part)) END
$$;

-- A RESERVE's body with its private texts opened (core.ledger.commitments).
CREATE FUNCTION unsealed(body jsonb) RETURNS jsonb
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT jsonb_set(body, '{parameters}', coalesce(jsonb_object_agg(key,
        CASE WHEN jsonb_typeof(value) = 'object' AND value ? 'salt' THEN value -> 'value' ELSE value END), '{}'))
    FROM jsonb_each(body -> 'parameters')
$$;

CREATE FUNCTION guard_lease() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    AS $$
BEGIN
    IF calling_process() = 'worker' AND NOT holds_lease(NEW.job_id) THEN
        PERFORM refuse_act('it holds no lease on the job');
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION logs_end_by_age() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
        BEGIN
            IF TG_OP = 'DELETE' THEN
                IF OLD.at < clock_timestamp() - interval '90 days' THEN
                    RETURN OLD;
                END IF;
            END IF;
            RAISE EXCEPTION '% keeps rows for 90 days as they are: % refused', TG_TABLE_NAME, TG_OP
                USING ERRCODE = 'restrict_violation';
        END $$;

CREATE FUNCTION rows_are_append_only() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    RAISE EXCEPTION '% is append-only: % refused', TG_TABLE_NAME, TG_OP
        USING ERRCODE = 'restrict_violation';
END $$;
