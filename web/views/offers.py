"""Offers on the analyst's side: consent or decline, from the page of the job that was refused for it."""

from typing import Any
from uuid import UUID

from flask import Blueprint, flash, redirect, url_for
from werkzeug.wrappers import Response as BaseResponse

from accountant.core.errors import Conflict, InvalidRequest, NotPermitted
from accountant.queries import inbox, jobs
from accountant.queries import offers as offer_queries
from accountant.schema.base import documents
from accountant.transactions import offers
from web.api.offers import ORDER, Answer
from web.api.paging import cut, read_window
from web.api.parsing import read, read_id
from web.auth import current_actor
from web.context import engine
from web.views.forms import sent

pages = Blueprint("offers", __name__)

PAGE = 20


def open_offers(*, mine: bool = False) -> dict[str, Any]:
    """Open offers for a page that shows them beside another list: `offers` in its address continues them."""
    window = read_window(ORDER, PAGE, parameter="offers")
    found, following = cut(
        offer_queries.listing(engine(), current_actor(), mine=mine, **window.reads), window
    )
    return {"offers": found, "more_offers": following}


def of_job(job: UUID) -> dict[str, Any] | None:
    """The offer that answered a job, with what accepting it would do; None where there is none."""
    actor = current_actor()
    found = documents(offer_queries.listing(engine(), actor, state=None, job=job, limit=1))
    if not found:
        return None
    effect = inbox.effect_of(engine(), actor, found[0]) if found[0]["state"] == "open" else None
    return {**found[0], "effect": effect and effect.document()}


@pages.post("/offers/<offer>/accept")
def accept(offer: str) -> BaseResponse:
    """Consent, and go to the job that it makes."""
    offer_id, actor = read_id(offer, "offer"), current_actor()
    asked = offer_queries.show(engine(), offer_id, actor).job
    try:
        made = offers.accept(engine(), offer_id, actor)
    except (Conflict, NotPermitted, InvalidRequest) as error:
        flash(f"Not accepted: {error}.", "problem")
        return redirect(url_for("jobs.show", job=asked), 303)
    state = jobs.job(engine(), made, actor).state.replace("_", " ")
    flash(f"You accepted the offer: this job is in its place, and is {state}.")
    return redirect(url_for("jobs.show", job=made), 303)


@pages.post("/offers/<offer>/decline")
def decline(offer: str) -> BaseResponse:
    """Say no, with a reason or without."""
    offer_id, actor = read_id(offer, "offer"), current_actor()
    asked = offer_queries.show(engine(), offer_id, actor).job
    try:
        reason = read(Answer, {"reason": sent().get("reason", "").strip()}).reason
        offers.decline(engine(), offer_id, actor, reason)
    except (Conflict, InvalidRequest) as error:
        flash(f"Not declined: {error}.", "problem")
    else:
        flash("You declined the offer. Nothing was charged.")
    return redirect(url_for("jobs.show", job=asked), 303)
