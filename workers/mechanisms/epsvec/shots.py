"""Fixed shots (paper 000, section 4.4): candidates without private data, a noisy count of who is
near which.

    count[j]  = records of the label whose nearest candidate, by cosine, is j
    released  = count + noise, of all labels in one release; the largest `shots` of each label are
              its shots

A record counts for one candidate of its own label, and which one depends on that record alone
(workers/embedding/neighbours.py), so a unit moves the counts by as many steps as it has records.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from accountant.core.mechanisms.batches import doubled
from accountant.core.mechanisms.epsvec import Epsvec
from accountant.core.privacy.events import Gaussian
from accountant.core.privacy.price import Terms
from workers.data.public_text import PublicText, released
from workers.data.records import Records
from workers.embedding.embedders import Embedder, embed_all
from workers.embedding.neighbours import Floats, Integers, unit, votes
from workers.interface import Released
from workers.noise.meter import Meter

Label = str | None
Check = Callable[[], None]


@dataclass(frozen=True)
class Shot:
    """A candidate that was kept, and its noisy count."""

    text: PublicText
    count: int


def count_near(
    records: Records,
    candidates: Mapping[Label, Sequence[str]],
    embedder: Embedder,
    tokens: int,
    check: Check,
) -> dict[Label, Integers]:
    """Count the records of each label nearest to each of its candidates: int64 (candidates,).

    Private, and held in memory only. Embeddings of candidates are centred on their mean, which is
    public: the states of a language model lie in a narrow cone, where all cosines are alike.
    """
    counts = {}
    for label in records.labels:
        texts = list(candidates[label])
        places = embed_all(embedder, texts, tokens)  # (candidates, dimensions) float32
        centre = places.mean(axis=0) if texts else np.zeros(embedder.dimensions, np.float32)
        label_texts = (record.text for record in records.records if record.label == label)
        usable = (np.abs(unit(places - centre)) > 0).any()
        if not usable:  # nothing to be near to: counts are zero, whatever the records
            counts[label] = np.zeros(len(texts), np.int64)
            continue
        counts[label] = votes(
            _centred(embedder.embed(label_texts, tokens), centre, check), places - centre
        )
    return counts


def _centred(pieces: Iterator[Floats], centre: Floats, check: Check) -> Iterator[Floats]:
    """Yield a row of zeros is a text that can't be placed and stays one."""
    for piece in pieces:
        check()
        present = (piece != 0).any(axis=1, keepdims=True)
        yield np.where(present, piece - centre, 0).astype(np.float32)


def release(
    parameters: Epsvec,
    terms: Terms,
    sizes: Mapping[Label, int],
    counts: Callable[[], Mapping[Label, Integers]],
    meter: Meter,
) -> dict[Label, Integers]:
    """Return the counts of all labels with noise: one release, since a unit may have records of
    several labels.

    `sizes`: the candidates of each label. `counts` computes theirs.
    """
    assert parameters.shots_noise_multiplier is not None
    root = Fraction(1) if doubled(terms) == 1 else Fraction(2**0.5)  # the float lies above the root
    sensitivity = terms.max_records_per_unit * root
    event = Gaussian(parameters.shots_noise_multiplier)
    noisy = meter.gaussian(lambda: np.concatenate(list(counts().values())), sensitivity, event)
    # of each label's among all candidates, (all candidates,)
    ends = np.cumsum(list(sizes.values()))[:-1]
    return dict(zip(sizes, np.split(noisy, ends), strict=True))


def largest(candidates: Sequence[PublicText], noisy: Integers, shots: int) -> list[Shot]:
    """Return the `shots` candidates with the largest noisy counts; of equals, the first."""
    order = np.argsort(-noisy, kind="stable")[:shots]
    return [Shot(candidates[place], int(noisy[place])) for place in order.tolist()]


def to_json(shots: Mapping[Label, Sequence[Shot]]) -> list[dict[str, Any]]:
    return [
        {
            "label": label,
            "shots": [{"text": shot.text, "noisy_count": shot.count} for shot in shot_json],
        }
        for label, shot_json in shots.items()
    ]


def from_released(artifact: Released) -> dict[Label, list[Shot]]:
    """Return the shots that an earlier job released, by label."""
    return {
        label["label"]: [
            Shot(released(artifact, shot["text"]), shot["noisy_count"]) for shot in label["shots"]
        ]
        for label in artifact.json()["labels"]
    }
