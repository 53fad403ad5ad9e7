"""`secpe` (paper 003, Algorithms 1 to 3): texts that evolve towards noisy clusters which protect
secrets.

    cells       k-means of a registered public corpus, for each label: centres e_k and numbers n_k,
                public
    released    counts and centres that records were added to, with noise: one release, or one a
                round
    rounds      each noisy centre votes for the nearest sample with its noisy count; survivors are
                varied

Only a release reads records. All that follows takes as long for a hundred records as for a million,
and a later job with `from_job` does it again for nothing. Where there are several releases, a round
votes by the mean of those so far: a function of what was released, with less noise than any of
them.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from accountant.core.errors import DataError
from accountant.core.mechanisms.evolution_fields import EVOLUTION
from accountant.core.mechanisms.secpe import SecPe, texts_written
from accountant.core.privacy.price import Terms
from workers.data.records import Records
from workers.embedding.neighbours import shared_votes, weighted_votes
from workers.evolution import population
from workers.evolution.places import Space, of_samples, space
from workers.evolution.population import Counts, Evolution, Label
from workers.evolution.variation import tools
from workers.interface import NOTHING_PUBLIC, Artifact, Progress, Public, Released, Text
from workers.mechanisms.secpe.cells import Cells, public_texts
from workers.mechanisms.secpe.releases import Members, Noisy, release
from workers.models import LocalModel
from workers.noise.meter import Meter

CLUSTERS = "clusters"
#: A record's vote, in the whole numbers that the artifact has.
VOTE = 1_000


class Runner:
    """Runs `secpe`."""

    resumes = True

    def total(self, parameters: SecPe, terms: Terms) -> int:
        """Return texts written, as the parameters state them: public."""
        return max(1, len(terms.labels)) * sum(texts_written(parameters))

    def check(self, parameters: SecPe, terms: Terms, public: Public) -> None:
        """Raise DataError if a label has fewer public texts than clusters are asked for."""
        if parameters.from_job is not None:
            return
        labels: tuple[Label, ...] = terms.labels or (None,)
        texts = public_texts(public.corpus("public_corpus"), labels, parameters.public_texts)
        for label, sources in zip(labels, texts, strict=True):
            if len(sources) < parameters.clusters:
                of = "" if label is None else f" of the label {label!r}"
                raise DataError(
                    f"clusters: {parameters.clusters} are asked for, "
                    f"the corpus has {len(sources):,} texts{of}"
                )

    def run(
        self,
        parameters: SecPe,
        terms: Terms,
        records: Records,
        model: LocalModel,
        meter: Meter,
        progress: Progress,
        public: Public = NOTHING_PUBLIC,
    ) -> Iterator[Text | Artifact]:
        """Release counts and centres, once or in each round, and evolve."""
        texts = public_texts(
            public.corpus("public_corpus"), records.labels, parameters.public_texts
        )
        where = space(
            parameters, model, public, (text for label_texts in texts for text in label_texts)
        )
        cells = Cells.kept(
            meter.kept,
            lambda: Cells.of(
                [where.all(text) for text in texts], parameters.clusters, parameters.radius
            ),
        )
        members = Members(parameters, records, where, cells, progress.check)
        noisy = Noisy.of(cells, where, release(parameters, members, meter))
        scribe, random = tools(parameters, terms, model, progress, public)
        evolution = Evolution.begun(
            parameters, records.labels, scribe, random, progress, meter.kept
        )
        for place in range(parameters.iterations):
            if place:
                evolution.vary()
                if parameters.recluster:
                    noisy = noisy.with_another(release(parameters, members, meter))
            evolution.select(votes(evolution, where, noisy))
        yield from evolution.surviving()
        yield noisy.artifact(CLUSTERS)
        yield evolution.artifact(EVOLUTION)

    def reuse(
        self,
        parameters: SecPe,
        terms: Terms,
        artifacts: Mapping[str, Released],
        model: LocalModel,
        progress: Progress,
        public: Public = NOTHING_PUBLIC,
    ) -> Iterator[Text | Artifact]:
        """Evolve by an earlier job's counts and centres, from new samples or from its own.

        Raises DataError where these are of another embedding model or other labels.
        """
        labels: tuple[Label, ...] = terms.labels or (None,)
        noisy, where = Noisy.read(artifacts[CLUSTERS], parameters, model, public, len(labels))
        scribe, random = tools(parameters, terms, model, progress, public)
        if parameters.start == "samples":
            families = population.read(artifacts[EVOLUTION], labels, None)
            evolution = Evolution(parameters, families, scribe, random, progress)
        else:
            evolution = Evolution.begun(parameters, labels, scribe, random, progress)
        for place in range(parameters.iterations):
            if place:
                evolution.vary()
            evolution.select(votes(evolution, where, noisy))
        yield from evolution.surviving()
        yield noisy.artifact(CLUSTERS)
        yield evolution.artifact(EVOLUTION)


def votes(evolution: Evolution, where: Space, noisy: Noisy) -> dict[Label, Counts]:
    """Return each label's candidates' votes, in thousandths of a record.

    A noisy centre votes with its noisy count, its public texts taken from it or not (`counted`),
    for the nearest candidate, or shares the places of survivors with the others (`voting`). Counts
    below 0 are 0. A centre without direction votes for nobody.
    """
    counts, centres = noisy.mean()
    parameters = evolution.parameters
    assert isinstance(parameters, SecPe)
    weights = np.maximum(counts - (noisy.sizes if parameters.counted == "private" else 0), 0)
    votes = {}
    for place, (label, family) in enumerate(evolution.families.items()):
        candidates = of_samples(where, family.texts())
        members = noisy.owners == place
        votes_of = np.zeros(len(candidates))
        if members.any() and (candidates != 0).any():
            if parameters.voting == "nearest":
                votes_of = weighted_votes(centres[members], weights[members], candidates)
            else:
                votes_of = shared_votes(
                    centres[members], weights[members], candidates, parameters.samples
                )
        votes[label] = np.rint(VOTE * votes_of).astype(np.int64)
    return votes
