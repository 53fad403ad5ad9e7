"""Rows that several transactions read, lock and change."""

import hashlib
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, func, select, text, update

from accountant import tables
from accountant.core.errors import LeaseLost
from accountant.core.ledger.orders import Order
from accountant.core.ledger.policy import Policy
from accountant.tables.lookup import one
from accountant.transactions.locked_account import LockedAccount


@dataclass(frozen=True)
class Claim:
    """A worker's hold on one attempt at one part of a job; the token fences off everybody else.

    `key`: that of the job's coins, never shown; None for a job that reads no records. `secret`: the
    lease's, known to its worker alone; the database has its hash. `order`: what its entries say
    that the job is.
    """

    job_id: UUID
    attempt: int
    token: UUID
    part: int = 0
    key: bytes | None = field(default=None, repr=False, compare=False)
    order: Order | None = field(default=None, repr=False, compare=False)
    secret: bytes = field(default=b"", repr=False, compare=False)

    @property
    def secret_sha256(self) -> bytes:
        """What the database keeps of the secret."""
        return hashlib.sha256(self.secret).digest()


def task_of(reads_records: bool) -> str:
    """Return the task of a job's messages: jobs that read no data have a queue of their own."""
    return "generate" if reads_records else "free"


def part_of(job_id: UUID, number: int) -> tuple[Any, ...]:
    """Return the condition for the row of a part."""
    return tables.parts.c.job_id == job_id, tables.parts.c.number == number


def held(claim: Claim) -> tuple[Any, ...]:
    """Return the conditions for the row of a claimed part whose lease has not ended."""
    return (
        *part_of(claim.job_id, claim.part),
        tables.parts.c.lease_token == claim.token,
        tables.parts.c.lease_expires > func.clock_timestamp(),
    )


def policy_of(dataset: Row[Any]) -> Policy:
    """Return the policy in a dataset's row."""
    return Policy.model_validate(dataset.policy)


def now() -> Any:
    return func.clock_timestamp()


def set_job(connection: Connection, job: Row[Any], **values: Any) -> None:
    connection.execute(update(tables.jobs).where(tables.jobs.c.id == job.id).values(**values))


def locked_job(connection: Connection, job_id: UUID) -> tuple[LockedAccount, Row[Any]]:
    """Return the account's row, then the job's: every writer takes them in this order."""
    query = select(tables.jobs).where(tables.jobs.c.id == job_id)
    locked = LockedAccount(connection, one(connection, query, "job", job_id).dataset_id)
    return locked, connection.execute(query.with_for_update()).one()


_SHOW = text("SELECT set_config('exchequer.lease', :secret, true)")


def show(connection: Connection, claim: Claim) -> None:
    """Show the lease's secret to the rest of this transaction: the owner's guards let no worker act
    without.

    A bound parameter: what sessions of the same role see of one another is the statement alone.
    """
    connection.execute(_SHOW, {"secret": claim.secret.hex()})


def fenced(connection: Connection, claim: Claim) -> tuple[LockedAccount, Row[Any]]:
    """Return the account's and the job's row, locked, for a lease's secret. Raises LeaseLost."""
    show(connection, claim)
    locked, job = locked_job(connection, claim.job_id)
    parts = tables.parts
    held = select(parts.c.number).where(
        parts.c.job_id == claim.job_id,
        parts.c.number == claim.part,
        parts.c.lease_token == claim.token,
    )
    if connection.execute(held.with_for_update()).one_or_none() is None:
        raise LeaseLost("another attempt owns this job, or it has ended")
    return locked, job


def model_of(connection: Connection, job: Row[Any]) -> Row[Any] | None:
    """Return the model of a recorded job; None where its mechanism uses none."""
    query = select(tables.models).where(tables.models.c.id == job.model_id)
    return connection.execute(query).one_or_none()
