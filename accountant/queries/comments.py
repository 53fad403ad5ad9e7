"""Comments on jobs, oldest first. Whoever may see a job may read them: who that is, the caller
knows.
"""

from collections.abc import Collection, Mapping
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Engine, func, select

from accountant import tables
from accountant.database import reading
from accountant.schema.jobs import Comment
from accountant.transactions.comments import TURNS


def of_jobs(engine: Engine, job_ids: Collection[str]) -> Mapping[str, list[Comment]]:
    """Return the comments on each of these jobs, in one statement; none where there are none."""
    if not job_ids:
        return {}
    with reading(engine) as connection:
        return read(connection, [UUID(job_id) for job_id in job_ids])


def read(connection: Connection, job_ids: Collection[UUID]) -> Mapping[str, list[Comment]]:
    """Return the same on a connection."""
    comments, users = tables.comments, tables.users
    query = select(
        comments.c.job_id,
        users.c.name.label("author"),
        comments.c.kind,
        comments.c.text,
        comments.c.created_at,
    )
    whole = query.join(users, users.c.id == comments.c.author_id).where(
        comments.c.job_id.in_(job_ids)
    )
    comments_by_job: dict[str, list[Comment]] = {str(job_id): [] for job_id in job_ids}
    for row in connection.execute(whole.order_by(comments.c.created_at, comments.c.id)):
        facts = {name: getattr(row, name) for name in ("author", "kind", "text", "created_at")}
        comments_by_job[str(row.job_id)].append(Comment(**facts))
    return comments_by_job


def is_asked_back() -> ColumnElement[bool]:
    """Return the clause over jobs: of its questions and answers, the last is a question."""
    comments = tables.comments
    turns = select(comments.c.kind == "question").where(
        comments.c.job_id == tables.jobs.c.id, comments.c.kind.in_(TURNS)
    )
    last = turns.order_by(comments.c.created_at.desc(), comments.c.id.desc()).limit(1)
    return func.coalesce(last.correlate(tables.jobs).scalar_subquery(), False)
