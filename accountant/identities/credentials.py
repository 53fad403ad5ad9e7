"""People's passwords, roles and tokens."""

import hashlib
import re
import secrets
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Connection, Engine, Row, any_, func, insert, literal, or_, select, update
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.exc import IntegrityError

from accountant import tables
from accountant.core.errors import Conflict, invalid
from accountant.core.ledger.policy import PEOPLE
from accountant.core.names import NAME, is_alike
from accountant.identities import activity_log, sessions
from accountant.identities.actor import Actor
from accountant.schema.people import SCOPES as SCOPES  # noqa: PLC0414
from accountant.tables import datasets, users

ROLES = ("steward", "analyst", "auditor", "administrator")

#: The advisory lock under which names are given.
_NAMES = 0x6578_6368_6E61

#: What a token may do, of what its owner may; docs/accounts.md says what each opens.


def add_user(
    engine: Engine,
    name: str,
    password_hash: str | None,
    roles: list[str],
    *,
    actor: Actor | None = None,
    password_expires: datetime | None = None,
) -> UUID:
    """Create an account. Raises InvalidRequest for unknown roles and Conflict if the name is taken.

    `actor` is the administrator, or None for an operator with database access. `password_expires`
    is set for a one-time password.
    """
    check_roles(roles)
    if not re.fullmatch(NAME, name):
        raise invalid(
            "name", repr(name), "lower case letters, digits, '.', '_' and '-', at most 63"
        )
    user_id = uuid4()
    try:
        with engine.begin() as connection:
            reserve(connection, name)
            connection.execute(
                insert(tables.users).values(
                    id=user_id,
                    name=name,
                    password_hash=password_hash,
                    password_expires=password_expires,
                    roles=roles,
                )
            )
            activity_log.record(connection, actor, "account added", "account", name, roles=roles)
            if actor is not None:
                hand_over(connection, actor, name, roles)
    except IntegrityError:
        raise Conflict(f"there is a user {name!r} already") from None
    return user_id


def reserve(connection: Connection, name: str) -> None:
    """Raise Conflict for a name that looks like an account's, or stands in a policy and is no
    account's yet.

    Entries hold two people apart by their names: whoever gets a name that a policy holds would
    inherit its rights.
    """
    datasets, users = tables.datasets, tables.users
    # else two alike are given at once
    connection.execute(select(func.pg_advisory_xact_lock(_NAMES)))
    for taken in connection.execute(select(users.c.name).where(users.c.name != name)).scalars():
        if is_alike(taken, name):
            raise Conflict(
                f"{name!r} looks like {taken!r}, who has an account: choose another name"
            )
    listed = or_(*(datasets.c.policy[field].has_key(name) for field in PEOPLE))
    is_taken = select(users.c.id).where(users.c.name == name).exists()
    query = select(datasets.c.name).where(listed, ~is_taken).order_by(datasets.c.name).limit(1)
    dataset = connection.execute(query).scalar_one_or_none()
    if dataset is not None:
        raise Conflict(
            f"the policy of {dataset!r} has named {name!r} since before there was such an account, "
            "who would inherit it: take the name out there first"
        )


def check_roles(roles: Iterable[str]) -> None:
    """Raise InvalidRequest for an unknown role, or for an empty set of roles."""
    unknown = sorted(set(roles) - set(ROLES))
    if unknown or not roles:
        raise invalid("roles", f"{', '.join(map(repr, unknown)) or 'none'}", ", ".join(ROLES))


def find_user(
    engine: Engine, *, name: str | None = None, user_id: UUID | None = None
) -> Row[Any] | None:
    """Return the active user with this name or id, or None."""
    users = tables.users
    wanted = users.c.name == name if user_id is None else users.c.id == user_id
    with engine.connect() as connection:
        return connection.execute(select(users).where(wanted, users.c.active)).one_or_none()


def set_password(
    engine: Engine,
    user_id: UUID,
    password_hash: str,
    *,
    actor: Actor | None = None,
    expires: datetime | None = None,
    replaces: str | None = None,
) -> bool:
    """Replace a password. Every session ends, and every token that a sign-in made.

    `expires` is the end of a one-time password, with which the account's passkeys go; None for a
    person's own. `replaces` is the hash that was compared with what the owner typed: if another
    hash is stored by now, nothing changes and the result is False, so that a holder of the old
    password can't undo a reset.
    """
    users = tables.users
    which = users.c.id == user_id
    if replaces is not None:
        which &= users.c.active & (users.c.password_hash == replaces)
    with engine.begin() as connection:
        name = connection.execute(
            update(users)
            .where(which)
            .values(password_hash=password_hash, password_expires=expires)
            .returning(users.c.name)
        ).scalar_one_or_none()
        if name is None:
            return False
        sessions.end(connection, user_id)
        if expires is not None:  # whoever gets the one-time password begins anew
            passkeys = tables.passkeys
            mine = (passkeys.c.user_id == user_id) & passkeys.c.removed_at.is_(None)
            connection.execute(
                update(passkeys).where(mine).values(removed_at=func.clock_timestamp())
            )
        action = "password changed" if expires is None else "password reset"
        activity_log.record(connection, actor, action, "account", name)
    return True


def rehash_password(engine: Engine, user_id: UUID, old: str, new: str) -> Row[Any] | None:
    """Store the same password under another hash, or None if it was changed meanwhile."""
    users = tables.users
    with engine.begin() as connection:
        same = (users.c.id == user_id) & (users.c.password_hash == old)
        stored = update(users).where(same).values(password_hash=new).returning(*users.c)
        return connection.execute(stored).one_or_none()


def actor_of(user: Row[Any]) -> Actor:
    """Return the user as an actor."""
    return Actor(user.id, user.name, frozenset(user.roles))


def add_token(
    engine: Engine,
    user_id: UUID,
    name: str,
    expires_at: datetime | None,
    *,
    scopes: Iterable[str] = SCOPES,
    by_sign_in: bool = False,
) -> str:
    """Return a new API token of 256 random bits, once: only its SHA-256 is stored."""
    with engine.begin() as connection:
        return new_token(connection, user_id, name, expires_at, scopes, by_sign_in)[1]


def sign_in_token(engine: Engine, user: Row[Any], expires_at: datetime) -> str | None:
    """Return a token with every scope, or None if the account changed since `user` was read."""
    with engine.begin() as connection:
        if not sessions.unchanged(connection, user):
            return None
        return new_token(connection, user.id, "sign-in", expires_at, SCOPES, True)[1]


def new_token(
    connection: Connection,
    user_id: UUID,
    name: str,
    expires_at: datetime | None,
    scopes: Iterable[str],
    by_sign_in: bool,
) -> tuple[UUID, str]:
    """(id, token) of a new API token, in the caller's transaction."""
    token_id, token = uuid4(), f"exq_{secrets.token_urlsafe(32)}"
    connection.execute(
        insert(tables.api_tokens).values(
            id=token_id,
            user_id=user_id,
            name=name,
            token_sha256=_sha256(token),
            expires_at=expires_at,
            scopes=list(scopes),
            by_sign_in=by_sign_in,
        )
    )
    return token_id, token


def user_of_token(engine: Engine, token: str | UUID) -> Row[Any] | None:
    """Return the active user of a token that is neither expired nor revoked, with the token's
    `scopes`. A UUID is the id of a token, for which the caller has another proof.

    The time of its last use is recorded, to the minute.
    """
    users, tokens = tables.users, tables.api_tokens
    query = (
        select(
            users,
            tokens.c.id.label("token_id"),
            tokens.c.scopes,
            tokens.c.by_sign_in,
            _UNNOTED,
            *sessions.standing(),
        )
        .join(tokens, tokens.c.user_id == users.c.id)
        .outerjoin(tables.external_accounts, tables.external_accounts.c.user_id == users.c.id)
        .where(
            tokens.c.id == token
            if isinstance(token, UUID)
            else tokens.c.token_sha256 == _sha256(token),
            tokens.c.revoked_at.is_(None),
            users.c.active,
            (tokens.c.expires_at.is_(None)) | (tokens.c.expires_at > func.clock_timestamp()),
        )
    )
    with engine.connect() as connection:
        row = connection.execute(query).one_or_none()
        if row is not None and row.unnoted:
            noted = update(tokens).where(tokens.c.id == row.token_id)
            connection.execute(noted.values(last_used_at=func.clock_timestamp()))
            connection.commit()
    return row


_MINUTE_AGO = func.clock_timestamp() - timedelta(minutes=1)


_UNNOTED = func.coalesce(tables.api_tokens.c.last_used_at < _MINUTE_AGO, True).label("unnoted")


def _sha256(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


BOTH = frozenset({"steward", "administrator"})


def hand_over(connection: Connection, actor: Actor, name: str, given: Iterable[str]) -> None:
    """Take from `actor` the one role of BOTH that it gave to the account `name`.

    The account of the first use is steward and administrator, and stops being both once there are
    two people: with both roles it could make the second person that an act takes
    (transactions.two_people). Nothing happens if it gave both or neither, or if a dataset would be
    left without a steward.
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
    """Return a dataset of which only this person is still a steward, by name, or None."""
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
