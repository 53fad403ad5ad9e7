"""Artifacts: the list of what jobs released besides texts, and their files."""

from flask import Blueprint, Response, render_template, request
from flask_login import login_required

from accountant import artifacts, reports
from web.api.artifacts import download
from web.app import engine
from web.auth import current_actor

pages = Blueprint("artifacts", __name__)

PAGE = 100


@pages.get("/artifacts")
@login_required
def listing() -> str:
    """Artifacts, newest first; the filter stands in the address."""
    actor, dataset = current_actor(), request.args.get("dataset") or None
    return render_template(
        "artifacts.html",
        artifacts=artifacts.listing(engine(), actor, dataset=dataset, limit=PAGE),
        dataset=dataset,
        datasets=[each["name"] for each in reports.datasets(engine(), actor)],
    )


@pages.get("/artifacts/<sha256>")
@login_required
def file(sha256: str) -> Response:
    """One artifact's file."""
    return download(sha256)
