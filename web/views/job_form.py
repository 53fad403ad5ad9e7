"""Asking for a job: a form per mechanism, its price as one types, and what submitting would say.

fields ──schema──▶ parameters ──quote──▶ price here   ──preflight──▶ what would be sent back
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from flask import Blueprint, Response, redirect, render_template, request, url_for
from werkzeug.wrappers import Response as BaseResponse

from accountant.core import mechanisms
from accountant.core.errors import Conflict, FieldProblem, InvalidRequest, NotPermitted
from accountant.core.mechanisms.base import Mechanism
from accountant.core.mechanisms.fitting import size_of
from accountant.queries import datasets, preflight
from accountant.transactions.job_requests import JobRequest
from web.api.datasets import QuoteRequest, quote_for
from web.api.jobs import NewJob, submit_job
from web.api.parsing import read
from web.auth import current_actor, needs_role
from web.context import engine
from web.views import job_form_defaults, schema_forms
from web.views.forms import Form, rejected, sent

pages = Blueprint("asking", __name__)

DEFAULT_MECHANISM = "private-prediction"
PROJECT_CHARACTERS = 200


@dataclass(frozen=True)
class Look:
    """The request as it looks now: its price here, and what would be sent back."""

    quote: dict[str, Any] | None = None
    errors: tuple[FieldProblem, ...] = ()
    lacks: tuple[FieldProblem, ...] = ()


@pages.get("/datasets/<name>/submit")
@needs_role("analyst", "steward")
def ask(name: str) -> str:
    """The form of a request: with defaults that fit, or filled from an earlier job or its artifacts."""
    start = job_form_defaults.read(current_actor(), name, request.args)
    values = {**start.values, "key": str(uuid4())}
    look = _look(name, values)
    refusal = {} if look.quote is None else look.quote["dataset"]["refusal"]
    if start.is_fresh and refusal.get("largest") is not None:  # defaults that would be refused help nobody
        size, largest = refusal["size_field"], refusal["largest"]
        told = f"{start.told} {_sized(_mechanism(values), values, size, largest)}"
        return _page(name, Form(values), told)
    return _page(name, Form(values), start.told, look)


@pages.post("/datasets/<name>/submit")
@needs_role("analyst", "steward")
def submit(name: str) -> BaseResponse:
    """Price, fit or submit: the same form with three buttons, so that it works without scripts."""
    values = sent()
    action = values.get("action", "price")
    if action == "price":
        look = _look(name, values)
        return Response(_page(name, Form(values, (*look.errors, *look.lacks)), look=look))
    if action == "fit":
        return _fit(name, values)
    datasets.dataset(engine(), name, current_actor())
    try:
        job_id = submit_job(_new_job(name, values), values.get("key") or None)
    except InvalidRequest as error:
        return Response(_page(name, rejected(error)), 422)
    except NotPermitted as error:
        return Response(_page(name, Form(values, general=str(error))), 403)
    except Conflict:
        # Back, a change and another click: that is a second job, and it needs a key of its own.
        again = "This form made a job already. To make a second one of what it says now, submit again."
        return Response(_page(name, Form({**values, "key": str(uuid4())}, general=again)), 409)
    return redirect(url_for("jobs.show", job=job_id), 303)


@pages.post("/datasets/<name>/price")
@needs_role("analyst", "steward")
def price(name: str) -> str:
    """The price of what the form says now, as a part of its page."""
    return render_template("_price.html", **vars(_look(name, sent())))


# --- what the form says -------------------------------------------------------------------------


def _mechanism(values: Mapping[str, str]) -> Mechanism[Any]:
    return mechanisms.get_runnable(values.get("mechanism") or DEFAULT_MECHANISM)


def _new_job(name: str, values: Mapping[str, str]) -> NewJob:
    mechanism = _mechanism(values)
    raw: dict[str, Any] = {"dataset": name, "mechanism": mechanism.id}
    raw["parameters"] = schema_forms.parameters(mechanism, values)
    for field_name in ("project", "model"):
        raw[field_name] = values.get(field_name, "").strip() or None
    if not mechanism.uses_model:
        raw["model"] = None
    raw["purpose"] = values.get("purpose", "").strip()
    found = read(NewJob, raw)
    if not found.purpose:
        raise InvalidRequest([FieldProblem("purpose", "empty", "a sentence: what the output is for")])
    return found


def _look(name: str, values: Mapping[str, str]) -> Look:
    """The price, or why there is none; and what submitting would send back."""
    try:
        quote = _quote(name, values)
    except InvalidRequest as error:
        return Look(errors=error.problems)
    mechanism = _mechanism(values)
    asked = JobRequest(
        name,
        mechanism.id,
        (values.get("model", "").strip() or None) if mechanism.uses_model else None,
        schema_forms.parameters(mechanism, values),
        project=_project(values),
    )
    return Look(quote, lacks=preflight.problems(engine(), asked, current_actor()))


def _quote(name: str, values: Mapping[str, str], fit: str | None = None) -> dict[str, Any]:
    mechanism = _mechanism(values)
    stated = schema_forms.parameters(mechanism, values)
    asked = QuoteRequest(mechanism=mechanism.id, parameters=stated, fit=fit, project=_project(values))
    return quote_for(name, asked).document()


def _project(values: Mapping[str, str]) -> str | None:
    return values.get("project", "").strip()[:PROJECT_CHARACTERS] or None


def fitted_field(mechanism: Mechanism[Any], values: Mapping[str, str]) -> str | None:
    """Return the field that makes a request larger or smaller; None if the request is free at any size."""
    if mechanism.public or mechanism.reads_output or values.get("parameters.from_job", "").strip():
        return None
    if values.get("parameters.aggregation") == "median" and "ex_post_cap" in mechanism.fields:
        return "ex_post_cap"
    stated = {"amplification": values.get("parameters.amplification")}
    return size_of(mechanism, stated)


def _fit(name: str, values: dict[str, str]) -> Response:
    """The size field at what the filters and caps have left."""
    mechanism = _mechanism(values)
    size = fitted_field(mechanism, values)
    if size is None:
        return Response(_page(name, Form(values), "This request is free: there is nothing to fit."))
    try:
        quote = _quote(name, values, fit=size)
    except InvalidRequest as error:
        return Response(_page(name, rejected(error)), 422)
    told = _sized(mechanism, values, size, quote["fit"]["value"])
    return Response(_page(name, Form(values), told))


def _sized(mechanism: Mechanism[Any], values: dict[str, str], size: str, found: int | float) -> str:
    """Put the size into the form, and what it replaces out; returns what was done, in words."""
    values |= job_form_defaults.sized(mechanism, size, found)
    return f"{size.replace('_', ' ').capitalize()} is {found:,}: the most that what is left allows."


# --- the page -----------------------------------------------------------------------------------


def _page(name: str, form: Form, told: str = "", look: Look | None = None) -> str:
    actor = current_actor()
    dataset = datasets.dataset(engine(), name, actor).document()
    try:
        mechanism = _mechanism(form.values)
    except InvalidRequest as error:
        form = Form({**form.values, "mechanism": DEFAULT_MECHANISM}, (*form.problems, *error.problems))
        mechanism = _mechanism(form.values)
    offered = job_form_defaults.offered(actor, dataset, mechanism)
    fields = offered.choices(schema_forms.inputs(mechanism.schema), form)
    names = [each.name for each in fields]
    look = look or _look(name, form.values)
    size = fitted_field(mechanism, form.values)
    return render_template(
        "submit.html",
        dataset=dataset,
        form=form,
        told=told,
        mechanism=mechanism,
        mechanisms=_runnable(dataset),
        models=offered.models,
        earlier=offered.earlier,
        groups=schema_forms.grouped([each for each in fields if each.kind != "fixed"], _busy(fields, form)),
        fixed=[each for each in fields if each.kind == "fixed"],
        size=size if look.quote is None or look.quote["dp"] is None or look.quote["dp"]["epsilon"] else None,
        elsewhere=form.elsewhere([*names, "model", "purpose", "project"]),
        **vars(look),
    )


def _runnable(dataset: Mapping[str, Any]) -> list[Mechanism[Any]]:
    """The mechanisms that run here and that the dataset's policy admits."""
    admitted = dataset["policy"]["mechanisms"]
    found = list(mechanisms.runnable().values())
    return [each for each in found if not admitted or each.id in admitted]


def _busy(fields: tuple[schema_forms.Input, ...], form: Form) -> frozenset[str]:
    """Inputs that are not as they come: their groups stand open."""
    return frozenset(
        each.name
        for each in fields
        if form.problem(each.name) or form.value(each.name, each.default) != each.default
    )
