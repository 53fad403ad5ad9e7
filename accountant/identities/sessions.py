"""Browser sessions, stored on the server so that they end on time and in every process at once.

A cookie holds 256 random bits, and this table their SHA-256. Signing out, a new password, new roles
or a closed account end a session, whatever cookie the browser still holds.
"""

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import ColumnElement, Connection, Engine, Row, case, func, insert, select, update

from accountant.tables import api_tokens, external_accounts, maintenance, sessions, users

#: A session's last use is noted when the note is older than this.
NOTED_EVERY = timedelta(minutes=1)


@dataclass(frozen=True)
class Origin:
    """The origin of a sign-in; `method` is page, api, provider or passkey."""

    method: str
    address: str
    user_agent: str


@dataclass(frozen=True)
class Proof:
    """The provider's part in a sign-in: when the person showed it who they are, its session, its id
    token.

    `shown` is None if the provider does not say. `id_token` is sealed.
    """

    shown: datetime | None = None
    session: str | None = None
    id_token: bytes | None = None


def start(engine: Engine, user: Row[Any], origin: Origin, proof: Proof | None = None) -> str | None:
    """Return a new session with its token, or None if the account changed since `user` was read."""
    token, proof = secrets.token_urlsafe(32), proof or Proof()
    with engine.begin() as connection:
        if not unchanged(connection, user):
            return None
        connection.execute(
            insert(sessions).values(
                id=uuid4(),
                token_sha256=_sha256(token),
                user_id=user.id,
                method=origin.method,
                address=origin.address,
                user_agent=origin.user_agent,
                confirmed_at=proof.shown,
                provider_session=proof.session,
                id_token=proof.id_token,
            )
        )
    return token


def unchanged(connection: Connection, user: Row[Any]) -> bool:
    """Return True if the account is still open and has the password that `user` was read with.
    Locks the row.

    Comparing a password takes a while. Someone who signs in repeatedly during that time must not be
    left with a session that a new password or a closed account did not end.
    """
    same = users.c.password_hash.is_not_distinct_from(user.password_hash)
    query = select(users.c.id).where(users.c.id == user.id, users.c.active, same)
    return connection.execute(query.with_for_update(read=True)).one_or_none() is not None


def find(
    engine: Engine, token: str, longest: timedelta, idle: timedelta, used: bool = True
) -> Row[Any] | None:
    """Return the active user of an open session, with `session_id`; None if it has ended or
    expired.

    `longest` counts from its start, `idle` from its last use. `used` is false for requests that a
    page makes by itself: they do not count as use. `session_began` is when its owner signed in,
    `session_shown` when they last showed who they are: a provider may send back somebody who typed
    nothing, so it has to say when. `maintenance` is why nothing is admitted now, or NULL.
    """
    now = func.clock_timestamp()
    stale = (sessions.c.seen_at < now - NOTED_EVERY).label("stale")
    query = (
        select(
            users,
            sessions.c.id.label("session_id"),
            sessions.c.created_at.label("session_began"),
            sessions.c.method.label("session_method"),
            case(
                (sessions.c.method == "provider", sessions.c.confirmed_at),
                else_=func.greatest(sessions.c.created_at, sessions.c.confirmed_at),
            ).label("session_shown"),
            stale,
            select(maintenance.c.reason).scalar_subquery().label("maintenance"),
            *standing(),
        )
        .join(sessions, sessions.c.user_id == users.c.id)
        .outerjoin(external_accounts, external_accounts.c.user_id == users.c.id)
        .where(
            sessions.c.token_sha256 == _sha256(token),
            sessions.c.ended_at.is_(None),
            sessions.c.created_at > now - longest,
            sessions.c.seen_at > now - idle,
            users.c.active,
        )
    )
    with engine.connect() as connection:
        row = connection.execute(query).one_or_none()
        if row is not None and row.stale and used:
            connection.execute(
                update(sessions).where(sessions.c.id == row.session_id).values(seen_at=now)
            )
            connection.commit()
    return row


def standing() -> tuple[ColumnElement[Any], ...]:
    """Return columns of a person's standing: provider (or NULL), time since its confirmation."""
    age = func.clock_timestamp() - external_accounts.c.confirmed_at
    return external_accounts.c.issuer.label("provider"), age.label("provider_age")


def id_token(engine: Engine, session_id: UUID) -> bytes | None:
    """Return the sealed id token of a session's sign-in, if it was at a provider."""
    with engine.connect() as connection:
        query = select(sessions.c.id_token).where(sessions.c.id == session_id)
        return connection.execute(query).scalar_one_or_none()


def confirmed(engine: Engine, session_id: UUID, shown: datetime | None = None) -> bool:
    """Note when a session's owner has shown who they are. Returns False if it has ended."""
    with engine.begin() as connection:
        mine = update(sessions).where(sessions.c.id == session_id, sessions.c.ended_at.is_(None))
        at = func.clock_timestamp() if shown is None else shown
        return connection.execute(mine.values(confirmed_at=at)).rowcount == 1


def end(connection: Connection, user_id: UUID) -> None:
    """End all of a person's sessions, and the tokens made by signing in."""
    now = func.clock_timestamp()
    open_ = (sessions.c.user_id == user_id) & sessions.c.ended_at.is_(None)
    connection.execute(update(sessions).where(open_).values(ended_at=now, id_token=None))
    signed_in = (
        (api_tokens.c.user_id == user_id)
        & api_tokens.c.by_sign_in
        & api_tokens.c.revoked_at.is_(None)
    )
    connection.execute(update(api_tokens).where(signed_in).values(revoked_at=now))


def end_one(engine: Engine, session_id: UUID, user_id: UUID) -> None:
    """End one session of this person's."""
    with engine.begin() as connection:
        mine = (
            (sessions.c.id == session_id)
            & (sessions.c.user_id == user_id)
            & sessions.c.ended_at.is_(None)
        )
        connection.execute(
            update(sessions).where(mine).values(ended_at=func.clock_timestamp(), id_token=None)
        )


def of(engine: Engine, user_id: UUID, longest: timedelta, idle: timedelta) -> list[dict[str, Any]]:
    """Return a person's open sessions, the most recently used first."""
    now = func.clock_timestamp()
    query = select(sessions).where(
        sessions.c.user_id == user_id,
        sessions.c.ended_at.is_(None),
        sessions.c.created_at > now - longest,
        sessions.c.seen_at > now - idle,
    )
    with engine.connect() as connection:
        rows = connection.execute(query.order_by(sessions.c.seen_at.desc()).limit(50)).all()
    return [
        {
            "id": str(row.id),
            "method": row.method,
            "address": row.address,
            "user_agent": row.user_agent,
            "created_at": row.created_at.isoformat(),
            "seen_at": row.seen_at.isoformat(),
        }
        for row in rows
    ]


def _sha256(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
