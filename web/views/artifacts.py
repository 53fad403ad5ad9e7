"""Artifacts: what jobs released besides texts, what each is good for, and their files."""

from flask import Blueprint, Response, render_template, request

from accountant.core import mechanisms
from accountant.queries import jobs as job_queries
from accountant.transactions import artifacts
from web.api.artifacts import ORDER, download
from web.api.paging import cut, read_window
from web.auth import current_actor
from web.context import engine

pages = Blueprint("artifacts", __name__)

PAGE = 100


@pages.get("/artifacts")
def listing() -> str:
    """Artifacts by job, newest first; the filter stands in the address."""
    dataset = request.args.get("dataset", "").strip() or None
    window = read_window(ORDER, PAGE)
    rows = artifacts.listing(engine(), current_actor(), dataset=dataset, **window.reads)
    page_rows, following = cut(rows, window)
    jobs: dict[str, list[dict[str, object]]] = {}
    for row in page_rows:
        jobs.setdefault(row["job"], []).append(row)
    actor = current_actor()
    return render_template(
        "artifacts.html",
        jobs=jobs,
        names=job_queries.names(engine(), current_actor(), jobs),
        dataset=dataset,
        following=following,
        reusable=reusable(),
        may_ask=bool(actor.roles & {"analyst", "steward"}),
    )


def reusable() -> frozenset[str]:
    """Return mechanisms that run again from what they released, for nothing."""
    return frozenset(
        mechanism.id
        for mechanism in mechanisms.runnable().values()
        if "from_job" in mechanism.fields and not mechanism.reads_output
    )


@pages.get("/artifacts/<sha256>")
def file(sha256: str) -> Response:
    """One artifact's file."""
    return download(sha256)
