"""Pages for auditors: ledger, refusals, checkpoints, keys, exports, activity, report."""

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import flask
from flask import Blueprint, Response, flash, redirect, render_template, request, url_for
from werkzeug.security import safe_join
from werkzeug.wrappers import Response as BaseResponse

from accountant.core import mechanisms
from accountant.core.errors import Conflict, InvalidRequest, NotFound
from accountant.core.ledger.export_formats import verify_lines
from accountant.core.ledger.registry_entries import PRODUCTS, People, registry_entry
from accountant.database import reading
from accountant.ledger_log.publication import published_key
from accountant.ledger_log.published import files_at
from accountant.queries import audit_log, audit_report, entries, jobs, ledgers
from accountant.queries.dataset_rows import dataset_row
from accountant.transactions import signing
from accountant.transactions.artifacts import OVERSEERS
from web.api import ledgers as api
from web.api.checkpoints import seed
from web.api.parsing import read, read_choice
from web.auth import current_actor, needs_role
from web.context import at_one_moment, engine, settings
from web.views.forms import BLANK, Form, asked, attachment, listed, sent, shown_again, typed

pages = Blueprint("auditing", __name__)
OCTETS = "application/octet-stream"

overseers = needs_role(*OVERSEERS)

#: What a page of the ledger may be asked for, in the order in which its form shows it.
FILTERS = ("dataset", "kind", "actor", "mechanism", "job", "since", "until")


def _choices() -> dict[str, Any]:
    """Return the choices of the filters."""
    return {
        "datasets": ledgers.names(engine(), current_actor()),
        "mechanisms": tuple(mechanisms.MECHANISMS),
    }


@pages.get("/ledger")
@overseers
def listing() -> str:
    """Entries over all datasets or one, newest first; the filters stand in the address."""
    choices = {"kinds": api.KINDS, **_choices()}
    return listed("ledger.html", api.ENTRIES, api.found_entries, FILTERS, **choices)


@pages.get("/ledger/<name>/<seq>")
@overseers
def entry(name: str, seq: str) -> str:
    """One entry: as it is hashed, in its chain, priced anew, with the balances after it."""
    shown_entry = api.entry_named(name, seq)
    return render_template("ledger_entry.html", entry=shown_entry.document(), pretty=_pretty)


@pages.get("/ledger/<name>/<seq>.json")
@overseers
def hashed(name: str, seq: str) -> Response:
    """Exactly the bytes that the entry's hash covers."""
    shown_entry = api.entry_named(name, seq)
    return attachment(f"{name}-{int(seq)}.json", shown_entry.hashed)


def _pretty(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


@pages.get("/ledger/refusals")
@overseers
def refusals() -> str:
    """Refused requests: why, and what was asked and left."""
    choices = {"caps": ledgers.CAPS, **_choices()}
    names = ("dataset", "cap", "analyst", "mechanism")
    return listed("refusals.html", api.REFUSALS, api.found_refusals, names, **choices)


@pages.get("/ledger/activity")
@needs_role("auditor", "steward", "administrator")
def activity() -> str:
    """The audit log, as far as the viewer's role goes."""
    actor = current_actor()
    datasets = ledgers.names(engine(), actor) if actor.roles & OVERSEERS else []
    choices: dict[str, Any] = {"what": audit_log.WHAT, "datasets": datasets}
    names = ("what", "actor", "dataset", "since", "until")

    def about(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        return {"names": jobs.names(engine(), actor, [row["job"] for row in rows])}

    return listed("activity.html", api.ACTIVITY, api.found_acts, names, about=about, **choices)


# --- checkpoints, keys, exports -----------------------------------------------------------------


@pages.get("/ledger/checkpoints")
@overseers
def signed() -> str:
    """Checkpoints that were signed, each checked now."""
    choices = _choices()
    return listed(
        "checkpoints.html", api.CHECKPOINTS, api.found_checkpoints, ("dataset",), **choices
    )


@pages.post("/ledger/checkpoints")
@overseers
def sign() -> BaseResponse:
    """Sign what a dataset's ledger is now."""
    name = request.form.get("dataset", "")
    try:
        checkpoint = entries.checkpoint(engine(), name, current_actor(), seed())["checkpoint"]
    except (Conflict, NotFound) as error:
        flash(str(error), "problem")
    else:
        signed = f"A checkpoint of {name} at entry {checkpoint['seq']:,} is signed."
        flash(f"{signed} Download it and keep it.")
    return redirect(url_for("auditing.signed", dataset=name), 303)


@pages.get("/ledger/checkpoints/<reference>.json")
@overseers
def checkpoint_file(reference: str) -> Response:
    """One checkpoint as a file to keep."""
    text = ledgers.checkpoint_file(engine(), current_actor(), reference)
    return attachment(f"{'.'.join(reference.split(':')[:2])}.checkpoint.json", f"{text}\n")


@pages.get("/ledger/keys")
@overseers
def keys() -> str:
    """The public keys that sign checkpoints, and when each did."""
    return render_template(
        "keys.html",
        keys=ledgers.read_validity(signing.keys(engine(), seed())),
        log_key=published_key(settings().public_log),
    )


@pages.get("/ledger/keys.json")
@overseers
def keys_file() -> Response:
    """The public keys as the file that `exchequer verify --public-key` takes."""
    text = json.dumps({"keys": signing.keys(engine(), seed())}, indent=2)
    return attachment("keys.json", f"{text}\n")


@pages.get("/ledger/exports")
@overseers
def exports() -> str:
    """Files to take home, and the command that checks them there."""
    keys = signing.keys(engine(), seed())
    return render_template(
        "exports.html",
        asked=asked(("dataset",)),
        key=ledgers.read_validity(keys)[-1],
        made=ledgers.exports_made(
            engine(), current_actor(), dataset=request.args.get("dataset") or None, limit=20
        ),
        **_choices(),
    )


@pages.get("/datasets/<name>/registry")
@overseers
def registry(name: str, form: Form = BLANK) -> str:
    """What no ledger knows of a deployment, asked on one page."""
    _require_short(name)
    return render_template(
        "registry.html",
        name=name,
        form=form,
        fields=People.model_fields,
        products=[("", "Choose one"), *PRODUCTS],
    )


def _require_short(name: str) -> None:
    """Raise Conflict where a ledger has more entries than a request may verify."""
    with reading(engine()) as connection:
        newest = dataset_row(connection, name, current_actor()).chain_seq
    if newest > audit_report.MOST_VERIFIED:
        raise Conflict(
            f"{name} has {newest:,} entries, and a page verifies {audit_report.MOST_VERIFIED:,} "
            f"at most: export its ledger and run `exchequer registry export {name}`"
        )


@pages.post("/datasets/<name>/registry")
@overseers
@shown_again(registry, errors=(InvalidRequest,))
def registry_file(name: str) -> BaseResponse:
    """A draft for the OpenDP registry of deployments, from the ledger as it is now."""
    _require_short(name)
    people = read(People, typed(People, sent()))
    how: dict[str, Any] = {"public": True, "seed": seed(), "log": settings().public_log}
    pieces = entries.export(engine(), name, current_actor(), "jsonl", **how)
    with tempfile.TemporaryFile("w+", encoding="utf-8", newline="\n") as kept:
        kept.writelines(pieces)
        kept.seek(0)
        found = registry_entry(verify_lines(kept), people)
    return attachment(f"{name}-registry.json", f"{_pretty(found)}\n")


@pages.get("/log/<path:name>")
def published_file(name: str) -> Response:
    """One file of the published log, for anybody where the settings say so."""
    place = settings().public_log if settings().serve_public_log else None
    inside = safe_join("", name)
    if isinstance(place, Path):
        return flask.send_from_directory(place.absolute(), name, mimetype=OCTETS)
    if (content := files_at(place).read(name) if place and inside else None) is None:
        raise NotFound("file", name[:80])
    return Response(content, mimetype=OCTETS)


# --- the report ---------------------------------------------------------------------------------


@pages.get("/datasets/<name>/report")
@overseers
@at_one_moment
def report(name: str) -> str:
    """A dataset's report, to be printed.

    The page asks for the verdict on the ledger once it is there: a replay takes its time. `check`
    asks for both together, where no script does that.
    """
    verify = read_choice("check", ("true",)) is not None
    if verify and "HX-Request" in request.headers:
        return render_template("_verdict.html", name=name, checked=api.verdict_named(name))
    shown = api.report_named(name, verify=verify).document()
    if shown["key"] is None:  # the first use of the first key enters it
        shown["key"] = signing.keys(engine(), seed())[-1]["key"]["id"]
    return render_template("report.html", report=shown, verify=verify)
