"""Admission: many requests on one dataset, decided in one transaction in the order of their
arrival.

    submit ── price (no lock) ──▶ queue of the dataset ──▶ leader: lock the account's row, take all
              requests that wait, look up, decide one after the other, write all in one statement,
              COMMIT, put the entries into the log, answer each

The row's lock makes overspending impossible, between processes too. The queue only lets the threads
of one process share one lock, one statement and one commit. Every request gets its own answer: what
is wrong with one is found before anything is written, and a batch that fails as a whole is taken
apart.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, bindparam, select
from sqlalchemy.exc import IntegrityError, OperationalError

from accountant import tables
from accountant.core.errors import (
    ExchequerError,
    LedgerBehind,
    LogUnusable,
    NotFound,
    UnderMaintenance,
    invalid,
)
from accountant.core.ledger.accounts import Accounts
from accountant.core.privacy.price import Terms
from accountant.faults import reached
from accountant.identities.actor import Actor
from accountant.tables.accounts_row import read_books
from accountant.transactions import job_requests
from accountant.transactions.batches import Answer, Submission, looked_up
from accountant.transactions.decision import Untold, tell_largest
from accountant.transactions.group_commit import Combiner, Take, Ticket
from accountant.transactions.job_requests import JobRequest, Priced, terms_of
from accountant.transactions.ledger_log import writing
from accountant.transactions.locked_account import LockedAccount
from accountant.transactions.second_calculation import admitting, prepare

logger = logging.getLogger(__name__)

#: Most requests in one transaction: the lock is then held for some tens of milliseconds.
MOST_AT_ONCE = 100


@admitting
def submit(
    engine: Engine, request: JobRequest, actor: Actor, idempotency_key: str | None = None
) -> UUID:
    """Record a request and decide on it as far as it can be decided now; returns the job's id.

    The same key with the same body answers with the same job; with another body it is a Conflict. A
    request that can't be right raises InvalidRequest and leaves nothing behind.
    """
    actor.require("analyst", "steward")
    if idempotency_key is not None and not 1 <= len(idempotency_key) <= 200:
        raise invalid(
            "idempotency_key", f"{len(idempotency_key)} characters", "1 to 200 characters"
        )
    beforehand = _price_beforehand(engine, request)
    submission = Submission(request, actor, idempotency_key, _identity(request), beforehand)
    answer = _combiner.ask((engine, request.dataset), submission)
    if answer.untold is not None:
        tell_largest(engine, answer.job_id, answer.untold)
    return answer.job_id


def _identity(request: JobRequest) -> str | None:
    """Return the SHA-256 of the body, or None without a canonical form (NaN, priced as wrong)."""
    try:
        return request.sha256()
    except (TypeError, ValueError):
        return None


# --- before the lock ----------------------------------------------------------------------------

_UNLOCKED = (
    select(
        tables.datasets, *[column for column in tables.accounts.c if column.name != "dataset_id"]
    )
    .join(tables.accounts, tables.accounts.c.dataset_id == tables.datasets.c.id)
    .where(tables.datasets.c.name == bindparam("name"))
)

#: The terms and accounts that this process saw last, by dataset, as a guess at what the locked row
#: will say; and the prices that were prepared for these.
_last_seen: dict[str, tuple[Terms, Accounts, dict[int, Priced]]] = {}
_MOST_REMEMBERED = 1000


def _price_beforehand(engine: Engine, request: JobRequest) -> tuple[Terms, Priced] | None:
    """Return the price before the account's row is locked; the caches of its cost on each filter
    are filled.

    Nothing is decided here. If the terms change in between, the price is computed again.
    """
    seen = _last_seen.get(request.dataset)
    if seen is None:
        with engine.connect() as connection:
            row = connection.execute(_UNLOCKED, {"name": request.dataset}).one_or_none()
        if row is None:
            return None
        accounts = read_books(row).accounts
        seen = _remember(request.dataset, terms_of(row, accounts), accounts)
    terms, accounts, prepared = seen
    try:
        priced = job_requests.priced(request, terms)
        if id(priced) not in prepared:
            prepare(accounts, priced.candidate)
            if len(prepared) >= _MOST_REMEMBERED:
                prepared.clear()
            prepared[id(priced)] = priced  # kept, so that no other takes its place in memory
    except (ExchequerError, ArithmeticError, TypeError, ValueError):
        return None  # told when the request is looked at under the terms of then
    return terms, priced


def _remember(
    dataset: str, terms: Terms, accounts: Accounts
) -> tuple[Terms, Accounts, dict[int, Priced]]:
    """Keep the terms and accounts of a dataset. Prices stay prepared while its terms stay."""
    earlier, _, prepared = _last_seen.get(dataset, (None, None, {}))
    if earlier != terms:
        prepared = {}
    if len(_last_seen) >= _MOST_REMEMBERED:
        _last_seen.clear()
    seen = _last_seen[dataset] = (terms, accounts, prepared)
    return seen


# --- the leader ---------------------------------------------------------------------------------


def _serve(key: tuple[Engine, str], take: Take[Submission, Answer]) -> None:
    """Lock the account's row, take all who wait by then, and answer each."""
    engine, dataset = key
    batch: list[Ticket[Submission, Answer]] = []
    try:
        with writing(engine) as connection:
            locked = _lock(connection, dataset)
            batch = take()
            answers = _admit(locked, [ticket.question for ticket in batch])
    except Exception as error:
        if not batch or _is_hopeless(error):
            raise  # the combiner tells all who wait for this
        name = type(error).__name__  # its text may quote what somebody sent
        logger.warning("a batch of %d failed (%s); each is tried alone", len(batch), name)
        for ticket in batch:
            _serve_alone(engine, dataset, ticket)
        return
    for ticket, answer in zip(batch, answers, strict=True):
        _settle(ticket, answer)


def _serve_alone(engine: Engine, dataset: str, ticket: Ticket[Submission, Answer]) -> None:
    for last in (False, True):
        try:
            with writing(engine) as connection:
                answers = _admit(_lock(connection, dataset), [ticket.question])
        except IntegrityError as error:
            # Its key was taken by a job on another dataset, under another lock: looked up again, it
            # is seen.
            if last:
                ticket.fail(error)
        except Exception as error:
            ticket.fail(error)
            return
        else:
            _settle(ticket, answers[0])
            return


def _settle(ticket: Ticket[Submission, Answer], answer: Answer | Exception) -> None:
    reached("submit.committed")
    if isinstance(answer, Exception):
        ticket.fail(answer)
    else:
        ticket.answer(answer)


def _is_hopeless(error: Exception) -> bool:
    """Return True if a retry would fail alike: database or log away, the row locked, closed."""
    if isinstance(error, LedgerBehind | LogUnusable | UnderMaintenance):
        return True
    lock_not_available = "55P03"
    return isinstance(error, OperationalError) and (
        error.connection_invalidated or getattr(error.orig, "sqlstate", None) == lock_not_available
    )


def _lock(connection: Connection, dataset: str) -> LockedAccount:
    try:
        return LockedAccount(connection, dataset)
    except NotFound:
        raise invalid(
            "dataset", f"there is no dataset {dataset!r}", "a name from the catalogue"
        ) from None


# --- one batch ----------------------------------------------------------------------------------


def _admit(locked: LockedAccount, submissions: Sequence[Submission]) -> list[Answer | Exception]:
    """Decide on each in order and write all. What is wrong with one is the answer to that one."""
    locked.require_open()
    batch = looked_up(locked, submissions)
    _remember(locked.dataset, batch.facts.terms, locked.accounts)
    answers: list[Answer | Exception] = []
    for submission in submissions:
        try:
            with locked.whole():
                answers.append(batch.admit(submission))
        except Exception as error:
            answers.append(error)
    reached("submit.decided")
    locked.write([(tables.jobs, batch.jobs), *batch.others.items()])
    reached("submit.written")
    return answers


def admit_approved(
    locked: LockedAccount,
    request: JobRequest,
    actor: Actor,
    approval: Mapping[str, Any],
    decided_by: UUID,
) -> tuple[UUID, Untold | None]:
    """Record and decide on a request that a steward approved beforehand, under the lock that is
    held.

    Everything is checked as for any other. Returns the job's id, and what its refusal doesn't say
    yet.
    """
    submission = Submission(request, actor, None, _identity(request))
    batch = looked_up(locked, [submission])
    answer = batch.record(submission, approval, decided_by=decided_by, decided_at=locked.now)
    locked.write([(tables.jobs, batch.jobs), *batch.others.items()])
    return answer.job_id, answer.untold


_combiner: Combiner[tuple[Engine, str], Submission, Answer] = Combiner(_serve, MOST_AT_ONCE)
