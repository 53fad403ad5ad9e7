"""The tables of webhooks and of the messages due to them."""

from sqlalchemy import (
    ARRAY,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from accountant.tables.columns import key, metadata, moment

# Addresses that people want to be told at. Triggers (migrations/baseline/webhooks.sql) write a row of
# `hook_deliveries` for each in the transaction of the change itself, whoever makes it; where no hook is
# active they write nothing.
hooks = Table(
    "hooks",
    metadata,
    key(),
    Column("owner_id", ForeignKey("users.id"), nullable=False),
    Column("kind", Text, nullable=False, server_default="webhook"),
    Column("url", Text, nullable=False),  # of kind mail: the address after "mailto:"
    Column("events", ARRAY(Text), nullable=False),
    Column("secret", LargeBinary, nullable=False),  # encrypted (webhooks)
    Column("active", Boolean, nullable=False, server_default=text("true")),
    Column("disabled_reason", Text),
    moment("disabled_at"),
    moment("last_success_at"),
    moment("created_at", default=True),
    moment("removed_at"),
    Index("ix_hooks_active", "owner_id", postgresql_where=text("active")),
    CheckConstraint("kind IN ('webhook','chat','mail')", name="kind"),
    CheckConstraint("cardinality(events) >= 1", name="events"),
    CheckConstraint("NOT active OR (removed_at IS NULL AND disabled_at IS NULL)", name="active"),
    CheckConstraint("(disabled_at IS NULL) = (disabled_reason IS NULL)", name="disabled"),
)

# What is told to whom: public facts alone. `due_at`: the next attempt, or when the one under way is given up
# for lost; `began_at`: since when it is tried.
hook_deliveries = Table(
    "hook_deliveries",
    metadata,
    key(),
    Column("hook_id", ForeignKey("hooks.id"), nullable=False),
    Column("event", Text, nullable=False),
    Column("analyst_id", Uuid),  # whose job it is; NULL: overseers only
    Column("facts", JSONB, nullable=False),
    moment("occurred_at", default=True),
    Column("state", Text, nullable=False, server_default="pending"),
    Column("attempts", Integer, nullable=False, server_default="0"),
    moment("began_at", default=True),
    moment("due_at", default=True),
    Column("claim", Uuid),
    Column("status", Integer),  # of the last answer
    Column("problem", Text),
    moment("attempted_at"),
    Index("ix_hook_deliveries_due", "hook_id", "due_at", postgresql_where=text("state = 'pending'")),
    Index("ix_hook_deliveries_log", "hook_id", "occurred_at", "id"),
    CheckConstraint("state IN ('pending','delivered','failed','dropped')", name="state"),
    CheckConstraint("attempts >= 0", name="attempts"),
)
