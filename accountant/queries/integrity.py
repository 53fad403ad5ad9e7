"""Comparison of stored balances, jobs and outputs with the ledger's entries."""

from collections.abc import Iterable, Iterator
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, Row, select

from accountant import tables
from accountant.core.errors import UNREADABLE, VerificationFailed
from accountant.core.ledger.accounts import Settlement
from accountant.core.ledger.checkpoints import read_checkpoint
from accountant.core.ledger.commitments import opened
from accountant.core.ledger.export_formats import Verified, Verifier, read_document, summary
from accountant.database import reading
from accountant.queries import entry_rows, log_comparison, spending
from accountant.queries.dataset_rows import dataset_row
from accountant.tables.accounts_row import read_books
from accountant.transactions import cap_usage
from accountant.transactions.signing import listed as stored_checkpoints


def check(engine: Engine, name: str) -> list[str]:
    """Compare a dataset's entries with every row that says the same. Returns what disagrees."""
    with reading(engine, snapshot=True) as connection:
        row = dataset_row(connection, name)
        try:
            signed = [
                read_checkpoint(stored_checkpoint)
                for stored_checkpoint in stored_checkpoints(connection, row.id, None)
            ]
            verifier, differing = Verifier(name, signed), _Found()
            standings = entry_rows.standings(connection, row.id)
            for statement in entry_rows.stated(connection, row.id):
                document = read_document(statement.entry_document)
                verifier.add(document, statement.entry_hash)
                realized = verifier.replay.now.ex_post.settlement is Settlement.REALIZED
                differing.add(entry_rows.differing(statement, opened(document), realized))
                if statement.entry_seq in standings:
                    standing = standings.pop(statement.entry_seq)
                    differing.add(
                        entry_rows.standing_problem(
                            standing, verifier.count, verifier.head, verifier.replay.now
                        )
                    )
            result = verifier.result()
        except VerificationFailed as error:
            return [str(error)]
        live, ruled = set(verifier.replay.live()), verifier.rules
        differing.add(f"standings: there is no entry {seq}" for seq in standings)
        differing.add(entry_rows.unstated(connection, row.id))
        differing.add(entry_rows.rules(connection, row, ruled.terms, ruled.policy, ruled.versions))
        differing.add(entry_rows.checkpoints(connection, row.id))
        differing.add(entry_rows.decisions(connection, row.id))
        return [
            *differing.told(),
            *_cache_problems(row, result),
            *log_comparison.of_dataset(engine, row.id),
            *_job_problems(connection, row.id, live),
            *cap_usage.problems(connection, row.id),
            *spending.problems(connection, row.id),
        ]


#: Most disagreements of rows with entries that are listed; further ones are counted.
MOST = 200


class _Found:
    """Disagreements as they are found: a damaged table may have one an entry."""

    def __init__(self) -> None:
        self._listed: list[str] = []
        self._more = 0

    def add(self, found: Iterable[str]) -> None:
        for problem in found:
            if len(self._listed) < MOST:
                self._listed.append(problem)
            else:
                self._more += 1

    def told(self) -> list[str]:
        return [*self._listed, *([f"and {self._more:,} more of these"] if self._more else [])]


def _cache_problems(row: Row[Any], found: Verified) -> Iterator[str]:
    if (row.chain_seq, row.chain_head) != (found.entries, found.head):
        yield "the account's chain head is not that of its entries"
    try:
        books, history = read_books(row), found.books.history._replace(closers=())
    except UNREADABLE as error:
        yield f"the account's row can't be read: {error}"
        return
    cached, replayed = summary(books, found.live), summary(found.books, found.live)
    if cached != replayed or books.accounts != found.books.accounts:
        yield f"cached balances {cached} are not those of the entries {replayed}"
    if books.history != history:
        yield f"the cached history {books.history} is not that of the entries {history}"


def _job_problems(connection: Connection, dataset_id: UUID, live: set[str]) -> Iterator[str]:
    jobs = tables.jobs
    running = jobs.c.state.in_(("queued", "running", "settling"))
    query = select(jobs.c.id).where(jobs.c.dataset_id == dataset_id, running)
    if {str(job_id) for job_id in connection.execute(query).scalars()} != live:
        yield "live reservations are not those of the live jobs"
    key_job = tables.job_keys.c.job_id
    outlived = (
        select(key_job)
        .join(jobs, jobs.c.id == key_job)
        .where(jobs.c.dataset_id == dataset_id, ~running)
    )
    for job_id in connection.execute(outlived).scalars():
        yield f"the key of job {job_id} outlives it"
    key_job = tables.kept_draws.c.job_id
    outlived = (
        select(key_job)
        .join(jobs, jobs.c.id == key_job)
        .where(jobs.c.dataset_id == dataset_id, ~running)
    )
    for job_id in connection.execute(outlived.distinct()).scalars():
        yield f"kept draws of job {job_id} outlive it"
