"""What a proposal rests on besides the database: counts of labels that jobs published."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

from accountant.core.errors import ResultsAway
from accountant.core.mechanisms import noisy_count
from accountant.database import kept
from accountant.identities.actor import Actor
from accountant.queries import jobs, plans
from accountant.schema.quotes import Proposal
from web.api import outputs
from web.context import engine

#: Published counts of labels that are offered, and the labels that are read of each.
COUNTS, RELEASED = 3, 1_000


def proposal_for(dataset: str, goal: str, viewer: Actor, **options: Any) -> Proposal:
    """Return what to ask for, by the newest counts of labels; `options` as plans.proposal_on."""
    published = published_counts(viewer, dataset) if goal == "texts" else ()
    newest = next((counts for counts, _ in published), {})
    return plans.proposal_on(engine(), dataset, goal, viewer, label_counts=newest, **options)


@kept  # a form waits once for a store that hangs, not for each job
def published_counts(viewer: Actor, dataset: str) -> Sequence[tuple[Mapping[str, int], str]]:
    """Return the newest noisy counts of a dataset's labels, with the names of their jobs."""
    wanted = jobs.Wanted(dataset, noisy_count.MECHANISM.id, "succeeded")
    found = jobs.jobs(engine(), viewer, wanted, limit=COUNTS)
    with suppress(ResultsAway):
        return [(counts, job.name) for job in found if (counts := label_counts(job.document()))]
    return []


def label_counts(job: Mapping[str, Any]) -> Mapping[str, int]:
    """Return the noisy counts of labels that a job published; none where it published none."""
    if job["mechanism"] != noisy_count.MECHANISM.id or not job["output_sha256"]:
        return {}
    lines = outputs.first_texts(job["output_sha256"], UUID(job["id"]), RELEASED) or ()
    return {line["label"]: max(0, line["count"]) for line in lines if line.get("label") is not None}


def in_lines(counts: Mapping[str, int]) -> str:
    """Return counts as a form's field takes them."""
    return "\n".join(map(str, counts.values()))
