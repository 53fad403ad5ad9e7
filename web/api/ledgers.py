"""Routes for auditors: entries over all datasets, one entry priced anew, refusals, checkpoints,
activity.
"""

from datetime import datetime
from typing import Any
from uuid import UUID

from flask import Response, jsonify, request

from accountant.core import mechanisms
from accountant.core.errors import NotFound
from accountant.core.ledger.hash_chain import EntryKind
from accountant.queries import audit_log, audit_report, ledgers
from accountant.queries import ledger_entry as entry_page
from accountant.schema.ledgers import (
    Act,
    EntryInList,
    EntryPage,
    RefusedJob,
    Report,
    SignedCheckpoint,
)
from web.api.blueprint import api
from web.api.datasets import OVERSEERS, PUBLIC
from web.api.openapi import ID, TEXT, WHEN, Operation, Schema, describe, listing
from web.api.paging import Order, Window, page, read_window
from web.api.parsing import read_choice, read_id, read_when
from web.auth import current_actor
from web.context import engine

KINDS = tuple(str(kind) for kind in EntryKind)


def _choice(values: tuple[str, ...]) -> Schema:
    return {"type": "string", "enum": ["", *values]}


BETWEEN = {"since": WHEN, "until": WHEN}
MECHANISM = _choice(tuple(mechanisms.MECHANISMS))
ENTRIES = Order("entries", (("dataset", str), ("seq", int)))
REFUSALS = Order("refusals", (("refused_at", datetime), ("job", UUID)))
CHECKPOINTS = Order("checkpoints", (("dataset", str), ("seq", int), ("key", str)))
ACTIVITY = Order("activity", (("at", datetime), ("source", int), ("key", str)))


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
        },
        answer=listing("entries", EntryInList, paged=ENTRIES),
        refusals=(404,),
        roles=OVERSEERS,
    )
)
def ledger_entries() -> Response:
    """Entries over all datasets or one, newest first."""
    window = read_window(ENTRIES)
    return page("entries", found_entries(window), window)


def found_entries(window: Window) -> list[EntryInList]:
    """Return entries with the filters of the address."""
    job = request.args.get("job")
    wanted = ledgers.Wanted(
        dataset=request.args.get("dataset") or None,
        kind=read_choice("kind", KINDS),
        actor=request.args.get("actor") or None,
        mechanism=read_choice("mechanism", tuple(mechanisms.MECHANISMS)),
        job=read_id(job) if job else None,
        since=read_when("since"),
        until=read_when("until"),
    )
    return ledgers.entries(engine(), current_actor(), wanted, **window.reads)


@api.get("/datasets/<name>/ledger/<seq>")
@describe(Operation(answer=EntryPage, roles=OVERSEERS))
def ledger_entry(name: str, seq: str) -> Response:
    """One entry as it is hashed, priced anew, with the balances after it."""
    return jsonify(entry_named(name, seq))


def entry_named(name: str, seq: str) -> EntryPage:
    """Return an entry by its dataset and number. Raises NotFound."""
    if not (seq.isascii() and seq.isdigit() and len(seq) < 19):
        raise NotFound("entry", f"{name}:{seq}"[:80])
    return entry_page.show(engine(), name, int(seq), current_actor())


@api.get("/refusals")
@describe(
    Operation(
        query={
            "dataset": TEXT,
            "cap": _choice(ledgers.CAPS),
            "analyst": TEXT,
            "mechanism": MECHANISM,
        },
        answer=listing("refusals", RefusedJob, paged=REFUSALS),
        refusals=(404,),
        roles=OVERSEERS,
    )
)
def list_refusals() -> Response:
    """Refused requests, newest first: what was binding, what was asked and what was left."""
    window = read_window(REFUSALS)
    return page("refusals", found_refusals(window), window)


def found_refusals(window: Window) -> list[RefusedJob]:
    """Return refusals with the filters of the address."""
    return ledgers.refusals(
        engine(),
        current_actor(),
        dataset=request.args.get("dataset") or None,
        cap=read_choice("cap", ledgers.CAPS),
        analyst=request.args.get("analyst") or None,
        mechanism=read_choice("mechanism", tuple(mechanisms.MECHANISMS)),
        **window.reads,
    )


@api.get("/checkpoints")
@describe(
    Operation(
        query={"dataset": TEXT},
        answer=listing("checkpoints", SignedCheckpoint, paged=CHECKPOINTS),
        refusals=(404,),
        roles=OVERSEERS,
    )
)
def all_checkpoints() -> Response:
    """Signed checkpoints, newest first, each checked now: `problem` is null where one holds."""
    window = read_window(CHECKPOINTS)
    return page("checkpoints", found_checkpoints(window), window)


def found_checkpoints(window: Window) -> list[SignedCheckpoint]:
    """Return checkpoints with the filters of the address."""
    dataset = request.args.get("dataset") or None
    return ledgers.checkpoints(engine(), current_actor(), dataset=dataset, **window.reads)


@api.get("/activity")
@describe(
    Operation(
        query={"what": _choice(audit_log.WHAT), "actor": TEXT, "dataset": TEXT, **BETWEEN},
        answer=listing("activity", Act, paged=ACTIVITY),
        refusals=(404,),
        roles=("steward", "auditor", "administrator"),
    )
)
def list_activity() -> Response:
    """The audit log: acts with their actors from all tables, newest first."""
    window = read_window(ACTIVITY)
    return page("activity", found_acts(window), window)


def found_acts(window: Window) -> list[Act]:
    """Return acts with the filters of the address."""
    wanted = audit_log.Wanted(
        what=read_choice("what", audit_log.WHAT),
        actor=request.args.get("actor") or None,
        dataset=request.args.get("dataset") or None,
        since=read_when("since"),
        until=read_when("until"),
    )
    return audit_log.listing(engine(), current_actor(), wanted, **window.reads)


@api.get("/datasets/<name>/report")
@describe(Operation(query={"public": PUBLIC}, answer=Report, roles=OVERSEERS))
def dataset_report(name: str) -> Response:
    """Everything that the printed report of a dataset says."""
    return jsonify(report_named(name))


def report_named(name: str, *, verify: bool = True) -> Report:
    """Return a dataset's report; `public`: without names, reasons and realized costs."""
    return audit_report.build(engine(), name, current_actor(), public=_public(), verify=verify)


def verdict_named(name: str) -> dict[str, Any]:
    """Return whether a dataset's ledger holds, as its report says it."""
    return audit_report.verdict(engine(), name, current_actor(), public=_public())


def _public() -> bool:
    return read_choice("public", ("true", "false")) == "true"
