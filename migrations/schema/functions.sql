-- The process that signed in: 'owner' of the tables, 'service' where one role is all of them, 'none' of them.
-- session_user: within a function of the owner's, current_user is the owner.
CREATE FUNCTION calling_process() RETURNS text
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path TO 'public', 'pg_temp' AS $$
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

CREATE FUNCTION rows_are_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is append-only: % refused', TG_TABLE_NAME, TG_OP
        USING ERRCODE = 'restrict_violation';
END $$;

CREATE FUNCTION logs_end_by_age() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        IF OLD.at < clock_timestamp() - interval '90 days' THEN
            RETURN OLD;
        END IF;
    END IF;
    RAISE EXCEPTION '% keeps rows for 90 days as they are: % refused', TG_TABLE_NAME, TG_OP
        USING ERRCODE = 'restrict_violation';
END $$;

CREATE FUNCTION lease_shown() RETURNS bytea LANGUAGE sql STABLE AS $$
    SELECT sha256(decode(nullif(current_setting('exchequer.lease', true), ''), 'hex'))
$$;

-- The jobs with a part whose lease the transaction has shown to hold.
CREATE FUNCTION leased_jobs() RETURNS SETOF uuid
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path TO 'public', 'pg_temp' AS $$
    SELECT job_id FROM parts WHERE state = 'running' AND lease_secret_sha256 = lease_shown()
$$;

-- Whether this very transaction has changed a part of the job: guard_leases let it, so it may end it whole.
CREATE FUNCTION changed_part(of_job uuid) RETURNS boolean
    LANGUAGE sql SECURITY DEFINER SET search_path TO 'public', 'pg_temp' AS $$
    SELECT EXISTS (SELECT FROM parts WHERE job_id = of_job AND xmin = pg_current_xact_id_if_assigned()::xid)
$$;

CREATE FUNCTION holds_lease(of_job uuid) RETURNS boolean
    LANGUAGE sql SECURITY DEFINER SET search_path TO 'public', 'pg_temp' AS $$
    SELECT of_job IN (SELECT leased_jobs()) OR changed_part(of_job)
$$;

CREATE FUNCTION guard_lease() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path TO 'public', 'pg_temp' AS $$
BEGIN
    IF calling_process() = 'worker' AND NOT holds_lease(NEW.job_id) THEN
        PERFORM refuse_act('it holds no lease on the job');
    END IF;
    RETURN NULL;
END $$;

-- Whether an entry reserves the job as a charge of another program: what its row says counts for nothing.
CREATE FUNCTION is_charge(of_job uuid) RETURNS boolean
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path TO 'public', 'pg_temp' AS $$
    SELECT EXISTS (SELECT FROM entries WHERE job_id = of_job AND kind = 'RESERVE'
        AND document::jsonb #>> '{body,mechanism}' = 'charge')
$$;

-- A charge that nobody has begun within a day.
CREATE FUNCTION is_left(of_job uuid) RETURNS boolean
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path TO 'public', 'pg_temp' AS $$
    SELECT EXISTS (SELECT FROM jobs WHERE id = of_job AND state = 'queued'
        AND queued_at < clock_timestamp() - interval '1 day') AND is_charge(of_job)
$$;

-- Whether two people declared the job after it had happened, and what it costs then.
CREATE FUNCTION overdraft_costs(of_job uuid) RETURNS jsonb
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path TO 'public', 'pg_temp' AS $$
    SELECT document::jsonb #> '{body,costs}' FROM entries WHERE job_id = of_job AND kind = 'RESERVE'
        AND document::jsonb #> '{body,overdraft}' IS NOT NULL
$$;

-- True if the value is an amount: whole digits as text, without a sign, a point or an exponent.
CREATE FUNCTION is_amount(value jsonb) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(jsonb_typeof(value) = 'string' AND value #>> '{}' ~ '^(0|[1-9][0-9]{0,37})$', false)
$$;

-- True if the value has an amount, or null, for each of some filters. Null closes a filter.
CREATE FUNCTION are_costs(value jsonb) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT jsonb_typeof(value) = 'object' AND NOT EXISTS (
        SELECT FROM jsonb_each(CASE jsonb_typeof(value) WHEN 'object' THEN value ELSE '{}' END) AS cost(filter, amount)
        WHERE filter NOT IN ('renyi','gaussian','renyi2','basic') OR jsonb_typeof(amount) <> 'null'
            AND NOT (is_amount(amount -> 'main') AND is_amount(amount -> 'delta')))
$$;

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

-- A value of an entry as text, opened where it is private.
CREATE FUNCTION opened(value jsonb) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE jsonb_typeof(value) WHEN 'object' THEN value ->> 'value' ELSE value #>> '{}' END
$$;

-- A RESERVE's body with its private texts opened (core.ledger.commitments).
CREATE FUNCTION unsealed(body jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
    SELECT jsonb_set(body, '{parameters}', coalesce(jsonb_object_agg(key,
        CASE WHEN jsonb_typeof(value) = 'object' AND value ? 'salt' THEN value -> 'value' ELSE value END), '{}'))
        || CASE WHEN body -> 'approval' ? 'salt'
        THEN jsonb_build_object('approval', body #> '{approval,value}') ELSE '{}' END
    FROM jsonb_each(body -> 'parameters')
$$;

-- Only places that hold an opening are looked up in the text: that parses it each time.
CREATE FUNCTION published_text(document text) RETURNS text LANGUAGE plpgsql STABLE AS $$
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

CREATE FUNCTION entry_hash(document text) RETURNS text LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN encode(sha256(convert_to(published_text(document), 'UTF8')), 'hex');
END $$;

-- The owner of the tables alone asks for a LOSS and posts it: the command that settles a loss.
CREATE FUNCTION guard_loss() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path TO 'public', 'pg_temp' AS $$
BEGIN
    IF calling_process() <> 'owner' THEN
        PERFORM refuse_act('that entries are lost is said by two people, to the command that settles it');
    END IF;
    RETURN NULL;
END $$;

-- Runs in the transaction of the change itself, where hooks are: else a change costs next to nothing.
CREATE FUNCTION hook_announce(event text, analyst uuid, facts jsonb) RETURNS void LANGUAGE sql AS $$
    INSERT INTO hook_deliveries (id, hook_id, event, analyst_id, facts)
    SELECT gen_random_uuid(), h.id, event, analyst, facts
    FROM hooks h JOIN users u ON u.id = h.owner_id
    WHERE u.active AND event = ANY (h.events)
    AND (h.owner_id = analyst
        OR 'steward' = ANY (u.roles) AND EXISTS (SELECT FROM datasets d WHERE d.name = facts ->> 'dataset'
        AND (coalesce(jsonb_array_length(d.policy -> 'stewards'), 0) = 0 OR d.policy -> 'stewards' ? u.name))
        OR 'auditor' = ANY (u.roles) AND EXISTS (SELECT FROM datasets d WHERE d.name = facts ->> 'dataset'
        AND (coalesce(jsonb_array_length(d.policy -> 'auditors'), 0) = 0 OR d.policy -> 'auditors' ? u.name)))
$$;
