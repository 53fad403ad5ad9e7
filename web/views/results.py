"""What jobs published, to be read: a gallery of texts with a search, and two jobs side by side."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from flask import Blueprint, render_template, request

from accountant.core import mechanisms
from accountant.core.errors import invalid
from accountant.queries import datasets, jobs
from accountant.schema.base import documents
from web.api import outputs
from web.api.parsing import read_count, read_id
from web.auth import current_actor
from web.context import at_one_moment, engine

pages = Blueprint("results", __name__)

PAGE = 50
MOST_LINES = 100_000_000
SIDE_BY_SIDE = 10
#: What every figure stands beside, in the order of the page.
SIDES = ("zero-shot", "real texts")
#: Jobs that a page offers to compare with.
OFFERED = 20
_LONGEST = 200


def gallery(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return the texts that the address asks for: PAGE at random by label, or in order."""
    job_id = UUID(job["id"])
    skipped = read_count("after", 0, 0, MOST_LINES) or 0
    words = request.args.get("q", "").strip()[:_LONGEST]
    label = request.args.get("label", "").strip()[:_LONGEST]
    drawn = read_count("sample", 1, 1, MOST_LINES) or 1
    groups: list[dict[str, Any]] | None = []
    if words or label or "after" in request.args:
        match = outputs.search(job_id, PAGE + 1, skipped, words, label)
    else:
        groups = outputs.sample(job_id, PAGE, f"{job_id} {drawn}")
        match = None if groups is None else [text for group in groups for text in group["shown"]]
    return {
        "texts": None if match is None else match[:PAGE],
        "groups": groups,
        "sample": drawn,
        "most_sampled": outputs.MOST_SAMPLED,
        "skipped": skipped,
        "more_texts": match is not None and len(match) > PAGE,
        "narrowed": {name: value for name, value in (("q", words), ("label", label)) if value},
        "labels": datasets.labels(engine(), job["dataset"]),
        "evaluations": evaluations(job),
        "beside": others(job),
    }


def evaluations(job: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the newest evaluations of a job's texts that the reader may see."""
    looks = [each.id for each in mechanisms.MECHANISMS.values() if each.reads_output]
    actor, found = current_actor(), []
    for mechanism in looks:
        wanted = jobs.Wanted(job["dataset"], mechanism, "succeeded", reads=UUID(job["id"]))
        for newest in jobs.jobs(engine(), actor, wanted, limit=1):
            lines = outputs.search(UUID(newest.id), PAGE) or []
            rows = [line for line in lines if "settings" in line]
            found += [{"job": newest.id, "rows": rows}] if rows else []
    return found


def others(job: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return jobs that ended well on the same dataset, for a look at both."""
    wanted = jobs.Wanted(dataset=job["dataset"], state="succeeded")
    found = documents(jobs.jobs(engine(), current_actor(), wanted, limit=OFFERED))
    return [other for other in found if other["id"] != job["id"]]


@pages.get("/jobs/compare")
@at_one_moment
def compare() -> str:
    """Show two jobs side by side: what was asked, its cost, and the texts."""
    ids = [read_id(request.args.get(name, "")) for name in ("a", "b")]
    if ids[0] == ids[1]:
        raise invalid("b", "the same job twice", "another job")
    skipped = read_count("after", 0, 0, MOST_LINES) or 0
    pair = [jobs.job(engine(), id_, current_actor()).document() for id_ in ids]
    ended = [UUID(job["id"]) if job["state"] == "succeeded" else None for job in pair]
    texts = [id_ and outputs.search(id_, SIDE_BY_SIDE + 1, skipped) for id_ in ended]
    more = any(len(text or ()) > SIDE_BY_SIDE for text in texts)
    return render_template(
        "compare.html",
        pair=pair,
        parameters=differences([job["parameters"] for job in pair]),
        figures=joined(
            [[row for look in evaluations(job) for row in look["rows"]] for job in pair]
        ),
        sides=SIDES,
        texts=[text and text[:SIDE_BY_SIDE] for text in texts],
        skipped=skipped,
        following=skipped + SIDE_BY_SIDE if more else None,
    )


def differences(pair: list[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return every parameter of either job with both values, those that differ first."""
    names = list(dict.fromkeys([*pair[0], *pair[1]]))
    values = {name: [job.get(name) for job in pair] for name in names}
    rows = [
        {"name": name, "values": two, "differs": two[0] != two[1]} for name, two in values.items()
    ]
    return sorted(rows, key=lambda row: not row["differs"])


def joined(pair: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return figures by name and settings: side by side only if measured alike."""
    rows: dict[str, dict[str, Any]] = {}
    for place, figures in enumerate(pair):
        for figure in figures:
            key = repr((figure["name"], sorted(figure["settings"].items(), key=repr)))
            values: list[Any] = [None, None, *map(figure["beside"].get, SIDES)]
            row = rows.setdefault(
                key, {"name": figure["name"], "ideal": figure.get("ideal"), "values": values}
            )
            row["values"][place] = figure
    return list(rows.values())
