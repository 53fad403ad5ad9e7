"""Jobs that wait for a release of a shared ε (core.ledger.fair_use). The relay admits them.

look, without a lock ──▶ does any fit by now? ──▶ lock the account's row, choose again,
                                                  decide on that one as on any other
"""

from collections.abc import Collection
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection, Engine, select

from accountant import tables
from accountant.core.ledger.caps import counted
from accountant.core.ledger.fair_use import Request, next_of
from accountant.core.ledger.policy import Policy
from accountant.transactions import approval, cap_usage, maintenance, set_aside
from accountant.transactions.ledger_log import writing
from accountant.transactions.locked_account import LockedAccount
from accountant.transactions.rows import now, policy_of
from accountant.transactions.second_calculation import admitting

jobs, users = tables.jobs, tables.users
WAITING = "awaiting_release"
_KIND = "release of job"


def admit(engine: Engine) -> int:
    """Decide on every waiting job that fits what is released, and return how many.

    The smallest dominant share goes first, and each counts before the next is chosen. A job that
    fits no later release either is decided on as well: it is refused.
    """
    waiting = select(jobs.c.dataset_id).where(jobs.c.state == WAITING).distinct()
    with engine.connect() as connection:
        datasets = connection.execute(waiting).scalars().all()
        if datasets and maintenance.reason(connection) is not None:
            return 0
    decided = 0
    for dataset_id in datasets:
        skip: set[UUID] = set()
        while (job_id := _looked_for(engine, dataset_id, skip)) is not None:
            with set_aside.apart(_KIND, job_id):
                decided += _decide(engine, dataset_id, job_id, skip)
            skip.add(job_id)
    return decided


def _looked_for(engine: Engine, dataset_id: UUID, skip: Collection[UUID]) -> UUID | None:
    with engine.connect() as connection:
        at = connection.execute(select(now())).scalar_one()
        return _next(connection, dataset_id, at, skip)


@admitting
def _decide(engine: Engine, dataset_id: UUID, job_id: UUID, skip: Collection[UUID]) -> bool:
    """Decide on a job if it is still its turn, and return whether it was."""
    with writing(engine) as connection:
        locked = LockedAccount(connection, dataset_id)
        if _next(connection, dataset_id, locked.now, skip) != job_id:
            return False
        held = select(jobs).where(jobs.c.id == job_id).with_for_update()
        approval.released(
            locked, connection.execute(held).one(), _policy_of(connection, dataset_id)
        )
    return True


def _next(
    connection: Connection, dataset_id: UUID, at: datetime, skip: Collection[UUID]
) -> UUID | None:
    """Return the job that is decided on next, or None while the rest has to wait."""
    policy = _policy_of(connection, dataset_id)
    query = (
        select(jobs.c.id, jobs.c.project, jobs.c.epsilon_alone, users.c.name)
        .join(users, users.c.id == jobs.c.analyst_id)
        .where(jobs.c.dataset_id == dataset_id, jobs.c.state == WAITING)
    )
    waiting = [
        Request(job.id, cap_usage.sharer(policy, job.name, job.project), counted(job.epsilon_alone))
        for job in connection.execute(query.order_by(jobs.c.created_at, jobs.c.id))
        if job.id not in skip and not set_aside.waits(_KIND, job.id)
    ]
    shared = cap_usage.shared(connection, dataset_id, policy, at)
    if shared is None:  # nothing is shared any more: the rest of the policy decides
        return waiting[0].key if waiting else None
    request = next_of(waiting, shared)
    return None if request is None else request.key


def _policy_of(connection: Connection, dataset_id: UUID) -> Policy:
    datasets = tables.datasets
    return policy_of(connection.execute(select(datasets).where(datasets.c.id == dataset_id)).one())
