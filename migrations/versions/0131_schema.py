"""The whole schema, as SQL that never changes: a file a table, with its indexes, functions and triggers.

The first revision. A later one changes the schema, and never these files.
"""

from pathlib import Path

from alembic import op

revision = "0131"
down_revision = None
branch_labels = None
depends_on = None

SCHEMA = Path(__file__).resolve().parent.parent / "schema"

#: Each refers to those before it.
FILES = (
    "functions",
    "fingerprint_key",
    "key_checks",
    "ledger_log_marks",
    "live_workers",
    "logout_tokens",
    "maintenance",
    "outbox",
    "private_places",
    "probes",
    "process_roles",
    "sign_in_limits",
    "signing_keys",
    "stopped_workers",
    "users",
    "activity",
    "api_tokens",
    "corpora",
    "datasets",
    "external_accounts",
    "hooks",
    "idempotency_keys",
    "models",
    "passkey_challenges",
    "passkeys",
    "sessions",
    "sign_ins",
    "uploads",
    "accounts",
    "checkpoint_requests",
    "checkpoints",
    "corpus_fingerprints",
    "dataset_versions",
    "fingerprints",
    "hook_deliveries",
    "spending",
    "spending_marks",
    "standings",
    "usage",
    "jobs",
    "artifacts",
    "comments",
    "decisions",
    "entries",
    "job_keys",
    "parts",
    "realized_ex_post",
    "refused_parts",
    "kept_draws",
)


def upgrade() -> None:
    connection = op.get_bind()
    # Functions name tables of later files in their bodies.
    connection.exec_driver_sql("SET LOCAL check_function_bodies = off")
    for name in FILES:
        statements = (SCHEMA / f"{name}.sql").read_text("utf-8")
        # As it stands: neither ":name" nor "%" in it is a parameter.
        connection.exec_driver_sql(statements, execution_options={"no_parameters": True})


def downgrade() -> None:
    raise NotImplementedError("an older schema may not have room for what was spent")
