"""Webhooks as their owners register them: an address, events, and a secret.

The secret is kept under a key of the service, bound to its row, and shown once.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from sqlalchemy import Connection, Engine, Row, Select, func, insert, select, update

from accountant import tables
from accountant.core import notices, webhook_rules
from accountant.core.errors import Conflict, invalid
from accountant.core.webhook_rules import Network
from accountant.identities import activity_log
from accountant.identities.actor import Actor
from accountant.tables.lookup import one
from accountant.transactions.artifacts import OVERSEERS

hooks, deliveries, users = tables.hooks, tables.hook_deliveries, tables.users

MOST_HOOKS = 20
_NONCE_BYTES = 12

# --- what a person does -------------------------------------------------------------------------


def add(
    engine: Engine,
    url: str,
    events: Sequence[str],
    actor: Actor,
    key: bytes,
    allowed: Sequence[Network] = (),
    kind: str = "webhook",
    domains: Sequence[str] = (),
) -> tuple[UUID, str]:
    """Register a webhook; returns its id and its secret, which is shown this once.

    `key`: 32 bytes under which the secret is kept. `kind`: of notices.KINDS; what is sent to a chat or by
    mail is not signed. `domains`: those that mail may go to. Raises InvalidRequest for an address or an event
    that can't be, or too many hooks, and for events that the person's roles let them never see.
    """
    if kind == "mail":
        notices.read_mail(url, domains)
    else:
        webhook_rules.read_url(url, allowed)
    wanted = webhook_rules.read_events(events)
    if not actor.roles & OVERSEERS:
        hidden = [each for each in wanted if each in webhook_rules.OVERSEERS_EVENTS]
        if hidden:
            raise invalid(
                "events", f"{hidden[0]} is for stewards and auditors", ", ".join(webhook_rules.JOB_EVENTS)
            )
    hook_id, secret = uuid4(), webhook_rules.new_secret()
    with engine.begin() as connection:
        # The person's row is held: two requests at once can't both be the last that is allowed.
        connection.execute(select(users.c.id).where(users.c.id == actor.id).with_for_update())
        mine = select(func.count()).where(hooks.c.owner_id == actor.id, hooks.c.removed_at.is_(None))
        if connection.execute(mine).scalar_one() >= MOST_HOOKS:
            raise invalid("url", f"you have {MOST_HOOKS} webhooks already", f"{MOST_HOOKS} for each person")
        connection.execute(
            insert(hooks).values(
                id=hook_id,
                owner_id=actor.id,
                kind=kind,
                url=url,
                events=wanted,
                secret=_seal(key, hook_id, secret),
            )
        )
        # Not the address: it may hold a secret of its receiver's.
        activity_log.record(connection, actor, "webhook registered", "webhook", str(hook_id), events=wanted)
    return hook_id, webhook_rules.show_secret(secret)


def renew_secret(engine: Engine, hook_id: UUID, actor: Actor, key: bytes) -> str:
    """A new secret in place of the old one, at once; shown this once. Raises NotFound."""
    secret = webhook_rules.new_secret()
    with engine.begin() as connection:
        own(connection, hook_id, actor)
        change(connection, hook_id, secret=_seal(key, hook_id, secret))
        activity_log.record(connection, actor, "webhook secret renewed", "webhook", str(hook_id))
    return webhook_rules.show_secret(secret)


def enable(engine: Engine, hook_id: UUID, actor: Actor) -> None:
    """Let a disabled webhook be told again, from now on."""
    with engine.begin() as connection:
        own(connection, hook_id, actor)
        change(connection, hook_id, active=True, disabled_at=None, disabled_reason=None)
        activity_log.record(connection, actor, "webhook enabled", "webhook", str(hook_id))


def disable(engine: Engine, hook_id: UUID, actor: Actor) -> None:
    """Tell a webhook nothing until it is enabled."""
    with engine.begin() as connection:
        if own(connection, hook_id, actor).active:
            stop(connection, hook_id, "by its owner")
            activity_log.record(connection, actor, "webhook disabled", "webhook", str(hook_id))


def remove(engine: Engine, hook_id: UUID, actor: Actor) -> None:
    """Forget a webhook and its secret."""
    with engine.begin() as connection:
        own(connection, hook_id, actor)
        _give_up_pending(connection, hook_id, "the webhook was removed")
        change(connection, hook_id, active=False, removed_at=func.clock_timestamp(), secret=b"")
        activity_log.record(connection, actor, "webhook removed", "webhook", str(hook_id))


# --- reading ------------------------------------------------------------------------------------


def listing(engine: Engine, viewer: Actor) -> list[dict[str, Any]]:
    """The asker's own webhooks, oldest first."""
    with engine.connect() as connection:
        rows = connection.execute(_owned(viewer).order_by(hooks.c.created_at, hooks.c.id))
        return [_view(row) for row in rows]


def show(engine: Engine, hook_id: UUID, viewer: Actor) -> dict[str, Any]:
    """Return a webhook. Raises NotFound."""
    with engine.connect() as connection:
        return _view(one(connection, _owned(viewer).where(hooks.c.id == hook_id), "webhook", hook_id))


def _owned(person: Actor) -> Select[Any]:
    return select(hooks).where(hooks.c.owner_id == person.id, hooks.c.removed_at.is_(None))


def _view(row: Row[Any]) -> dict[str, Any]:
    return {
        "id": str(row.id),
        "kind": row.kind,
        "url": row.url,
        "events": list(row.events),
        "active": row.active,
        "disabled_reason": row.disabled_reason,
        **{name: moment(getattr(row, name)) for name in ("disabled_at", "last_success_at", "created_at")},
    }


def moment(value: datetime | None) -> str | None:
    """A time as answers have it."""
    return None if value is None else value.isoformat()


# --- rows ---------------------------------------------------------------------------------------


def own(connection: Connection, hook_id: UUID, actor: Actor) -> Row[Any]:
    """A webhook of the asker's, its row held. Another's is not there."""
    query = _owned(actor).where(hooks.c.id == hook_id).with_for_update()
    return one(connection, query, "webhook", hook_id)


def require_active(hook: Row[Any]) -> None:
    """Raise Conflict for a disabled webhook."""
    if not hook.active:
        raise Conflict("the webhook is disabled: enable it first")


def change(connection: Connection, hook_id: UUID, **values: Any) -> None:
    """Set columns of a webhook whose row is held."""
    connection.execute(update(hooks).where(hooks.c.id == hook_id).values(**values))


def stop(connection: Connection, hook_id: UUID, reason: str) -> None:
    """Disable a webhook, and give up what was not sent yet."""
    change(connection, hook_id, active=False, disabled_at=func.clock_timestamp(), disabled_reason=reason)
    _give_up_pending(connection, hook_id, "the webhook was disabled")


def _give_up_pending(connection: Connection, hook_id: UUID, problem: str) -> None:
    pending = (deliveries.c.hook_id == hook_id, deliveries.c.state == "pending")
    connection.execute(update(deliveries).where(*pending).values(state="failed", claim=None, problem=problem))


# --- secrets ------------------------------------------------------------------------------------


def _seal(key: bytes, hook_id: UUID, secret: bytes) -> bytes:
    """A secret as the table holds it: AES-256-GCM, bound to its row."""
    nonce = webhook_rules.new_secret()[:_NONCE_BYTES]
    return nonce + AESGCM(key).encrypt(nonce, secret, hook_id.bytes)


def open_secret(key: bytes, hook_id: UUID, sealed: bytes) -> bytes | None:
    """The secret; None where it was kept under another key, or for another webhook."""
    try:
        return AESGCM(key).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], hook_id.bytes)
    except (InvalidTag, ValueError):
        return None
