"""Asking for access to a dataset, and its stewards' answer."""

from flask import Blueprint, Response, flash, redirect, url_for
from werkzeug.wrappers import Response as BaseResponse

from accountant.core.errors import Conflict, InvalidRequest, NotPermitted, invalid
from accountant.transactions import access, owners
from web.api.parsing import read_id
from web.auth import current_actor, needs_role
from web.context import engine
from web.errors import status_of
from web.views.datasets import dataset_page
from web.views.forms import rejected, sent

pages = Blueprint("access", __name__)


@pages.post("/datasets/<name>/access")
@needs_role(*owners.ASKERS)
def ask(name: str) -> BaseResponse:
    """Ask for access, with a reason that the dataset's stewards read."""
    try:
        access.ask(engine(), name, current_actor(), sent().get("reason", ""))
    except (InvalidRequest, Conflict) as error:
        return Response(dataset_page(name, access=rejected(error)), status_of(error))
    flash("Your request is sent to the dataset's stewards. Their answer appears here.")
    return redirect(url_for("datasets.show", name=name), 303)


@pages.post("/inbox/access/<wanted>")
@needs_role("steward")
def decide(wanted: str) -> BaseResponse:
    """Grant a request for access, or refuse it, with a reason."""
    request_id, values = read_id(wanted, "request for access"), sent()
    decision, reason = values.get("decision"), values.get("reason", "")
    try:
        if decision == "grant":
            proposal = access.grant(engine(), request_id, current_actor(), reason)
            flash("Granted: the policy names them now." if proposal is None else _SECOND)
        elif decision == "refuse":
            access.refuse(engine(), request_id, current_actor(), reason)
            flash("Refused. They see your reason.")
        else:
            raise invalid("decision", repr(str(decision)[:40]), "grant, refuse")
    except InvalidRequest as error:
        first = error.problems[0]
        flash(f"{first.field}: {first.problem}; allowed: {first.allowed}", "problem")
    except (Conflict, NotPermitted) as error:
        flash(str(error), "problem")
    return redirect(url_for("inbox.listing", _anchor="access"), 303)


_SECOND = "Granted: another steward has to confirm the change of the policy, which is proposed below."
