"""The tables of people, their tokens, sessions and sign-ins, and of the activity log."""

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from accountant.tables.columns import count, key, metadata, moment

users = Table(
    "users",
    metadata,
    key(),
    Column("name", Text, nullable=False, unique=True),
    Column("password_hash", Text),
    Column("roles", ARRAY(Text), nullable=False),
    Column("active", Boolean, nullable=False, server_default=text("true")),
    moment("created_at", default=True),
    # of a one-time password: it opens nothing but the page that replaces it
    moment("password_expires"),
    CheckConstraint(
        "roles <@ ARRAY['steward','analyst','auditor','administrator']", name="known_roles"
    ),
)

api_tokens = Table(
    "api_tokens",
    metadata,
    key(),
    Column("user_id", ForeignKey("users.id"), nullable=False),
    Column("name", Text, nullable=False),
    Column("token_sha256", LargeBinary, nullable=False, unique=True),
    moment("created_at", default=True),
    moment("expires_at"),
    moment("revoked_at"),
    Column("scopes", ARRAY(Text), nullable=False),
    # ends with the sessions
    Column("by_sign_in", Boolean, nullable=False, server_default=text("false")),
    moment("last_used_at"),
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
    moment("created_at", default=True),
    moment("confirmed_at"),  # by the provider; NULL: they have to sign in there again
    Column("refresh_token", LargeBinary),  # sealed under a key of the web's
    moment("asked_at"),  # since when a process waits for the provider's answer
)

# Logout tokens of the provider, each of which is taken once.
logout_tokens = Table(
    "logout_tokens",
    metadata,
    Column("issuer", Text, primary_key=True),
    Column("token_id", Text, primary_key=True),
    moment("at", default=True),
)

# Sessions of browsers. `seen_at` is moved at most once a minute.
sessions = Table(
    "sessions",
    metadata,
    key(),
    Column("token_sha256", LargeBinary, nullable=False, unique=True),
    Column("user_id", ForeignKey("users.id"), nullable=False),
    Column("method", Text, nullable=False),
    Column("address", Text, nullable=False),
    Column("user_agent", Text, nullable=False),
    moment("created_at", default=True),
    moment("seen_at", default=True),
    moment("ended_at"),
    moment("confirmed_at"),  # when its owner last showed again who they are
    Column("provider_session", Text),  # as the provider calls it (sid)
    Column("id_token", LargeBinary),  # sealed; shown to the provider when its owner signs out
    Index("ix_sessions_open", "user_id", postgresql_where=text("ended_at IS NULL")),
)

# Passkeys: the public half of each, and how often it says that it was used.
passkeys = Table(
    "passkeys",
    metadata,
    key(),
    Column("user_id", ForeignKey("users.id"), nullable=False),
    Column("name", Text, nullable=False),
    Column("credential_id", LargeBinary, nullable=False, unique=True),
    Column("public_key", LargeBinary, nullable=False),  # as the authenticator wrote it (COSE)
    Column("signer", Text, nullable=False),  # as a policy names it (core.ledger.policy.Signer)
    Column("sign_count", BigInteger, nullable=False),
    moment("created_at", default=True),
    moment("last_used_at"),
    moment("removed_at"),
    Index("ix_passkeys_user_id", "user_id", "created_at"),
    CheckConstraint("length(name) BETWEEN 1 AND 100", name="name"),
)

# What a passkey was asked to sign, once and for a few minutes.
passkey_challenges = Table(
    "passkey_challenges",
    metadata,
    key(),
    Column("user_id", ForeignKey("users.id")),  # NULL: nobody is signed in yet
    Column("purpose", Text, nullable=False),
    Column("challenge", LargeBinary, nullable=False),
    Column("nonce", Text),  # of an act
    moment("expires_at", required=True),
    Index("ix_passkey_challenges_expires_at", "expires_at"),
    CheckConstraint("purpose IN ('register','sign in','confirm','act')", name="purpose"),
)

# Failures to sign in, by the name that was tried and by address: whether the name is known plays no
# part.
sign_in_limits = Table(
    "sign_in_limits",
    metadata,
    Column("key", Text, primary_key=True),
    count("failures"),
    moment("last_at", required=True),
    moment("locked_until"),
    Column("refusal_logged", Boolean, nullable=False, server_default=text("false")),
    Index("ix_sign_in_limits_last_at", "last_at"),
    CheckConstraint("failures >= 0", name="failures"),
)

# Every try to sign in. Append-only.
sign_ins = Table(
    "sign_ins",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    moment("at", default=True),
    # as it was tried, where it could be an account's; people type passwords here
    Column("name", Text),
    Column("user_id", ForeignKey("users.id")),
    Column("method", Text, nullable=False),
    Column("address", Text, nullable=False),
    Column("user_agent", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Index("ix_sign_ins_at", "at", "id"),
    Index("ix_sign_ins_name_id", "name", "id"),
    Index("ix_sign_ins_outcome_id", "outcome", "id"),
    CheckConstraint("method IN ('page','api','provider','passkey')", name="method"),
    CheckConstraint(
        "outcome IN ('signed in','wrong password','unknown name','password expired',"
        "'password to be changed','password confirmed','too many failures',"
        "'no role','account closed','provider refused','wrong passkey','too many groups')",
        name="outcome",
    ),
)

#: The dataset that an act was on: as the database prints its index, line for line, or Alembic finds
#: another.
ACTIVITY_DATASET = text(
    "(\nCASE\nWHEN object_kind = 'dataset' THEN object_id\nELSE detail ->> 'dataset'\nEND)"
)

# Who did what, beside what the ledger's entries and the jobs tell. Append-only.
activity = Table(
    "activity",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    moment("at", default=True),
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

# What was made under an idempotency key; written with it, in one transaction (idempotency.py).
idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    Column("person_id", ForeignKey("users.id"), primary_key=True),
    Column("key", Text, primary_key=True),
    Column("request_sha256", Text, nullable=False),
    Column("made", Uuid, nullable=False),
    moment("created_at", default=True),
    CheckConstraint("length(key) BETWEEN 1 AND 200", name="length"),
)


# --- The tables of addresses for notices, and of the messages due to them ------------------------

# Addresses that administrators set, each for a person. Triggers (migrations/schema) write a
# row of `hook_deliveries` for each in the transaction of the change itself, whoever makes it.
hooks = Table(
    "hooks",
    metadata,
    key(),
    Column("owner_id", ForeignKey("users.id"), nullable=False),
    Column("kind", Text, nullable=False),
    Column("url", Text, nullable=False),
    Column("events", ARRAY(Text), nullable=False),
    moment("created_at", default=True),
    Index("ix_hooks_owner_id", "owner_id"),
    CheckConstraint("kind IN ('mail','chat','teams','json','openlineage')", name="kind"),
    CheckConstraint("cardinality(events) >= 1", name="events"),
)

# Messages that wait. One that is delivered, given up or not to be told any more is deleted.
hook_deliveries = Table(
    "hook_deliveries",
    metadata,
    key(),
    Column("hook_id", ForeignKey("hooks.id", ondelete="CASCADE"), nullable=False),
    Column("event", Text, nullable=False),
    Column("analyst_id", Uuid),  # whose job it is; NULL: overseers only
    Column("facts", JSONB, nullable=False),
    moment("occurred_at", default=True),
    Column("attempts", Integer, nullable=False, server_default="0"),
    moment("due_at", default=True),
    Column("claim", Uuid),
    Index("ix_hook_deliveries_due", "hook_id", "due_at"),
    CheckConstraint("attempts >= 0", name="attempts"),
)
