"""The ledger, its accounts, jobs, people, datasets and models."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "outbox",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("subject", sa.Uuid(), nullable=False),
        sa.Column("attempt", sa.Integer(), server_default="0", nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.Column("sent_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "task IN ('generate','probe','check_dataset','check_model')", name=op.f("ck_outbox_task")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_outbox")),
    )
    op.create_index("ix_outbox_subject", "outbox", ["subject", "id"], unique=False)
    op.create_index(
        "ix_outbox_unsent", "outbox", ["id"], unique=False, postgresql_where=sa.text("sent_at IS NULL")
    )
    op.create_table(
        "probes",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("facts", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_probes")),
    )
    op.create_table(
        "users",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("password_hash", sa.Text(), nullable=True),
        sa.Column("roles", sa.ARRAY(sa.Text()), nullable=False),
        sa.Column("active", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.CheckConstraint(
            "roles <@ ARRAY['steward','analyst','auditor','administrator']", name=op.f("ck_users_known_roles")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_users")),
        sa.UniqueConstraint("name", name=op.f("uq_users_name")),
    )
    op.create_table(
        "api_tokens",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("token_sha256", sa.LargeBinary(), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_api_tokens_user_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_tokens")),
        sa.UniqueConstraint("token_sha256", name=op.f("uq_api_tokens_token_sha256")),
    )
    op.create_table(
        "datasets",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), server_default="", nullable=False),
        sa.Column("neighbours", sa.Text(), nullable=False),
        sa.Column("unit_column", sa.Text(), nullable=True),
        sa.Column("max_records_per_unit", sa.Integer(), nullable=False),
        sa.Column("public_size", sa.BigInteger(), nullable=True),
        sa.Column("label_column", sa.Text(), nullable=True),
        sa.Column("labels", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("text_template", sa.Text(), nullable=False),
        sa.Column("policy", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("created_by", sa.Uuid(), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.CheckConstraint("neighbours IN ('add-remove','replace-one')", name=op.f("ck_datasets_neighbours")),
        sa.CheckConstraint("max_records_per_unit >= 1", name=op.f("ck_datasets_bound")),
        sa.CheckConstraint("public_size IS NULL OR public_size >= 1", name=op.f("ck_datasets_public_size")),
        sa.CheckConstraint(
            "unit_column IS NOT NULL OR max_records_per_unit = 1", name=op.f("ck_datasets_record_bound")
        ),
        sa.ForeignKeyConstraint(["created_by"], ["users.id"], name=op.f("fk_datasets_created_by")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_datasets")),
        sa.UniqueConstraint("name", name=op.f("uq_datasets_name")),
    )
    op.create_table(
        "models",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("trained_on", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("facts", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("created_by", sa.Uuid(), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.CheckConstraint(
            "(state = 'ready') = (facts IS NOT NULL)", name=op.f("ck_models_facts_when_ready")
        ),
        sa.CheckConstraint("state IN ('checking','ready','invalid')", name=op.f("ck_models_state")),
        sa.ForeignKeyConstraint(["created_by"], ["users.id"], name=op.f("fk_models_created_by")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_models")),
        sa.UniqueConstraint("name", name=op.f("uq_models_name")),
    )
    op.create_table(
        "accounts",
        sa.Column("dataset_id", sa.Uuid(), nullable=False),
        sa.Column("epsilon", sa.Numeric(38, 0), nullable=True),
        sa.Column("delta", sa.Numeric(38, 0), nullable=True),
        sa.Column("renyi_share", sa.Text(), nullable=True),
        sa.Column("renyi_order", sa.Text(), nullable=True),
        sa.Column("renyi_limit", sa.Numeric(38, 0), server_default="0", nullable=False),
        sa.Column("renyi_spent", sa.Numeric(38, 0), server_default="0", nullable=False),
        sa.Column("renyi_reserved", sa.Numeric(38, 0), server_default="0", nullable=False),
        sa.Column("renyi_closed", sa.Integer(), server_default="0", nullable=False),
        sa.Column("gaussian_share", sa.Text(), nullable=True),
        sa.Column("gaussian_order", sa.Text(), nullable=True),
        sa.Column("gaussian_limit", sa.Numeric(38, 0), server_default="0", nullable=False),
        sa.Column("gaussian_spent", sa.Numeric(38, 0), server_default="0", nullable=False),
        sa.Column("gaussian_reserved", sa.Numeric(38, 0), server_default="0", nullable=False),
        sa.Column("gaussian_closed", sa.Integer(), server_default="0", nullable=False),
        sa.Column("renyi2_share", sa.Text(), nullable=True),
        sa.Column("renyi2_order", sa.Text(), nullable=True),
        sa.Column("renyi2_limit", sa.Numeric(38, 0), server_default="0", nullable=False),
        sa.Column("renyi2_spent", sa.Numeric(38, 0), server_default="0", nullable=False),
        sa.Column("renyi2_reserved", sa.Numeric(38, 0), server_default="0", nullable=False),
        sa.Column("renyi2_closed", sa.Integer(), server_default="0", nullable=False),
        sa.Column("basic_share", sa.Text(), nullable=True),
        sa.Column("basic_order", sa.Text(), nullable=True),
        sa.Column("basic_limit", sa.Numeric(38, 0), server_default="0", nullable=False),
        sa.Column("basic_spent", sa.Numeric(38, 0), server_default="0", nullable=False),
        sa.Column("basic_reserved", sa.Numeric(38, 0), server_default="0", nullable=False),
        sa.Column("basic_closed", sa.Integer(), server_default="0", nullable=False),
        sa.Column("basic_delta_limit", sa.Numeric(38, 0), server_default="0", nullable=False),
        sa.Column("basic_delta_spent", sa.Numeric(38, 0), server_default="0", nullable=False),
        sa.Column("basic_delta_reserved", sa.Numeric(38, 0), server_default="0", nullable=False),
        sa.Column("chain_seq", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("chain_head", sa.Text(), nullable=False),
        sa.CheckConstraint(
            "(renyi_closed = 0 AND renyi_spent + renyi_reserved <= renyi_limit) OR (gaussian_closed = 0 AND gaussian_spent + gaussian_reserved <= gaussian_limit) OR (renyi2_closed = 0 AND renyi2_spent + renyi2_reserved <= renyi2_limit) OR (basic_closed = 0 AND basic_spent + basic_reserved <= basic_limit AND basic_delta_spent + basic_delta_reserved <= basic_delta_limit)",
            name=op.f("ck_accounts_a_filter_holds"),
        ),
        sa.CheckConstraint(
            "renyi_limit >= 0 AND renyi_spent >= 0 AND renyi_reserved >= 0 AND renyi_closed >= 0 AND gaussian_limit >= 0 AND gaussian_spent >= 0 AND gaussian_reserved >= 0 AND gaussian_closed >= 0 AND renyi2_limit >= 0 AND renyi2_spent >= 0 AND renyi2_reserved >= 0 AND renyi2_closed >= 0 AND basic_limit >= 0 AND basic_spent >= 0 AND basic_reserved >= 0 AND basic_closed >= 0 AND basic_delta_limit >= 0 AND basic_delta_spent >= 0 AND basic_delta_reserved >= 0",
            name=op.f("ck_accounts_not_negative"),
        ),
        sa.ForeignKeyConstraint(["dataset_id"], ["datasets.id"], name=op.f("fk_accounts_dataset_id")),
        sa.PrimaryKeyConstraint("dataset_id", name=op.f("pk_accounts")),
    )
    op.create_table(
        "dataset_versions",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("dataset_id", sa.Uuid(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("uri", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("created_by", sa.Uuid(), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.CheckConstraint("state IN ('checking','ready','invalid')", name=op.f("ck_dataset_versions_state")),
        sa.ForeignKeyConstraint(["created_by"], ["users.id"], name=op.f("fk_dataset_versions_created_by")),
        sa.ForeignKeyConstraint(["dataset_id"], ["datasets.id"], name=op.f("fk_dataset_versions_dataset_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_dataset_versions")),
        sa.UniqueConstraint("dataset_id", "number", name=op.f("uq_dataset_versions_dataset_id_number")),
    )
    op.create_table(
        "jobs",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("dataset_id", sa.Uuid(), nullable=False),
        sa.Column("version_id", sa.Uuid(), nullable=False),
        sa.Column("model_id", sa.Uuid(), nullable=False),
        sa.Column("analyst_id", sa.Uuid(), nullable=False),
        sa.Column("mechanism", sa.Text(), nullable=False),
        sa.Column("parameters", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("terms", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("event", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("epsilon_alone", sa.Double(), nullable=False),
        sa.Column("breakdown", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("purpose", sa.Text(), nullable=False),
        sa.Column("idempotency_key", sa.Text(), nullable=True),
        sa.Column("request_sha256", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("refusal", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("decided_by", sa.Uuid(), nullable=True),
        sa.Column("decision_reason", sa.Text(), nullable=True),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.Column("decided_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("queued_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("attempt", sa.Integer(), server_default="0", nullable=False),
        sa.Column("lease_token", sa.Uuid(), nullable=True),
        sa.Column("lease_expires", sa.DateTime(timezone=True), nullable=True),
        sa.Column("worker", sa.Text(), nullable=True),
        sa.Column("reading_began_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("cancel_requested", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("progress_done", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("progress_total", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("output_uri", sa.Text(), nullable=True),
        sa.Column("output_sha256", sa.Text(), nullable=True),
        sa.Column("failure", sa.Text(), nullable=True),
        sa.CheckConstraint("(state = 'refused') = (refusal IS NOT NULL)", name=op.f("ck_jobs_refusal")),
        sa.CheckConstraint("(state = 'succeeded') = (output_uri IS NOT NULL)", name=op.f("ck_jobs_output")),
        sa.CheckConstraint(
            "(state IN ('running','settling')) = (lease_token IS NOT NULL)", name=op.f("ck_jobs_lease")
        ),
        sa.CheckConstraint(
            "state IN ('submitted','awaiting_approval','refused','expired','queued','running','settling','succeeded','failed','cancelled')",
            name=op.f("ck_jobs_state"),
        ),
        sa.ForeignKeyConstraint(["analyst_id"], ["users.id"], name=op.f("fk_jobs_analyst_id")),
        sa.ForeignKeyConstraint(["dataset_id"], ["datasets.id"], name=op.f("fk_jobs_dataset_id")),
        sa.ForeignKeyConstraint(["decided_by"], ["users.id"], name=op.f("fk_jobs_decided_by")),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name=op.f("fk_jobs_model_id")),
        sa.ForeignKeyConstraint(["version_id"], ["dataset_versions.id"], name=op.f("fk_jobs_version_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
        sa.UniqueConstraint("analyst_id", "idempotency_key", name=op.f("uq_jobs_analyst_id_idempotency_key")),
    )
    op.create_index(
        op.f("ix_jobs_analyst_id_jobs_created_at"), "jobs", ["analyst_id", "created_at"], unique=False
    )
    op.create_index(
        op.f("ix_jobs_dataset_id_jobs_created_at"), "jobs", ["dataset_id", "created_at"], unique=False
    )
    op.create_index(
        "ix_jobs_live",
        "jobs",
        ["state"],
        unique=False,
        postgresql_where=sa.text("state IN ('queued','running','settling')"),
    )
    op.create_table(
        "entries",
        sa.Column("dataset_id", sa.Uuid(), nullable=False),
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("job_id", sa.Uuid(), nullable=True),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("previous", sa.Text(), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.CheckConstraint("(kind = 'ALLOW') = (job_id IS NULL)", name=op.f("ck_entries_job")),
        sa.CheckConstraint("kind IN ('ALLOW','RESERVE','COMMIT','VOID')", name=op.f("ck_entries_kind")),
        sa.CheckConstraint("seq >= 1", name=op.f("ck_entries_seq")),
        sa.ForeignKeyConstraint(["dataset_id"], ["datasets.id"], name=op.f("fk_entries_dataset_id")),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_entries_job_id")),
        sa.PrimaryKeyConstraint("dataset_id", "seq", name=op.f("pk_entries")),
        sa.UniqueConstraint("dataset_id", "previous", name=op.f("uq_entries_dataset_id_previous")),
    )
    op.create_index(
        "uq_entries_reserved_once",
        "entries",
        ["job_id"],
        unique=True,
        postgresql_where=sa.text("kind = 'RESERVE'"),
    )
    op.create_index(
        "uq_entries_resolved_once",
        "entries",
        ["job_id"],
        unique=True,
        postgresql_where=sa.text("kind IN ('COMMIT','VOID')"),
    )
    forbid_changes()


def forbid_changes() -> None:
    """Entries are append-only for everybody, the owner included: rows by one trigger, TRUNCATE by another."""
    op.execute(
        """
        CREATE FUNCTION entries_are_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            RAISE EXCEPTION 'ledger entries are append-only: % refused', TG_OP
                USING ERRCODE = 'restrict_violation';
        END $$
        """
    )
    op.execute(
        "CREATE TRIGGER entries_rows BEFORE UPDATE OR DELETE ON entries "
        "FOR EACH ROW EXECUTE FUNCTION entries_are_append_only()"
    )
    op.execute(
        "CREATE TRIGGER entries_truncate BEFORE TRUNCATE ON entries "
        "FOR EACH STATEMENT EXECUTE FUNCTION entries_are_append_only()"
    )


def downgrade() -> None:
    op.drop_index(
        "uq_entries_resolved_once",
        table_name="entries",
        postgresql_where=sa.text("kind IN ('COMMIT','VOID')"),
    )
    op.drop_index(
        "uq_entries_reserved_once", table_name="entries", postgresql_where=sa.text("kind = 'RESERVE'")
    )
    op.drop_table("entries")
    op.drop_index(
        "ix_jobs_live",
        table_name="jobs",
        postgresql_where=sa.text("state IN ('queued','running','settling')"),
    )
    op.drop_index(op.f("ix_jobs_dataset_id_jobs_created_at"), table_name="jobs")
    op.drop_index(op.f("ix_jobs_analyst_id_jobs_created_at"), table_name="jobs")
    op.drop_table("jobs")
    op.drop_table("dataset_versions")
    op.drop_table("accounts")
    op.drop_table("models")
    op.drop_table("datasets")
    op.drop_table("api_tokens")
    op.drop_table("users")
    op.drop_table("probes")
    op.drop_index("ix_outbox_unsent", table_name="outbox", postgresql_where=sa.text("sent_at IS NULL"))
    op.drop_index("ix_outbox_subject", table_name="outbox")
    op.drop_table("outbox")
    op.execute("DROP FUNCTION entries_are_append_only()")
