"""Sessions of browsers, kept here so that they end when they should, in every process at once.

A cookie holds 256 random bits, and this table their SHA-256: signing out, a new password, other roles and a
closed account end a session whatever the browser still holds.
"""

import hashlib
import secrets
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Connection, Engine, Row, func, insert, select, update

from accountant.tables import api_tokens, sessions, users

#: A session's last use is noted when the note is older than this.
NOTED_EVERY = timedelta(minutes=1)


@dataclass(frozen=True)
class Origin:
    """How somebody came: `method` is page, api or provider."""

    method: str
    address: str
    user_agent: str


def start(engine: Engine, user: Row[Any], origin: Origin) -> str | None:
    """A new session; the token is returned once. None if the account is not as `user` was read."""
    token = secrets.token_urlsafe(32)
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
            )
        )
    return token


def unchanged(connection: Connection, user: Row[Any]) -> bool:
    """Whether an account is open still, with the password that `user` was read with; it is held so.

    Comparing a password takes a while. Who signs in in that time, over and over, must not be left with a
    session that a new password or a closed account did not end.
    """
    same = users.c.password_hash.is_not_distinct_from(user.password_hash)
    query = select(users.c.id).where(users.c.id == user.id, users.c.active, same)
    return connection.execute(query.with_for_update(read=True)).one_or_none() is not None


def find(
    engine: Engine, token: str, longest: timedelta, idle: timedelta, used: bool = True
) -> Row[Any] | None:
    """The active user of an open session, with `session_id`; None if it ended or ran out.

    `longest`: since it began. `idle`: since it was last used. `used`: whether this is a use, to be noted;
    what a page asks for by itself is none.
    """
    now = func.clock_timestamp()
    stale = (sessions.c.seen_at < now - NOTED_EVERY).label("stale")
    query = (
        select(users, sessions.c.id.label("session_id"), stale)
        .join(sessions, sessions.c.user_id == users.c.id)
        .where(
            sessions.c.token_sha256 == _sha256(token),
            sessions.c.ended_at.is_(None),
            sessions.c.created_at > now - longest,
            sessions.c.seen_at > now - idle,
            users.c.active,
        )
    )
    with engine.connect() as connection:
        found = connection.execute(query).one_or_none()
        if found is not None and found.stale and used:
            connection.execute(update(sessions).where(sessions.c.id == found.session_id).values(seen_at=now))
            connection.commit()
    return found


def end(connection: Connection, user_id: UUID) -> None:
    """End all of a person's sessions, and the tokens that signing in made."""
    now = func.clock_timestamp()
    open_ = (sessions.c.user_id == user_id) & sessions.c.ended_at.is_(None)
    connection.execute(update(sessions).where(open_).values(ended_at=now))
    signed_in = (
        (api_tokens.c.user_id == user_id) & api_tokens.c.by_sign_in & api_tokens.c.revoked_at.is_(None)
    )
    connection.execute(update(api_tokens).where(signed_in).values(revoked_at=now))


def end_one(engine: Engine, session_id: UUID, user_id: UUID) -> None:
    """End one session of this person's."""
    with engine.begin() as connection:
        mine = (sessions.c.id == session_id) & (sessions.c.user_id == user_id) & sessions.c.ended_at.is_(None)
        connection.execute(update(sessions).where(mine).values(ended_at=func.clock_timestamp()))


def of(engine: Engine, user_id: UUID, longest: timedelta, idle: timedelta) -> list[dict[str, Any]]:
    """A person's open sessions, the last used first."""
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
