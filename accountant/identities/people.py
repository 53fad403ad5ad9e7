"""People: administrators' changes to accounts, and everyone's changes to their own tokens.

Each change is recorded in the activity log in its own transaction. Revocation takes effect at once:
sessions end with new roles, a new password or a closed account; tokens end with the account.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Connection, Engine, Row, any_, func, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from accountant.core.errors import Conflict, FieldProblem, InvalidRequest, NotFound
from accountant.identities import activity_log, credentials, sessions, sign_ins
from accountant.identities.actor import Actor
from accountant.tables import api_tokens, external_accounts, paging, users
from accountant.tables.lookup import one

MOST_TOKEN_DAYS = 365
#: How long a one-time password is worth something.
ONE_TIME = timedelta(hours=72)
_ADMINISTRATOR = "administrator"

# --- reading ------------------------------------------------------------------------------------


def listing(
    engine: Engine,
    viewer: Actor,
    *,
    name: str = "",
    role: str | None = None,
    active: bool | None = None,
    after: paging.After = None,
    limit: int = 200,
) -> list[dict[str, Any]]:
    """Return accounts by name (administrators). `name` is a prefix; `after` is (name,)."""
    viewer.require(_ADMINISTRATOR)
    query = paging.window(_people(), [users.c.name], limit, after, descending=False)
    if name:
        query = query.where(users.c.name.startswith(name, autoescape=True))
    if role is not None:
        query = query.where(any_(users.c.roles) == role)
    if active is not None:
        query = query.where(users.c.active == active)
    with engine.connect() as connection:
        return _shown(connection, connection.execute(query).all())


#: As many names as a form can offer.
MOST_CHOICES = 1000


def choices(engine: Engine, viewer: Actor, role: str | None = None) -> list[str]:
    """Return names of open accounts, for stewards: those with `role`, or those who may ask."""
    viewer.require("steward")
    wanted = ["analyst", "steward"] if role is None else [role]
    query = select(users.c.name).where(
        users.c.active, or_(*(any_(users.c.roles) == role_name for role_name in wanted))
    )
    with engine.connect() as connection:
        return list(connection.execute(query.order_by(users.c.name).limit(MOST_CHOICES)).scalars())


def show(engine: Engine, viewer: Actor, name: str) -> dict[str, Any]:
    """Return one account, for administrators. Raises NotFound."""
    viewer.require(_ADMINISTRATOR)
    with engine.connect() as connection:
        row = one(connection, _people().where(users.c.name == name), "account", name)
        return _shown(connection, [row])[0]


def _people() -> Any:
    linked = users.outerjoin(external_accounts, external_accounts.c.user_id == users.c.id)
    return select(users, external_accounts.c.issuer).select_from(linked)


def _shown(connection: Connection, rows: Iterable[Row[Any]]) -> list[dict[str, Any]]:
    rows = list(rows)
    locked = sign_ins.locks(connection, [row.name for row in rows]) if rows else {}
    return [
        {
            "id": str(row.id),
            "name": row.name,
            "roles": row.roles,
            "active": row.active,
            "created_at": row.created_at.isoformat(),
            "signs_in_with": _signs_in_with(row),
            "provider": row.issuer,
            "locked": None if row.name not in locked else _lock(locked[row.name]),
        }
        for row in rows
    ]


def _signs_in_with(row: Row[Any]) -> str:
    if row.issuer is not None:
        return "provider"
    if row.password_hash is None:
        return "nothing"
    return "password" if row.password_expires is None else "one-time password"


def _lock(lock: sign_ins.Lock) -> dict[str, Any]:
    return {
        "failures": lock.failures,
        "until": None if lock.until is None else lock.until.isoformat(),
    }


# --- accounts -----------------------------------------------------------------------------------


def set_roles(engine: Engine, actor: Actor, name: str, roles: Iterable[str]) -> None:
    """Replace an account's roles; its sessions end.

    Raises Conflict if no administrator would be left.
    """
    actor.require(_ADMINISTRATOR)
    wanted = sorted(set(roles))
    credentials.check_roles(wanted)
    with engine.begin() as connection:
        row = _held(connection, name)
        if sorted(row.roles) == wanted:
            return
        if _ADMINISTRATOR not in wanted:
            _keep_one(connection, row)
        if "steward" not in wanted:
            _keep_owner(connection, row)
        connection.execute(update(users).where(users.c.id == row.id).values(roles=wanted))
        sessions.end(connection, row.id)
        activity_log.record(
            connection, actor, "roles changed", "account", name, before=row.roles, after=wanted
        )
        credentials.hand_over(connection, actor, name, set(wanted) - set(row.roles))


def deactivate(engine: Engine, actor: Actor, name: str) -> None:
    """Close an account. Its sessions and tokens end at once and for good; its records stay."""
    actor.require(_ADMINISTRATOR)
    with engine.begin() as connection:
        row = _held(connection, name)
        if not row.active:
            return
        _keep_one(connection, row)
        _keep_owner(connection, row)
        connection.execute(update(users).where(users.c.id == row.id).values(active=False))
        sessions.end(connection, row.id)
        _revoke(connection, api_tokens.c.user_id == row.id)
        activity_log.record(connection, actor, "account closed", "account", name)


def activate(engine: Engine, actor: Actor, name: str) -> None:
    """Reopen a closed account. Its old sessions and tokens stay ended."""
    actor.require(_ADMINISTRATOR)
    with engine.begin() as connection:
        row = _held(connection, name)
        if row.active:
            return
        connection.execute(update(users).where(users.c.id == row.id).values(active=True))
        activity_log.record(connection, actor, "account opened", "account", name)


def reset_password(engine: Engine, actor: Actor, name: str, password_hash: str) -> datetime:
    """Set a one-time password and unlock the account. Returns when the password expires."""
    actor.require(_ADMINISTRATOR)
    person = show(engine, actor, name)
    if person["provider"] is not None:
        raise Conflict(f"{name} signs in at {person['provider']} and has no password here")
    until = datetime.now(UTC) + ONE_TIME
    credentials.set_password(engine, UUID(person["id"]), password_hash, actor=actor, expires=until)
    with engine.begin() as connection:
        sign_ins.clear(connection, name)
    return until


def unlock(engine: Engine, actor: Actor | None, name: str) -> None:
    """Forget the failed sign-ins under a name. `actor` None: an operator at the database."""
    if actor is not None:
        actor.require(_ADMINISTRATOR)
    with engine.begin() as connection:
        _held(connection, name)
        sign_ins.clear(connection, name)
        activity_log.record(connection, actor, "account unlocked", "account", name)


def end_sessions(engine: Engine, actor: Actor, name: str) -> None:
    """Sign a person out everywhere: oneself, or anybody if the actor is an administrator."""
    if name != actor.name:
        actor.require(_ADMINISTRATOR)
    with engine.begin() as connection:
        sessions.end(connection, _held(connection, name).id)
        activity_log.record(connection, actor, "signed out everywhere", "account", name)


def _held(connection: Connection, name: str) -> Row[Any]:
    """Return an account's row, locked after all administrators', in one order (no deadlock)."""
    administrators = select(users.c.id).where(users.c.active, any_(users.c.roles) == _ADMINISTRATOR)
    connection.execute(administrators.order_by(users.c.id).with_for_update()).all()
    return one(
        connection, select(users).where(users.c.name == name).with_for_update(), "account", name
    )


def _keep_one(connection: Connection, row: Row[Any]) -> None:
    """Raise Conflict if `row` is the last open administrator account."""
    administrators = select(func.count()).where(
        users.c.active, any_(users.c.roles) == _ADMINISTRATOR, users.c.id != row.id
    )
    if (
        row.active
        and _ADMINISTRATOR in row.roles
        and not connection.execute(administrators).scalar_one()
    ):
        raise Conflict(f"{row.name} is the last administrator: make another one first")


def _keep_owner(connection: Connection, row: Row[Any]) -> None:
    """Raise Conflict if `row` is the last steward of a dataset that names its own."""
    dataset = credentials.sole_steward_of(connection, row.id)
    if dataset is not None:
        raise Conflict(
            f"{row.name} is the last steward of {dataset}: its policy names another one first"
        )


# --- accounts at a provider ---------------------------------------------------------------------


def find_external(engine: Engine, issuer: str, subject: str) -> Row[Any] | None:
    """Return the account of a person at an identity provider, open or closed."""
    query = (
        select(users)
        .join(external_accounts, external_accounts.c.user_id == users.c.id)
        .where(external_accounts.c.issuer == issuer, external_accounts.c.subject == subject)
    )
    with engine.connect() as connection:
        return connection.execute(query).one_or_none()


def add_external(
    engine: Engine, issuer: str, subject: str, names: Iterable[str], roles: list[str]
) -> Row[Any] | None:
    """Return a new account for a person at an identity provider, under the first of `names` that is
    free.

    A taken name belongs to somebody else, whatever the provider says, and one that a policy holds
    to whoever was meant: only issuer and subject identify a person. None if another request created
    the account meanwhile, or no name is free.
    """
    credentials.check_roles(roles)
    for name in names:
        user_id = uuid4()
        try:
            with engine.begin() as connection:
                credentials.reserve(connection, name)
                connection.execute(insert(users).values(id=user_id, name=name, roles=roles))
                connection.execute(
                    insert(external_accounts).values(
                        issuer=issuer, subject=subject, user_id=user_id
                    )
                )
                actor = Actor(user_id, name, frozenset(roles))
                facts = {"roles": roles, "provider": issuer}
                activity_log.record(connection, actor, "account added", "account", name, **facts)
        except (IntegrityError, Conflict):
            continue
        return credentials.find_user(engine, user_id=user_id)
    return None


def map_roles(engine: Engine, user: Row[Any], issuer: str, roles: list[str]) -> None:
    """Adopt the roles that a provider states, even none; if they changed, sessions end."""
    wanted = sorted(set(roles))
    with engine.begin() as connection:
        row = _held(connection, user.name)
        if sorted(row.roles) == wanted:
            return
        connection.execute(update(users).where(users.c.id == row.id).values(roles=wanted))
        sessions.end(connection, row.id)
        facts = {"before": row.roles, "after": wanted, "provider": issuer}
        activity_log.record(
            connection, credentials.actor_of(row), "roles changed", "account", row.name, **facts
        )


# --- tokens -------------------------------------------------------------------------------------


def make_token(
    engine: Engine, actor: Actor, name: str, scopes: Iterable[str], days: int
) -> dict[str, Any]:
    """Create a token of one's own, shown once in the result. Raises InvalidRequest."""
    wanted = [scope for scope in credentials.SCOPES if scope in set(scopes)]
    problems = []
    if not wanted or set(scopes) - set(wanted):
        unknown = ", ".join(map(repr, sorted(set(scopes) - set(wanted)))) or "none"
        problems.append(
            FieldProblem("scopes", unknown, f"one or more of {', '.join(credentials.SCOPES)}")
        )
    if not 1 <= len(name.strip()) <= 100:
        problems.append(
            FieldProblem("name", "empty or overlong", "1 to 100 characters: what it is for")
        )
    if not 1 <= days <= MOST_TOKEN_DAYS:
        problems.append(FieldProblem("days", str(days), f"1 to {MOST_TOKEN_DAYS}"))
    if problems:
        raise InvalidRequest(problems)
    expires = datetime.now(UTC) + timedelta(days=days)
    with engine.begin() as connection:
        token_id, token = credentials.new_token(
            connection, actor.id, name.strip(), expires, wanted, False
        )
        facts = {"token": name.strip(), "scopes": wanted, "expires_at": expires.isoformat()}
        activity_log.record(connection, actor, "token made", "account", actor.name, **facts)
    return {
        "id": str(token_id),
        "token": token,
        "name": name.strip(),
        "scopes": wanted,
        "expires_at": expires.isoformat(),
    }


def tokens(engine: Engine, owner: UUID, limit: int = 200) -> list[dict[str, Any]]:
    """Return the valid tokens of an account, newest first, without the secret tokens themselves."""
    query = select(api_tokens).where(api_tokens.c.user_id == owner, _working())
    with engine.connect() as connection:
        rows = connection.execute(query.order_by(api_tokens.c.created_at.desc()).limit(limit)).all()
    return [
        {
            "id": str(row.id),
            "name": row.name,
            "scopes": row.scopes,
            "by_sign_in": row.by_sign_in,
            **{
                name: None if getattr(row, name) is None else getattr(row, name).isoformat()
                for name in ("created_at", "expires_at", "last_used_at")
            },
        }
        for row in rows
    ]


def revoke_token(engine: Engine, actor: Actor, token_id: UUID) -> None:
    """Revoke one's own token, or anybody's as an administrator. Raises NotFound."""
    mine = api_tokens.c.user_id == actor.id
    whose = (
        api_tokens.c.id == token_id
        if _ADMINISTRATOR in actor.roles
        else mine & (api_tokens.c.id == token_id)
    )
    with engine.begin() as connection:
        ended = _revoke(connection, whose)
        if not ended:
            raise NotFound("token", str(token_id))
        owner = connection.execute(
            select(users.c.name).where(users.c.id == ended[0].user_id)
        ).scalar_one()
        activity_log.record(
            connection, actor, "token revoked", "account", owner, token=ended[0].name
        )


def revoke_tokens(engine: Engine, actor: Actor, name: str) -> int:
    """Revoke every token of an account, as an administrator or its owner. Returns their number."""
    if name != actor.name:
        actor.require(_ADMINISTRATOR)
    with engine.begin() as connection:
        row = _held(connection, name)
        ended = _revoke(connection, api_tokens.c.user_id == row.id)
        activity_log.record(connection, actor, "tokens revoked", "account", name, tokens=len(ended))
    return len(ended)


def _working() -> Any:
    now = func.clock_timestamp()
    unexpired = api_tokens.c.expires_at.is_(None) | (api_tokens.c.expires_at > now)
    return api_tokens.c.revoked_at.is_(None) & unexpired


def _revoke(connection: Connection, which: Any) -> list[Row[Any]]:
    ended = update(api_tokens).where(which, _working()).values(revoked_at=func.clock_timestamp())
    return list(connection.execute(ended.returning(api_tokens.c.user_id, api_tokens.c.name)))
