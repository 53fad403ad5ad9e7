"""The front page: datasets open to requests, and the next step for a new user."""

from typing import Any

from flask import render_template, request, url_for

from accountant.core import mechanisms
from accountant.identities.actor import Actor
from accountant.queries import datasets as dataset_queries
from accountant.queries import jobs, models
from accountant.transactions.artifacts import OVERSEERS
from web.api.datasets import ORDER
from web.api.paging import cut, read_window
from web.api.parsing import read_choice
from web.auth import current_actor
from web.context import engine

PAGE = 50


def catalogue_page() -> str:
    """Return datasets by name, filtered as the address says."""
    actor = current_actor()
    runnable = list(mechanisms.runnable().values())
    filters = {
        "q": request.args.get("q", "").strip()[:200],
        "mechanism": read_choice("mechanism", tuple(mechanisms.MECHANISMS)) or "",
        "open": "1" if request.args.get("open") else "",
    }
    wanted = dataset_queries.Wanted(
        filters["q"], filters["mechanism"] or None, bool(filters["open"])
    )
    window = read_window(ORDER, PAGE)
    datasets, following = cut(
        dataset_queries.datasets(engine(), actor, wanted, **window.reads), window
    )
    stated: dict[str, Any] = {name: value for name, value in filters.items() if value}
    return render_template(
        "datasets.html",
        datasets=datasets,
        filters=filters,
        kept=stated,
        following=following,
        mechanisms=runnable,
        steps=[] if stated or window.after else next_steps(actor, datasets),
    )


def next_steps(actor: Actor, datasets: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Return the next steps of somebody who has not done them yet: {title, why, link}."""
    steps: list[dict[str, str]] = []
    ready = [dataset for dataset in datasets if dataset["state"] == "ready"]
    allowed = [dataset for dataset in ready if dataset["account"] is not None]
    if "steward" in actor.roles:
        steps += _steward_steps(actor, datasets, ready, allowed)
    open_ones = [dataset for dataset in allowed if dataset["may_ask"]]
    if "analyst" in actor.roles and not jobs.jobs(
        engine(), actor, jobs.Wanted(analyst=actor.name), limit=1
    ):
        steps.append(_first_job(open_ones))
    if actor.roles & OVERSEERS and not actor.roles & {"steward", "analyst"} and allowed:
        link = url_for("datasets.show", name=allowed[0]["name"], _anchor="ledger")
        why = (
            "Open a dataset: its page has the ledger and the export that `exchequer verify` "
            "checks at home."
        )
        steps.append({"title": "Read a ledger", "why": why, "link": link})
    return steps


def _first_job(datasets: list[dict[str, Any]]) -> dict[str, str]:
    title = "Ask for a first job"
    if not datasets:
        why = (
            "No dataset has data, an allowance and you among those who may ask. A steward adds one."
        )
        return {"title": title, "why": why, "link": ""}
    name = datasets[0]["name"]
    why = (
        f"The form for {name} is filled in already and shows the price as you type; asking is "
        "free. Say what "
        "it is for, submit, and a steward approves."
    )
    return {"title": title, "why": why, "link": url_for("asking.ask", name=name)}


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
    waiting = jobs.jobs(engine(), actor, jobs.Wanted(state="awaiting_approval"), limit=1)
    if waiting:
        why = "The inbox shows the price, what is left before and after, and asks for your reason."
        steps.append(
            {"title": "Decide on requests", "why": why, "link": url_for("decisions.listing")}
        )
    return steps
