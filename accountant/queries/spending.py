"""The use of a dataset's allowance: by day, person and mechanism, for every filter and currency.

A read adds the few newest entries to the sums that are kept (transactions.spending_sums): none goes
through the ledger, and every figure is of one moment. All sums together are the balances of the
account, which `problems` compares.

Who sees what: stewards and auditors all of it, entry by entry. Others see what is left at the end
of each day, which follows from public job parameters, and their own jobs; everybody else's are one
sum. Ex-post amounts are theirs only where no realized cost ever entered the account.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, Row, func, select, tuple_

from accountant import tables
from accountant.core.ledger.accounts import Settlement
from accountant.core.ledger.admission import UNIT_NAMES
from accountant.core.ledger.export_formats import read_document
from accountant.core.privacy.filters import Kind
from accountant.core.privacy.units import DELTA_UNITS, EPSILON_UNITS, round_allowance, to_decimal
from accountant.database import kept, reading
from accountant.identities.actor import Actor
from accountant.queries.dataset_rows import dataset_row, seen_by
from accountant.schema.datasets import Measure, Spending
from accountant.transactions.artifacts import OVERSEERS
from accountant.transactions.spending_sums import AT_ONCE, MEASURES, SUMS, Move, Sums, moves_of

#: A read goes through no more new entries than this; where there are more it says up to where it
#: got.
MOST_READ = 500

entries, spending, marks = tables.entries, tables.spending, tables.spending_marks


# --- reading ------------------------------------------------------------------------------------


@dataclass
class _Found:
    """Everything that a read needs, of one moment."""

    account: Row[Any]
    through: int
    allowances: list[tuple[datetime, Mapping[str, Any]]]
    days: list[tuple[date, Sums]]
    groups: dict[tuple[str, UUID, str], Sums]  # by month, analyst and mechanism
    tail: list[Move]
    names: dict[UUID, str]


def figures(engine: Engine, name: str, viewer: Actor, *, over_time: bool = True) -> Spending:
    """Return the balance over time, and what it was spent on; amounts are decimals. Raises
    NotFound.

    `measures`: what is counted, each with unit, limit, used and left. `burn_down`: what is left of
    each after each moment, and for whom entries are not shown, at the end of each day (UTC).
    `spending`: sums by month, analyst and mechanism; reservations of live jobs count. Where
    `through` is less than `entries`, the newest entries are not counted yet. Without `over_time`
    `burn_down` is empty.
    """
    with reading(engine, snapshot=True) as connection:
        dataset_spending = _read(connection, name)
    overseer = bool(seen_by(viewer, dataset_spending.account).roles & OVERSEERS)
    realized = any(
        body.get("ex_post", {}).get("settlement") == Settlement.REALIZED
        for _, body in dataset_spending.allowances
    )
    shown = [
        measure
        for measure in _measures(dataset_spending)
        if overseer or measure["name"] != "ex_post" or not realized
    ]
    names = [measure["name"] for measure in shown]
    points = _burn_down(dataset_spending) if over_time else []
    if not overseer:
        # The moment of an entry is when a job ended reading: a day is all that others are told.
        points = list({at[:10]: (at[:10], left) for at, left in points}.values())
    units = {measure["name"]: measure["units"] for measure in shown}
    return Spending(
        dataset=name,
        entries=dataset_spending.account.chain_seq,
        through=dataset_spending.through,
        measures=[
            Measure(**{key: value for key, value in measure.items() if key != "units"})
            for measure in shown
        ],
        burn_down=[
            {
                "at": at,
                **{
                    sum_name: to_decimal(left[sum_name], units[sum_name])
                    for sum_name in names
                    if sum_name in left
                },
            }
            for at, left in points
        ],
        spending=[
            {
                **key,
                "jobs": sums["jobs"],
                **{sum_name: to_decimal(sums[sum_name], units[sum_name]) for sum_name in names},
            }
            for key, sums in _groups(dataset_spending, viewer, overseer)
        ],
    )


@kept
def _read(connection: Connection, name: str) -> _Found:
    account = dataset_row(connection, name)
    starts, dataset_id = account.through or 0, account.id
    through = min(account.chain_seq, starts + MOST_READ)
    allowed = select(entries.c.at, entries.c.document).where(
        entries.c.dataset_id == dataset_id, entries.c.kind == "ALLOW"
    )
    days, groups, names = _kept_sums(connection, dataset_id) if starts else ([], {}, {})
    tail = moves_of(connection, dataset_id, starts, through) if through > starts else []
    names |= {move.analyst: move.name for move in tail}
    allowances = [
        (row.at, read_document(row.document)["body"])
        for row in connection.execute(allowed.order_by(entries.c.seq))
    ]
    return _Found(account, through, allowances, days, groups, tail, names)


def _kept_sums(
    connection: Connection, dataset_id: UUID
) -> tuple[list[tuple[date, Sums]], dict[tuple[str, UUID, str], Sums], dict[UUID, str]]:
    """Return sums by day, and by month, analyst and mechanism, with the analysts' names."""
    month = func.to_char(spending.c.day, "YYYY-MM").label("month")
    analyst, users = spending.c.analyst_id, tables.users
    group = tuple_(month, analyst, spending.c.mechanism, users.c.name)
    totals = (func.sum(spending.c[name]).label(name) for name in SUMS)
    query = (
        select(spending.c.day, month, analyst, spending.c.mechanism, users.c.name, *totals)
        .outerjoin(users, users.c.id == analyst)
        .where(spending.c.dataset_id == dataset_id)
        .group_by(func.grouping_sets(tuple_(spending.c.day), group))
        .order_by(spending.c.day)
    )
    rows = connection.execute(query).all()
    grouped = [row for row in rows if row.day is None]
    return (
        [(row.day, _sums(row)) for row in rows if row.day is not None],
        {(row.month, row.analyst_id, row.mechanism): _sums(row) for row in grouped},
        {row.analyst_id: row.name for row in grouped if row.name is not None},
    )


def _sums(row: Row[Any]) -> Sums:
    return {name: int(getattr(row, name)) for name in SUMS}


def _measures(found: _Found) -> list[dict[str, Any]]:
    """Return the account's measures: filters once they are set up, others once they are used."""
    account, shown = found.account, []
    one = account.secret is not None and account.secret["kind"] == "one"
    for name in MEASURES:
        limit = int(getattr(account, f"{name}_limit"))
        used = int(getattr(account, f"{name}_spent") + getattr(account, f"{name}_reserved"))
        is_filter = name in set(Kind)
        there = account.epsilon is not None if is_filter else limit > 0 or used > 0
        if name == "basic_delta":
            there = used > 0
        if not there:
            continue
        in_deltas = name == "basic_delta" or (name == "secret" and one)
        units = DELTA_UNITS if in_deltas else EPSILON_UNITS
        unit = UNIT_NAMES[Kind(name)] if is_filter else "r" if one else "nats"
        shown.append(
            {
                "name": name,
                "unit": {"basic_delta": "δ", "ex_post": "ε (ex-post caps)"}.get(name, unit),
                "units": units,
                "limit": to_decimal(limit, units),
                "used": to_decimal(used, units),
                "left": to_decimal(limit - used, units),
                "closed": bool(getattr(account, f"{name}_closed")) if is_filter else False,
            }
        )
    return shown


def _allowed(body: Mapping[str, Any], limits: Sums) -> Sums:
    """Return the limits after an ALLOW."""
    after = dict(limits)
    for filter_ in body.get("filters", ()):
        after[filter_["kind"]] = int(filter_["limit"]["main"])
        if filter_["kind"] == Kind.BASIC:
            after["basic_delta"] = int(filter_["limit"]["delta"])
    if "ex_post" in body:
        after["ex_post"] = round_allowance(body["ex_post"]["limit"], EPSILON_UNITS)
    if "secret" in body:
        after["secret"] = int(body["secret"]["limit"])
    return after


def _burn_down(found: _Found) -> list[tuple[str, Sums]]:
    """(moment, what is left of each measure after it), in order: the end of each day that is kept
    in sums, then every entry.
    """
    # What is kept came before what is not: the last kept day may be a part of one.
    until = found.tail[0].at.astimezone(UTC) if found.tail else datetime.now(UTC)
    ends = {
        day: min(datetime(day.year, day.month, day.day, 23, 59, 59, tzinfo=UTC), until)
        for day, _ in found.days
    }
    # What was left right after an allowance is not known within a day of which only the sum is
    # kept: it counts there at the end, and has no point of its own.
    days: dict[date, list[Mapping[str, Any]]] = {}
    steps: list[tuple[datetime, Mapping[str, int], Sequence[Mapping[str, Any]]]] = []
    for at, body in found.allowances:
        moment = at.astimezone(UTC)
        if moment <= ends.get(moment.date(), moment - timedelta(1)):
            days.setdefault(moment.date(), []).append(body)
        else:
            steps.append((moment, {}, [body]))
    steps += [(ends[day], sums, days.get(day, [])) for day, sums in found.days]
    steps += [(move.at.astimezone(UTC), move.sums, []) for move in found.tail]
    used, limits, points = dict.fromkeys(MEASURES, 0), dict.fromkeys(MEASURES, 0), []
    for at, moved, allowed in sorted(steps, key=lambda step: step[0]):
        for body in allowed:
            limits = _allowed(body, limits)
        used = {name: used[name] + moved.get(name, 0) for name in MEASURES}
        points.append((at.isoformat(), {name: limits[name] - used[name] for name in MEASURES}))
    return points


def _groups(found: _Found, viewer: Actor, overseer: bool) -> Sequence[tuple[dict[str, Any], Sums]]:
    """Return sums by month, analyst and mechanism, newest first; analysts see others as one."""
    groups = {key: dict(sums) for key, sums in found.groups.items()}
    for move in found.tail:
        key = (move.at.astimezone(UTC).strftime("%Y-%m"), move.analyst, move.mechanism)
        sums = groups.setdefault(key, dict.fromkeys(SUMS, 0))
        for name in SUMS:
            sums[name] += move.sums[name]
    merged: dict[tuple[str, str | None, str | None], Sums] = {}
    for (month, analyst, mechanism), sums in groups.items():
        mine = overseer or analyst == viewer.id
        who = (
            (month, found.names.get(analyst, str(analyst)), mechanism)
            if mine
            else (month, None, None)
        )
        total = merged.setdefault(who, dict.fromkeys(SUMS, 0))
        for name in SUMS:
            total[name] += sums[name]
    ordered = sorted(merged.items(), key=lambda each: (each[0][1] or "~", each[0][2] or ""))
    ordered.sort(key=lambda each: each[0][0], reverse=True)
    return [
        ({"month": month, "analyst": analyst, "mechanism": mechanism}, sums)
        for (month, analyst, mechanism), sums in ordered
    ]


def problems(connection: Connection, dataset_id: UUID) -> list[str]:
    """Report kept sums that, with the entries after them, differ from the account's balances."""
    account = connection.execute(
        select(tables.accounts, marks.c.through)
        .outerjoin(marks, marks.c.dataset_id == tables.accounts.c.dataset_id)
        .where(tables.accounts.c.dataset_id == dataset_id)
    ).one()
    totals = select(*(func.coalesce(func.sum(spending.c[name]), 0).label(name) for name in SUMS))
    sums = _sums(connection.execute(totals.where(spending.c.dataset_id == dataset_id)).one())
    for after in range(account.through or 0, account.chain_seq, AT_ONCE):
        for move in moves_of(
            connection, dataset_id, after, min(after + AT_ONCE, account.chain_seq)
        ):
            for name in SUMS:
                sums[name] += move.sums[name]
    stated = {
        name: int(getattr(account, f"{name}_spent") + getattr(account, f"{name}_reserved"))
        for name in MEASURES
    }
    return [
        f"the sums of spending on {name} are {sums[name]}, the balance is {stated[name]}"
        for name in MEASURES
        if sums[name] != stated[name]
    ]
