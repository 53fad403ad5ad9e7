"""Since when each account has been in the hands that hold it, as far as the service can tell.

Whoever manages accounts can make a second pair of hands: a new account, a reset password, a closed
account that is opened, a role that is given, a name at the identity provider. Each such act starts
the account's custody anew, and until it has lasted a while the account confirms nothing
(transactions.two_people). All of it is read from the activity log, which is append-only: there is
no second record that could say otherwise.
"""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, and_, any_, func, or_, select

from accountant.tables import activity, external_accounts, users

#: Acts after which somebody else may sign in to an account.
HANDED = ("account added", "password reset", "account opened")
ROLE = "steward"
#: How far back acts on people stand beside what is to be confirmed.
SHOWN = timedelta(days=30)


def _starts() -> ColumnElement[bool]:
    """Return whether an act of the log may have given an account away, or made it a steward's."""
    gained = and_(
        activity.c.action == "roles changed",
        activity.c.detail["after"].has_key(ROLE),
        ~activity.c.detail["before"].has_key(ROLE),
    )
    return and_(activity.c.object_kind == "account", or_(activity.c.action.in_(HANDED), gained))


def began(connection: Connection, user_id: UUID) -> datetime:
    """Return the newest moment at which an account may have come into other hands."""
    newest = (
        select(func.max(activity.c.at))
        .where(_starts(), activity.c.object_id == users.c.name)
        .correlate(users)
        .scalar_subquery()
    )
    linked = (
        select(func.max(external_accounts.c.created_at))
        .where(external_accounts.c.user_id == users.c.id)
        .correlate(users)
        .scalar_subquery()
    )
    query = select(func.greatest(users.c.created_at, newest, linked)).where(users.c.id == user_id)
    moment: datetime = connection.execute(query).scalar_one()
    return moment


def recent(connection: Connection, limit: int = 20) -> list[dict[str, Any]]:
    """Return acts of the last days after which a steward's account may be in other hands, newest
    first.

    For whoever is asked to confirm: who seems to be two people may be one.
    """
    query = (
        select(activity.c.at, activity.c.actor_name, activity.c.action, activity.c.object_id)
        .join(users, users.c.name == activity.c.object_id)
        .where(
            _starts(), any_(users.c.roles) == ROLE, activity.c.at > func.clock_timestamp() - SHOWN
        )
        .order_by(activity.c.id.desc())
        .limit(limit)
    )
    return [
        {
            "at": row.at.isoformat(),
            "actor": row.actor_name,
            "action": row.action,
            "account": row.object_id,
        }
        for row in connection.execute(query)
    ]
