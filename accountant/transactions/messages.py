"""Messages to workers: what waits, sent to the broker, sent again, taken away when nobody waits for
it.

A message is only a hint; the rows in `parts` are the queue. One attempt at a part, or one look, has
one row in the outbox, however often it is sent. Every step here is a statement over all that waits.
"""

from collections.abc import Callable, Collection
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import (
    CTE,
    ColumnElement,
    Engine,
    Interval,
    Select,
    Subquery,
    and_,
    cast,
    delete,
    func,
    insert,
    literal,
    select,
    union_all,
    update,
)
from sqlalchemy.dialects.postgresql import insert as upsert

from accountant import tables
from accountant.core.mechanisms import charge
from accountant.faults import reached
from accountant.transactions import maintenance
from accountant.transactions.rows import task_of

jobs, parts, outbox = tables.jobs, tables.parts, tables.outbox
refused = tables.refused_parts

#: One relay at a time looks for what must be sent again; the number is arbitrary.
_RESEND_LOCK = 0x45585152
#: The wait before a message is sent again doubles each time, up to this many times the first.
MOST_WAITS = 8
#: The tasks in whose queues people take turns; looks are quick.
FAIR = ("generate", "free")
#: No message is sent for so long about a part that a worker refused (`refuse`).
REFUSED_SECONDS = 3600
#: Most rows that one look takes away: they are in nobody's way.
_PRUNED_AT_ONCE = 10_000


def refuse(engine: Engine, job_id: UUID, part: int) -> None:
    """Record that no worker can take a part: its entries make no order, and entries never change.

    A part that there is not is left out: a message may name any.
    """
    named = select(parts.c.job_id, parts.c.number).where(
        parts.c.job_id == job_id, parts.c.number == part
    )
    row = upsert(refused).from_select(["job_id", "number"], named)
    key, now = ["job_id", "number"], {"at": func.clock_timestamp()}
    with engine.begin() as connection:
        connection.execute(row.on_conflict_do_update(index_elements=key, set_=now))


def is_refused(job_id: ColumnElement[UUID], part: ColumnElement[int]) -> ColumnElement[bool]:
    """Return whether a worker refused a part a short while ago."""
    until = refused.c.at + timedelta(seconds=REFUSED_SECONDS)
    # `now`: what calls `clock_timestamp` is read whole, before it is compared with messages.
    query = select(refused.c.job_id).where(
        refused.c.job_id == job_id, refused.c.number == part, until > func.now()
    )
    return query.exists()


def _waiting(
    tasks: Collection[str] | None = None,
    classes: Collection[str] | None = None,
    *,
    unsaid: bool = False,
) -> CTE:
    """Return what waits, as (task, subject, attempt, part): all of it, or for these tasks, and for
    workers of these classes.

    `unsaid`: of parts, those alone that no message in the outbox is about. They are found before
    their jobs are looked up, as almost all parts have one.
    """
    of_part = select(outbox.c.id).where(
        outbox.c.subject == parts.c.job_id,
        outbox.c.part == parts.c.number,
        outbox.c.attempt == parts.c.attempt,
        outbox.c.task.in_(FAIR),
    )
    versions, models, corpora = tables.dataset_versions, tables.models, tables.corpora
    none = literal(0)
    queued = (
        parts.c.job_id.label("subject"),
        parts.c.attempt.label("attempt"),
        parts.c.number.label("part"),
    )
    queries: dict[str, Select[Any]] = {
        task_of(reads): select(literal(task_of(reads)).label("task"), *queued).where(
            parts.c.state == "queued",
            jobs.c.id == parts.c.job_id,
            jobs.c.reads_records.is_(reads),
            jobs.c.mechanism != charge.ID,  # another program runs it
            ~is_refused(parts.c.job_id, parts.c.number),
            *(() if classes is None else (parts.c.hardware.in_(classes),)),
            *((~of_part.exists(),) if unsaid else ()),
        )
        for reads in (True, False)
    }
    submitted = select(
        literal("probe").label("task"),
        jobs.c.id.label("subject"),
        jobs.c.attempt,
        none.label("part"),
    )
    queries["probe"] = submitted.where(jobs.c.state == "submitted")
    for task, table in (
        ("check_dataset", versions),
        ("check_model", models),
        ("check_corpus", corpora),
    ):
        checking = select(
            literal(task).label("task"),
            table.c.id.label("subject"),
            none.label("attempt"),
            none.label("part"),
        )
        queries[task] = checking.where(table.c.state == "checking")
    return union_all(
        *(query for task, query in queries.items() if tasks is None or task in tasks)
    ).cte("waiting")


def _about(waiting: CTE) -> tuple[Any, ...]:
    """Return the message about something that waits."""
    return (
        outbox.c.subject == waiting.c.subject,
        outbox.c.task == waiting.c.task,
        outbox.c.attempt == waiting.c.attempt,
        outbox.c.part == waiting.c.part,
    )


def resend(engine: Engine, seconds: float) -> int:
    """Have messages sent again whose subject still waits `seconds` after they were sent; returns
    how many.

    The second time after twice as long, and so on up to MOST_WAITS times; 0: all of them, now. Sent
    messages that nobody waits for are taken away. Of two relays at once, one does it.
    """
    waiting = _waiting()
    now = func.clock_timestamp()
    waits = func.least(func.power(2, func.greatest(outbox.c.sends - 1, 0)), MOST_WAITS)
    overdue = outbox.c.sent_at < now - cast(
        func.make_interval(0, 0, 0, 0, 0, 0, seconds * waits), Interval
    )
    again = update(outbox).where(*_about(waiting), overdue).values(sent_at=None)
    unsaid = _waiting(unsaid=True)
    missing = select(unsaid).where(~select(outbox.c.id).where(*_about(unsaid)).exists())
    written = (
        insert(outbox)
        .from_select(["task", "subject", "attempt", "part"], missing)
        .returning(outbox.c.id)
    )
    done = select(outbox.c.id).where(
        outbox.c.sent_at.is_not(None), ~select(waiting.c.subject).where(*_about(waiting)).exists()
    )
    with engine.begin() as connection:
        if not connection.execute(
            select(func.pg_try_advisory_xact_lock(_RESEND_LOCK))
        ).scalar_one():
            return 0
        count = connection.execute(again).rowcount + len(connection.execute(written).all())
        if count:
            reached("reaper.resent")
        connection.execute(delete(outbox).where(outbox.c.id.in_(done.limit(_PRUNED_AT_ONCE))))
    return count


def longest_wait(engine: Engine, tasks: set[str], classes: Collection[str] | None = None) -> float:
    """Return the longest time (s) that a message of these tasks is unclaimed, or 0.

    Of jobs, those that wait for these classes of workers.
    """
    waiting = _waiting(tasks, classes)
    first = select(func.min(outbox.c.first_sent_at)).where(*_about(waiting))
    age = func.extract("epoch", func.clock_timestamp() - first.scalar_subquery())
    with engine.connect() as connection:
        return float(connection.execute(select(age)).scalar_one() or 0)


#: Most messages of one person that lie at the broker unclaimed, in each queue: it hands them out in
#: the order of their arrival, so who comes later waits behind so many of each other person's, and
#: no more.
AHEAD = 2


def _turns() -> Subquery:
    """Return unsent messages about jobs with the turn of each: how many of its person's lie before
    it in its queue.

    Those at the broker that nobody has claimed yet count first, then the unsent ones in their
    order.
    """
    by_person = (outbox.c.task, jobs.c.analyst_id)
    of_jobs = (jobs.c.id == outbox.c.subject, outbox.c.task.in_(FAIR))
    unclaimed = (
        parts.c.job_id == outbox.c.subject,
        parts.c.number == outbox.c.part,
        parts.c.attempt == outbox.c.attempt,
        parts.c.state == "queued",
    )
    sent = (
        select(*by_person, func.count().label("count"))
        .where(*of_jobs, *unclaimed, outbox.c.sent_at.is_not(None))
        .group_by(*by_person)
        .subquery("sent")
    )
    place = func.row_number().over(partition_by=by_person, order_by=outbox.c.id)
    unsent = select(outbox.c.id, *by_person, place.label("place")).where(
        *of_jobs, outbox.c.sent_at.is_(None)
    )
    mine = unsent.subquery("mine")
    turn = (func.coalesce(sent.c.count, 0) + mine.c.place).label("turn")
    joined = mine.outerjoin(
        sent, and_(sent.c.task == mine.c.task, sent.c.analyst_id == mine.c.analyst_id)
    )
    return select(mine.c.id, turn).select_from(joined).subquery("turns")


def _unsent(ahead: int | None) -> Select[Any]:
    """Return the messages to send: looks first, then jobs' messages, people in turn."""
    of_part = (parts.c.job_id == outbox.c.subject, parts.c.number == outbox.c.part)
    hardware = select(parts.c.hardware).where(*of_part, outbox.c.task.in_(FAIR)).scalar_subquery()
    query = select(outbox, hardware.label("hardware")).where(outbox.c.sent_at.is_(None))
    if ahead is None:
        return query.order_by(outbox.c.id)
    turns = _turns()
    query = query.outerjoin(turns, turns.c.id == outbox.c.id)
    turn = func.coalesce(turns.c.turn, 0)
    return query.where(turn <= ahead).order_by(turn, outbox.c.id)


def deliver(
    engine: Engine,
    send: Callable[[str, UUID, int, int], None],
    limit: int = 100,
    ahead: int | None = None,
) -> int:
    """Send unsent messages; two relays at once share the work. Returns how many were sent.

    `ahead`: people take turns, and one has at most so many at the broker that no worker has
    claimed; None: all. A message is marked after it was sent, so it may be sent twice and never not
    at all. Behind a task stands, after a dot, the class of workers that its part waits for.
    """
    now = func.clock_timestamp()
    sent = {
        "sent_at": now,
        "first_sent_at": func.coalesce(outbox.c.first_sent_at, now),
        "sends": outbox.c.sends + 1,
    }
    with engine.begin() as connection:
        if maintenance.reason(connection) is not None:
            return 0
        rows = connection.execute(
            _unsent(ahead).limit(limit).with_for_update(of=outbox, skip_locked=True)
        ).all()
        if rows:
            reached("relay.taken")
        for row in rows:
            task = f"{row.task}.{row.hardware}" if row.hardware else row.task
            send(task, row.subject, row.attempt, row.part)
            reached("relay.sent")
        if rows:
            connection.execute(
                update(outbox).where(outbox.c.id.in_([row.id for row in rows])).values(sent)
            )
            reached("relay.marked")
        return len(rows)
