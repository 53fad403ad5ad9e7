"""Jobs as a viewer may see them: an analyst their own, stewards and auditors all. Reads only.

One statement a page. Pages go by key: each is as quick as the first, and rows that are added
meanwhile neither hide nor repeat others.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Engine, Row, RowMapping, Select, func, or_, select

from accountant import tables
from accountant.core import mechanisms
from accountant.core.errors import ExchequerError, NotFound
from accountant.core.ledger import charges
from accountant.core.ledger.admission import delta_of
from accountant.core.ledger.caps import NO_USAGE, beyond_caps
from accountant.core.ledger.entry_bodies import costs_json
from accountant.core.ledger.export_formats import read_document
from accountant.core.ledger.policy import Policy
from accountant.core.ledger.reservations import read_costs, read_reservation, settled
from accountant.core.mechanisms.base import pure
from accountant.core.names import job_name
from accountant.core.privacy.events import from_json
from accountant.core.privacy.units import EPSILON_UNITS, to_decimal
from accountant.core.states import UNRESERVED
from accountant.database import kept, reading
from accountant.identities.actor import Actor
from accountant.queries import comments
from accountant.queries.dataset_rows import dataset_row, require_overseer
from accountant.queries.standing import refusal_shown
from accountant.schema.jobs import EntryOfJob, Job, JobInList, Progress
from accountant.schema.ledgers import ExPostCost
from accountant.tables import paging
from accountant.transactions import cap_usage, owners
from accountant.transactions.artifacts import OVERSEERS
from accountant.transactions.job_requests import restated
from accountant.transactions.ledger_log import ensure


@dataclass(frozen=True)
class Wanted:
    """Search terms for jobs; None: all. `since` is inclusive, `until` exclusive."""

    dataset: str | None = None
    mechanism: str | None = None
    state: str | None = None
    analyst: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    asker: Actor | None = None  # the analyst, as an account
    reads: UUID | None = None  # the job whose release or texts they read


EVERY_JOB = Wanted()

#: Digits of a job's id that name it, if no other begins with them.
LEAST_DIGITS = 8


def _of_parts(value: Any) -> Any:
    """Return a figure over all parts of a job, for a query of jobs."""
    query = select(value).where(tables.parts.c.job_id == tables.jobs.c.id)
    return query.correlate(tables.jobs).scalar_subquery()


def names(engine: Engine, viewer: Actor, job_ids: Iterable[object]) -> dict[str, str]:
    """Return the names of those of these jobs that `viewer` may see, by id."""
    wanted = {UUID(str(job_id)) for job_id in job_ids if job_id}
    if not wanted:
        return {}
    query = _job_query(viewer).where(tables.jobs.c.id.in_(wanted))
    with reading(engine) as connection:
        return {str(row.id): name_of(row) for row in connection.execute(query)}


#: The columns that make the name of a job.
NAMED = tuple(tables.jobs.c[name] for name in ("mechanism", "created_at", "place", "purpose"))


def name_of(row: Row[Any]) -> str:
    """Return the name of a job, of a row with its columns `NAMED`."""
    mechanism = mechanisms.get(row.mechanism)
    return job_name(mechanism.noun, row.created_at, row.place, row.purpose)


_decider = tables.users.alias()
_JOB_COLUMNS = (
    tables.jobs,
    comments.is_asked_back().label("last_turn_asks"),
    _of_parts(func.coalesce(func.sum(tables.parts.c.progress_done), 0)).label("progress_done"),
    _of_parts(func.coalesce(func.max(tables.parts.c.progress_total), 0)).label("progress_total"),
    tables.datasets.c.name.label("dataset"),
    tables.models.c.name.label("model"),
    tables.users.c.name.label("analyst"),
    tables.users.c.active.label("analyst_active"),
    tables.users.c.roles.label("analyst_roles"),
    tables.datasets.c.policy.label("dataset_policy"),
    _decider.c.name.label("decider"),
)


def _job_query(viewer: Actor) -> Select[Any]:
    jobs = tables.jobs
    query = (
        select(
            *_JOB_COLUMNS,
            tables.accounts.c.ex_post_settlement,
            tables.accounts.c.delta,
            owners.overseen(viewer).label("overseen"),
        )
        .join(tables.datasets, tables.datasets.c.id == jobs.c.dataset_id)
        .join(tables.accounts, tables.accounts.c.dataset_id == jobs.c.dataset_id)
        .outerjoin(tables.models, tables.models.c.id == jobs.c.model_id)
        .join(tables.users, tables.users.c.id == jobs.c.analyst_id)
        .outerjoin(_decider, _decider.c.id == jobs.c.decided_by)
    )
    mine = jobs.c.analyst_id == viewer.id
    return query.where(or_(mine, owners.overseen(viewer)) if viewer.roles & OVERSEERS else mine)


@kept
def jobs(
    engine: Engine,
    viewer: Actor,
    wanted: Wanted = EVERY_JOB,
    *,
    limit: int = 50,
    oldest_first: bool = False,
    after: paging.After = None,
) -> list[JobInList]:
    """Return jobs that `viewer` may see, newest first (or oldest); `after` is (created_at, id)."""
    key = [tables.jobs.c.created_at, tables.jobs.c.id]
    narrowed = _job_query(viewer).where(*_conditions(wanted))
    query = paging.window(narrowed, key, limit, after, descending=not oldest_first)
    with reading(engine) as connection:
        return [JobInList(**_fields(row)) for row in connection.execute(query)]


@kept
def job(engine: Engine, job_id: UUID, viewer: Actor) -> Job:
    """Return one job with its realized cost. Raises NotFound, for other people's jobs too."""
    with reading(engine) as connection:
        row = connection.execute(_job_query(viewer).where(tables.jobs.c.id == job_id)).one_or_none()
        if row is None:
            raise NotFound("job", str(job_id))
        entries = connection.execute(
            select(tables.entries.c.seq, tables.entries.c.kind, tables.entries.c.document)
            .where(tables.entries.c.job_id == job_id)
            .order_by(tables.entries.c.seq)
        ).all()
        job_comments = comments.read(connection, [job_id])[str(job_id)]
        fields = _fields(row)
        if row.state == "awaiting_release":
            fields["decision_reason"] = _release(connection, row)
    return Job(
        **fields,
        decided_by=row.decider,
        entries=_entries_brief(entries),
        comments=job_comments,
    )


def _release(connection: Connection, row: Row[Any]) -> str:
    """Return when a job that waits for a release fits, as things stand now."""
    policy = Policy.model_validate(row.dataset_policy)
    shared = cap_usage.shared(connection, row.dataset_id, policy, datetime.now(UTC))
    used = NO_USAGE.sharing(shared, cap_usage.sharer(policy, row.analyst, row.project))
    refused = beyond_caps(used, policy, row.epsilon_alone)
    return "Enough is released, and it is decided now" if refused is None else refused.why


def slot(engine: Engine, job_id: UUID, viewer: Actor) -> dict[str, Any] | None:
    """Return when a running job may be seen to end: every so many `seconds` after it began, `next`.

    Returns None for a job that reads no records, and on a dataset whose policy has no such times.
    `next` is None for a viewer who is not told when the job began.
    """
    with reading(engine) as connection:
        query = _job_query(viewer).add_columns(func.clock_timestamp().label("now"))
        row = connection.execute(query.where(tables.jobs.c.id == job_id)).one()
    seconds = Policy.model_validate(row.dataset_policy).results_every_seconds
    if seconds is None or not row.reads_records or row.started_at is None:
        return None
    if "started_at" in _hidden_times(row):
        return {"seconds": seconds, "next": None}
    left = seconds - (row.now - row.started_at).total_seconds() % seconds
    return {"seconds": seconds, "next": (row.now + timedelta(seconds=left)).isoformat()}


def named(engine: Engine, digits: str, viewer: Actor) -> UUID:
    """Return the one job, of those that `viewer` may see, whose id begins with these digits."""
    return of_digits(engine, _job_query(viewer), tables.jobs.c.id, digits, "job")


def of_digits(
    engine: Engine, query: Select[Any], column: ColumnElement[UUID], digits: str, kind: str
) -> UUID:
    """Return the one id of a query's `column` that begins with these digits, 8 at least.

    Raises NotFound where none does, or several do.
    """
    bare = digits.replace("-", "")
    if not LEAST_DIGITS <= len(bare) <= 32:
        raise NotFound(kind, digits[:80])
    ends = (UUID(bare.ljust(32, "0")), UUID(bare.ljust(32, "f")))
    query = query.where(column.between(*ends)).with_only_columns(column, maintain_column_froms=True)
    with reading(engine) as connection:
        ids = list(connection.execute(query.limit(2)).scalars())
    if len(ids) != 1:
        raise NotFound(kind, digits[:80])
    return UUID(str(ids[0]))


def just_asked(
    engine: Engine, viewer: Actor, request_sha256: str, key: str | None
) -> JobInList | None:
    """Return the viewer's newest equal request of ten minutes under another key, or None."""
    jobs = tables.jobs
    query = _job_query(viewer).where(
        jobs.c.analyst_id == viewer.id,
        jobs.c.request_sha256 == request_sha256,
        jobs.c.idempotency_key.is_distinct_from(key),
        jobs.c.created_at > func.clock_timestamp() - timedelta(minutes=10),
    )
    with reading(engine) as connection:
        row = connection.execute(query.order_by(jobs.c.created_at.desc()).limit(1)).one_or_none()
    return None if row is None else JobInList(**_fields(row))


class Record(NamedTuple):
    """What was asked on a job's dataset before it."""

    asked: int  # jobs by the same analyst
    largest: float | None  # the ε by itself of the largest job that was admitted


def before(engine: Engine, job_ids: Iterable[str]) -> dict[str, Record]:
    """Return what was asked before each of these jobs, in one statement; for whoever decides."""
    jobs, earlier = tables.jobs, tables.jobs.alias()
    same = earlier.c.dataset_id == jobs.c.dataset_id
    asked = select(func.count()).where(
        same, earlier.c.analyst_id == jobs.c.analyst_id, earlier.c.created_at < jobs.c.created_at
    )
    admitted = earlier.c.state.in_(("queued", "running", "settling", "succeeded", "failed"))
    largest = select(func.max(earlier.c.epsilon_alone)).where(same, admitted)
    query = select(
        jobs.c.id,
        *(part.correlate(jobs).scalar_subquery() for part in (asked, largest)),
    ).where(jobs.c.id.in_([UUID(job_id) for job_id in job_ids]))
    with reading(engine) as connection:
        return {str(row[0]): Record(*row[1:]) for row in connection.execute(query)}


def _conditions(wanted: Wanted) -> list[ColumnElement[bool]]:
    """Return the clauses that narrow a query of jobs to those wanted."""
    table = tables.jobs
    terms: list[ColumnElement[bool]] = []
    names = {
        "dataset_id": (tables.datasets, wanted.dataset),
        "analyst_id": (tables.users, wanted.analyst),
    }
    for column, (named, name) in names.items():
        if name is not None:
            owner = select(named.c.id).where(named.c.name == name).scalar_subquery()
            terms.append(table.c[column] == owner)
    if wanted.mechanism is not None:
        terms.append(table.c.mechanism == wanted.mechanism)
    if wanted.state is not None:
        terms.append(table.c.state == wanted.state)
    if wanted.asker is not None:
        terms.append(table.c.analyst_id == wanted.asker.id)
    if wanted.reads is not None:
        terms.append(table.c.parameters["from_job"].astext == str(wanted.reads))
    if wanted.since is not None:
        terms.append(table.c.created_at >= wanted.since)
    if wanted.until is not None:
        terms.append(table.c.created_at < wanted.until)
    return terms


#: Stands wherever realized figures are shown.
EX_POST_NOTE = (
    "A cap is a planning figure, neither bound nor mean. What a job really cost depends on the "
    "data: approvals given after seeing these figures leak them."
)


def ex_post(
    engine: Engine,
    name: str,
    viewer: Actor,
    *,
    limit: int | None = None,
    after: paging.After = None,
) -> list[ExPostCost]:
    """Return the real costs of the ex-post jobs of a dataset beside their caps, newest first.

    The figures depend on the data. Nothing that an analyst can reach may read them. Raises
    NotPermitted for anybody but stewards and auditors.
    """
    require_overseer(viewer)
    jobs, realized, table = tables.jobs, tables.realized_ex_post, tables.entries
    query = (
        select(jobs.c.id, jobs.c.finished_at, realized.c.amount, realized.c.curve, table.c.document)
        .join(realized, realized.c.job_id == jobs.c.id)
        .join(table, (table.c.job_id == jobs.c.id) & (table.c.kind == "RESERVE"))
    )
    query = paging.window(query, [jobs.c.finished_at, jobs.c.id], limit, after)
    with reading(engine) as connection:
        row = dataset_row(connection, name, viewer)
        rows = connection.execute(query.where(jobs.c.dataset_id == row.id)).all()
    return [
        ExPostCost(
            job=str(job_row.id),
            cap=to_decimal(
                int(read_document(job_row.document)["body"]["ex_post"]["cap"]), EPSILON_UNITS
            ),
            realized=to_decimal(job_row.amount, EPSILON_UNITS),
            curve=job_row.curve,
            finished_at=job_row.finished_at,
        )
        for job_row in rows
    ]


def _entries_brief(rows: Sequence[Any]) -> list[EntryOfJob]:
    """Return a job's entries with what each leaves charged, which of a COMMIT is not always what it
    states.

    A price with a delta covers the whole job: nothing of it returns where the job ended early.
    """
    entries, held = [], None
    for row in rows:
        body = read_document(row.document)["body"]
        costs = body.get("costs")
        if row.kind == "RESERVE":
            held = read_reservation(body)
        elif row.kind == "COMMIT" and held is not None and held.costs and costs:
            costs = costs_json(settled(held.costs, read_costs(costs)))
        entries.append(
            EntryOfJob(seq=row.seq, kind=row.kind, costs=costs, outcome=body.get("outcome"))
        )
    return entries


def _hidden_times(row: Row[Any]) -> frozenset[str]:
    """Return the moments of a job that an analyst is not told: how long data is read depends on the
    data.

    Of a job that reads records, when its run began (another job's run may have ended then) and,
    where data was read, when it ended. A job that reads what was released has no such moment.
    """
    if row.overseen or not row.reads_records:
        return frozenset()
    return frozenset(
        {"started_at"} if row.reading_began_at is None else {"started_at", "finished_at"}
    )


def _stated(row: Row[Any]) -> Mapping[str, Any] | RowMapping:
    """Return a job's price alone: at today's δ if it waits, else as it was decided."""
    delta = delta_of(row.delta)
    if row.state not in UNRESERVED or row.terms["delta"] == delta:
        return row._mapping
    try:
        return restated(row, delta).columns
    except (ExchequerError, ArithmeticError, ValueError):
        return row._mapping  # no price any more: it will not be admitted


#: As they stand in their row.
_AS_THEY_ARE = (
    "dataset",
    "mechanism",
    "model",
    "analyst",
    "purpose",
    "project",
    "parameters",
    "event",
    "state",
    "decision_reason",
    "attempt",
    "cancel_requested",
    "failure",
    "output_sha256",
)
_TIMES = ("created_at", "approval_expires", "decided_at", "queued_at", "started_at", "finished_at")


def _fields(row: Row[Any]) -> dict[str, Any]:
    """Return the fields of a job in a list, as whoever its query was made for may see them."""
    hidden, stated = _hidden_times(row), _stated(row)
    return {
        "id": str(row.id),
        "name": name_of(row),
        **{name: getattr(row, name) for name in _AS_THEY_ARE},
        "vouched": charges.level(row.mechanism, row.parameters),
        **{name: stated[name] for name in ("terms", "epsilon_alone", "breakdown")},
        "pure": None if row.event is None else pure(from_json(row.event)),
        "ex_post_cap": row.parameters.get("ex_post_cap"),
        "delta": stated["terms"]["delta"],
        "refusal": refusal_shown(row.refusal, row.ex_post_settlement, row.overseen),
        "progress": Progress(
            done=row.progress_total if row.state == "succeeded" else int(row.progress_done),
            total=row.progress_total,
            unit=mechanisms.get(row.mechanism).progress_unit,
        ),
        "asked_back": row.state == "awaiting_approval" and bool(row.last_turn_asks),
        "analyst_left": _analyst_left(row),
        "source_job": None if row.source_job_id is None else str(row.source_job_id),
        **{name: None if name in hidden else getattr(row, name) for name in _TIMES},
    }


def _analyst_left(row: Row[Any]) -> str | None:
    """Return why the analyst of a job that is not decided may ask for none any more, or None."""
    if row.state not in UNRESERVED:
        return None
    person = SimpleNamespace(name=row.analyst, active=row.analyst_active, roles=row.analyst_roles)
    return owners.departure(person, Policy.model_validate(row.dataset_policy))


class Output(NamedTuple):
    """A published output: its hash as its COMMIT holds it, and its dataset's name."""

    sha256: str
    dataset: str


def output(engine: Engine, job_id: UUID, viewer: Actor) -> Output:
    """Return a published output. Raises NotFound where there is none for this viewer.

    LedgerBehind and LogUnusable where the log outside the database does not hold the job's COMMIT.
    """
    jobs, entries = tables.jobs, tables.entries
    query = (
        _job_query(viewer)
        .add_columns(entries.c.document)
        .join(entries, (entries.c.job_id == jobs.c.id) & (entries.c.kind == "COMMIT"))
        .where(jobs.c.id == job_id, jobs.c.output_sha256.is_not(None))
    )
    with reading(engine) as connection:
        row = connection.execute(query).one_or_none()
    if row is None:
        raise NotFound("result of job", str(job_id))
    ensure(engine, row.dataset_id)
    return Output(read_document(row.document)["body"]["output_sha256"], row.dataset)
