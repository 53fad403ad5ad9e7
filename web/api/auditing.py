"""For auditors: entries over all datasets, one entry priced anew, refusals, checkpoints, who did what."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from flask import Response, jsonify, request

from accountant import audit_report, auditing, entry_page, journal
from accountant.core import mechanisms
from accountant.core.chain import EntryKind
from accountant.core.errors import NotFound, invalid
from web.api import api
from web.api.bodies import read_choice, read_id, read_limit
from web.api.datasets import PUBLIC
from web.api.openapi import ID, LIMIT, TEXT, TIME, Operation, Schema, describe
from web.app import engine
from web.auth import current_actor

KINDS = tuple(str(kind) for kind in EntryKind)


def _choice(values: tuple[str, ...]) -> Schema:
    return {"type": "string", "enum": ["", *values]}


def _page(name: str) -> Schema:
    """One page of a list, and what to ask for `before` for the next one."""
    rows = {"type": "array", "items": {"type": "object"}}
    return {
        "type": "object",
        "required": [name, "next"],
        "properties": {name: rows, "next": {"type": ["string", "null"]}},
    }


WHEN = {"since": TIME, "until": TIME}
MECHANISM = _choice(tuple(mechanisms.MECHANISMS))
PAGING = {"before": TEXT, "limit": LIMIT}


@api.get("/ledger")
@describe(
    Operation(
        query={
            "dataset": TEXT,
            "kind": _choice(KINDS),
            "actor": TEXT,
            "mechanism": MECHANISM,
            "job": ID,
            **WHEN,
            **PAGING,
        },
        answer=_page("entries"),
        refusals=(404,),
    )
)
def ledger_entries() -> Response:
    """Entries over all datasets or one, newest first; `next` goes into `before`."""
    limit = read_limit()
    found, following = entries_page(read_wanted(), limit)
    return jsonify(entries=found, next=following)


def read_wanted() -> auditing.Wanted:
    """The filters of a list of entries, out of the address."""
    job = request.args.get("job")
    return auditing.Wanted(
        dataset=request.args.get("dataset") or None,
        kind=read_choice("kind", KINDS),
        actor=request.args.get("actor") or None,
        mechanism=read_choice("mechanism", tuple(mechanisms.MECHANISMS)),
        job=read_id(job) if job else None,
        since=read_when("since"),
        until=read_when("until"),
    )


def read_when(name: str) -> datetime | None:
    """A moment, or a day: `since` from its beginning, `until` to its end. A time without offset is UTC."""
    text = request.args.get(name)
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or not 1970 <= moment.year <= 9000:
        raise invalid(name, repr(text[:40]), "a day as 2026-01-31, or a time as 2026-01-31T12:00:00Z")
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return moment + timedelta(days=1) if name == "until" and len(text) == len("2026-01-31") else moment


def _cut(rows: list[dict[str, Any]], limit: int, name: Callable[[dict[str, Any]], str]) -> Any:
    """A page of rows that were asked for with one more than `limit`, and the name of its last row."""
    following = name(rows[limit - 1]) if len(rows) > limit else None
    return rows[:limit], following


def entries_page(wanted: auditing.Wanted, limit: int) -> tuple[list[dict[str, Any]], str | None]:
    """A page of entries, and the cursor of the next one."""
    before = request.args.get("before") or None
    rows = auditing.entries(engine(), current_actor(), wanted, before=before, limit=limit + 1)
    return _cut(rows, limit, lambda row: f"{row['dataset']}:{row['seq']}")  # type: ignore[no-any-return]


@api.get("/datasets/<name>/ledger/<seq>")
@describe(Operation())
def ledger_entry(name: str, seq: str) -> Response:
    """One entry as it is hashed, priced anew, with the balances after it."""
    return jsonify(entry_named(name, seq))


def entry_named(name: str, seq: str) -> dict[str, Any]:
    """An entry by its dataset and number. Raises NotFound."""
    if not (seq.isascii() and seq.isdigit() and len(seq) < 19):
        raise NotFound("entry", f"{name}:{seq}"[:80])
    return entry_page.show(engine(), name, int(seq), current_actor())


@api.get("/refusals")
@describe(
    Operation(
        query={
            "dataset": TEXT,
            "cap": _choice(auditing.CAPS),
            "analyst": TEXT,
            "mechanism": MECHANISM,
            "before": ID,
            "limit": LIMIT,
        },
        answer=_page("refusals"),
        refusals=(404,),
    )
)
def list_refusals() -> Response:
    """Refused requests, newest first: what was binding, what was asked and what was left."""
    found, following = refusals_page(read_limit())
    return jsonify(refusals=found, next=following)


def refusals_page(limit: int) -> tuple[list[dict[str, Any]], str | None]:
    """A page of refusals with the filters of the address, and the cursor of the next one."""
    before = request.args.get("before")
    rows = auditing.refusals(
        engine(),
        current_actor(),
        dataset=request.args.get("dataset") or None,
        cap=read_choice("cap", auditing.CAPS),
        analyst=request.args.get("analyst") or None,
        mechanism=read_choice("mechanism", tuple(mechanisms.MECHANISMS)),
        before=UUID(str(read_id(before))) if before else None,
        limit=limit + 1,
    )
    return _cut(rows, limit, lambda row: row["job"])  # type: ignore[no-any-return]


@api.get("/checkpoints")
@describe(Operation(query={"dataset": TEXT, **PAGING}, answer=_page("checkpoints"), refusals=(404,)))
def all_checkpoints() -> Response:
    """Signed checkpoints over all datasets, newest first, each checked now: `problem` is null where it holds."""
    found, following = checkpoints_page(read_limit())
    return jsonify(checkpoints=found, next=following)


def checkpoints_page(limit: int) -> tuple[list[dict[str, Any]], str | None]:
    """A page of checkpoints with the filters of the address, and the cursor of the next one."""
    named = {name: request.args.get(name) or None for name in ("dataset", "before")}
    rows = auditing.checkpoints(engine(), current_actor(), **named, limit=limit + 1)
    return _cut(rows, limit, lambda row: row["reference"])  # type: ignore[no-any-return]


@api.get("/activity")
@describe(
    Operation(
        query={"what": _choice(journal.WHAT), "actor": TEXT, "dataset": TEXT, **WHEN, **PAGING},
        answer=_page("activity"),
        refusals=(404,),
    )
)
def list_activity() -> Response:
    """Who did what, newest first, out of every table that tells."""
    found, following = activity_page(read_limit())
    return jsonify(activity=found, next=following)


def activity_page(limit: int) -> tuple[list[dict[str, Any]], str | None]:
    """A page of acts with the filters of the address, and the cursor of the next one."""
    wanted = journal.Wanted(
        what=read_choice("what", journal.WHAT),
        actor=request.args.get("actor") or None,
        dataset=request.args.get("dataset") or None,
        since=read_when("since"),
        until=read_when("until"),
    )
    before = request.args.get("before") or None
    rows = journal.listing(engine(), current_actor(), wanted, before=before, limit=limit + 1)
    return _cut(rows, limit, lambda row: row["cursor"])  # type: ignore[no-any-return]


@api.get("/datasets/<name>/report")
@describe(Operation(query={"public": PUBLIC}))
def dataset_report(name: str) -> Response:
    """Everything that the printed report of a dataset says."""
    return jsonify(report_named(name))


def report_named(name: str) -> dict[str, Any]:
    """The report of a dataset; `public` leaves out names, reasons and what ex-post jobs really cost."""
    public = read_choice("public", ("true", "false")) == "true"
    return audit_report.build(engine(), name, current_actor(), public=public)
