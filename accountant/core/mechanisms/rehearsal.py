"""Rehearsals: any mechanism that reads records, run on a registered public corpus instead, for
nothing.

A rehearsal has the parameters, the price's noise and the run of the mechanism that it rehearses,
and three fields of its own. It is a public mechanism, so nothing that opens a dataset is within its
reach.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, ClassVar

from pydantic import Field, create_model

from accountant.core.errors import invalid
from accountant.core.mechanisms.base import Mechanism, Parameters
from accountant.core.mechanisms.batches import Batched
from accountant.core.privacy.events import FREE
from accountant.core.privacy.price import Price, Terms

#: The id of a rehearsal is this and the id of what it rehearses.
PREFIX = "rehearsal:"
#: The corpus; most texts of it that stand for records; an embedding model for metrics.
CORPUS, TEXTS, EMBEDDING = FIELDS = ("rehearsal_corpus", "rehearsal_texts", "rehearsal_embedding")
#: The part of a corpus, at most so many texts, that is held out to compare.
HELD_OUT, MOST_HELD_OUT = 5, 1_000
#: Kinds of what a rehearsal releases: what no other job reads.
REPORT, MADE = "rehearsal-report", "rehearsal"


class Rehearsal(Parameters):
    """The fields that a rehearsal adds; `rehearses`: the id of its mechanism."""

    rehearses: ClassVar[str] = ""

    rehearsal_corpus: str = Field(
        min_length=1,
        max_length=63,
        description="a registered corpus, whose texts stand for the records",
    )
    rehearsal_texts: int | None = Field(
        None,
        ge=10,
        le=1_000_000,
        description="texts read at most; nothing: the dataset's public size, or all",
    )
    rehearsal_embedding: str | None = Field(
        None, max_length=63, description="an embedding model, for MAUVE and the Fréchet distance"
    )


@lru_cache(maxsize=64)
def of(mechanism: Mechanism[Any]) -> Mechanism[Any] | None:
    """Return the rehearsal of a mechanism, or None if it reads no records."""
    if mechanism.public or mechanism.reads_output or mechanism.runner is None:
        return None
    fields: Any = {
        name: (field.annotation, field)
        for name, field in Rehearsal.model_fields.items()
        if name in FIELDS
    }
    parameters = create_model(
        f"Rehearsed{mechanism.parameters.__name__}",
        __base__=mechanism.parameters,
        __doc__=f"Parameters of a rehearsal of `{mechanism.id}`.",
        rehearses=(ClassVar[str], mechanism.id),
        **fields,
    )

    def resolve(given: Any, terms: Terms) -> Any:
        if getattr(given, "from_job", None) is not None:
            problem = "a rehearsal reads public texts, and what was released is free to read anyhow"
            raise invalid("from_job", problem, "nothing")
        return mechanism.resolve(given, terms)

    def price(given: Any, terms: Terms) -> Price:
        real = mechanism.price(given, terms)
        if real.secret is not None:
            raise invalid(
                "mechanism", "a job that protects secrets can't be rehearsed", "another mechanism"
            )
        lines = (
            "a rehearsal on public texts: free",
            "the job itself, on the dataset:",
            *real.breakdown,
        )
        return Price(FREE, lines)

    def resources(given: Any) -> dict[str, str]:
        model_resources = {CORPUS: "corpus"}
        if getattr(given, EMBEDDING) is not None:
            model_resources[EMBEDDING] = "embedding"
        return {**mechanism.resources(given), **model_resources}

    return replace(
        mechanism,
        id=PREFIX + mechanism.id,
        title=f"Rehearsal of {mechanism.title}",
        summary=f"The run of {mechanism.title} with the same noise, on public texts. "
        f"{mechanism.summary}",
        parameters=parameters,
        price=price,
        resolve=resolve,
        resources=resources,
        runner="workers.rehearsal",
        groups={**mechanism.groups, "Rehearsal": " ".join(FIELDS)},
        artifacts={"report": "what the texts are like, and how long they took"},
        batches=lambda *_: 1,
        public=True,
        stops_early=False,
        releases=(REPORT, MADE),
        rehearses=mechanism.id,
    )


def request(
    mechanism: str, parameters: Mapping[str, Any], stated: Mapping[str, Any]
) -> tuple[str, Any]:
    """Return mechanism and parameters that rehearse a request. `stated`: values of `FIELDS`."""
    return PREFIX + mechanism, {**parameters, **stated}


def held_out(texts: int) -> int:
    """Return how many of a corpus' texts stand for no record."""
    return min(max(2, texts // HELD_OUT), MOST_HELD_OUT)


def filled(parameters: Any, terms: Terms, texts: int) -> Any:
    """Return the parameters with as few batches as `texts` texts fill, or with a rate of sampling
    that draws as many as the job will.

    The noise stays that of the job: it depends on neither.
    """
    changes: dict[str, Any] = {}
    if isinstance(parameters, Batched):
        labels = max(1, len(terms.labels))
        share = texts / sum(parameters.label_counts) if parameters.label_counts else 1.0
        clustered = getattr(parameters, "batching", "uniform") != "uniform"
        fewest = getattr(parameters, "clusters", 1) if clustered else 1
        full = max(fewest, texts // (labels * parameters.units))
        if parameters.batches_per_label is not None and full < parameters.batches_per_label:
            changes["batches_per_label"] = full
            if parameters.batches_to_run is not None:
                changes["batches_to_run"] = min(full, parameters.batches_to_run)
        if share < 1:
            counts = parameters.label_counts
            changes["label_counts"] = tuple(round(count * share) for count in counts)
    rate = getattr(parameters, "sampling_rate", None)
    if rate is not None and terms.public_size is not None and texts < terms.public_size:
        changes["sampling_rate"] = min(1.0, rate * terms.public_size / texts)
    return parameters.model_copy(update=changes)


def rehearsed(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of the request that a rehearsal's stand for."""
    return {name: value for name, value in parameters.items() if name not in FIELDS}
