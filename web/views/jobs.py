"""Jobs: the list, what their states mean, and one job's page with its live part."""

import json
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from flask import Blueprint, Response, flash, redirect, render_template, request, url_for
from werkzeug.wrappers import Response as BaseResponse

from accountant.core import mechanisms
from accountant.core.errors import Conflict, InvalidRequest, invalid
from accountant.core.ledger.caps import SIGNED, STATED
from accountant.core.mechanisms import charge
from accountant.core.states import ENDED, JOB_STATES, STATES
from accountant.queries import datasets as dataset_queries
from accountant.queries import jobs, workers
from accountant.transactions import artifacts, comments, corrections, overdrafts, settlement
from accountant.transactions.artifacts import OVERSEERS
from web import passkeys
from web.api import outputs, proposals
from web.api.decisions import ChargeCorrection
from web.api.jobs import ORDER, card_response, found_jobs
from web.api.parsing import read, read_id
from web.auth import current_actor, needs_role
from web.context import at_one_moment, engine
from web.views import rehearsals, results
from web.views.decisions import about_job, open_offers
from web.views.forms import BLANK, Form, done, listed, sent, shown_again
from web.views.template_filters import state_look

pages = Blueprint("jobs", __name__)

FILTERS = ("state", "dataset", "mechanism", "analyst", "since", "until")
RELEASED = 1_000

# --- the list -----------------------------------------------------------------------------------


@pages.get("/jobs")
def listing() -> str:
    """Show jobs, newest first; filters and place stand in the address."""
    return listed(
        "jobs.html",
        ORDER,
        found_jobs,
        FILTERS,
        **open_offers(),
        states=[(state, state_look(state)["label"]) for state in JOB_STATES],
        mechanisms=[
            (mechanism.id, mechanism.title) for mechanism in mechanisms.runnable().values()
        ],
        overseer=bool(current_actor().roles & OVERSEERS),
    )


@pages.get("/job-states")
def states() -> str:
    """The meaning of each state; no sign-in is needed."""
    return render_template("job_states.html", states=STATES, ended=ENDED)


# --- one job ------------------------------------------------------------------------------------


@pages.get("/jobs/<job>")
@at_one_moment
def show(job: str, correction: Form = BLANK, said: Form = BLANK) -> str:
    """Show one job, with a correction or a comment that was not accepted."""
    return _page(_job(read_id(job)), correction, said)


def _page(job: dict[str, Any], correction: Form, said: Form) -> str:
    job_id, steward = UUID(job["id"]), "steward" in _roles_on(job)
    published = results.gallery(job) if job["output_sha256"] else {}
    released = artifacts.listing(engine(), current_actor(), job=job_id, limit=RELEASED)
    report = rehearsals.of_job(job) if released else None
    return render_template(
        "job.html",
        **published,
        artifacts=released,
        rehearsal=report,
        label_counts=proposals.in_lines(proposals.label_counts(job)),
        rehearsals=[] if report is None else rehearsals.others(rehearsals.asked(job)),
        formats=tuple(outputs.FORMATS),
        **about_job(job_id) if job["state"] == "refused" else {},
        may_declare=steward and job["vouched"] in (STATED, SIGNED) and job["state"] == "refused",
        may_correct=steward and len(job["entries"]) > 1,
        correction_form=correction,
        said=said,
        **_live(job),
    )


def _job(job_id: UUID) -> dict[str, Any]:
    return jobs.job(engine(), job_id, current_actor()).document()


def _roles_on(job: dict[str, Any]) -> frozenset[str]:
    return dataset_queries.roles_on(engine(), job["dataset"], current_actor())


def _live(job: dict[str, Any]) -> dict[str, Any]:
    """Return the data of the part of the page that follows the state."""
    actor, roles, state = current_actor(), _roles_on(job), job["state"]
    job_id, mine = UUID(job["id"]), job["analyst"] == actor.name
    mechanism = mechanisms.find(job["mechanism"])
    writes = mechanism if mechanism is not None and not mechanism.reads_output else None
    order = () if mechanism is None else mechanism.fields  # the database keeps none
    parameters = job["parameters"]
    ordered = {name: parameters[name] for name in order if name in parameters}
    return {
        "job": {**job, "parameters": ordered | parameters},
        "ended": state in ENDED,
        "reusable": writes is not None and "from_job" in writes.fields and not writes.public,
        "evaluable": bool(job["output_sha256"])
        and writes
        and "evaluation" in mechanisms.runnable(),
        "slot": jobs.slot(engine(), job_id, actor) if state in ("running", "settling") else None,
        "lacks": workers.missing(engine(), job_id) if state == "queued" else None,
        "rehearses": mechanism and mechanism.rehearses,
        "may_ask": bool(actor.roles & {"analyst", "steward"}) and job["mechanism"] != charge.ID,
        "may_cancel": mine or "steward" in roles,
        "mine": mine,
        "may_judge": "steward" in roles and state == "awaiting_approval",
        "moments": _timeline(job),
    }


def _timeline(job: dict[str, Any]) -> list[tuple[str, str | None]]:
    """Return steps with their times; None if past at a time that depends on the data."""
    began = job["state"] in ("running", "settling", "succeeded") or bool(job["started_at"])
    turns = [comment for comment in job["comments"] if comment["kind"] != "comment"]
    steps = [
        ("submitted", job["created_at"], True),
        *((f"{_TURNS[turn['kind']]} {turn['author']}", turn["created_at"], True) for turn in turns),
        ("decided", job["decided_at"], False),
        ("queued", job["queued_at"], False),
        ("started", job["started_at"], began),
        (job["state"].replace("_", " "), job["finished_at"], job["state"] in ENDED),
    ]
    return [(label, when) for label, when, past in steps if when or past]


_TURNS = {"question": "asked back by", "answer": "answered by"}


@pages.get("/jobs/<job>/live")
def live(job: str) -> Response:
    """The part that follows the state; when the job has ended the whole page loads once more."""
    live_job = _live(_job(read_id(job)))
    response = Response(render_template("_job_live.html", **live_job))
    if live_job["ended"] or live_job["may_judge"] != (request.args.get("judge") == "1"):
        response.headers["HX-Refresh"] = "true"
    return response


@pages.post("/jobs/<job>/comments")
@shown_again(show, "said", (InvalidRequest,))
def comment(job: str) -> BaseResponse:
    """Say something about the job, ask its analyst back, or answer."""
    job_id, said = read_id(job), sent()
    try:
        text, asks = said.get("text", ""), said.get("asks") == "true"
        flash(_SAID[comments.say(engine(), job_id, current_actor(), text, asks)])
    except Conflict as error:
        flash(str(error), "problem")
    return redirect(url_for("jobs.show", job=job_id, _anchor="said"), 303)


_SAID = {
    "comment": "Your comment is added.",
    "question": "Your question is sent: the request waits for its analyst.",
    "answer": "Your answer is sent: the request waits for a steward again.",
}


@pages.post("/jobs/<job>/cancel")
def cancel(job: str) -> BaseResponse:
    """Ask the job to stop."""
    job_id = read_id(job)
    try:
        settlement.cancel(engine(), job_id, current_actor())
    except Conflict as error:
        flash(str(error), "problem")
    return redirect(url_for("jobs.show", job=job_id), 303)


# --- what it cost, as stewards correct it ---------------------------------------------------------


@pages.post("/jobs/<job>/correction")
@needs_role("steward")
@shown_again(show, "correction", back="jobs.show")
def correct(job: str) -> BaseResponse:
    """Propose another charge, or show the job's page with what is wrong."""
    job_id, actor = read_id(job), current_actor()
    body, signature = read(ChargeCorrection, _body(sent())), passkeys.given(actor)
    stated: dict[str, Any] = {"event": body.event, "ex_post": body.ex_post, "signature": signature}
    corrections.correct(engine(), job_id, actor, body.reason, **stated)
    message = "The correction is proposed. Another steward confirms it in the inbox."
    return done(message, "jobs.show", job=job_id)


@pages.post("/jobs/<job>/overdraft")
@needs_role("steward")
@shown_again(show, "correction", back="jobs.show")
def declare(job: str) -> BaseResponse:
    """Declare that a refused charge has happened already."""
    job_id, actor = read_id(job), current_actor()
    asked = jobs.job(engine(), job_id, actor)
    about = engine(), asked.dataset, asked.parameters, actor, sent().get("reason", "")
    overdrafts.declare(*about, signature=passkeys.given(actor))
    message = "The overdraft is declared. Another steward confirms it in the inbox."
    return done(message, "jobs.show", job=job_id)


_RELEASED = ("reserved", "event")


def _body(values: Mapping[str, str]) -> dict[str, Any]:
    released = values.get("released", "reserved")
    if released not in _RELEASED:
        raise invalid("released", repr(released[:40]), ", ".join(_RELEASED))
    body: dict[str, Any] = {"reason": values.get("reason", "")}
    if values.get("ex_post", "").strip():
        body["ex_post"] = values["ex_post"].strip()
    if released == "event":
        try:
            body["event"] = json.loads(values.get("event", ""))
        except (ValueError, RecursionError):
            allowed = "an event as the ledger's entries hold it"
            raise invalid("event", "is no JSON", allowed) from None
    return body


# --- what it published --------------------------------------------------------------------------


@pages.get("/jobs/<job>/output.<form>")
def output(job: str, form: str) -> Response:
    """The published output as a file; with `card=true` in a zip with its data card."""
    return outputs.export(read_id(job), form, request.args.get("card") == "true")


@pages.get("/jobs/<job>/card.<form>")
def card(job: str, form: str) -> Response:
    """The data card as Markdown or JSON."""
    if form not in ("md", "json"):
        raise invalid("format", repr(form[:40]), "md, json")
    return card_response(read_id(job), form)


@pages.get("/jobs/<job>/result")
def result(job: str) -> Response:
    """The published texts as JSON Lines."""
    return outputs.download(read_id(job))
