"""The catalogue, and a dataset's page with its account and ledger."""

from typing import Any

from flask import Blueprint, Response, render_template, request, url_for
from werkzeug.wrappers import Response as BaseResponse

from accountant.catalogue import datasets
from accountant.core import mechanisms
from accountant.database import one_moment
from accountant.identities.actor import Actor
from accountant.queries import datasets as dataset_queries
from accountant.queries import decisions, jobs, log_comparison, models, spending
from accountant.queries import entries as entry_queries
from accountant.queries.dataset_rows import seen_by
from accountant.schema.base import documents
from accountant.transactions import access, artifacts
from accountant.transactions.artifacts import OVERSEERS
from accountant.transactions.owners import ASKERS
from web.api.datasets import ORDER, Correction, NewVersion, export_response, found_datasets
from web.api.parsing import read, read_choice, read_seq
from web.auth import current_actor, needs_role
from web.context import engine
from web.views.forms import BLANK, Form, done, lines, listed, sent, shown_again, whole

pages = Blueprint("datasets", __name__)

LEDGER_PAGE = 25
RECENT_JOBS = 8

# --- catalogue ----------------------------------------------------------------------------------


@pages.get("/")
def catalogue() -> str:
    """Datasets with their public facts and what is left; search and place stand in the address."""
    return catalogue_page()


# --- one dataset --------------------------------------------------------------------------------


@pages.get("/datasets/<name>")
def show(name: str, **forms: Form) -> str:
    """Public facts, account, jobs, and for stewards and auditors the ledger, at one moment.

    `forms`: as they were sent, where they were not accepted.
    """
    outside = log_comparison.of_name(engine(), name)  # compares and may append: beside the snapshot
    with one_moment(engine()):
        return _dataset_page(name, outside, **forms)


def _dataset_page(name: str, outside: str | None, **forms: Form) -> str:
    actor = current_actor()
    found = dataset_queries.dataset(engine(), name, actor)
    dataset, roles = found.document(), seen_by(actor, found).roles
    overseer = bool(roles & artifacts.OVERSEERS)
    before = read_seq()
    entries, ex_post = [], []
    if overseer:
        newest = entry_queries.entries(engine(), name, actor, before=before, limit=LEDGER_PAGE)
        entries = documents(newest)
        ex_post = documents(jobs.ex_post(engine(), name, actor))
    recent = jobs.jobs(engine(), actor, jobs.Wanted(dataset=name), limit=RECENT_JOBS)
    may_want = not dataset["may_ask"] and bool(actor.roles & set(ASKERS))
    return render_template(
        "dataset.html",
        outside=outside,
        dataset=dataset,
        figures=spending.figures(engine(), name, actor).document(),
        jobs=documents(recent),
        overseer=overseer,
        roles=roles,
        entries=entries,
        ex_post=ex_post,
        names=jobs.names(engine(), actor, [row["job"] for row in ex_post]),
        ex_post_note=jobs.EX_POST_NOTE,
        before=before,
        data_form=forms.get("data", BLANK),
        version_form=forms.get("version", BLANK),
        access_form=forms.get("access", BLANK),
        may_want=may_want,
        asked_for_access=decisions.latest_access(engine(), actor, name) if may_want else None,
    )


@pages.get("/datasets/<name>/spending")
def spent(name: str) -> str:
    """Left over time and spent by whom; the measure that bars show stands in the address."""
    actor = current_actor()
    figures = spending.figures(engine(), name, actor).document()
    measure = read_choice("measure", tuple(figure["name"] for figure in figures["measures"]))
    dataset = dataset_queries.dataset(engine(), name, actor).document()
    best = dataset["account"] and dataset["account"]["best_filter"]
    shown = {"figures": figures, "measure": measure or best}
    return render_template("spending.html", dataset=dataset, **shown)


@pages.post("/datasets/<name>/data")
@needs_role("steward")
@shown_again(show, "data")
def correct(name: str) -> BaseResponse:
    """Declare refused data again: its address, template and columns."""
    values = sent()
    columns = ("unit_column", "label_column", "group_column", "secret_column")
    lists = ("labels", "groups", "secret_patterns", "secret_terms")
    changes = {
        "uri": values.get("uri", "").strip(),
        "text_template": values.get("text_template", ""),
        "max_records_per_unit": whole(values.get("max_records_per_unit", "")) or 1,
        "unit_spelling": values.get("unit_spelling", "refuse"),
        "missing_units": values.get("missing_units", "refuse"),
        **{field: values.get(field, "").strip() or None for field in columns},
        **{field: lines(values.get(field, "")) for field in lists},
    }
    correction = read(Correction, changes).model_dump(exclude_unset=True)
    datasets.correct_dataset(engine(), name, correction, current_actor())
    message = "A worker now reads the data through as it is declared now."
    return done(message, "datasets.show", name=name)


@pages.post("/datasets/<name>/versions")
@needs_role("steward")
@shown_again(show, "version")
def add_version(name: str) -> BaseResponse:
    """Add data on the same account; fields that are left empty stay as they were."""
    values, fields = sent(), ("uri", "text_template", "label_column")
    filled = {field: values[field].strip() for field in fields if values.get(field, "").strip()}
    version = read(NewVersion, filled).model_dump(exclude_none=True)
    datasets.add_version(engine(), name, version, current_actor())
    message = "A worker now reads the new version through. Jobs run on it once it is ready."
    return done(message, "datasets.show", name=name)


@pages.post("/datasets/<name>/access")
@needs_role(*ASKERS)
@shown_again(show, "access")
def ask_access(name: str) -> BaseResponse:
    """Ask for access, with a reason that the dataset's stewards read."""
    access.ask_for(engine(), name, current_actor(), sent().get("reason", ""))
    message = "Your request is sent to the dataset's stewards. Their answer appears here."
    return done(message, "datasets.show", name=name)


@pages.get("/datasets/<name>/ledger.<form>")
def export(name: str, form: str) -> Response:
    """The whole ledger as a file."""
    return export_response(name, form)


# --- a page of the catalogue --------------------------------------------------------------------


PAGE = 50
FILTERS = ("q", "mechanism", "open")


def catalogue_page() -> str:
    """Return datasets by name, filtered as the address says."""
    return listed(
        "datasets.html",
        ORDER,
        found_datasets,
        FILTERS,
        limit=PAGE,
        about=lambda rows: {"steps": [] if request.args else next_steps(current_actor(), rows)},
        mechanisms=list(mechanisms.runnable().values()),
    )


def next_steps(actor: Actor, datasets: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Return the next steps of somebody who has not done them yet: {title, why, link}."""
    steps: list[dict[str, str]] = []
    ready = [dataset for dataset in datasets if dataset["state"] == "ready"]
    allowed = [dataset for dataset in ready if dataset["account"] is not None]
    if "steward" in actor.roles:
        steps += _steward_steps(actor, datasets, ready, allowed)
    own = jobs.Wanted(analyst=actor.name)
    if "analyst" in actor.roles and not jobs.jobs(engine(), actor, own, limit=1):
        name = next((dataset["name"] for dataset in allowed if dataset["may_ask"]), "")
        why = "No dataset has data, an allowance and you among its askers. A steward adds one."
        if name:
            why = f"The form for {name} is filled in, and shows the price. Asking is free."
        link = url_for("asking.ask", name=name) if name else ""
        steps.append({"title": "Ask for a first job", "why": why, "link": link})
    if actor.roles & OVERSEERS and not actor.roles & {"steward", "analyst"} and allowed:
        link = url_for("datasets.show", name=allowed[0]["name"], _anchor="ledger")
        why = "A dataset's page has its ledger, and the export that `exchequer verify` checks."
        steps.append({"title": "Read a ledger", "why": why, "link": link})
    return steps


def _steward_steps(
    actor: Actor,
    datasets: list[dict[str, Any]],
    ready: list[dict[str, Any]],
    allowed: list[dict[str, Any]],
) -> list[dict[str, str]]:
    steps = []
    if not any(model.state == "ready" for model in models.models(engine(), actor)):
        why = "Workers write with models that lie under a model root; a worker looks at its files."
        steps.append({"title": "Register a model", "why": why, "link": url_for("models.listing")})
    if not datasets:
        why = "Declare where the data lies, what a privacy unit is, and who may ask."
        steps.append({"title": "Add a dataset", "why": why, "link": url_for("wizard.start")})
    without = next((dataset for dataset in ready if dataset["account"] is None), None)
    if without is not None and not allowed:
        link = url_for("datasets.show", name=without["name"], _anchor="stewardship")
        why = "Until then every job that would spend is refused."
        steps.append({"title": f"Allow a budget on {without['name']}", "why": why, "link": link})
    if jobs.jobs(engine(), actor, jobs.Wanted(state="awaiting_approval"), limit=1):
        why = "The inbox shows the price, what is left before and after, and asks for your reason."
        link = url_for("decisions.listing")
        steps.append({"title": "Decide on requests", "why": why, "link": link})
    return steps
