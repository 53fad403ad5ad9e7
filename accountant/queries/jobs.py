"""What people may see: catalogue, accounts, jobs, ledger. Reads only, and answers by role.

An analyst sees public facts of every dataset, what is left of its allowance (which follows from public
job parameters), and their own jobs. Stewards and auditors see all jobs and the ledger. Where data lies
and what was wrong with it is for stewards.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, Row, RowMapping, Select, cast, func, select
from sqlalchemy.dialects.postgresql import JSONB

from accountant import tables
from accountant.core import mechanisms
from accountant.core.errors import ExchequerError, NotFound, NotPermitted, VerificationFailed, invalid
from accountant.core.ledger.accounts import Accounts, decide_job, demand, with_largest
from accountant.core.ledger.admission import Policy, Refused
from accountant.core.ledger.books import Books
from accountant.core.ledger.caps import ANALYST, NO_USAGE, beyond_caps, limits
from accountant.core.ledger.checkpoints import read_checkpoint
from accountant.core.ledger.entry_bodies import costs_json
from accountant.core.ledger.export_formats import Verified, Verifier, read_document, summary
from accountant.core.ledger.hash_chain import opened
from accountant.core.ledger.reservations import read_costs, read_reservation, settled
from accountant.core.ledger.statements import statements
from accountant.core.mechanisms.base import quote
from accountant.core.mechanisms.fitting import Fitted, fit
from accountant.core.privacy.composition import epsilon_alone
from accountant.core.privacy.events import releases
from accountant.core.privacy.filters import Kind
from accountant.core.privacy.price import Price, Terms
from accountant.core.privacy.units import EPSILON_UNITS, to_decimal
from accountant.identities import activity_log
from accountant.queries import exports, spending
from accountant.queries.account_views import account_view, ex_post_view, secret_view
from accountant.queries.admission_preview import accounts_shown, effect, refusal_shown
from accountant.queries.listings import (
    EVERY_DATASET,
    EVERY_JOB,
    Wanted,
    WantedJobs,
    conditions,
    job_conditions,
)
from accountant.tables import paging
from accountant.transactions import cap_usage
from accountant.transactions.artifacts import OVERSEERS
from accountant.transactions.job_requests import delta_of, restated, terms_of
from accountant.transactions.locked_account import read_books
from accountant.transactions.settlement import Actor
from accountant.transactions.signing import listed as stored_checkpoints

#: The key of the last row that was shown: a listing continues after it.


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


# --- datasets -----------------------------------------------------------------------------------


def datasets(
    engine: Engine,
    viewer: Actor,
    wanted: Wanted = EVERY_DATASET,
    *,
    limit: int | None = None,
    after: paging.After = None,
) -> list[dict[str, Any]]:
    """The catalogue, by name."""
    narrowed = _dataset_query().where(*conditions(wanted, viewer))
    query = paging.window(narrowed, [tables.datasets.c.name], limit, after, descending=False)
    with engine.connect() as connection:
        rows = connection.execute(query).all()
        states = _version_states(connection)
        return [_dataset(row, _books(connection, row), states.get(row.id, []), viewer) for row in rows]


def dataset(engine: Engine, name: str, viewer: Actor) -> dict[str, Any]:
    """One dataset. Raises NotFound."""
    with engine.connect() as connection:
        row = _dataset_row(connection, name)
        versions = _version_states(connection, row.id).get(row.id, [])
        facts = _dataset(row, _books(connection, row), versions, viewer)
        return facts | {"caps": _caps(connection, row, viewer)}


def _caps(connection: Connection, row: Row[Any], viewer: Actor) -> list[dict[str, str]]:
    """What the caps of the policy leave: to an analyst their own, and the projects that they work in."""
    set_by = limits(Policy.model_validate(row.policy))
    if not set_by:
        return []
    table, users = tables.usage, tables.users
    own = {str(viewer.id), *_projects(connection, row.id, viewer)}
    names = {str(user.id): user.name for user in connection.execute(select(users.c.id, users.c.name))}
    query = select(table).where(table.c.dataset_id == row.id).order_by(table.c.kind, table.c.holder)
    used = {(each.kind, each.holder): each.spent + each.reserved for each in connection.execute(query)}
    if ANALYST in set_by and viewer.roles & {"analyst", "steward"}:
        used.setdefault((ANALYST, str(viewer.id)), 0)
    return [
        {
            "kind": kind,
            "name": names.get(holder, holder) if kind == ANALYST else holder,
            "limit": to_decimal(set_by[kind], EPSILON_UNITS),
            "used": to_decimal(amount, EPSILON_UNITS),
            "left": to_decimal(max(set_by[kind] - amount, 0), EPSILON_UNITS),
        }
        for (kind, holder), amount in used.items()
        if kind in set_by and (viewer.roles & OVERSEERS or holder in own)
    ]


def _projects(connection: Connection, dataset_id: UUID, viewer: Actor) -> set[str]:
    """The projects for which somebody asked on a dataset."""
    mine = (tables.jobs.c.dataset_id == dataset_id, tables.jobs.c.analyst_id == viewer.id)
    query = select(tables.jobs.c.project).where(*mine, tables.jobs.c.project.is_not(None))
    return set(connection.execute(query.distinct()).scalars())


def _dataset_query() -> Select[Any]:
    columns = [column for column in tables.accounts.c if column.name != "dataset_id"]
    return select(tables.datasets, *columns).join(
        tables.accounts, tables.accounts.c.dataset_id == tables.datasets.c.id
    )


def _dataset_row(connection: Connection, name: str) -> Row[Any]:
    row = connection.execute(_dataset_query().where(tables.datasets.c.name == name)).one_or_none()
    if row is None:
        raise NotFound("dataset", name)
    return row


def _books(connection: Connection, row: Row[Any]) -> Books:
    """The books in a row, with the job that closed each closed filter: the first not voided since."""
    books = read_books(row)
    closers = []
    for each in () if books.account is None else books.account.filters:
        if each.closed:
            closers.append((each.filter.kind, _closing_job(connection, row.id, each.filter.kind)))
    return replace(books, history=replace(books.history, closers=tuple(closers)))


def _closing_job(connection: Connection, dataset_id: UUID, kind: Kind) -> str:
    table, later = tables.entries, tables.entries.alias()
    cost = cast(table.c.document, JSONB)["body"]["costs"][str(kind)]
    later_cost = cast(later.c.document, JSONB)["body"]["costs"][str(kind)]
    # A VOID opens it again, and so does a correction that charges the job an amount there, or nothing.
    opened = (later.c.kind == "VOID") | (
        (later.c.kind == "REVERSAL") & (func.coalesce(func.jsonb_typeof(later_cost), "") != "null")
    )
    voided = (
        select(later.c.seq)
        .where(later.c.job_id == table.c.job_id, later.c.seq > table.c.seq, opened)
        .exists()
    )
    query = (
        select(table.c.job_id)
        .where(table.c.dataset_id == dataset_id, table.c.kind.in_(("RESERVE", "REVERSAL")), ~voided)
        .where(func.jsonb_typeof(cost) == "null")
        .order_by(table.c.seq)
        .limit(1)
    )
    return str(connection.execute(query).scalar_one())


def _version_states(connection: Connection, dataset_id: UUID | None = None) -> dict[UUID, list[Row[Any]]]:
    versions = tables.dataset_versions
    query = select(versions).order_by(versions.c.number)
    if dataset_id is not None:
        query = query.where(versions.c.dataset_id == dataset_id)
    found: dict[UUID, list[Row[Any]]] = {}
    for row in connection.execute(query):
        found.setdefault(row.dataset_id, []).append(row)
    return found


def _dataset(row: Row[Any], books: Books, versions: list[Row[Any]], viewer: Actor) -> dict[str, Any]:
    ready = any(version.state == "ready" for version in versions)
    state = "ready" if ready else versions[-1].state if versions else "checking"
    facts = {
        "name": row.name,
        "description": row.description,
        "state": state,
        "neighbours": row.neighbours,
        "unit": row.unit_column or "record",
        "max_records_per_unit": row.max_records_per_unit,
        "public_size": row.public_size,
        "labels": row.labels,
        "policy": Policy.model_validate(row.policy).model_dump(mode="json"),
        "overdrawn": books.overdrawn,
        "account": account_view(books),
        "ex_post": ex_post_view(books.ex_post, bool(viewer.roles & OVERSEERS)),
        "secret": secret_view(books.secret),
        "statements": [
            {"currency": each.currency, "text": each.text, "unqualified": each.unqualified}
            for each in statements(books.accounts, books.history, row.neighbours, row.unit_column or "record")
        ],
        "entries": row.chain_seq,
    }
    if "steward" in viewer.roles:
        facts["versions"] = [
            {
                "number": version.number,
                "uri": version.uri,
                "text_template": version.text_template,
                "unit_column": version.unit_column,
                "label_column": version.label_column,
                "state": version.state,
                "error": version.error,
                "created_at": _time(version.created_at),
            }
            for version in versions
        ]
        newest = versions[-1]
        facts["text_template"] = newest.text_template
        facts["label_column"] = newest.label_column
    return facts


# --- quotes -------------------------------------------------------------------------------------


def quote_on(
    engine: Engine,
    name: str,
    mechanism_id: str,
    raw: Mapping[str, Any],
    fit_field: str | None = None,
    epsilon: float | None = None,
    viewer: Actor | None = None,
    project: str | None = None,
) -> dict[str, Any]:
    """The price of a request on a dataset, and what admission would say of it now (to `viewer`, if given).

    With `fit_field` the value of that field that spends as much as the dataset's filters and the caps of
    `viewer` and `project` have left (and of `epsilon` alone, where given) is found first.
    """
    with engine.connect() as connection:
        row = _dataset_row(connection, name)
        used = cap_usage.used(connection, row.id, viewer.id, project) if viewer is not None else NO_USAGE
    accounts = read_books(row).accounts
    terms = terms_of(row, accounts)
    policy = Policy.model_validate(row.policy)
    mechanism = mechanisms.get(mechanism_id)
    overseer = viewer is None or bool(viewer.roles & OVERSEERS)
    if fit_field is None:
        parameters = mechanism.parse(raw, terms)
    else:

        def within_caps(price: Price) -> bool:
            alone = None if price.dp is None else epsilon_alone(price.dp, terms.delta)[0]
            return beyond_caps(used, policy, alone) is None

        fitting = accounts_shown(accounts, overseer)
        capped = within_caps if limits(policy) else None
        found = fitted(mechanism, raw, terms, fit_field, epsilon, fitting, capped)
        parameters = found.parameters
    answer = quote(mechanism, parameters, terms)
    if fit_field is not None:
        answer["fit"] = {"field": fit_field, "value": found.value}
    price = mechanism.price(parameters, terms)
    alone = 0.0 if answer["dp"] is None else answer["dp"]["epsilon"]
    decision = decide_job(accounts, demand(price), alone, policy, False, used)
    refusal = {}
    if isinstance(decision, Refused):
        if decision.cap not in ("policy", "allowance", "overdrawn"):  # no size would help there
            decision = with_largest(decision, mechanism, raw, terms, accounts, policy, used)
        refusal = refusal_shown(decision.to_json(), accounts.ex_post.settlement, overseer) or {}
    answer["dataset"] = {"name": name, "decision": type(decision).__name__, "refusal": refusal}
    answer["dataset"] |= effect(accounts, demand(price), alone, policy, used, realized_shown=overseer)
    return answer


def fitted(
    mechanism: Any,
    raw: Mapping[str, Any],
    terms: Terms,
    field: str,
    epsilon: float | None,
    accounts: Accounts,
    within_caps: Callable[[Price], bool] | None = None,
) -> Fitted:
    """The value of `field`, and parameters with it, spending the most that fits `epsilon` alone and here.

    `within_caps`: whether the caps of who asks have room for a price, where the policy sets any.
    """

    def affordable(price: Price) -> bool:
        asked = demand(price)
        # Before the first allowance there is no filter to fit, and a quote is still wanted.
        if (accounts.dp is not None or not releases(asked.dp)) and not accounts.fits(asked):
            return False
        if within_caps is not None and not within_caps(price):
            return False
        return epsilon is None or price.dp is None or epsilon_alone(price.dp, terms.delta)[0] <= epsilon

    found = fit(mechanism, raw, terms, field, affordable)
    if found is None:
        raise invalid(field, "no value in its range fits", "a larger epsilon, or other parameters")
    return found


# --- jobs ---------------------------------------------------------------------------------------


def _of_parts(value: Any) -> Any:
    """A figure over all parts of a job, for a query of jobs."""
    query = select(value).where(tables.parts.c.job_id == tables.jobs.c.id)
    return query.correlate(tables.jobs).scalar_subquery()


_JOB_COLUMNS = (
    tables.jobs,
    _of_parts(func.coalesce(func.sum(tables.parts.c.progress_done), 0)).label("progress_done"),
    _of_parts(func.coalesce(func.max(tables.parts.c.progress_total), 0)).label("progress_total"),
    tables.datasets.c.name.label("dataset"),
    tables.models.c.name.label("model"),
    tables.users.c.name.label("analyst"),
)


def _job_query(viewer: Actor) -> Select[Any]:
    jobs = tables.jobs
    query = (
        select(*_JOB_COLUMNS, tables.accounts.c.ex_post_settlement, tables.accounts.c.delta)
        .join(tables.datasets, tables.datasets.c.id == jobs.c.dataset_id)
        .join(tables.accounts, tables.accounts.c.dataset_id == jobs.c.dataset_id)
        .outerjoin(tables.models, tables.models.c.id == jobs.c.model_id)
        .join(tables.users, tables.users.c.id == jobs.c.analyst_id)
    )
    return query if viewer.roles & OVERSEERS else query.where(jobs.c.analyst_id == viewer.id)


def jobs(
    engine: Engine,
    viewer: Actor,
    wanted: WantedJobs = EVERY_JOB,
    *,
    limit: int = 50,
    before: datetime | None = None,
    oldest_first: bool = False,
    after: paging.After = None,
) -> list[dict[str, Any]]:
    """Jobs that `viewer` may see, newest first (or oldest); `after` (created_at, id) continues a listing."""
    key = [tables.jobs.c.created_at, tables.jobs.c.id]
    narrowed = _job_query(viewer).where(*job_conditions(wanted, viewer))
    query = paging.window(narrowed, key, limit, after, descending=not oldest_first)
    if before is not None:
        query = query.where(tables.jobs.c.created_at < before)
    with engine.connect() as connection:
        return [_job(row, viewer) for row in connection.execute(query)]


def job(engine: Engine, job_id: UUID, viewer: Actor) -> dict[str, Any]:
    """One job with its realized cost. Raises NotFound, for other people's jobs too."""
    with engine.connect() as connection:
        row = connection.execute(_job_query(viewer).where(tables.jobs.c.id == job_id)).one_or_none()
        if row is None:
            raise NotFound("job", str(job_id))
        entries = connection.execute(
            select(tables.entries.c.seq, tables.entries.c.kind, tables.entries.c.document)
            .where(tables.entries.c.job_id == job_id)
            .order_by(tables.entries.c.seq)
        ).all()
        decider = connection.execute(
            select(tables.users.c.name).where(tables.users.c.id == row.decided_by)
        ).scalar_one_or_none()
    return {**_job(row, viewer), "decided_by": decider, "entries": _entries_brief(entries)}


#: Stands wherever realized figures are shown.
EX_POST_NOTE = (
    "A cap is a planning figure, neither bound nor mean. What a job really cost depends on the data: "
    "approvals given after seeing these figures leak them."
)


def ex_post(
    engine: Engine, name: str, viewer: Actor, *, limit: int | None = None, after: paging.After = None
) -> list[dict[str, Any]]:
    """What the ex-post jobs of a dataset really cost beside their caps, newest first.

    The figures depend on the data. Nothing that an analyst can reach may read them. Raises NotPermitted
    for anybody but stewards and auditors.
    """
    _require_overseer(viewer)
    jobs, realized, table = tables.jobs, tables.realized_ex_post, tables.entries
    query = (
        select(jobs.c.id, jobs.c.finished_at, realized.c.amount, realized.c.curve, table.c.document)
        .join(realized, realized.c.job_id == jobs.c.id)
        .join(table, (table.c.job_id == jobs.c.id) & (table.c.kind == "RESERVE"))
    )
    query = paging.window(query, [jobs.c.finished_at, jobs.c.id], limit, after)
    with engine.connect() as connection:
        row = _dataset_row(connection, name)
        found = connection.execute(query.where(jobs.c.dataset_id == row.id)).all()
    return [
        {
            "job": str(each.id),
            "cap": to_decimal(int(read_document(each.document)["body"]["ex_post"]["cap"]), EPSILON_UNITS),
            "realized": to_decimal(each.amount, EPSILON_UNITS),
            "curve": each.curve,
            "finished_at": _time(each.finished_at),
        }
        for each in found
    ]


def _entries_brief(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """A job's entries with what each leaves charged, which of a COMMIT is not always what it states.

    A price with a delta covers the whole job: nothing of it returns where the job ended early.
    """
    found, held = [], None
    for row in rows:
        body = read_document(row.document)["body"]
        costs = body.get("costs")
        if row.kind == "RESERVE":
            held = read_reservation(body)
        elif row.kind == "COMMIT" and held is not None and held.costs and costs:
            costs = costs_json(settled(held.costs, read_costs(costs)))
        found.append({"seq": row.seq, "kind": row.kind, "costs": costs, "outcome": body.get("outcome")})
    return found


def _hidden_times(row: Row[Any], viewer: Actor) -> frozenset[str]:
    """The moments of a job that an analyst is not told: how long data is read depends on the data.

    Of a job that reads records, when its run began (another job's run may have ended then) and, where data
    was read, when it ended. A job that reads what was released has no such moment.
    """
    if viewer.roles & OVERSEERS or row.source_job_id is not None:
        return frozenset()
    return frozenset({"started_at"} if row.reading_began_at is None else {"started_at", "finished_at"})


def _stated(row: Row[Any]) -> Mapping[str, Any] | RowMapping:
    """What a job costs by itself: one that waits at the δ of now, any other as it was decided."""
    delta = delta_of(row.delta)
    if row.state not in ("submitted", "awaiting_approval") or row.terms["delta"] == delta:
        return row._mapping
    try:
        return restated(row, delta).columns
    except (ExchequerError, ArithmeticError, ValueError):
        return row._mapping  # no price any more: it will not be admitted


def _job(row: Row[Any], viewer: Actor) -> dict[str, Any]:
    hidden, stated = _hidden_times(row, viewer), _stated(row)
    return {
        "id": str(row.id),
        "dataset": row.dataset,
        "mechanism": row.mechanism,
        "model": row.model,
        "analyst": row.analyst,
        "purpose": row.purpose,
        "project": row.project,
        "parameters": row.parameters,
        "terms": stated["terms"],
        "event": row.event,
        "epsilon_alone": stated["epsilon_alone"],
        "ex_post_cap": row.parameters.get("ex_post_cap"),
        "delta": stated["terms"]["delta"],
        "breakdown": stated["breakdown"],
        "state": row.state,
        "refusal": refusal_shown(row.refusal, row.ex_post_settlement, bool(viewer.roles & OVERSEERS)),
        "decision_reason": row.decision_reason,
        "attempt": row.attempt,
        "cancel_requested": row.cancel_requested,
        "progress": {
            "done": row.progress_total if row.state == "succeeded" else int(row.progress_done),
            "total": row.progress_total,
            "unit": mechanisms.get(row.mechanism).progress_unit,
        },
        "failure": row.failure,
        "output_sha256": row.output_sha256,
        "source_job": None if row.source_job_id is None else str(row.source_job_id),
        **{
            name: None if name in hidden else _time(getattr(row, name))
            for name in (
                "created_at",
                "approval_expires",
                "decided_at",
                "queued_at",
                "started_at",
                "finished_at",
            )
        },
    }


def output_uri(engine: Engine, job_id: UUID, viewer: Actor) -> str:
    """Where a published output lies. Raises NotFound where there is none for this viewer."""
    with engine.connect() as connection:
        row = connection.execute(_job_query(viewer).where(tables.jobs.c.id == job_id)).one_or_none()
    if row is None or row.state != "succeeded":
        raise NotFound("result of job", str(job_id))
    uri: str = row.output_uri
    return uri


# --- models -------------------------------------------------------------------------------------


def models(
    engine: Engine, viewer: Actor, *, limit: int | None = None, after: paging.After = None
) -> list[dict[str, Any]]:
    """Registered models by name, with the public facts that a worker found."""
    query = paging.window(select(tables.models), [tables.models.c.name], limit, after, descending=False)
    return _models(engine, viewer, query)


def model(engine: Engine, name: str, viewer: Actor) -> dict[str, Any]:
    """One model. Raises NotFound."""
    found = _models(engine, viewer, select(tables.models).where(tables.models.c.name == name))
    if not found:
        raise NotFound("model", name)
    return found[0]


def _models(engine: Engine, viewer: Actor, query: Select[Any]) -> list[dict[str, Any]]:
    with engine.connect() as connection:
        rows = connection.execute(query).all()
    steward = "steward" in viewer.roles
    return [
        {
            "name": row.name,
            "kind": row.kind,
            "state": row.state,
            "trained_on": row.trained_on,
            "facts": row.facts,
            **({"path": row.path, "error": row.error} if steward else {}),
        }
        for row in rows
    ]


# --- ledger -------------------------------------------------------------------------------------


def _require_overseer(viewer: Actor) -> None:
    if not viewer.roles & OVERSEERS:
        raise NotPermitted("the ledger is for stewards and auditors")


def entries(
    engine: Engine,
    name: str,
    viewer: Actor,
    *,
    before: int | None = None,
    limit: int = 50,
    after: paging.After = None,
) -> list[dict[str, Any]]:
    """Ledger entries in plain values, newest first, with their hashes; `after` (seq,) continues a listing.

    The hash covers commitments to the private values: an export holds what is needed to check it.
    """
    _require_overseer(viewer)
    table = tables.entries
    with engine.connect() as connection:
        row = _dataset_row(connection, name)
        query = select(table.c.document, table.c.hash).where(table.c.dataset_id == row.id)
        if before is not None:
            query = query.where(table.c.seq < before)
        rows = connection.execute(paging.window(query, [table.c.seq], limit, after)).all()
    return [{**opened(read_document(each.document)), "hash": each.hash} for each in rows]


def export(
    engine: Engine, name: str, viewer: Actor, form: str, *, public: bool = False, seed: bytes | None = None
) -> Iterator[str | bytes]:
    """Pieces of an export, `jsonl`, `csv` or `parquet`, of one moment; memory does not grow with the ledger.

    `seed` signs a checkpoint of that moment, which the export carries. Raises NotFound, Conflict, and
    InvalidRequest before the first piece.
    """
    _require_overseer(viewer)
    with engine.connect() as connection:
        row = _dataset_row(connection, name)
    pieces = exports.export(engine, row.id, form, public=public, seed=seed)
    activity_log.note(engine, viewer, "ledger exported", "dataset", row.name, format=form, public=public)
    return pieces


def checkpoint(engine: Engine, name: str, viewer: Actor, seed: bytes) -> dict[str, Any]:
    """A signed checkpoint of this moment."""
    _require_overseer(viewer)
    with engine.connect() as connection:
        row = _dataset_row(connection, name)
    made = exports.checkpoint(engine, row.id, seed)
    activity_log.note(
        engine, viewer, "checkpoint signed", "dataset", row.name, entry=made["checkpoint"]["seq"]
    )
    return made


def checkpoints(
    engine: Engine, name: str, viewer: Actor, limit: int = 50, after: paging.After = None
) -> list[dict[str, Any]]:
    """Checkpoints that were handed out, newest first."""
    _require_overseer(viewer)
    with engine.connect() as connection:
        return stored_checkpoints(connection, _dataset_row(connection, name).id, limit, after)


def check(engine: Engine, name: str) -> list[str]:
    """Compare entries, checkpoints, cached balances and jobs of a dataset; returns what disagrees."""
    with engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection:
        row = _dataset_row(connection, name)
        try:
            signed = [read_checkpoint(each) for each in stored_checkpoints(connection, row.id, None)]
            verifier = Verifier(name, signed)
            for document, recorded in exports.entries(connection, row.id):
                verifier.add(read_document(document), recorded)
            found = verifier.result()
        except VerificationFailed as error:
            return [str(error)]
        live = set(verifier.replay.live())
        return [
            *_cache_problems(row, found),
            *_job_problems(connection, row.id, live),
            *cap_usage.problems(connection, row.id),
            *spending.problems(connection, row.id),
        ]


def _cache_problems(row: Row[Any], found: Verified) -> Iterator[str]:
    if (row.chain_seq, row.chain_head) != (found.entries, found.head):
        yield "the account's chain head is not that of its entries"
    books, history = read_books(row), replace(found.books.history, closers=())
    cached, replayed = summary(books, found.live), summary(found.books, found.live)
    if cached != replayed or books.accounts != found.books.accounts:
        yield f"cached balances {cached} are not those of the entries {replayed}"
    if books.history != history:
        yield f"the cached history {books.history} is not that of the entries {history}"


def _job_problems(connection: Connection, dataset_id: UUID, live: set[str]) -> Iterator[str]:
    jobs = tables.jobs
    running = jobs.c.state.in_(("queued", "running", "settling"))
    query = select(jobs.c.id).where(jobs.c.dataset_id == dataset_id, running)
    if {str(job_id) for job_id in connection.execute(query).scalars()} != live:
        yield "live reservations are not those of the live jobs"
