"""Asking for a job: a form per mechanism, its price as one types, and what submitting would say.

fields ──schema──▶ parameters ──quote──▶ price here   ──preflight──▶ what would be sent back
"""

import json
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any
from uuid import uuid4

from flask import Blueprint, Response, redirect, render_template, request, url_for
from werkzeug.wrappers import Response as BaseResponse

from accountant.core import mechanisms
from accountant.core.errors import Conflict, FieldProblem, InvalidRequest, NotPermitted
from accountant.core.mechanisms import rehearsal
from accountant.core.mechanisms.base import GOALS, Mechanism
from accountant.core.mechanisms.fitting import size_of, sizes_of
from accountant.core.mechanisms.planning import PLANNED
from accountant.queries import datasets, jobs, preflight
from accountant.schema.jobs import JobInList
from accountant.transactions.job_requests import JobRequest
from web import documents
from web.api import proposals
from web.api.datasets import QuoteRequest, quote_for
from web.api.jobs import NewJob, request_of, submit_job
from web.api.parsing import read
from web.auth import current_actor, needs_role
from web.context import at_one_moment, engine
from web.meaning import guess
from web.views import job_form_defaults, rehearsals, schema_forms
from web.views.forms import Form, rejected, sent
from web.views.job_form_defaults import Start
from web.views.schema_forms import PREFIX, Input

pages = Blueprint("asking", __name__)

PROJECT_CHARACTERS = 200
#: Per cent of what is left that a fresh form asks for at most.
FRESH_SHARE = 10
#: What is tuned for nothing, by a job that reads what an earlier one released.
TUNED = ("temperature", "coefficient")
#: Kept when another mechanism is chosen: what has nothing to do with it.
_KEPT = ("purpose", "project", "key", "share")


@dataclass(frozen=True)
class Look:
    """The request as it looks now: what it buys, its price here, and what would be sent back.

    `part`: its part of what is left. `guess`: what it tells a guesser. `instead`: what fits where
    it is not worth it, by the name of a goal. Each is None or empty where it is not known.
    """

    quote: dict[str, Any] | None = None
    errors: tuple[FieldProblem, ...] = ()
    lacks: tuple[FieldProblem, ...] = ()
    rehearsal: dict[str, Any] | None = None
    part: float | None = None
    guess: str | None = None
    instead: Mapping[str, str] = field(default_factory=dict)
    seen: str = ""


@pages.get("/datasets/<name>/submit")
@needs_role("analyst", "steward")
@at_one_moment
def ask(name: str) -> str:
    """Show the form with defaults that fit, or filled from an earlier job or its artifacts."""
    start = job_form_defaults.read(current_actor(), name, request.args)
    return _started(name, start, {"key": str(uuid4())})


def _started(name: str, start: Start, more: Mapping[str, str]) -> str:
    values = {**start.values, **more}
    if start.is_fresh:
        return _begun(name, values, start.told)
    return _page(name, Form(values), start.told, wanted=start.wanted)


def _begun(name: str, values: dict[str, str], told: str) -> str:
    """Return a form of defaults, made smaller if they ask for too much of what is left."""
    values.setdefault("share", str(FRESH_SHARE))
    for share in (_share(values), 1.0):  # where nothing fits a part, the largest that fits at all
        try:
            refusal = _quote(name, values, share=share)["dataset"]["refusal"]
        except InvalidRequest:
            break
        largest = refusal.get("largest")
        if largest is not None:
            told = f"{told} {_sized(values, refusal['size_field'], largest, share)}"
        if not refusal or largest is not None:
            break
    return _page(name, Form(values), told)


@pages.post("/datasets/<name>/submit")
@needs_role("analyst", "steward")
def submit(name: str) -> BaseResponse:
    """Price, fit or submit: the same form with three buttons, so that it works without scripts."""
    values = sent()
    if values.get("counts"):  # they say how many batches there are, in place of any number
        fields = ("label_counts", "batches_per_label", "batches_to_run")
        values |= {PREFIX + field: "" for field in fields} | {PREFIX + fields[0]: values["counts"]}
    action = values.get("action", "price")
    switched = _switched(name, values)
    # whatever was pressed: the fields that were filled in are those of another
    if switched is not None:
        return Response(_started(name, switched, {}))
    if action == "price":
        look = _look(name, values)
        return Response(_page(name, Form(values, (*look.errors, *look.lacks)), look=look))
    if action == "fit":
        return _fit(name, values)
    rehearsing = action == "rehearse"
    datasets.dataset(engine(), name, current_actor())
    try:
        new_job = _rehearsal(name, values) if rehearsing else _new_job(name, values)
        key = None if rehearsing else values.get("key") or None
        earlier = None if rehearsing or values.get("again") else _just_asked(new_job, key)
        if earlier is not None:
            again = f"You have just asked for the same: {earlier.name}."
            again += " To make a second job, submit again."
            return Response(_page(name, Form({**values, "again": "1"}, general=again)), 409)
        if not rehearsing and _is_stale(name, values):
            changed = "The price has changed since you saw it. Read the new one, then ask again."
            return Response(_page(name, Form(values, general=changed)), 409)
        job_id = submit_job(new_job, key)
    except InvalidRequest as error:
        return Response(_page(name, rejected(error)), 422)
    except NotPermitted as error:
        return Response(_page(name, Form(values, general=str(error))), 403)
    except Conflict:
        # Back, a change and another click: that is a second job, and it needs a key of its own.
        again = "This form made a job already. To make another of what it says, submit again."
        return Response(_page(name, Form({**values, "key": str(uuid4())}, general=again)), 409)
    return redirect(url_for("jobs.show", job=job_id), 303)


def _is_stale(name: str, values: Mapping[str, str]) -> bool:
    """Return True if the form shows another price of this very request than it has now."""
    shown = values.get("seen", "")
    now = _seen(_quote(name, values)) if shown else ""
    return shown != now and shown.partition(".")[0] == now.partition(".")[0]


def _just_asked(job: NewJob, key: str | None) -> JobInList | None:
    """Return the job that this form may have made: after Back, a page has a new key."""
    try:
        identity = request_of(job).sha256()
    except (TypeError, ValueError):
        return None  # its price says what is wrong
    return jobs.just_asked(engine(), current_actor(), identity, key)


@pages.post("/datasets/<name>/price")
@needs_role("analyst", "steward")
@at_one_moment
def price(name: str) -> str:
    """The price of what the form says now, as a part of its page."""
    values = sent()
    switched = _switched(name, values)
    look = _look(name, values if switched is None else switched.values)
    return render_template("_price.html", **vars(look))


# --- what the form says -------------------------------------------------------------------------


def _mechanism(values: Mapping[str, str]) -> Mechanism[Any]:
    return mechanisms.get_runnable(values.get("mechanism") or job_form_defaults.DEFAULT_MECHANISM)


def _switched(name: str, values: Mapping[str, str]) -> job_form_defaults.Start | None:
    """Return the form of another mechanism, or of the one that is advised for another goal, with
    its own defaults.

    `of` and `for` are the mechanism and the goal whose fields the form holds. None: they still are.
    """
    chosen, actor = values.get("mechanism", ""), current_actor()
    goal, start, why = values.get("goal", ""), None, ""
    if values.get("for", goal) != goal:
        start = job_form_defaults.proposed(actor, name, goal)
        if start is None or start.is_hopeless:
            dataset = datasets.dataset(engine(), name, actor).document()
            choice = job_form_defaults.advised(goal, job_form_defaults.runnable(dataset))
            chosen = chosen if choice is None else choice.id
            start, why = None, "" if start is None else start.told
        else:
            chosen = start.values["mechanism"]
    if values.get("of", chosen) == chosen or chosen not in mechanisms.runnable():
        return None
    start = start or job_form_defaults.begin(actor, name, chosen, {})
    stated = {field: values[field] for field in _KEPT if field in values}
    return Start({**stated, **start.values}, why or start.told, start.is_fresh)


def _share(values: Mapping[str, str]) -> float:
    """Return the part of what is left to fit a request to; all of it if none is stated."""
    text = values.get("share", "").strip()
    return int(text) / 100 if text.isascii() and text.isdecimal() and 1 <= int(text) <= 100 else 1.0


def _new_job(name: str, values: Mapping[str, str]) -> NewJob:
    mechanism = _mechanism(values)
    raw: dict[str, Any] = {"dataset": name, "mechanism": mechanism.id}
    raw["parameters"] = schema_forms.stated(mechanism.schema, values)
    for field_name in ("project", "model"):
        raw[field_name] = values.get(field_name, "").strip() or None
    if not mechanism.uses_model:
        raw["model"] = None
    raw["purpose"] = values.get("purpose", "").strip()
    return read(NewJob, raw)


def _rehearsal(name: str, values: Mapping[str, str]) -> NewJob:
    """Return the same job on public texts; it needs no purpose."""
    job = _new_job(name, {**values, "purpose": values.get("purpose", "").strip() or "Rehearsal"})
    stated = {each: values[each].strip() or None for each in rehearsal.FIELDS if each in values}
    mechanism, parameters = rehearsal.request(job.mechanism, job.parameters, stated)
    return job.model_copy(update={"mechanism": mechanism, "parameters": parameters})


def _look(name: str, values: Mapping[str, str]) -> Look:
    """Return the price, or why there is none; and what submitting would send back."""
    try:
        quote = _quote(name, values)
    except InvalidRequest as error:
        return Look(errors=error.problems)
    mechanism = _mechanism(values)
    model = (values.get("model", "").strip() or None) if mechanism.uses_model else None
    stated = schema_forms.stated(mechanism.schema, values)
    job_request = JobRequest(name, mechanism.id, model, stated, project=_project(values))
    facts = {"dataset": name, "mechanism": mechanism.id, "model": model}
    (row,) = rehearsals.latest([{**facts, "parameters": quote["parameters"]}])
    here, outlook = quote["dataset"], quote.get("outlook")
    now, then = here.get("remaining"), here.get("remaining_after")
    refused = here["refusal"] and here["refusal"]["cap"] not in ("policy", "steward")
    lacking = refused or (outlook and outlook["verdict"] == "not enough")
    return Look(
        quote,
        lacks=preflight.problems(engine(), job_request, current_actor()),
        rehearsal=row,
        part=1 - then["share"] / now["share"] if now and then and now["share"] else None,
        guess=_guess(quote),
        instead=_instead(name, mechanism.goal) if lacking else {},
        seen=_seen(quote),
    )


def _guess(quote: Mapping[str, Any]) -> str | None:
    """Return what the request tells a guesser; None if no (ε, δ) bounds all that it tells."""
    dp = quote["dp"]
    if not dp or not dp["epsilon"] or quote["ex_post"] or quote["secret"]:
        return None
    return guess(dp["epsilon"], dp["delta"], quote["neighbours"], quote["dataset"]["unit"])


def _instead(name: str, goal: str) -> dict[str, str]:
    """Return what is worth asking for under other goals, by the name of the goal."""
    others = [other for other in PLANNED if other != goal]
    found = {other: proposals.proposal_for(name, other, current_actor()).output for other in others}
    return {other: output.sentence for other, output in found.items() if output is not None}


def _seen(quote: Mapping[str, Any]) -> str:
    """Return the request and its price in short: the form sends back which price was shown."""
    shown = (quote["dp"], quote["ex_post"], quote["secret"], quote["dataset"]["decision"])
    request = json.dumps([quote["mechanism"], quote["parameters"]], sort_keys=True)
    return ".".join(sha256(text.encode()).hexdigest() for text in (request, json.dumps(shown)))


def _quote(
    name: str, values: Mapping[str, str], fit: str | None = None, share: float | None = None
) -> dict[str, Any]:
    mechanism = _mechanism(values)
    parameters = schema_forms.stated(mechanism.schema, values)
    model, project = values.get("model", "").strip()[:200] or None, _project(values)
    about: dict[str, Any] = {"mechanism": mechanism.id, "model": model, "project": project}
    quote_request = QuoteRequest(**about, parameters=parameters, fit=fit, share=share)
    return quote_for(name, quote_request).document()


def _project(values: Mapping[str, str]) -> str | None:
    return values.get("project", "").strip()[:PROJECT_CHARACTERS] or None


def fitted_field(mechanism: Mechanism[Any], values: Mapping[str, str]) -> str | None:
    """Return the field that sets a request's size; None if it is free at any size."""
    if mechanism.public or mechanism.reads_output or values.get("parameters.from_job", "").strip():
        return None
    if values.get("parameters.aggregation") == "median" and "ex_post_cap" in mechanism.fields:
        return "ex_post_cap"
    stated = {"amplification": values.get("parameters.amplification")}
    return size_of(mechanism, stated)


def _fit(name: str, values: dict[str, str]) -> Response:
    """Return the size field at the share that is wanted of what the filters and caps have left."""
    mechanism = _mechanism(values)
    field = fitted_field(mechanism, values)
    if field is None:
        return Response(_page(name, Form(values), "This request is free: there is nothing to fit."))
    share, problem = _share(values), None
    sizes = sizes_of(mechanism, schema_forms.stated(mechanism.schema, values))
    for size in sizes if field in sizes else (field,):
        try:
            quote = _quote(name, values, fit=size, share=share)
        except InvalidRequest as error:
            problem = problem or error
            continue
        told = _sized(values, size, quote["fit"]["value"], share)
        return Response(_page(name, Form(values), told))
    assert problem is not None
    return Response(_page(name, rejected(problem)), 422)


def _sized(values: dict[str, str], size: str, found: int | float, share: float) -> str:
    """Put the size into the form, and what it replaces out; returns what was done, in words."""
    values |= job_form_defaults.sized(_mechanism(values), size, found)
    of = "what is left" if share == 1 else f"{share:.0%} of what is left".replace("%", " %")
    return f"{size.replace('_', ' ').capitalize()} is {found:,}: the most that {of} allows."


# --- the page -----------------------------------------------------------------------------------


def _page(name: str, form: Form, told: str = "", look: Look | None = None, wanted: str = "") -> str:
    actor = current_actor()
    dataset = datasets.dataset(engine(), name, actor).document()
    try:
        mechanism = _mechanism(form.values)
    except InvalidRequest as error:
        default = {"mechanism": job_form_defaults.DEFAULT_MECHANISM}
        form = Form({**form.values, **default}, (*form.problems, *error.problems))
        mechanism = _mechanism(form.values)
    offered = job_form_defaults.offered(actor, dataset, mechanism)
    inputs = [offered.choice(field, form) for field in schema_forms.inputs(mechanism.schema)]
    fields = _used(mechanism, inputs, form)
    by_name = {field.name: field for field in fields}
    order = [PREFIX + part for part in mechanism.plain.split() or [mechanism.size_field]]
    if form.value(PREFIX + "from_job"):
        order += [PREFIX + each for each in TUNED]
    others = [field for field in fields if field.kind != "fixed" and field.name not in order]
    runnable = job_form_defaults.runnable(dataset)
    groups = schema_forms.grouped(others, _wanting(others, form), _changed(others, form))
    offered_goals = {each.goal for each in runnable}
    look = look or _look(name, form.values)
    costs = look.quote is None or look.quote["dp"] is None or look.quote["dp"]["epsilon"]
    return render_template(
        "submit.html",
        dataset=dataset,
        form=form,
        told=told,
        besides=_instead(name, wanted) if wanted else {},
        mechanism=mechanism,
        mechanisms=runnable,
        goals={goal: title for goal, title in GOALS.items() if goal in offered_goals},
        plain=[by_name[each] for each in order if each in by_name],
        share=form.value("share", "100"),
        about=about if documents.is_there(about := f"mechanisms/{mechanism.id}") else "",
        reloads={PREFIX + need.partition("=")[0] for need in mechanism.needs},
        models=offered.models,
        counts_published=offered.counts,
        earlier=offered.earlier,
        groups=groups,
        expert=any(group.is_open for group in groups)
        or any(form.problem(each) for each in ("mechanism", "model"))
        or (mechanism.uses_model and not offered.models),
        fixed=[field for field in fields if field.kind == "fixed"],
        size=fitted_field(mechanism, form.values) if costs else None,
        elsewhere=form.elsewhere([*by_name, "model", "purpose", "project"]),
        corpora=rehearsals.ready_corpora() if rehearsals.rehearsable(mechanism.id) else (),
        embeddings=offered.embeddings,
        **vars(look),
    )


def _used(mechanism: Mechanism[Any], fields: list[Input], form: Form) -> list[Input]:
    """Return the inputs that the request uses as it stands: another choice brings others."""
    own = {field.name.removeprefix(PREFIX): field for field in fields}
    stated = {name: form.value(field.name, field.default) for name, field in own.items()}
    used = set(mechanism.used_fields(stated))
    return [field for name, field in own.items() if name.partition(".")[0] in used]


def _wanting(fields: list[Input], form: Form) -> frozenset[str]:
    """Return inputs with a problem or a gap: a browser sends no form that hides one."""
    return frozenset(
        field.name
        for field in fields
        if form.problem(field.name)
        or (field.required and not form.value(field.name, field.default).strip())
    )


def _changed(fields: list[Input], form: Form) -> dict[str, str]:
    """Return what differs from its default, with the start of its value."""
    values = {field.name: form.value(field.name, field.default) for field in fields}
    differing = [field.name for field in fields if values[field.name] != field.default]
    return {
        name: textwrap.shorten(values[name], 40, placeholder=" …") or "nothing"
        for name in differing
    }
