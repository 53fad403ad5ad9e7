"""The private steps of `dp-kps`: counts of vocabulary terms, then a sketch of each label, both with
noise.

    counts[v]            records among whose first S distinct terms is v: of every v in V, seen or
                         not
    kept                 the N largest noisy counts
    weights[label, v]    sum over records of 1 / k for each of its first k <= S distinct terms in
                         kept
    sums[j, label, i]    sum over records of feature i of its first 2^j (or j) terms, side by side

Terms are matched against all of V, so that a record's terms are the same ones in both steps. All
sums are of whole numbers, so their order does not matter. A record with fewer terms than a sketch
has places adds nothing to that sketch: zeros in its place would break the rescaling of padded
queries.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accountant.core.errors import DataError
from accountant.core.mechanisms.dp_kps import (
    DpKps,
    blocks,
    feature_steps,
    shift,
    sketches_event,
    vocabulary_event,
    vocabulary_sensitivity,
    weight_steps,
)
from accountant.core.privacy.price import Terms
from workers.data.public_text import PublicText, all_released
from workers.data.records import Records
from workers.data.terms import TermList
from workers.embedding.neighbours import Floats
from workers.interface import Artifact, Public, Released
from workers.mechanisms.dp_kps.features import Features
from workers.noise.meter import Meter, Values

Check = Callable[[], None]
Integers = NDArray[np.int64]

#: Records between two looks at whether the job was cancelled, and those whose features are held at
#: a time.
BETWEEN_CHECKS, ROWS = 1_000, 1_024


@dataclass(frozen=True)
class Layout:
    """How sketches were made: all that a later job has to know. Public.

    `steps`: grid steps of a record, in a weight or in the largest feature. `blocks`: phrases of
    each sketch.
    """

    sketch: str
    method: str
    blocks: tuple[int, ...]
    features: int
    bandwidth: float
    seed: int
    steps: int
    labels: tuple[str | None, ...]

    @classmethod
    def of(
        cls, parameters: DpKps, terms: Terms, labels: Sequence[str | None], seed: int
    ) -> "Layout":
        """That of a job. `seed`: of the features."""
        return cls(
            parameters.sketch or "",
            parameters.method,
            blocks(parameters),
            parameters.features,
            parameters.bandwidth,
            seed,
            weight_steps(parameters) * feature_steps(parameters, terms),
            tuple(labels),
        )

    def sketches(self, points: Floats) -> list[Features]:
        """Return the features of every Fourier sketch: (terms, d) unit vectors in.

        A block has the squared norm 1 alone, 1 / l in the sketch of l phrases, and 2 / 2^j in that
        of up to 2^j, which serves prefixes from half as long on (paper 002, "Bandwidth selection").
        """
        drawn_sketches = []
        for number, count in enumerate(self.blocks):
            norm = {"independent": 1.0, "linear": 1 / count, "logarithmic": 2 / 2**number}[
                self.method
            ]
            drawn_sketches.append(
                Features.of(points, count, self.features, self.bandwidth, norm, self.seed, number)
            )
        return drawn_sketches


@dataclass(frozen=True)
class Sketched:
    """The releases of a job: terms kept, their noisy counts, and noisy sums (sketches, labels,
    width).

    `points`: (terms, d) unit vectors of Fourier features, zeros where a term has none; (terms, 0)
    otherwise.
    """

    layout: Layout
    phrases: tuple[PublicText, ...]
    counts: Integers
    sums: Integers
    points: Floats

    def artifacts(self) -> tuple[Artifact, Artifact]:
        """Return both artifacts."""
        pairs = [
            [str(term), count]
            for term, count in zip(self.phrases, self.counts.tolist(), strict=True)
        ]
        content = {"layout": asdict(self.layout), "terms": pairs}
        tensors: dict[str, NDArray[Any]] = {"sums": self.sums, "points": self.points}
        return (
            Artifact.of_json("vocabulary", "noisy-vocabulary", content),
            Artifact.of_tensors("sketches", "phrase-sketches", tensors),
        )

    @classmethod
    def released(cls, artifacts: Mapping[str, Released]) -> "Sketched":
        """Return what an earlier job released."""
        content, tensors = artifacts["vocabulary"].json(), artifacts["sketches"].tensors()
        layout = content["layout"] | {
            name: tuple(content["layout"][name]) for name in ("blocks", "labels")
        }
        return cls(
            Layout(**layout),
            tuple(all_released(artifacts["vocabulary"], [term for term, _ in content["terms"]])),
            np.array([count for _, count in content["terms"]], np.int64),
            tensors["sums"],
            tensors["points"],
        )


# --- the vocabulary -----------------------------------------------------------------------------


def term_list(parameters: DpKps, public: Public) -> tuple[TermList, Released]:
    """Return the public vocabulary V. Raises DataError where it does not serve."""
    (artifact,) = public.sources["vocabulary"].values()
    listed = TermList.of(artifact)
    if not listed.documents:
        raise DataError("vocabulary: its list has no terms (allowed: a list with at least one)")
    if parameters.vocabulary_size > len(listed.documents):
        most = len(listed.documents)
        raise DataError(
            f"vocabulary_size: {parameters.vocabulary_size:,} of {most:,} terms (allowed: 1 to "
            f"{most})"
        )
    return listed, artifact


def term_counts(parameters: DpKps, records: Records, listed: TermList, check: Check) -> Integers:
    """Count the records that have each term of V among their first: (|V|,). Private."""
    places = {term: place for place, term in enumerate(listed.documents)}
    counts = np.zeros(len(places), np.int64)
    for number, record in enumerate(records.records):
        if number % BETWEEN_CHECKS == 0:
            check()
        terms = listed.distinct(record.text, parameters.terms_per_record, parameters.record_words)
        counts[[places[term] for term in terms]] += 1
    return counts


def release_counts(parameters: DpKps, terms: Terms, counts: Values, meter: Meter) -> Integers:
    """Return noisy counts of every term of V, for all labels at once."""
    return meter.laplace(
        counts, vocabulary_sensitivity(parameters, terms), vocabulary_event(parameters)
    )


def largest(noisy: Integers, size: int) -> Integers:
    """Return places of the `size` largest noisy counts, largest first; of equals, the first."""
    return np.argsort(-noisy, kind="stable")[:size]


# --- the sketches -------------------------------------------------------------------------------


def own_terms(
    parameters: DpKps, records: Records, listed: TermList, usable: Mapping[str, int], check: Check
) -> dict[str | None, list[list[int]]]:
    """Return places of records' first distinct `usable` terms, by label. Private."""
    terms_by_label: dict[str | None, list[list[int]]] = {label: [] for label in records.labels}
    for number, record in enumerate(records.records):
        if number % BETWEEN_CHECKS == 0:
            check()
        terms = listed.distinct(
            record.text, parameters.terms_per_record, parameters.record_words, usable
        )
        terms_by_label[record.label].append([usable[term] for term in terms])
    return terms_by_label


def weights(parameters: DpKps, own: Mapping[str | None, list[list[int]]], size: int) -> Integers:
    """Return (labels, size) weights: a record's terms share its steps, rounded down."""
    label_weights = np.zeros((len(own), size), np.int64)
    for row, held in zip(label_weights, own.values(), strict=True):
        for terms in held:
            if terms:
                row[terms] += weight_steps(parameters) // len(terms)
    return label_weights


def sums(
    parameters: DpKps,
    layout: Layout,
    own: Mapping[str | None, list[list[int]]],
    size: int,
    sketches: Sequence[Features],
    check: Check,
) -> Integers:
    """Return exact sums, (sketches, labels, width). Private, in memory only."""
    if layout.method == "independent":
        mean = weights(parameters, own, size)
        if layout.sketch == "histogram":
            return mean[None]
        return _linear(mean, sketches[0], layout.steps // weight_steps(parameters))[None]
    label_sums = np.zeros((len(sketches), len(own), layout.features), np.int64)
    for number, sketch in enumerate(sketches):
        for label, held in enumerate(own.values()):
            whole = [terms[: sketch.blocks] for terms in held if len(terms) >= sketch.blocks]
            for first in range(0, len(whole), ROWS):
                check()
                places = np.array(whole[first : first + ROWS], np.int64)
                label_sums[number, label] += sketch.integers(places, layout.steps).sum(
                    axis=0, dtype=np.int64
                )
    return label_sums


def _linear(mean: Integers, sketch: Features, steps: int) -> Integers:
    """Return sums of mean features: (labels, terms) to (labels, features)."""
    total = np.zeros((len(mean), sketch.parts.shape[2]), np.int64)
    for first in range(0, mean.shape[1], ROWS):
        places = np.arange(first, min(first + ROWS, mean.shape[1]))
        total += mean[:, places] @ sketch.integers(places[:, None], steps).astype(np.int64)
    return total


def release_sums(
    parameters: DpKps, terms: Terms, layout: Layout, exact: Values, meter: Meter
) -> Integers:
    """Return the sums with noise, (sketches, labels, width), or what computes them.

    One row a sketch, of all labels, since a unit may have records of several.
    """
    sensitivity: Fraction = shift(parameters, terms) * layout.steps
    event: Any = sketches_event(parameters)
    add = meter.laplace if parameters.noise == "laplace" else meter.gaussian

    def rows() -> Integers:
        sums = exact() if callable(exact) else exact
        return sums.reshape(len(sums), -1)

    noisy = add(rows, sensitivity, event)
    return noisy.reshape(len(noisy), len(layout.labels), -1)
