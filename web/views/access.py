"""Asking for access to a dataset, from its page."""

from flask import Blueprint, Response, flash, redirect, url_for
from werkzeug.wrappers import Response as BaseResponse

from accountant.core.errors import Conflict, InvalidRequest
from accountant.transactions import access, owners
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
        access.ask_for(engine(), name, current_actor(), sent().get("reason", ""))
    except (InvalidRequest, Conflict) as error:
        return Response(dataset_page(name, access=rejected(error)), status_of(error))
    flash("Your request is sent to the dataset's stewards. Their answer appears here.")
    return redirect(url_for("datasets.show", name=name), 303)
