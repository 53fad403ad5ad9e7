"""What people and projects use of a dataset: sums that caps are compared with, moved with the ledger.

Only the ledger moves them, in the transaction that appends the entry and under the account's lock. A job
counts what it asked for, whether it ended early or not, until its reservation is void or its charge is
corrected to nothing.
"""

from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, and_, or_, select, text, update
from sqlalchemy.dialects.postgresql import insert

from accountant import tables
from accountant.core.admission import Policy
from accountant.core.caps import ANALYST, NO_USAGE, PROJECT, Usage, counted, limits

usage = tables.usage


def holders(job: Row[Any]) -> dict[str, str]:
    """Whose caps a job counts on: its analyst's, and its project's where it names one."""
    found = {ANALYST: str(job.analyst_id)}
    return found if job.project is None else {**found, PROJECT: job.project}


def used(connection: Connection, dataset_id: UUID, analyst: UUID, project: str | None) -> Usage:
    """What both use now; under the account's lock nobody changes it."""
    wanted = {ANALYST: str(analyst)} | ({} if project is None else {PROJECT: project})
    query = select(usage.c.kind, usage.c.spent + usage.c.reserved).where(_rows(dataset_id, wanted))
    return Usage(**{kind: int(amount) for kind, amount in connection.execute(query)})


def used_where_capped(connection: Connection, job: Row[Any], policy: Policy) -> Usage:
    """The same for a job; not looked up where the policy sets no cap."""
    return used(connection, job.dataset_id, job.analyst_id, job.project) if limits(policy) else NO_USAGE


def reserve(connection: Connection, job: Row[Any], policy: Policy) -> None:
    """Count a job that is reserved now; the row's CHECK holds the cap that it was admitted under."""
    amount = counted(job.epsilon_alone)
    caps = limits(policy)
    rows = [
        {
            "dataset_id": job.dataset_id,
            "kind": kind,
            "holder": holder,
            "reserved": amount,
            "cap": caps.get(kind) if amount else None,  # what is free fits beyond every cap
        }
        for kind, holder in holders(job).items()
    ]
    added = insert(usage).values(rows)
    connection.execute(
        added.on_conflict_do_update(
            index_elements=["dataset_id", "kind", "holder"],
            set_={"reserved": usage.c.reserved + added.excluded.reserved, "cap": added.excluded.cap},
        )
    )


def settle(connection: Connection, job: Row[Any], *, charged: bool) -> None:
    """The job's reservation is resolved: charged, or void and counted no more."""
    amount = counted(job.epsilon_alone)
    values: dict[str, Any] = {"reserved": usage.c.reserved - amount}
    if charged:
        values["spent"] = usage.c.spent + amount
    _move(connection, job, values)


def correct(connection: Connection, job: Row[Any], sign: int) -> None:
    """A correction made a void job count (1) or a charged one void (-1): that may pass a cap."""
    if sign:
        _move(connection, job, {"spent": usage.c.spent + sign * counted(job.epsilon_alone), "cap": None})


def _move(connection: Connection, job: Row[Any], values: dict[str, Any]) -> None:
    connection.execute(update(usage).where(_rows(job.dataset_id, holders(job))).values(**values))


def _rows(dataset_id: UUID, wanted: dict[str, str]) -> Any:
    pairs = [and_(usage.c.kind == kind, usage.c.holder == holder) for kind, holder in wanted.items()]
    return and_(usage.c.dataset_id == dataset_id, or_(*pairs))


def problems(connection: Connection, dataset_id: UUID) -> list[str]:
    """Where the sums are not those of the jobs with their entries."""
    # The newest entry of a job says how it counts: RESERVE reserved, VOID not, the others by their body.
    newest = text(
        "SELECT DISTINCT ON (e.job_id) j.id, j.dataset_id, j.analyst_id, j.project, j.epsilon_alone, e.kind, "
        "CASE WHEN e.kind = 'REVERSAL' THEN (e.document::jsonb -> 'body' ->> 'counts')::boolean "
        "ELSE e.kind <> 'VOID' END AS counts "
        "FROM entries e JOIN jobs j ON j.id = e.job_id "
        "WHERE e.dataset_id = :dataset ORDER BY e.job_id, e.seq DESC"
    )
    found: dict[tuple[str, str], list[int]] = {}
    for job in connection.execute(newest, {"dataset": dataset_id}):
        for holder in holders(job).items():
            sums = found.setdefault(holder, [0, 0])
            if job.counts:
                sums[job.kind != "RESERVE"] += counted(job.epsilon_alone)
    query = select(usage.c.kind, usage.c.holder, usage.c.reserved, usage.c.spent)
    kept = {
        (row.kind, row.holder): [row.reserved, row.spent]
        for row in connection.execute(query.where(usage.c.dataset_id == dataset_id))
    }
    wrong = []
    for holder in sorted({*found, *kept}):
        stated, counted_anew = kept.get(holder, [0, 0]), found.get(holder, [0, 0])
        if stated != counted_anew:
            wrong.append(f"the sums of {' '.join(holder)} are {stated}, those of its jobs {counted_anew}")
    return wrong
