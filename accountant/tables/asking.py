"""The table of requests for access to a dataset."""

from sqlalchemy import (
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Table,
    Text,
    text,
)

from accountant.tables.columns import key, metadata, moment

# Somebody who may not ask on a dataset says why they should; its stewards answer.
access_requests = Table(
    "access_requests",
    metadata,
    key(),
    Column("dataset_id", ForeignKey("datasets.id"), nullable=False),
    Column("person_id", ForeignKey("users.id"), nullable=False),
    Column("reason", Text, nullable=False),
    Column("state", Text, nullable=False, server_default="open"),
    Column("answer", Text),
    Column("decided_by", ForeignKey("users.id")),
    moment("created_at", default=True),
    moment("decided_at"),
    Index(
        "uq_access_requests_open",
        "dataset_id",
        "person_id",
        unique=True,
        postgresql_where=text("state = 'open'"),
    ),
    Index("ix_access_requests_person", "person_id", "created_at"),
    CheckConstraint("state IN ('open','granted','refused')", name="state"),
    CheckConstraint("length(reason) BETWEEN 1 AND 2000", name="reason"),
    CheckConstraint(
        "(state = 'open') = (decided_by IS NULL) AND (state = 'open') = (answer IS NULL)", name="decided"
    ),
)
