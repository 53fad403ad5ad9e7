"""Populations of samples, one for each label, from the first to the last round.

    begin    samples * (L + 1) texts by the prompt, or an earlier job's survivors and their
             variations
    select   by released counts: the survivors
    vary     survivors, and L variations of each, are the next candidates

Identical texts are one candidate: their votes would be divided between them. All samples, their
origins and the counts of every round make one artifact, from which later jobs select and vary for
nothing.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accountant.core.errors import DataError
from accountant.core.mechanisms.evolution_fields import EvolvingTexts
from workers.data.public_text import PublicText, all_released
from workers.evolution.variation import Made, Scribe
from workers.generation.kept_texts import kept_texts
from workers.generation.writer import Writer, Written
from workers.interface import Artifact, Progress, Released, Text
from workers.noise.kept_draws import KeptDraws

Label = str | None
Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Round:
    """One selection: candidates and survivors by their places among a label's samples.

    `counts`: of the candidates, as they were released. A survivor drawn twice stands twice.
    """

    candidates: list[int]
    counts: list[int]
    survivors: list[int]


@dataclass
class Family:
    """A label's samples, each text once. `origins`: whose variation each is (None: a prompt's)."""

    samples: list[Made] = field(default_factory=list)
    origins: list[int | None] = field(default_factory=list)
    candidates: list[int] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)

    def add(self, made: Made, origin: int | None) -> int:
        """Return the place of a sample; a text that is there already keeps its own."""
        place = self.places.setdefault(made.text, len(self.samples))
        if place == len(self.samples):
            self.samples.append(made)
            self.origins.append(origin)
        return place

    def texts(self) -> list[PublicText]:
        """Return the candidates' texts, in their order."""
        return [self.samples[place].text for place in self.candidates]

    def survivors(self) -> list[int]:
        """Return the survivors of the last round, by their places."""
        return self.rounds[-1].survivors

    def to_json(self, label: Label) -> dict[str, Any]:
        """Return its part of the artifact."""
        return {
            "label": label,
            "samples": [
                {"text": sample.text, "complete": sample.complete, "origin": origin}
                for sample, origin in zip(self.samples, self.origins, strict=True)
            ],
            "epochs": [
                {
                    "candidates": round_.candidates,
                    "noisy_counts": round_.counts,
                    "survivors": round_.survivors,
                }
                for round_ in self.rounds
            ],
        }


@dataclass
class Evolution:
    """The families of all labels, and what writes and selects for them."""

    parameters: EvolvingTexts
    families: dict[Label, Family]
    scribe: Scribe
    random: np.random.Generator
    progress: Progress
    kept: KeptDraws = field(default_factory=KeptDraws)

    @classmethod
    def begun(
        cls,
        parameters: EvolvingTexts,
        labels: Sequence[Label],
        scribe: Scribe,
        random: np.random.Generator,
        progress: Progress,
        kept: KeptDraws | None = None,
    ) -> "Evolution":
        """Return populations by the prompt alone: samples * (L + 1) texts, equal ones once."""
        count = parameters.samples * (parameters.variations + 1)
        evolution = cls(parameters, {}, scribe, random, progress, kept or KeptDraws())
        for label in labels:
            evolution.families[label] = family = Family()

            def first(own: Scribe, label: Label = label) -> list[list[Made]]:
                return [own.first(label, count)]

            (texts,) = evolution.written(f"first {label!r}", first)
            family.candidates = list(dict.fromkeys(family.add(text, None) for text in texts))
        return evolution

    def written(
        self, name: str, make: Callable[[Scribe], Sequence[Sequence[Made]]], sources: int = 1
    ) -> list[list[Made]]:
        """Return what `make` has a scribe write, a list a source, now or in an earlier attempt."""

        def rows(own: Writer) -> Iterator[Written]:
            scribe = self.scribe.seeded_by(own, seed) if self.kept.keeps else self.scribe
            for row, every in enumerate(make(scribe)):
                yield from (Written(sample.text, sample.complete, row) for sample in every)

        seed = self.kept.seed(f"words of {name}", self.parameters.seed) if self.kept.keeps else 0
        texts_by_source: list[list[Made]] = [[] for _ in range(sources)]
        for kept_row in kept_texts(
            self.kept, name, self.parameters.seed, self.scribe.writer, self.progress, rows
        ):
            texts_by_source[kept_row.row].append(Made(kept_row.text, kept_row.complete))
        return texts_by_source

    @classmethod
    def continued(
        cls,
        parameters: EvolvingTexts,
        families: dict[Label, Family],
        scribe: Scribe,
        random: np.random.Generator,
        progress: Progress,
        kept: KeptDraws | None = None,
    ) -> "Evolution":
        """Return what survived an earlier job's last round, as many as survive here, and L
        variations of each.

        Progress moves by samples * (L + 1) a label.
        """
        begun = {}
        for label, earlier in families.items():
            begun[label] = family = Family()
            # one that was drawn twice is one sample
            chosen = list(dict.fromkeys(earlier.survivors()))
            places = [
                family.add(earlier.samples[place], None) for place in chosen[: parameters.samples]
            ]
            family.rounds = [Round([], [], places)]
        evolution = cls(parameters, begun, scribe, random, progress, kept or KeptDraws())
        progress.advance(len(begun) * parameters.samples)
        # by a name of its own: the first round's variations are made after it
        evolution.vary("continued")
        for family in begun.values():
            family.rounds = []
        return evolution

    def select(self, counts: Mapping[Label, Counts], threshold: float = 0) -> None:
        """End a round: by these released counts of each label's candidates, in their order.

        Counts below the threshold weigh nothing; they are kept as they were released.
        """
        for label, family in self.families.items():
            label_counts = counts[label]
            weights = np.where(label_counts < threshold, 0, label_counts)
            if self.kept.keeps:
                name = f"survivors {len(family.rounds)} {label!r}"
                self.random = np.random.default_rng(self.kept.seed(name, self.parameters.seed))
            chosen = survivors(
                weights, self.parameters.samples, self.parameters.select, self.random
            )
            places = [family.candidates[place] for place in chosen]
            family.rounds.append(Round(family.candidates, label_counts.tolist(), places))

    def vary(self, name: str = "varied") -> None:
        """Make the survivors and L variations of each the candidates; L for each time that one was
        drawn.

        Progress moves by L for every sample that may survive, however many did.
        """
        variations = self.parameters.variations
        for label, family in self.families.items():
            chosen = family.survivors()
            varied = self.varied(label, chosen, variations, name)
            places = list(chosen)
            for origin, samples in zip(chosen, varied, strict=True):
                places += [family.add(sample, origin) for sample in samples]
            family.candidates = list(dict.fromkeys(places))
            self.progress.advance(variations * (self.parameters.samples - len(chosen)))

    def varied(self, label: Label, places: Sequence[int], each: int, name: str) -> list[list[Made]]:
        """`each` variations of a label's samples in these places, in this round of theirs."""
        family = self.families[label]
        sources = [family.samples[place] for place in places]
        name = f"{name} {len(family.rounds)} {label!r}"
        return self.written(name, lambda own: own.varied(label, sources, each), len(sources))

    def surviving(self) -> Iterator[Text]:
        """Yield the last survivors as published texts; one drawn twice twice."""
        for label, family in self.families.items():
            for place in family.survivors():
                sample = family.samples[place]
                yield Text(sample.text, label, sample.complete)

    def artifact(self, name: str) -> Artifact:
        """Return all samples and rounds."""
        every = [family.to_json(label) for label, family in self.families.items()]
        return Artifact.of_json(name, "evolution", {"labels": every})


def read(
    artifact: Released, labels: Sequence[Label], epoch: int | None, field: str = "from_job"
) -> dict[Label, Family]:
    """Return the families that an earlier job released, their candidates those of one epoch; None:
    of the last.

    `field`: the parameter that names the job. Raises DataError naming the field where there is no
    such epoch or label.
    """
    stored = {family_json["label"]: family_json for family_json in artifact.json()["labels"]}
    texts = iter(
        all_released(
            artifact,
            (one["text"] for round_json in stored.values() for one in round_json["samples"]),
        )
    )
    families: dict[Label, Family] = {}
    for label, family_json in stored.items():
        family = Family()
        for one in family_json["samples"]:
            family.add(Made(next(texts), bool(one["complete"])), one["origin"])
        family.rounds = [
            Round(one["candidates"], one["noisy_counts"], one["survivors"])
            for one in family_json["epochs"]
        ]
        families[label] = family
    unknown = [label for label in labels if label not in families]
    if unknown:
        raise DataError(f"{field}: it released no samples for {unknown[0]!r}")
    for label in labels:
        rounds = families[label].rounds
        if epoch is not None and epoch > len(rounds):
            raise DataError(
                f"from_epoch: {epoch} is asked for, the job in from_job had {len(rounds)}"
            )
        families[label].rounds = rounds[:epoch]
        families[label].candidates = families[label].rounds[-1].candidates
    return {label: families[label] for label in labels}


# --- Selection of samples by released counts: a function of what is public, so it costs nothing


def survivors(
    counts: NDArray[np.float64] | NDArray[np.int64],
    samples: int,
    select: str,
    random: np.random.Generator,
) -> list[int]:
    """Return the places of `samples` survivors among these candidates: fewer if there are fewer, by
    "rank".

    "rank": those with the largest counts, the largest first; equals in random order. "draw": drawn
    with replacement, in proportion to counts, negative ones as 0; any alike where none is above 0.
    """
    weights = np.maximum(np.asarray(counts, np.float64), 0)
    if not len(weights):
        return []
    if select == "draw":
        total = weights.sum()
        shares = weights / total if total > 0 else None
        places: list[int] = random.choice(len(weights), samples, p=shares).tolist()
        return places
    order = np.lexsort((random.random(len(weights)), -np.asarray(counts, np.float64)))
    ranked: list[int] = order[:samples].tolist()
    return ranked
