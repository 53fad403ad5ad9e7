"""The steward's inbox: requests that await approval, what is offered, and proposals of two people.

Approve, refuse, offer: each for a reason, and each confirmed; with scripts in a dialog, without on a page of
its own (`confirm`), which changes nothing.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any
from uuid import UUID

from flask import Blueprint, Response, flash, redirect, render_template, request, url_for
from werkzeug.wrappers import Response as BaseResponse

from accountant.core import mechanisms
from accountant.core.errors import (
    Conflict,
    ExchequerError,
    InvalidRequest,
    NotPermitted,
    SignatureNeeded,
    invalid,
)
from accountant.queries import comments as comment_queries
from accountant.queries import inbox
from accountant.queries import jobs as job_queries
from accountant.queries import proposals as proposal_queries
from accountant.schema.base import documents
from accountant.schema.jobs import Job
from accountant.transactions import approval, comments, offers, proposals
from web import confirmation, passkeys
from web.api import proposals as proposals_api
from web.api.jobs import Reason
from web.api.offers import WAITING, priceable
from web.api.paging import cut, read_window
from web.api.parsing import read, read_id
from web.auth import current_actor, needs_role
from web.context import engine
from web.errors import status_of, without_prefix
from web.meaning import meaning
from web.views import rehearsals
from web.views.forms import Form, rejected, sent
from web.views.offers import open_offers
from web.views.policies import policy_changes
from web.views.schema_forms import PREFIX, Input, inputs, parameters

pages = Blueprint("inbox", __name__)

PAGE = 20
_SETTLES = ("confirm", "withdraw")
DECISIONS = ("approve", "refuse", "offer")
#: Decisions that several requests can get together.
_SEVERAL = ("approve", "refuse")
#: An offer changes sizes; what a text says, or what is read, stays as it was asked for.
_OFFERABLE = ("number",)

# --- the page -----------------------------------------------------------------------------------


@pages.get("/inbox")
@needs_role("steward")
def listing() -> str:
    """Every job that awaits approval, oldest first; the page stands in the address."""
    return render_template("inbox.html", **_page())


@pages.get("/inbox/changes")
@needs_role("steward")
def changes() -> str:
    """The changes since the page was made: requests resolved elsewhere go, new ones are announced.

    The page is not loaded again: somebody may be writing a reason.
    """
    shown = [each for each in request.args.get("shown", "").split(",") if each][:PAGE]
    jobs = job_queries.jobs(
        engine(),
        current_actor(),
        job_queries.Wanted(state=inbox.WAITING),
        **read_window(WAITING, PAGE).reads,
        oldest_first=True,
    )
    now = [job.id for job in jobs]
    gone = [each for each in shown if _is_id(each) and each not in now]
    new = set(now[:PAGE]) - set(shown)
    return render_template("_inbox_changes.html", gone=gone, new=len(new))


def _is_id(text: str) -> bool:
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False


def _page(subject: UUID | str | None = None, form: Form | None = None, **more: Any) -> dict[str, Any]:
    """The data of the page; `form` is the one sent for `subject`, with what is wrong with it."""
    actor, window = current_actor(), read_window(WAITING, PAGE)
    beside = read_window(proposals_api.ORDER, PAGE, parameter="proposals")
    found = inbox.listing(
        engine(),
        actor,
        **window.reads,
        proposals_after=beside.after,
        proposals_limit=beside.limit + 1,
    )
    items, following = cut(found.jobs, window)
    proposed, more_proposals = cut(found.proposals, beside)
    said = comment_queries.of_jobs(engine(), [each["id"] for each in items])
    return {
        "items": [
            {
                **{"job": job, "effect": job["effect"], "inputs": offer_inputs(job)},
                **{"rehearsal": rehearsed, "comments": documents(said[job["id"]])},
            }
            for job, rehearsed in zip(items, rehearsals.latest(items), strict=True)
        ],
        **open_offers(),
        "access": documents(found.access),
        "proposals": proposed,
        "more_proposals": more_proposals,
        "policy_changes": policy_changes,
        "allowance_change": allowance_change,
        "shown": ",".join(job["id"] for job in items),
        "following": following,
        "forms": {} if subject is None or form is None else {str(subject): form},
        "prices": {},
        "selected": (),
        **more,
    }


def allowance_change(proposal: Mapping[str, Any]) -> dict[str, Any]:
    """What a proposed allowance would do, and what its figures mean: all that its proposer was shown."""
    found = proposal_queries.proposed_change(engine(), read_id(proposal["id"], "proposal"), current_actor())
    change = None if found is None else {**found.document(), "two_people": False}
    means, asked = None, proposal["asked"]
    if change is not None and asked.get("epsilon") is not None:
        means = meaning(asked["epsilon"], asked["delta"], change["neighbours"], change["unit"])
    return {"change": change, "meaning": means, "errors": ()}


def offer_inputs(job: Mapping[str, Any]) -> tuple[Input, ...]:
    """The inputs of an offer, the size first: of what was asked for, as a job records what it uses alone."""
    return tuple(
        each for each in _offerable(job["mechanism"]) if each.name.removeprefix(PREFIX) in job["parameters"]
    )


@cache
def _offerable(mechanism_id: str) -> tuple[Input, ...]:
    mechanism = mechanisms.get(mechanism_id)
    found = [each for each in inputs(mechanism.schema) if each.kind in _OFFERABLE]
    return tuple(sorted(found, key=lambda each: each.name != PREFIX + mechanism.size_field))


def _changes(job: Mapping[str, Any], values: Mapping[str, str]) -> dict[str, Any]:
    """The parameters in a form of an offer that differ from those asked for."""
    mechanism = mechanisms.get(job["mechanism"])
    offerable = {each.name for each in offer_inputs(job)}
    stated = parameters(mechanism, {name: text for name, text in values.items() if name in offerable})
    emptied = [each.removeprefix(PREFIX) for each in offerable if each in values and not values[each].strip()]
    found = {name: value for name, value in stated.items() if value != job["parameters"].get(name)}
    return found | {name: None for name in emptied if job["parameters"].get(name) is not None}


# --- one request --------------------------------------------------------------------------------


@pages.post("/inbox/<job>/price")
@needs_role("steward")
def price(job: str) -> str:
    """The price of the offer that the form says now, as a part of its page."""
    found = job_queries.job(engine(), read_id(job), current_actor()).document()
    return render_template("_offer_price.html", **_priced(found, sent()))


def _priced(job: Mapping[str, Any], values: Mapping[str, str]) -> dict[str, Any]:
    changes = _changes(job, values)
    if not changes:
        return {"quote": None, "errors": (), "job": job}
    try:
        with priceable():
            quote = inbox.price_offer(engine(), current_actor(), job, changes).document()
    except InvalidRequest as error:
        return {"quote": None, "errors": without_prefix(error, PREFIX).problems, "job": job}
    return {"quote": quote, "errors": (), "job": job}


@pages.post("/inbox/<job>/confirm")
@needs_role("steward")
def confirm(job: str) -> BaseResponse:
    """The effect of the decision, on a page of its own; nothing is done yet."""
    job_id, decision = read_id(job), _decision(DECISIONS)
    found = job_queries.job(engine(), job_id, current_actor()).document()
    try:
        reason = _reason()
        quote = _priced(found, sent())["quote"] if decision == "offer" else None
    except InvalidRequest as error:
        return _again(job_id, error)
    if decision == "offer" and quote is None:
        return _again(job_id, invalid("parameters", "nothing differs, or a field is wrong", "a smaller size"))
    where = url_for("inbox.decide", job=job_id)
    page = render_template(
        "confirm.html",
        what=decision,
        job=found,
        quote=quote,
        action=where,
        values={**sent(), "reason": reason},
        back="inbox.listing",
    )
    return Response(page)


@pages.post("/inbox/<job>")
@needs_role("steward")
def decide(job: str) -> BaseResponse:
    """Approve, refuse or offer, for a reason; or price an offer, which changes nothing."""
    job_id, decision = read_id(job), _decision((*DECISIONS, "ask", "price"))
    found = job_queries.job(engine(), job_id, current_actor()).document()
    if decision == "price":
        prices = {str(job_id): _priced(found, sent())}
        return Response(render_template("inbox.html", **_page(job_id, Form(sent()), prices=prices)))
    try:
        _act(decision, job_id, found)
    except SignatureNeeded as needed:
        return passkeys.sign(needed, url_for("inbox.listing"))
    except (InvalidRequest, NotPermitted) as error:
        return _again(job_id, error)
    except Conflict as error:
        flash(f"Nothing was decided: {error}.", "problem")
        return redirect(url_for("inbox.listing"), 303)
    now = job_queries.job(engine(), job_id, current_actor())
    if decision == "ask":
        flash(f"Your question is sent: the request waits for {now.analyst}, and you can decide all the same.")
        return redirect(url_for("inbox.listing", _anchor=f"job-{job_id}"), 303)
    name = f"Job {str(job_id)[:8]} of {now.analyst}"
    if decision == "offer":
        flash(f"{name} is refused, and a smaller one is offered. Nothing is charged unless it is accepted.")
    else:
        flash(f"{name} is now {now.state.replace('_', ' ')}.")
    return redirect(url_for("inbox.listing"), 303)


def _act(decision: str, job_id: UUID, job: Mapping[str, Any]) -> None:
    actor, reason = current_actor(), _reason()
    match decision:
        case "approve":
            approval.approve(engine(), job_id, actor, reason, passkeys.given(actor))
        case "refuse":
            approval.refuse(engine(), job_id, actor, reason)
        case "ask":
            comments.say(engine(), job_id, actor, reason, asks=True)
        case _:
            with priceable():
                offers.offer(engine(), job_id, _changes(job, sent()), actor, reason)


def _reason() -> str:
    reason = read(Reason, {"reason": sent().get("reason", "")}).reason
    if not reason.strip():
        raise invalid("reason", "empty", "a sentence that says why")
    return reason


def _decision(allowed: tuple[str, ...]) -> str:
    decision = request.form.get("decision", "")
    if decision not in allowed:
        raise invalid("decision", repr(decision[:40]), ", ".join(allowed))
    return decision


# --- several requests ---------------------------------------------------------------------------


@pages.post("/inbox/selected/confirm")
@needs_role("steward")
def confirm_selected() -> BaseResponse:
    """Show the selected requests and the decision on a page of its own; nothing is done yet."""
    decision = _decision(_SEVERAL)
    try:
        jobs, reason = _selected(), _reason()
    except InvalidRequest as error:
        return _again("selected", error, selected=request.form.getlist("jobs"))
    page = render_template(
        "confirm.html",
        what=f"{decision} selected",
        jobs=jobs,
        action=url_for("inbox.decide_selected"),
        values={"decision": decision, "reason": reason},
        back="inbox.listing",
    )
    return Response(page)


@pages.post("/inbox/selected")
@needs_role("steward")
def decide_selected() -> BaseResponse:
    """Decide on the selected requests for one reason: each as if it were alone, the oldest first."""
    decision = _decision(_SEVERAL)
    try:
        jobs, reason = _selected(), _reason()
    except InvalidRequest as error:
        return _again("selected", error, selected=request.form.getlist("jobs"))
    problems = {job.id: _problem(decision, job.id, reason) for job in jobs}
    decided = [job for job, problem in problems.items() if problem is None]
    flash(f"{len(decided)} of {len(jobs)} decided.")
    for job, problem in problems.items():
        if problem is not None:
            flash(f"Job {job[:8]}: {problem}.", "problem")
    return redirect(url_for("inbox.listing"), 303)


def _selected() -> list[Job]:
    """Return the selected jobs, the oldest first. Raises InvalidRequest if there are none or too many."""
    ids = dict.fromkeys(read_id(text) for text in request.form.getlist("jobs"))
    if not 1 <= len(ids) <= PAGE:
        raise invalid("jobs", f"{len(ids)} selected", f"from 1 to {PAGE}")
    jobs = [job_queries.job(engine(), job_id, current_actor()) for job_id in ids]
    return sorted(jobs, key=lambda job: (job.created_at, job.id))


def _problem(decision: str, job: str, reason: str) -> str | None:
    """Decide on one job, and return what prevents it. The other jobs are decided all the same."""
    act = {"approve": approval.approve, "refuse": approval.refuse}[decision]
    try:
        act(engine(), read_id(job), current_actor(), reason)
    except ExchequerError as error:
        return str(error)
    state = job_queries.job(engine(), read_id(job), current_actor()).state
    return "it is refused, as it does not fit" if decision == "approve" and state == "refused" else None


# --- offers and proposals -----------------------------------------------------------------------


@pages.post("/inbox/offers/<offer>")
@needs_role("steward")
def withdraw(offer: str) -> BaseResponse:
    """Take an offer back, for a reason."""
    offer_id = read_id(offer, "offer")
    try:
        offers.withdraw(engine(), offer_id, current_actor(), _reason())
    except InvalidRequest as error:
        return _again(offer_id, error)
    except Conflict as error:
        flash(f"Somebody was faster: {error}.", "problem")
    else:
        flash("The offer is withdrawn. The request that it answered stays refused.")
    return redirect(url_for("inbox.listing"), 303)


@pages.post("/inbox/proposals/<proposal>/confirm")
@needs_role("steward")
def confirm_proposal(proposal: str) -> BaseResponse:
    """The effect of confirming or withdrawing the proposal, on a page of its own."""
    proposal_id, decision = read_id(proposal, "proposal"), _decision(_SETTLES)
    found = proposal_queries.show(engine(), proposal_id, current_actor()).document()
    try:
        reason = _reason()
    except InvalidRequest as error:
        return _again(proposal_id, error)
    page = render_template(
        "confirm.html",
        what=f"{decision} proposal",
        proposal=found,
        policy_changes=policy_changes,
        allowance_change=allowance_change,
        action=url_for("inbox.settle", proposal=proposal_id),
        values={**sent(), "reason": reason},
        back="inbox.listing",
    )
    return Response(page)


@pages.post("/inbox/proposals/<proposal>")
@needs_role("steward")
def settle(proposal: str) -> BaseResponse:
    """Confirm or withdraw a proposal, for a reason."""
    proposal_id, decision = read_id(proposal, "proposal"), _decision(_SETTLES)
    asked = confirmation.first() if decision == "confirm" else None
    if asked is not None:
        return asked
    try:
        reason = read(Reason, {"reason": sent().get("reason", "")}).reason
        if decision == "confirm":
            actor = current_actor()
            proposals.confirm(engine(), proposal_id, actor, reason, passkeys.given(actor))
        else:
            proposals.withdraw(engine(), proposal_id, current_actor(), reason)
    except SignatureNeeded as needed:
        return passkeys.sign(needed, url_for("inbox.listing"))
    except (InvalidRequest, NotPermitted, Conflict) as error:
        return _again(proposal_id, error)
    flash("The proposal is confirmed." if decision == "confirm" else "The proposal is withdrawn.")
    return redirect(url_for("inbox.listing"), 303)


def _again(subject: UUID | str, error: ExchequerError, **more: Any) -> Response:
    page = render_template("inbox.html", **_page(subject, rejected(error), **more))
    return Response(page, status_of(error))
