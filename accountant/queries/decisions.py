"""What second people are asked, as a viewer may see it: one list, and one of them. Reads only.

Stewards and auditors see what is asked on their datasets; requests for access, stewards alone.
Everybody sees their own jobs that await approval, their own requests for access and to publish, and
what is offered to them.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, Row, Select, and_, case, func, or_, select

from accountant import tables
from accountant.core import mechanisms
from accountant.core.errors import Conflict, InvalidRequest, NotFound
from accountant.core.ledger.policy import Policy, weakened
from accountant.core.names import job_name
from accountant.core.privacy.composition import epsilon_alone
from accountant.core.privacy.events import FREE, from_json, to_json
from accountant.core.privacy.units import EPSILON_UNITS, to_decimal
from accountant.core.states import UNRESERVED
from accountant.database import reading
from accountant.identities import custody
from accountant.identities.actor import Actor
from accountant.queries import comments, effects, jobs
from accountant.queries.dataset_rows import dataset_query
from accountant.schema.decisions import Change, Decision, OfferedJob
from accountant.schema.jobs import Job, JobInList
from accountant.tables import paging
from accountant.transactions import owners
from accountant.transactions.access import may_ask
from accountant.transactions.answers import KINDS
from accountant.transactions.asking import ByAnybody, ByTwo

decisions, datasets, users = tables.decisions, tables.datasets, tables.users

WAITING = "awaiting_approval"


@dataclass(frozen=True)
class Wanted:
    """Search terms for decisions; None: all. `mine`: those that an analyst sees as such."""

    state: str | None = "open"
    kind: str | None = None
    dataset: str | None = None
    job: UUID | None = None
    mine: bool = False


OPEN = Wanted()


def listing(
    engine: Engine,
    viewer: Actor,
    wanted: Wanted = OPEN,
    *,
    limit: int = 50,
    after: paging.After = None,
    with_effects: bool = True,
    with_largest: bool = True,
) -> list[Decision]:
    """Return decisions: open ones oldest first, others newest first.

    Of jobs, those that await approval are listed; what was decided stands with the jobs.
    `after` (created_at, id) continues a listing. `with_largest` as `effects.effects` has it.
    """
    oldest_first = wanted.state == "open"
    query = _query(viewer).where(*_conditions(wanted, viewer))
    key = [decisions.c.created_at, decisions.c.id]
    with reading(engine) as connection:
        rows = connection.execute(
            paging.window(query, key, limit, after, descending=not oldest_first)
        ).all()
        views = _views(connection, rows, viewer)
    if wanted.state in (None, "open") and wanted.kind in (None, "approval") and wanted.job is None:
        waiting = jobs.Wanted(
            state=WAITING, dataset=wanted.dataset, asker=viewer if wanted.mine else None
        )
        approvals = jobs.jobs(
            engine, viewer, waiting, after=after, limit=limit, oldest_first=oldest_first
        )
        views += _approvals(engine, viewer, approvals)
        views.sort(key=lambda one: (one.created_at, UUID(one.id)), reverse=not oldest_first)
    views = views[:limit]
    return _with_effects(engine, viewer, views, with_largest) if with_effects else views


def show(engine: Engine, decision_id: UUID, viewer: Actor) -> Decision:
    """Return one decision. Raises NotFound."""
    with reading(engine) as connection:
        rows = connection.execute(_query(viewer).where(decisions.c.id == decision_id)).all()
        views = _views(connection, rows, viewer)
    if not views:
        with suppress(NotFound):
            views = _approvals(engine, viewer, [jobs.job(engine, decision_id, viewer)])
    if not views:
        raise NotFound("decision", str(decision_id))
    return _with_effects(engine, viewer, views)[0]


def named(engine: Engine, digits: str, viewer: Actor) -> UUID:
    """Return the one decision that `viewer` may see whose id begins with these digits."""
    with suppress(NotFound):  # that on a job has its id
        return jobs.named(engine, digits, viewer)
    return jobs.of_digits(engine, _query(viewer), decisions.c.id, digits, "decision")


def latest_access(engine: Engine, viewer: Actor, dataset: str) -> Decision | None:
    """Return the viewer's own newest request for access to a dataset, or None."""
    wanted = Wanted(state=None, kind="access", dataset=dataset, mine=True)
    return next(iter(listing(engine, viewer, wanted, limit=1)), None)


def count_waiting(engine: Engine, viewer: Actor) -> tuple[int, int]:
    """Return how many decisions await this steward, without jobs that await their analyst, and how
    many of the viewer's own jobs await their answer.
    """
    table = tables.jobs
    mine = owners.overseen(viewer, owners.STEWARD)
    asked = (
        select(func.count())
        .join_from(decisions, datasets, datasets.c.id == decisions.c.dataset_id)
        .where(
            decisions.c.state == "open",
            decisions.c.kind != "offer",
            decisions.c.asked_by != viewer.id,
            mine,
        )
    )
    waiting = (
        select(func.count())
        .join_from(table, datasets, datasets.c.id == table.c.dataset_id)
        .where(table.c.state == WAITING, func.not_(comments.is_asked_back()), mine)
    )
    back = select(func.count()).where(
        table.c.analyst_id == viewer.id, table.c.state == WAITING, comments.is_asked_back()
    )
    with reading(engine) as connection:
        query = select(asked.scalar_subquery() + waiting.scalar_subquery(), back.scalar_subquery())
        inbox, questions = connection.execute(query).one()
        return inbox, questions


# --- rows ---------------------------------------------------------------------------------------

_asker, _answerer, _analyst = users.alias(), users.alias(), users.alias()


def _query(viewer: Actor) -> Select[Any]:
    """Return a query of the decisions that `viewer` may see."""
    table = tables.jobs
    seers = case(
        (decisions.c.kind.in_(OF_STEWARDS), owners.overseen(viewer, owners.STEWARD)),
        else_=owners.overseen(viewer),
    )
    return (
        select(
            decisions,
            datasets.c.name.label("dataset"),
            datasets.c.policy,
            table.c.mechanism,
            tables.models.c.name.label("model"),
            table.c.project,
            table.c.purpose,
            table.c.parameters,
            table.c.epsilon_alone,
            table.c.terms,
            table.c.analyst_id,
            table.c.created_at.label("job_created_at"),
            table.c.place,
            _answerer.c.name.label("answerer"),
            *(_asker.c[name].label(f"asker_{name}") for name in _ACCOUNT),
            *(_analyst.c[name].label(f"analyst_{name}") for name in _ACCOUNT),
        )
        .join(datasets, datasets.c.id == decisions.c.dataset_id)
        .join(_asker, _asker.c.id == decisions.c.asked_by)
        .outerjoin(_answerer, _answerer.c.id == decisions.c.answered_by)
        .outerjoin(table, table.c.id == decisions.c.job_id)
        .outerjoin(tables.models, tables.models.c.id == table.c.model_id)
        .outerjoin(_analyst, _analyst.c.id == table.c.analyst_id)
        .where(or_(seers, _is_own(viewer)))
    )


#: Kinds that no auditor sees.
OF_STEWARDS = [name for name, kind in KINDS.items() if "auditor" not in kind.seen_by]
#: Kinds that whoever may ask for jobs asks for, and withdraws.
_OF_ANYBODY = [name for name, kind in KINDS.items() if isinstance(kind, ByAnybody)]
#: What tells whether somebody left.
_ACCOUNT = ("name", "active", "roles")


def _is_own(viewer: Actor) -> Any:
    """Return the condition of an analyst's view: what they ask for, offers to them."""
    return or_(
        and_(decisions.c.kind.in_(_OF_ANYBODY), decisions.c.asked_by == viewer.id),
        and_(decisions.c.kind == "offer", tables.jobs.c.analyst_id == viewer.id),
    )


def _conditions(wanted: Wanted, viewer: Actor) -> list[Any]:
    terms = (
        (wanted.state, decisions.c.state),
        (wanted.kind, decisions.c.kind),
        (wanted.dataset, datasets.c.name),
        (wanted.job, decisions.c.job_id),
    )
    conditions = [column == value for value, column in terms if value is not None]
    return [*conditions, _is_own(viewer)] if wanted.mine else conditions


def _views(connection: Connection, rows: Sequence[Row[Any]], viewer: Actor) -> list[Decision]:
    """Return the decisions of these rows, with the effect of each open allowance."""
    raised = {row.dataset for row in rows if row.kind == "allowance" and row.state == "open"}
    query = dataset_query().where(datasets.c.name.in_(raised))
    accounts = {row.name: row for row in connection.execute(query)} if raised else {}
    acts = custody.recent(connection) if any(row.state == "open" for row in rows) else []
    return [_view(row, accounts.get(row.dataset), acts, viewer) for row in rows]


def _view(row: Row[Any], account: Row[Any] | None, acts: list[Any], viewer: Actor) -> Decision:
    is_open, policy = row.state == "open", Policy.model_validate(row.policy)
    asker, offer, change = _asked(row), _offered(row) if row.kind == "offer" else None, None
    by_two = isinstance(KINDS[row.kind], ByTwo)
    if account is not None and is_open and row.kind == "allowance":
        try:
            change = effects.effect_of(account, row.asked["body"])
        except (Conflict, InvalidRequest):
            change = None
    weaker: tuple[str, ...] = ()
    if row.kind == "policy":
        weaker = weakened(*(Policy.model_validate(asker[name]) for name in ("replaces", "policy")))
    same = (
        "kind",
        "dataset",
        "reason",
        "state",
        "created_at",
        "expires_at",
        "answered_at",
        "answer",
    )
    facts = {name: getattr(row, name) for name in same}
    return _decision(
        **facts,
        id=str(row.id),
        asks=_asks(row, asker, offer, weaker, policy),
        asked_by=row.asker_name,
        may_say=_may_say(row, policy, viewer) if is_open else [],
        left=_left(row, policy) if is_open else None,
        answered_by=row.answerer,
        job=_id(row.job_id),
        entry=row.entry_seq,
        made_job=_id(row.made_job),
        made_decision=_id(row.made_decision),
        asked=asker,
        weakens=list(weaker),
        acts_on_stewards=acts if is_open and by_two else [],
        offer=offer,
        change=change,
    )


def _may_say(row: Row[Any], policy: Policy, viewer: Actor) -> list[Any]:
    """Return the answers that the viewer may give to an open decision."""
    is_steward = "steward" in owners.on(viewer, policy).roles
    answers = row.analyst_id == viewer.id if row.kind == "offer" else is_steward
    if answers and (row.kind == "offer" or row.asked_by != viewer.id):
        return ["yes", "no"]
    withdraws = is_steward or (row.kind in _OF_ANYBODY and row.asked_by == viewer.id)
    return ["no"] if withdraws else []


def _decision(**facts: Any) -> Decision:
    """Return a decision with every field set: an answer leaves out those that are not."""
    return Decision(**{**_UNSAID, **facts})


_UNSAID = {
    name: field.get_default(call_default_factory=True)
    for name, field in Decision.model_fields.items()
    if not field.is_required()
}


def _id(value: UUID | None) -> str | None:
    return None if value is None else str(value)


def _left(row: Row[Any], policy: Policy) -> str | None:
    """Return why an open decision can't be accepted, as somebody whom it takes left, or None."""
    people = ("asker", "analyst")
    asker, analyst = (
        SimpleNamespace(**{name: getattr(row, f"{person}_{name}") for name in _ACCOUNT})
        for person in people
    )
    if row.kind in _OF_ANYBODY:
        return owners.account_departure(asker)
    left = owners.departure(analyst, policy) if row.kind == "offer" else None
    return left or owners.steward_departure(asker, policy)


def _asked(row: Row[Any]) -> dict[str, Any]:
    """Return what is asked, in the terms in which it was asked for."""
    if row.kind == "allowance":
        body = row.asked["body"]
        return {
            name: body[name] for name in ("epsilon", "delta", "ex_post", "secret") if name in body
        }
    if row.kind == "correction":
        event, delta = row.asked["event"], row.terms["delta"]
        return {
            "event": event,
            "epsilon_alone": epsilon_alone(from_json(event or to_json(FREE)), delta)[0],
            "reserved": row.epsilon_alone,
            "cap": to_decimal(int(row.asked["cap"]), EPSILON_UNITS),
        }
    if row.kind == "policy":
        return {name: row.asked[name] for name in ("policy", "replaces")}
    if row.kind == "offer":  # it stands beside, as `offer`
        return {}
    return {name: row.asked[name] for name in row.asked if name != "signature"}


def _offered(row: Row[Any]) -> OfferedJob:
    order, offered = mechanisms.get(row.mechanism).fields, row.asked["parameters"]
    return OfferedJob(
        mechanism=row.mechanism,
        model=row.model,
        analyst=row.analyst_name,
        project=row.project,
        purpose=row.purpose,
        changes=[
            Change(field=name, asked=row.parameters.get(name), offered=offered.get(name))
            for name in order
            if row.parameters.get(name) != offered.get(name)
        ],
        asked_epsilon_alone=row.epsilon_alone,
        delta=row.asked["terms"]["delta"],
        **row.asked,
    )


def _asks(
    row: Row[Any],
    asked: dict[str, Any],
    offer: OfferedJob | None,
    weaker: Sequence[str],
    policy: Policy,
) -> str:
    """Return what a yes does, in a few words."""
    if offer is not None:
        changes = ", ".join(f"{change.field} = {change.offered}" for change in offer.changes)
        return f"run {offer.mechanism} with {changes}"
    if row.kind == "access":
        already = " (the policy lets them already)" if may_ask(policy, row.asker_name) else ""
        return f"let {row.asker_name} ask for jobs{already}"
    if row.kind == "policy":
        return f"set a policy that weakens {', '.join(weaker)}"
    if row.kind == "loss":
        return f"say that entries after entry {asked['entries']} are lost, and charge what is left"
    if row.kind == "overdraft":
        return f"charge what {asked['parameters']['tool']} released, beyond what is left"
    if row.kind in ("push", "correction"):
        noun = mechanisms.get(row.mechanism).noun
        name = job_name(noun, row.job_created_at, row.place, row.purpose)
        to = f"publish on {asked['to']}" if row.kind == "push" else "change the charge"
        return f"{to}: {name}"
    if row.kind != "allowance":
        return KINDS[row.kind].title
    parts = [f"{name} {asked[name]}" for name in ("epsilon", "delta") if name in asked]
    if "ex_post" in asked:
        parts.append(f"ex-post {asked['ex_post']['limit']} ({asked['ex_post']['settlement']})")
    return "allow " + ", ".join(parts or ["a statement about secrets"])


# --- jobs that await approval, and effects ------------------------------------------------------


def _approvals(engine: Engine, viewer: Actor, waiting: Sequence[JobInList]) -> list[Decision]:
    """Return the decisions on these jobs; those on which nobody had to decide have none."""
    policies = _policies(engine, {job.dataset for job in waiting})
    return [
        _approval(job, policies[job.dataset], viewer) for job in waiting if _state(job) is not None
    ]


def _approval(job: JobInList, policy: Policy, viewer: Actor) -> Decision:
    says: list[Any] = ["yes", "no"] if job.analyst != viewer.name or policy.solo else ["no"]
    answers = job.state == WAITING and "steward" in owners.on(viewer, policy).roles
    return _decision(
        id=job.id,
        kind="approval",
        dataset=job.dataset,
        asks=f"run {job.mechanism}",
        reason=job.purpose,
        state=_state(job),
        asked_by=job.analyst,
        created_at=job.created_at,
        expires_at=job.approval_expires,
        may_say=says if answers else [],
        left=job.analyst_left,
        answered_by=job.decided_by if isinstance(job, Job) else None,
        answered_at=job.decided_at,
        answer=None if job.state in UNRESERVED else job.decision_reason,
        job=job.id,
        request=JobInList(**{name: getattr(job, name) for name in JobInList.model_fields}),
    )


def _state(job: JobInList) -> Any:
    """Return the state of the decision on a job, or None if nobody had to decide on it."""
    if job.state in _OF_JOBS:
        return _OF_JOBS[job.state]
    if not isinstance(job, Job) or (job.decided_by is None and job.entries):
        return None
    if job.decided_by is None:
        return "withdrawn" if job.state == "cancelled" else None
    return "refused" if job.refusal is not None and job.refusal.cap == "steward" else "accepted"


#: The state of a job that nobody decided on, and that of its decision.
_OF_JOBS = {WAITING: "open", "expired": "expired"}


def _policies(engine: Engine, names: set[str]) -> dict[str, Policy]:
    with reading(engine) as connection:
        rows = connection.execute(
            select(datasets.c.name, datasets.c.policy).where(datasets.c.name.in_(names))
        )
        return {row.name: Policy.model_validate(row.policy) for row in rows}


def _with_effects(
    engine: Engine, viewer: Actor, found: Sequence[Decision], with_largest: bool = True
) -> list[Decision]:
    """Return the decisions with the effect of each open job and offer on its dataset."""
    priced = {}
    for decision in found:
        job = decision.request or decision.offer
        if job is not None and decision.state == "open":
            priced[decision.id] = {**job.document(), "dataset": decision.dataset}
    told = effects.effects(engine, viewer, [*priced.values()], with_largest)
    priced_effects = dict(zip(priced, told, strict=True))
    return [one.model_copy(update={"effect": priced_effects.get(one.id)}) for one in found]
