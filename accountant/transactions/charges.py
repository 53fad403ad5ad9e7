"""A charge of another program, from its beginning to its end, for a client that holds its lease.

    submission.submit ──▶ queued ── begin ──▶ running ── alive ... ── settle ──▶ COMMIT
                             └── cancelled, or left ──▶ VOID    └── lost ──▶ COMMIT, whole

The client draws the lease's secret and shows it with every word, so nobody else speaks for it. No
worker has a part in it.
"""

from dataclasses import replace
from typing import Any
from uuid import UUID

from sqlalchemy import Engine, Row, select

from accountant import tables
from accountant.core.errors import Conflict, LeaseLost, NotFound
from accountant.core.ledger import charges
from accountant.core.mechanisms.charge import ID
from accountant.core.privacy.events import from_json, releases
from accountant.identities.actor import Actor
from accountant.transactions import leases, orders, settlement
from accountant.transactions.ledger_log import writing
from accountant.transactions.rows import Claim, fenced

jobs, parts = tables.jobs, tables.parts


def _own(engine: Engine, job_id: UUID, actor: Actor) -> Row[Any]:
    """Return the actor's own charge. Raises NotFound for another's, and Conflict for a job."""
    actor.require("analyst", "steward")
    query = select(jobs, tables.datasets.c.name.label("dataset")).join(
        tables.datasets, tables.datasets.c.id == jobs.c.dataset_id
    )
    with engine.connect() as connection:
        job = connection.execute(query.where(jobs.c.id == job_id)).one_or_none()
    if job is None or job.analyst_id != actor.id:
        raise NotFound("job", str(job_id))
    if job.mechanism != ID:
        raise Conflict("the job is no charge: a worker of this service runs it")
    return job


def _claim(engine: Engine, job_id: UUID, secret: bytes) -> Claim | None:
    """Return the claim whose lease has this secret, or None."""
    query = select(parts.c.lease_token, parts.c.lease_secret_sha256).where(
        parts.c.job_id == job_id, parts.c.state == "running"
    )
    with engine.connect() as connection:
        row = connection.execute(query).one_or_none()
    if row is None:
        return None
    claim = Claim(job_id, 1, row.lease_token, secret=secret)
    return claim if claim.secret_sha256 == row.lease_secret_sha256 else None


def _not_held(job: Row[Any]) -> Conflict | LeaseLost:
    """Return why nobody speaks for a charge with this secret."""
    if job.reading_began_at is None:
        return Conflict(f"the charge is {job.state.replace('_', ' ')}: it has not begun")
    return LeaseLost("the lease has ended, or is another's")


def begin(engine: Engine, job_id: UUID, actor: Actor, secret: bytes, seconds: float) -> None:
    """Take a reserved charge: from here on it is charged, whatever happens.

    The same secret begins it once, however often it is sent. Raises Conflict if it can't begin.
    """
    job = _own(engine, job_id, actor)
    claim = _claim(engine, job_id, secret)
    if claim is None and job.state == "queued":
        claim = leases.claim(
            engine, job_id, 1, job.parameters["tool"], seconds, secret=secret, charges=True
        ) or _claim(engine, job_id, secret)
    if claim is None:
        raise Conflict(f"the charge is {job.state.replace('_', ' ')}, and its lease is another's")
    if job.reading_began_at is None:
        if claim.order is None:  # it was cut off after the lease was taken
            with engine.connect() as connection:
                claim = replace(claim, order=orders.read(connection, job_id))
        leases.begin_reading(engine, claim)


def alive(
    engine: Engine, job_id: UUID, actor: Actor, secret: bytes, seconds: float, step: int
) -> bool:
    """Extend the lease and report progress. Returns whether somebody asked the charge to stop.

    Raises LeaseLost if the lease has ended: all of it is charged then.
    """
    job = _own(engine, job_id, actor)
    claim = _claim(engine, job_id, secret)
    if claim is None:
        raise _not_held(job)
    total = sum(releases(from_json(job.event)).values())
    return leases.renew(engine, claim, seconds, min(step, total), total)


def settle(
    engine: Engine,
    job_id: UUID,
    actor: Actor,
    secret: bytes,
    stated: Any,
    output: str | None,
    signature: str | None,
) -> None:
    """COMMIT what a charge spent: what is stated, if its runner signed it, else all of it.

    Raises InvalidRequest for an event that was not reserved, or that no runner signed. Nothing is
    settled then.
    """
    job = _own(engine, job_id, actor)
    claim = _claim(engine, job_id, secret)
    if claim is None:
        if job.state == "succeeded":
            return  # the answer to an earlier try was lost
        raise _not_held(job)
    said = {"history": stated, "output": output, "signature": signature}
    evidence = {name: value for name, value in said.items() if value is not None}
    held = from_json(job.event)
    event = charges.settled_event(job.parameters, job.dataset, str(job_id), evidence, held)
    with writing(engine) as connection:
        locked, row = fenced(connection, claim)
        settlement.settle_charge(locked, row, event, actor.name, evidence)
