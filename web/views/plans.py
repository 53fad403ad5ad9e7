"""What-if planning: until when an allowance lasts if so many people ask for so many jobs a month.

The plan stands in the address, so that a link shows the same; nothing is written.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any

from flask import Blueprint, Response, render_template, request

from accountant.catalogue import saved_requests
from accountant.core import mechanisms
from accountant.core.errors import InvalidRequest, NotFound
from accountant.core.mechanisms.base import Mechanism
from accountant.core.mechanisms.fitting import size_of
from accountant.queries import datasets, plans
from accountant.queries import jobs as job_queries
from accountant.schema.base import documents
from web.auth import current_actor, needs_role
from web.context import engine
from web.views import job_form_defaults, schema_forms
from web.views.forms import Form, number, whole
from web.views.schema_forms import PREFIX

pages = Blueprint("plans", __name__)

FIELDS = ("people", "each", "job", "size", "until")
DEFAULTS = {"people": "20", "each": "1"}
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 632, 10, 208


@pages.get("/datasets/<name>/plan")
@needs_role("analyst", "steward")
def show(name: str) -> Response:
    """A plan, its chart and its table; the form alone where it holds a mistake."""
    actor = current_actor()
    dataset = datasets.dataset(engine(), name, actor).document()
    jobs = _jobs(dataset)
    values = {**DEFAULTS, "job": next(iter(jobs), ""), **_given()}
    form, plan, status = Form(values), None, 200
    shape: dict[str, Any] = {}
    try:
        plan, shape = _plan(name, values)
    except InvalidRequest as error:
        form, status = Form(values, error.problems), 422
    page = render_template(
        "plan.html",
        dataset=dataset,
        form=form,
        elsewhere=form.elsewhere(FIELDS),
        jobs=jobs,
        mechanisms=[each for each in job_form_defaults.runnable(dataset) if not _is_free(each)],
        plan=plan,
        **shape,
        chart=chart(plan) if plan is not None and plan["rows"] else None,
        named=month_in_words,
        sentence="" if plan is None else sentence(plan),
        roles=datasets.roles_on(engine(), name, actor),
    )
    return Response(page, status)


def _given() -> dict[str, str]:
    return {name: request.args[name].strip() for name in FIELDS if request.args.get(name, "").strip()}


def _jobs(dataset: Mapping[str, Any]) -> dict[str, str]:
    """What may be the shape of a plan: the newest jobs that the reader may see, and saved requests."""
    wanted, actor = job_queries.Wanted(dataset=dataset["name"]), current_actor()
    found = documents(job_queries.jobs(engine(), actor, wanted, limit=job_form_defaults.EARLIER))
    jobs = {f"job:{each['id']}": f"{each['id'][:8]} {each['mechanism']}, {each['state']}" for each in found}
    saved = saved_requests.listing(engine(), dataset["name"], actor)
    return jobs | {f"saved:{each.id}": f"{each.name} ({each.mechanism})" for each in saved}


def _plan(name: str, values: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The plan, and the mechanism with the size that it plans with."""
    start = _shape(name, values.get("job", ""))
    mechanism = mechanisms.get_runnable(start["mechanism"])
    raw = schema_forms.parameters(mechanism, start)
    size = size_of(mechanism, {"amplification": start.get("parameters.amplification")})
    if values.get("size"):
        start |= job_form_defaults.sized(mechanism, size, _number(values["size"]))
        raw = schema_forms.parameters(mechanism, start)
    today = datetime.now(UTC).strftime("%Y-%m")
    numbers = {each: _whole(values[each]) for each in ("people", "each")}
    pace = (numbers["people"], numbers["each"], today, values.get("until"))
    found = plans.plan_on(engine(), name, mechanism, raw, *pace, current_actor())
    shown = start.get(PREFIX + size, "")
    return found.model_dump(mode="json"), {"mechanism": mechanism, "size_field": size, "size_shown": shown}


def _shape(name: str, job: str) -> dict[str, str]:
    """The form of the job that is planned with: a job's, or a mechanism's defaults."""
    kind, _, named = job.partition(":")
    actor = current_actor()
    if kind in ("job", "saved"):
        given = {"like" if kind == "job" else "saved": named}
        return dict(job_form_defaults.read(actor, name, given).values)
    if kind and kind != "mechanism":
        raise NotFound("job to plan with", job[:80])
    wanted = named if named in mechanisms.runnable() else job_form_defaults.DEFAULT_MECHANISM
    return dict(job_form_defaults.begin(actor, name, wanted, {}).values)


def _is_free(mechanism: Mechanism[Any]) -> bool:
    return mechanism.public or mechanism.reads_output


def _whole(text: str) -> int:
    """A whole number; what is none is an error of its range, which says what is allowed."""
    found = whole(text)
    return found if isinstance(found, int) else 0


def _number(text: str) -> int | float:
    """A number; what is none is an error of its range."""
    found = number(text)
    return found if isinstance(found, int | float) else 0


# --- in words, and drawn ------------------------------------------------------------------------


def month_in_words(month: str) -> str:
    """ "2027-03" as "March 2027"."""
    return date.fromisoformat(f"{month}-01").strftime("%B %Y")


def sentence(plan: Mapping[str, Any]) -> str:
    """The plan in one sentence."""
    people = "one person" if plan["people"] == 1 else f"{plan['people']:,} people"
    jobs = "one such job a month" if plan["each"] == 1 else f"{plan['each']:,} such jobs a month"
    pace = f"{people}, {jobs}{' each' if plan['people'] > 1 and plan['each'] > 1 else ''}"
    if plan["jobs"] is None:
        return f"{pace}: " + ("as long as they like, since it is free." if plan["told"] else "not told.")
    rest = f"{plan['rest']:,} of the {plan['a_month']:,} of the month after" if plan["rest"] else ""
    if plan["months"] == 0:
        return f"{pace}: not one whole month" + (f"; {plan['rest']:,} such jobs fit." if rest else ".")
    lasts = "one month" if plan["months"] == 1 else f"{plan['months']:,} months"
    until = f"until the end of {month_in_words(plan['last'])}" if plan["last"] else "for over a century"
    return f"{pace}: {until} ({lasts}{f', and {rest}' if rest else ''})."


def chart(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Bars of the jobs that still fit after each month, as shares of those that fit now."""
    rows: Sequence[Mapping[str, Any]] = plan["rows"]
    width = (_RIGHT - _LEFT) / len(rows)
    whole_height = _BOTTOM - _TOP
    bars = [
        {
            "x": round(_LEFT + number * width + width * 0.15, 1),
            "width": round(width * 0.7, 1),
            "y": round(_BOTTOM - whole_height * row["left"] / plan["jobs"], 1),
            "height": round(whole_height * row["left"] / plan["jobs"], 1),
        }
        for number, row in enumerate(rows)
    ]
    marks = sorted({0, plan["jobs"] // 2, plan["jobs"]})
    grid = [{"y": round(_BOTTOM - whole_height * jobs / plan["jobs"], 1), "jobs": jobs} for jobs in marks]
    return {"bars": bars, "grid": grid, "ends": (rows[0]["month"], rows[-1]["month"])}
