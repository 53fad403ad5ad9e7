"""A ledger beside its log outside the database: compared before anything is done, appended before
it is told.

    writing ── lock the account's row ── compare ── write ── COMMIT ── append, sync ──▶ the answer
    ensure  ── read the log, then the row ── compare ── append what a crash left out ──▶ a lease, an
            output
    ensure_all ── the same for every ledger, in one look ──▶ any answer, a notice

The database may be ahead of the log, where a process is about to append or died before it did:
whoever comes next appends the entries from the database. It is never behind, or another one: unless
it was restored, failed over without its tail, or was written to beside the service. Then nothing is
done (LedgerBehind).

The lock between processes is never held while the database is waited for: the two can't wait for
one another.
"""

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from uuid import UUID

from sqlalchemy import Connection, Engine, Select, func, select, text
from sqlalchemy.dialects.postgresql import insert as upsert

from accountant import tables
from accountant.core.errors import LedgerBehind, LogCut, LogUnusable
from accountant.core.ledger.export_formats import read_document
from accountant.database import reading
from accountant.faults import reached
from accountant.ledger_log.lines import FOLDED_DIGITS, Head, Logged
from accountant.ledger_log.log import Gap, LedgerLog
from accountant.transactions.group_commit import Combiner, Take, Ticket

accounts, entries, datasets, marks = (
    tables.accounts,
    tables.entries,
    tables.datasets,
    tables.ledger_log_marks,
)

logger = logging.getLogger(__name__)

#: Entries that are read from the database at once where the log lacks many.
_AT_ONCE = 2_000


@dataclass
class Writing:
    """The accounts that a transaction locked: where each stands, and its new entries."""

    log: LedgerLog | None
    heads: dict[UUID, tuple[str, Head]] = field(default_factory=dict)
    entries: dict[UUID, list[Logged]] = field(default_factory=dict)


def log_of(engine: Engine | Connection) -> LedgerLog | None:
    """Return the log that entries of this database also go to; None: there is none."""
    log: LedgerLog | None = engine.get_execution_options().get("ledger_log")
    return log


def transaction_of(connection: Connection) -> Writing | None:
    """Return the open `writing` of a connection; None: it may post no entry."""
    found: Writing | None = connection.get_execution_options().get("ledger_writing")
    return found


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """Return a transaction that may post entries; left without an error, the log holds them,
    synced.

    Raises LogUnusable after the COMMIT where entries can't be appended: nobody may be answered
    then.
    """
    log = log_of(engine)
    if log is not None:
        attach(engine, log)
        log.require_room()
    state = Writing(log)
    with engine.connect().execution_options(ledger_writing=state) as connection, connection.begin():
        yield connection
    committed(engine, state)


def committed(engine: Engine, state: Writing) -> None:
    """Put what was just committed into the log, synced. Raises LogUnusable."""
    reached("writing.committed")
    if state.log is None:
        return
    for dataset_id, (name, head) in state.heads.items():
        _fill(engine, state.log, dataset_id, name, head, state.entries.get(dataset_id, []))


# --- comparison ---------------------------------------------------------------------------------


def compare(connection: Connection, dataset_id: UUID, dataset: str, database: Head) -> None:
    """Raise LedgerBehind unless the log's entries of this dataset are the first of the database's.

    `database` was read after everything that the log holds by now was committed: under the
    account's lock, or after a look at the log.
    """
    log = log_of(connection)
    if log is not None:
        compare_heads(connection, dataset_id, dataset, log.head(dataset), database)


def compare_heads(
    connection: Connection, dataset_id: UUID, dataset: str, logged: Head, database: Head
) -> None:
    """The same for a head of the log that was read before the `database`'s."""
    if database == logged or not logged.seq:
        return
    if database.seq < logged.seq:
        raise LedgerBehind(dataset, database.seq, logged.seq)
    found = database.hash
    if database.seq > logged.seq:  # somebody is about to append, or died before
        query = select(entries.c.hash).where(
            entries.c.dataset_id == dataset_id, entries.c.seq == logged.seq
        )
        found = connection.execute(query).scalar_one_or_none() or ""
    if found != logged.hash:
        raise LedgerBehind(dataset, database.seq, logged.seq, logged.seq)


def ensure(engine: Engine, dataset_id: UUID) -> None:
    """Make sure that the log holds all entries of a dataset that are committed by now, synced.

    Before an output is handed out, a job is leased, an export is signed. Raises LedgerBehind,
    LogUnusable.
    """
    _ensure(engine, select(datasets.c.id, datasets.c.name).where(datasets.c.id == dataset_id))


def _ensure(engine: Engine, named: Select[tuple[UUID, str]]) -> None:
    """Ensure it for the dataset that a query names; do nothing if it names none."""
    log = log_of(engine)
    if log is None:
        return
    attach(engine, log)
    with engine.connect() as connection:
        row = connection.execute(named).one_or_none()
        if row is None:
            return
        dataset_id, name = row.id, row.name
        logged = log.head(name)  # first: what the log holds was committed before
        database = _head(connection, dataset_id)
        compare_heads(connection, dataset_id, name, logged, database)
    _fill(engine, log, dataset_id, name, database)


def holds(engine: Engine, dataset_id: UUID) -> bool:
    """Return True if there is no log, or `ensure` raises nothing: the ledger is the log's."""
    try:
        ensure(engine, dataset_id)
    except (LedgerBehind, LogUnusable) as error:
        logger.error("%s", error)
        return False
    return True


def ensure_all(engine: Engine) -> frozenset[str]:
    """Make sure that the log holds all entries of all datasets that are committed by now, synced.

    Call it after whatever is shown was read, and before it leaves. Returns the datasets whose
    ledger is behind its log, or another one: nothing of theirs can be appended. Where nobody is
    just writing it costs one statement, and threads share what they wait for. Raises LogUnusable.
    """
    return frozenset() if log_of(engine) is None else _showing.ask(engine, None)


def _ensure_all(engine: Engine, take: Take[None, frozenset[str]]) -> None:
    waiting = take()  # first: what they read was committed before
    behind_now = frozenset[str]() if _all_logged(engine) else _append_rest(engine)
    for ticket in waiting:
        ticket.answer(behind_now)


#: All heads of the database in one number, as `Position.folded` has those of the log.
_FOLDED = text(
    "SELECT coalesce(bit_xor(('x' || left(chain_head, :digits))::bit(60)::bigint), 0) FROM accounts"
).bindparams(digits=FOLDED_DIGITS)


def _all_logged(engine: Engine) -> bool:
    """Return True if every ledger ends where the log says, synced."""
    log = log_of(engine)
    assert log is not None
    attach(engine, log)
    logged = log.folded()  # first: what the log holds was committed before
    with reading(engine) as connection:
        if connection.execute(_FOLDED).scalar_one() != logged:
            return False
    log.sync()
    return True


def _append_rest(engine: Engine) -> frozenset[str]:
    found, ahead = behind(engine)
    names = {error.dataset for error in found}
    for dataset_id in ahead:
        try:
            ensure(engine, dataset_id)
        except LedgerBehind as error:
            names.add(error.dataset)
    log = log_of(engine)
    assert log is not None
    log.sync()
    return frozenset(names)


#: Whoever waits for what another thread does with the log waits no longer: its disk may hang.
WAIT_SECONDS = 15.0


def _late() -> LogUnusable:
    return LogUnusable("its disk does not answer")


def ensure_job(engine: Engine, job_id: UUID) -> None:
    """Ensure it for the dataset of a job; do nothing if there is no such job."""
    jobs = tables.jobs
    query = select(datasets.c.id, datasets.c.name).join(jobs, jobs.c.dataset_id == datasets.c.id)
    _ensure(engine, query.where(jobs.c.id == job_id))


def last_logged(connection: Connection, dataset_id: UUID, dataset: str) -> Head:
    """Return a dataset's last entry in the log; where there is no log, the last in the database."""
    log = log_of(connection)
    return _head(connection, dataset_id) if log is None else log.head(dataset)


def require_known(connection: Connection) -> None:
    """Raise LedgerBehind where the log holds a dataset that the database does not know.

    Its units are in no fingerprint any more: the same people could be registered with another
    allowance.
    """
    log = log_of(connection)
    if log is None:
        return
    heads = log.position().heads
    known = set(connection.execute(select(datasets.c.name)).scalars())
    for name in sorted(heads.keys() - known):
        raise LedgerBehind(name, 0, heads[name].seq)


def _head(connection: Connection, dataset_id: UUID) -> Head:
    query = select(accounts.c.chain_seq, accounts.c.chain_head).where(
        accounts.c.dataset_id == dataset_id
    )
    row = connection.execute(query).one()
    return Head(row.chain_seq, row.chain_head)


# --- appending ----------------------------------------------------------------------------------

Group = tuple[str, Sequence[Logged]]


def _append_all(log: LedgerLog, take: Take[Group, Exception | None]) -> None:
    """Append what all waiting threads bring in one write and one sync."""
    batch: list[Ticket[Group, Exception | None]] = take()
    outcomes = log.append([ticket.question for ticket in batch])
    for ticket, outcome in zip(batch, outcomes, strict=True):
        ticket.answer(outcome)


def _combiners() -> tuple[
    Combiner[LedgerLog, Group, Exception | None], Combiner[Engine, None, frozenset[str]]
]:
    return (
        Combiner(_append_all, 1_000, WAIT_SECONDS, _late),
        Combiner(_ensure_all, 1_000, WAIT_SECONDS, _late),
    )


_appending, _showing = _combiners()


def _begin_anew() -> None:
    """A forked child has none of the threads that may have held the queue's lock."""
    global _appending, _showing
    _appending, _showing = _combiners()


os.register_at_fork(after_in_child=_begin_anew)


def _fill(
    engine: Engine,
    log: LedgerLog,
    dataset_id: UUID,
    dataset: str,
    until: Head,
    known: Sequence[Logged] = (),
) -> None:
    """Append a dataset's entries up to `until`: the `known` ones and those missing before."""
    if known and _appending.ask(log, (dataset, known)) is None and log.seen(dataset) == until:
        return  # as nearly always: appended and synced, all of it
    while True:
        head = log.head(dataset)
        if head.seq >= until.seq:
            break
        follow = (
            known
            if known and known[0].seq <= head.seq + 1
            else _after(engine, dataset_id, head.seq)
        )
        if not follow:  # it had them a moment ago
            raise LedgerBehind(dataset, head.seq, until.seq)
        if follow is not known and read_document(follow[0].text)["dataset"] != dataset:
            # The dataset's row has another name than its entries: no log of that name is begun.
            raise LedgerBehind(dataset, until.seq, head.seq, follow[0].seq)
        outcome = _appending.ask(log, (dataset, follow))
        if outcome is not None and not isinstance(outcome, Gap):
            raise outcome
        if outcome is None and Head(follow[-1].seq, follow[-1].hash) == until:
            return
    log.sync()
    if head != until:
        with engine.connect() as connection:
            compare_heads(connection, dataset_id, dataset, head, _head(connection, dataset_id))


def _after(engine: Engine, dataset_id: UUID, seq: int) -> list[Logged]:
    """Return the next committed entries of a dataset after `seq`, from the database."""
    columns = (entries.c.seq, entries.c.previous, entries.c.hash, entries.c.document)
    query = select(*columns).where(entries.c.dataset_id == dataset_id, entries.c.seq > seq)
    with engine.connect() as connection:
        rows = connection.execute(query.order_by(entries.c.seq).limit(_AT_ONCE)).all()
    return [Logged(*row) for row in rows]


# --- whose log it is ----------------------------------------------------------------------------


def attach(engine: Engine, log: LedgerLog) -> None:
    """Make sure, once a process, that database and log belong together; the first to meet begin the
    log.

    The database keeps the log's random name from then on. A log of another name, an empty folder
    where there was a log, and a log with entries beside a database that never had one are refused:
    LogUnusable.
    """
    if log.attached_to == engine.url:
        return
    with engine.begin() as connection:
        known = connection.execute(select(marks.c.log).where(marks.c.n == 0)).scalar_one_or_none()
    if known is None:
        if log.length():
            raise LogUnusable(
                "it holds entries, and this database has no log: it is another, or older"
            )
        row = {"n": 0, "log": log.begin(), "line": "", **cluster(engine)}
        with engine.begin() as connection:
            connection.execute(upsert(marks).values(row).on_conflict_do_nothing())
            known = connection.execute(select(marks.c.log).where(marks.c.n == 0)).scalar_one()
    if log.identity != known:
        found = "holds none" if log.identity is None else f"holds {log.identity}"
        raise LogUnusable(f"this database's log is {known}, and the place that was named {found}")
    check_marks(engine, log)
    log.attached_to = engine.url


def cluster(engine: Engine) -> dict[str, object]:
    """Return which server this is; a restore or failover begins another timeline."""
    query = text(
        "SELECT system_identifier::text AS system, CASE WHEN pg_is_in_recovery() THEN NULL ELSE "
        "pg_walfile_name(pg_current_wal_lsn()) END AS place FROM pg_control_system()"
    )
    with engine.connect() as connection:
        row = connection.execute(query).one()
    return {"system": row.system, "timeline": None if row.place is None else int(row.place[:8], 16)}


# --- all ledgers at once --------------------------------------------------------------------------


def behind(engine: Engine) -> tuple[list[LedgerBehind], list[UUID]]:
    """Return every dataset's head compared: (what is behind its log or another, those whose end the
    log lacks).

    Raises LogUnusable.
    """
    log = log_of(engine)
    if log is None:
        return [], []
    attach(engine, log)
    heads = log.position().heads  # first: what the log holds was committed before
    query = select(datasets.c.id, datasets.c.name, accounts.c.chain_seq, accounts.c.chain_head)
    found, ahead, known = [], [], set()
    with reading(engine) as connection:
        rows = connection.execute(query.join(accounts, accounts.c.dataset_id == datasets.c.id))
        for dataset_id, name, seq, head in rows.all():
            known.add(name)
            logged = heads.get(name, Head())
            if logged.hash == head and logged.seq == seq:
                continue
            try:
                compare_heads(connection, dataset_id, name, logged, Head(seq, head))
            except LedgerBehind as error:
                found.append(error)
            else:
                if seq > logged.seq:
                    ahead.append(dataset_id)
    lost = sorted(heads.keys() - known)
    return [*found, *(LedgerBehind(name, 0, heads[name].seq) for name in lost)], ahead


def tend(engine: Engine, *, whole: bool = False) -> list[str]:
    """Append what a process that died left out, and mark where the log stands; returns what is
    behind.

    Called every few seconds: heads are compared one by one where all of them together are not the
    log's. `whole`: in any case, when the relay starts and every few minutes.
    """
    log = log_of(engine)
    if log is None:
        return []
    found, ahead = ([], []) if not whole and _all_logged(engine) else behind(engine)
    for dataset_id in ahead:
        holds(engine, dataset_id)
    told = [str(each) for each in found]
    if not found:
        mark(engine, log)
    return told


# --- marks: a log that was cut short --------------------------------------------------------------

#: So many further entries, at most, are between two marks.
MARK_EVERY = 1_000


def mark(engine: Engine, log: LedgerLog, least: int = MARK_EVERY) -> bool:
    """Write the log's position into the database, if `least` entries came since the last."""
    log.sync()
    position = log.position()
    with engine.begin() as connection:
        last = connection.execute(select(func.max(marks.c.n))).scalar_one()
        if last is None or position.n - last < max(1, least):
            return False
        entry = log.entry_at(position.n)
        row = {"n": position.n, "log": log.identity, "line": entry and entry[0], **cluster(engine)}
        connection.execute(upsert(marks).values(row).on_conflict_do_nothing())
    return True


def check_marks(engine: Engine, log: LedgerLog) -> None:
    """Raise LogCut where the log is shorter than the newest mark says, or another line stands
    there.

    A log that was cut short after its newest mark can't be told from one that a crash left behind:
    the database holds those entries still, and they are appended again.
    """
    with engine.connect() as connection:
        query = select(marks).where(marks.c.n > 0).order_by(marks.c.n.desc()).limit(1)
        row = connection.execute(query).one_or_none()
    if row is None:
        return
    if log.length() < row.n:
        raise LogCut(f"it was cut short: it held {row.n:,} entries and holds {log.length():,}")
    entry = log.entry_at(row.n)
    if entry is None or entry[0] != row.line:
        raise LogCut(f"the line of entry {row.n:,} of all is another one than it was")
