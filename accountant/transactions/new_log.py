"""A new log in place of one that was lost: every entry, written anew from the database.

    plan  ── every ledger verified ── public log, marks, what was signed: compared ──▶ what is known
    begin ── entries, in the order of the public log ── what is known of data ──▶ the marks name the
      new log

The database decides here, and it may be the one that lost something: a restored backup is in itself
consistent. Whatever else remembers the old log is asked, and what contradicts the database stops
this. Entries that the lost log alone held, and nobody published or marked, can't be known any more.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, delete, insert, select, text

from accountant import tables
from accountant.core.errors import Conflict, LogUnusable, VerificationFailed
from accountant.core.ledger.export_formats import Verifier, read_document
from accountant.core.ledger.hash_chain import EntryKind
from accountant.core.transparency.proofs import read_leaves
from accountant.core.transparency.publication import checkpoint
from accountant.database import reading
from accountant.identities import activity_log
from accountant.ledger_log.lines import Head, Logged
from accountant.ledger_log.log import LedgerLog, named_heads
from accountant.ledger_log.published import files_at
from accountant.ledger_log.signed import SignedHead, SignedPlaces
from accountant.transactions import ledger_log, unit_fingerprints

__all__ = ["Plan", "begin", "plan"]

datasets, accounts, entries, marks = (
    tables.datasets,
    tables.accounts,
    tables.entries,
    tables.ledger_log_marks,
)

_OTHERS = text(
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> "
    "pg_backend_pid() "
    "AND usename IS NOT NULL"  # what kind of backend it is, an owner is not told of others
)
_PAGE = 200
_AT_ONCE = 1_000


@dataclass
class Plan:
    """What a new log would hold, and what is known of the lost one; or the `problems` with it."""

    lost: str | None = None
    #: So many entries the lost log held at least, by its newest mark, which is of then.
    marked: int = 0
    marked_at: str | None = None
    #: So many of them were published: these are compared, one by one.
    published: int = 0
    #: The database was restored from files, or failed over, since that mark.
    moved: bool = False
    heads: dict[str, Head] = field(default_factory=dict)
    #: Connections of others to the database: services that were not stopped, or people.
    connected: int = 0
    #: Versions of data that were found right: what is known of them is kept beside the new log too.
    versions: list[tuple[str, int]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    #: Signed heads that entries LOSS of the database name: two people said that they are lost.
    settled: set[SignedHead] = field(default_factory=set)

    @property
    def entries(self) -> int:
        return sum(head.seq for head in self.heads.values())


def plan(engine: Engine, signed: SignedPlaces) -> Plan:
    """Return what a new log would hold, as `compare` finds it.

    Raises LogUnusable where the place of the log is not empty.
    """
    _require_empty(engine)
    return compare(engine, signed)


def compare(engine: Engine, signed: SignedPlaces) -> Plan:
    """Verify all ledgers of the database, and compare them with what others remember.

    Memory: 32 bytes an entry. Raises LogUnusable where a place of `signed` can't be read.
    """
    new_plan, hashes = Plan(), dict[str, bytearray]()
    with reading(engine, snapshot=True) as connection:
        new_plan.connected = connection.execute(_OTHERS).scalar_one()
        for name, head in _heads(connection).items():
            hashes[name] = bytearray()
            try:
                _verify(connection, name, head, hashes[name], new_plan)
            except VerificationFailed as error:
                new_plan.problems.append(f"{name}: {error}")
            new_plan.heads[name] = head
        _compare_marks(connection, engine, new_plan)
        _compare_checkpoints(connection, new_plan, hashes)
    if signed.published is not None:
        _compare_published(signed.published, new_plan, hashes)
    heads = set(SignedPlaces(kept=signed.kept).heads()) - new_plan.settled
    signed_entries = max((head.size for head in heads), default=0)
    if signed_entries > new_plan.entries:
        new_plan.problems.append(
            f"{signed_entries:,} entries were signed, and the database holds {new_plan.entries:,}"
        )
    return new_plan


def _require_empty(engine: Engine) -> LedgerLog:
    log = ledger_log.log_of(engine)
    if log is None:
        raise LogUnusable("none is configured (EXCHEQUER_LEDGER_LOG)")
    if not log.is_empty():
        raise LogUnusable(
            f"{log.place} is not empty: a new log begins in an empty place. Keep what is there: "
            "it may hold entries that the database lacks (`exchequer ledger recover`)"
        )
    return log


def _heads(connection: Connection) -> dict[str, Head]:
    query = select(datasets.c.name, accounts.c.chain_seq, accounts.c.chain_head)
    rows = connection.execute(query.join(accounts, accounts.c.dataset_id == datasets.c.id))
    return {row.name: Head(row.chain_seq, row.chain_head) for row in rows}


def _verify(connection: Connection, name: str, head: Head, hashes: bytearray, made: Plan) -> None:
    """Verify a ledger, and note its hashes, the versions that it finds right and what it settles.

    Raises VerificationFailed.
    """
    verifier = Verifier(name)
    for entry in _entries(connection, name):
        document = read_document(entry.text)
        verifier.add(document, entry.hash)
        hashes += bytes.fromhex(entry.hash)
        if document["kind"] == EntryKind.REGISTER and "layout" in document["body"]:
            made.versions.append((name, document["body"]["version"]))
        if document["kind"] == EntryKind.LOSS:
            made.settled.update(named_heads(document))
    if Head(verifier.count, verifier.head) != head:
        raise VerificationFailed(
            f"it ends at entry {verifier.count}, and its account at entry {head.seq}"
        )


def _entries(connection: Connection, name: str) -> Iterator[Logged]:
    """Yield a dataset's entries, in order, read in pages: many ledgers may be read in turn."""
    columns = (entries.c.seq, entries.c.previous, entries.c.hash, entries.c.document)
    query = select(*columns).join(datasets, datasets.c.id == entries.c.dataset_id)
    query, seq = query.where(datasets.c.name == name).order_by(entries.c.seq).limit(_PAGE), 0
    while rows := connection.execute(query.where(entries.c.seq > seq)).all():
        yield from (Logged(*row) for row in rows)
        seq = rows[-1].seq


# --- who else remembers ---------------------------------------------------------------------------


def _compare_marks(connection: Connection, engine: Engine, made: Plan) -> None:
    row = connection.execute(select(marks).order_by(marks.c.n.desc()).limit(1)).one_or_none()
    if row is None:
        made.problems.append("this database never had a log: the service begins one by itself")
        return
    made.lost, made.marked, made.marked_at = row.log, row.n, row.at.isoformat()
    now = ledger_log.cluster(engine)
    made.moved = (row.system, row.timeline) != (now["system"], now["timeline"])
    if row.n > made.entries:
        made.problems.append(
            f"the lost log held {row.n:,} entries, and the database {made.entries:,}"
        )


def _compare_checkpoints(
    connection: Connection, made: Plan, hashes: Mapping[str, bytearray]
) -> None:
    """Heads that were signed for exports must be those of the entries."""
    table = tables.checkpoints
    query = select(datasets.c.name, table.c.seq, table.c.document)
    for row in connection.execute(query.join(datasets, datasets.c.id == table.c.dataset_id)):
        stated = json.loads(row.document)["checkpoint"]
        if row.seq and _hash_at(hashes, row.name, row.seq) != stated["head"]:
            made.problems.append(
                f"{row.name}: entry {row.seq} is not the one that a checkpoint was signed for"
            )


def _compare_published(place: Path | str, made: Plan, hashes: Mapping[str, bytearray]) -> None:
    try:
        for dataset, seq, entry_hash in published_leaves(place):
            made.published += 1
            if _hash_at(hashes, dataset, seq) != entry_hash:
                made.problems.append(
                    f"{dataset}: entry {seq} was published, and is another one or missing here"
                )
                return
    except VerificationFailed as error:
        made.problems.append(f"the public log can't be compared: {error}")


def published_leaves(place: Path | str) -> Iterator[tuple[str, int, str]]:
    """Yield (dataset, number, hash) of all published entries, in order."""
    files = files_at(place)
    if files.read("checkpoint") is not None:
        yield from read_leaves(checkpoint(files)[1].leaves())


def _hash_at(hashes: Mapping[str, bytearray], dataset: str, seq: int) -> str:
    return hashes.get(dataset, bytearray())[32 * seq - 32 : 32 * seq].hex()


# --- doing it
# ---------------------------------------------------------------------------------------


def begin(
    engine: Engine, planned: Plan, published: Path | str | None, identity: bytes, proof: bytes
) -> str:
    """Carry a plan out as the owner of the tables, the services stopped; returns the new log's
    name.

    `identity`: the secret under which fingerprints are made, `proof` what shows that it is the one.
    Raises Conflict where the plan names problems, or the database has changed since, and
    LogUnusable.
    """
    if planned.problems:
        raise Conflict("; ".join(planned.problems))
    log = _require_empty(engine)
    with reading(engine, snapshot=True) as connection:
        if _heads(connection) != planned.heads:
            raise Conflict("the database has changed since: stop all services, and plan it anew")
        if planned.versions and not unit_fingerprints.is_key(connection, proof):
            raise Conflict(
                "the key `identity` here is not the one that fingerprints were made with"
            )
        name = log.begin()
        ordered = _ordered(connection, planned, published)
        while batch := list(islice(ordered, _AT_ONCE)):
            for outcome in log.append([(dataset, [entry]) for dataset, entry in batch]):
                if outcome is not None:
                    raise outcome
        for dataset, number in planned.versions:
            unit_fingerprints.keep_known(connection, log, dataset, number, identity)
    _take_up(engine, planned, name)
    ledger_log.attach(engine, log)
    ledger_log.mark(engine, log, least=1)
    return name


def _ordered(
    connection: Connection, planned: Plan, published: Path | str | None
) -> Iterator[tuple[str, Logged]]:
    """Yield all entries, published ones first, in that order: the public log goes on."""
    left: dict[str, Iterator[Logged]] = {name: _entries(connection, name) for name in planned.heads}
    for dataset, _, _ in () if published is None else published_leaves(published):
        yield dataset, next(left[dataset])
    for dataset, rest in left.items():
        yield from ((dataset, entry) for entry in rest)


def _take_up(engine: Engine, planned: Plan, name: str) -> None:
    """Make the new log the database's, and note in the activity log who did so, and the losses."""
    detail: dict[str, Any] = {
        "lost": planned.lost,
        "entries": planned.entries,
        "held_at_least": planned.marked,
        "published": planned.published,
        "another_timeline": planned.moved,
    }
    row = {"n": 0, "log": name, "line": "", **ledger_log.cluster(engine)}
    with engine.begin() as connection:
        if _heads(connection) != planned.heads:
            raise Conflict(
                "the database has changed since: stop all services, empty the new place, begin anew"
            )
        connection.execute(delete(marks))
        connection.execute(insert(marks).values(row))
        activity_log.record(connection, None, "ledger log begun anew", "ledger log", name, **detail)
