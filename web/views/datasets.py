"""The catalogue, a dataset's page with its account and ledger, and asking for a job on it."""

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from flask import Blueprint, Response, flash, redirect, render_template, url_for
from flask_login import login_required
from werkzeug.wrappers import Response as BaseResponse

from accountant import artifacts, proposals, registry, reports, spending
from accountant.core import mechanisms
from accountant.core.admission import Policy
from accountant.core.errors import Conflict, InvalidRequest, NotPermitted
from web.api.bodies import read, read_seq
from web.api.datasets import Correction, NewAllowance, NewVersion, QuoteRequest, export_response, quote_for
from web.api.jobs import NewJob, submit_job
from web.app import engine
from web.auth import current_actor, needs_role
from web.errors import with_prefix, without_prefix
from web.views.forms import Form, inputs, lines, parameters, rejected, sent, whole

pages = Blueprint("datasets", __name__)

LEDGER_PAGE = 25
RECENT_JOBS = 8
DEFAULT_MECHANISM = "private-prediction"

# --- catalogue ----------------------------------------------------------------------------------


@pages.get("/")
@login_required
def catalogue() -> str:
    """Every dataset with what is left of its allowance."""
    return render_template("datasets.html", datasets=reports.datasets(engine(), current_actor()))


@pages.get("/add-dataset")
@login_required
@needs_role("steward")
def new() -> str:
    """The form of a declaration."""
    return render_template("dataset_new.html", form=Form())


@pages.post("/datasets")
@login_required
@needs_role("steward")
def add() -> BaseResponse:
    """Register a dataset, or show the form again."""
    try:
        spec = registry.read_dataset(_declaration(sent()))
        registry.add_dataset(engine(), spec, current_actor())
    except InvalidRequest as error:
        return Response(render_template("dataset_new.html", form=rejected(error)), 422)
    except Conflict as error:
        form = Form(sent(), general=str(error))
        return Response(render_template("dataset_new.html", form=form), 409)
    flash(f"{spec.name} is registered. A worker now reads its data through.")
    return redirect(url_for("datasets.show", name=spec.name), 303)


def _declaration(values: Mapping[str, str]) -> dict[str, Any]:
    """The form of a declaration as the API takes it."""
    return {
        "name": values.get("name", "").strip(),
        "uri": values.get("uri", "").strip(),
        "description": values.get("description", "").strip(),
        "neighbours": values.get("neighbours", ""),
        "unit_column": values.get("unit_column", "").strip() or None,
        "max_records_per_unit": whole(values.get("max_records_per_unit", "")) or 1,
        "public_size": whole(values.get("public_size", "").replace(",", "")),
        "label_column": values.get("label_column", "").strip() or None,
        "labels": lines(values.get("labels", "")),
        "text_template": values.get("text_template", ""),
        "policy": _policy(values),
    }


def _policy(values: Mapping[str, str]) -> dict[str, Any]:
    return {
        "auto_approve_epsilon": values.get("policy.auto_approve_epsilon", "").strip() or "0",
        "solo": "policy.solo" in values,
        "share_artifacts": "policy.share_artifacts" in values,
        "two_people": "policy.two_people" in values,
        "approval_days": whole(values.get("policy.approval_days", "")),
        **{
            name: values.get(f"policy.{name}", "").strip() or None
            for name in ("analyst_epsilon", "project_epsilon")
        },
        "charge_each_attempt": "policy.charge_each_attempt" in values,
        "time_limit_seconds": whole(values.get("policy.time_limit_seconds", "").replace(",", "")),
        **{name: lines(values.get(f"policy.{name}", "")) for name in ("mechanisms", "analysts", "models")},
    }


# --- one dataset --------------------------------------------------------------------------------


@pages.get("/datasets/<name>")
@login_required
def show(name: str) -> str:
    """Public facts, account, jobs, and for stewards and auditors the ledger."""
    return _page(name)


def _page(name: str, **forms: Form) -> str:
    actor = current_actor()
    dataset = reports.dataset(engine(), name, actor)
    overseer = bool(actor.roles & artifacts.OVERSEERS)
    before = read_seq()
    entries = []
    if overseer:
        entries = reports.entries(engine(), name, actor, before=before, limit=LEDGER_PAGE)
    empty = Form()
    return render_template(
        "dataset.html",
        dataset=dataset,
        figures=spending.figures(engine(), name, actor),
        jobs=reports.jobs(engine(), actor, dataset=name, limit=RECENT_JOBS),
        overseer=overseer,
        entries=entries,
        ex_post=reports.ex_post(engine(), name, actor) if overseer else [],
        ex_post_note=reports.EX_POST_NOTE,
        before=before,
        allowance_form=forms.get("allowance", empty),
        policy_form=forms.get("policy", empty),
        data_form=forms.get("data", empty),
        version_form=forms.get("version", empty),
    )


@pages.post("/datasets/<name>/allowance")
@login_required
@needs_role("steward")
def allow(name: str) -> BaseResponse:
    """Set the allowance, for a reason."""
    values = sent()
    try:
        asked = {field: values.get(field, "").strip() for field in ("epsilon", "delta", "reason")}
        body = read(NewAllowance, asked)
        proposal = proposals.allow_or_propose(engine(), name, body.allowance(), current_actor())
    except InvalidRequest as error:
        return Response(_page(name, allowance=rejected(error)), 422)
    except Conflict as error:
        return Response(_page(name, allowance=Form(values, general=str(error))), 409)
    if proposal is not None:
        flash("A raise needs two people here: another steward confirms it in the inbox.")
        return redirect(url_for("datasets.show", name=name), 303)
    flash(f"The allowance of {name} is now ε {body.epsilon}, δ {body.delta}.")
    return redirect(url_for("datasets.show", name=name), 303)


@pages.post("/datasets/<name>/policy")
@login_required
@needs_role("steward")
def set_policy(name: str) -> BaseResponse:
    """Replace the policy."""
    try:
        # What the form doesn't hold stays as it is.
        kept = reports.dataset(engine(), name, current_actor())["policy"]
        policy = read(Policy, kept | _policy(sent()))
        registry.set_policy(engine(), name, policy, current_actor())
    except InvalidRequest as error:
        shown = with_prefix(without_prefix(error, "policy."), "policy.")
        return Response(_page(name, policy=rejected(shown)), 422)
    flash(f"The policy of {name} is changed. Jobs decided before keep their decision.")
    return redirect(url_for("datasets.show", name=name), 303)


@pages.post("/datasets/<name>/data")
@login_required
@needs_role("steward")
def correct(name: str) -> BaseResponse:
    """Declare refused data again: its address, template and columns."""
    values = sent()
    unit, label = (values.get(field, "").strip() or None for field in ("unit_column", "label_column"))
    changes = {
        "uri": values.get("uri", "").strip(),
        "text_template": values.get("text_template", ""),
        "unit_column": unit,
        "max_records_per_unit": whole(values.get("max_records_per_unit", "")) or 1,
        "label_column": label,
        "labels": lines(values.get("labels", "")),
    }
    try:
        correction = read(Correction, changes).model_dump(exclude_unset=True)
        registry.correct_dataset(engine(), name, correction, current_actor())
    except InvalidRequest as error:
        return Response(_page(name, data=rejected(error)), 422)
    except Conflict as error:
        return Response(_page(name, data=Form(values, general=str(error))), 409)
    flash("A worker now reads the data through as it is declared now.")
    return redirect(url_for("datasets.show", name=name), 303)


@pages.post("/datasets/<name>/versions")
@login_required
@needs_role("steward")
def add_version(name: str) -> BaseResponse:
    """Add data on the same account; fields that are left empty stay as they were."""
    values = sent()
    fields = ("uri", "text_template", "unit_column", "label_column")
    given = {field: values.get(field, "").strip() for field in fields}
    try:
        version = read(NewVersion, {field: value for field, value in given.items() if value})
        registry.add_version(engine(), name, version.model_dump(exclude_none=True), current_actor())
    except InvalidRequest as error:
        return Response(_page(name, version=rejected(error)), 422)
    except Conflict as error:
        return Response(_page(name, version=Form(values, general=str(error))), 409)
    flash("A worker now reads the new version through. Jobs run on it once it is ready.")
    return redirect(url_for("datasets.show", name=name), 303)


@pages.get("/datasets/<name>/ledger.<form>")
@login_required
def export(name: str, form: str) -> Response:
    """The whole ledger as a file."""
    return export_response(name, form)


# --- asking for a job ---------------------------------------------------------------------------


@pages.get("/datasets/<name>/submit")
@login_required
@needs_role("analyst", "steward")
def ask(name: str) -> str:
    """The form of a request, with the price of its defaults."""
    return _ask_page(name, Form({"key": str(uuid4())}))


@pages.post("/datasets/<name>/submit")
@login_required
@needs_role("analyst", "steward")
def submit(name: str) -> BaseResponse:
    """Price, fit or submit: the same form with three buttons, so that it works without scripts."""
    values = sent()
    action = values.get("action", "price")
    if action == "price":
        return Response(_ask_page(name, Form(values)))
    if action == "fit":
        return _fit(name, values)
    reports.dataset(engine(), name, current_actor())
    try:
        job_id = submit_job(_new_job(name, values), values.get("key") or None)
    except InvalidRequest as error:
        return Response(_ask_page(name, rejected(error)), 422)
    except NotPermitted as error:
        return Response(_ask_page(name, Form(values, general=str(error))), 403)
    except Conflict:
        # Back, a change and another click: that is a second job, and it needs a key of its own.
        again = "This form made a job already. To make a second one of what it says now, submit again."
        return Response(_ask_page(name, Form({**values, "key": str(uuid4())}, general=again)), 409)
    return redirect(url_for("jobs.show", job=job_id), 303)


def _new_job(name: str, values: Mapping[str, str]) -> NewJob:
    mechanism = mechanisms.get(values.get("mechanism", DEFAULT_MECHANISM))
    stated = parameters(mechanism, values)
    raw: dict[str, Any] = {"dataset": name, "mechanism": mechanism.id, "parameters": stated}
    raw["project"] = values.get("project", "").strip() or None
    raw |= {"model": values.get("model", "").strip() or None, "purpose": values.get("purpose", "").strip()}
    return read(NewJob, raw)


@pages.post("/datasets/<name>/price")
@login_required
@needs_role("analyst", "steward")
def price(name: str) -> str:
    """The price of what the form says now, as a part of its page."""
    return render_template("_price.html", **_priced(name, sent()))


def _priced(name: str, values: Mapping[str, str]) -> dict[str, Any]:
    """What the part of the page that shows the price needs."""
    try:
        return {"quote": _quote(name, values), "errors": ()}
    except InvalidRequest as error:
        return {"quote": None, "errors": without_prefix(error, "parameters.").problems}


def _quote(name: str, values: Mapping[str, str], fit: str | None = None) -> dict[str, Any]:
    mechanism = mechanisms.get(values.get("mechanism", DEFAULT_MECHANISM))
    stated = parameters(mechanism, values)
    project = values.get("project", "").strip()[:200] or None
    return quote_for(name, QuoteRequest(mechanism=mechanism.id, parameters=stated, fit=fit, project=project))


def _fit(name: str, values: dict[str, str]) -> Response:
    """The size field at what the filters have left."""
    mechanism = mechanisms.get(values.get("mechanism", DEFAULT_MECHANISM))
    field = mechanism.size_field
    try:
        quote = _quote(name, values, fit=field)
    except InvalidRequest as error:
        return Response(_ask_page(name, rejected(error)), 422)
    for one, other in mechanism.parameters.either:  # the fitted one replaces what stood in its partner
        if field in (one, other):
            values[f"parameters.{other if field == one else one}"] = ""
    values[f"parameters.{field}"] = str(quote["fit"]["value"])
    return Response(_ask_page(name, Form(values)))


def _ask_page(name: str, form: Form) -> str:
    actor = current_actor()
    dataset = reports.dataset(engine(), name, actor)
    mechanism = mechanisms.get(form.value("mechanism", DEFAULT_MECHANISM))
    fields = inputs(mechanism)
    return render_template(
        "submit.html",
        dataset=dataset,
        form=form,
        mechanism=mechanism,
        mechanisms=[each for each in mechanisms.MECHANISMS.values() if each.id in mechanisms.RUNNABLE],
        models=[each for each in reports.models(engine(), actor) if each["state"] == "ready"],
        inputs=[each for each in fields if each.kind != "fixed"],
        fixed=[each for each in fields if each.kind == "fixed"],
        elsewhere=form.elsewhere([each.name for each in fields] + ["model", "purpose", "project"]),
        **_priced(name, form.values),
    )
