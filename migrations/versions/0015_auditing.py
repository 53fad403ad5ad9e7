"""What an auditor looks things up by: indexes on entries, jobs and checkpoints, and kept balances."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

INDEXES = {
    "ix_entries_at": ("entries", ["at", "dataset_id", "seq", "kind"], None),
    "ix_entries_actor": ("entries", ["actor", "at", "dataset_id", "seq", "kind"], None),
    "ix_entries_job_id": ("entries", ["job_id", "seq"], None),
    "ix_entries_rare": (
        "entries",
        ["kind", "at", "dataset_id", "seq"],
        "kind IN ('ALLOW','VOID','REVERSAL')",
    ),
    "ix_checkpoints_at": ("checkpoints", ["at", "dataset_id", "seq", "key_id"], None),
    "ix_activity_at": ("activity", ["at", "id"], None),
    "ix_sign_ins_at": ("sign_ins", ["at", "id"], None),
    "ix_jobs_mechanism": ("jobs", ["mechanism"], None),
    "ix_jobs_created_at": ("jobs", ["created_at", "id"], None),
    "ix_jobs_decided_at": ("jobs", ["decided_at", "id", "dataset_id"], "decided_by IS NOT NULL"),
    "ix_jobs_decided_by": ("jobs", ["decided_by", "decided_at"], "decided_by IS NOT NULL"),
    "ix_jobs_refused": ("jobs", ["finished_at", "id", "dataset_id", "analyst_id"], "state = 'refused'"),
}

#: What was registered before there was a log of it: (action, kind, table).
REGISTERED = (
    ("dataset registered", "dataset", "datasets"),
    ("model registered", "model", "models"),
    ("corpus registered", "corpus", "corpora"),
)

#: A row of `standings` is kept when an account passes a multiple of so many entries.
KEPT_EVERY = 256


def upgrade() -> None:
    for name, (table, columns, where) in INDEXES.items():
        op.create_index(name, table, columns, postgresql_where=None if where is None else sa.text(where))
    log_registrations()
    op.create_table(
        "standings",
        sa.Column("dataset_id", sa.Uuid(), nullable=False),
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("account", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.ForeignKeyConstraint(["dataset_id"], ["datasets.id"], name=op.f("fk_standings_dataset_id")),
        sa.PrimaryKeyConstraint("dataset_id", "seq", name=op.f("pk_standings")),
    )
    # As the owner: the application may not write what its pages then show as what stood.
    op.execute(
        """
        CREATE FUNCTION keep_standing() RETURNS trigger LANGUAGE plpgsql
        SECURITY DEFINER SET search_path = public, pg_temp AS $$
        BEGIN
            INSERT INTO standings VALUES (NEW.dataset_id, NEW.chain_seq, to_jsonb(NEW)) ON CONFLICT DO NOTHING;
            RETURN NULL;
        END $$
        """
    )
    op.execute(
        "CREATE TRIGGER accounts_standing AFTER UPDATE ON accounts FOR EACH ROW "
        f"WHEN (NEW.chain_seq / {KEPT_EVERY} > OLD.chain_seq / {KEPT_EVERY}) EXECUTE FUNCTION keep_standing()"
    )
    op.execute(
        "CREATE TRIGGER standings_rows BEFORE UPDATE OR DELETE ON standings "
        "FOR EACH ROW EXECUTE FUNCTION rows_are_append_only()"
    )
    op.execute(
        "CREATE TRIGGER standings_truncate BEFORE TRUNCATE ON standings "
        "FOR EACH STATEMENT EXECUTE FUNCTION rows_are_append_only()"
    )


def log_registrations() -> None:
    """Who registered what, from the rows that tell, where the log does not."""
    found = " UNION ALL ".join(
        f"SELECT t.created_at, t.created_by, '{action}' AS action, '{kind}' AS kind, t.name FROM {table} t "  # noqa: S608
        f"WHERE NOT EXISTS (SELECT FROM activity a WHERE a.action = '{action}' AND a.object_kind = '{kind}' "
        "AND a.object_id = t.name)"
        for action, kind, table in REGISTERED
    )
    op.execute(
        "INSERT INTO activity (at, actor_id, actor_name, action, object_kind, object_id, detail) "  # noqa: S608
        f"SELECT f.created_at, f.created_by, u.name, f.action, f.kind, f.name, '{{}}' FROM ({found}) f "
        "JOIN users u ON u.id = f.created_by ORDER BY f.created_at"
    )


def downgrade() -> None:
    op.execute("DROP TRIGGER accounts_standing ON accounts")
    op.execute("DROP FUNCTION keep_standing()")
    op.drop_table("standings")
    for name, (table, _, _) in INDEXES.items():
        op.drop_index(name, table)
