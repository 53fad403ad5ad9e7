"""Pushes: a published result goes to a hub outside, once a steward said yes to what is published.

    propose ──▶ decision ── a steward says yes ──▶ `approved` ──▶ the asker uploads ──▶ `record`

The service holds no token of a hub: whoever asked uploads from their own machine. A yes is to these
files alone, by their hashes, and is used once, within OPEN_DAYS.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Connection, Engine, Row, func, select

from accountant import tables
from accountant.core.errors import Conflict, NotFound
from accountant.database import reading
from accountant.identities import activity_log
from accountant.identities.actor import Actor
from accountant.transactions import owners, two_people
from accountant.transactions.asking import (
    OPEN_DAYS,
    ByAnybody,
    Ground,
    Request,
    Result,
    ask,
    row_of,
    words,
)

activity, decisions, jobs = tables.activity, tables.decisions, tables.jobs

PUSHED = "result pushed"


def propose(
    engine: Engine, job_id: UUID, actor: Actor, asked: Mapping[str, Any], reason: str
) -> UUID:
    """Ask to publish a result; returns the decision's id. The caller has asked who reads it.

    Args:
        asked: `to` and `endpoint`, where it goes; `license` and `language` of its card; `made`,
            the date that the card says; `head` and `after_entry` of the ledger then; `files`, the
            SHA-256 of each file by its name.

    Raises Conflict where the actor's last request to publish it there waits for an answer.
    """
    actor.require(*owners.ASKERS)
    reason = words(reason)
    request = Request(Push.name, asked, reason, job_id=job_id, by_two=False)
    waiting = select(decisions.c.id).where(
        decisions.c.kind == Push.name,
        decisions.c.job_id == job_id,
        decisions.c.asked_by == actor.id,
        decisions.c.asked["to"].astext == asked["to"],
        decisions.c.state == "open",
    )
    with engine.begin() as connection:
        job = connection.execute(select(jobs).where(jobs.c.id == job_id).with_for_update()).one()
        open_request = connection.execute(waiting).scalar()
        if open_request is not None:
            raise Conflict(
                f"your request {open_request} to publish it there waits for a steward already"
            )
        return ask(connection, uuid4(), job.dataset_id, actor, request)


class Push(ByAnybody):
    """Somebody asks to publish a result on a hub. Another person, a steward, answers."""

    name, title, is_sensitive = "push", "a result for a hub", False
    effect = (
        "Who asked may publish these files there, once, within 14 days. What is published can't be "
        "taken back."
    )

    def require_answerer(self, ground: Ground) -> None:
        """Raise NotPermitted unless another steward answers, as the policy's approvers do."""
        super().require_answerer(ground)
        two_people.require_approver(ground.connection, ground.actor, ground.policy)

    def apply(self, ground: Ground) -> Result:
        """Let the asker publish it. Raises Conflict if they left."""
        person = row_of(ground.connection, tables.users, ground.row.asked_by)
        left = owners.account_departure(person)
        if left is not None:
            raise Conflict(f"{left}: refuse the request")
        ground.require_unlike(person.name)
        return Result()


def approved(engine: Engine, decision_id: UUID, actor: Actor) -> Row[Any]:
    """Return the decision by which the actor may publish now. Raises NotFound and Conflict."""
    with reading(engine) as connection:
        row = _accepted(connection, decision_id, actor)
        if _is_used(connection, row):
            raise Conflict("it was published by this approval already: ask again")
        query = select(func.clock_timestamp() > row.answered_at + timedelta(days=OPEN_DAYS))
        if connection.execute(query).scalar_one():
            raise Conflict(f"it was approved more than {OPEN_DAYS} days ago: ask again")
        return row


def record(engine: Engine, decision_id: UUID, actor: Actor, commit: str) -> None:
    """Record where a result went, as who published it says. Recorded once, however often said."""
    with engine.begin() as connection:
        row = _accepted(connection, decision_id, actor, held=True)
        if _is_used(connection, row):
            return
        dataset = row_of(connection, tables.datasets, row.dataset_id).name
        went = {name: row.asked[name] for name in ("to", "endpoint")}
        went |= {"commit": commit, "decision": str(row.id), "dataset": dataset}
        activity_log.record(connection, actor, PUSHED, "job", str(row.job_id), **went)


def _accepted(
    connection: Connection, decision_id: UUID, actor: Actor, held: bool = False
) -> Row[Any]:
    actor.require(*owners.ASKERS)
    query = select(decisions).where(
        decisions.c.id == decision_id,
        decisions.c.kind == Push.name,
        decisions.c.asked_by == actor.id,
    )
    row = connection.execute(query.with_for_update() if held else query).one_or_none()
    if row is None:
        raise NotFound("decision", str(decision_id))
    if row.state != "accepted":
        raise Conflict(f"the request to publish it is {row.state}: nothing is published by it")
    return row


def _is_used(connection: Connection, row: Row[Any]) -> bool:
    query = select(activity.c.id).where(
        activity.c.object_kind == "job",
        activity.c.object_id == str(row.job_id),
        activity.c.action == PUSHED,
        activity.c.detail["decision"].astext == str(row.id),
    )
    return connection.execute(query).first() is not None
