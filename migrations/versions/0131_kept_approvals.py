"""The relay reserves what was approved and waited for a release: its entry seals the approval, and
the guard compared that with the approval as the web had kept it."""

from alembic import op

revision = "0131"
down_revision = "0130"
branch_labels = None
depends_on = None

UNSEALED = """
CREATE OR REPLACE FUNCTION unsealed(body jsonb) RETURNS jsonb
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT jsonb_set(body, '{parameters}', coalesce(jsonb_object_agg(key,
        CASE WHEN jsonb_typeof(value) = 'object' AND value ? 'salt' THEN value -> 'value' ELSE value END), '{}'))
        || CASE WHEN body -> 'approval' ? 'salt'
        THEN jsonb_build_object('approval', body #> '{approval,value}') ELSE '{}' END
    FROM jsonb_each(body -> 'parameters')
$$
"""


def upgrade() -> None:
    op.get_bind().exec_driver_sql(UNSEALED, execution_options={"no_parameters": True})
