"""The log outside the database beside the database: at a glance, for pages, and line by line, for
checks.
"""

from collections import defaultdict
from collections.abc import Iterator
from uuid import UUID

from sqlalchemy import Engine, select

from accountant import tables
from accountant.core.errors import LedgerBehind, LogUnusable
from accountant.database import UNAVAILABLE, reading
from accountant.ledger_log.log import entries as logged_entries
from accountant.transactions import ledger_log
from accountant.transactions.ledger_log import ensure

datasets, entries = tables.datasets, tables.entries


#: What is said where entries go to the database alone: a restored backup would give spent budget
#: back.
NONE = "not configured: a restored backup would give spent budget back (EXCHEQUER_LEDGER_LOG)"


def standing(engine: Engine) -> str:
    """Return the state of the log in a few words, without names: "ok", NONE, or the fault."""
    if ledger_log.log_of(engine) is None:
        return NONE
    try:
        compared, _ = ledger_log.behind(engine)
    except LogUnusable as error:
        return str(error)
    if not compared:
        return "ok"
    count = f"{len(compared)} datasets have" if len(compared) > 1 else "1 dataset has"
    return (
        f"{count} a ledger that is not what its log holds: stop all services, then `exchequer "
        "ledger recover`"
    )


def write_problem(engine: Engine) -> str | None:
    """Return why this process can't write to the log, or None: nothing can be answered then.

    The log is asked what it is asked before each answer: that it is the database's, is what was
    signed, and holds all entries. A database that is away is no problem of the log.
    """
    log = ledger_log.log_of(engine)
    try:
        if log is not None:
            ledger_log.ensure_all(engine)
            log.require_writable()
    except LogUnusable as error:
        return str(error)
    except UNAVAILABLE:
        return None
    return None


def of_dataset(engine: Engine, dataset_id: UUID) -> list[str]:
    """Return what is wrong with one dataset's ledger beside the log, by its newest entries."""
    try:
        ensure(engine, dataset_id)
    except (LedgerBehind, LogUnusable) as error:
        return [str(error)]
    return []


def of_name(engine: Engine, name: str) -> str | None:
    """Return the same for a dataset by its name, in one sentence; None: nothing is wrong."""
    if ledger_log.log_of(engine) is None:
        return None
    with reading(engine) as connection:
        dataset_id = connection.execute(
            select(datasets.c.id).where(datasets.c.name == name)
        ).scalar_one_or_none()
    return None if dataset_id is None else next(iter(of_dataset(engine, dataset_id)), None)


def whole(engine: Engine) -> dict[str, list[str]]:
    """Return every line of the log checked, and compared with the database's entries: problems by
    dataset.

    Under "" what is wrong with the log as a whole. Entries that only the database holds are the
    newest ones; they are appended by whoever writes next, and no problem.
    """
    log = ledger_log.log_of(engine)
    if log is None:
        return {"": ["there is no log outside the database (EXCHEQUER_LEDGER_LOG)"]}
    problems: dict[str, list[str]] = defaultdict(list)
    logged: dict[str, bytearray] = defaultdict(bytearray)  # 32 bytes an entry
    try:
        ledger_log.attach(engine, log)
        for _, name, entry in logged_entries(log):
            logged[name] += bytes.fromhex(entry.hash)
        ledger_log.check_marks(engine, log)
    except LogUnusable as error:
        problems[""].append(str(error))
    for name, hashes in logged.items():
        problems[name] += _differing(engine, name, bytes(hashes))
    return {name: problem for name, problem in problems.items() if problem}


def _differing(engine: Engine, name: str, logged: bytes) -> Iterator[str]:
    query = select(entries.c.seq, entries.c.hash).join(
        datasets, datasets.c.id == entries.c.dataset_id
    )
    query = query.where(datasets.c.name == name, entries.c.seq <= len(logged) // 32).order_by(
        entries.c.seq
    )
    seq = 0
    with reading(engine) as connection:
        options = {"stream_results": True, "yield_per": 2_000}
        for row in connection.execute(query, execution_options=options):
            seq += 1
            if row.seq != seq or row.hash != logged[32 * seq - 32 : 32 * seq].hex():
                yield f"entry {seq} is another one in the database than in its log"
                return
    if seq < len(logged) // 32:
        yield str(LedgerBehind(name, seq, len(logged) // 32))
