"""What waits for a steward: who asks, for what, why, at what price, and what would be left."""

from typing import Any
from uuid import UUID

from flask import Blueprint, Response, flash, redirect, render_template, request, url_for
from flask_login import login_required
from werkzeug.wrappers import Response as BaseResponse

from accountant import ledger, proposals, reports
from accountant.core.errors import Conflict, ExchequerError, InvalidRequest, NotPermitted, invalid
from web.api.bodies import read, read_id
from web.api.jobs import Reason
from web.app import engine
from web.auth import current_actor, needs_role
from web.errors import status_of
from web.views.forms import Form, sent

pages = Blueprint("inbox", __name__)

MOST = 50
_ACTS = {"approve": ledger.approve, "refuse": ledger.refuse}
_SETTLES = {"confirm": proposals.confirm, "withdraw": proposals.withdraw}


@pages.get("/inbox")
@login_required
@needs_role("steward")
def listing() -> str:
    """Every job that awaits approval, oldest first."""
    return render_template("inbox.html", **_waiting())


@pages.get("/inbox/changes")
@login_required
@needs_role("steward")
def changes() -> str:
    """What changed since the page was made: requests resolved elsewhere go, new ones are announced.

    The page is not loaded again: somebody may be writing a reason.
    """
    shown = [each for each in request.args.get("shown", "").split(",") if each][:MOST]
    now = [job["id"] for job in _jobs()]
    gone = [each for each in shown if _is_id(each) and each not in now]
    return render_template("_inbox_changes.html", gone=gone, new=len(set(now) - set(shown)))


def _is_id(text: str) -> bool:
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False


def _jobs() -> list[dict[str, Any]]:
    found = reports.jobs(engine(), current_actor(), state="awaiting_approval", limit=MOST)
    return found[::-1]


def _waiting(job_id: UUID | None = None, form: Form | None = None) -> dict[str, Any]:
    jobs = _jobs()
    return {
        "items": [{"job": job, "effect": _effect(job)} for job in jobs],
        "proposals": proposals.listing(engine(), current_actor()),
        "shown": ",".join(job["id"] for job in jobs),
        "forms": {} if job_id is None or form is None else {str(job_id): form},
    }


def _effect(job: dict[str, Any]) -> dict[str, Any] | None:
    """What approval would do to the filters now; None where the request can't be priced any more."""
    stated = {name: value for name, value in job["parameters"].items() if value is not None}
    try:
        return reports.quote_on(engine(), job["dataset"], job["mechanism"], stated)
    except InvalidRequest:
        return None


@pages.post("/inbox/<job>")
@login_required
@needs_role("steward")
def decide(job: str) -> BaseResponse:
    """Approve or refuse, for a reason."""
    job_id = read_id(job)
    decision = request.form.get("decision", "")
    if decision not in _ACTS:
        raise invalid("decision", repr(decision[:40]), ", ".join(_ACTS))
    try:
        _ACTS[decision](
            engine(), job_id, current_actor(), read(Reason, {"reason": sent().get("reason", "")}).reason
        )
    except (InvalidRequest, NotPermitted) as error:
        return _again(job_id, error)
    except Conflict as error:
        flash(f"Somebody was faster: {error}.", "problem")
        return redirect(url_for("inbox.listing"), 303)
    now = reports.job(engine(), job_id, current_actor())
    flash(f"Job {str(job_id)[:8]} of {now['analyst']} is now {now['state'].replace('_', ' ')}.")
    return redirect(url_for("inbox.listing"), 303)


@pages.post("/inbox/proposals/<proposal>")
@login_required
@needs_role("steward")
def settle(proposal: str) -> BaseResponse:
    """Confirm or withdraw a proposal, for a reason."""
    proposal_id = read_id(proposal, "proposal")
    decision = request.form.get("decision", "")
    if decision not in _SETTLES:
        raise invalid("decision", repr(decision[:40]), ", ".join(_SETTLES))
    try:
        reason = read(Reason, {"reason": sent().get("reason", "")}).reason
        _SETTLES[decision](engine(), proposal_id, current_actor(), reason)
    except (InvalidRequest, NotPermitted, Conflict) as error:
        return _again(proposal_id, error)
    flash("The proposal is confirmed." if decision == "confirm" else "The proposal is withdrawn.")
    return redirect(url_for("inbox.listing"), 303)


def _again(job_id: UUID, error: ExchequerError) -> Response:
    problems = error.problems if isinstance(error, InvalidRequest) else ()
    form = Form(sent(), problems, "" if problems else str(error))
    return Response(render_template("inbox.html", **_waiting(job_id, form)), status_of(error))
