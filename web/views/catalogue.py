"""The front page: datasets open to requests, and the next step for a new user."""

from typing import Any

from flask import request, url_for

from accountant.core import mechanisms
from accountant.identities.actor import Actor
from accountant.queries import jobs, models
from accountant.transactions.artifacts import OVERSEERS
from web.api.datasets import ORDER, found_datasets
from web.auth import current_actor
from web.context import engine
from web.views.forms import listed

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
