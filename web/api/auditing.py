"""For auditors: entries over all datasets, one entry priced anew, refusals, checkpoints, who did what."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from flask import Response, jsonify, request

from accountant import audit_report, auditing, entry_page, journal
from accountant.core import mechanisms
from accountant.core.chain import EntryKind
from accountant.core.errors import NotFound
from web.api import api
from web.api import overseer_answers as overseers
from web.api.bodies import read_choice, read_id, read_limit, read_when
from web.api.datasets import OVERSEERS, PUBLIC
from web.api.openapi import ID, LIMIT, TEXT, WHEN, Operation, Schema, describe, listing
from web.app import engine
from web.auth import current_actor

KINDS = tuple(str(kind) for kind in EntryKind)


def _choice(values: tuple[str, ...]) -> Schema:
    return {"type": "string", "enum": ["", *values]}


NEXT = {"type": ["string", "null"], "description": "`before` of the next page"}
BETWEEN = {"since": WHEN, "until": WHEN}
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
            **BETWEEN,
            **PAGING,
        },
        answer=listing("entries", overseers.EntryInList, next=NEXT),
        refusals=(404,),
        roles=OVERSEERS,
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


def _cut(rows: list[dict[str, Any]], limit: int, name: Callable[[dict[str, Any]], str]) -> Any:
    """A page of rows that were asked for with one more than `limit`, and the name of its last row."""
    following = name(rows[limit - 1]) if len(rows) > limit else None
    return rows[:limit], following


def entries_page(wanted: auditing.Wanted, limit: int) -> tuple[list[dict[str, Any]], str | None]:
    """A page of entries, and the cursor of the next one."""
    before = request.args.get("before") or None
    rows = auditing.entries(engine(), current_actor(), wanted, before=before, limit=limit + 1)
    return _cut(rows, limit, lambda row: f"{row['dataset']}:{row['seq']}")


@api.get("/datasets/<name>/ledger/<seq>")
@describe(Operation(answer=overseers.EntryPage, roles=OVERSEERS))
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
        answer=listing("refusals", overseers.RefusedJob, next=NEXT),
        refusals=(404,),
        roles=OVERSEERS,
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
    return _cut(rows, limit, lambda row: row["job"])


@api.get("/checkpoints")
@describe(
    Operation(
        query={"dataset": TEXT, **PAGING},
        answer=listing("checkpoints", overseers.SignedCheckpoint, next=NEXT),
        refusals=(404,),
        roles=OVERSEERS,
    )
)
def all_checkpoints() -> Response:
    """Signed checkpoints, newest first, each checked now: `problem` is null where one holds."""
    found, following = checkpoints_page(read_limit())
    return jsonify(checkpoints=found, next=following)


def checkpoints_page(limit: int) -> tuple[list[dict[str, Any]], str | None]:
    """A page of checkpoints with the filters of the address, and the cursor of the next one."""
    named = {name: request.args.get(name) or None for name in ("dataset", "before")}
    rows = auditing.checkpoints(engine(), current_actor(), **named, limit=limit + 1)
    return _cut(rows, limit, lambda row: row["reference"])


@api.get("/activity")
@describe(
    Operation(
        query={"what": _choice(journal.WHAT), "actor": TEXT, "dataset": TEXT, **BETWEEN, **PAGING},
        answer=listing("activity", overseers.Act, next=NEXT),
        refusals=(404,),
        roles=("steward", "auditor", "administrator"),
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
    return _cut(rows, limit, lambda row: row["cursor"])


@api.get("/datasets/<name>/report")
@describe(Operation(query={"public": PUBLIC}, answer=overseers.Report, roles=OVERSEERS))
def dataset_report(name: str) -> Response:
    """Everything that the printed report of a dataset says."""
    return jsonify(report_named(name))


def report_named(name: str) -> dict[str, Any]:
    """The report of a dataset; `public` leaves out names, reasons and what ex-post jobs really cost."""
    public = read_choice("public", ("true", "false")) == "true"
    return audit_report.build(engine(), name, current_actor(), public=public)
