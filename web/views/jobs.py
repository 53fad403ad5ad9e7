"""Jobs: the list, one job's page, and the part of it that follows the state."""

from typing import Any
from uuid import UUID

from flask import Blueprint, Response, flash, redirect, render_template, request, url_for
from flask_login import login_required
from werkzeug.wrappers import Response as BaseResponse

from accountant import artifacts, ledger, offers, reports
from accountant.core import mechanisms
from accountant.core.errors import Conflict
from accountant.core.states import JOB_STATES
from web.api import outputs
from web.api.bodies import read_choice, read_id, read_moment
from web.app import engine
from web.auth import current_actor
from web.views.forms import Form
from web.views.look import ENDED
from web.views.offers import of_job

pages = Blueprint("jobs", __name__)

PAGE = 25
PREVIEW_TEXTS = 10
RELEASED = 1_000


@pages.get("/jobs")
@login_required
def listing() -> str:
    """Jobs, newest first; filters stand in the address."""
    state, dataset = read_choice("state", JOB_STATES), request.args.get("dataset") or None
    found = reports.jobs(
        engine(), current_actor(), dataset=dataset, state=state, limit=PAGE + 1, before=read_moment()
    )
    more = found[PAGE - 1]["created_at"] if len(found) > PAGE else None
    return render_template(
        "jobs.html",
        jobs=found[:PAGE],
        more=more,
        before=request.args.get("before"),
        state=state,
        dataset=dataset,
        offers=offers.listing(engine(), current_actor()) if "analyst" in current_actor().roles else [],
        states=JOB_STATES,
        datasets=[each["name"] for each in reports.datasets(engine(), current_actor())],
    )


@pages.get("/jobs/<job>")
@login_required
def show(job: str) -> str:
    """One job."""
    return page(read_id(job))


def page(job_id: UUID, correction_form: Form | None = None) -> str:
    """The page of a job; `correction_form` as it was sent, where a correction was not accepted."""
    found = _job(job_id)
    texts = outputs.preview(job_id, PREVIEW_TEXTS) if found["state"] == "succeeded" else None
    released = artifacts.listing(engine(), current_actor(), job=job_id, limit=RELEASED)
    return render_template(
        "job.html",
        texts=texts,
        artifacts=released,
        offer=of_job(job_id) if found["state"] == "refused" else None,
        may_correct="steward" in current_actor().roles and len(found["entries"]) > 1,
        correction_form=correction_form or Form(),
        **_live(found),
    )


def _job(job_id: UUID) -> dict[str, Any]:
    return reports.job(engine(), job_id, current_actor())


def _live(job: dict[str, Any]) -> dict[str, Any]:
    """What the part of the page that follows the state needs."""
    actor = current_actor()
    mine = job["analyst"] == actor.name
    return {
        "job": {**job, "parameters": _in_order(job)},
        "ended": job["state"] in ENDED,
        "reusable": "from_job" in job["parameters"],
        "may_cancel": mine or "steward" in actor.roles,
        "may_judge": "steward" in actor.roles and job["state"] == "awaiting_approval",
        "moments": [
            (label, job[field])
            for label, field in (
                ("submitted", "created_at"),
                ("decided", "decided_at"),
                ("queued", "queued_at"),
                ("started", "started_at"),
                ("ended", "finished_at"),
            )
            if job[field]
        ],
    }


def _in_order(job: dict[str, Any]) -> dict[str, Any]:
    """Parameters as their mechanism declares them; the database keeps no order."""
    known = mechanisms.MECHANISMS.get(job["mechanism"])
    order = () if known is None else known.fields
    return {name: job["parameters"][name] for name in order if name in job["parameters"]} | job["parameters"]


@pages.get("/jobs/<job>/live")
@login_required
def live(job: str) -> Response:
    """The part that follows the state; when the job has ended the whole page loads once more."""
    found = _live(_job(read_id(job)))
    response = Response(render_template("_job_live.html", **found))
    if found["ended"] or found["may_judge"] != (request.args.get("judge") == "1"):
        response.headers["HX-Refresh"] = "true"
    return response


@pages.post("/jobs/<job>/cancel")
@login_required
def cancel(job: str) -> BaseResponse:
    """Ask the job to stop."""
    job_id = read_id(job)
    try:
        ledger.cancel(engine(), job_id, current_actor())
    except Conflict as error:
        flash(str(error), "problem")
    return redirect(url_for("jobs.show", job=job_id), 303)


@pages.get("/jobs/<job>/result")
@login_required
def result(job: str) -> Response:
    """The published texts as a file."""
    return outputs.download(read_id(job))
