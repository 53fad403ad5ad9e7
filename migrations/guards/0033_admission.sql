-- Admission in one statement, and the hash of an entry with fewer looks into its text.

-- What an admission goes by besides the account's row: the row of the dataset, its newest ready version and the
-- language models of these names. Each is named by the transaction that wrote it, so any change is another text.
CREATE FUNCTION account_stand(dataset uuid, names text[]) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT concat_ws(' ', d.xmin, v.id, v.xmin, (
        SELECT string_agg(m.id::text || ' ' || m.xmin::text, ' ' ORDER BY m.name)
        FROM models m WHERE m.kind = 'language' AND m.name = ANY (names)))
    FROM datasets d LEFT JOIN LATERAL (
        SELECT id, xmin FROM dataset_versions
        WHERE dataset_id = d.id AND state = 'ready' ORDER BY number DESC LIMIT 1
    ) v ON true
    WHERE d.id = dataset
$$;

-- Lock an account's row if it is free and all is as the caller knows it; the database's time then, else NULL.
-- VOLATILE: what is compared is read after the row is held, as under a lock taken in a statement before.
-- `at`: the time of the first entry to be written, from the database's clock as the caller knows it.
-- `analysts`, `keys`: idempotency keys that must be new.
CREATE FUNCTION hold_account(
    dataset uuid, seq bigint, head text, stand text, names text[], at timestamptz, analysts uuid[], keys text[]
) RETURNS timestamptz LANGUAGE plpgsql VOLATILE AS $$
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

-- As before, but only places that hold an opening are looked up in the text: that parses it each time.
CREATE OR REPLACE FUNCTION published_text(document text) RETURNS text LANGUAGE plpgsql STABLE AS $$
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
        IF part ~ '^\{"salt":"[0-9a-f]{32}","value":' THEN
            found := replace(found, part,
                '{"sha256":"' || encode(sha256(convert_to(part, 'UTF8')), 'hex') || '"}');
        END IF;
    END LOOP;
    RETURN found;
END $$;
