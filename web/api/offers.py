"""Offers: a smaller job that a steward offers in place of one that awaits approval."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from flask import Response, jsonify, request
from pydantic import Field

from accountant.core.errors import invalid
from accountant.queries import inbox, jobs
from accountant.queries import offers as offer_queries
from accountant.schema.access import AccessRequest
from accountant.schema.base import documents
from accountant.schema.decisions import Offer, OfferQuote, OfferWithEffect, Proposal, Waiting
from accountant.schema.jobs import Job
from accountant.transactions import offers
from web.api.blueprint import api
from web.api.jobs import Reason
from web.api.openapi import ID, Operation, Schema, describe, listing
from web.api.paging import BY_TIME, Order, page, read_window
from web.api.parsing import Body, read, read_choice, read_id
from web.auth import current_actor
from web.context import engine

STATES = ("open", "accepted", "declined", "withdrawn", "expired")
STATE: Schema = {"type": "string", "enum": ["", *STATES]}
ORDER = Order("offers", BY_TIME)
WAITING = Order("inbox", BY_TIME)


class NewOffer(Body):
    """An offer: the parameters that differ from those asked for, and why."""

    parameters: dict[str, Any] = Field(description="those that differ; null takes one away")
    reason: str = Field(max_length=2000)


class OfferedParameters(Body):
    """Parameters that differ from those asked for; null takes one away."""

    parameters: dict[str, Any]


class Answer(Body):
    """An analyst's reason to decline an offer, if they give one."""

    reason: str = Field("", max_length=2000)


@contextmanager
def priceable() -> Iterator[None]:
    """Figures beyond every price are the asker's mistake."""
    try:
        yield
    except OverflowError:
        raise invalid("parameters", "the price would be beyond every figure", "smaller costs") from None


#: The other lists of the inbox.
BESIDE_JOBS: dict[str, Schema] = {
    name: {"type": "array", "items": item.model_json_schema()}
    for name, item in (("proposals", Proposal), ("access", AccessRequest))
}


@api.get("/inbox")
@describe(Operation(answer=listing("jobs", Waiting, paged=WAITING, **BESIDE_JOBS), roles=("steward",)))
def waiting() -> Response:
    """Everything that waits for a steward.

    `jobs`: requests that await approval, oldest first, with what approving each would do now. `proposals`:
    the newest that are open. `access`: people who ask for access to a dataset.
    """
    window = read_window(WAITING)
    found = inbox.listing(engine(), current_actor(), **window.reads)
    others = {"proposals": documents(found.proposals), "access": documents(found.access)}
    return page("jobs", found.jobs, window, **others)


@api.post("/jobs/<job>/offer/quote")
@describe(Operation(body=OfferedParameters, answer=OfferQuote, roles=("steward",)))
def quote_offer(job: str) -> Response:
    """The price and effect of a request with these changed parameters, before it is offered."""
    actor = current_actor()
    actor.require("steward")
    job_id = read_id(job)
    changes = read(OfferedParameters).parameters
    with priceable():
        asked = jobs.job(engine(), job_id, actor).document()
        return jsonify(inbox.price_offer(engine(), actor, asked, changes))


@api.post("/jobs/<job>/offer")
@describe(Operation(body=NewOffer, status=201, answer=Offer, roles=("steward",)))
def offer(job: str) -> tuple[Response, int]:
    """Refuse a request and offer a smaller one in its place; its analyst accepts or declines."""
    actor = current_actor()
    actor.require("steward")
    job_id = read_id(job)
    body = read(NewOffer)
    with priceable():
        found = offers.offer(engine(), job_id, body.parameters, actor, body.reason)
    return jsonify(offer_queries.show(engine(), found, actor)), 201


@api.get("/offers")
@describe(
    Operation(
        query={"state": STATE, "job": ID},
        refusals=(404,),
        answer=listing("offers", Offer, paged=ORDER),
    )
)
def list_offers() -> Response:
    """Open offers, or those of a state or a job, newest first: to an analyst, their own."""
    job = request.args.get("job")
    job_id = None if not job else read_id(job)
    state = read_choice("state", STATES) or (None if job_id else "open")
    window = read_window(ORDER)
    found = offer_queries.listing(engine(), current_actor(), state=state, job=job_id, **window.reads)
    return page("offers", found, window)


@api.get("/offers/<offer>")
@describe(Operation(answer=OfferWithEffect))
def show_offer(offer: str) -> Response:
    """One offer, with what accepting it would do now."""
    actor = current_actor()
    found = offer_queries.show(engine(), read_id(offer, "offer"), actor).document()
    return jsonify({**found, "effect": inbox.effect_of(engine(), actor, found)})


@api.post("/offers/<offer>/accept")
@describe(Operation(refusals=(409, 422), status=201, answer=Job))
def accept_offer(offer: str) -> tuple[Response, int]:
    """Consent, as the analyst: the offered job is made and decided on now, as approved. Answers the job."""
    actor = current_actor()
    job_id = offers.accept(engine(), read_id(offer, "offer"), actor)
    return jsonify(jobs.job(engine(), job_id, actor)), 201


@api.post("/offers/<offer>/decline")
@describe(Operation(body=Answer, answer=Offer))
def decline_offer(offer: str) -> Response:
    """Say no, as the analyst; nothing is charged."""
    actor, offer_id = current_actor(), read_id(offer, "offer")
    offers.decline(engine(), offer_id, actor, read(Answer).reason)
    return jsonify(offer_queries.show(engine(), offer_id, actor))


@api.post("/offers/<offer>/withdraw")
@describe(Operation(body=Reason, answer=Offer, roles=("steward",)))
def withdraw_offer(offer: str) -> Response:
    """Take an offer back, as a steward; the request that it answered stays refused."""
    actor = current_actor()
    actor.require("steward")
    offer_id = read_id(offer, "offer")
    offers.withdraw(engine(), offer_id, actor, read(Reason).reason)
    return jsonify(offer_queries.show(engine(), offer_id, actor))
