"""Requests for access: somebody who may not ask on a dataset says why they should; its stewards answer.

    ask ──▶ open ── grant ──▶ the policy names the person, by its own rules (two people where it asks for two)
              └── refuse, with a reason

Who may ask is the policy's word alone: a request, granted or not, changes nothing by itself. What people say
stands in their own rows and is never logged.
"""

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Connection, Engine, Row, func, insert, select, update

from accountant import tables
from accountant.core.errors import Conflict, NotFound, NotPermitted, invalid
from accountant.core.ledger.policy import Policy
from accountant.identities import activity_log
from accountant.identities.actor import Actor
from accountant.tables.lookup import one
from accountant.transactions import owners, proposals
from accountant.transactions.rows import policy_of

requests, datasets, users = tables.access_requests, tables.datasets, tables.users

MOST_CHARACTERS = 2_000
#: Requests of one person in a day, over all datasets.
PER_DAY = 5


def ask(engine: Engine, name: str, actor: Actor, reason: str) -> UUID:
    """Ask for access to a dataset; returns the request's id.

    Raises NotFound, InvalidRequest for a reason that is empty or too long or where the day's requests are
    used up, NotPermitted for who could not ask for jobs anyway, and Conflict for who may already, or waits
    for an answer.
    """
    actor.require(*owners.ASKERS)
    why = _words(reason)
    made = uuid4()
    with engine.begin() as connection:
        connection.execute(
            select(users.c.id).where(users.c.id == actor.id).with_for_update()
        )  # so many a day
        dataset = one(connection, select(datasets).where(datasets.c.name == name), "dataset", name)
        if may_ask(policy_of(dataset), actor.name):
            raise Conflict("you may ask for jobs on this dataset already")
        open_one = select(requests.c.id).where(
            requests.c.dataset_id == dataset.id, requests.c.person_id == actor.id, requests.c.state == "open"
        )
        if connection.execute(open_one).first() is not None:
            raise Conflict("your request for access to this dataset waits for a steward already")
        recent = select(func.count()).where(
            requests.c.person_id == actor.id,
            requests.c.created_at > func.clock_timestamp() - timedelta(days=1),
        )
        if connection.execute(recent).scalar_one() >= PER_DAY:
            raise invalid(
                "reason", f"{PER_DAY} requests in 24 hours", f"at most {PER_DAY}: try again tomorrow"
            )
        connection.execute(
            insert(requests).values(id=made, dataset_id=dataset.id, person_id=actor.id, reason=why)
        )
        activity_log.record(connection, actor, "access asked for", "dataset", name)
    return made


def refuse(engine: Engine, request_id: UUID, actor: Actor, reason: str) -> None:
    """Refuse a request, with a reason that its person reads. Raises as `grant`."""
    actor.require("steward")
    with engine.begin() as connection:
        found, dataset = _open_request(connection, request_id, actor)
        _decide(connection, found, dataset, actor, "refused", _words(reason))


def grant(engine: Engine, request_id: UUID, actor: Actor, reason: str) -> UUID | None:
    """Grant a request: the policy names the person among those who may ask.

    Returns the id of the proposal where the policy asks for a second steward, who then confirms it. The
    request is decided last: a process that ends in between leaves it open, and granting it again changes
    nothing twice. Raises NotFound for a request on another steward's dataset, Conflict for one that is
    decided or a policy that somebody else changes meanwhile, and what a change of the policy raises.
    """
    actor.require("steward")
    why = _words(reason)
    with engine.connect() as connection:
        found, dataset = _open_request(connection, request_id, actor, lock=False)
        person = connection.execute(select(users).where(users.c.id == found.person_id)).one()
    if person.id == actor.id:
        raise NotPermitted("nobody grants a request of their own")
    left = owners.account_departure(person)
    if left is not None:
        raise Conflict(f"{left}: refuse the request, or open the account first")
    policy, proposal = policy_of(dataset), None
    if not may_ask(policy, person.name):
        stands = policy.model_dump(mode="json")

        def same(now: dict[str, Any]) -> None:
            if now != stands:
                raise Conflict("the policy was changed meanwhile: look at it, and grant again")

        wider = policy.model_copy(update={"analysts": (*policy.analysts, person.name)})
        proposal = proposals.set_policy(engine, dataset.name, wider, actor, same)
    with engine.begin() as connection:
        found, dataset = _open_request(connection, request_id, actor)
        _decide(connection, found, dataset, actor, "granted", why)
    return proposal


def may_ask(policy: Policy, name: str) -> bool:
    """Whether the policy lets somebody of this name ask for jobs; an empty list names everybody."""
    return not policy.analysts or name in policy.analysts


def _words(reason: str) -> str:
    said = reason.strip()
    if not 1 <= len(said) <= MOST_CHARACTERS or "\0" in said:
        problem = "holds a character that no text has" if "\0" in said else f"{len(said):,} characters"
        raise invalid("reason", problem, f"from 1 to {MOST_CHARACTERS:,} characters")
    return said


def _open_request(
    connection: Connection, request_id: UUID, actor: Actor, lock: bool = True
) -> tuple[Row[Any], Row[Any]]:
    """A request that waits, with its dataset; to stewards of other datasets there is none."""
    query = select(requests).where(requests.c.id == request_id)
    found = one(connection, query.with_for_update() if lock else query, "request for access", request_id)
    dataset = connection.execute(select(datasets).where(datasets.c.id == found.dataset_id)).one()
    if "steward" not in owners.on(actor, policy_of(dataset)).roles:
        raise NotFound("request for access", str(request_id))
    if found.state != "open":
        raise Conflict(f"the request is {found.state} already")
    return found, dataset


def _decide(
    connection: Connection, found: Row[Any], dataset: Row[Any], actor: Actor, state: str, answer: str
) -> None:
    if found.person_id == actor.id:
        raise NotPermitted("nobody decides on a request of their own")
    change = update(requests).where(requests.c.id == found.id)
    connection.execute(
        change.values(state=state, answer=answer, decided_by=actor.id, decided_at=func.clock_timestamp())
    )
    activity_log.record(connection, actor, f"access {state}", "dataset", dataset.name, request=str(found.id))
