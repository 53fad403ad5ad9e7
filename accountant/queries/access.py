"""Requests for access: those that wait for a steward, and a person's own with their answers."""

from typing import Any

from sqlalchemy import Engine, Select, func, select

from accountant import tables
from accountant.core.ledger.policy import Policy
from accountant.database import reading
from accountant.identities.actor import Actor
from accountant.schema.access import AccessRequest
from accountant.transactions import owners
from accountant.transactions.access import may_ask

requests, datasets, users = tables.access_requests, tables.datasets, tables.users

MOST = 50


def waiting(engine: Engine, viewer: Actor) -> list[AccessRequest]:
    """Open requests on the datasets of a steward, oldest first, at most MOST."""
    mine = _query().where(requests.c.state == "open", owners.overseen(viewer, owners.STEWARD))
    return _read(engine, mine.order_by(requests.c.created_at, requests.c.id).limit(MOST))


def count_waiting(engine: Engine, viewer: Actor) -> int:
    """The number of those."""
    joined = requests.join(datasets, datasets.c.id == requests.c.dataset_id)
    query = select(func.count()).select_from(joined)
    with reading(engine) as connection:
        narrowed = query.where(requests.c.state == "open", owners.overseen(viewer, owners.STEWARD))
        return int(connection.execute(narrowed).scalar_one())


def latest(engine: Engine, viewer: Actor, dataset: str) -> AccessRequest | None:
    """The viewer's own newest request on a dataset."""
    own = _query().where(requests.c.person_id == viewer.id, datasets.c.name == dataset)
    return next(iter(_read(engine, own.order_by(requests.c.created_at.desc(), requests.c.id).limit(1))), None)


def _query() -> Select[Any]:
    decider = users.alias("decider")
    return (
        select(
            requests,
            datasets.c.name.label("dataset"),
            datasets.c.policy,
            users.c.name.label("person"),
            users.c.name,
            users.c.active,
            users.c.roles,
            decider.c.name.label("decider"),
        )
        .join(datasets, datasets.c.id == requests.c.dataset_id)
        .join(users, users.c.id == requests.c.person_id)
        .outerjoin(decider, decider.c.id == requests.c.decided_by)
    )


def _read(engine: Engine, query: Select[Any]) -> list[AccessRequest]:
    with reading(engine) as connection:
        return [
            AccessRequest(
                id=str(row.id),
                dataset=row.dataset,
                person=row.person,
                reason=row.reason,
                state=row.state,
                answer=row.answer,
                decided_by=row.decider,
                created_at=row.created_at,
                decided_at=row.decided_at,
                person_left=owners.account_departure(row) if row.state == "open" else None,
                may_ask=may_ask(Policy.model_validate(row.policy), row.person),
            )
            for row in connection.execute(query)
        ]
