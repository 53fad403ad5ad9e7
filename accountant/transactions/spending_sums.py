"""Sums of what each dataset's allowance went on, by (day, person, mechanism), kept in a table.

    entry ── its job's charge after it, less that before it ──▶ sums by (day, person, mechanism)

Entries never change, so the sums of the first n stand for good. The relay calls `roll` to keep
them; a read (queries.spending) adds the few entries after them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, func, select, update
from sqlalchemy.dialects.postgresql import insert

from accountant import tables
from accountant.core.ledger.export_formats import read_document
from accountant.core.ledger.reservations import read_reservation
from accountant.core.ledger.reversals import Charge, charge_of, charge_of_loss
from accountant.core.privacy.events import releases
from accountant.core.privacy.filters import Kind
from accountant.transactions import set_aside

#: What is summed: an amount per filter, the δ of the basic one, the other two currencies, and jobs.
MEASURES = (*(str(kind) for kind in Kind), "basic_delta", "ex_post", "secret")
SUMS = (*MEASURES, "jobs")
Sums = dict[str, int]
#: What stands in place of a mechanism for what a LOSS charges, to the person who confirmed it.
LOST = "lost entries"

#: A dataset's sums are kept once so many entries are new, this many in one transaction, and so many
#: of these at a call: a ledger that is older than its sums is caught up with call by call.
WORTH_KEEPING = 200
AT_ONCE = 2_000
TRANSACTIONS = 10
entries, jobs, users = tables.entries, tables.jobs, tables.users
spending, marks = tables.spending, tables.spending_marks


@dataclass(frozen=True)
class Move:
    """The change that one entry makes to its job's charge; `sums` may be negative."""

    seq: int
    at: datetime
    analyst: UUID
    name: str  # the analyst's
    mechanism: str
    sums: Mapping[str, int]


# --- entries ------------------------------------------------------------------------------------


def moves_of(connection: Connection, dataset_id: UUID, after: int, upto: int) -> list[Move]:
    """Return the moves of the entries after `after`, up to and with `upto`."""
    people = users.alias()
    query = (
        select(entries.c.seq, entries.c.kind, entries.c.at, entries.c.job_id, entries.c.document)
        .add_columns(people.c.id.label("analyst_id"), people.c.name)
        .add_columns(func.coalesce(jobs.c.mechanism, LOST).label("mechanism"))
        .outerjoin(jobs, jobs.c.id == entries.c.job_id)
        .outerjoin(users, (users.c.name == entries.c.actor) & (entries.c.kind == "LOSS"))
        .outerjoin(people, people.c.id == func.coalesce(jobs.c.analyst_id, users.c.id))
        .where((entries.c.job_id.is_not(None)) | (entries.c.kind == "LOSS"))
        .where(entries.c.dataset_id == dataset_id, entries.c.seq > after, entries.c.seq <= upto)
        .order_by(entries.c.seq)
    )
    rows = connection.execute(query).all()
    reserved, standing = _before(connection, {row.job_id for row in rows}, after)
    moves = []
    for row in rows:
        document = read_document(row.document)
        if row.kind == "LOSS":
            sums = _sums(charge_of_loss(document))
            moves.append(Move(row.seq, row.at, row.analyst_id, row.name, row.mechanism, sums))
            continue
        if row.kind == "RESERVE":
            reserved[row.job_id] = document
        now = _standing(reserved[row.job_id], document)
        before = standing.get(row.job_id, dict.fromkeys(SUMS, 0))
        changed = {name: now[name] - before[name] for name in SUMS}
        standing[row.job_id] = now
        moves.append(Move(row.seq, row.at, row.analyst_id, row.name, row.mechanism, changed))
    return moves


def _before(
    connection: Connection, wanted: set[UUID], upto: int
) -> tuple[dict[UUID, Mapping[str, Any]], dict[UUID, Sums]]:
    """Return the reservations of these jobs, and what each was charged after the entry `upto`."""
    query = select(entries.c.kind, entries.c.job_id, entries.c.document).where(
        entries.c.job_id.in_(wanted), entries.c.seq <= upto
    )
    reserved: dict[UUID, Mapping[str, Any]] = {}
    standing: dict[UUID, Sums] = {}
    for row in connection.execute(query.order_by(entries.c.seq)) if wanted and upto else ():
        document = read_document(row.document)
        if row.kind == "RESERVE":
            reserved[row.job_id] = document
        standing[row.job_id] = _standing(reserved[row.job_id], document)
    return reserved, standing


def _standing(reserve: Mapping[str, Any], current: Mapping[str, Any]) -> Sums:
    """Return a job's charge, or its reservation, after the entry `current`."""
    if current["kind"] == "RESERVE":
        held = read_reservation(current["body"])
        spends = (
            bool(releases(held.event)) or held.others.ex_post > 0 or held.others.secret is not None
        )
        charge = Charge(held.costs, held.others.ex_post, held.secret_cost, spends)
    else:
        charge = charge_of(reserve, current)
    return _sums(charge)


def _sums(charge: Charge) -> Sums:
    costs = {kind: charge.costs.get(kind) for kind in Kind}
    sums = {str(kind): 0 if cost is None else cost.main for kind, cost in costs.items()}
    basic = costs[Kind.BASIC]
    amounts = {"ex_post": charge.ex_post, "secret": charge.secret, "jobs": int(charge.counts)}
    return {**sums, "basic_delta": 0 if basic is None else basic.delta, **amounts}


def _added(moves: Iterable[Move]) -> dict[tuple[date, UUID, str], Sums]:
    found: dict[tuple[date, UUID, str], Sums] = {}
    for move in moves:
        key = (move.at.astimezone(UTC).date(), move.analyst, move.mechanism)
        sums = found.setdefault(key, dict.fromkeys(SUMS, 0))
        for name in SUMS:
            sums[name] += move.sums[name]
    return found


# --- keeping ------------------------------------------------------------------------------------


def roll(engine: Engine) -> int:
    """Bring the kept sums up to date, dataset by dataset; returns the number of entries added.
    Safe to run twice at once: the holder of a dataset's mark adds to its sums.
    """
    accounts = tables.accounts
    new = accounts.c.chain_seq - func.coalesce(marks.c.through, 0)
    query = (
        select(accounts.c.dataset_id)
        .outerjoin(marks, marks.c.dataset_id == accounts.c.dataset_id)
        .where(new >= WORTH_KEEPING)
    )
    with engine.connect() as connection:
        behind = connection.execute(query).scalars().all()
    added = 0
    for dataset_id in behind:
        if not set_aside.waits("spending of dataset", dataset_id):
            with set_aside.apart("spending of dataset", dataset_id):
                added += _roll_dataset(engine, dataset_id)
    return added


def _roll_dataset(engine: Engine, dataset_id: UUID) -> int:
    added = 0
    for _ in range(TRANSACTIONS):
        newly = _roll_one(engine, dataset_id)
        added += newly
        if newly < AT_ONCE:
            break
    return added


def _roll_one(engine: Engine, dataset_id: UUID) -> int:
    with engine.begin() as connection:
        connection.execute(insert(marks).values(dataset_id=dataset_id).on_conflict_do_nothing())
        held = select(marks.c.through).where(marks.c.dataset_id == dataset_id)
        through = connection.execute(held.with_for_update(skip_locked=True)).scalar_one_or_none()
        if through is None:
            return 0
        head = select(tables.accounts.c.chain_seq).where(tables.accounts.c.dataset_id == dataset_id)
        upto = min(connection.execute(head).scalar_one(), through + AT_ONCE)
        rows = [
            {
                "dataset_id": dataset_id,
                "day": day,
                "analyst_id": analyst,
                "mechanism": mechanism,
                **sums,
            }
            for (day, analyst, mechanism), sums in sorted(
                _added(moves_of(connection, dataset_id, through, upto)).items()
            )
        ]
        if rows:
            added = insert(spending).values(rows)
            summed = {name: spending.c[name] + added.excluded[name] for name in SUMS}
            key = ("dataset_id", "day", "analyst_id", "mechanism")
            connection.execute(added.on_conflict_do_update(index_elements=key, set_=summed))
        moved = update(marks).where(marks.c.dataset_id == dataset_id)
        connection.execute(moved.values(through=upto))
        return int(upto - through)
