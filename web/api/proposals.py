"""Proposals: what one steward asks for and another confirms; corrections of a job's charge."""

from typing import Any

from flask import Response, jsonify
from pydantic import Field

from accountant.queries import proposals as proposal_queries
from accountant.schema.decisions import Proposal, Proposed
from accountant.transactions import proposals
from web.api.blueprint import api
from web.api.datasets import OVERSEERS, Figure
from web.api.idempotency import read_once
from web.api.jobs import Reason
from web.api.openapi import Operation, Schema, describe, listing
from web.api.paging import BY_TIME, Order, page, read_window
from web.api.parsing import Body, read, read_choice, read_id
from web.auth import current_actor
from web.context import engine

ORDER = Order("proposals", BY_TIME)
STATES = ("open", "confirmed", "withdrawn", "expired")
STATE: Schema = {"type": "string", "enum": ["", *STATES]}


class ChargeCorrection(Body):
    """The real release of a settled job: an event, nothing, or (neither given) all that was reserved."""

    reason: str = Field(max_length=2000)
    event: dict[str, Any] | None = None
    nothing: bool = False
    ex_post: Figure | None = None


@api.get("/proposals")
@describe(
    Operation(query={"state": STATE}, answer=listing("proposals", Proposal, paged=ORDER), roles=OVERSEERS)
)
def list_proposals() -> Response:
    """Open proposals, or those of a state, newest first."""
    state = read_choice("state", STATES) or "open"
    window = read_window(ORDER)
    found = proposal_queries.listing(engine(), current_actor(), state=state, **window.reads)
    return page("proposals", found, window)


@api.get("/proposals/<proposal>")
@describe(Operation(answer=Proposal, roles=OVERSEERS))
def proposal(proposal: str) -> Response:
    """One proposal."""
    return jsonify(proposal_queries.show(engine(), read_id(proposal, "proposal"), current_actor()))


@api.post("/jobs/<job>/correct")
@describe(Operation(body=ChargeCorrection, keyed=True, status=202, answer=Proposed, roles=("steward",)))
def correct(job: str) -> tuple[Response, int]:
    """Propose a correction of a job's charge; another steward confirms it."""
    actor = current_actor()
    actor.require("steward")
    job_id, body = read_id(job), read(ChargeCorrection)
    event: object = "reserved" if body.event is None else body.event
    found = proposals.correct(
        engine(),
        job_id,
        actor,
        body.reason,
        event=None if body.nothing else event,
        ex_post=body.ex_post,
        once=read_once(body),
    )
    return jsonify(proposal=proposal_queries.show(engine(), found, actor)), 202


@api.post("/proposals/<proposal>/confirm")
@describe(Operation(body=Reason, answer=Proposal, roles=("steward",)))
def confirm(proposal: str) -> Response:
    """Confirm somebody else's proposal: its entry is written, or its policy stands."""
    actor, found = current_actor(), read_id(proposal, "proposal")
    proposals.confirm(engine(), found, actor, read(Reason).reason)
    return jsonify(proposal_queries.show(engine(), found, actor))


@api.post("/proposals/<proposal>/withdraw")
@describe(Operation(body=Reason, answer=Proposal, roles=("steward",)))
def withdraw(proposal: str) -> Response:
    """Close a proposal without effect."""
    actor, found = current_actor(), read_id(proposal, "proposal")
    proposals.withdraw(engine(), found, actor, read(Reason).reason)
    return jsonify(proposal_queries.show(engine(), found, actor))
