"""Who may be one of the two people that an act takes.

Two names in an entry are two people only if nobody can be both. So neither of them manages
accounts: who does could make the other. And whoever confirms, or approves a job where the policy
asks for two people, has had their account for a while: time for the others to see that it was made,
reset or given its role (identities.custody).
"""

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, func, select

from accountant import settings
from accountant.core.errors import NotPermitted
from accountant.core.ledger.policy import Policy
from accountant.identities import custody
from accountant.identities.actor import Actor


def require_separate(actor: Actor) -> None:
    """Raise NotPermitted for a steward who is administrator too."""
    if "administrator" in actor.roles:
        raise NotPermitted(
            "you are steward and administrator: where two people are asked for, one that could "
            "make the second one is neither of them. Give one of the two roles to another account "
            "on the page People"
        )


def require_settled(connection: Connection, actor: Actor) -> None:
    """Raise NotPermitted if the account is new, was reset or became a steward's of late."""
    began, wait = custody.began(connection, actor.id), _wait()
    if connection.execute(select(func.clock_timestamp())).scalar_one() < began + wait:
        raise NotPermitted(
            "this account is new, was reset, opened or given the role of a steward at "
            f"{began:%Y-%m-%d %H:%M} UTC: it confirms nothing before {began + wait:%Y-%m-%d %H:%M} "
            "UTC"
        )


def _wait() -> timedelta:
    return timedelta(hours=settings.load().new_account_hours)


def lapse(connection: Connection, person: Any, approved_at: datetime) -> str | None:
    """Return why a person's kept approval is not one of two people's any more, or None.

    It may be older than the policy that asks for two, and what happened to the account since counts
    as if it had happened before.
    """
    if "administrator" in person.roles:
        return f"{person.name} is administrator too, and the policy asks by now for two people"
    began = custody.began(connection, person.id)
    if approved_at < began + _wait():
        return (
            f"the policy asks for two people, and the account of {person.name}, who approved, was "
            f"new, reset, opened or made a steward's at {began:%Y-%m-%d %H:%M} UTC"
        )
    return None


def require_second(connection: Connection, actor: Actor) -> None:
    """Raise NotPermitted unless the actor may be the second of two people."""
    require_separate(actor)
    require_settled(connection, actor)


def require_approver(connection: Connection, actor: Actor, policy: Policy) -> None:
    """The same for who approves a job, where the dataset's policy asks for two people."""
    if policy.two_people:
        require_second(connection, actor)
