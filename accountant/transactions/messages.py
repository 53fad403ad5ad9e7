"""Messages to workers: what waits, sent to the broker, sent again, taken away when nobody waits for
it.

A message is only a hint; the rows in `parts` are the queue. One attempt at a part, or one look, has
one row in the outbox, however often it is sent. Every step here is one statement over many rows.
"""

from collections.abc import Callable, Collection
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    Engine,
    Interval,
    Select,
    Subquery,
    Uuid,
    cast,
    delete,
    func,
    insert,
    literal,
    null,
    select,
    text,
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
    *those: ColumnElement[bool],
) -> Subquery:
    """Return what waits, as (task, subject, attempt, part, analyst_id): all of it, or for these
    tasks, and for workers of these classes.

    `those`: what else holds of the parts; they are found before their jobs are looked up.
    """
    versions, models, corpora = tables.dataset_versions, tables.models, tables.corpora
    none, nobody = literal(0), cast(null(), Uuid).label("analyst_id")
    queued = (
        parts.c.job_id.label("subject"),
        parts.c.attempt.label("attempt"),
        parts.c.number.label("part"),
        jobs.c.analyst_id,
    )
    queries: dict[str, Select[Any]] = {
        task_of(reads): select(literal(task_of(reads)).label("task"), *queued).where(
            parts.c.state == "queued",
            jobs.c.id == parts.c.job_id,
            jobs.c.reads_records.is_(reads),
            jobs.c.mechanism != charge.ID,  # another program runs it
            ~is_refused(parts.c.job_id, parts.c.number),
            *(() if classes is None else (parts.c.hardware.in_(classes),)),
            *those,
        )
        for reads in (True, False)
    }
    submitted = select(
        literal("probe").label("task"),
        jobs.c.id.label("subject"),
        jobs.c.attempt,
        none.label("part"),
        nobody,
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
            nobody,
        )
        queries[task] = checking.where(table.c.state == "checking")
    return union_all(
        *(query for task, query in queries.items() if tasks is None or task in tasks)
    ).subquery("waiting")


def _about(waiting: Subquery) -> tuple[Any, ...]:
    """Return the message about something that waits."""
    return (
        outbox.c.subject == waiting.c.subject,
        outbox.c.task == waiting.c.task,
        outbox.c.attempt == waiting.c.attempt,
        outbox.c.part == waiting.c.part,
    )


def resend(engine: Engine, seconds: float, *, whole: bool = False) -> int:
    """Have messages sent again whose subject still waits `seconds` after they were sent; returns
    how many.

    The second time after twice as long, and so on up to MOST_WAITS times; 0: all of them, now. Sent
    messages that nobody waits for are taken away. Of two relays at once, one does it.

    `whole`: all that waits is looked through for what has no message. Else those parts alone that a
    worker refused: their messages were taken away, all others' stand there as long as they wait.
    """
    waiting = _waiting()
    # one look for each sent message, of which there are few: a join reads all that waits
    awaited = select(literal(True)).where(*_about(waiting)).limit(1).scalar_subquery()
    now = func.clock_timestamp()
    waits = func.least(func.power(2, func.greatest(outbox.c.sends - 1, 0)), MOST_WAITS)
    overdue = outbox.c.sent_at < now - cast(
        func.make_interval(0, 0, 0, 0, 0, 0, seconds * waits), Interval
    )
    again = update(outbox).where(overdue, awaited).values(sent_at=None)
    written = (
        insert(outbox)
        .from_select(["task", "subject", "attempt", "part", "analyst_id"], _missing(whole))
        .returning(outbox.c.id)
    )
    done = select(outbox.c.id).where(outbox.c.sent_at.is_not(None), awaited.is_(None))
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


def _missing(whole: bool) -> Select[Any]:
    """Return the messages that are missing, of all that waits or of refused parts."""
    about_part = select(outbox.c.id).where(
        outbox.c.subject == parts.c.job_id,
        outbox.c.part == parts.c.number,
        outbox.c.attempt == parts.c.attempt,
        outbox.c.task.in_(FAIR),
    )
    of_part = (refused.c.job_id == parts.c.job_id, refused.c.number == parts.c.number)
    those = () if whole else (select(refused.c.job_id).where(*of_part).exists(),)
    waiting = _waiting(None if whole else FAIR, None, ~about_part.exists(), *those)
    return select(waiting).where(~select(outbox.c.id).where(*_about(waiting)).exists())


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


#: The messages to send: looks first, then jobs' messages, people in turn. Of each person's in each
#: queue the first few alone are read, however many wait.
_NEXT = text("""
WITH RECURSIVE queues AS (
    (
        SELECT analyst_id, task FROM outbox WHERE sent_at IS NULL AND analyst_id IS NOT NULL
        ORDER BY analyst_id, task LIMIT 1
    )
    UNION ALL
    SELECT next.analyst_id, next.task FROM queues CROSS JOIN LATERAL (
        SELECT analyst_id, task FROM outbox
        WHERE sent_at IS NULL AND (analyst_id, task) > (queues.analyst_id, queues.task)
        ORDER BY analyst_id, task LIMIT 1
    ) AS next
), unclaimed AS (
    SELECT analyst_id, task, count(*) FROM outbox
    JOIN parts ON job_id = subject AND number = part AND parts.attempt = outbox.attempt
    WHERE sent_at IS NOT NULL AND analyst_id IS NOT NULL AND parts.state = 'queued'
    GROUP BY analyst_id, task
), turns AS (
    -- those at the broker that nobody has claimed yet count first, then the unsent in their order
    SELECT mine.id, coalesce(unclaimed.count, 0) + mine.place AS turn
    FROM queues LEFT JOIN unclaimed USING (analyst_id, task) CROSS JOIN LATERAL (
        SELECT id, row_number() OVER (ORDER BY id) AS place FROM outbox
        WHERE sent_at IS NULL AND analyst_id = queues.analyst_id AND task = queues.task
        ORDER BY id LIMIT greatest(:ahead - coalesce(unclaimed.count, 0), 0)
    ) AS mine
    UNION ALL SELECT id, 0 FROM outbox WHERE sent_at IS NULL AND analyst_id IS NULL
)
SELECT outbox.*, CASE WHEN task IN ('generate', 'free') THEN
    (SELECT hardware FROM parts WHERE job_id = subject AND number = part) END AS hardware
FROM outbox JOIN turns USING (id) WHERE sent_at IS NULL
ORDER BY turn, id LIMIT :limit FOR UPDATE OF outbox SKIP LOCKED
""")


def deliver(
    engine: Engine,
    send: Callable[[str, UUID, int, int], None],
    limit: int = 100,
    ahead: int = 1_000_000,
) -> int:
    """Send unsent messages; two relays at once share the work. Returns how many were sent.

    `ahead`: people take turns, and one has at most so many at the broker that no worker has
    claimed. A message is marked after it was sent, so it may be sent twice and never not
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
        rows = connection.execute(_NEXT, {"ahead": ahead, "limit": limit}).all()
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
