"""Train on synthetic, test on real (TSTR), and the other way round (TRTS)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.evaluation.figures import Figure, mean_interval

NGRAMS = (1, 2)
MOST_TERMS = 50_000
REGULARISATION = 1.0
ITERATIONS = 1_000


@dataclass(frozen=True)
class Labelled:
    """Texts with their labels, in the same order."""

    texts: Sequence[str]
    labels: Sequence[str]

    def __post_init__(self) -> None:
        if len(self.texts) != len(self.labels):
            raise ValueError(f"{len(self.texts)} texts have {len(self.labels)} labels")


def transfer(
    train: Labelled,
    test: Labelled,
    *,
    name: str = "TSTR accuracy",
    usable: NDArray[np.bool_] | None = None,
) -> Figure:
    """Return accuracy on `test` of a classifier trained on `train`: TF-IDF and logistic regression.

    The ceiling is the same figure with real texts on both sides. Raises ValueError if the training
    texts have fewer than two labels: nothing can be learned.

    Args:
        usable: test texts that may be right at all. The others count as wrong.
    """
    if len(set(train.labels)) < 2:
        raise ValueError("the training texts have fewer than two labels")
    classifier = _classifier()
    classifier.fit(list(train.texts), list(train.labels))
    predicted = classifier.predict(list(test.texts))
    truth = np.asarray(test.labels)
    right = predicted == truth
    right = right if usable is None else right & usable
    settings: dict[str, Any] = {
        "classifier": "logistic regression",
        "features": f"TF-IDF of {NGRAMS[0]}- to {NGRAMS[1]}-grams, at most {MOST_TERMS:,}",
        "C": REGULARISATION,
        "texts": [len(train.texts), len(test.texts)],
    }
    details = {"macro F1": _macro_f1(truth, predicted), "largest class": _largest_share(truth)}
    ideal, interval = "the figure of real texts", mean_interval(right)
    return Figure(name, float(np.mean(right)), settings, ideal, details, interval=interval)


def _classifier() -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    terms = TfidfVectorizer(ngram_range=NGRAMS, max_features=MOST_TERMS, sublinear_tf=True)
    return make_pipeline(terms, LogisticRegression(C=REGULARISATION, max_iter=ITERATIONS))


def _macro_f1(truth: Any, found: Any) -> float:
    from sklearn.metrics import f1_score

    return float(f1_score(truth, found, average="macro", zero_division=0))


def _largest_share(truth: Any) -> float:
    _, counts = np.unique(truth, return_counts=True)
    return float(counts.max() / counts.sum())
