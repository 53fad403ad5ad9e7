"""Notices go to addresses that administrators set: without secrets, a log, or a webhook that may be disabled.

Addresses that people registered for themselves go with what waited for them.
"""

from alembic import op
from sqlalchemy import text

revision = "0051"
down_revision = "0050"
branch_labels = None
depends_on = None

_UP = """
DELETE FROM hook_deliveries;
DELETE FROM hooks;
DROP INDEX ix_hooks_active, ix_hook_deliveries_due, ix_hook_deliveries_log;
ALTER TABLE hooks
    DROP CONSTRAINT ck_hooks_kind,
    DROP COLUMN secret, DROP COLUMN active, DROP COLUMN disabled_reason, DROP COLUMN disabled_at,
    DROP COLUMN last_success_at, DROP COLUMN removed_at,
    ALTER COLUMN kind DROP DEFAULT,
    ADD CONSTRAINT ck_hooks_kind CHECK (kind IN ('mail','chat','teams','json'));
ALTER TABLE hook_deliveries
    DROP CONSTRAINT fk_hook_deliveries_hook_id,
    ADD CONSTRAINT fk_hook_deliveries_hook_id FOREIGN KEY (hook_id) REFERENCES hooks ON DELETE CASCADE,
    DROP COLUMN state, DROP COLUMN began_at, DROP COLUMN status, DROP COLUMN problem,
    DROP COLUMN attempted_at;
CREATE INDEX ix_hooks_owner_id ON hooks (owner_id);
CREATE INDEX ix_hook_deliveries_due ON hook_deliveries (hook_id, due_at);
"""

_DOWN = """
DELETE FROM hook_deliveries;
DELETE FROM hooks;
DROP INDEX ix_hooks_owner_id, ix_hook_deliveries_due;
ALTER TABLE hooks
    DROP CONSTRAINT ck_hooks_kind,
    ADD COLUMN secret bytea NOT NULL,
    ADD COLUMN active boolean NOT NULL DEFAULT true,
    ADD COLUMN disabled_reason text,
    ADD COLUMN disabled_at timestamptz,
    ADD COLUMN last_success_at timestamptz,
    ADD COLUMN removed_at timestamptz,
    ALTER COLUMN kind SET DEFAULT 'webhook',
    ADD CONSTRAINT ck_hooks_kind CHECK (kind IN ('webhook','chat','mail')),
    ADD CONSTRAINT ck_hooks_active CHECK (NOT active OR (removed_at IS NULL AND disabled_at IS NULL)),
    ADD CONSTRAINT ck_hooks_disabled CHECK ((disabled_at IS NULL) = (disabled_reason IS NULL));
ALTER TABLE hook_deliveries
    DROP CONSTRAINT fk_hook_deliveries_hook_id,
    ADD CONSTRAINT fk_hook_deliveries_hook_id FOREIGN KEY (hook_id) REFERENCES hooks,
    ADD COLUMN state text NOT NULL DEFAULT 'pending',
    ADD COLUMN began_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    ADD COLUMN status integer,
    ADD COLUMN problem text,
    ADD COLUMN attempted_at timestamptz,
    ADD CONSTRAINT ck_hook_deliveries_state CHECK (state IN ('pending','delivered','failed','dropped'));
CREATE INDEX ix_hooks_active ON hooks (owner_id) WHERE active;
CREATE INDEX ix_hook_deliveries_due ON hook_deliveries (hook_id, due_at) WHERE state = 'pending';
CREATE INDEX ix_hook_deliveries_log ON hook_deliveries (hook_id, occurred_at, id);
"""

_FUNCTIONS = text("SELECT pg_get_functiondef(oid) FROM pg_proc WHERE proname LIKE 'hook\\_%'")


def upgrade() -> None:
    op.execute(_UP)
    _state(("FROM hooks WHERE active", "FROM hooks"), ("WHERE h.active AND u.active", "WHERE u.active"))


def downgrade() -> None:
    op.execute(_DOWN)
    _state(("(SELECT FROM hooks)", "(SELECT FROM hooks WHERE active)"))
    _state(("WHERE u.active AND event", "WHERE h.active AND u.active AND event"))


def _state(*changes: tuple[str, str]) -> None:
    """State each function of the triggers anew, with these texts in place of others."""
    connection = op.get_bind()
    for definition in connection.execute(_FUNCTIONS).scalars().all():
        changed = definition
        for old, new in changes:
            changed = changed.replace(old, new)
        if changed != definition:
            connection.exec_driver_sql(changed, execution_options={"no_parameters": True})
