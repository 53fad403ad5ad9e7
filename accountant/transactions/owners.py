"""The owners of a dataset: the stewards and auditors whom its policy names; an empty list names all
of them.

On a dataset of other owners a steward or an auditor has the rights of somebody without that role.
Whatever shows or changes more than a dataset's public facts asks here, with the roles that `on`
leaves, or narrows its query with `overseen`.
"""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, any_, func, literal, or_, select

from accountant import tables
from accountant.core.errors import FieldProblem, InvalidRequest, NotPermitted
from accountant.core.ledger.policy import OWNERS, PEOPLE, Policy, read_signer
from accountant.identities.actor import Actor

STEWARD = frozenset({"steward"})
#: Roles that may ask for jobs.
ASKERS = ("analyst", "steward")


def on(actor: Actor, policy: Policy) -> Actor:
    """Return the actor with the roles that they have on a dataset with this policy."""
    lost = {
        role for role, field in OWNERS.items() if not _named(actor.name, getattr(policy, field))
    }
    return actor if not lost & actor.roles else Actor(actor.id, actor.name, actor.roles - lost)


def _named(name: str, listed: tuple[str, ...]) -> bool:
    return not listed or name in listed


def require(actor: Actor, policy: Policy, *roles: str) -> None:
    """Raise NotPermitted unless the actor has one of `roles` on a dataset with this policy."""
    actor.require(*roles)
    if not on(actor, policy).roles & set(roles):
        lists = " and ".join(OWNERS.get(role, f"{role}s") for role in roles)
        raise NotPermitted(f"you are none of this dataset's {lists}")


def overseen(actor: Any, roles: frozenset[str] = frozenset(OWNERS)) -> ColumnElement[bool]:
    """Over datasets: those on which the actor has one of `roles`; of all where none are given."""
    policy = tables.datasets.c.policy
    conditions = [
        or_(
            func.coalesce(func.jsonb_array_length(policy[OWNERS[role]]), 0) == 0,
            policy[OWNERS[role]].has_key(actor.name),
        )
        for role in sorted(roles & actor.roles & set(OWNERS))
    ]
    return or_(*conditions) if conditions else literal(False)


def oversees(connection: Connection, actor: Actor, dataset_id: UUID) -> bool:
    """Return True if the actor is a steward of the dataset."""
    query = select(tables.datasets.c.id).where(
        tables.datasets.c.id == dataset_id, overseen(actor, STEWARD)
    )
    return connection.execute(query).first() is not None


# --- people who left
# --------------------------------------------------------------------------------


def departure(person: Any, policy: Policy) -> str | None:
    """Return why a person who asked for a job may ask for none any more, or None if they may.

    Args:
        person: A row with the account's name, roles and whether it is active.
    """
    left = account_departure(person)
    if left is None and not _named(person.name, policy.analysts):
        return f"the policy no longer names {person.name} among those who may ask"
    return left


def account_departure(person: Any) -> str | None:
    """Return why an account may ask for no jobs on any dataset, or None if it may."""
    if not person.active:
        return f"the account of {person.name} is closed"
    if not set(person.roles) & set(ASKERS):
        return f"{person.name} has no role any more that may ask for jobs"
    return None


def steward_departure(person: Any, policy: Policy) -> str | None:
    """Return why a person who proposed or offered something decides no more, or None."""
    if not person.active:
        return f"the account of {person.name} is closed"
    if "steward" not in person.roles:
        return f"{person.name} is no steward any more"
    if not _named(person.name, policy.stewards):
        return f"the policy no longer names {person.name} among its stewards"
    return None


# --- names ----------------------------------------------------------------------------------------


def check_people(
    connection: Connection, policy: Policy, *, prefix: str = "", before: datetime | None = None
) -> None:
    """Raise InvalidRequest for a name in the policy that is no account's, or an owner's without the
    role; and for a signer that is no passkey of a steward's.

    A name is never changed or given to a second account, and none is given that a policy holds
    already (identities.credentials.reserve): so a name that passed here stands for one person for
    good. `before`: the account must have been there then.
    """
    _check_signers(connection, policy, prefix, before)
    users = tables.users
    named = {field: getattr(policy, field) for field in PEOPLE}
    if not policy.share_by_project:
        named["shares"] = tuple(policy.weights)
    wanted = sorted({name for names in named.values() for name in names})
    if not wanted:
        return
    query = select(users.c.name, users.c.roles, users.c.active).where(users.c.name.in_(wanted))
    if before is not None:
        query = query.where(users.c.created_at < before)
    accounts = {row.name: row for row in connection.execute(query)}
    role_of = {field: role for role, field in OWNERS.items()}
    problems = []
    for field, listed in named.items():
        role = role_of.get(field)
        unknown = [name for name in listed if name not in accounts]
        unfit = [
            name
            for name in listed
            if role and name in accounts and role not in _roles(accounts[name])
        ]
        if unknown:
            problem = f"nobody has the name {', '.join(map(repr, unknown))}"
            problems.append(
                FieldProblem(prefix + field, problem[:300], "names of accounts that there are")
            )
        elif unfit:
            problem = f"{', '.join(unfit)}: no {role} with an open account"
            problems.append(
                FieldProblem(prefix + field, problem[:300], f"names of {field} with open accounts")
            )
    if problems:
        raise InvalidRequest(problems)


def _check_signers(
    connection: Connection, policy: Policy, prefix: str, before: datetime | None
) -> None:
    if not policy.signers:
        return
    users, passkeys = tables.users, tables.passkeys
    query = (
        select(passkeys.c.signer)
        .join(users, users.c.id == passkeys.c.user_id)
        .where(
            passkeys.c.signer.in_(policy.signers),
            passkeys.c.removed_at.is_(None),
            users.c.active,
            any_(users.c.roles) == "steward",
        )
    )
    if before is not None:
        query = query.where(passkeys.c.created_at < before)
    registered = set(connection.execute(query).scalars())
    unknown = sorted(
        {read_signer(signer).person for signer in policy.signers if signer not in registered}
    )
    if unknown:
        problem = f"{', '.join(unknown)}: no passkey of a steward with an open account"
        raise InvalidRequest(
            [FieldProblem(f"{prefix}signers", problem[:300], "passkeys that stewards registered")]
        )


def _roles(row: Any) -> frozenset[str]:
    return frozenset(row.roles if row.active else ())
