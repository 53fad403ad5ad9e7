"""No correction lowers a charge in any currency, and a COMMIT's ex-post cost is bounded.

What the tokens of a median cost depends on the data. It is never above what their clip allows, the
cap where the dataset charges caps, and never below the cap where the job did not succeed.
"""

from alembic import op

revision = "0112"
down_revision = "0111"

GUARD = r"""
CREATE OR REPLACE FUNCTION guard_amounts() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    AS $$
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
"""


def upgrade() -> None:
    # As it stands: neither ":name" nor "%" in it is a parameter.
    op.get_bind().exec_driver_sql(GUARD, execution_options={"no_parameters": True})
