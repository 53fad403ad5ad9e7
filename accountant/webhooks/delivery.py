"""Messages to webhooks: what is sent, tried again, given up and forgotten.

    a state changes ── trigger, same transaction ──▶ hook_deliveries (where a hook asks for it)
    take: due rows, SKIP LOCKED, each given a claim until it is given up for lost ──▶ sent outside
    settle: only under the claim; delivered, tried again later, given up, or the hook disabled

A delivery whose sender dies is taken again when its claim runs out, under the same id: at least once. What
somebody may be told is decided anew at every attempt, from the roles that they have then.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Connection, Engine, Row, delete, func, insert, or_, select, true, update

from accountant import tables
from accountant.core import webhook_rules
from accountant.core.errors import Conflict
from accountant.core.ledger.policy import Policy
from accountant.identities.actor import Actor
from accountant.tables import paging
from accountant.tables.lookup import one
from accountant.transactions import owners
from accountant.transactions.artifacts import OVERSEERS
from accountant.webhooks.registration import change, moment, open_secret, own, require_active, show, stop

hooks, deliveries, users = tables.hooks, tables.hook_deliveries, tables.users
_datasets = tables.datasets

CLAIM_SECONDS = 60.0
#: So many messages of one hook may be under way at once: one slow receiver holds up no other.
AT_ONCE = 2

# --- what its owner asks for ---------------------------------------------------------------------


def test(engine: Engine, hook_id: UUID, actor: Actor) -> UUID:
    """Send a message that says nothing; returns the delivery's id. Raises Conflict for a disabled one."""
    delivery_id = uuid4()
    with engine.begin() as connection:
        require_active(own(connection, hook_id, actor))
        # `analyst_id` its owner: anybody may be told what is about nothing.
        about = {"event": webhook_rules.TEST, "analyst_id": actor.id, "facts": {}}
        connection.execute(insert(deliveries).values(id=delivery_id, hook_id=hook_id, **about))
    return delivery_id


def redeliver(engine: Engine, hook_id: UUID, delivery_id: UUID, actor: Actor) -> None:
    """Send a message again, under the same id. Raises NotFound, and Conflict where it is on its way."""
    with engine.begin() as connection:
        require_active(own(connection, hook_id, actor))
        wanted = (deliveries.c.id == delivery_id, deliveries.c.hook_id == hook_id)
        query = select(deliveries.c.state).where(*wanted).with_for_update()
        row = one(connection, query, "delivery", delivery_id)
        if row.state == "pending":
            raise Conflict("the message is on its way")
        now = func.clock_timestamp()
        again = {"state": "pending", "began_at": now, "due_at": now, "attempts": 0, "claim": None}
        connection.execute(update(deliveries).where(*wanted).values(again))


# --- reading ------------------------------------------------------------------------------------


def log(
    engine: Engine,
    hook_id: UUID,
    viewer: Actor,
    *,
    after: paging.After = None,
    limit: int = 50,
) -> list[dict[str, Any]]:
    """Messages to one of the asker's webhooks, newest first.

    `after` (occurred_at, id) continues a listing.
    """
    show(engine, hook_id, viewer)
    query = select(deliveries).where(deliveries.c.hook_id == hook_id)
    query = paging.window(query, [deliveries.c.occurred_at, deliveries.c.id], limit, after)
    with engine.connect() as connection:
        return [_delivery_view(row) for row in connection.execute(query)]


def _delivery_view(row: Row[Any]) -> dict[str, Any]:
    waits = row.state == "pending"
    return {
        "id": str(row.id),
        "event": row.event,
        "data": dict(row.facts),
        "state": row.state,
        "attempts": row.attempts,
        "status": row.status,
        "problem": row.problem,
        "next_attempt_at": moment(row.due_at) if waits else None,
        **{name: moment(getattr(row, name)) for name in ("occurred_at", "attempted_at")},
    }


# --- sending ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Delivery:
    """One attempt at one message, and the claim under which it is made. `secret` None: it can't be read."""

    id: UUID
    hook_id: UUID
    claim: UUID
    url: str
    secret: bytes | None = field(repr=False)
    content: bytes
    kind: str = "webhook"
    event: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def message_id(self) -> str:
        """The same at every attempt: by it a receiver knows a message that came twice."""
        return f"msg_{self.id.hex}"


@dataclass(frozen=True)
class Outcome:
    """The outcome of an attempt: the status of the answer, or why there was none."""

    status: int | None
    problem: str | None = None

    @property
    def delivered(self) -> bool:
        return self.status is not None and 200 <= self.status < 300


@dataclass(frozen=True)
class Retries:
    """The retries of a message: the first wait, and the total time."""

    first_seconds: float
    hours: float


def take(engine: Engine, key: bytes, most: int, busy: Collection[UUID] = ()) -> list[Delivery]:
    """Claim messages that are due, a few of each webhook but those that are busy; two senders share them.

    What its receiver's owner may not see any more is dropped here, unsent.
    """
    if most <= 0:
        return []
    due = (
        select(deliveries.c.id)
        .where(
            deliveries.c.hook_id == hooks.c.id,
            deliveries.c.state == "pending",
            deliveries.c.due_at <= func.clock_timestamp(),
        )
        .order_by(deliveries.c.due_at)
        .limit(AT_ONCE)
        .with_for_update(skip_locked=True)
        .lateral()
    )
    with engine.begin() as connection:
        query = (
            select(due.c.id)
            .select_from(hooks.join(due, true()))
            .where(hooks.c.active, hooks.c.id.not_in(busy))
        )
        found = connection.execute(query.limit(most)).scalars().all()
        return [each for one in found if (each := _claim(connection, key, one)) is not None]


def _claim(connection: Connection, key: bytes, delivery_id: UUID) -> Delivery | None:
    row = connection.execute(
        select(deliveries, hooks.c.url, hooks.c.kind, hooks.c.secret, hooks.c.owner_id, users.c.active)
        .add_columns(users.c.roles, users.c.name, _datasets.c.policy)
        .join(hooks, hooks.c.id == deliveries.c.hook_id)
        .join(users, users.c.id == hooks.c.owner_id)
        .outerjoin(_datasets, _datasets.c.name == deliveries.c.facts["dataset"].astext)
        .where(deliveries.c.id == delivery_id)
    ).one()
    problem = _forbidden(row)
    if problem is not None:
        _settle(connection, delivery_id, state="dropped", problem=problem)
        return None
    claim = uuid4()
    now = func.clock_timestamp()
    _settle(
        connection,
        delivery_id,
        claim=claim,
        attempts=row.attempts + 1,
        attempted_at=now,
        due_at=now + timedelta(seconds=CLAIM_SECONDS),
    )
    content = webhook_rules.body(row.event, row.occurred_at, row.facts)
    secret = open_secret(key, row.hook_id, row.secret)
    return Delivery(
        row.id, row.hook_id, claim, row.url, secret, content, row.kind, row.event, dict(row.facts)
    )


def _forbidden(row: Row[Any]) -> str | None:
    """Return why a message may not go to its webhook's owner, given their present state; None: it may."""
    if not row.active:
        return "its owner's account is not active"
    owner = Actor(row.owner_id, row.name, frozenset(row.roles))
    if row.policy is not None:
        owner = owners.on(owner, Policy.model_validate(row.policy))
    if row.analyst_id == row.owner_id or OVERSEERS & owner.roles:
        return None
    return "its owner's roles do not show it to them any more"


def _settle(connection: Connection, delivery_id: UUID, **values: Any) -> None:
    connection.execute(update(deliveries).where(deliveries.c.id == delivery_id).values(**values))


def settle(engine: Engine, delivery: Delivery, outcome: Outcome, retries: Retries) -> str | None:
    """Write what came of an attempt; returns what became of the message, None where the claim has ended.

    A webhook is disabled where nothing at all reached it for as long as a message is tried, and at once
    where it answers 410 Gone.
    """
    held = (deliveries.c.id == delivery.id, deliveries.c.claim == delivery.claim)
    now = func.clock_timestamp()
    over = (deliveries.c.began_at + timedelta(hours=retries.hours) < now).label("over")
    with engine.begin() as connection:
        hook = connection.execute(select(hooks).where(hooks.c.id == delivery.hook_id).with_for_update()).one()
        found = select(deliveries, over).where(*held, deliveries.c.state == "pending")
        row = connection.execute(found.with_for_update()).one_or_none()
        if row is None:
            return None
        told = {"status": outcome.status, "problem": outcome.problem, "claim": None}
        if outcome.delivered:
            _settle(connection, row.id, state="delivered", **told)
            change(connection, hook.id, last_success_at=now)
            return "delivered"
        if outcome.status == 410 or row.over:
            _settle(connection, row.id, state="failed", **told)
            silent = hook.last_success_at is None or hook.last_success_at < row.began_at
            if hook.active and (outcome.status == 410 or silent):
                stop(connection, hook.id, _why(outcome, retries))
            return "failed"
        wait = timedelta(seconds=webhook_rules.delay(row.attempts, retries.first_seconds))
        _settle(connection, row.id, due_at=now + wait, **told)
        return "pending"


def _why(outcome: Outcome, retries: Retries) -> str:
    if outcome.status == 410:
        return "it answered 410 Gone"
    return f"nothing reached it for {retries.hours:g} hours; the last attempt {outcome.problem}"


def forget(engine: Engine, days: float) -> int:
    """Delete what ended so long ago; returns how many."""
    old = deliveries.c.occurred_at < func.clock_timestamp() - timedelta(days=days)
    ended = or_(deliveries.c.state != "pending", deliveries.c.hook_id.in_(_inactive()))
    with engine.begin() as connection:
        return connection.execute(delete(deliveries).where(old, ended)).rowcount


def _inactive() -> Any:
    return select(hooks.c.id).where(~hooks.c.active)
