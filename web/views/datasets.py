"""The catalogue, and a dataset's page with its account and ledger."""

from flask import Blueprint, Response, render_template
from werkzeug.wrappers import Response as BaseResponse

from accountant.catalogue import datasets
from accountant.database import one_moment
from accountant.queries import datasets as dataset_queries
from accountant.queries import decisions, jobs, log_comparison, spending
from accountant.queries import entries as entry_queries
from accountant.queries.dataset_rows import seen_by
from accountant.schema.base import documents
from accountant.transactions import access, artifacts
from accountant.transactions.owners import ASKERS
from web.api.datasets import Correction, NewVersion, export_response
from web.api.parsing import read, read_choice, read_seq
from web.auth import current_actor, needs_role
from web.context import engine
from web.views.catalogue import catalogue_page
from web.views.forms import BLANK, Form, done, lines, sent, shown_again, whole

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
    measure = read_choice("measure", tuple(each["name"] for each in figures["measures"]))
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
