"""The ledger's tables: balances, chained entries, keys and checkpoints, and sums kept of them."""

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Date,
    DateTime,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from accountant.core.privacy.filters import Kind
from accountant.tables.columns import Units, count, metadata, moment, units


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
_COUNTS = [
    "raises_after_release",
    "job_count",
    "ex_post_job_count",
    "secret_job_count",
    "failure_count",
]
_NOT_NEGATIVE = [
    "basic_step_delta",
    *_OTHER_AMOUNTS,
    "secret_jobs",
    "largest_epsilon",
    "largest_delta",
    *_COUNTS,
]
_SUMMED = [name for name in _AMOUNTS if not name.endswith("closed")] + _OTHER_AMOUNTS
_SUMMED += ["basic_step_delta", "basic_whole_epsilon", "largest_epsilon", "largest_delta"]

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
    units("basic_step_delta"),
    # The epsilon against which a whole job's delta is chosen. Fixed with the filters.
    units("basic_whole_epsilon"),
    # The other two currencies; `secret`: terms, kind, neighbours and order of the secret account.
    *[units(name) for name in _OTHER_AMOUNTS],
    Column("ex_post_settlement", Text, nullable=False, server_default="planned"),
    Column("secret", JSONB(none_as_null=True)),
    count("secret_jobs"),
    # What the statements of a dataset mention beyond balances (core.ledger.statements.History).
    units("largest_epsilon"),
    units("largest_delta"),
    Column("largest_bound", Double, nullable=False, server_default="0"),
    *[count(name) for name in _COUNTS],
    count("coin_job_count"),
    count("loss_count"),
    count("overdraft_count"),
    units("overdraft_epsilon"),
    # A correction or an overdraft went beyond an allowance: then alone may the limits be passed.
    Column("overdrawn", Boolean, nullable=False, server_default=text("false")),
    Column("chain_seq", BigInteger, nullable=False, server_default="0"),
    Column("chain_head", Text, nullable=False),
    CheckConstraint(" AND ".join(f"{name} >= 0" for name in _AMOUNTS), name="not_negative"),
    CheckConstraint(
        " AND ".join(f"{name} >= 0" for name in _NOT_NEGATIVE), name="others_not_negative"
    ),
    # NaN is above every number, so no other check sees it. A sum with NaN in it is NaN.
    CheckConstraint(f"{' + '.join(_SUMMED)} < 'NaN'", name="numbers"),
    CheckConstraint("coin_job_count >= 0", name="coin_job_count"),
    CheckConstraint("loss_count >= 0", name="loss_count"),
    CheckConstraint(
        "(overdraft_count > 0) = (overdraft_epsilon > 0) AND overdraft_count >= 0 "
        "AND overdraft_epsilon < 'NaN'",
        name="overdrafts",
    ),
    CheckConstraint(
        "CASE WHEN epsilon IS NULL THEN basic_whole_epsilon = 0 ELSE basic_whole_epsilon > 0 END",
        name="whole_epsilon",
    ),
    CheckConstraint(" OR ".join(["overdrawn", *map(_holds, Kind)]), name="a_filter_holds"),
    # It pays what is known by (epsilon, delta) alone, whichever filter holds.
    CheckConstraint(
        "overdrawn OR basic_delta_spent + basic_delta_reserved <= basic_delta_limit",
        name="deltas_fit",
    ),
    CheckConstraint("ex_post_settlement IN ('planned','realized')", name="ex_post_settlement"),
    # Realized ex-post costs may pass the allowance; planned caps never do.
    CheckConstraint(
        "overdrawn OR ex_post_settlement = 'realized' OR ex_post_spent + ex_post_reserved <= "
        "ex_post_limit",
        name="ex_post_fits",
    ),
    CheckConstraint(
        "overdrawn OR secret_spent + secret_reserved <= secret_limit", name="secret_fits"
    ),
    CheckConstraint(
        "secret IS NOT NULL OR (secret_limit = 0 AND secret_jobs = 0)", name="no_secret"
    ),
    CheckConstraint("secret IS NULL OR secret ->> 'kind' IN ('one','many')", name="secret_kind"),
    CheckConstraint(
        "overdrawn OR secret IS NULL OR secret ->> 'kind' <> 'one' OR secret_jobs <= 1",
        name="one_secret_job",
    ),
)

#: Kinds that are few beside the reservations and what settles them: an index of their own finds
#: them.
RARE_KINDS = ("ALLOW", "VOID", "REVERSAL", "REGISTER", "POLICY", "LOSS")
#: Kinds by which later entries are judged; an index of their own finds them.
RULE_KINDS = ("ALLOW", "REGISTER", "POLICY")

# The append-only ledger. Triggers in the migration forbid UPDATE, DELETE and TRUNCATE.
entries = Table(
    "entries",
    metadata,
    Column("dataset_id", ForeignKey("datasets.id"), nullable=False, primary_key=True),
    Column("seq", BigInteger, nullable=False, primary_key=True, autoincrement=False),
    Column("kind", Text, nullable=False),
    moment("at", required=True),
    Column("actor", Text, nullable=False),
    Column("job_id", Uuid),
    Column("document", Text, nullable=False),  # the canonical bytes that are hashed
    Column("previous", Text, nullable=False),
    Column("hash", Text, nullable=False),
    UniqueConstraint("dataset_id", "previous"),
    ForeignKeyConstraint(["job_id"], ["jobs.id"]),
    Index(
        "uq_entries_reserved_once", "job_id", unique=True, postgresql_where=text("kind = 'RESERVE'")
    ),
    Index(
        "uq_entries_resolved_once",
        "job_id",
        unique=True,
        postgresql_where=text("kind IN ('COMMIT','VOID')"),
    ),
    Index(
        "uq_entries_signature",
        text("(document::jsonb #>> '{body,parameters,signature}'::text[])"),
        unique=True,
        postgresql_where=text("kind = 'RESERVE'"),
    ),
    # What an auditor looks for: the newest anywhere, one person's, one job's, and the kinds that
    # are few. The last columns are there to be filtered by without a look at the rows.
    Index("ix_entries_at", "at", "dataset_id", "seq", "kind"),
    Index("ix_entries_actor", "actor", "at", "dataset_id", "seq", "kind"),
    Index("ix_entries_job_id", "job_id", "seq"),
    Index(
        "ix_entries_rare",
        "kind",
        "at",
        "dataset_id",
        "seq",
        postgresql_where=text("kind IN ('ALLOW','VOID','REVERSAL','REGISTER','POLICY','LOSS')"),
    ),
    # What later entries are judged by.
    Index(
        "ix_entries_rules",
        "dataset_id",
        "seq",
        postgresql_where=text("kind IN ('ALLOW','REGISTER','POLICY')"),
    ),
    CheckConstraint(
        "kind IN ('ALLOW','RESERVE','COMMIT','VOID','REVERSAL','REGISTER','POLICY','LOSS')",
        name="kind",
    ),
    CheckConstraint(
        "(kind IN ('ALLOW','REGISTER','POLICY','LOSS')) = (job_id IS NULL)", name="job"
    ),
    CheckConstraint("seq >= 1", name="seq"),
)

# An account's row as it stood after every 256th entry or so, kept by a trigger: the balances after
# any entry are a short replay from there. Append-only; the application may read it alone.
standings = Table(
    "standings",
    metadata,
    Column("dataset_id", ForeignKey("datasets.id"), nullable=False, primary_key=True),
    Column("seq", BigInteger, nullable=False, primary_key=True, autoincrement=False),
    Column("account", JSONB, nullable=False),
)

# Where the log outside the database stood: its `n`-th entry, and the hash of that line. The row of
# n = 0 names the log. `system` and `timeline` are the server's of then. Append-only.
ledger_log_marks = Table(
    "ledger_log_marks",
    metadata,
    Column("n", BigInteger, primary_key=True, autoincrement=False),
    Column("log", Text, nullable=False),
    Column("line", Text, nullable=False),
    moment("at", default=True),
    Column("system", Text, nullable=False),
    Column("timeline", BigInteger),
    CheckConstraint("n >= 0", name="n"),
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
    moment("at", required=True),
    Column("document", Text, nullable=False),
    Index("ix_checkpoints_at", "at", "dataset_id", "seq", "key_id"),
    CheckConstraint("seq >= 0", name="seq"),
)

# Entries at which a checkpoint is wanted of the process that holds the key; it takes the row away.
checkpoint_requests = Table(
    "checkpoint_requests",
    metadata,
    Column("dataset_id", ForeignKey("datasets.id"), nullable=False, primary_key=True),
    Column("seq", BigInteger, nullable=False, primary_key=True, autoincrement=False),
    moment("at", default=True),
    CheckConstraint("seq >= 0", name="seq"),
)

# What people and projects use of a dataset: cached sums, moved with the entries (cap_usage.py).
# `cap` is the one under which the last job was admitted; a later change of policy touches no row.
usage = Table(
    "usage",
    metadata,
    Column("dataset_id", ForeignKey("datasets.id"), primary_key=True),
    Column("kind", Text, primary_key=True),
    Column("holder", Text, primary_key=True),
    units("spent"),
    units("reserved"),
    Column("cap", Units),
    CheckConstraint("kind IN ('analyst','project','stated','signed')", name="kind"),
    CheckConstraint("spent >= 0 AND reserved >= 0", name="not_negative"),
    CheckConstraint("spent + reserved < 'NaN'", name="numbers"),
    CheckConstraint("cap IS NULL OR spent + reserved <= cap", name="fits"),
)

# What the entries up to a mark charged, by day, person and mechanism (spending.py): sums of an
# append-only ledger, so they stand for good.
spending = Table(
    "spending",
    metadata,
    Column("dataset_id", ForeignKey("datasets.id"), primary_key=True),
    Column("day", Date, primary_key=True),
    Column("analyst_id", ForeignKey("users.id"), primary_key=True),
    Column("mechanism", Text, primary_key=True),
    *[units(str(kind)) for kind in Kind],
    *[units(name) for name in ("basic_delta", "ex_post", "secret")],
    count("jobs"),
)
spending_marks = Table(
    "spending_marks",
    metadata,
    Column("dataset_id", ForeignKey("datasets.id"), primary_key=True),
    Column("through", BigInteger, nullable=False, server_default="0"),
    CheckConstraint("through >= 0", name="through"),
)


process_roles = Table(
    "process_roles",
    metadata,
    Column("role", Text, primary_key=True),
    Column("process", Text, nullable=False),
    CheckConstraint(
        "process IN ('service','web','relay','worker','checks','signer')", name="process"
    ),
)

# Where entries of a kind hold private values, which their hashes cover as commitments.
private_places = Table(
    "private_places",
    metadata,
    Column("kind", Text, primary_key=True),
    Column("place", Text, primary_key=True),
)
