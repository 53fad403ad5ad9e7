"""Standing of people at their provider: when it last confirmed them, and what ends with their
leaving.

Refresh tokens and id tokens are stored as the caller sealed them; the key is the web's.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, Row, delete, func, or_, select, update
from sqlalchemy.dialects.postgresql import insert as upsert

from accountant.identities import sessions
from accountant.tables import external_accounts as accounts
from accountant.tables import logout_tokens
from accountant.tables import sessions as sessions_table

#: One process at a time asks the provider about a person; a process that died is waited for so
#: long.
ASKING = timedelta(seconds=30)
#: A logout token is of use for minutes: a day later it has expired, whatever the clocks say.
REMEMBERED = timedelta(days=1)


@dataclass(frozen=True)
class Logout:
    """A person or session signed out at the provider; `subject` or `session` may be None."""

    issuer: str
    token_id: str
    subject: str | None
    session: str | None


def confirm(engine: Engine, user_id: UUID, refresh_token: bytes | None = None) -> None:
    """Note that the provider confirmed a person now. A new sealed refresh token takes over."""
    values: dict[str, Any] = {"confirmed_at": func.clock_timestamp(), "asked_at": None}
    if refresh_token is not None:
        values["refresh_token"] = refresh_token
    _change(engine, user_id, values)


def keep_token(engine: Engine, user_id: UUID, refresh_token: bytes) -> None:
    """Store a sealed refresh token that the provider gave in exchange for the old one."""
    _change(engine, user_id, {"refresh_token": refresh_token})


def ask(engine: Engine, user_id: UUID) -> Row[Any] | None:
    """Claim to ask whether a person is still known. None if another process asks or none can."""
    now = func.clock_timestamp()
    free = or_(accounts.c.asked_at.is_(None), accounts.c.asked_at < now - ASKING)
    claim = update(accounts).where(
        accounts.c.user_id == user_id, accounts.c.refresh_token.is_not(None), free
    )
    with engine.begin() as connection:
        returned = claim.values(asked_at=now).returning(accounts)
        return connection.execute(returned).one_or_none()


def answered(engine: Engine, user_id: UUID) -> None:
    """Release the claim of `ask` where the provider gave no answer."""
    _change(engine, user_id, {"asked_at": None})


def state(engine: Engine, user_id: UUID) -> Row[Any] | None:
    """Return (`age` since the provider confirmed a person, `asked`); None for a local account."""
    query = select(
        (func.clock_timestamp() - accounts.c.confirmed_at).label("age"),
        (accounts.c.asked_at > func.clock_timestamp() - ASKING).label("asked"),
    ).where(accounts.c.user_id == user_id)
    with engine.connect() as connection:
        return connection.execute(query).one_or_none()


def disown(engine: Engine, user_id: UUID) -> None:
    """End the standing of a person whom the provider refused: sessions end, tokens open nothing."""
    with engine.begin() as connection:
        gone = update(accounts).where(accounts.c.user_id == user_id)
        connection.execute(gone.values(confirmed_at=None, refresh_token=None, asked_at=None))
        sessions.end(connection, user_id)


def _change(engine: Engine, user_id: UUID, values: dict[str, Any]) -> None:
    with engine.begin() as connection:
        connection.execute(update(accounts).where(accounts.c.user_id == user_id).values(values))


# --- signing out at the provider ------------------------------------------------------------------


def log_out(engine: Engine, logout: Logout) -> bool:
    """End the sessions that a logout token names. Returns False for a token used before."""
    with engine.begin() as connection:
        if not _is_new(connection, logout):
            return False
        people = select(accounts.c.user_id).where(accounts.c.issuer == logout.issuer)
        if logout.subject is not None:
            people = people.where(accounts.c.subject == logout.subject)
        if logout.session is None:
            for user_id in connection.execute(people).scalars().all():
                sessions.end(connection, user_id)
            return True
        named = sessions_table.c.provider_session == logout.session
        # a provider may name a session here that its id token did not
        if logout.subject is not None:
            unnamed = sessions_table.c.provider_session.is_(None) & (
                sessions_table.c.method == "provider"
            )
            named = named | unnamed
        open_ = sessions_table.c.user_id.in_(people) & sessions_table.c.ended_at.is_(None)
        ended = update(sessions_table).where(open_, named)
        connection.execute(ended.values(ended_at=func.clock_timestamp(), id_token=None))
    return True


def _is_new(connection: Connection, logout: Logout) -> bool:
    """Remember a logout token and forget yesterday's. Returns False if it was remembered."""
    old = logout_tokens.c.at < func.clock_timestamp() - REMEMBERED
    connection.execute(delete(logout_tokens).where(old))
    row = upsert(logout_tokens).values(issuer=logout.issuer, token_id=logout.token_id)
    added = row.on_conflict_do_nothing().returning(logout_tokens.c.token_id)
    return connection.execute(added).one_or_none() is not None
