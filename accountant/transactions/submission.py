"""Admission: many requests on one dataset, decided in one transaction in the order of their arrival.

    submit ── price (no lock) ──▶ queue of the dataset ──▶ leader: take who waits, decide on what is known,
              write all in one statement that finds the account so (expected_account.py), answer each
                   └── it is another ──▶ lock the account's row, take who waits, look up, decide one after the
                                         other, write all in one statement, COMMIT, answer each

The row's lock, or the statement's comparison under it, is what makes overspending impossible, between
processes too; the queue only lets the threads of one process share one lock, one statement and one commit.
Every request gets its own answer: what is wrong with one is found before anything is written, and a batch
that fails as a whole is taken apart.
"""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Engine, Table, bindparam, select
from sqlalchemy.exc import IntegrityError, OperationalError

from accountant import settings, tables
from accountant.core import mechanisms
from accountant.core.errors import Conflict, ExchequerError, LedgerBehind, LogUnusable, NotFound, invalid
from accountant.core.ledger import lineage
from accountant.core.ledger.accounts import Accounts
from accountant.core.privacy.price import Terms
from accountant.faults import reached
from accountant.identities.actor import Actor
from accountant.ledger_log.lines import Head
from accountant.tables.accounts_row import read_books
from accountant.transactions import (
    artifacts,
    free_jobs,
    job_requests,
    public_resources,
    sources,
    waiting_jobs,
)
from accountant.transactions.admission_facts import Facts, ModelFacts, facts_of, look_up, ready_models
from accountant.transactions.decision import Asker, Untold, consider, tell_largest
from accountant.transactions.expected_account import ExpectedAccount, Known, Unknown, clock_at
from accountant.transactions.group_commit import Combiner, Take, Ticket
from accountant.transactions.job_requests import JobRequest, terms_of
from accountant.transactions.ledger_log import follows, writing
from accountant.transactions.locked_account import LockedAccount
from accountant.transactions.second_calculation import admitting, prepare

logger = logging.getLogger(__name__)

#: Most requests in one transaction: the lock is then held for some tens of milliseconds.
MOST_AT_ONCE = 100


@dataclass
class _Submission:
    """A request in the queue. Its job's id is drawn here: `tried` again, it still makes one job."""

    request: JobRequest
    actor: Actor
    key: str | None
    sha256: str | None
    job_id: UUID = field(default_factory=uuid4)
    tried: bool = False


@dataclass(frozen=True)
class _Answer:
    """The job, and what remains to be told about its refusal once the row is free."""

    job_id: UUID
    untold: Untold | None = None


@admitting
def submit(engine: Engine, request: JobRequest, actor: Actor, idempotency_key: str | None = None) -> UUID:
    """Record a request and decide on it as far as it can be decided now; returns the job's id.

    The same key with the same body answers with the same job; with another body it is a Conflict. A
    request that can't be right raises InvalidRequest and leaves nothing behind.
    """
    actor.require("analyst", "steward")
    if idempotency_key is not None and not 1 <= len(idempotency_key) <= 200:
        raise invalid("idempotency_key", f"{len(idempotency_key)} characters", "1 to 200 characters")
    submission = _Submission(request, actor, idempotency_key, _identity(request))
    _price_beforehand(engine, request)
    answer = _combiner.ask((engine, request.dataset), submission)
    if answer.untold is not None:
        tell_largest(engine, answer.job_id, answer.untold)
    return answer.job_id


def _identity(request: JobRequest) -> str | None:
    """The SHA-256 of the body; None where it has no canonical form (NaN): its price says what is wrong."""
    try:
        return request.sha256()
    except ValueError:
        return None


# --- before the lock ----------------------------------------------------------------------------

_UNLOCKED = (
    select(tables.datasets, *[column for column in tables.accounts.c if column.name != "dataset_id"])
    .join(tables.accounts, tables.accounts.c.dataset_id == tables.datasets.c.id)
    .where(tables.datasets.c.name == bindparam("name"))
)

#: The terms and accounts that this process saw last, by dataset: a guess at what the locked row will say.
_last_seen: dict[str, tuple[Terms, Accounts]] = {}
_MOST_REMEMBERED = 1000


def _price_beforehand(engine: Engine, request: JobRequest) -> None:
    """Fill the caches of the price and its cost on each filter before the account's row is locked.

    Nothing is decided here. If the terms change in between, the price is computed again.
    """
    seen = _last_seen.get(request.dataset)
    if seen is None:
        with engine.connect() as connection:
            row = connection.execute(_UNLOCKED, {"name": request.dataset}).one_or_none()
        if row is None:
            return
        accounts = read_books(row).accounts
        seen = _remember(request.dataset, terms_of(row, accounts), accounts)
    terms, accounts = seen
    try:
        prepare(accounts, job_requests.priced(request, terms).candidate)
    except (ExchequerError, ArithmeticError, TypeError, ValueError):
        return  # told when the request is looked at under the terms of then


def _remember(dataset: str, terms: Terms, accounts: Accounts) -> tuple[Terms, Accounts]:
    if len(_last_seen) >= _MOST_REMEMBERED:
        _last_seen.clear()
    _last_seen[dataset] = (terms, accounts)
    return terms, accounts


# --- the leader ---------------------------------------------------------------------------------


def _serve(key: tuple[Engine, str], take: Take[_Submission, _Answer]) -> None:
    """Lock the account's row, take all who wait by then, and answer each."""
    engine, dataset = key
    batch: list[Ticket[_Submission, _Answer]] = []
    if _serve_as_known(engine, dataset, take):
        return
    try:
        with writing(engine) as connection:
            locked = _lock(connection, dataset)
            batch = take()
            answers, known = _admit(locked, [ticket.question for ticket in batch])
    except Exception as error:
        if not batch or _is_hopeless(error):
            raise  # the combiner tells all who wait for this
        name = type(error).__name__  # its text may quote what somebody sent
        logger.warning("a batch of %d failed (%s); each is tried alone", len(batch), name)
        for ticket in batch:
            _serve_alone(engine, dataset, ticket)
        return
    _known_of(engine)[dataset] = known
    for ticket, answer in zip(batch, answers, strict=True):
        _settle(ticket, answer)


def _serve_as_known(engine: Engine, dataset: str, take: Take[_Submission, _Answer]) -> bool:
    """Answer all who wait by what is known of the account; False: nothing was written, nobody is answered.

    Whatever stands in the way is told, or found to have passed, by those who lock the row afterwards.
    """
    accounts = _known_of(engine)
    known = accounts.get(dataset)
    if known is None or not follows(engine, dataset, known.head):
        return False
    batch = take()
    submissions = [ticket.question for ticket in batch]
    expected = ExpectedAccount(known)
    try:
        if any(each.tried for each in submissions):
            raise Unknown("it may be recorded already")
        found = _Batch(expected, known.facts)
        answers = [found.admit(each) for each in submissions]
        if not expected.posts:
            raise Unknown("no entry, no comparison")
        reached("submit.decided")
        for each in submissions:
            each.tried = True
        with writing(engine, one_statement=True) as connection:
            rows = [(tables.jobs, found.jobs), *found.others.items()]
            keys = [(each.actor.id, each.key) for each in submissions if each.key is not None]
            paid = Counter(row["analyst_id"] for row in found.jobs if row["reads_records"])
            limit = waiting_jobs.least(settings.load())
            at = expected.swap(connection, rows, sorted(known.facts.models), keys, (paid, limit))
    except Exception as error:
        if not isinstance(error, Unknown):
            logger.info("an admission without a lock failed (%s)", type(error).__name__)
        at = None
    if at is None:
        accounts.pop(dataset, None)
        take.put_back()
        return False
    accounts[dataset] = expected.after(at)
    for ticket, answer in zip(batch, answers, strict=True):
        _settle(ticket, answer)
    return True


def _serve_alone(engine: Engine, dataset: str, ticket: Ticket[_Submission, _Answer]) -> None:
    for last in (False, True):
        try:
            with writing(engine) as connection:
                answers, _ = _admit(_lock(connection, dataset), [ticket.question])
        except IntegrityError as error:
            # Its key was taken by a job on another dataset, under another lock: looked up again, it is seen.
            if last:
                ticket.fail(error)
        except Exception as error:
            ticket.fail(error)
            return
        else:
            _settle(ticket, answers[0])
            return


def _settle(ticket: Ticket[_Submission, _Answer], answer: _Answer | Exception) -> None:
    reached("submit.committed")
    if isinstance(answer, Exception):
        ticket.fail(answer)
    else:
        ticket.answer(answer)


def _is_hopeless(error: Exception) -> bool:
    """Return True if an immediate retry would fail the same way: database or log away, or the row locked."""
    if isinstance(error, LedgerBehind | LogUnusable):
        return True
    lock_not_available = "55P03"
    return isinstance(error, OperationalError) and (
        error.connection_invalidated or getattr(error.orig, "sqlstate", None) == lock_not_available
    )


def _lock(connection: Connection, dataset: str) -> LockedAccount:
    try:
        return LockedAccount(connection, dataset)
    except NotFound:
        raise invalid("dataset", f"there is no dataset {dataset!r}", "a name from the catalogue") from None


# --- one batch ----------------------------------------------------------------------------------


def _admit(
    locked: LockedAccount, submissions: Sequence[_Submission]
) -> tuple[list[_Answer | Exception], Known]:
    """Decide on each in order and write all; what is wrong with one is its answer and no other's.

    Returns what is known of the account once this is committed, too.
    """
    batch = _looked_up(locked, submissions)
    clock = clock_at(locked.now)
    answers: list[_Answer | Exception] = []
    for each in submissions:
        try:
            with locked.whole():
                answers.append(batch.admit(each))
        except Exception as error:
            answers.append(error)
    reached("submit.decided")
    locked.write([(tables.jobs, batch.jobs), *batch.others.items()])
    reached("submit.written")
    return answers, Known(
        *(locked.dataset_id, locked.dataset, Head(locked.seq, locked.head), locked.books),
        *(locked.now, clock, batch.stand, batch.facts),
    )


def admit_approved(
    locked: LockedAccount, request: JobRequest, actor: Actor, approval: Mapping[str, Any], decided_by: UUID
) -> tuple[UUID, Untold | None]:
    """Record and decide on a request that a steward approved beforehand, under the lock that is held.

    Everything is checked as for any other. Returns the job's id, and what its refusal doesn't say yet.
    """
    submission = _Submission(request, actor, None, _identity(request))
    batch = _looked_up(locked, [submission])
    answer = batch.record(submission, approval, decided_by=decided_by, decided_at=locked.now)
    locked.write([(tables.jobs, batch.jobs), *batch.others.items()])
    return answer.job_id, answer.untold


class _Batch:
    """The requests of one transaction. `facts` were read while the row was locked, or are compared then.

    `admit` changes the books in memory only and collects the rows to be written; if it raises, it has
    changed nothing.
    """

    def __init__(self, locked: LockedAccount, facts: Facts, stand: str = "") -> None:
        self.locked, self.facts, self.stand = locked, facts, stand
        self.jobs: list[dict[str, Any]] = []
        self.others: dict[Table, list[dict[str, Any]]] = {}
        _remember(locked.dataset, facts.terms, locked.accounts)
        #: Jobs by (analyst, key), and those of submissions that were tried before, by id.
        self.earlier: dict[tuple[UUID, str], tuple[str | None, _Answer]] = {}
        self.waiting: waiting_jobs.Waiting = Counter()
        self.recorded: frozenset[UUID] = frozenset()

    def admit(self, submission: _Submission) -> _Answer:
        """The answer to one request. Raises what is wrong with it."""
        if submission.job_id in self.recorded:
            return _Answer(submission.job_id)
        key = (submission.actor.id, submission.key)
        if submission.key is not None and key in self.earlier:
            sha256, answer = self.earlier[submission.actor.id, submission.key]
            if sha256 != submission.sha256:
                raise Conflict("this idempotency key was used for another request")
            return answer
        answer = self.record(submission)
        if submission.key is not None:
            self.earlier[submission.actor.id, submission.key] = (submission.sha256, answer)
        return answer

    def record(
        self, submission: _Submission, approval: Mapping[str, Any] | None = None, **columns: Any
    ) -> _Answer:
        """Decide on a request and collect its rows; `approval` and `columns`: of a steward who said yes."""
        request, locked, policy = submission.request, self.locked, self.facts.policy
        if self.facts.version_id is None:
            problem = f"{request.dataset!r} is not ready: its data has not been checked"
            raise invalid("dataset", problem, "a ready one")
        model = self._model(request)
        job_requests.check_policy(policy, request, submission.actor.name)
        priced = job_requests.priced(request, self.facts.terms)
        if submission.sha256 is None:
            raise invalid("parameters", "holds what has no canonical JSON form", "finite numbers and text")
        if priced.candidate.is_free:
            most = settings.load().free_jobs_per_person
            free_jobs.check_limit(locked.connection, submission.actor.id, most, self.jobs)
        model_id = None if model is None else UUID(model.id)
        reads = artifacts.source(locked.connection, locked.dataset_id, model_id, priced, submission.actor)
        named = public_resources.resolve(locked.connection, priced.candidate, policy)
        read_beside = sources.resolve(
            locked.connection, locked.dataset_id, model_id, priced.candidate, submission.actor
        )
        if reads is None:
            source = {} if priced.candidate.is_public else lineage.of_version(self.facts.version_number)
        else:
            source = artifacts.lineage_of(locked.connection, reads, priced.candidate.mechanism)
        source |= public_resources.lineage(named)
        source |= sources.lineage(
            locked.connection,
            locked.dataset_id,
            request.mechanism,
            read_beside,
            priced.candidate.resolved,
        )
        asker = Asker(submission.actor.id, submission.actor.name, request.project)
        verdict = consider(
            locked, submission.job_id, asker, priced.candidate, model, source, policy, approval
        )
        state = str(verdict.columns["state"])
        if not priced.candidate.is_free:
            if approval is None:
                waiting_jobs.check_limits(self.waiting, submission.actor.id, state, settings.load())
            self.waiting[submission.actor.id, state] += 1
        row = {
            "id": submission.job_id,
            "dataset_id": locked.dataset_id,
            "version_id": self.facts.version_id if reads is None else reads.version_id,
            "source_job_id": None if reads is None else reads.id,
            "sources": read_beside,
            "reads_records": reads is None and not priced.candidate.is_public,
            "resources": named,
            "model_id": model_id,
            "analyst_id": submission.actor.id,
            "purpose": request.purpose,
            "project": request.project,
            "idempotency_key": submission.key,
            "request_sha256": submission.sha256,
            "created_at": locked.now,
            **priced.columns,
            "to_reserve": verdict.to_reserve,
            **verdict.columns,
            **columns,
        }
        self.jobs.append(row)
        for table, rows in verdict.rows(submission.job_id):
            self.others.setdefault(table, []).extend(rows)
        # Listings go by this time: the order of arrival is kept, and no two are alike.
        locked.now += timedelta(microseconds=1)
        return _Answer(submission.job_id, verdict.untold)

    def _model(self, request: JobRequest) -> ModelFacts | None:
        """The model that a request names, checked; None where its mechanism uses none."""
        name = request.model
        if not mechanisms.get(request.mechanism).uses_model:
            if name is not None:
                raise invalid("model", f"{request.mechanism} uses none", "nothing")
            return None
        found = None if name is None else self.facts.models.get(name)
        if found is None or found.state != "ready":
            ready = ", ".join(ready_models(self.locked.connection)) or "none is registered yet"
            problem = f"there is no model {name!r}" if found is None else f"{name!r} is {found.state}"
            problem = f"none is given, and {request.mechanism} runs one" if name is None else problem
            raise invalid("model", problem, ready)
        return found


def _looked_up(locked: LockedAccount, submissions: Sequence[_Submission]) -> _Batch:
    """The batch with everything that it refers to, as it stands now that the row is locked."""
    keyed = [(each.actor.id, each.key) for each in submissions if each.key is not None]
    names = {each.request.model for each in submissions if each.request.model is not None}
    tried = [each.job_id for each in submissions if each.tried]
    people = list({each.actor.id for each in submissions})
    found = look_up(locked, sorted(names), keyed, tried, people)
    for each in submissions:
        each.tried = True
    batch = _Batch(locked, facts_of(found, locked.accounts), found.stand)
    batch.earlier |= {
        (UUID(analyst), key): (sha256, _Answer(UUID(job_id)))
        for job_id, analyst, key, sha256 in found.earlier or ()
    }
    batch.waiting |= {(UUID(analyst), state): count for analyst, state, count in found.waiting or ()}
    batch.recorded = frozenset(UUID(job_id) for job_id in found.recorded or ())
    return batch


#: By engine, the accounts as this process left them: what the next batch on each is decided on.
_known: WeakKeyDictionary[Engine, dict[str, Known]] = WeakKeyDictionary()


def _known_of(engine: Engine) -> dict[str, Known]:
    found = _known.setdefault(engine, {})
    if len(found) > _MOST_REMEMBERED:
        found.clear()
    return found


_combiner: Combiner[tuple[Engine, str], _Submission, _Answer] = Combiner(_serve, MOST_AT_ONCE)
