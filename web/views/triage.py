"""Several requests decided together: chosen from a list, their sum on each filter seen, then one decision.

    choose ──preview──▶ what all of them do together ──approve or refuse──▶ each decided as if it were alone

Nothing new decides: each job goes through the same approval, in its own transaction, the oldest first.
"""

from typing import Any

from flask import Blueprint, Response, flash, redirect, render_template, request, url_for
from werkzeug.wrappers import Response as BaseResponse

from accountant.core.errors import Conflict, ExchequerError, InvalidRequest, invalid
from accountant.queries import inbox, triage
from accountant.transactions import approval
from web.api.jobs import Reason
from web.api.parsing import read, read_id
from web.auth import current_actor, needs_role
from web.context import engine
from web.views.forms import Form, rejected, sent

pages = Blueprint("triage", __name__)

#: So many of the oldest requests are listed.
MOST = 50
_ACTS = {"approve": approval.approve, "refuse": approval.refuse}


@pages.get("/inbox/several")
@needs_role("steward")
def listing() -> str:
    """The requests that wait, a line each."""
    return _page(Form())


@pages.post("/inbox/several")
@needs_role("steward")
def decide() -> BaseResponse:
    """Show what the chosen ones do together, or decide on them for one reason."""
    decision = request.form.get("decision", "")
    try:
        chosen = _chosen()
        if decision == "preview":
            return Response(_page(Form(sent()), chosen))
        if decision not in _ACTS:
            raise invalid("decision", repr(decision[:40]), ", ".join(("preview", *_ACTS)))
        if chosen != set(sent().get("seen", "").split(",")):  # what was not looked at is not decided
            again = "These are not the requests that you looked at: see what they do together first."
            return Response(_page(Form(sent(), general=again), chosen), 409)
        reason = read(Reason, {"reason": sent().get("reason", "")}).reason
        if not reason.strip():
            raise invalid("reason", "empty", "a sentence that says why")
    except InvalidRequest as error:
        return Response(_page(rejected(error), set(request.form.getlist("jobs"))), 422)
    told = [_one(decision, each, reason) for each in sorted(chosen, key=_order())]
    fine = [each for each, problem in told if problem is None]
    done = {"approve": "approved", "refuse": "refused"}[decision]
    flash(f"{len(fine)} of {len(told)} {done}.")
    for job, problem in told:
        if problem is not None:
            flash(f"Job {job[:8]}: {problem}.", "problem")
    return redirect(url_for("triage.listing"), 303)


def _one(decision: str, job: str, reason: str) -> tuple[str, str | None]:
    """Decide on one; what was wrong with it, if anything. One that fails keeps no other from its decision."""
    try:
        _ACTS[decision](engine(), read_id(job), current_actor(), reason)
    except (Conflict, ExchequerError) as error:
        return job, str(error)
    return job, None


def _chosen() -> set[str]:
    """The ids that are ticked. Raises InvalidRequest where none is."""
    found = {str(read_id(each)) for each in request.form.getlist("jobs")[:MOST]}
    if not found:
        raise invalid("jobs", "none is chosen", "one or more of the list")
    return found


def _order() -> Any:
    """By age: the key of a sort over ids; what is on the list no more comes last."""
    places = {each["id"]: place for place, each in enumerate(_waiting())}
    return lambda job: places.get(job, MOST)


def _waiting() -> list[Any]:
    return list(inbox.waiting(engine(), current_actor(), limit=MOST))


def _page(form: Form, chosen: set[str] | None = None) -> str:
    waiting = _waiting()
    picked = [each for each in waiting if chosen and each["id"] in chosen]
    return render_template(
        "triage.html",
        jobs=waiting,
        chosen={each["id"] for each in picked},
        sums=triage.together(engine(), current_actor(), picked),
        form=form,
        most=MOST,
    )
