"""The account of the first use is steward and administrator, and stops being both once there are
two people.

Whoever is both could make the second person that an act takes (transactions.two_people). So when
such an account gives another one of the two roles, it gives it away: who adds a steward stays
administrator, and the other way round.
"""

from collections.abc import Iterable

from sqlalchemy import Connection, any_, func, literal, select, update
from sqlalchemy.dialects.postgresql import JSONB

from accountant.identities import activity_log
from accountant.identities.actor import Actor
from accountant.tables import datasets, users

BOTH = frozenset({"steward", "administrator"})


def hand_over(connection: Connection, actor: Actor, name: str, given: Iterable[str]) -> None:
    """After `actor` gave roles to the account `name`: take the one of BOTH that it gave from its
    own.

    Nothing happens where it gave both or neither, or where a dataset would be left without a
    steward.
    """
    handed = BOTH & set(given)
    if len(handed) != 1 or name == actor.name:
        return
    row = connection.execute(
        select(users).where(users.c.id == actor.id).with_for_update()
    ).one_or_none()
    if row is None or not set(row.roles) >= BOTH:
        return
    if "steward" in handed and sole_steward_of(connection, row.id) is not None:
        return
    roles = sorted(set(row.roles) - handed)
    connection.execute(update(users).where(users.c.id == row.id).values(roles=roles))
    activity_log.record(
        connection,
        actor,
        "roles changed",
        "account",
        row.name,
        before=row.roles,
        after=roles,
        handed_to=name,
    )


def sole_steward_of(connection: Connection, user_id: object) -> str | None:
    """Return the name of a dataset of whose stewards only this person still is one; None: there is
    none.
    """
    person, other = users.alias(), users.alias()
    named = datasets.c.policy["stewards"]
    stewards = select(other.c.id).where(
        other.c.id != user_id,
        other.c.active,
        any_(other.c.roles) == "steward",
        func.coalesce(named, literal([], JSONB)).has_key(other.c.name),
    )
    query = (
        select(datasets.c.name)
        .join(person, func.coalesce(named, literal([], JSONB)).has_key(person.c.name))
        .where(
            person.c.id == user_id,
            person.c.active,
            any_(person.c.roles) == "steward",
            ~stewards.exists(),
        )
    )
    dataset: str | None = connection.execute(
        query.order_by(datasets.c.name).limit(1)
    ).scalar_one_or_none()
    return dataset
