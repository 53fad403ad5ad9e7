"""Comments on a job: what its analyst and stewards say to one another, and questions that it waits
for.

    steward asks ──▶ the job waits for its analyst ──▶ analyst answers ──▶ it waits for a steward
      again

A question changes no state: the job awaits approval throughout, nothing is reserved or charged, and
it may be decided at any time. Each question and each answer gives the next person the policy's days
anew. Comments are never changed, and never logged: what people say stands in their own rows alone.
"""

from datetime import datetime, timedelta
from uuid import UUID, uuid4

from sqlalchemy import Connection, Engine, func, insert, select

from accountant import tables
from accountant.core.errors import Conflict, NotFound, invalid
from accountant.identities import activity_log
from accountant.identities.actor import Actor
from accountant.tables.lookup import one
from accountant.transactions import owners
from accountant.transactions.rows import policy_of, set_job

jobs, comments = tables.jobs, tables.comments

#: Characters of a comment, and comments on a job, at most.
MOST_CHARACTERS = 2_000
MOST_COMMENTS = 200
#: Of kinds, those that open and close a question.
TURNS = ("question", "answer")
_SAID = {"question": "job asked back", "answer": "job answered", "comment": "job commented on"}


def say(engine: Engine, job_id: UUID, actor: Actor, text: str, asks: bool = False) -> str:
    """Add a comment to a job; returns its kind: what an analyst says to an open question is its
    answer.

    `asks`: a steward asks back, which only a job that awaits approval can be. Raises NotFound for
    other people's jobs, InvalidRequest for a text that is empty or too long, and Conflict.
    """
    said = text.strip()
    if not 1 <= len(said) <= MOST_CHARACTERS or "\0" in said:
        problem = (
            "holds a character that no text has" if "\0" in said else f"{len(said):,} characters"
        )
        raise invalid("text", problem, f"from 1 to {MOST_CHARACTERS:,} characters")
    if asks:
        actor.require("steward")
    with engine.begin() as connection:
        query = select(jobs).where(jobs.c.id == job_id)
        job = one(connection, query.with_for_update(), "job", job_id)
        dataset = connection.execute(
            select(tables.datasets).where(tables.datasets.c.id == job.dataset_id)
        ).one()
        policy = policy_of(dataset)
        if job.analyst_id != actor.id and "steward" not in owners.on(actor, policy).roles:
            raise NotFound("job", str(job_id))
        if asks:
            owners.require(actor, policy, "steward")
        late = job.approval_expires is not None and job.approval_expires < _now(connection)
        waits = job.state == "awaiting_approval" and not late
        if asks and not waits:
            state = "expired" if late else job.state.replace("_", " ")
            raise Conflict(f"the job is {state}, not awaiting approval")
        those_before = select(func.count()).where(comments.c.job_id == job_id)
        if connection.execute(those_before).scalar_one() >= MOST_COMMENTS:
            raise Conflict(f"the job has {MOST_COMMENTS} comments, and takes no more")
        answers = waits and job.analyst_id == actor.id and asked_back(connection, job_id)
        kind = "question" if asks else "answer" if answers else "comment"
        connection.execute(
            insert(comments).values(
                id=uuid4(), job_id=job_id, author_id=actor.id, kind=kind, text=said
            )
        )
        days = policy.approval_days
        if kind in TURNS and job.approval_expires is not None and days is not None:
            set_job(connection, job, approval_expires=func.clock_timestamp() + timedelta(days=days))
        activity_log.record(
            connection, actor, _SAID[kind], "job", str(job_id), dataset=dataset.name
        )
    return kind


def asked_back(connection: Connection, job_id: UUID) -> bool:
    """Return whether the last question on a job has no answer."""
    turns = select(comments.c.kind).where(comments.c.job_id == job_id, comments.c.kind.in_(TURNS))
    last = turns.order_by(comments.c.created_at.desc(), comments.c.id.desc()).limit(1)
    return connection.execute(last).scalar_one_or_none() == "question"


def _now(connection: Connection) -> datetime:
    found: datetime = connection.execute(select(func.clock_timestamp())).scalar_one()
    return found
