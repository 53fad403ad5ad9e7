"""Bound every cost in an entry: whole digits, and a COMMIT charges from 0 up to the reserved amount.

The functions that add up balances read costs as numbers. PostgreSQL reads "-5", "NaN" and "1e9" as numbers
too, and takes a cost that is not there for 0. So a trigger looks at every amount first.
"""

from alembic import op

revision = "0102"
down_revision = "0101"

AMOUNTS = r"""
-- True if the value is an amount: whole digits as text, without a sign, a point or an exponent.
CREATE FUNCTION is_amount(value jsonb) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    AS $$ SELECT coalesce(jsonb_typeof(value) = 'string' AND value #>> '{}' ~ '^(0|[1-9][0-9]{0,37})$', false) $$;

-- True if the value has an amount, or null, for each of some filters. Null closes a filter.
CREATE FUNCTION are_costs(value jsonb) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT jsonb_typeof(value) = 'object' AND NOT EXISTS (
        SELECT FROM jsonb_each(CASE jsonb_typeof(value) WHEN 'object' THEN value ELSE '{}' END) AS cost(filter, amount)
        WHERE filter NOT IN ('renyi','gaussian','renyi2','basic') OR jsonb_typeof(amount) <> 'null'
            AND NOT (is_amount(amount -> 'main') AND is_amount(amount -> 'delta')))
$$;

CREATE FUNCTION guard_amounts() RETURNS trigger
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
        ELSIF jsonb_typeof(costs -> filter) IS DISTINCT FROM 'null'
            AND (corrects #> '{body,read}' = 'true' OR corrects ->> 'kind' = 'COMMIT' AND NOT corrects -> 'body' ? 'read')
            AND cost_on(costs, filter, part) < charge_on(held, corrects, filter, part)
        THEN
            PERFORM refuse_act('data was read: a correction does not lower the charge');
        END IF;
    END LOOP;
    IF NEW.kind = 'COMMIT' AND (body #>> '{secret,cost}')::numeric > (held #>> '{secret,cost}')::numeric THEN
        PERFORM refuse_act('a COMMIT charges more than was reserved');
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER entries_amounts AFTER INSERT ON entries FOR EACH ROW
    WHEN ((new.kind = ANY (ARRAY['RESERVE', 'COMMIT', 'VOID', 'REVERSAL']))) EXECUTE FUNCTION guard_amounts();
"""

#: NaN is above every number, so no other CHECK sees it. A sum with NaN in it is NaN.
BALANCES = {
    "accounts": [
        *(
            f"{name}_{part}"
            for name in ("renyi", "gaussian", "renyi2", "basic", "basic_delta", "ex_post", "secret")
            for part in ("limit", "spent", "reserved")
        ),
        "basic_step_delta",
        "basic_whole_epsilon",
        "largest_epsilon",
        "largest_delta",
    ],
    "usage": ["spent", "reserved"],
    "realized_ex_post": ["amount"],
}


def upgrade() -> None:
    connection = op.get_bind()
    # As it stands: neither ":name" nor "%" in it is a parameter.
    connection.exec_driver_sql(AMOUNTS, execution_options={"no_parameters": True})
    for table, columns in BALANCES.items():
        op.create_check_constraint(
            op.f(f"ck_{table}_numbers"), table, f"{' + '.join(columns)} < 'NaN'"
        )
