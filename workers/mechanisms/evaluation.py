"""`evaluation`: metrics of a published output against a public corpus, a line each, and a report
with plots.

Nothing private is opened: the texts are what an earlier job published, whole, and the corpus is one
that a steward vouches for.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, cast

from accountant.core.errors import invalid
from accountant.core.mechanisms.evaluation import Evaluation
from accountant.core.privacy.price import Terms
from workers.data.public_text import PublicPrompt, PublicText, constant, filled, parameter
from workers.embedding import embedders
from workers.evaluation import report, zero_shot
from workers.evaluation.figures import Figure
from workers.evaluation.run import Embedding, Sides, Texts, Tools, evaluate
from workers.generation.writer import Manner
from workers.interface import HTML, NOTHING_PUBLIC, Artifact, Progress, Public, Released


class Runner:
    """Runs `evaluation`."""

    def total(self, parameters: Evaluation, terms: Terms) -> int:  # noqa: ARG002
        """Return metrics asked for."""
        return len(parameters.wanted())

    def run(self, *_: Any, **__: Any) -> Iterator[Figure]:
        """Never: it reads no records."""
        raise invalid(
            "from_job", "an evaluation reads a published output", "the id of a succeeded job"
        )

    def reuse(
        self,
        parameters: Evaluation,
        terms: Terms,  # noqa: ARG002
        artifacts: Mapping[str, Released],  # noqa: ARG002
        model: None,  # noqa: ARG002  (the language model is a public thing like the corpus)
        progress: Progress,
        public: Public = NOTHING_PUBLIC,
    ) -> Iterator[Figure | Artifact]:
        """Yield every figure as it is found, then the report."""
        corpus = public.corpus("corpus")
        reference = list(islice(corpus.texts(), parameters.most_texts))
        labels = None if corpus.label_column is None else [str(label) for _, label in reference]
        ours = _published(public.texts or (), parameters.most_texts)
        embedding = None
        if parameters.embedding is not None:
            embedder = public.embedder("embedding")
            embedding = Embedding(
                parameters.embedding,
                lambda texts: embedders.embed_all(embedder, texts, parameters.text_tokens),
            )
        language = public.models.get("language_model")
        judge = public.writer("judge", parameters.seed) if parameters.judge is not None else None
        sides = Sides.of(ours, Texts([text for text, _ in reference], labels))
        if language is not None:
            asked = zero_shot.Asked(
                {
                    name: PublicPrompt(_prompt(parameters, name))
                    for name in dict.fromkeys(ours.labels or (None,))
                },
                Manner(parameters.text_tokens, zero_shot.TEMPERATURE, "\n\n"),
            )
            writer = public.writer("language_model", parameters.seed)
            written = zero_shot.write(writer, asked, len(ours.texts))
            sides = replace(sides, zero_shot=written)
        figures = []
        for figure in evaluate(parameters, sides, Tools(embedding, language, judge)):
            progress.advance()
            figures.append(figure)
            yield figure
        facts = {
            "job": parameters.from_job,
            "corpus": corpus.name,
            "texts": len(public.texts or ()),
        }
        page = report.to_html("Evaluation", facts, figures)
        yield Artifact("report", "evaluation-report", HTML, page.encode())


def _prompt(parameters: Evaluation, label: str | None) -> PublicText:
    published = constant("") if label is None else cast("PublicText", label)
    return filled(parameter(parameters, "zero_shot"), {"label": published})


def _published(lines: tuple[Mapping[str, Any], ...], most: int) -> Texts:
    """Return an output's first `most` texts, with labels if all have one, or raise."""
    published = [line for line in lines if isinstance(line.get("text"), str)][:most]
    if len(published) < 2:
        raise invalid("from_job", "its output has fewer than two texts", "a job that wrote texts")
    labels: list[Any] = [line.get("label") for line in published]
    finished: list[Any] = [line.get("complete") for line in published]
    return Texts(
        [line["text"] for line in published],
        labels if all(isinstance(label, str) for label in labels) else None,
        finished if all(isinstance(each, bool) for each in finished) else None,
    )
