"""The tables of jobs' sources: datasets and their versions, models, public corpora, uploads."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from accountant.tables.columns import key, metadata, moment

models = Table(
    "models",
    metadata,
    key(),
    Column("name", Text, nullable=False, unique=True),
    Column("kind", Text, nullable=False, server_default="language"),
    Column("path", Text, nullable=False),  # of an endpoint: its address
    Column("endpoint", JSONB(none_as_null=True)),  # catalogue.models.EndpointSpec
    Column("trained_on", Text, nullable=False),  # the steward's declaration
    Column("state", Text, nullable=False),
    Column("error", Text),
    Column("facts", JSONB(none_as_null=True)),
    Column("created_by", ForeignKey("users.id"), nullable=False),
    moment("created_at", default=True),
    CheckConstraint("state IN ('checking','ready','invalid')", name="state"),
    CheckConstraint("(state = 'ready') = (facts IS NOT NULL)", name="facts_when_ready"),
    CheckConstraint("kind IN ('language','embedding','endpoint')", name="kind"),
    CheckConstraint("(kind = 'endpoint') = (endpoint IS NOT NULL)", name="endpoint"),
)

# Texts that a steward vouches for as public, or as given for this with their writers' consent.
corpora = Table(
    "corpora",
    metadata,
    key(),
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
    moment("created_at", default=True),
    # dataset -> how much of it, for that dataset's stewards
    Column("shared_with", JSONB(none_as_null=True)),
    CheckConstraint("declaration IN ('public','consented')", name="declaration"),
    CheckConstraint("state IN ('checking','ready','invalid')", name="state"),
    CheckConstraint("(state = 'ready') = (facts IS NOT NULL)", name="facts_when_ready"),
)

datasets = Table(
    "datasets",
    metadata,
    key(),
    Column("name", Text, nullable=False, unique=True),
    Column("description", Text, nullable=False, server_default=""),
    Column("neighbours", Text, nullable=False),
    Column("unit_column", Text),  # of every version; NULL: the privacy unit is a record
    Column("max_records_per_unit", Integer, nullable=False),
    Column("unit_spelling", Text, nullable=False, server_default="refuse"),
    Column("missing_units", Text, nullable=False, server_default="refuse"),
    Column("public_size", BigInteger),
    Column("labels", JSONB, nullable=False),
    Column("groups", JSONB, nullable=False, server_default=text("'[]'")),
    # for stewards, as terms
    Column("secret_patterns", JSONB, nullable=False, server_default=text("'[]'")),
    Column("secret_terms", JSONB, nullable=False, server_default=text("'[]'")),
    # Of the hash by which a REGISTER states both (core.ledger.rules.secrets_digest).
    Column("secrets_salt", Text, nullable=False, server_default=text("gen_random_uuid()::text")),
    Column("policy", JSONB, nullable=False),
    Column("created_by", ForeignKey("users.id"), nullable=False),
    moment("created_at", default=True),
    CheckConstraint("neighbours IN ('add-remove','replace-one')", name="neighbours"),
    CheckConstraint("max_records_per_unit >= 1", name="bound"),
    CheckConstraint("unit_spelling IN ('refuse','merge','keep')", name="unit_spelling"),
    CheckConstraint("missing_units IN ('refuse','separate')", name="missing_units"),
    CheckConstraint("unit_column IS NOT NULL OR max_records_per_unit = 1", name="record_bound"),
    CheckConstraint("public_size IS NULL OR public_size >= 1", name="public_size"),
)

dataset_versions = Table(
    "dataset_versions",
    metadata,
    key(),
    Column("dataset_id", ForeignKey("datasets.id"), nullable=False),
    Column("number", Integer, nullable=False),
    Column("uri", Text),  # NULL: the data never comes here
    Column("text_template", Text, nullable=False),
    Column("unit_column", Text),
    Column("label_column", Text),
    Column("group_column", Text),
    Column("secret_column", Text),
    # its files when it was found right: workers.data.manifest
    Column("data", JSONB(none_as_null=True)),
    Column("state", Text, nullable=False),
    Column("error", Text),  # shown to stewards only
    Column("created_by", ForeignKey("users.id"), nullable=False),
    moment("created_at", default=True),
    # dataset -> how much of it, for that dataset's stewards
    Column("shared_with", JSONB(none_as_null=True)),
    UniqueConstraint("dataset_id", "number"),
    CheckConstraint("state IN ('checking','ready','invalid')", name="state"),
    # Nobody looks at data that never comes here.
    CheckConstraint("uri IS NOT NULL OR (state = 'ready' AND data IS NULL)", name="no_data"),
)

# Keyed hashes of the units of every version that was found right, and of the records that are
# evidence of people. `is_unit`: named by a column. Such a unit has one account, as the partial
# index says.
fingerprints = Table(
    "fingerprints",
    metadata,
    Column("fingerprint", LargeBinary, nullable=False, primary_key=True),
    Column("dataset_id", ForeignKey("datasets.id"), nullable=False, primary_key=True),
    Column("is_unit", Boolean, nullable=False),
    Index("uq_fingerprints_unit", "fingerprint", unique=True, postgresql_where=text("is_unit")),
    CheckConstraint("octet_length(fingerprint) = 16", name="length"),
)

# The same of the texts of public corpora, that new data is compared with.
corpus_fingerprints = Table(
    "corpus_fingerprints",
    metadata,
    Column("fingerprint", LargeBinary, primary_key=True),
    Column("corpus_id", ForeignKey("corpora.id"), primary_key=True),
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

# What a key of the cluster makes of a public text, by the key's name: a process with another key
# takes no part (transactions.key_checks).
key_checks = Table(
    "key_checks",
    metadata,
    Column("name", Text, primary_key=True),
    Column("proof", LargeBinary, nullable=False),
    CheckConstraint("octet_length(proof) = 32", name="length"),
)

# Files that stewards sent, kept by the hash of their bytes. `address` is what a dataset names.
uploads = Table(
    "uploads",
    metadata,
    Column("sha256", Text, primary_key=True),
    Column("address", Text, nullable=False),
    Column("name", Text),  # as its sender called it, the last time
    Column("format", Text, nullable=False),
    Column("compression", Text),
    Column("bytes", BigInteger, nullable=False),
    Column("uncompressed_bytes", BigInteger, nullable=False),
    Column("columns", JSONB, nullable=False),  # names
    Column("uploaded_by", ForeignKey("users.id"), nullable=False),
    moment("uploaded_at", default=True),  # the last time, where it was sent twice
    moment("removed_at"),
    CheckConstraint("sha256 ~ '^[0-9a-f]{64}$'", name="sha256"),
    CheckConstraint("format IN ('csv','jsonl','parquet')", name="format"),
    CheckConstraint("bytes >= 1", name="bytes"),
)

# Public facts that a worker found about a model with a template, so that a request can be decided
# at once.
probes = Table(
    "probes",
    metadata,
    Column("key", Text, primary_key=True),
    Column("facts", JSONB, nullable=False),
    moment("created_at", default=True),
)
