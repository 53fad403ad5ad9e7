"""All metrics of one evaluation, in the order asked for."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from accountant.core.errors import invalid
from accountant.core.mechanisms.evaluation import Evaluation
from workers.data.public_text import PublicText
from workers.embedding import embedders
from workers.evaluation import fidelity, judge, language
from workers.evaluation.adaptation import adapted_accuracy
from workers.evaluation.figures import Figure
from workers.evaluation.mauve import mauve
from workers.evaluation.transfer import Labelled, transfer
from workers.generation.writer import Writer


@dataclass(frozen=True)
class Texts:
    """One side of a comparison; `labels` is set if every text has one."""

    texts: Sequence[PublicText]
    labels: Sequence[str] | None = None

    def labelled(self, metric: str, field: str) -> Labelled:
        """Return the texts with their labels. Raises InvalidRequest naming `field` if there are
        none.
        """
        if self.labels is None:
            raise invalid(
                field, f"its texts have no labels, and {metric} needs them", "labelled texts"
            )
        return Labelled(self.texts, self.labels)


@dataclass(frozen=True)
class Embedding:
    """An embedding model: its name, for the settings, and the map of texts to (n, d) float32."""

    name: str
    embed: Callable[[Sequence[str]], NDArray[np.float32]]


def embedding_of(folder: Path) -> Embedding:
    """Return a local embedding model. Raises ModelError if the folder holds none."""
    model = embedders.load(folder, embedders.inspect(folder)["sha256"])
    return Embedding(folder.name, lambda texts: embedders.embed_all(model, texts))


def evaluate(
    parameters: Evaluation,
    synthetic: Texts,
    reference: Texts,
    embedding: Embedding | None = None,
    model: Path | None = None,
    writer: Writer | None = None,
) -> Iterator[Figure]:
    """Yield the figures of `parameters.wanted()`. Raises InvalidRequest if a metric lacks an input.

    `embedding` is for MAUVE and the Fréchet distance, `model`, a folder, for metrics that train or
    prompt, and `writer` is the judge. Only the first `most_texts` texts are used.
    """
    ours, theirs = (_first(texts, parameters.most_texts) for texts in (synthetic, reference))
    features: dict[str, NDArray[np.float32]] = {}
    if embedding is not None:
        features = {"ours": embedding.embed(ours.texts), "theirs": embedding.embed(theirs.texts)}
    for metric in parameters.wanted():
        if metric in ("mauve", "frechet", "coral") and embedding is None:
            raise invalid("embedding", f"{metric} needs one", "a registered embedding model")
        if metric in ("mauve", "frechet"):
            assert embedding is not None
            pair = features["ours"], features["theirs"]
            if metric == "mauve":
                yield mauve(*pair, seed=parameters.seed, features=embedding.name)
            else:
                yield fidelity.frechet(*pair, features=embedding.name)
        elif metric == "coral":
            yield _adapted(parameters, ours, theirs, features, embedding)
        elif metric == "lengths":
            yield fidelity.lengths(ours.texts, theirs.texts)
        elif metric == "openings":
            yield fidelity.openings(ours.texts, theirs.texts)
        elif metric in ("tstr", "trts"):
            sides = ours.labelled(metric, "from_job"), theirs.labelled(metric, "corpus")
            train, test = sides if metric == "tstr" else sides[::-1]
            yield transfer(train, test, name=f"{metric.upper()} accuracy")
        else:
            yield _by_model(metric, parameters, ours, theirs, model, writer)


def _adapted(
    parameters: Evaluation,
    ours: Texts,
    theirs: Texts,
    features: Mapping[str, NDArray[np.float32]],
    embedding: Embedding | None,
) -> Figure:
    """Return deep CORAL: every other text of the corpus is adapted to, without its label, the rest
    are tried.
    """
    assert embedding is not None
    if len(theirs.texts) < 4:
        raise invalid("corpus", f"{len(theirs.texts)} texts, and coral needs 4", "a larger one")
    train, test = ours.labelled("coral", "from_job"), theirs.labelled("coral", "corpus")
    return adapted_accuracy(
        (features["ours"], train.labels),
        features["theirs"][::2],
        (features["theirs"][1::2], test.labels[1::2]),
        features=embedding.name,
        seed=parameters.seed,
    )


def _by_model(
    metric: str,
    parameters: Evaluation,
    ours: Texts,
    theirs: Texts,
    model: Path | None,
    writer: Writer | None,
) -> Figure:
    """Return the metrics that train or prompt a language model."""
    if metric == "judge":
        if writer is None:
            raise invalid("judge", "judge needs one", "a registered language model or endpoint")
        return judge.quality(ours.texts, writer)
    if model is None:
        raise invalid("language_model", f"{metric} needs one", "a registered language model")
    tokens, seed = parameters.text_tokens, parameters.seed
    if metric == "next-token":
        return language.next_token_accuracy(
            model, ours.texts, theirs.texts, steps=parameters.steps, tokens=tokens, seed=seed
        )
    sides = ours.labelled(metric, "from_job"), theirs.labelled(metric, "corpus")
    examples, test = sides if metric == "in-context-tstr" else sides[::-1]
    name = f"In-context {metric[-4:].upper()} accuracy"
    return language.in_context_accuracy(
        model, examples, test, shots=parameters.shots, tokens=tokens, seed=seed, name=name
    )


def _first(side: Texts, most: int) -> Texts:
    labels = None if side.labels is None else side.labels[:most]
    return Texts(side.texts[:most], labels)
