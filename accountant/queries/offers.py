"""Offers as a viewer may see them: stewards and auditors all, analysts those made to them. Reads only."""

from types import SimpleNamespace
from typing import Any
from uuid import UUID

from sqlalchemy import Engine, Row, Select, or_, select

from accountant import tables
from accountant.core import mechanisms
from accountant.core.errors import NotFound
from accountant.core.ledger.policy import Policy
from accountant.database import reading
from accountant.identities.actor import Actor
from accountant.schema.decisions import Change, Offer
from accountant.tables import paging
from accountant.transactions import owners

offers, jobs = tables.offers, tables.jobs


def listing(
    engine: Engine,
    viewer: Actor,
    *,
    state: str | None = "open",
    job: UUID | None = None,
    offer: UUID | None = None,
    mine: bool = False,
    limit: int = 50,
    after: paging.After = None,
) -> list[Offer]:
    """Offers that `viewer` may see, newest first: those made to them and (unless only `mine`)
    of the datasets that they oversee.

    `after` (created_at, id) continues a listing.
    """
    query = paging.window(_query(), [offers.c.created_at, offers.c.id], limit, after)
    own = jobs.c.analyst_id == viewer.id
    query = query.where(own if mine else or_(own, owners.overseen(viewer)))
    for wanted, column in ((state, offers.c.state), (job, offers.c.job_id), (offer, offers.c.id)):
        if wanted is not None:
            query = query.where(column == wanted)
    with reading(engine) as connection:
        return [_view(row) for row in connection.execute(query)]


def show(engine: Engine, offer_id: UUID, viewer: Actor) -> Offer:
    """One offer. Raises NotFound."""
    found = listing(engine, viewer, state=None, offer=offer_id)
    if not found:
        raise NotFound("offer", str(offer_id))
    return found[0]


def _query() -> Select[Any]:
    steward, analyst = tables.users.alias(), tables.users.alias()
    return (
        select(
            offers,
            jobs.c.mechanism,
            jobs.c.project,
            jobs.c.purpose,
            jobs.c.parameters.label("asked"),
            jobs.c.epsilon_alone.label("asked_alone"),
            tables.datasets.c.name.label("dataset"),
            tables.datasets.c.policy,
            *(analyst.c[name].label(f"analyst_{name}") for name in _ACCOUNT),
            *(steward.c[name].label(f"steward_{name}") for name in _ACCOUNT),
        )
        .join(jobs, jobs.c.id == offers.c.job_id)
        .join(tables.datasets, tables.datasets.c.id == jobs.c.dataset_id)
        .join(analyst, analyst.c.id == jobs.c.analyst_id)
        .join(steward, steward.c.id == offers.c.offered_by)
    )


#: What tells whether somebody left.
_ACCOUNT = ("name", "active", "roles")


def _left(row: Row[Any]) -> str | None:
    """Return why an open offer can't be accepted, as one of its two people left, or None."""
    if row.state != "open":
        return None
    analyst, steward = (
        SimpleNamespace(**{name: getattr(row, f"{role}_{name}") for name in _ACCOUNT})
        for role in ("analyst", "steward")
    )
    policy = Policy.model_validate(row.policy)
    return owners.departure(analyst, policy) or owners.steward_departure(steward, policy)


def _view(row: Row[Any]) -> Offer:
    order = mechanisms.get(row.mechanism).fields
    return Offer(
        id=str(row.id),
        job=str(row.job_id),
        changes=[
            Change(field=name, asked=row.asked.get(name), offered=row.parameters.get(name))
            for name in order
            if row.asked.get(name) != row.parameters.get(name)
        ],
        asked_epsilon_alone=row.asked_alone,
        delta=row.terms["delta"],
        analyst=row.analyst_name,
        offered_by=row.steward_name,
        left=_left(row),
        accepted_job=None if row.accepted_job_id is None else str(row.accepted_job_id),
        **{name: getattr(row, name) for name in _AS_THEY_ARE},
    )


#: As they stand in their row.
_AS_THEY_ARE = (
    *("dataset", "mechanism", "project", "purpose", "parameters", "terms", "epsilon_alone"),
    *("breakdown", "reason", "state", "decision_reason", "created_at", "expires_at", "decided_at"),
)
