"""The tables. Only the writers (ledger, registry, leases) and reports import this.

Plain SQLAlchemy Core: every statement that touches a balance is visible where it is made. Amounts are
NUMERIC without decimals and arrive as Python integers, never as floats.
"""

from decimal import Decimal
from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Date,
    DateTime,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Numeric,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
    Uuid,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from accountant.core.filters import Kind
from accountant.core.states import JOB_STATES

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(column_0_N_label)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


class Units(TypeDecorator[int]):
    """An exact integer amount of up to 38 digits."""

    impl = Numeric(38, 0)
    cache_ok = True

    def process_bind_param(self, value: int | None, dialect: Any) -> Decimal | None:  # noqa: ARG002
        if isinstance(value, float):
            raise TypeError("a balance is never a float")
        return None if value is None else Decimal(value)

    def process_result_value(self, value: Decimal | None, dialect: Any) -> int | None:  # noqa: ARG002
        return None if value is None else int(value)


def _moment(name: str, *, required: bool = False, default: bool = False) -> Column[Any]:
    server_default = func.clock_timestamp() if default else None
    nullable = not (required or default)
    return Column(name, DateTime(timezone=True), nullable=nullable, server_default=server_default)


def _key() -> Column[Any]:
    return Column("id", Uuid, primary_key=True)


def _count(name: str) -> Column[Any]:
    return Column(name, Integer, nullable=False, server_default="0")


users = Table(
    "users",
    metadata,
    _key(),
    Column("name", Text, nullable=False, unique=True),
    Column("password_hash", Text),
    Column("roles", ARRAY(Text), nullable=False),
    Column("active", Boolean, nullable=False, server_default=text("true")),
    _moment("created_at", default=True),
    _moment("password_expires"),  # of a one-time password: it opens nothing but the page that replaces it
    CheckConstraint("roles <@ ARRAY['steward','analyst','auditor','administrator']", name="known_roles"),
)

api_tokens = Table(
    "api_tokens",
    metadata,
    _key(),
    Column("user_id", ForeignKey("users.id"), nullable=False),
    Column("name", Text, nullable=False),
    Column("token_sha256", LargeBinary, nullable=False, unique=True),
    _moment("created_at", default=True),
    _moment("expires_at"),
    _moment("revoked_at"),
    Column("scopes", ARRAY(Text), nullable=False),
    Column("by_sign_in", Boolean, nullable=False, server_default=text("false")),  # ends with the sessions
    _moment("last_used_at"),
    Index("ix_api_tokens_user_id", "user_id", "created_at"),
    CheckConstraint(
        "scopes <@ ARRAY['read','jobs:submit','budget:approve','data:manage','admin'] "
        "AND cardinality(scopes) > 0",
        name="known_scopes",
    ),
)

# Who signs in through a provider: named by issuer and subject alone.
external_accounts = Table(
    "external_accounts",
    metadata,
    Column("issuer", Text, primary_key=True),
    Column("subject", Text, primary_key=True),
    Column("user_id", ForeignKey("users.id"), nullable=False, unique=True),
    _moment("created_at", default=True),
)

# Sessions of browsers. `seen_at` is moved at most once a minute.
sessions = Table(
    "sessions",
    metadata,
    _key(),
    Column("token_sha256", LargeBinary, nullable=False, unique=True),
    Column("user_id", ForeignKey("users.id"), nullable=False),
    Column("method", Text, nullable=False),
    Column("address", Text, nullable=False),
    Column("user_agent", Text, nullable=False),
    _moment("created_at", default=True),
    _moment("seen_at", default=True),
    _moment("ended_at"),
    Index("ix_sessions_open", "user_id", postgresql_where=text("ended_at IS NULL")),
)

# Failures to sign in, by the name that was tried and by address: whether the name is known plays no part.
sign_in_limits = Table(
    "sign_in_limits",
    metadata,
    Column("key", Text, primary_key=True),
    _count("failures"),
    _moment("last_at", required=True),
    _moment("locked_until"),
    Column("refusal_logged", Boolean, nullable=False, server_default=text("false")),
    Index("ix_sign_in_limits_last_at", "last_at"),
    CheckConstraint("failures >= 0", name="failures"),
)

# Every try to sign in. Append-only.
sign_ins = Table(
    "sign_ins",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    _moment("at", default=True),
    Column("name", Text),  # as it was tried, where it could be an account's; people type passwords here
    Column("user_id", ForeignKey("users.id")),
    Column("method", Text, nullable=False),
    Column("address", Text, nullable=False),
    Column("user_agent", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Index("ix_sign_ins_at", "at", "id"),
    Index("ix_sign_ins_name_id", "name", "id"),
    Index("ix_sign_ins_outcome_id", "outcome", "id"),
    CheckConstraint("method IN ('page','api','provider')", name="method"),
    CheckConstraint(
        "outcome IN ('signed in','wrong password','unknown name','password expired',"
        "'password to be changed','password confirmed','too many failures',"
        "'no role','account closed','provider refused')",
        name="outcome",
    ),
)

#: The dataset that an act was on: as the database prints its index, line for line, or Alembic finds another.
ACTIVITY_DATASET = text(
    "(\nCASE\nWHEN object_kind = 'dataset' THEN object_id\nELSE detail ->> 'dataset'\nEND)"
)

# Who did what, beside what the ledger's entries and the jobs tell. Append-only.
activity = Table(
    "activity",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    _moment("at", default=True),
    Column("actor_id", ForeignKey("users.id")),  # NULL: nobody who was signed in
    Column("actor_name", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("object_kind", Text, nullable=False),
    Column("object_id", Text, nullable=False),
    Column("detail", JSONB, nullable=False),  # public facts
    Index("ix_activity_at", "at", "id"),
    Index("ix_activity_actor_name_id", "actor_name", "id"),
    Index("ix_activity_action_id", "action", "id"),
    Index("ix_activity_object", "object_kind", "object_id", "id"),
    Index("ix_activity_dataset", ACTIVITY_DATASET, "at", "id"),
)

models = Table(
    "models",
    metadata,
    _key(),
    Column("name", Text, nullable=False, unique=True),
    Column("kind", Text, nullable=False, server_default="language"),
    Column("path", Text, nullable=False),
    Column("trained_on", Text, nullable=False),  # the steward's declaration
    Column("state", Text, nullable=False),
    Column("error", Text),
    Column("facts", JSONB(none_as_null=True)),
    Column("created_by", ForeignKey("users.id"), nullable=False),
    _moment("created_at", default=True),
    CheckConstraint("state IN ('checking','ready','invalid')", name="state"),
    CheckConstraint("(state = 'ready') = (facts IS NOT NULL)", name="facts_when_ready"),
    CheckConstraint("kind IN ('language','embedding')", name="kind"),
)

# Texts that a steward vouches for as public, or as given for this with their writers' consent.
corpora = Table(
    "corpora",
    metadata,
    _key(),
    Column("name", Text, nullable=False, unique=True),
    Column("uri", Text, nullable=False),
    Column("text_template", Text, nullable=False),
    Column("label_column", Text),
    Column("declaration", Text, nullable=False),
    Column("statement", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("error", Text),
    Column("facts", JSONB(none_as_null=True)),
    Column("created_by", ForeignKey("users.id"), nullable=False),
    _moment("created_at", default=True),
    CheckConstraint("declaration IN ('public','consented')", name="declaration"),
    CheckConstraint("state IN ('checking','ready','invalid')", name="state"),
    CheckConstraint("(state = 'ready') = (facts IS NOT NULL)", name="facts_when_ready"),
)

datasets = Table(
    "datasets",
    metadata,
    _key(),
    Column("name", Text, nullable=False, unique=True),
    Column("description", Text, nullable=False, server_default=""),
    Column("neighbours", Text, nullable=False),
    Column("unit_column", Text),  # as first declared; NULL: the privacy unit is a record, in every version
    Column("max_records_per_unit", Integer, nullable=False),
    Column("public_size", BigInteger),
    Column("labels", JSONB, nullable=False),
    Column("policy", JSONB, nullable=False),
    Column("created_by", ForeignKey("users.id"), nullable=False),
    _moment("created_at", default=True),
    CheckConstraint("neighbours IN ('add-remove','replace-one')", name="neighbours"),
    CheckConstraint("max_records_per_unit >= 1", name="bound"),
    CheckConstraint("unit_column IS NOT NULL OR max_records_per_unit = 1", name="record_bound"),
    CheckConstraint("public_size IS NULL OR public_size >= 1", name="public_size"),
)

dataset_versions = Table(
    "dataset_versions",
    metadata,
    _key(),
    Column("dataset_id", ForeignKey("datasets.id"), nullable=False),
    Column("number", Integer, nullable=False),
    Column("uri", Text, nullable=False),
    Column("text_template", Text, nullable=False),
    Column("unit_column", Text),
    Column("label_column", Text),
    Column("state", Text, nullable=False),
    Column("error", Text),  # shown to stewards only
    Column("created_by", ForeignKey("users.id"), nullable=False),
    _moment("created_at", default=True),
    UniqueConstraint("dataset_id", "number"),
    CheckConstraint("state IN ('checking','ready','invalid')", name="state"),
)

# Keyed hashes of the units of every version that was found right, and of the records of units by column.
# A unit has one account: the partial index says so, and `identity` compares units with records under a lock.
fingerprints = Table(
    "fingerprints",
    metadata,
    Column("fingerprint", LargeBinary, nullable=False, primary_key=True),
    Column("dataset_id", ForeignKey("datasets.id"), nullable=False, primary_key=True),
    Column("is_unit", Boolean, nullable=False),
    Index("uq_fingerprints_unit", "fingerprint", unique=True, postgresql_where=text("is_unit")),
    CheckConstraint("octet_length(fingerprint) = 16", name="length"),
)

# One row: what the key of the fingerprints makes of a public text.
fingerprint_key = Table(
    "fingerprint_key",
    metadata,
    Column("single", Boolean, primary_key=True, server_default=text("true")),
    Column("proof", LargeBinary, nullable=False),
    CheckConstraint("single", name="one_row"),
)


def _filter_columns(kind: Kind) -> list[Column[Any]]:
    return [
        Column(f"{kind}_share", Text),
        Column(f"{kind}_order", Text),
        Column(f"{kind}_limit", Units, nullable=False, server_default="0"),
        Column(f"{kind}_spent", Units, nullable=False, server_default="0"),
        Column(f"{kind}_reserved", Units, nullable=False, server_default="0"),
        Column(f"{kind}_closed", Integer, nullable=False, server_default="0"),
    ]


def _holds(kind: Kind) -> str:
    holds = f"{kind}_closed = 0 AND {kind}_spent + {kind}_reserved <= {kind}_limit"
    if kind is Kind.BASIC:
        holds += " AND basic_delta_spent + basic_delta_reserved <= basic_delta_limit"
    return f"({holds})"


_AMOUNTS = [f"{kind}_{part}" for kind in Kind for part in ("limit", "spent", "reserved", "closed")]
_AMOUNTS += ["basic_delta_limit", "basic_delta_spent", "basic_delta_reserved"]

_OTHER_AMOUNTS = [
    f"{name}_{part}" for name in ("ex_post", "secret") for part in ("limit", "spent", "reserved")
]
_COUNTS = ["raises_after_release", "job_count", "ex_post_job_count", "secret_job_count", "failure_count"]
_NOT_NEGATIVE = [
    "basic_step_delta",
    *_OTHER_AMOUNTS,
    "secret_jobs",
    "largest_epsilon",
    "largest_delta",
    *_COUNTS,
]


def _units(name: str) -> Column[Any]:
    return Column(name, Units, nullable=False, server_default="0")


# One row per dataset: the row that is locked, with its cached balances and the head of its chain.
accounts = Table(
    "accounts",
    metadata,
    Column("dataset_id", ForeignKey("datasets.id"), primary_key=True),
    Column("epsilon", Units),
    Column("delta", Units),
    *[column for kind in Kind for column in _filter_columns(kind)],
    Column("basic_delta_limit", Units, nullable=False, server_default="0"),
    Column("basic_delta_spent", Units, nullable=False, server_default="0"),
    Column("basic_delta_reserved", Units, nullable=False, server_default="0"),
    _units("basic_step_delta"),
    # The other two currencies; `secret`: terms, kind, neighbours and order of the secret account.
    *[_units(name) for name in _OTHER_AMOUNTS],
    Column("ex_post_settlement", Text, nullable=False, server_default="planned"),
    Column("secret", JSONB(none_as_null=True)),
    _count("secret_jobs"),
    # What the statements of a dataset mention beyond balances (core.currencies.History).
    _units("largest_epsilon"),
    _units("largest_delta"),
    Column("largest_bound", Double, nullable=False, server_default="0"),
    *[_count(name) for name in _COUNTS],
    # A correction raised a charge beyond an allowance: then alone may the limits below be passed.
    Column("overdrawn", Boolean, nullable=False, server_default=text("false")),
    Column("chain_seq", BigInteger, nullable=False, server_default="0"),
    Column("chain_head", Text, nullable=False),
    CheckConstraint(" AND ".join(f"{name} >= 0" for name in _AMOUNTS), name="not_negative"),
    CheckConstraint(" AND ".join(f"{name} >= 0" for name in _NOT_NEGATIVE), name="others_not_negative"),
    CheckConstraint(" OR ".join(["overdrawn", *map(_holds, Kind)]), name="a_filter_holds"),
    CheckConstraint("ex_post_settlement IN ('planned','realized')", name="ex_post_settlement"),
    # Realized ex-post costs may pass the allowance; planned caps never do.
    CheckConstraint(
        "overdrawn OR ex_post_settlement = 'realized' OR ex_post_spent + ex_post_reserved <= ex_post_limit",
        name="ex_post_fits",
    ),
    CheckConstraint("overdrawn OR secret_spent + secret_reserved <= secret_limit", name="secret_fits"),
    CheckConstraint("secret IS NOT NULL OR (secret_limit = 0 AND secret_jobs = 0)", name="no_secret"),
    CheckConstraint("secret IS NULL OR secret ->> 'kind' IN ('one','many')", name="secret_kind"),
    CheckConstraint(
        "overdrawn OR secret IS NULL OR secret ->> 'kind' <> 'one' OR secret_jobs <= 1",
        name="one_secret_job",
    ),
)

jobs = Table(
    "jobs",
    metadata,
    _key(),
    Column("dataset_id", ForeignKey("datasets.id"), nullable=False),
    Column("version_id", ForeignKey("dataset_versions.id"), nullable=False),
    Column("model_id", ForeignKey("models.id")),  # NULL: the mechanism uses none
    Column("analyst_id", ForeignKey("users.id"), nullable=False),
    Column("mechanism", Text, nullable=False),
    Column("parameters", JSONB, nullable=False),
    Column("terms", JSONB, nullable=False),
    Column("resources", JSONB, nullable=False, server_default=text("'{}'")),  # public things, with hashes
    Column("event", JSONB(none_as_null=True)),  # NULL: the price has no (epsilon, delta) part
    Column("epsilon_alone", Double),
    Column("breakdown", JSONB, nullable=False),
    Column("purpose", Text, nullable=False),
    Column("project", Text),  # a public name; caps may count by it
    Column("idempotency_key", Text),
    Column("request_sha256", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("refusal", JSONB(none_as_null=True)),
    Column("decided_by", ForeignKey("users.id")),
    Column("decision_reason", Text),
    _moment("created_at", default=True),
    _moment("approval_expires"),
    _moment("decided_at"),
    _moment("queued_at"),
    _moment("started_at"),
    _moment("finished_at"),
    Column("attempt", Integer, nullable=False, server_default="0"),  # the most that any part has had
    _moment("reading_began_at"),
    Column("cancel_requested", Boolean, nullable=False, server_default=text("false")),
    Column("output_uri", Text),
    Column("output_sha256", Text),
    Column("failure", Text),
    Column("source_job_id", ForeignKey("jobs.id")),  # the job whose artifacts it reads instead of records
    UniqueConstraint("analyst_id", "idempotency_key"),
    Index(None, "dataset_id", "created_at"),
    Index(None, "analyst_id", "created_at"),
    Index("ix_jobs_state", "state", "created_at"),
    Index("ix_jobs_mechanism", "mechanism", "created_at"),
    Index("ix_jobs_created_at", "created_at", "id"),
    Index(
        "ix_jobs_decided_at",
        "decided_at",
        "id",
        "dataset_id",
        postgresql_where=text("decided_by IS NOT NULL"),
    ),
    Index("ix_jobs_decided_by", "decided_by", "decided_at", postgresql_where=text("decided_by IS NOT NULL")),
    Index(
        "ix_jobs_refused",
        *("finished_at", "id", "dataset_id", "analyst_id"),
        postgresql_where=text("state = 'refused'"),
    ),
    Index("ix_jobs_live", "state", postgresql_where=text("state IN ('queued','running','settling')")),
    Index(
        "ix_jobs_approval_expires",
        "approval_expires",
        postgresql_where=text("state = 'awaiting_approval'"),
    ),
    CheckConstraint("state IN (" + ",".join(f"'{s}'" for s in JOB_STATES) + ")", name="state"),
    CheckConstraint("(event IS NULL) = (epsilon_alone IS NULL)", name="event"),
    CheckConstraint("(state = 'refused') = (refusal IS NOT NULL)", name="refusal"),
    CheckConstraint("(state = 'succeeded') = (output_uri IS NOT NULL)", name="output"),
    CheckConstraint("source_job_id IS NULL OR reading_began_at IS NULL", name="reads_no_records"),
)

# The work of a job: one or more parts, each of them claimed, run and lost on its own. How many is public.
parts = Table(
    "parts",
    metadata,
    Column("job_id", ForeignKey("jobs.id"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("state", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("lease_token", Uuid),
    _moment("lease_expires"),
    Column("worker", Text),
    Column("progress_done", BigInteger, nullable=False, server_default="0"),
    Column("progress_total", BigInteger, nullable=False, server_default="0"),  # of the whole job
    # What a part that is done leaves for the settlement. The figures may depend on the data, so they are
    # shown to nobody and taken away when the job ends.
    Column("staged_uri", Text),
    Column("staged_sha256", Text),
    Column("realized", JSONB(none_as_null=True)),
    Column("realized_ex_post", Units),
    Column("ex_post_curve", JSONB(none_as_null=True)),
    Index("ix_parts_live", "state", postgresql_where=text("state IN ('queued','running')")),
    CheckConstraint("number >= 0", name="number"),
    CheckConstraint("state IN ('queued','running','done','stopped')", name="state"),
    CheckConstraint("(state = 'running') = (lease_token IS NOT NULL)", name="lease"),
    CheckConstraint("(lease_token IS NULL) = (lease_expires IS NULL)", name="expiry"),
)

# What ex-post jobs really cost: it depends on the data. Stewards and auditors read it (reports.ex_post);
# nothing that an analyst can reach may.
realized_ex_post = Table(
    "realized_ex_post",
    metadata,
    Column("job_id", ForeignKey("jobs.id"), primary_key=True),
    Column("amount", Units, nullable=False),
    Column("curve", JSONB(none_as_null=True)),  # core.cost_curves
    CheckConstraint("amount >= 0", name="not_negative"),
)

#: Kinds that are few beside the reservations and what settles them: an index of their own finds them.
RARE_KINDS = ("ALLOW", "VOID", "REVERSAL")

# The append-only ledger. Triggers in the migration forbid UPDATE, DELETE and TRUNCATE.
entries = Table(
    "entries",
    metadata,
    Column("dataset_id", ForeignKey("datasets.id"), nullable=False, primary_key=True),
    Column("seq", BigInteger, nullable=False, primary_key=True, autoincrement=False),
    Column("kind", Text, nullable=False),
    _moment("at", required=True),
    Column("actor", Text, nullable=False),
    Column("job_id", Uuid),
    Column("document", Text, nullable=False),  # the canonical bytes that are hashed
    Column("previous", Text, nullable=False),
    Column("hash", Text, nullable=False),
    UniqueConstraint("dataset_id", "previous"),
    ForeignKeyConstraint(["job_id"], ["jobs.id"]),
    Index("uq_entries_reserved_once", "job_id", unique=True, postgresql_where=text("kind = 'RESERVE'")),
    Index(
        "uq_entries_resolved_once",
        "job_id",
        unique=True,
        postgresql_where=text("kind IN ('COMMIT','VOID')"),
    ),
    # What an auditor looks for: the newest anywhere, one person's, one job's, and the kinds that are few.
    # The last columns are there to be filtered by without a look at the rows.
    Index("ix_entries_at", "at", "dataset_id", "seq", "kind"),
    Index("ix_entries_actor", "actor", "at", "dataset_id", "seq", "kind"),
    Index("ix_entries_job_id", "job_id", "seq"),
    Index(
        "ix_entries_rare",
        "kind",
        "at",
        "dataset_id",
        "seq",
        postgresql_where=text("kind IN ('ALLOW','VOID','REVERSAL')"),
    ),
    Index("ix_entries_allow", "dataset_id", "seq", postgresql_where=text("kind = 'ALLOW'")),
    CheckConstraint("kind IN ('ALLOW','RESERVE','COMMIT','VOID','REVERSAL')", name="kind"),
    CheckConstraint("(kind = 'ALLOW') = (job_id IS NULL)", name="job"),
    CheckConstraint("seq >= 1", name="seq"),
)

# An account's row as it stood after every 256th entry or so, kept by a trigger: the balances after any
# entry are a short replay from there. Append-only; the application may read it alone.
standings = Table(
    "standings",
    metadata,
    Column("dataset_id", ForeignKey("datasets.id"), nullable=False, primary_key=True),
    Column("seq", BigInteger, nullable=False, primary_key=True, autoincrement=False),
    Column("account", JSONB, nullable=False),
)

# Signing keys, each introduced by the one before it. Append-only.
signing_keys = Table(
    "signing_keys",
    metadata,
    Column("id", Text, primary_key=True),
    Column("introduced_by", Text, nullable=False, unique=True),  # "": the first key
    Column("introduced_at", DateTime(timezone=True), nullable=False),
    Column("document", JSONB, nullable=False),
)

# Signed checkpoints, as they were handed out. Append-only.
checkpoints = Table(
    "checkpoints",
    metadata,
    Column("dataset_id", ForeignKey("datasets.id"), nullable=False, primary_key=True),
    Column("seq", BigInteger, nullable=False, primary_key=True, autoincrement=False),
    Column("key_id", ForeignKey("signing_keys.id"), nullable=False, primary_key=True),
    _moment("at", required=True),
    Column("document", Text, nullable=False),
    Index("ix_checkpoints_at", "at", "dataset_id", "seq", "key_id"),
    CheckConstraint("seq >= 0", name="seq"),
)

# What jobs released besides their texts; written with their one COMMIT, which names the hashes.
artifacts = Table(
    "artifacts",
    metadata,
    Column("job_id", ForeignKey("jobs.id"), primary_key=True),
    Column("name", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("media_type", Text, nullable=False),
    Column("sha256", Text, nullable=False),
    Column("size", BigInteger, nullable=False),  # bytes
    Column("uri", Text, nullable=False),
    _moment("created_at", default=True),
    Index("ix_artifacts_sha256", "sha256"),
    CheckConstraint("size >= 0", name="size"),
    CheckConstraint("sha256 ~ '^[0-9a-f]{64}$'", name="sha256"),
    CheckConstraint(
        "media_type IN ('application/json','application/x-safetensors','text/html')", name="media_type"
    ),
)

# What people and projects use of a dataset: cached sums, moved with the entries (usage.py). `cap` is the
# one under which the last job was admitted; a later change of policy touches no row.
usage = Table(
    "usage",
    metadata,
    Column("dataset_id", ForeignKey("datasets.id"), primary_key=True),
    Column("kind", Text, primary_key=True),
    Column("holder", Text, primary_key=True),
    _units("spent"),
    _units("reserved"),
    Column("cap", Units),
    CheckConstraint("kind IN ('analyst','project')", name="kind"),
    CheckConstraint("spent >= 0 AND reserved >= 0", name="not_negative"),
    CheckConstraint("cap IS NULL OR spent + reserved <= cap", name="fits"),
)

# Files that stewards sent, kept by the hash of their bytes. `address` is what a dataset names.
uploads = Table(
    "uploads",
    metadata,
    Column("sha256", Text, primary_key=True),
    Column("address", Text, nullable=False),
    Column("format", Text, nullable=False),
    Column("compression", Text),
    Column("bytes", BigInteger, nullable=False),
    Column("uncompressed_bytes", BigInteger, nullable=False),
    Column("columns", JSONB, nullable=False),  # names
    Column("uploaded_by", ForeignKey("users.id"), nullable=False),
    _moment("uploaded_at", default=True),  # the last time, where it was sent twice
    _moment("removed_at"),
    CheckConstraint("sha256 ~ '^[0-9a-f]{64}$'", name="sha256"),
    CheckConstraint("format IN ('csv','jsonl','parquet')", name="format"),
    CheckConstraint("bytes >= 1", name="bytes"),
)

# Addresses that people want to be told at. Triggers (migration 0013) write a row of `hook_deliveries` for
# each in the transaction of the change itself, whoever makes it; where no hook is active they write nothing.
hooks = Table(
    "hooks",
    metadata,
    _key(),
    Column("owner_id", ForeignKey("users.id"), nullable=False),
    Column("url", Text, nullable=False),
    Column("events", ARRAY(Text), nullable=False),
    Column("secret", LargeBinary, nullable=False),  # encrypted (hooks.py)
    Column("active", Boolean, nullable=False, server_default=text("true")),
    Column("disabled_reason", Text),
    _moment("disabled_at"),
    _moment("last_success_at"),
    _moment("created_at", default=True),
    _moment("removed_at"),
    Index("ix_hooks_active", "owner_id", postgresql_where=text("active")),
    CheckConstraint("cardinality(events) >= 1", name="events"),
    CheckConstraint("NOT active OR (removed_at IS NULL AND disabled_at IS NULL)", name="active"),
    CheckConstraint("(disabled_at IS NULL) = (disabled_reason IS NULL)", name="disabled"),
)

# What is told to whom: public facts alone. `due_at`: the next attempt, or when the one under way is given up
# for lost; `began_at`: since when it is tried.
hook_deliveries = Table(
    "hook_deliveries",
    metadata,
    _key(),
    Column("hook_id", ForeignKey("hooks.id"), nullable=False),
    Column("event", Text, nullable=False),
    Column("analyst_id", Uuid),  # whose job it is; NULL: overseers only
    Column("facts", JSONB, nullable=False),
    _moment("occurred_at", default=True),
    Column("state", Text, nullable=False, server_default="pending"),
    Column("attempts", Integer, nullable=False, server_default="0"),
    _moment("began_at", default=True),
    _moment("due_at", default=True),
    Column("claim", Uuid),
    Column("status", Integer),  # of the last answer
    Column("problem", Text),
    _moment("attempted_at"),
    Index("ix_hook_deliveries_due", "hook_id", "due_at", postgresql_where=text("state = 'pending'")),
    Index("ix_hook_deliveries_log", "hook_id", "occurred_at", "id"),
    CheckConstraint("state IN ('pending','delivered','failed','dropped')", name="state"),
    CheckConstraint("attempts >= 0", name="attempts"),
)

# What one steward proposes and another confirms; `basis_seq` is the entry that it would replace.
proposals = Table(
    "proposals",
    metadata,
    _key(),
    Column("dataset_id", ForeignKey("datasets.id"), nullable=False),
    Column("kind", Text, nullable=False),
    Column("job_id", ForeignKey("jobs.id")),
    Column("asked", JSONB, nullable=False),
    Column("basis_seq", BigInteger, nullable=False),
    Column("reason", Text, nullable=False),
    Column("state", Text, nullable=False, server_default="open"),
    Column("proposed_by", ForeignKey("users.id"), nullable=False),
    _moment("created_at", default=True),
    _moment("expires_at", required=True),
    Column("decided_by", ForeignKey("users.id")),
    _moment("decided_at"),
    Column("decision_reason", Text),
    Column("entry_seq", BigInteger),
    Index("ix_proposals_open", "expires_at", postgresql_where=text("state = 'open'")),
    CheckConstraint("kind IN ('allowance','correction')", name="kind"),
    CheckConstraint("(kind = 'correction') = (job_id IS NOT NULL)", name="job"),
    CheckConstraint("state IN ('open','confirmed','withdrawn','expired')", name="state"),
    CheckConstraint("(state = 'confirmed') = (entry_seq IS NOT NULL)", name="entry"),
    CheckConstraint("state <> 'confirmed' OR decided_by <> proposed_by", name="two_people"),
)

# A smaller job that a steward offers in place of one that awaited approval: that one is refused, and the
# analyst's consent makes another. Under `terms` the parameters had the price that the steward saw.
offers = Table(
    "offers",
    metadata,
    _key(),
    Column("job_id", ForeignKey("jobs.id"), nullable=False, unique=True),
    Column("parameters", JSONB, nullable=False),
    Column("terms", JSONB, nullable=False),
    Column("epsilon_alone", Double),
    Column("breakdown", JSONB, nullable=False),
    Column("reason", Text, nullable=False),
    Column("state", Text, nullable=False, server_default="open"),
    Column("offered_by", ForeignKey("users.id"), nullable=False),
    _moment("created_at", default=True),
    _moment("expires_at", required=True),
    Column("decided_by", ForeignKey("users.id")),
    _moment("decided_at"),
    Column("decision_reason", Text),
    Column("accepted_job_id", ForeignKey("jobs.id")),
    Index("ix_offers_open", "expires_at", postgresql_where=text("state = 'open'")),
    CheckConstraint("state IN ('open','accepted','declined','withdrawn','expired')", name="state"),
    CheckConstraint("(state = 'accepted') = (accepted_job_id IS NOT NULL)", name="job"),
)

# What the entries up to a mark charged, by day, person and mechanism (spending.py): sums of an append-only
# ledger, so they stand for good.
spending = Table(
    "spending",
    metadata,
    Column("dataset_id", ForeignKey("datasets.id"), primary_key=True),
    Column("day", Date, primary_key=True),
    Column("analyst_id", ForeignKey("users.id"), primary_key=True),
    Column("mechanism", Text, primary_key=True),
    *[_units(str(kind)) for kind in Kind],
    *[_units(name) for name in ("basic_delta", "ex_post", "secret")],
    _count("jobs"),
)
spending_marks = Table(
    "spending_marks",
    metadata,
    Column("dataset_id", ForeignKey("datasets.id"), primary_key=True),
    Column("through", BigInteger, nullable=False, server_default="0"),
    CheckConstraint("through >= 0", name="through"),
)

# What was made under an idempotency key; written with it, in one transaction (idempotency.py).
idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    Column("person_id", ForeignKey("users.id"), primary_key=True),
    Column("key", Text, primary_key=True),
    Column("request_sha256", Text, nullable=False),
    Column("made", Uuid, nullable=False),
    _moment("created_at", default=True),
    CheckConstraint("length(key) BETWEEN 1 AND 200", name="length"),
)

# Public facts that a worker found about a model with a template, so that a request can be decided at once.
probes = Table(
    "probes",
    metadata,
    Column("key", Text, primary_key=True),
    Column("facts", JSONB, nullable=False),
    _moment("created_at", default=True),
)

# Messages written in the transaction that makes them true; the relay sends them.
outbox = Table(
    "outbox",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("task", Text, nullable=False),
    Column("subject", Uuid, nullable=False),
    Column("attempt", Integer, nullable=False, server_default="0"),
    Column("part", Integer, nullable=False, server_default="0"),
    _moment("created_at", default=True),
    _moment("sent_at"),
    Index("ix_outbox_unsent", "id", postgresql_where=text("sent_at IS NULL")),
    Index("ix_outbox_subject", "subject", "id"),
    CheckConstraint("task IN ('generate','probe','check_dataset','check_model','check_corpus')", name="task"),
)
