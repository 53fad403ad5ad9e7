"""Webhooks, their deliveries and the triggers that write them; uploaded files."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

NOW = sa.text("clock_timestamp()")

# Everything below runs in the transaction of the change itself. The first look is into an index that holds
# active hooks alone, so that where there is none a change costs next to nothing.
FUNCTIONS = (
    """
    CREATE FUNCTION hook_announce(event text, analyst uuid, facts jsonb) RETURNS void LANGUAGE sql AS $$
        INSERT INTO hook_deliveries (id, hook_id, event, analyst_id, facts)
        SELECT gen_random_uuid(), h.id, event, analyst, facts
        FROM hooks h JOIN users u ON u.id = h.owner_id
        WHERE h.active AND u.active AND event = ANY (h.events)
        AND (h.owner_id = analyst OR u.roles && ARRAY['steward','auditor'])
    $$
    """,
    """
    CREATE FUNCTION hook_job(job jobs) RETURNS void LANGUAGE sql AS $$
        SELECT hook_announce('job.' || job.state, job.analyst_id, jsonb_build_object(
            'job', job.id, 'dataset', d.name, 'mechanism', job.mechanism, 'analyst', u.name, 'state', job.state))
        FROM datasets d, users u WHERE d.id = job.dataset_id AND u.id = job.analyst_id
    $$
    """,
    """
    CREATE FUNCTION hook_new_jobs() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF EXISTS (SELECT FROM hooks WHERE active) THEN
            PERFORM hook_job(j) FROM jobs j JOIN new_rows n ON n.id = j.id;
        END IF;
        RETURN NULL;
    END $$
    """,
    """
    CREATE FUNCTION hook_changed_job() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF EXISTS (SELECT FROM hooks WHERE active) THEN
            PERFORM hook_job(NEW);
        END IF;
        RETURN NULL;
    END $$
    """,
    # 0: there is room; 1: every filter has used nine tenths or is closed; 2: all of it; 3: overdrawn.
    """
    CREATE FUNCTION hook_stage(a accounts) RETURNS integer LANGUAGE sql IMMUTABLE AS $$
        SELECT CASE WHEN a.overdrawn THEN 3 WHEN a.epsilon IS NULL THEN 0 ELSE least(
            CASE WHEN a.renyi_closed > 0 OR a.renyi_spent + a.renyi_reserved >= a.renyi_limit THEN 2
                WHEN 10 * (a.renyi_spent + a.renyi_reserved) >= 9 * a.renyi_limit THEN 1 ELSE 0 END,
            CASE WHEN a.gaussian_closed > 0 OR a.gaussian_spent + a.gaussian_reserved >= a.gaussian_limit THEN 2
                WHEN 10 * (a.gaussian_spent + a.gaussian_reserved) >= 9 * a.gaussian_limit THEN 1 ELSE 0 END,
            CASE WHEN a.renyi2_closed > 0 OR a.renyi2_spent + a.renyi2_reserved >= a.renyi2_limit THEN 2
                WHEN 10 * (a.renyi2_spent + a.renyi2_reserved) >= 9 * a.renyi2_limit THEN 1 ELSE 0 END,
            CASE WHEN a.basic_closed > 0 OR a.basic_spent + a.basic_reserved >= a.basic_limit THEN 2
                WHEN 10 * (a.basic_spent + a.basic_reserved) >= 9 * a.basic_limit THEN 1 ELSE 0 END) END
    $$
    """,
    """
    CREATE FUNCTION hook_account() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF EXISTS (SELECT FROM hooks WHERE active) THEN
            PERFORM hook_announce(
                (ARRAY['dataset.low','dataset.exhausted','dataset.overdrawn'])[hook_stage(NEW)], NULL,
                jsonb_build_object('dataset', d.name, 'entry', NEW.chain_seq))
            FROM datasets d WHERE d.id = NEW.dataset_id;
        END IF;
        RETURN NULL;
    END $$
    """,
    """
    CREATE FUNCTION hook_version() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF EXISTS (SELECT FROM hooks WHERE active) THEN
            PERFORM hook_announce('version.' || NEW.state, NULL,
                jsonb_build_object('dataset', d.name, 'version', NEW.number, 'state', NEW.state))
            FROM datasets d WHERE d.id = NEW.dataset_id;
        END IF;
        RETURN NULL;
    END $$
    """,
    """
    CREATE FUNCTION hook_proposal() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF EXISTS (SELECT FROM hooks WHERE active) THEN
            PERFORM hook_announce('proposal.' || NEW.state, NULL, jsonb_build_object(
                'proposal', NEW.id, 'kind', NEW.kind, 'dataset', d.name, 'job', NEW.job_id, 'state', NEW.state))
            FROM datasets d WHERE d.id = NEW.dataset_id;
        END IF;
        RETURN NULL;
    END $$
    """,
    """
    CREATE FUNCTION hook_checkpoint() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF EXISTS (SELECT FROM hooks WHERE active) THEN
            PERFORM hook_announce('checkpoint.made', NULL,
                jsonb_build_object('dataset', d.name, 'entry', NEW.seq, 'key', NEW.key_id))
            FROM datasets d WHERE d.id = NEW.dataset_id;
        END IF;
        RETURN NULL;
    END $$
    """,
)
_STATE = "WHEN (OLD.state IS DISTINCT FROM NEW.state)"
TRIGGERS = {
    "hook_new_jobs": (
        "jobs",
        "AFTER INSERT ON jobs REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT",
        "hook_new_jobs",
    ),
    "hook_changed_job": ("jobs", f"AFTER UPDATE ON jobs FOR EACH ROW {_STATE}", "hook_changed_job"),
    "hook_account": (
        "accounts",
        "AFTER UPDATE ON accounts FOR EACH ROW WHEN (hook_stage(NEW.*) > hook_stage(OLD.*))",
        "hook_account",
    ),
    "hook_version": (
        "dataset_versions",
        f"AFTER UPDATE ON dataset_versions FOR EACH ROW {_STATE}",
        "hook_version",
    ),
    "hook_new_proposal": ("proposals", "AFTER INSERT ON proposals FOR EACH ROW", "hook_proposal"),
    "hook_proposal": ("proposals", f"AFTER UPDATE ON proposals FOR EACH ROW {_STATE}", "hook_proposal"),
    "hook_checkpoint": ("checkpoints", "AFTER INSERT ON checkpoints FOR EACH ROW", "hook_checkpoint"),
}
DROPS = (
    "hook_checkpoint()",
    "hook_proposal()",
    "hook_version()",
    "hook_account()",
    "hook_stage(accounts)",
    "hook_changed_job()",
    "hook_new_jobs()",
    "hook_job(jobs)",
    "hook_announce(text, uuid, jsonb)",
)


def upgrade() -> None:
    create_uploads()
    create_hooks()
    create_deliveries()
    for function in FUNCTIONS:
        op.execute(function)
    for name, (_, when, function) in TRIGGERS.items():
        op.execute(f"CREATE TRIGGER {name} {when} EXECUTE FUNCTION {function}()")


def create_uploads() -> None:
    op.create_table(
        "uploads",
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("format", sa.Text(), nullable=False),
        sa.Column("compression", sa.Text(), nullable=True),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("uncompressed_bytes", sa.BigInteger(), nullable=False),
        sa.Column("columns", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("uploaded_by", sa.Uuid(), nullable=False),
        sa.Column("uploaded_at", sa.DateTime(timezone=True), server_default=NOW, nullable=False),
        sa.Column("removed_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("sha256 ~ '^[0-9a-f]{64}$'", name=op.f("ck_uploads_sha256")),
        sa.CheckConstraint("format IN ('csv','jsonl','parquet')", name=op.f("ck_uploads_format")),
        sa.CheckConstraint("bytes >= 1", name=op.f("ck_uploads_bytes")),
        sa.ForeignKeyConstraint(["uploaded_by"], ["users.id"], name=op.f("fk_uploads_uploaded_by")),
        sa.PrimaryKeyConstraint("sha256", name=op.f("pk_uploads")),
    )


def create_hooks() -> None:
    op.create_table(
        "hooks",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("owner_id", sa.Uuid(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("events", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("secret", sa.LargeBinary(), nullable=False),
        sa.Column("active", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("disabled_reason", sa.Text(), nullable=True),
        sa.Column("disabled_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_success_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=NOW, nullable=False),
        sa.Column("removed_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("cardinality(events) >= 1", name=op.f("ck_hooks_events")),
        sa.CheckConstraint(
            "NOT active OR (removed_at IS NULL AND disabled_at IS NULL)", name=op.f("ck_hooks_active")
        ),
        sa.CheckConstraint(
            "(disabled_at IS NULL) = (disabled_reason IS NULL)", name=op.f("ck_hooks_disabled")
        ),
        sa.ForeignKeyConstraint(["owner_id"], ["users.id"], name=op.f("fk_hooks_owner_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_hooks")),
    )
    op.create_index("ix_hooks_active", "hooks", ["owner_id"], postgresql_where=sa.text("active"))


def create_deliveries() -> None:
    op.create_table(
        "hook_deliveries",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("hook_id", sa.Uuid(), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("analyst_id", sa.Uuid(), nullable=True),
        sa.Column("facts", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("occurred_at", sa.DateTime(timezone=True), server_default=NOW, nullable=False),
        sa.Column("state", sa.Text(), server_default="pending", nullable=False),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("began_at", sa.DateTime(timezone=True), server_default=NOW, nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True), server_default=NOW, nullable=False),
        sa.Column("claim", sa.Uuid(), nullable=True),
        sa.Column("status", sa.Integer(), nullable=True),
        sa.Column("problem", sa.Text(), nullable=True),
        sa.Column("attempted_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "state IN ('pending','delivered','failed','dropped')", name=op.f("ck_hook_deliveries_state")
        ),
        sa.CheckConstraint("attempts >= 0", name=op.f("ck_hook_deliveries_attempts")),
        sa.ForeignKeyConstraint(["hook_id"], ["hooks.id"], name=op.f("fk_hook_deliveries_hook_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_hook_deliveries")),
    )
    op.create_index(
        "ix_hook_deliveries_due",
        "hook_deliveries",
        ["hook_id", "due_at"],
        postgresql_where=sa.text("state = 'pending'"),
    )
    op.create_index("ix_hook_deliveries_log", "hook_deliveries", ["hook_id", "occurred_at", "id"])


def downgrade() -> None:
    for name, (table, _, _) in TRIGGERS.items():
        op.execute(f"DROP TRIGGER {name} ON {table}")
    for function in DROPS:
        op.execute(f"DROP FUNCTION {function}")
    op.drop_table("hook_deliveries")
    op.drop_table("hooks")
    op.drop_table("uploads")
