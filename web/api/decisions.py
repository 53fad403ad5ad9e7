"""Decisions: what a second person is asked, and their answer; offers and corrections, which ask."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from flask import Response, jsonify, request
from pydantic import Field

from accountant.core.errors import invalid
from accountant.queries import datasets as dataset_queries
from accountant.queries import decisions, effects, jobs
from accountant.schema.decisions import KINDS, STATES, Asked, Decision, OfferQuote
from accountant.transactions import answers, corrections, offers, overdrafts
from web.api.blueprint import api
from web.api.datasets import Figure
from web.api.openapi import ID, Operation, Schema, describe, listing
from web.api.paging import BY_TIME, Order, page, read_window
from web.api.parsing import Body, made, read, read_choice, read_id, read_once
from web.auth import current_actor
from web.context import engine

ORDER = Order("decisions", BY_TIME)
STATE: Schema = {"type": "string", "enum": ["", *STATES]}
KIND: Schema = {"type": "string", "enum": ["", *KINDS]}


class AnswerToDecision(Body):
    """A yes or a no."""

    yes: bool
    reason: str = Field("", max_length=2000, description="needed for everything but an offer")


class NewOffer(Body):
    """An offer: the parameters that differ from those asked for, and why."""

    parameters: dict[str, Any] = Field(description="those that differ; null takes one away")
    reason: str = Field(max_length=2000)


class OfferedParameters(Body):
    """Parameters that differ from those asked for; null takes one away."""

    parameters: dict[str, Any]


class ChargeCorrection(Body):
    """The real release of a settled job: an event, or (none given) all that was reserved."""

    reason: str = Field(max_length=2000)
    event: dict[str, Any] | None = None
    ex_post: Figure | None = None


class PastCharge(Body):
    """A charge that has happened already: the parameters of one, and why it is declared."""

    parameters: dict[str, Any] = Field(description="as of a job of the mechanism `charge`")
    reason: str = Field(max_length=2000)


@contextmanager
def priceable() -> Iterator[None]:
    """Tell the asker of figures beyond every price that they are too large."""
    try:
        yield
    except OverflowError:
        raise invalid(
            "parameters", "the price would be beyond every figure", "smaller costs"
        ) from None


@api.get("/decisions")
@describe(
    Operation(
        query={"state": STATE, "kind": KIND, "job": ID},
        refusals=(404,),
        answer=listing("decisions", Decision, paged=ORDER),
    )
)
def list_decisions() -> Response:
    """List what a second person is asked: open decisions oldest first, or those of a state or a
    job.

    Stewards and auditors see those on their datasets. Everybody sees their own jobs that await
    approval, their requests for access, and what is offered to them.
    """
    job = request.args.get("job")
    job_id = None if not job else read_id(job)
    state = read_choice("state", STATES) or (None if job_id else "open")
    wanted = decisions.Wanted(state=state, kind=read_choice("kind", KINDS), job=job_id)
    window = read_window(ORDER)
    how = {**window.reads, "with_largest": False}
    return page("decisions", decisions.listing(engine(), current_actor(), wanted, **how), window)


@api.get("/decisions/<decision>")
@describe(Operation(answer=Decision))
def show_decision(decision: str) -> Response:
    """Show one decision, with what a yes would do now."""
    return jsonify(decisions.show(engine(), read_id(decision, "decision"), current_actor()))


@api.post("/decisions/<decision>/answer")
@describe(Operation(body=AnswerToDecision, refusals=(409, 422), answer=Decision))
def answer(decision: str) -> Response:
    """Answer a decision: a yes makes it true at once, a no closes it.

    A job that awaits approval is a decision of its id. Who asked withdraws it by a no, and so does
    a steward of an offer. The same yes again changes nothing.
    """
    actor, decision_id, body = (
        current_actor(),
        read_id(decision, "decision"),
        read(AnswerToDecision),
    )
    answers.answer(engine(), decision_id, actor, body.yes, body.reason)
    return jsonify(decisions.show(engine(), decision_id, actor))


@api.post("/jobs/<job>/offer/quote")
@describe(Operation(body=OfferedParameters, answer=OfferQuote, roles=("steward",)))
def quote_offer(job: str) -> Response:
    """Price a request with these changed parameters, before it is offered."""
    actor = current_actor()
    actor.require("steward")
    job_id = read_id(job)
    changes = read(OfferedParameters).parameters
    with priceable():
        document = jobs.job(engine(), job_id, actor).document()
        return jsonify(effects.price_offer(engine(), actor, document, changes))


@api.post("/jobs/<job>/offer")
@describe(Operation(body=NewOffer, status=201, answer=Decision, roles=("steward",)))
def offer(job: str) -> tuple[Response, int]:
    """Refuse a request and offer a smaller one in its place, which its analyst answers."""
    actor = current_actor()
    actor.require("steward")
    job_id, body = read_id(job), read(NewOffer)
    with priceable():
        offer = offers.offer(engine(), job_id, body.parameters, actor, body.reason)
    return made(decisions.show(engine(), offer, actor), "show_decision", decision=str(offer))


@api.post("/datasets/<name>/overdraft")
@describe(Operation(body=PastCharge, keyed=True, status=202, answer=Asked, roles=("steward",)))
def declare_overdraft(name: str) -> tuple[Response, int]:
    """Declare a charge that has happened and is more than is left, which another steward answers.

    A yes charges it at once. The dataset is closed until a new allowance covers it.
    """
    actor = current_actor()
    actor.require("steward")
    dataset_queries.dataset(engine(), name, actor)
    body = read(PastCharge)
    with priceable():
        decision_id = overdrafts.declare(
            engine(), name, body.parameters, actor, body.reason, once=read_once(body)
        )
    return jsonify(decision=decisions.show(engine(), decision_id, actor)), 202


@api.post("/jobs/<job>/correct")
@describe(
    Operation(body=ChargeCorrection, keyed=True, status=202, answer=Asked, roles=("steward",))
)
def correct(job: str) -> tuple[Response, int]:
    """Propose a correction of a job's charge, which another steward answers."""
    actor = current_actor()
    actor.require("steward")
    job_id, body = read_id(job), read(ChargeCorrection)
    decision_id = corrections.correct(
        engine(),
        job_id,
        actor,
        body.reason,
        event=body.event,
        ex_post=body.ex_post,
        once=read_once(body),
    )
    return jsonify(decision=decisions.show(engine(), decision_id, actor)), 202
