"""Entries judged before they are written, by the rules and the code of every verifier.

rules_of ── REGISTER, POLICY and ALLOW entries of the dataset ──▶ Rules, kept by their newest hash
judge ── these, and earlier entries of the jobs that an entry names ──▶ its reservation, or a
  refusal
"""

from collections.abc import Iterable
from threading import Lock
from uuid import UUID

from sqlalchemy import Connection, select

from accountant import tables
from accountant.core.errors import UNREADABLE, ExchequerError, VerificationFailed
from accountant.core.ledger import lineage
from accountant.core.ledger.books import Books
from accountant.core.ledger.export_formats import read_document
from accountant.core.ledger.hash_chain import Entry, EntryKind, digest, read_entry
from accountant.core.ledger.reservations import Reservation, read_reservation
from accountant.core.ledger.rules import Rules
from accountant.core.ledger.verifier import Judge

entries = tables.entries

#: Rules by the hash of the newest entry that they are made of. The hash covers all entries before
#: it.
_known: dict[str, Rules] = {}
_known_lock = Lock()
_MOST_KNOWN = 1000


#: The kinds are written out: else no plan that is kept may use their index.
_NEWEST = """
    SELECT hash FROM entries WHERE dataset_id = %s AND kind IN ('ALLOW','REGISTER','POLICY')
    ORDER BY seq DESC LIMIT 1
"""


def rules_of(connection: Connection, dataset_id: UUID, newest: str | None = None) -> Rules:
    """Return the rules in force, for whoever holds the account's row. They must not be changed.

    Args:
        newest: the hash of the newest entry that states a rule, read while the row is held. If it
            is None, it is read here.

    Raises VerificationFailed if the entries that state them are not what was hashed, or not signed.
    """
    # A statement of its own: one that waited for the row sees other tables as they were before it
    # waited.
    if newest is None:
        newest = connection.exec_driver_sql(_NEWEST, (dataset_id,)).scalar()
    rules = _known.get(newest or "")
    if rules is not None:
        return rules
    rules = Rules()
    query = select(entries.c.seq, entries.c.document, entries.c.hash).where(
        entries.c.dataset_id == dataset_id, entries.c.kind.in_(tables.RULE_KINDS)
    )
    for row in connection.execute(query.order_by(entries.c.seq)):
        document = read_document(row.document)
        if digest(document) != row.hash:
            raise VerificationFailed("its content does not match its hash", row.seq)
        entry = read_entry(document, row.seq)
        try:
            rules.follow(entry)
        except ExchequerError as error:
            raise VerificationFailed(str(error), row.seq) from None
        rules.acts.written(entry, row.hash)
    if newest is not None:
        with _known_lock:
            if len(_known) >= _MOST_KNOWN:
                _known.clear()
            _known[newest] = rules
    return rules


def judge(
    connection: Connection, dataset_id: UUID, rules: Rules, entry: Entry, books: Books
) -> Reservation | None:
    """Hold the next entry against all that `exchequer verify` asks of it besides sums and chain.

    Takes it into `rules` if it is one. Returns the reservation that a COMMIT or VOID resolves.
    Raises VerificationFailed.
    """
    hashes: dict[int, str] = {}
    held: dict[str | None, Reservation] = {}
    judged = Judge(rules, hashes.get)
    try:
        for earlier, recorded in _earlier(connection, dataset_id, entry):
            hashes[earlier.seq] = recorded
            if earlier.kind is EntryKind.RESERVE:
                held[earlier.job] = read_reservation(earlier.body)
            judged.recall(earlier, held.get(earlier.job))
        judged.add(entry, books, held.get(entry.job))
    except UNREADABLE as error:
        if isinstance(error, ExchequerError):
            raise
        raise VerificationFailed(f"{type(error).__name__}: {error}") from None
    return held.get(entry.job)


def _earlier(connection: Connection, dataset_id: UUID, entry: Entry) -> list[tuple[Entry, str]]:
    """Return earlier entries of the jobs that an entry names or whose releases those read."""
    wanted: set[str] = set()
    if entry.kind is EntryKind.RESERVE:
        wanted = lineage.jobs_read(entry.body)
    elif entry.job is not None:
        wanted = {entry.job}
    found: dict[int, tuple[Entry, str]] = {}
    known: set[str] = set()
    while wanted:
        read = list(_entries_of(connection, dataset_id, wanted))
        found |= {each.seq: (each, recorded) for each, recorded in read}
        known |= wanted
        reserves = [each.body for each, _ in read if each.kind is EntryKind.RESERVE]
        wanted = {job for body in reserves for job in lineage.jobs_read(body)} - known
    return [found[seq] for seq in sorted(found)]


def _entries_of(
    connection: Connection, dataset_id: UUID, jobs: Iterable[str]
) -> Iterable[tuple[Entry, str]]:
    query = select(entries.c.seq, entries.c.document, entries.c.hash).where(
        entries.c.dataset_id == dataset_id, entries.c.job_id.in_([UUID(job) for job in jobs])
    )
    for row in connection.execute(query):
        yield read_entry(read_document(row.document), row.seq), row.hash
