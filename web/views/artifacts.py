"""Artifacts: what jobs released besides texts, what each is good for, and their files."""

from collections.abc import Mapping, Sequence
from typing import Any

from flask import Blueprint, Response, request

from accountant.core import mechanisms
from accountant.queries import jobs as job_queries
from accountant.transactions import artifacts
from web.api.artifacts import ORDER, download
from web.auth import current_actor
from web.context import engine
from web.views.forms import listed

pages = Blueprint("artifacts", __name__)

PAGE = 100


@pages.get("/artifacts")
def listing() -> str:
    """Artifacts by job, newest first; the filter stands in the address."""
    actor = current_actor()
    dataset = request.args.get("dataset", "").strip() or None
    return listed(
        "artifacts.html",
        ORDER,
        lambda window: artifacts.listing(engine(), actor, dataset=dataset, **window.reads),
        ("dataset",),
        limit=PAGE,
        about=_jobs,
        reusable=reusable(),
        may_ask=bool(actor.roles & {"analyst", "steward"}),
    )


def _jobs(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return artifacts by job, and the jobs' names; of somebody else's, what it made."""
    jobs: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        jobs.setdefault(row["job"], []).append(row)
    names = {job: mechanisms.get(parts[0]["mechanism"]).noun for job, parts in jobs.items()}
    return {"jobs": jobs, "names": names | job_queries.names(engine(), current_actor(), jobs)}


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
