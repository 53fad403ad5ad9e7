CREATE TABLE entries (
    dataset_id uuid NOT NULL CONSTRAINT fk_entries_dataset_id REFERENCES datasets,
    seq bigint NOT NULL CONSTRAINT ck_entries_seq CHECK (seq >= 1),
    kind text NOT NULL,
    at timestamptz NOT NULL,
    actor text NOT NULL,
    job_id uuid CONSTRAINT fk_entries_job_id REFERENCES jobs,
    document text NOT NULL,
    previous text NOT NULL,
    hash text NOT NULL,
    CONSTRAINT ck_entries_job CHECK ((kind IN ('ALLOW', 'REGISTER', 'POLICY', 'LOSS')) = (job_id IS NULL)),
    CONSTRAINT ck_entries_kind CHECK (kind IN ('ALLOW', 'RESERVE', 'COMMIT', 'VOID', 'REVERSAL', 'REGISTER',
        'POLICY', 'LOSS')),
    CONSTRAINT pk_entries PRIMARY KEY (dataset_id, seq),
    CONSTRAINT uq_entries_dataset_id_previous UNIQUE (dataset_id, previous)
);
CREATE INDEX ix_entries_actor ON entries (actor, at, dataset_id, seq, kind);
CREATE INDEX ix_entries_at ON entries (at, dataset_id, seq, kind);
CREATE INDEX ix_entries_job_id ON entries (job_id, seq);
CREATE INDEX ix_entries_rare ON entries (kind, at, dataset_id, seq)
    WHERE kind IN ('ALLOW', 'VOID', 'REVERSAL', 'REGISTER', 'POLICY', 'LOSS');
CREATE INDEX ix_entries_rules ON entries (dataset_id, seq) WHERE kind IN ('ALLOW', 'REGISTER', 'POLICY');
CREATE UNIQUE INDEX uq_entries_reserved_once ON entries (job_id) WHERE kind = 'RESERVE';
CREATE UNIQUE INDEX uq_entries_resolved_once ON entries (job_id) WHERE kind IN ('COMMIT', 'VOID');
-- Rows of jobs say what the web wrote; what is charged stands in the entry.
CREATE UNIQUE INDEX uq_entries_signature ON entries ((document::jsonb #>> '{body,parameters,signature}'))
    WHERE kind = 'RESERVE';

-- Entries are append-only for everybody, the owner included: rows by one trigger, TRUNCATE by another.
CREATE FUNCTION entries_are_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'ledger entries are append-only: % refused', TG_OP
        USING ERRCODE = 'restrict_violation';
END $$;

-- The functions that add up balances read costs as numbers. PostgreSQL reads "-5", "NaN" and "1e9" as numbers
-- too, and takes a cost that is not there for 0. So every amount is looked at first.
CREATE FUNCTION guard_amounts() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path TO 'public', 'pg_temp' AS $$
DECLARE
    body CONSTANT jsonb := NEW.document::jsonb -> 'body';
    costs CONSTANT jsonb := body -> 'costs';
    corrects CONSTANT jsonb := body -> 'corrects';
    held jsonb;
    amount jsonb;
    filter text;
    part text;
    ex_post numeric;
    secret numeric;
    most numeric;
BEGIN
    IF calling_process() = 'owner' THEN
        RETURN NULL;
    END IF;
    IF NEW.kind = 'VOID' THEN
        IF body ?| ARRAY['costs','ex_post','secret'] THEN
            PERFORM refuse_act('a VOID charges nothing and states no costs');
        END IF;
        RETURN NULL;
    END IF;
    IF are_costs(costs) IS NOT TRUE THEN
        PERFORM refuse_act('a cost on a filter is no amount');
    END IF;
    FOREACH amount IN ARRAY CASE NEW.kind
        WHEN 'REVERSAL' THEN ARRAY[to_jsonb(opened(body -> 'ex_post')), body -> 'secret']
        ELSE ARRAY[
            CASE WHEN body ? 'ex_post' THEN to_jsonb(opened(body #> '{ex_post,cap}')) ELSE '"0"' END,
            CASE WHEN body ? 'secret' THEN body #> '{secret,cost}' ELSE '"0"' END] END
    LOOP
        IF is_amount(amount) IS NOT TRUE THEN
            PERFORM refuse_act('an ex-post or secret cost is no amount');
        END IF;
    END LOOP;
    IF NEW.kind = 'RESERVE' THEN
        -- A filter that is not named would be charged nothing.
        IF NOT costs ?& ARRAY['renyi','gaussian','renyi2','basic'] AND EXISTS (
            SELECT FROM accounts WHERE dataset_id = NEW.dataset_id AND epsilon IS NOT NULL)
        THEN
            PERFORM refuse_act('a reservation has a cost on every filter');
        END IF;
        RETURN NULL;
    END IF;
    IF NEW.kind = 'COMMIT' THEN
        SELECT document::jsonb -> 'body' INTO held FROM entries WHERE job_id = NEW.job_id AND kind = 'RESERVE';
    ELSE
        held := body #> '{reserve,body}';
    END IF;
    FOR filter, part IN SELECT * FROM (VALUES ('renyi','main'), ('gaussian','main'), ('renyi2','main'),
        ('basic','main'), ('basic','delta')) AS charged
    LOOP
        IF NEW.kind = 'COMMIT' THEN
            -- Where either has no price, or one with delta, all of the reservation is charged (settled_on).
            IF jsonb_typeof(held #> ARRAY['costs', filter]) = 'object'
                AND cost_on(held -> 'costs', filter, 'delta') + cost_on(costs, filter, 'delta') = 0
                AND cost_on(costs, filter, part) > cost_on(held -> 'costs', filter, part)
            THEN
                PERFORM refuse_act('a COMMIT charges more than was reserved');
            END IF;
        -- Null closes a filter: that is more than any amount.
        ELSIF jsonb_typeof(costs -> filter) IS DISTINCT FROM 'null' AND (
            cost_on(costs, filter, part) < charge_on(held, corrects, filter, part)
            OR corrects ->> 'kind' = 'COMMIT' AND jsonb_typeof(held #> ARRAY['costs', filter]) = 'null'
            OR corrects ->> 'kind' = 'REVERSAL' AND jsonb_typeof(corrects #> ARRAY['body', 'costs', filter]) = 'null')
        THEN
            PERFORM refuse_act('a correction does not lower the charge');
        END IF;
    END LOOP;
    ex_post := coalesce((held #>> '{ex_post,cap}')::numeric, 0);
    secret := coalesce((held #>> '{secret,cost}')::numeric, 0);
    IF NEW.kind = 'REVERSAL' THEN
        IF corrects ->> 'kind' = 'COMMIT' THEN
            ex_post := coalesce(opened(corrects #> '{body,ex_post,cap}')::numeric, ex_post);
            secret := coalesce((corrects #>> '{body,secret,cost}')::numeric, secret);
        ELSIF corrects ->> 'kind' = 'REVERSAL' THEN
            ex_post := opened(corrects #> '{body,ex_post}')::numeric;
            secret := (corrects #>> '{body,secret}')::numeric;
        ELSE
            ex_post := 0;
            secret := 0;
        END IF;
        IF opened(body -> 'ex_post')::numeric < ex_post OR (body ->> 'secret')::numeric < secret THEN
            PERFORM refuse_act('a correction does not lower the charge');
        END IF;
        RETURN NULL;
    END IF;
    IF (body #>> '{secret,cost}')::numeric > (held #>> '{secret,cost}')::numeric THEN
        PERFORM refuse_act('a COMMIT charges more than was reserved');
    ELSIF (body ? 'ex_post') <> (held ? 'ex_post') THEN
        PERFORM refuse_act('a COMMIT settles the ex-post part of its reservation');
    ELSIF body ->> 'outcome' IN ('failed','cancelled') AND (
        opened(body #> '{ex_post,cap}')::numeric < ex_post OR (body #>> '{secret,cost}')::numeric < secret)
    THEN
        PERFORM refuse_act('a job that did not succeed is charged whole');
    ELSIF body ? 'ex_post' THEN
        -- The logits of a median lie within the clip (core.ledger.realization.most_ex_post).
        most := (held #>> '{parameters,tokens_per_batch}')::numeric * 1e9
            * (4.000004 * (held #>> '{parameters,clip}')::numeric / (held #>> '{parameters,temperature}')::numeric
                + 0.000001);
        IF opened(body #> '{ex_post,cap}')::numeric > greatest(ex_post, ceil(most)) THEN
            PERFORM refuse_act('tokens of a median do not cost so much ex post');
        ELSIF opened(body #> '{ex_post,cap}')::numeric <> ex_post AND NOT EXISTS (
            SELECT FROM accounts WHERE dataset_id = NEW.dataset_id AND ex_post_settlement = 'realized')
        THEN
            PERFORM refuse_act('an ex-post cap is charged as it was reserved');
        END IF;
    END IF;
    RETURN NULL;
END $$;

-- No worker touches a charge of another program. Its COMMIT without a signature costs what was reserved.
CREATE FUNCTION guard_charge() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path TO 'public', 'pg_temp' AS $$
DECLARE
    body CONSTANT jsonb := NEW.document::jsonb -> 'body';
    reserved jsonb;
BEGIN
    IF calling_process() = 'owner' THEN
        RETURN NULL;
    END IF;
    SELECT document::jsonb -> 'body' INTO reserved FROM entries WHERE job_id = NEW.job_id AND kind = 'RESERVE';
    IF reserved ->> 'mechanism' IS DISTINCT FROM 'charge' THEN
        RETURN NULL;
    END IF;
    IF calling_process() = 'worker' THEN
        PERFORM refuse_act('no worker runs a charge');
    ELSIF NEW.kind = 'COMMIT' AND body -> 'costs' IS DISTINCT FROM reserved -> 'costs'
        AND (body #>> '{evidence,signature}' IS NULL OR reserved #>> '{parameters,runner}' IS NULL
            OR body ->> 'outcome' IS DISTINCT FROM 'succeeded')
    THEN
        PERFORM refuse_act('a charge that no runner signed is charged whole');
    END IF;
    RETURN NULL;
END $$;

-- The process that checks data registers what a steward declared, and nothing else.
CREATE FUNCTION guard_declared() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path TO 'public', 'pg_temp' AS $$
DECLARE
    body CONSTANT jsonb := NEW.document::jsonb -> 'body';
    layout CONSTANT jsonb := opened(body -> 'layout')::jsonb;
BEGIN
    IF calling_process() = 'checks' AND NOT EXISTS (
        SELECT FROM datasets d JOIN dataset_versions v ON v.dataset_id = d.id JOIN users u ON u.id = v.created_by
        WHERE d.id = NEW.dataset_id AND v.number = (body ->> 'version')::integer AND u.name = NEW.actor
        AND body -> 'terms' = jsonb_build_object('unit_column', d.unit_column, 'neighbours', d.neighbours,
                'max_records_per_unit', d.max_records_per_unit, 'public_size', d.public_size,
                'labels', d.labels, 'groups', d.groups)
            || CASE d.unit_spelling WHEN 'refuse' THEN '{}'
                ELSE jsonb_build_object('unit_spelling', d.unit_spelling) END
            || CASE d.missing_units WHEN 'refuse' THEN '{}'
                ELSE jsonb_build_object('missing_units', d.missing_units) END
        AND layout - 'secrets' = jsonb_build_object('uri', v.uri, 'text_template', v.text_template,
            'label_column', v.label_column, 'group_column', v.group_column, 'secret_column', v.secret_column)
        -- Which secrets are declared, their hash says to a worker: it runs nothing under another.
        AND (layout ->> 'secrets' IS NULL) = (d.secret_patterns = '[]' AND d.secret_terms = '[]')
        AND opened(body -> 'data')::jsonb = v.data)
    THEN
        PERFORM refuse_act('it registers what a steward declared, and nothing else');
    END IF;
    RETURN NULL;
END $$;

-- What a document leaves out is never taken for what it should say.
CREATE FUNCTION guard_entry() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path TO 'public', 'pg_temp' AS $$
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
    ELSIF NEW.kind = 'VOID' AND (job.reading_began_at IS NOT NULL
        OR overdraft_costs(NEW.job_id) IS NOT NULL OR body ->> 'read' IS DISTINCT FROM 'false')
    THEN
        PERFORM refuse_act('a reservation under which data was read is not given back');
    END IF;
    IF (CASE process
        WHEN 'service' THEN true
        WHEN 'web' THEN body ->> 'outcome' = 'cancelled' AND NOT EXISTS (
                SELECT FROM parts WHERE job_id = NEW.job_id AND state = 'running')
            OR NEW.kind = 'COMMIT' AND NEW.job_id IN (SELECT leased_jobs()) AND is_charge(NEW.job_id)
            OR NEW.kind = 'COMMIT' AND body -> 'costs' = overdraft_costs(NEW.job_id)
        WHEN 'worker' THEN NEW.kind IN ('VOID','COMMIT') AND EXISTS (
            SELECT FROM parts WHERE job_id = NEW.job_id AND state = 'running')
        WHEN 'relay' THEN CASE NEW.kind
            WHEN 'RESERVE' THEN job.state = 'awaiting_release'
            WHEN 'VOID' THEN is_left(NEW.job_id) OR EXISTS (
                SELECT FROM parts WHERE job_id = NEW.job_id AND state = 'running'
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

CREATE FUNCTION guard_look() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path TO 'public', 'pg_temp' AS $$
BEGIN
    IF calling_process() NOT IN ('checks','relay') THEN
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

CREATE TRIGGER entries_amounts AFTER INSERT ON entries FOR EACH ROW
    WHEN (new.kind IN ('RESERVE', 'COMMIT', 'VOID', 'REVERSAL')) EXECUTE FUNCTION guard_amounts();
CREATE TRIGGER entries_charge AFTER INSERT ON entries FOR EACH ROW
    WHEN (new.kind IN ('COMMIT', 'VOID')) EXECUTE FUNCTION guard_charge();
CREATE TRIGGER entries_declared AFTER INSERT ON entries FOR EACH ROW WHEN (new.kind = 'REGISTER')
    EXECUTE FUNCTION guard_declared();
CREATE TRIGGER entries_guard AFTER INSERT ON entries FOR EACH ROW EXECUTE FUNCTION guard_entry();
CREATE TRIGGER entries_lease AFTER INSERT ON entries FOR EACH ROW WHEN (new.kind IN ('COMMIT', 'VOID'))
    EXECUTE FUNCTION guard_lease();
CREATE TRIGGER entries_look AFTER INSERT ON entries FOR EACH ROW WHEN (new.kind = 'RESERVE')
    EXECUTE FUNCTION guard_look();
CREATE TRIGGER entries_rows BEFORE DELETE OR UPDATE ON entries FOR EACH ROW
    EXECUTE FUNCTION entries_are_append_only();
CREATE TRIGGER entries_truncate BEFORE TRUNCATE ON entries FOR EACH STATEMENT
    EXECUTE FUNCTION entries_are_append_only();
