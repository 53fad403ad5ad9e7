"""Rows that several transactions read, lock and change."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, func, insert, select, update

from accountant import tables
from accountant.core.errors import (
    LeaseLost,
    NotFound,
    invalid,
)
from accountant.core.ledger.policy import Policy
from accountant.transactions.locked_account import LockedAccount


@dataclass(frozen=True)
class Claim:
    """A worker's hold on one attempt at one part of a job; the token fences off everybody else."""

    job_id: UUID
    attempt: int
    token: UUID
    part: int = 0


def policy_of(dataset: Row[Any]) -> Policy:
    """The policy in a dataset's row."""
    return Policy.model_validate(dataset.policy)


def now() -> Any:
    return func.clock_timestamp()


def set_job(connection: Connection, job: Row[Any], **values: Any) -> None:
    connection.execute(update(tables.jobs).where(tables.jobs.c.id == job.id).values(**values))


def send(connection: Connection, task: str, subject: UUID, attempt: int = 0) -> None:
    connection.execute(insert(tables.outbox).values(task=task, subject=subject, attempt=attempt))


def job_row(connection: Connection, job_id: UUID) -> Row[Any]:
    job = connection.execute(
        select(tables.jobs).where(tables.jobs.c.id == job_id).with_for_update()
    ).one_or_none()
    if job is None:
        raise NotFound("job", str(job_id))
    return job


def locked_job(connection: Connection, job_id: UUID) -> tuple[LockedAccount, Row[Any]]:
    """The account's row, then the job's: every writer takes them in this order."""
    dataset_id = connection.execute(
        select(tables.jobs.c.dataset_id).where(tables.jobs.c.id == job_id)
    ).scalar_one_or_none()
    if dataset_id is None:
        raise NotFound("job", str(job_id))
    locked = LockedAccount(connection, dataset_id)
    return locked, job_row(connection, job_id)


def fenced(connection: Connection, claim: Claim) -> tuple[LockedAccount, Row[Any]]:
    locked, job = locked_job(connection, claim.job_id)
    parts = tables.parts
    held = select(parts.c.number).where(
        parts.c.job_id == claim.job_id, parts.c.number == claim.part, parts.c.lease_token == claim.token
    )
    if connection.execute(held.with_for_update()).one_or_none() is None:
        raise LeaseLost("another attempt owns this job, or it has ended")
    return locked, job


def dataset_row(connection: Connection, name: str) -> Row[Any]:
    row = connection.execute(select(tables.datasets).where(tables.datasets.c.name == name)).one_or_none()
    if row is None:
        raise invalid("dataset", f"there is no dataset {name!r}", "a name from the catalogue")
    return row


def model_of(connection: Connection, job: Row[Any]) -> Row[Any] | None:
    """The model of a recorded job; None where its mechanism uses none."""
    query = select(tables.models).where(tables.models.c.id == job.model_id)
    return connection.execute(query).one_or_none()


def user_name(connection: Connection, user_id: UUID) -> str:
    name: str = connection.execute(
        select(tables.users.c.name).where(tables.users.c.id == user_id)
    ).scalar_one()
    return name
