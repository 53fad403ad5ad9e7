"""Addresses that are told when something changes, and the messages that wait for them.

    a state changes ── trigger, same transaction ──▶ hook_deliveries (where an address asks for it)
    take: due rows, SKIP LOCKED, each given a claim until it is given up for lost ──▶ sent outside
    settle: only under the claim; deleted when it is delivered or given up, else tried again later

An administrator sets an address, for a person: it is told what that person may see. A message whose
sender dies is taken again when its claim runs out, under the same id: at least once. What the
person may be told is decided anew at every attempt, from the roles that they have then.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal
from urllib.parse import urlsplit
from uuid import UUID, uuid4

from sqlalchemy import Connection, Engine, Row, delete, func, insert, select, true, update

from accountant import tables
from accountant.core import mechanisms, notices, webhook_rules
from accountant.core.errors import invalid
from accountant.core.ledger.policy import Policy
from accountant.core.names import job_name
from accountant.core.webhook_rules import Network
from accountant.database import reading
from accountant.identities import activity_log
from accountant.identities.actor import Actor
from accountant.tables.lookup import one
from accountant.transactions import owners
from accountant.transactions.artifacts import OVERSEERS

hooks, deliveries, users = tables.hooks, tables.hook_deliveries, tables.users

SETTER = "administrator"
#: Of the whole service: a list of them has no pages.
MOST_ADDRESSES = 200
CLAIM_SECONDS = 60.0
#: Of jobs: a steward then decides.
TO_DECIDE = ("job.awaiting_approval", "job.answered")
#: So many messages to one address may be under way at once: one slow receiver holds up no other.
AT_ONCE = 2

# --- addresses ----------------------------------------------------------------------------------


def add(
    engine: Engine,
    url: str,
    kind: notices.Kind,
    events: Sequence[str],
    person: str,
    actor: Actor,
    *,
    allowed: Sequence[Network] = (),
    domains: Sequence[str] = (),
) -> UUID:
    """Set an address for a person, as an administrator; returns its id.

    `allowed`: networks beside the public internet. `domains`: those that mail may go to. Raises
    NotPermitted, and InvalidRequest for an address, an event or a person that can't be, for events
    that the person's roles let them never see, and for too many addresses.
    """
    actor.require(SETTER)
    if kind == "mail":
        notices.read_mail(url, domains)
    else:
        webhook_rules.read_url(url, allowed)
    wanted = webhook_rules.read_events(events)
    if kind == "openlineage" and not set(wanted) <= notices.RUN_STATES.keys():
        raise invalid("events", "OpenLineage knows ends of jobs", ", ".join(notices.RUN_STATES))
    with engine.begin() as connection:
        query = select(users).where(users.c.name == person, users.c.active)
        owner = connection.execute(query).one_or_none()
        if owner is None:
            raise invalid("person", f"{person[:80]!r} is no open account", "the name of an account")
        if kind == "openlineage" and not OVERSEERS & set(owner.roles):
            # its events tell when jobs ended, which depends on their data
            raise invalid("person", "is no steward or auditor", "one who sees when jobs ended")
        hidden = [
            event_name for event_name in wanted if event_name in webhook_rules.OVERSEERS_EVENTS
        ]
        if hidden and not OVERSEERS & set(owner.roles):
            allowed_events = ", ".join(webhook_rules.JOB_EVENTS)
            raise invalid("events", f"{hidden[0]} is for stewards and auditors", allowed_events)
        if (
            connection.execute(select(func.count()).select_from(hooks)).scalar_one()
            >= MOST_ADDRESSES
        ):
            raise invalid(
                "url", f"there are {MOST_ADDRESSES} addresses", "end the notices to one first"
            )
        hook_id = uuid4()
        values = {"id": hook_id, "owner_id": owner.id, "kind": kind, "url": url, "events": wanted}
        connection.execute(insert(hooks).values(**values))
        # Not the address: it may hold a secret of its receiver's.
        detail = {"by": kind, "person": person, "events": wanted}
        activity_log.record(connection, actor, "notices set", "notice", str(hook_id), **detail)
    return hook_id


def remove(engine: Engine, hook_id: UUID, actor: Actor) -> None:
    """End the notices to an address of one's own, or to any (administrators). Raises NotFound."""
    with engine.begin() as connection:
        _shown(connection, hook_id, actor)
        connection.execute(delete(hooks).where(hooks.c.id == hook_id))
        activity_log.record(connection, actor, "notices ended", "notice", str(hook_id))


def test(engine: Engine, hook_id: UUID, actor: Actor) -> None:
    """Send a message that says nothing, as an administrator. Raises NotFound and NotPermitted."""
    actor.require(SETTER)
    with engine.begin() as connection:
        hook = _shown(connection, hook_id, actor)
        values = {"id": uuid4(), "hook_id": hook_id, "event": webhook_rules.TEST, "facts": {}}
        connection.execute(insert(deliveries).values(analyst_id=hook.owner_id, **values))


def listing(engine: Engine, viewer: Actor) -> list[dict[str, Any]]:
    """Return the viewer's own addresses, or all of them to an administrator, oldest first."""
    query = _visible(viewer).order_by(hooks.c.created_at, hooks.c.id)
    with reading(engine) as connection:
        return [_view(row, viewer) for row in connection.execute(query)]


def show(engine: Engine, hook_id: UUID, viewer: Actor) -> dict[str, Any]:
    """Return an address. Raises NotFound."""
    with reading(engine) as connection:
        return _view(_shown(connection, hook_id, viewer), viewer)


def _visible(viewer: Actor) -> Any:
    query = select(hooks, users.c.name.label("person")).join(users, users.c.id == hooks.c.owner_id)
    return query if SETTER in viewer.roles else query.where(hooks.c.owner_id == viewer.id)


def _shown(connection: Connection, hook_id: UUID, viewer: Actor) -> Row[Any]:
    return one(connection, _visible(viewer).where(hooks.c.id == hook_id), "notice", hook_id)


def _view(row: Row[Any], viewer: Actor) -> dict[str, Any]:
    """Return the fields of an address. Only administrators see it whole: a chat's is a key."""
    whole = SETTER in viewer.roles or row.kind == "mail"
    return {
        "id": str(row.id),
        "kind": row.kind,
        "person": row.person,
        "url": row.url if whole else f"https://{urlsplit(row.url).hostname}/…",
        "events": list(row.events),
        "created_at": row.created_at.isoformat(),
    }


# --- sending ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Delivery:
    """One attempt at one message, and the claim under which it is made."""

    id: UUID
    hook_id: UUID
    claim: UUID
    kind: str
    url: str
    event: str
    facts: Mapping[str, Any]

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


def take(engine: Engine, most: int, busy: Collection[UUID] = ()) -> list[Delivery]:
    """Claim messages that are due, a few of each address but those that are busy; two senders share
    them.

    What its person may not see any more is deleted here, unsent.
    """
    if most <= 0:
        return []
    due = (
        select(deliveries.c.id)
        .where(deliveries.c.hook_id == hooks.c.id, deliveries.c.due_at <= func.clock_timestamp())
        .order_by(deliveries.c.due_at)
        .limit(AT_ONCE)
        .with_for_update(skip_locked=True)
        .lateral()
    )
    with engine.begin() as connection:
        query = select(due.c.id).select_from(hooks.join(due, true())).where(hooks.c.id.not_in(busy))
        rows = connection.execute(query.limit(most)).scalars().all()
        return [claimed for one in rows if (claimed := _claim(connection, one)) is not None]


def _claim(connection: Connection, delivery_id: UUID) -> Delivery | None:
    datasets = tables.datasets
    row = connection.execute(
        select(deliveries, hooks.c.url, hooks.c.kind, hooks.c.owner_id, users.c.active)
        .add_columns(users.c.roles, users.c.name, datasets.c.policy)
        .join(hooks, hooks.c.id == deliveries.c.hook_id)
        .join(users, users.c.id == hooks.c.owner_id)
        .outerjoin(datasets, datasets.c.name == deliveries.c.facts["dataset"].astext)
        .where(deliveries.c.id == delivery_id)
    ).one()
    if not _may_see(row):
        connection.execute(delete(deliveries).where(deliveries.c.id == delivery_id))
        return None
    claim, lost = uuid4(), func.clock_timestamp() + timedelta(seconds=CLAIM_SECONDS)
    values = {"claim": claim, "attempts": row.attempts + 1, "due_at": lost}
    connection.execute(update(deliveries).where(deliveries.c.id == delivery_id).values(**values))
    facts = dict(row.facts) | _name(connection, row.facts)
    if row.kind == "openlineage":
        facts["at"] = row.occurred_at.isoformat()
    if row.event in TO_DECIDE and row.analyst_id != row.owner_id:
        facts["decision"] = facts["job"]  # that of a job has its id
    return Delivery(row.id, row.hook_id, claim, row.kind, row.url, row.event, facts)


def _name(connection: Connection, facts: Mapping[str, Any]) -> dict[str, str]:
    """Return the name of the job that a message is about, without the words of its purpose."""
    jobs = tables.jobs
    query = select(jobs.c.mechanism, jobs.c.created_at, jobs.c.place)
    job = connection.execute(query.where(jobs.c.id == facts.get("job"))).one_or_none()
    if job is None:
        return {}
    return {"name": job_name(mechanisms.get(job.mechanism).noun, job.created_at, job.place)}


def _may_see(row: Row[Any]) -> bool:
    """Return whether a message may go to its address, given the present state of its person."""
    if not row.active:
        return False
    person = Actor(row.owner_id, row.name, frozenset(row.roles))
    if row.policy is not None:
        person = owners.on(person, Policy.model_validate(row.policy))
    own = row.analyst_id == row.owner_id and row.kind != "openlineage"
    return own or bool(OVERSEERS & person.roles)


def settle(
    engine: Engine, delivery: Delivery, outcome: Outcome, retries: Retries
) -> Literal["delivered", "given up", "waiting"] | None:
    """Write what came of an attempt. Returns the message's state; None if the claim ended."""
    held = (deliveries.c.id == delivery.id, deliveries.c.claim == delivery.claim)
    now = func.clock_timestamp()
    over = (deliveries.c.occurred_at + timedelta(hours=retries.hours) < now).label("over")
    with engine.begin() as connection:
        query = select(deliveries.c.attempts, over).where(*held).with_for_update()
        row = connection.execute(query).one_or_none()
        if row is None:
            return None
        if outcome.delivered or row.over:
            connection.execute(delete(deliveries).where(*held))
            return "delivered" if outcome.delivered else "given up"
        wait = timedelta(seconds=webhook_rules.delay(row.attempts, retries.first_seconds))
        connection.execute(update(deliveries).where(*held).values(due_at=now + wait, claim=None))
        return "waiting"
