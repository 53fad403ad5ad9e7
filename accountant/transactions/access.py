"""Requests for access: somebody who may not ask on a dataset says why they should; its stewards
answer.

A yes names the person in the policy, by the policy's own rules: where it asks for two people, the
change of the policy is a decision of its own. Who may ask is the policy's word alone. What people
say stands in their own rows and is never logged.
"""

from datetime import timedelta
from uuid import UUID, uuid4

from sqlalchemy import Engine, func, select

from accountant import tables
from accountant.core.errors import Conflict, invalid
from accountant.core.ledger.policy import Policy
from accountant.identities.actor import Actor
from accountant.tables.lookup import one
from accountant.transactions import owners, policies
from accountant.transactions.asking import ByAnybody, Ground, Request, Result, ask, row_of, words
from accountant.transactions.rows import policy_of

datasets, decisions, users = tables.datasets, tables.decisions, tables.users

#: Requests of one person in a day, over all datasets.
PER_DAY = 5


def ask_for(engine: Engine, name: str, actor: Actor, reason: str) -> UUID:
    """Ask for access to a dataset; returns the decision's id.

    Raises NotFound, InvalidRequest for a reason that is empty or too long or where the day's
    requests are used up, NotPermitted for who could not ask for jobs anyway, and Conflict for who
    may already, or waits for an answer.
    """
    actor.require(*owners.ASKERS)
    request = Request(Access.name, {}, words(reason), days=None, by_two=False)
    with engine.begin() as connection:
        # One request of a person at a time: they are counted.
        connection.execute(select(users.c.id).where(users.c.id == actor.id).with_for_update())
        dataset = one(connection, select(datasets).where(datasets.c.name == name), "dataset", name)
        if may_ask(policy_of(dataset), actor.name):
            raise Conflict("you may ask for jobs on this dataset already")
        mine = select(func.count()).where(
            decisions.c.kind == Access.name, decisions.c.asked_by == actor.id
        )
        waiting = mine.where(decisions.c.dataset_id == dataset.id, decisions.c.state == "open")
        if connection.execute(waiting).scalar_one():
            raise Conflict("your request for access to this dataset waits for a steward already")
        recent = mine.where(decisions.c.created_at > func.clock_timestamp() - timedelta(days=1))
        if connection.execute(recent).scalar_one() >= PER_DAY:
            raise invalid(
                "reason",
                f"{PER_DAY} requests in 24 hours",
                f"at most {PER_DAY}: try again tomorrow",
            )
        return ask(connection, uuid4(), dataset.id, actor, request)


class Access(ByAnybody):
    """Somebody asks to be named among those who may ask for jobs. The stewards see it."""

    name = "access"
    yes = "Grant it"
    effect = (
        "The policy then names them among those who may ask. Where it asks for two people, another "
        "steward confirms that first."
    )
    seen_by = frozenset({"steward"})

    def apply(self, ground: Ground) -> Result:
        """Name the person in the policy, or propose it. Raises Conflict if they left."""
        person, policy = row_of(ground.connection, users, ground.row.asked_by), ground.policy
        left = owners.account_departure(person)
        if left is not None:
            raise Conflict(f"{left}: refuse the request, or open the account first")
        if may_ask(policy, person.name):
            return Result()
        wider = policy.model_copy(update={"analysts": (*policy.analysts, person.name)})
        proposed = policies.change(ground.account, wider, ground.actor, signature=ground.signature)
        return Result(decision=proposed)


def may_ask(policy: Policy, name: str) -> bool:
    """Return True if the policy lets this name ask for jobs; an empty list lets everybody."""
    return not policy.analysts or name in policy.analysts
