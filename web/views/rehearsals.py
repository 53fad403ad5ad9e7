"""Rehearsals: what the latest one of a request made on public texts, and how good."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from accountant.catalogue import corpora
from accountant.core import mechanisms
from accountant.core.errors import Conflict, NotFound
from accountant.core.mechanisms import rehearsal
from accountant.queries import preflight
from web.api.outputs import first_texts, open_output
from web.auth import current_actor
from web.context import engine

#: A report of more bytes is not shown; those that are made have some thousand.
MOST_BYTES = 2**18
#: Rehearsals with other parameters that a page lists beside.
OTHERS = 6


def latest(items: Sequence[Mapping[str, Any]], samples: int = 0) -> list[dict[str, Any] | None]:
    """Return the report of each request's latest rehearsal, with `samples` texts, or None."""
    rehearsed = [item for item in items if rehearsable(item["mechanism"])]
    rows = iter(preflight.latest_rehearsals(engine(), current_actor(), rehearsed))
    reports = [next(rows) if rehearsable(item["mechanism"]) else None for item in items]
    return [None if row is None else _report(row, samples) for row in reports]


def others(item: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return reports of the newest rehearsals of the request's mechanism, the smallest ε first."""
    rows = preflight.other_rehearsals(engine(), current_actor(), item, OTHERS)
    reports = [report for report in map(_report, rows) if report is not None]
    return sorted(reports, key=lambda each: each.get("epsilon") or 0)


def of_job(job: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the report of a rehearsal, for its own page; None for any other job."""
    if asked(job)["mechanism"] == job["mechanism"]:
        return None
    (row,) = preflight.latest_rehearsals(engine(), current_actor(), [asked(job)], of_job=job["id"])
    return None if row is None else _report(row)


def asked(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request that a rehearsal stands for; of another job, its own."""
    mechanism = mechanisms.find(job["mechanism"])
    rehearses = job["mechanism"] if mechanism is None else mechanism.admitted_as
    return {**job, "mechanism": rehearses, "parameters": rehearsal.rehearsed(job["parameters"])}


def rehearsable(mechanism_id: str) -> bool:
    """Return whether there is a rehearsal of the mechanism."""
    return mechanisms.find(rehearsal.PREFIX + mechanism_id) is not None


def ready_corpora() -> list[str]:
    """Return the names of the corpora that a rehearsal may name."""
    listed = corpora.listing(engine(), current_actor())
    return [corpus["name"] for corpus in listed if corpus["state"] == "ready"]


def _report(row: Any, samples: int = 0) -> dict[str, Any] | None:
    """Return the report that a row names; None if its file is gone, changed or too large."""
    try:
        with open_output(row.sha256, row.id) as file:
            content = file.read(MOST_BYTES) if file.size <= MOST_BYTES else None
    except (Conflict, NotFound):
        return None
    if content is None:
        return None
    texts = first_texts(row.output_sha256, row.id, samples) if samples else None
    return {**json.loads(content), "job": str(row.id), "samples": texts or []}
