"""Comparison of stored balances, jobs and outputs with the ledger's entries."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, Row, select

from accountant import tables
from accountant.core.errors import VerificationFailed
from accountant.core.ledger.checkpoints import read_checkpoint
from accountant.core.ledger.export_formats import Verified, Verifier, read_document, summary
from accountant.database import reading
from accountant.queries import exports, spending
from accountant.queries.rows import dataset_row
from accountant.tables.accounts_row import read_books
from accountant.transactions import cap_usage
from accountant.transactions.signing import listed as stored_checkpoints


def check(engine: Engine, name: str) -> list[str]:
    """Compare entries, checkpoints, cached balances and jobs of a dataset; returns what disagrees."""
    with reading(engine, snapshot=True) as connection:
        row = dataset_row(connection, name)
        try:
            signed = [read_checkpoint(each) for each in stored_checkpoints(connection, row.id, None)]
            verifier = Verifier(name, signed)
            for document, recorded in exports.entries(connection, row.id):
                verifier.add(read_document(document), recorded)
            found = verifier.result()
        except VerificationFailed as error:
            return [str(error)]
        live = set(verifier.replay.live())
        return [
            *_cache_problems(row, found),
            *_job_problems(connection, row.id, live),
            *cap_usage.problems(connection, row.id),
            *spending.problems(connection, row.id),
        ]


def _cache_problems(row: Row[Any], found: Verified) -> Iterator[str]:
    if (row.chain_seq, row.chain_head) != (found.entries, found.head):
        yield "the account's chain head is not that of its entries"
    books, history = read_books(row), replace(found.books.history, closers=())
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
    kept = tables.job_keys.c.job_id
    outlived = select(kept).join(jobs, jobs.c.id == kept).where(jobs.c.dataset_id == dataset_id, ~running)
    for job_id in connection.execute(outlived).scalars():
        yield f"the key of job {job_id} outlives it"
    kept = tables.kept_draws.c.job_id
    outlived = select(kept).join(jobs, jobs.c.id == kept).where(jobs.c.dataset_id == dataset_id, ~running)
    for job_id in connection.execute(outlived.distinct()).scalars():
        yield f"kept draws of job {job_id} outlive it"
