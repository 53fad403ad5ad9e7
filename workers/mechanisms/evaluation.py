"""`evaluation`: metrics of a published output against a public corpus, a line each, and a report
with plots.

Nothing private is opened: the texts are what an earlier job published, whole, and the corpus is one
that a steward vouches for.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from accountant.core.errors import invalid
from accountant.core.mechanisms.evaluation import Evaluation
from accountant.core.privacy.price import Terms
from workers.embedding import embedders
from workers.evaluation import report
from workers.evaluation.figures import Figure
from workers.evaluation.run import Embedding, Texts, evaluate
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
        embedding = None
        if parameters.embedding is not None:
            embedder = public.embedder("embedding")
            embedding = Embedding(
                parameters.embedding,
                lambda texts: embedders.embed_all(embedder, texts, parameters.text_tokens),
            )
        language = public.models.get("language_model")
        judge = public.writer("judge", parameters.seed) if parameters.judge is not None else None
        figures = []
        for figure in evaluate(
            parameters,
            _published(public.texts or ()),
            Texts([text for text, _ in reference], labels),
            embedding,
            None if language is None else language.folder,
            judge,
        ):
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


def _published(lines: tuple[Mapping[str, Any], ...]) -> Texts:
    """Return the texts of an output; labels where every text has one. Raises InvalidRequest for
    other outputs.
    """
    published = [line for line in lines if isinstance(line.get("text"), str)]
    if len(published) < 2:
        raise invalid("from_job", "its output has fewer than two texts", "a job that wrote texts")
    labels = [line.get("label") for line in published]
    complete = all(isinstance(label, str) for label in labels)
    return Texts(
        [line["text"] for line in published], [str(label) for label in labels] if complete else None
    )
