"""Requests, proposals and offers that nobody decided on in time: they expire, and nothing is charged.

A sweep finds them, and so does an attempt to approve one. Every statement here changes only rows that
are still open and past their time by the database's clock, so it may run twice, or in two places at once.
"""

from uuid import UUID

from sqlalchemy import Connection, Engine, Table, func, select, update

from accountant import tables

jobs, proposals, offers = tables.jobs, tables.proposals, tables.offers


def expire_approvals(connection: Connection, job_id: UUID | None = None) -> int:
    """Expire what awaits approval past its time (one job, or all); returns how many.

    Such a job has no reservation: no balance moves, so no account is locked. Rows that somebody decides
    on right now are left to them.
    """
    overdue = [jobs.c.state == "awaiting_approval", jobs.c.approval_expires < func.clock_timestamp()]
    if job_id is not None:
        overdue.append(jobs.c.id == job_id)
    found = select(jobs.c.id).where(*overdue).with_for_update(skip_locked=True)
    ended = update(jobs).where(jobs.c.id.in_(found), *overdue)
    return connection.execute(ended.values(state="expired", finished_at=func.clock_timestamp())).rowcount


def expire_proposals(connection: Connection, proposal_id: UUID | None = None) -> int:
    """The same for open proposals."""
    return _expire(connection, proposals, proposal_id)


def expire_offers(connection: Connection, offer_id: UUID | None = None) -> int:
    """The same for open offers."""
    return _expire(connection, offers, offer_id)


def _expire(connection: Connection, table: Table, wanted: UUID | None) -> int:
    overdue = [table.c.state == "open", table.c.expires_at < func.clock_timestamp()]
    if wanted is not None:
        overdue.append(table.c.id == wanted)
    found = select(table.c.id).where(*overdue).with_for_update(skip_locked=True)
    ended = update(table).where(table.c.id.in_(found), *overdue)
    return connection.execute(ended.values(state="expired", decided_at=func.clock_timestamp())).rowcount


def sweep(engine: Engine) -> int:
    """Expire all that is overdue; returns how many jobs, proposals and offers."""
    with engine.begin() as connection:
        return expire_approvals(connection) + expire_proposals(connection) + expire_offers(connection)
