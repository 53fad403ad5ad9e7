"""The price of `evaluation`: nothing. It reads a published output and a public corpus, never a
dataset.

What was released stays released: any function of a published output and of public texts costs
nothing (post-processing). A metric against private records would be a release of its own and is not
offered.
"""

from collections.abc import Mapping

from pydantic import Field

from accountant.core.errors import invalid
from accountant.core.mechanisms.base import Mechanism, Parameters
from accountant.core.privacy.events import FREE
from accountant.core.privacy.price import Price, Terms
from accountant.core.template import check_template

#: Every metric, and what it needs beside the two sets of texts.
METRICS: Mapping[str, str | None] = {
    "loss": "model",
    "usable": "model",
    "labels": "model",
    "finished": None,
    "duplicates": None,
    "talk": None,
    "copying": None,
    "mauve": "embedding",
    "frechet": "embedding",
    "lengths": None,
    "openings": None,
    "tstr": "labels",
    "trts": "labels",
    "coral": "embedding",
    "next-token": "model",
    "in-context-tstr": "model",
    "in-context-trts": "model",
    "judge": "judge",
}


class Evaluation(Parameters):
    """Parameters of `evaluation`."""

    from_job: str = Field(
        min_length=36,
        max_length=36,
        description="the succeeded job whose published texts are looked at",
    )
    corpus: str = Field(
        min_length=1,
        max_length=63,
        description="the public corpus that they are set beside",
    )
    metrics: str = Field(
        "loss, usable, labels, finished, duplicates, talk, copying, mauve, lengths, openings, tstr",
        max_length=300,
        description="what to measure, with commas between: `" + "`, `".join(METRICS) + "`",
    )
    embedding: str | None = Field(
        None,
        max_length=63,
        description="a model that turns texts into vectors, for `mauve` and `frechet`",
    )
    language_model: str | None = Field(
        None,
        max_length=63,
        description="a model that reads the texts, writes its own, and is trained on them",
    )
    zero_shot: str = Field(
        "{label}:\n\n",
        min_length=1,
        max_length=8_000,
        description="what zero-shot texts are written after, up to an empty line: the job's prompt "
        "without a record is best",
    )
    judge: str | None = Field(
        None,
        max_length=63,
        description="a model that judges the texts; nothing: the one above",
    )
    most_texts: int = Field(
        2_000, ge=2, le=100_000, description="texts of each that are compared at most"
    )
    shots: int = Field(
        4, ge=1, le=64, description="in context: examples of each label in the prompt"
    )
    steps: int = Field(200, ge=1, le=100_000, description="how long to train, for `next-token`")
    text_tokens: int = Field(
        64, ge=2, le=4_096, description="language models see this much of a text"
    )
    seed: int = Field(
        0, ge=0, le=2**31 - 1, description="seed of all that is drawn here; all of it is public"
    )

    def wanted(self) -> tuple[str, ...]:
        """Return the metrics in the order asked for, each once."""
        names = (name.strip() for name in self.metrics.split(","))
        return tuple(dict.fromkeys(name for name in names if name))


def price(_: Evaluation, __: Terms) -> Price:
    """Return nothing, in every currency."""
    return Price(FREE, ("a published output against public texts: free",))


def resolve(parameters: Evaluation, _: Terms) -> Evaluation:
    """Refuse unknown metrics. One that lacks what it needs says so beside the others."""
    wanted = parameters.wanted()
    unknown = [name for name in wanted if name not in METRICS]
    if unknown or not wanted:
        raise invalid(
            "metrics", f"{unknown[0]!r} is unknown" if unknown else "none", ", ".join(METRICS)
        )
    check_template(parameters.zero_shot, required=(), optional=("label",), field="zero_shot")
    if "judge" in wanted and parameters.judge is None:
        parameters = parameters.model_copy(update={"judge": parameters.language_model})
    return parameters


def resources(parameters: Evaluation) -> dict[str, str]:
    """Return the registered things that the parameters name."""
    kinds = {
        "corpus": "corpus",
        "embedding": "embedding",
        "language_model": "model",
        "judge": "writer",
    }
    return {field: kind for field, kind in kinds.items() if getattr(parameters, field) is not None}


MECHANISM = Mechanism(
    id="evaluation",
    title="Evaluation",
    summary="Sets texts that are out beside a public corpus. It reads nothing private and is free.",
    source="MAUVE: Pillutla et al. 2021; TSTR and TRTS; the metrics of papers 000 to 003",
    parameters=Evaluation,
    price=price,
    resolve=resolve,
    context_tokens=lambda _parameters, _template_tokens: 0,
    size_field="most_texts",
    uses_model=False,
    progress_unit="metrics",
    resources=resources,
    reads_output=True,
    releases=("evaluation-report",),
    runner="workers.mechanisms.evaluation",
    groups={
        "Size and privacy": "from_job corpus metrics most_texts",
        "Aggregation and clusters": "embedding",
    },
    order=9,
    goal="evaluation",
    advice="it compares published texts with public ones and reads nothing private",
    plain="from_job corpus metrics",
    example={
        "from_job": "00000000-0000-0000-0000-000000000000",
        "corpus": "public-reviews",
        "metrics": "lengths, openings",
    },
    artifacts={"report": "figures and plots as one HTML page"},
)
