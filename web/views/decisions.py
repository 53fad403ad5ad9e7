"""Decisions on pages: the inbox, one decision, and the answer to it.

Each answer is confirmed; with scripts in a dialog, without on a page of its own (`confirm`), which
changes nothing.
"""

import re
from collections.abc import Mapping, Sequence
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
    NotFound,
    NotPermitted,
    SignatureNeeded,
    invalid,
)
from accountant.core.names import FILTER_NAMES
from accountant.queries import comments as comment_queries
from accountant.queries import decisions, effects
from accountant.queries import jobs as job_queries
from accountant.schema.base import documents
from accountant.transactions import answers, comments, offers
from accountant.transactions.asking import words
from web import confirmation, passkeys
from web.api.decisions import ORDER, priceable
from web.api.paging import cut, read_window
from web.api.parsing import read_id
from web.auth import current_actor, needs_role
from web.context import engine
from web.errors import status_of, without_prefix
from web.meaning import guess, meaning, step_of
from web.views import rehearsals
from web.views.forms import BLANK, Form, rejected, sent
from web.views.policies import policy_changes
from web.views.schema_forms import PREFIX, Input, inputs, stated

pages = Blueprint("decisions", __name__)

PAGE = 20
_ID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
#: Texts of a rehearsal that a card shows.
SAMPLES = 3
ANSWERS = ("yes", "no")
#: Of a job that awaits approval: a smaller one, its price alone, and a question to its analyst.
_OF_JOBS = ("offer", "price", "ask")
#: An offer changes sizes; what a text says, or what is read, stays as it was asked for.
_OFFERABLE = ("number",)

# --- the inbox and one decision -----------------------------------------------------------------


@pages.get("/inbox")
@needs_role("steward")
def listing(form: Form = BLANK, selected: Sequence[str] = ()) -> str:
    """Show what waits for a second person, oldest first; the page stands in the address."""
    window = read_window(ORDER, PAGE)
    pending, following = cut(decisions.listing(engine(), current_actor(), **window.reads), window)
    shown = ",".join(decision["id"] for decision in pending)
    return _page(pending, following=following, shown=shown, several=form, selected=selected)


@pages.get("/inbox/changes")
@needs_role("steward")
def changes() -> str:
    """Show what changed since the page was made: what was answered elsewhere goes, new ones are
    announced.

    The page is not loaded again: somebody may be writing a reason.
    """
    shown = [text for text in request.args.get("shown", "").split(",") if text][:PAGE]
    window = read_window(ORDER, PAGE)
    pending = decisions.listing(engine(), current_actor(), **window.reads, with_effects=False)
    now = [decision.id for decision in pending]
    gone = [text for text in shown if _ID.fullmatch(text) and text not in now]
    new = set(now[:PAGE]) - set(shown)
    return render_template("_inbox_changes.html", gone=gone, new=len(new))


@pages.get("/decisions/<decision>")
def show(decision: str) -> str:
    """Show one decision, with the form to answer it."""
    return _page([_decision(read_id(decision, "decision"))])


def _decision(decision_id: UUID) -> dict[str, Any]:
    return decisions.show(engine(), decision_id, current_actor()).document()


def _page(
    found: Sequence[Mapping[str, Any]], form: Form | None = None, price: Any = None, **more: Any
) -> str:
    """Return the page of these decisions, with a form as it was sent for the only one of them."""
    return render_template("decisions.html", items=_items(found), form=form, price=price, **more)


def _items(found: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return what the templates show of each decision."""
    waiting = [each["request"] for each in found if each["request"] and each["may_say"]]
    comments_by_job = comment_queries.of_jobs(engine(), [job["id"] for job in waiting])
    reports = rehearsals.latest(waiting, samples=SAMPLES)
    rehearsed = dict(zip((job["id"] for job in waiting), reports, strict=True))
    records = job_queries.before(engine(), rehearsed)
    return [
        {
            "decision": decision,
            "inputs": offer_inputs(decision["request"]) if decision["id"] in rehearsed else (),
            "comments": documents(comments_by_job.get(decision["id"], ())),
            "rehearsal": rehearsed.get(decision["id"]),
            "guess": _guess(decision),
            "unusual": _unusual(decision, records.get(decision["id"])),
            "meaning": _meaning(decision),
            "policy_changes": policy_changes(*map(decision["asked"].get, ("replaces", "policy"))),
        }
        for decision in found
    ]


def _guess(decision: Mapping[str, Any]) -> str | None:
    """Return what a job alone tells a guesser; None if it tells nothing, or nothing bounds it."""
    job, effect = decision["request"] or decision["offer"], decision["effect"]
    if not job or not effect or not job["epsilon_alone"] or job["parameters"].get("ex_post_cap"):
        return None
    neighbours = job["terms"]["neighbours"]
    return guess(job["epsilon_alone"], job["delta"], neighbours, effect["unit"])


def _unusual(decision: Mapping[str, Any], record: job_queries.Record | None) -> list[str]:
    """Return what a steward should look at twice, a sentence each."""
    job, effect = decision["request"], decision["effect"]
    if job is None or record is None:
        return []
    found, epsilon = [], job["epsilon_alone"] or 0
    if record.asked == 0:
        found.append(f"It is the first job of {job['analyst']} on this dataset.")
    if record.largest is not None and epsilon > record.largest:
        found.append("It is the largest job on this dataset so far.")
    if epsilon and (step := step_of(epsilon)).tone != "good":
        found.append(f"Its protection is {step.level}: ε {epsilon:.3g} is {step.words}.")
    for row in (effect or {}).get("filters", ()):
        if row["after"] is None and not row["closed"]:
            name = FILTER_NAMES[row["kind"]]
            found.append(f"The filter {name} can't count it, and closes for good.")
    return found


def _meaning(decision: Mapping[str, Any]) -> Any:
    """Return what the figures of a proposed allowance mean: all that its proposer was shown."""
    change, asked = decision["change"], decision["asked"]
    if not change or asked.get("epsilon") is None:
        return None
    return meaning(asked["epsilon"], asked["delta"], change["neighbours"], change["unit"])


def open_offers() -> dict[str, Any]:
    """Return the viewer's open offers, for a page that shows them beside another list."""
    window = read_window(ORDER, PAGE, parameter="offers")
    wanted, how = decisions.Wanted(kind="offer", mine=True), {**window.reads, "with_effects": False}
    pending, following = cut(decisions.listing(engine(), current_actor(), wanted, **how), window)
    return {"offers": pending, "more_offers": following}


def about_job(job: UUID) -> dict[str, Any]:
    """Return the offer that answered a job, for its page; nothing if there is none."""
    wanted = decisions.Wanted(state=None, kind="offer", job=job)
    about = documents(decisions.listing(engine(), current_actor(), wanted, limit=1))
    return {"item": _items(about)[0]} if about else {}


# --- offers -------------------------------------------------------------------------------------


def offer_inputs(job: Mapping[str, Any]) -> tuple[Input, ...]:
    """Return the inputs of an offer, the size first: of what was asked for alone."""
    offered = [PREFIX + name for name in job["parameters"]]
    return tuple(field for field in _offerable(job["mechanism"]) if field.name in offered)


@cache
def _offerable(mechanism_id: str) -> tuple[Input, ...]:
    mechanism = mechanisms.get(mechanism_id)
    fields = [field for field in inputs(mechanism.schema) if field.kind in _OFFERABLE]
    return tuple(sorted(fields, key=lambda field: field.name != PREFIX + mechanism.size_field))


def _changes(job: Mapping[str, Any], values: Mapping[str, str]) -> dict[str, Any]:
    """Return the parameters in a form of an offer that differ from those asked for."""
    held = {field.name: values[field.name] for field in offer_inputs(job) if field.name in values}
    emptied = [name.removeprefix(PREFIX) for name, text in held.items() if not text.strip()]
    offered = stated(mechanisms.get(job["mechanism"]).schema, held) | dict.fromkeys(emptied)
    asked = job["parameters"]
    return {name: value for name, value in offered.items() if value != asked.get(name)}


@pages.post("/decisions/<decision>/price")
@needs_role("steward")
def price(decision: str) -> str:
    """Show the price of the offer that the form says now, as a part of its page."""
    document = job_queries.job(engine(), read_id(decision), current_actor()).document()
    return render_template("_offer_price.html", **_priced(document, sent()))


def _priced(job: Mapping[str, Any], values: Mapping[str, str]) -> dict[str, Any]:
    changed, found = _changes(job, values), {"quote": None, "errors": (), "job": job}
    if not changed:
        return found
    try:
        with priceable():
            quote = effects.price_offer(engine(), current_actor(), job, changed).document()
    except InvalidRequest as error:
        return {**found, "errors": without_prefix(error, PREFIX).problems}
    return {**found, "quote": quote}


# --- one answer ---------------------------------------------------------------------------------


@pages.post("/decisions/<decision>/confirm")
def confirm(decision: str) -> BaseResponse:
    """Show the effect of the answer on a page of its own; nothing is done yet."""
    decision_id = read_id(decision, "decision")
    pending, values, quote = _decision(decision_id), sent(), None
    reply = _said((*ANSWERS, "offer") if pending["request"] else ANSWERS)
    try:
        _reason(pending, reply)
        if reply == "offer":
            quote = _priced(pending["request"], values)["quote"]
            if quote is None:
                problem = "nothing differs, or a field is wrong"
                raise invalid("parameters", problem, "a smaller size")
    except InvalidRequest as error:
        return _again(pending, error)
    where = url_for("decisions.answer", decision=decision_id)
    return _confirmed([pending], reply, where, values, quote=quote)


def _confirmed(
    found: Sequence[Mapping[str, Any]],
    said: str,
    action: str,
    values: Mapping[str, str],
    **more: Any,
) -> Response:
    named = {"items": _items(found), "said": said, "action": action, "values": values}
    return Response(render_template("confirm.html", **named, **more))


@pages.post("/decisions/<decision>")
def answer(decision: str) -> BaseResponse:
    """Answer a decision. On a job, also offer a smaller one, price that, or ask back."""
    decision_id = read_id(decision, "decision")
    pending = _decision(decision_id)
    reply = _said((*ANSWERS, *_OF_JOBS) if pending["request"] else ANSWERS)
    if reply == "price":
        return Response(_page([pending], Form(sent()), _priced(pending["request"], sent())))
    sensitive = reply == "yes" and answers.KINDS[pending["kind"]].is_sensitive
    if sensitive and (first := confirmation.first()) is not None:
        return first
    try:
        message, job_id = _act(pending, decision_id, reply)
    except SignatureNeeded as needed:
        return passkeys.sign(needed, _back(pending))
    except (InvalidRequest, NotPermitted) as error:
        return _again(pending, error)
    except Conflict as error:
        flash(f"Nothing was decided: {error}.", "problem")
        return redirect(_back(pending), 303)
    flash(message)
    is_own = pending["kind"] == "offer" and pending["offer"]["analyst"] == current_actor().name
    where = url_for("jobs.show", job=job_id) if is_own and job_id else _back(pending)
    return redirect(where, 303)


def _act(found: Mapping[str, Any], decision_id: UUID, said: str) -> tuple[str, UUID | None]:
    """Do what was said, and return what happened and the job that it made."""
    actor, reason = current_actor(), _reason(found, said)
    asker, job = found["asked_by"], found["request"]
    if said == "ask":
        comments.say(engine(), decision_id, actor, reason, asks=True)
        message = f"Your question is sent: it waits for {asker}."
        return f"{message} You can decide all the same.", None
    if said == "offer":
        with priceable():
            offers.offer(engine(), decision_id, _changes(job, sent()), actor, reason)
        message = f"The job of {asker} is refused, and a smaller one is offered."
        return f"{message} Nothing is charged unless it is accepted.", None
    signature = passkeys.given(actor)
    result = answers.answer(engine(), decision_id, actor, said == "yes", reason, signature)
    if said == "no":
        return "Nothing is changed or charged by it: it is closed.", None
    if result.decision is not None:
        message = "Accepted. Another steward answers the change of the policy, which waits below."
        return message, None
    if result.job is not None:
        made = job_queries.job(engine(), result.job, actor)
        return f"{made.name} is now {made.state.replace('_', ' ')}.", result.job
    return "Accepted: it stands now.", None


def _back(found: Mapping[str, Any]) -> str:
    """Return the address to go on from: stewards have an inbox, others a job or a dataset."""
    if "steward" in current_actor().roles:
        return url_for("decisions.listing")
    if found["job"] is not None:
        return url_for("jobs.show", job=found["job"])
    return url_for("datasets.show", name=found["dataset"])


def _reason(found: Mapping[str, Any], said: str) -> str:
    """Return the reason in the form. Raises InvalidRequest if there has to be one and is none."""
    reason = sent().get("reason", "")
    return reason.strip() if found["kind"] == "offer" and said in ANSWERS else words(reason)


def _said(allowed: tuple[str, ...]) -> str:
    answer = request.form.get("answer", "")
    if answer not in allowed:
        raise invalid("answer", repr(answer[:40]), ", ".join(allowed))
    return answer


def _again(found: Mapping[str, Any], error: ExchequerError) -> Response:
    return Response(_page([found], rejected(error)), status_of(error))


# --- several answers ----------------------------------------------------------------------------


@pages.post("/inbox/selected/confirm", endpoint="confirm_selected", defaults={"confirming": True})
@pages.post("/inbox/selected", endpoint="answer_selected", defaults={"confirming": False})
@needs_role("steward")
def several(confirming: bool) -> BaseResponse:
    """Answer the selected decisions for one reason, the oldest first, or show what would be done.

    Each is answered as if it were alone.
    """
    reply, ids = _said(ANSWERS), list(dict.fromkeys(request.form.getlist("ids")))
    try:
        reason = words(sent().get("reason", ""))
        if not 1 <= len(ids) <= PAGE:
            raise invalid("ids", f"{len(ids)} selected", f"from 1 to {PAGE}")
        pending = [_decision(read_id(text, "decision")) for text in ids]
    except InvalidRequest as error:
        return Response(listing(rejected(error), ids), 422)
    pending.sort(key=lambda decision: (decision["created_at"], decision["id"]))
    if confirming:
        return _confirmed(pending, reply, url_for("decisions.answer_selected"), sent())
    sensitive = reply == "yes" and any(
        answers.KINDS[decision["kind"]].is_sensitive for decision in pending
    )
    if sensitive and (first := confirmation.first()) is not None:
        return first
    problems = [_problem(decision["id"], reply, reason) for decision in pending]
    flash(f"{problems.count(None)} of {len(pending)} answered.")
    for decision, problem in zip(pending, problems, strict=True):
        if problem is not None:
            name = (decision["request"] or {}).get("name", decision["asks"])
            flash(f"{name}: {problem}.", "problem")
    return redirect(url_for("decisions.listing"), 303)


def _problem(decision_id: str, said: str, reason: str) -> str | None:
    """Answer one decision, and return what prevents it. The others are answered all the same."""
    try:
        answers.answer(engine(), UUID(decision_id), current_actor(), said == "yes", reason)
        refused = decisions.show(engine(), UUID(decision_id), current_actor()).request
    except NotFound:
        return None
    except ExchequerError as error:
        return str(error)
    if said == "yes" and refused is not None and refused.state == "refused":
        return "it is refused, as it does not fit"
    return None
