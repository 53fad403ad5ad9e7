"""The tables of addresses for notices, and of the messages due to them."""

from sqlalchemy import (
    ARRAY,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    Table,
    Text,
    Uuid,
)
from sqlalchemy.dialects.postgresql import JSONB

from accountant.tables.columns import key, metadata, moment

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
    CheckConstraint("kind IN ('mail','chat','teams','json')", name="kind"),
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
