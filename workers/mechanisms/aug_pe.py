"""`aug-pe` (Xie et al. 2024): samples of a language model that private records vote for, epoch by
epoch.

    candidates   of each label: the prompt's samples at first, or those of the job in `population`;
                 then survivors and their variations
    count[j]     = records of the label that have candidate j among their k nearest, by cosine
    released     = round(count + noise), of all candidates of all labels at once, zeros included
    survivors    = by rank or draw among the released counts, those below the threshold as 0

A record votes under its own label for candidates of its own choice, which no other record affects
(workers/embedding/neighbours.py), so a unit of b records moves the counts by b sqrt(k) at the most.
All that follows reads released counts. What there is to vote for is public, and so is whether there
is anything.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache

import numpy as np

from accountant.core.mechanisms.aug_pe import AugPe, sensitivity, texts_written, votes_event
from accountant.core.mechanisms.evolution_fields import EVOLUTION
from accountant.core.privacy.price import Terms
from workers.data.public_text import PublicText
from workers.data.records import Records
from workers.embedding.neighbours import Floats, Integers, votes
from workers.evolution import population
from workers.evolution.places import of_records, of_samples, space
from workers.evolution.population import Evolution, Family, Label
from workers.evolution.variation import tools
from workers.interface import NOTHING_PUBLIC, Artifact, Progress, Public, Released, Text
from workers.models import LocalModel
from workers.noise.meter import Meter


class Runner:
    """Runs `aug-pe`."""

    resumes = True

    def total(self, parameters: AugPe, terms: Terms) -> int:
        """Return texts written, as the parameters state them: public."""
        samples = parameters.samples if parameters.from_job is not None else 0
        return max(1, len(terms.labels)) * (samples + sum(texts_written(parameters)))

    def check(self, parameters: AugPe, terms: Terms, public: Public) -> None:
        """Raises DataError where the job in `population` released no samples for a label."""
        if parameters.population is not None:
            _earlier(terms.labels or (None,), public)

    def run(
        self,
        parameters: AugPe,
        terms: Terms,
        records: Records,
        model: LocalModel,
        meter: Meter,
        progress: Progress,
        public: Public = NOTHING_PUBLIC,
    ) -> Iterator[Text | Artifact]:
        """Write, let records vote, select and vary; the last epoch's survivors are published."""
        scribe, random = tools(parameters, terms, model, progress, public)
        if parameters.population is None:
            evolution = Evolution.begun(
                parameters, records.labels, scribe, random, progress, meter.kept
            )
        else:
            families = _earlier(records.labels, public)
            evolution = Evolution.continued(
                parameters, families, scribe, random, progress, meter.kept
            )
        first = [text for family in evolution.families.values() for text in family.texts()]
        where = space(parameters, model, public, first)
        private = cache(lambda: of_records(where, records, progress.check))
        for epoch in range(parameters.epochs):
            if epoch:
                evolution.vary()
            ahead = {
                label: self._ahead(parameters, evolution, label) for label in evolution.families
            }

            def counts(
                ahead: Mapping[Label, Sequence[Sequence[str]]] = ahead,
            ) -> Iterator[Integers]:
                for label, family in evolution.families.items():
                    places = of_samples(where, family.texts(), ahead[label])
                    yield count(private()[label], places, parameters.votes)

            sizes = {label: len(family.candidates) for label, family in evolution.families.items()}
            noisy = release(parameters, terms, sizes, counts, meter)
            evolution.select(noisy, parameters.threshold)
        yield from evolution.surviving()
        yield evolution.artifact(EVOLUTION)

    def reuse(
        self,
        parameters: AugPe,
        terms: Terms,
        artifacts: Mapping[str, Released],
        model: LocalModel,
        progress: Progress,
        public: Public = NOTHING_PUBLIC,
    ) -> Iterator[Text | Artifact]:
        """Select by an earlier job's counts, then vary. Raises DataError without the epoch."""
        labels: tuple[Label, ...] = terms.labels or (None,)
        families = population.read(artifacts[EVOLUTION], labels, parameters.from_epoch)
        scribe, random = tools(parameters, terms, model, progress, public)
        evolution = Evolution(parameters, families, scribe, random, progress)
        earlier = {
            label: np.array(family.rounds[-1].counts, np.int64)
            for label, family in families.items()
        }
        evolution.select(earlier, parameters.threshold)
        progress.advance(len(families) * parameters.samples)
        yield from evolution.surviving()
        if parameters.variations:
            evolution.vary()
            for label, family in families.items():
                chosen = set(family.survivors())
                for place in family.candidates:
                    if place not in chosen:
                        sample = family.samples[place]
                        yield Text(sample.text, label, sample.complete)
        yield evolution.artifact(EVOLUTION)

    def _ahead(
        self, parameters: AugPe, evolution: Evolution, label: Label
    ) -> list[list[PublicText]]:
        """Return variations by which a label's candidates are placed, if asked for."""
        family, ahead = evolution.families[label], parameters.lookahead
        if not ahead:
            return []
        variations = evolution.varied(label, family.candidates, ahead, "ahead")
        most = parameters.samples * (parameters.variations + 1)
        evolution.progress.advance(ahead * (most - len(family.candidates)))
        return [[sample.text for sample in group] for group in variations]


def _earlier(labels: Sequence[Label], public: Public) -> dict[Label, Family]:
    """Return what the job in `population` released, label by label."""
    return population.read(public.sources["population"][EVOLUTION], labels, None, "population")


def count(private: list[Floats], candidates: Floats, k: int) -> Integers:
    """Return the votes of one label's records for its candidates: int64 (candidates,). Private.

    A record votes for fewer than k where fewer can be embedded, which is public.
    """
    usable = int((candidates != 0).any(axis=1).sum())
    if not usable:
        return np.zeros(len(candidates), np.int64)
    return votes(private, candidates, min(k, usable))


def release(
    parameters: AugPe,
    terms: Terms,
    sizes: Mapping[Label, int],
    counts: Callable[[], Iterable[Integers]],
    meter: Meter,
) -> dict[Label, Integers]:
    """Return the counts of all labels with noise, those without a vote too, in one release.

    `sizes`: the candidates of each label. `counts` computes theirs, label by label.
    """
    event = votes_event(parameters)
    noisy = meter.gaussian(
        lambda: np.concatenate(list(counts())), sensitivity(parameters, terms), event
    )
    # of each label's among all candidates, (all candidates,)
    ends = np.cumsum(list(sizes.values()))[:-1]
    return dict(zip(sizes, np.split(noisy, ends), strict=True))
