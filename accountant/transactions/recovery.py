"""A database that is behind its log is brought forward: every entry, and the rows that state the
same.

    plan ── the whole log, checked ── each dataset's entries, verified ──▶ what is missing
    recover ── the account's row ── entries, books, jobs ── jobs without an end are charged in full
      ──▶ COMMIT

Of data, what was kept beside the log is written again (ledger_log.sources). What neither states is
lost with what the backup lacks: purposes, projects, models' addresses, passwords, public corpora.
An output is looked for by its hash where outputs are kept; where it is gone, its job says so and
never runs again.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, Row, select, update

from accountant import tables
from accountant.core.errors import Conflict, LogCut, LogUnusable, VerificationFailed
from accountant.core.ledger.export_formats import Verifier, read_document
from accountant.core.ledger.hash_chain import EntryKind, read_entry
from accountant.database import reading
from accountant.ledger_log import sources
from accountant.ledger_log.lines import Head, Logged
from accountant.ledger_log.log import LedgerLog, entries
from accountant.transactions import cap_usage, ledger_log, recovered_rows
from accountant.transactions.ledger_log import writing
from accountant.transactions.locked_account import LockedAccount
from accountant.transactions.recovered_rows import LOST_ATTEMPT, Find, Sources
from accountant.transactions.settlement import give_up

__all__ = ["Find", "Plan", "plan", "recover"]

datasets, accounts, jobs = tables.datasets, tables.accounts, tables.jobs

#: States of a job whose reservation has no end.
LIVE = ("queued", "running", "settling")


@dataclass
class Plan:
    """What a recovery would do with one dataset; `problem`: why it can't."""

    dataset: str
    database: Head
    log: Head
    missing: list[Logged] = field(default_factory=list)
    #: Jobs that no entry ends: reading may have begun, so they are charged in full.
    charged: list[str] = field(default_factory=list)
    problem: str | None = None


def plan(engine: Engine, only: str | None = None, *, restored: bool = False) -> list[Plan]:
    """Return what `recover` would do: a plan for each dataset that is behind, or whose jobs have to
    end.

    The whole log is read and checked, and with it every entry of a dataset that is behind. Where
    one is, the database was restored, and any live job of any dataset may have read since: all of
    them are charged. `restored`: so it was, though no entry is missing; that a job began to read is
    in no entry until it ends. `only`: the one dataset of this name. Raises LogUnusable.
    """
    log = ledger_log.log_of(engine)
    if log is None:
        raise LogUnusable("none is configured (EXCHEQUER_LEDGER_LOG)")
    ledger_log.attach(engine, log)
    heads = _databases_heads(engine)
    position = log.position()
    behind = {
        name: _Gathered(heads.get(name, Head()))
        for name, head in position.heads.items()
        if only in (None, name) and _is_behind(engine, name, heads.get(name, Head()), head)
    }
    for _, name, entry in entries(log):
        if name in behind:
            behind[name].add(name, entry)
    plans = [_planned(log, name, position.heads[name], each) for name, each in behind.items()]
    if plans or restored:
        healthy = [name for name in heads if name not in behind and only in (None, name)]
        plans += [
            Plan(name, heads[name], heads[name], charged=live)
            for name in sorted(healthy)
            if (live := _live(engine, name))
        ]
    return plans


def log_problems(engine: Engine) -> list[str]:
    """Return how the log is not the one that was signed and marked. Raises LogUnusable."""
    log = ledger_log.log_of(engine)
    if log is None:
        return []
    problems = set(log.problems().values())
    try:
        ledger_log.attach(engine, log)
    except LogCut as error:
        problems.add(error.problem)
    return sorted(problems)


def _is_behind(engine: Engine, name: str, database: Head, logged: Head) -> bool:
    """Return whether the log holds entries that the database lacks, or others."""
    if database.seq <= logged.seq:
        return database != logged
    entries = tables.entries
    query = select(entries.c.hash).join(datasets, datasets.c.id == entries.c.dataset_id)
    with reading(engine) as connection:
        row = connection.execute(query.where(datasets.c.name == name, entries.c.seq == logged.seq))
        return row.scalar_one_or_none() != logged.hash


def _databases_heads(engine: Engine) -> dict[str, Head]:
    query = select(datasets.c.name, accounts.c.chain_seq, accounts.c.chain_head)
    with reading(engine) as connection:
        rows = connection.execute(query.join(accounts, accounts.c.dataset_id == datasets.c.id))
        return {row.name: Head(row.chain_seq, row.chain_head) for row in rows}


class _Gathered:
    """One dataset's entries in the log, all verified; those that the database lacks are kept."""

    def __init__(self, database: Head) -> None:
        self.database, self.missing = database, list[Logged]()
        self.problem: str | None = None
        self.verifier = Verifier()

    def add(self, name: str, entry: Logged) -> None:
        if self.problem is not None:
            return
        if entry.seq == self.database.seq and entry.hash != self.database.hash:
            self.problem = (
                f"entry {entry.seq} is another one in the database, which went on by itself: "
                "restore a backup from before"
            )
            return
        try:
            self.verifier.add(read_document(entry.text), entry.hash)
        except VerificationFailed as error:
            self.problem = f"the log's {error}"
        if self.verifier.dataset != name:
            self.problem = f"entry {entry.seq} belongs to {self.verifier.dataset!r}"
        if entry.seq > self.database.seq:
            self.missing.append(entry)


def _planned(outside: LedgerLog, name: str, log: Head, found: _Gathered) -> Plan:
    made = Plan(name, found.database, log, found.missing, problem=found.problem)
    if made.problem is None and log.seq < found.database.seq:
        made.problem = "the database went on by itself: restore a backup from before"
    if made.problem is None:
        made.problem = _lost_version(outside, name, found.missing)
    if made.problem is None:
        made.charged = sorted(found.verifier.replay.live())
    return made


def _lost_version(log: LedgerLog, name: str, missing: Iterable[Logged]) -> str | None:
    """Return the first version found right after the backup that is not kept beside the log."""
    for entry in missing:
        document = read_document(entry.text)
        if document["kind"] != EntryKind.REGISTER or "layout" not in document["body"]:
            continue
        version = document["body"]["version"]
        if not sources.is_kept(log, name, version):
            return (
                f"entry {entry.seq} registers version {version} of the data: its address and its "
                "units were not kept beside the log. Restore a backup from after that"
            )
    return None


def _live(engine: Engine, name: str) -> list[str]:
    query = (
        select(jobs.c.id)
        .join(datasets, datasets.c.id == jobs.c.dataset_id)
        .where(datasets.c.name == name, jobs.c.state.in_(LIVE))
    )
    with reading(engine) as connection:
        return sorted(str(job_id) for job_id in connection.execute(query).scalars())


# --- doing it -----------------------------------------------------------------------------------


def recover(engine: Engine, planned: Plan, find: Find, identity: bytes | None = None) -> None:
    """Carry a plan out, in one transaction; `find` looks for an output by its job and SHA-256.

    `identity`: the secret under which it is sealed what was kept of data. Raises Conflict where the
    database is not what it was planned for, or the plan names a problem, and LogUnusable.
    """
    if planned.problem is not None:
        raise Conflict(planned.problem)
    log = ledger_log.log_of(engine)
    assert log is not None
    sources = Sources(log, identity)
    with writing(engine) as connection:
        if planned.database == Head():
            _add_if_unknown(connection, planned)
        locked = LockedAccount(connection, planned.dataset, recovering=True)
        if Head(locked.seq, locked.head) != planned.database:
            raise Conflict(
                f"the ledger of {planned.dataset!r} has changed since: plan its recovery anew"
            )
        for entry in planned.missing:
            _restore(locked, entry, find, sources)
        if planned.missing:
            recovered_rows.close_decisions(connection, locked.dataset_id)
        cap_usage.recount(connection, locked.dataset_id)
        for job in _unended(connection, locked.dataset_id):
            give_up(locked, _begun(locked, job), "failed", LOST_ATTEMPT)


def _add_if_unknown(connection: Connection, planned: Plan) -> None:
    dataset_id = connection.execute(select(datasets.c.id).where(datasets.c.name == planned.dataset))
    if dataset_id.first() is None:
        # a ledger begins with its terms
        entry = read_entry(read_document(planned.missing[0].text), 1)
        terms = entry.body["terms"]
        recovered_rows.add_dataset(connection, planned.dataset, terms, entry.actor, entry.at)


def _restore(locked: LockedAccount, entry: Logged, find: Find, kept: Sources) -> None:
    document = read_document(entry.text)
    restored = locked.restore(document, entry, lambda each: recovered_rows.reserve(locked, each))
    recovered_rows.follow(locked, restored, find, kept)


def _unended(connection: Connection, dataset_id: UUID) -> list[Row[Any]]:
    query = select(jobs).where(jobs.c.dataset_id == dataset_id, jobs.c.state.in_(LIVE))
    return list(
        connection.execute(query.order_by(jobs.c.created_at, jobs.c.id).with_for_update()).all()
    )


def _begun(locked: LockedAccount, job: Row[Any]) -> Row[Any]:
    """Return the job's row, which now says that reading began, if the job reads records."""
    connection = locked.connection
    if job.reads_records and job.reading_began_at is None:
        mark = update(jobs).where(jobs.c.id == job.id)
        connection.execute(mark.values(reading_began_at=locked.now))
        return connection.execute(select(jobs).where(jobs.c.id == job.id)).one()
    return job
