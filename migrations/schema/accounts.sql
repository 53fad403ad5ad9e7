CREATE TABLE accounts (
    dataset_id uuid CONSTRAINT pk_accounts PRIMARY KEY CONSTRAINT fk_accounts_dataset_id REFERENCES datasets,
    epsilon numeric(38,0),
    delta numeric(38,0),
    renyi_share text,
    renyi_order text,
    renyi_limit numeric(38,0) DEFAULT '0' NOT NULL,
    renyi_spent numeric(38,0) DEFAULT '0' NOT NULL,
    renyi_reserved numeric(38,0) DEFAULT '0' NOT NULL,
    renyi_closed integer DEFAULT 0 NOT NULL,
    gaussian_share text,
    gaussian_order text,
    gaussian_limit numeric(38,0) DEFAULT '0' NOT NULL,
    gaussian_spent numeric(38,0) DEFAULT '0' NOT NULL,
    gaussian_reserved numeric(38,0) DEFAULT '0' NOT NULL,
    gaussian_closed integer DEFAULT 0 NOT NULL,
    renyi2_share text,
    renyi2_order text,
    renyi2_limit numeric(38,0) DEFAULT '0' NOT NULL,
    renyi2_spent numeric(38,0) DEFAULT '0' NOT NULL,
    renyi2_reserved numeric(38,0) DEFAULT '0' NOT NULL,
    renyi2_closed integer DEFAULT 0 NOT NULL,
    basic_share text,
    basic_order text,
    basic_limit numeric(38,0) DEFAULT '0' NOT NULL,
    basic_spent numeric(38,0) DEFAULT '0' NOT NULL,
    basic_reserved numeric(38,0) DEFAULT '0' NOT NULL,
    basic_closed integer DEFAULT 0 NOT NULL,
    basic_delta_limit numeric(38,0) DEFAULT '0' NOT NULL,
    basic_delta_spent numeric(38,0) DEFAULT '0' NOT NULL,
    basic_delta_reserved numeric(38,0) DEFAULT '0' NOT NULL,
    basic_step_delta numeric(38,0) DEFAULT '0' NOT NULL,
    ex_post_limit numeric(38,0) DEFAULT '0' NOT NULL,
    ex_post_spent numeric(38,0) DEFAULT '0' NOT NULL,
    ex_post_reserved numeric(38,0) DEFAULT '0' NOT NULL,
    secret_limit numeric(38,0) DEFAULT '0' NOT NULL,
    secret_spent numeric(38,0) DEFAULT '0' NOT NULL,
    secret_reserved numeric(38,0) DEFAULT '0' NOT NULL,
    ex_post_settlement text DEFAULT 'planned' NOT NULL,
    secret jsonb,
    secret_jobs integer DEFAULT 0 NOT NULL,
    largest_epsilon numeric(38,0) DEFAULT '0' NOT NULL,
    largest_delta numeric(38,0) DEFAULT '0' NOT NULL,
    largest_bound double precision DEFAULT '0' NOT NULL,
    raises_after_release integer DEFAULT 0 NOT NULL,
    job_count integer DEFAULT 0 NOT NULL,
    ex_post_job_count integer DEFAULT 0 NOT NULL,
    secret_job_count integer DEFAULT 0 NOT NULL,
    failure_count integer DEFAULT 0 NOT NULL,
    overdrawn boolean DEFAULT false NOT NULL,
    chain_seq bigint DEFAULT '0' NOT NULL,
    chain_head text NOT NULL,
    coin_job_count integer DEFAULT 0 NOT NULL CONSTRAINT ck_accounts_coin_job_count CHECK (coin_job_count >= 0),
    basic_whole_epsilon numeric(38,0) DEFAULT '0' NOT NULL,
    loss_count integer DEFAULT 0 NOT NULL CONSTRAINT ck_accounts_loss_count CHECK (loss_count >= 0),
    overdraft_count integer DEFAULT 0 NOT NULL,
    overdraft_epsilon numeric(38,0) DEFAULT '0' NOT NULL,
    CONSTRAINT ck_accounts_a_filter_holds CHECK (overdrawn
        OR renyi_closed = 0 AND renyi_spent + renyi_reserved <= renyi_limit
        OR gaussian_closed = 0 AND gaussian_spent + gaussian_reserved <= gaussian_limit
        OR renyi2_closed = 0 AND renyi2_spent + renyi2_reserved <= renyi2_limit
        OR basic_closed = 0 AND basic_spent + basic_reserved <= basic_limit
        AND basic_delta_spent + basic_delta_reserved <= basic_delta_limit),
    -- It pays what is known by (epsilon, delta) alone, for all filters, whichever holds.
    CONSTRAINT ck_accounts_deltas_fit CHECK (
        overdrawn OR basic_delta_spent + basic_delta_reserved <= basic_delta_limit),
    CONSTRAINT ck_accounts_ex_post_fits CHECK (overdrawn OR ex_post_settlement = 'realized'
        OR ex_post_spent + ex_post_reserved <= ex_post_limit),
    CONSTRAINT ck_accounts_ex_post_settlement CHECK (ex_post_settlement IN ('planned', 'realized')),
    CONSTRAINT ck_accounts_no_secret CHECK (secret IS NOT NULL OR secret_limit = 0 AND secret_jobs = 0),
    CONSTRAINT ck_accounts_not_negative CHECK (renyi_limit >= 0 AND renyi_spent >= 0
        AND renyi_reserved >= 0 AND renyi_closed >= 0 AND gaussian_limit >= 0 AND gaussian_spent >= 0
        AND gaussian_reserved >= 0 AND gaussian_closed >= 0 AND renyi2_limit >= 0 AND renyi2_spent >= 0
        AND renyi2_reserved >= 0 AND renyi2_closed >= 0 AND basic_limit >= 0 AND basic_spent >= 0
        AND basic_reserved >= 0 AND basic_closed >= 0 AND basic_delta_limit >= 0
        AND basic_delta_spent >= 0 AND basic_delta_reserved >= 0),
    -- NaN is above every number, so no other CHECK sees it. A sum with NaN in it is NaN.
    CONSTRAINT ck_accounts_numbers CHECK (renyi_limit + renyi_spent + renyi_reserved + gaussian_limit
        + gaussian_spent + gaussian_reserved + renyi2_limit + renyi2_spent + renyi2_reserved + basic_limit
        + basic_spent + basic_reserved + basic_delta_limit + basic_delta_spent + basic_delta_reserved
        + ex_post_limit + ex_post_spent + ex_post_reserved + secret_limit + secret_spent + secret_reserved
        + basic_step_delta + basic_whole_epsilon + largest_epsilon + largest_delta < 'NaN'),
    CONSTRAINT ck_accounts_one_secret_job CHECK (overdrawn OR secret IS NULL
        OR (secret ->> 'kind') <> 'one' OR secret_jobs <= 1),
    CONSTRAINT ck_accounts_others_not_negative CHECK (basic_step_delta >= 0 AND ex_post_limit >= 0
        AND ex_post_spent >= 0 AND ex_post_reserved >= 0 AND secret_limit >= 0 AND secret_spent >= 0
        AND secret_reserved >= 0 AND secret_jobs >= 0 AND largest_epsilon >= 0 AND largest_delta >= 0
        AND raises_after_release >= 0 AND job_count >= 0 AND ex_post_job_count >= 0
        AND secret_job_count >= 0 AND failure_count >= 0),
    CONSTRAINT ck_accounts_overdrafts CHECK ((overdraft_count > 0) = (overdraft_epsilon > 0)
        AND overdraft_count >= 0 AND overdraft_epsilon < 'NaN'),
    CONSTRAINT ck_accounts_secret_fits CHECK (overdrawn OR secret_spent + secret_reserved <= secret_limit),
    CONSTRAINT ck_accounts_secret_kind CHECK (secret IS NULL OR (secret ->> 'kind') IN ('one', 'many')),
    CONSTRAINT ck_accounts_whole_epsilon CHECK (
        CASE WHEN epsilon IS NULL THEN basic_whole_epsilon = 0 ELSE basic_whole_epsilon > 0 END)
);

CREATE FUNCTION guard_account() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path TO 'public', 'pg_temp' AS $$
DECLARE
    entry record;
    head text := OLD.chain_head;
    count bigint := 0;
    allows boolean := false;
    corrects boolean := false;
    overdrafts integer := 0;
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
        IF held IS NULL THEN
            PERFORM refuse_act('it settles what nobody reserved');
        END IF;
        whole := whole OR held ? 'whole';
        overdrafts := overdrafts + (entry.kind = 'RESERVE' AND held ? 'overdraft')::integer;
        IF entry.kind = 'RESERVE' THEN
            costs := held -> 'costs';
            reserved := ARRAY[reserved[1] + cost_on(costs, 'renyi', 'main'),
                reserved[2] + cost_on(costs, 'gaussian', 'main'),
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
            NEW.basic_share, NEW.basic_order, NEW.basic_step_delta, NEW.basic_whole_epsilon,
            NEW.ex_post_limit, NEW.ex_post_settlement, NEW.secret, NEW.secret_limit, NEW.largest_epsilon,
            NEW.largest_delta, NEW.largest_bound, NEW.raises_after_release)
        IS DISTINCT FROM
        (OLD.epsilon, OLD.delta, OLD.renyi_share, OLD.renyi_order, OLD.renyi_limit, OLD.gaussian_share,
            OLD.gaussian_order, OLD.gaussian_limit, OLD.renyi2_share, OLD.renyi2_order, OLD.renyi2_limit,
            OLD.basic_share, OLD.basic_order, OLD.basic_step_delta, OLD.basic_whole_epsilon,
            OLD.ex_post_limit, OLD.ex_post_settlement, OLD.secret, OLD.secret_limit, OLD.largest_epsilon,
            OLD.largest_delta, OLD.largest_bound, OLD.raises_after_release)
    THEN
        PERFORM refuse_act('an allowance changes by an ALLOW alone');
    ELSIF NOT allows AND (NEW.basic_limit, NEW.basic_delta_limit) IS DISTINCT FROM
        (OLD.basic_limit, OLD.basic_delta_limit)
        AND NOT (whole AND NEW.basic_limit <= NEW.epsilon AND NEW.basic_delta_limit <= NEW.delta)
    THEN
        PERFORM refuse_act('a limit changes by an ALLOW, or by what takes the account for whole jobs');
    ELSIF NEW.overdrawn AND NOT OLD.overdrawn AND NOT corrects AND overdrafts = 0 THEN
        PERFORM refuse_act('an account is overdrawn by a correction or an overdraft alone');
    ELSIF OLD.overdrawn AND NOT NEW.overdrawn AND NOT allows AND NOT corrects THEN
        PERFORM refuse_act('an account is opened by an allowance or a correction alone');
    ELSIF NEW.overdraft_count <> OLD.overdraft_count + overdrafts
        OR (NEW.overdraft_epsilon > OLD.overdraft_epsilon) <> (overdrafts > 0)
        OR NEW.overdraft_epsilon < OLD.overdraft_epsilon THEN
        PERFORM refuse_act('the overdrafts are not those that the entries declare');
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

CREATE FUNCTION hook_account() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path TO 'public', 'pg_temp' AS $$
BEGIN
    -- No WHEN: this row moves with every entry, and a condition of this size costs more than the look.
    IF EXISTS (SELECT FROM hooks) AND hook_stage(NEW) > hook_stage(OLD) THEN
        PERFORM hook_announce(
            (ARRAY['dataset.low','dataset.exhausted','dataset.overdrawn'])[hook_stage(NEW)], NULL,
            jsonb_build_object('dataset', d.name, 'entry', NEW.chain_seq))
        FROM datasets d WHERE d.id = NEW.dataset_id;
    END IF;
    RETURN NULL;
END $$;

-- 0: there is room; 1: every filter has used nine tenths or is closed; 2: all of it; 3: overdrawn.
CREATE FUNCTION hook_stage(a accounts) RETURNS integer LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN CASE WHEN a.overdrawn THEN 3 WHEN a.epsilon IS NULL THEN 0 ELSE least(
        CASE WHEN a.renyi_closed > 0 OR a.renyi_spent + a.renyi_reserved >= a.renyi_limit THEN 2
            WHEN 10 * (a.renyi_spent + a.renyi_reserved) >= 9 * a.renyi_limit THEN 1 ELSE 0 END,
        CASE WHEN a.gaussian_closed > 0 OR a.gaussian_spent + a.gaussian_reserved >= a.gaussian_limit THEN 2
            WHEN 10 * (a.gaussian_spent + a.gaussian_reserved) >= 9 * a.gaussian_limit THEN 1 ELSE 0 END,
        CASE WHEN a.renyi2_closed > 0 OR a.renyi2_spent + a.renyi2_reserved >= a.renyi2_limit THEN 2
            WHEN 10 * (a.renyi2_spent + a.renyi2_reserved) >= 9 * a.renyi2_limit THEN 1 ELSE 0 END,
        CASE WHEN a.basic_closed > 0 OR a.basic_spent + a.basic_reserved >= a.basic_limit THEN 2
            WHEN 10 * (a.basic_spent + a.basic_reserved) >= 9 * a.basic_limit THEN 1 ELSE 0 END) END;
END $$;

-- Keeps a row of standings when an account passes a multiple of 256 entries. As the owner: the application
-- may not write what its pages then show as what stood.
CREATE FUNCTION keep_standing() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path TO 'public', 'pg_temp' AS $$
BEGIN
    INSERT INTO standings VALUES (NEW.dataset_id, NEW.chain_seq, to_jsonb(NEW)) ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;

CREATE TRIGGER accounts_guard AFTER UPDATE ON accounts FOR EACH ROW EXECUTE FUNCTION guard_account();
CREATE TRIGGER accounts_loss AFTER UPDATE ON accounts FOR EACH ROW
    WHEN (new.loss_count IS DISTINCT FROM old.loss_count) EXECUTE FUNCTION guard_loss();
CREATE TRIGGER accounts_standing AFTER UPDATE ON accounts FOR EACH ROW
    WHEN ((new.chain_seq / 256) > (old.chain_seq / 256)) EXECUTE FUNCTION keep_standing();
CREATE TRIGGER hook_account AFTER UPDATE ON accounts FOR EACH ROW EXECUTE FUNCTION hook_account();
