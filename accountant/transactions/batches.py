"""The requests of one transaction: what is asked, what is decided on each, and the rows that this
makes.

Decided on an account that is locked; written by submission.py.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Connection, Table, func, select

from accountant import settings, tables
from accountant.core import mechanisms
from accountant.core.errors import Conflict, invalid
from accountant.core.ledger import charges, lineage
from accountant.core.mechanisms import charge
from accountant.core.privacy.price import Terms
from accountant.core.states import UNRESERVED
from accountant.identities.actor import Actor
from accountant.settings import Settings
from accountant.transactions import artifacts, job_requests, public_resources, sources
from accountant.transactions.admission_facts import (
    Facts,
    ModelFacts,
    facts_of,
    look_up,
    ready_models,
)
from accountant.transactions.decision import Asker, Untold, consider
from accountant.transactions.job_requests import JobRequest, Priced
from accountant.transactions.locked_account import LockedAccount


@dataclass
class Submission:
    """A request in the queue. Its job's id is drawn here: `tried` again, it still makes one job.

    `beforehand`: its price, under the terms that it was found under; None: it is found when it is
    decided on.
    """

    request: JobRequest
    actor: Actor
    key: str | None
    sha256: str | None
    beforehand: tuple[Terms, Priced] | None = None
    job_id: UUID = field(default_factory=uuid4)
    tried: bool = False

    def priced(self, terms: Terms) -> Priced:
        """Return the price under these terms. Raises InvalidRequest naming every wrong field."""
        if self.beforehand is not None and self.beforehand[0] == terms:
            return self.beforehand[1]
        return job_requests.priced(self.request, terms)


@dataclass(frozen=True)
class Answer:
    """The job, and what remains to be told about its refusal once the row is free."""

    job_id: UUID
    untold: Untold | None = None


class Batch:
    """The requests of one transaction. `facts` were read while the row was locked.

    `admit` changes the books in memory only and collects the rows to be written; if it raises, it
    has changed nothing.
    """

    def __init__(self, locked: LockedAccount, facts: Facts) -> None:
        self.locked, self.facts = locked, facts
        self.jobs: list[dict[str, Any]] = []
        self.others: dict[Table, list[dict[str, Any]]] = {}
        #: Jobs by (analyst, key), and those of submissions that were tried before, by id.
        self.earlier: dict[tuple[UUID, str], tuple[str | None, Answer]] = {}
        self.waiting: Waiting = Counter()
        self.recorded: frozenset[UUID] = frozenset()

    def admit(self, submission: Submission) -> Answer:
        """Return the answer to one request. Raises what is wrong with it."""
        if submission.job_id in self.recorded:
            return Answer(submission.job_id)
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
        self, submission: Submission, approval: Mapping[str, Any] | None = None, **columns: Any
    ) -> Answer:
        """Decide on a request and collect its rows. `approval`, `columns`: a steward's yes."""
        request, locked, policy = submission.request, self.locked, self.facts.policy
        if self.facts.version_id is None:
            problem = f"{request.dataset!r} is not ready: its data has not been checked"
            raise invalid("dataset", problem, "a ready one")
        job_requests.check_data(request.mechanism, self.facts.data_is_here)
        model = self._model(request)
        job_requests.check_policy(policy, request, submission.actor.name)
        priced = submission.priced(self.facts.terms)
        if request.mechanism == charge.ID:
            terms = locked.rules.terms
            assert terms is not None  # every ledger begins with a REGISTER
            recorded = priced.candidate.parameters
            charges.check_stated(locked.dataset, terms["unit_column"], recorded)
            check_unused(locked, recorded.get("signature"))
        if submission.sha256 is None:
            raise invalid(
                "parameters", "holds what has no canonical JSON form", "finite numbers and text"
            )
        if priced.candidate.is_free:
            most = settings.load().free_jobs_per_person
            check_free_jobs(locked.connection, submission.actor.id, most, self.jobs)
        model_id = None if model is None else UUID(model.id)
        reads = artifacts.source(
            locked.connection, locked.dataset_id, model_id, priced, submission.actor
        )
        named = public_resources.resolve(locked.connection, priced.candidate, policy)
        read_beside = sources.resolve(
            locked.connection, locked.dataset_id, model_id, priced.candidate, submission.actor
        )
        if reads is None:
            source = (
                {} if priced.candidate.is_public else lineage.of_version(self.facts.version_number)
            )
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
                check_limits(self.waiting, submission.actor.id, state, settings.load())
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
        for table, rows in verdict.rows(submission.job_id, submission.actor.id):
            self.others.setdefault(table, []).extend(rows)
        # Listings go by this time: the order of arrival is kept, and no two are alike.
        locked.now += timedelta(microseconds=1)
        return Answer(submission.job_id, verdict.untold)

    def _model(self, request: JobRequest) -> ModelFacts | None:
        """Return the model that a request names, checked; None where its mechanism uses none."""
        name = request.model
        if not mechanisms.get(request.mechanism).uses_model:
            if name is not None:
                raise invalid("model", f"{request.mechanism} uses none", "nothing")
            return None
        found = None if name is None else self.facts.models.get(name)
        if found is None or found.state != "ready":
            ready = ", ".join(ready_models(self.locked.connection)) or "none is registered yet"
            problem = (
                f"there is no model {name!r}" if found is None else f"{name!r} is {found.state}"
            )
            problem = (
                f"none is given, and {request.mechanism} runs one" if name is None else problem
            )
            raise invalid("model", problem, ready)
        return found


def check_unused(locked: LockedAccount, signature: str | None) -> None:
    """Raise InvalidRequest if a runner's signature asked for a charge before, whatever came of it.

    Of two at once the database refuses one (`uq_jobs_signature`), which is then looked at alone.
    """
    table = tables.jobs
    used = select(table.c.id).where(
        table.c.mechanism == charge.ID, table.c.parameters["signature"].astext == signature
    )
    if signature is not None and locked.connection.execute(used).first() is not None:
        problem = "it asked for another charge already"
        raise invalid("parameters.signature", problem, "the runner's, with a nonce of its own")


def looked_up(locked: LockedAccount, submissions: Sequence[Submission]) -> Batch:
    """Return the batch and all that it refers to, read while the row is locked."""
    keyed = [
        (submission.actor.id, submission.key)
        for submission in submissions
        if submission.key is not None
    ]
    names = {
        submission.request.model
        for submission in submissions
        if submission.request.model is not None
    }
    tried = [submission.job_id for submission in submissions if submission.tried]
    people = list({submission.actor.id for submission in submissions})
    found = look_up(locked, sorted(names), keyed, tried, people)
    for submission in submissions:
        submission.tried = True
    locked.use_rules(found.newest_rule)
    batch = Batch(locked, facts_of(found, locked.accounts))
    batch.earlier |= {
        (UUID(analyst), key): (sha256, Answer(UUID(job_id)))
        for job_id, analyst, key, sha256 in found.earlier or ()
    }
    batch.waiting |= {
        (UUID(analyst), state): count for analyst, state, count in found.waiting or ()
    }
    batch.recorded = frozenset(UUID(job_id) for job_id in found.recorded or ())
    return batch


# --- what may wait ------------------------------------------------------------------------------

# Limits on jobs of one person that wait: a price bounds spending, not queues.

#: States of a job that waits; one that is submitted waits for both, as its look may send it either
#: way.
FOR_A_WORKER = ("submitted", "queued")
FOR_A_STEWARD = ("submitted", "awaiting_approval")
FOR_A_RELEASE = ("awaiting_release",)

#: Jobs that read records and wait, by person and state.
Waiting = Counter[tuple[UUID, str]]


def least(configured: Settings) -> int:
    """Return how many jobs of a person may wait, whatever for, with no limit in question."""
    return min(configured.waiting_jobs_per_person, configured.approvals_per_person)


def check_limits(waiting: Waiting, analyst_id: UUID, state: str, configured: Settings) -> None:
    """Raise InvalidRequest where one more job of this person in `state` would be beyond a limit.

    Requests on several datasets at one moment are not counted against each other.
    """
    for states, most, name, whom, remedy in (
        (
            FOR_A_WORKER,
            configured.waiting_jobs_per_person,
            "WAITING_JOBS_PER_PERSON",
            "a worker",
            "wait for one to start, or cancel one",
        ),
        (
            FOR_A_STEWARD,
            configured.approvals_per_person,
            "APPROVALS_PER_PERSON",
            "a steward",
            "wait for an answer, or cancel one",
        ),
        (
            FOR_A_RELEASE,
            configured.approvals_per_person,
            "APPROVALS_PER_PERSON",
            "a release",
            "wait for it, or cancel one",
        ),
    ):
        count = sum(waiting[analyst_id, state] for state in states)
        if state in states and count >= most:
            problem = f"{count} jobs of yours wait for {whom}"
            raise invalid(
                "mechanism", problem, f"at most {most} at a time (EXCHEQUER_{name}): {remedy}"
            )


_UNENDED = (*UNRESERVED, "queued", "running", "settling")


def check_free_jobs(
    connection: Connection, analyst_id: UUID, most: int, beside: Sequence[dict[str, Any]] = ()
) -> None:
    """Raise InvalidRequest where this person has `most` free jobs that have not ended.

    No allowance limits jobs that cost nothing, so a number does, for each person.
    `beside`: rows of jobs in the same batch. Requests on several datasets at one moment are not
    counted against each other.
    """
    jobs = tables.jobs
    query = select(func.count()).where(
        jobs.c.analyst_id == analyst_id, ~jobs.c.reads_records, jobs.c.state.in_(_UNENDED)
    )
    count = connection.execute(query).scalar_one()
    count += sum(
        row["analyst_id"] == analyst_id and not row["reads_records"] and row["state"] in _UNENDED
        for row in beside
    )
    if count >= most:
        jobs_of = f"{count} jobs of yours that cost nothing have not ended"
        allowed = (
            f"at most {most} at a time (EXCHEQUER_FREE_JOBS_PER_PERSON): wait for one, or "
            "cancel one"
        )
        raise invalid("mechanism", jobs_of, allowed)
