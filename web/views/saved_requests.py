"""Deleting a saved request; it is saved, and started from, on the form that asks for a job."""

from flask import Blueprint, flash, redirect, url_for
from werkzeug.wrappers import Response as BaseResponse

from accountant.catalogue import saved_requests
from web.api.parsing import read_id
from web.auth import current_actor, needs_role
from web.context import engine

pages = Blueprint("saved_requests", __name__)


@pages.post("/datasets/<name>/saved-requests/<saved>/delete")
@needs_role("analyst", "steward")
def remove(name: str, saved: str) -> BaseResponse:
    """Delete one's own, or as the dataset's steward a shared one."""
    saved_requests.remove(engine(), name, read_id(saved, "saved request"), current_actor())
    flash("The saved request is deleted. Jobs that began from it stay as they are.")
    return redirect(url_for("asking.ask", name=name), 303)
