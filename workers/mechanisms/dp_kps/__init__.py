"""`dp-kps` (paper 002): private counts and sketches of phrases, then prompts made of draws from
them.

    vocabulary   public terms -> noisy counts of all of them -> the N largest: artifact "vocabulary"
    sketches     each record's terms among these -> noisy sums by label: artifact "sketches"
    sequences    densities of the terms -> draws; any number, free
    texts        prompts with the drawn phrases -> what a writer makes of them; free

A later job with `from_job` begins at the third step, with any writer, prompt and length, and where
the sketches are histograms with any kernel. The writer never sees a record.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np

from accountant.core.errors import DataError
from accountant.core.mechanisms.batches import LEFT_OUT
from accountant.core.mechanisms.dp_kps import DpKps
from accountant.core.privacy.price import Terms
from workers.data.public_text import PublicPrompt, all_released
from workers.data.public_text import label as public_label
from workers.data.records import Records
from workers.embedding.embedders import embed_all
from workers.embedding.neighbours import Floats
from workers.generation.kept_texts import kept_texts
from workers.generation.rules import Rules
from workers.generation.writer import Manner, Writer, Written
from workers.interface import NOTHING_PUBLIC, Artifact, Progress, Public, Released, Text
from workers.mechanisms.dp_kps import sketches
from workers.mechanisms.dp_kps.prompts import Prompts, listed, prompts
from workers.mechanisms.dp_kps.sequences import Sequences
from workers.mechanisms.dp_kps.sketches import Layout, Sketched
from workers.noise.kept_draws import KeptDraws
from workers.noise.meter import Meter

#: A phrase is cut here when it is embedded.
PHRASE_TOKENS = 32
#: Sequences that are drawn and written together.
TOGETHER = 1_000


class Runner:
    """Runs `dp-kps`."""

    resumes = True

    def total(self, parameters: DpKps, terms: Terms) -> int:
        """Return sequences of all labels."""
        return parameters.sequences_per_label * max(1, len(terms.labels))

    def check(self, parameters: DpKps, terms: Terms, public: Public) -> None:  # noqa: ARG002
        """Raises DataError where the term list is empty or too short."""
        sketches.term_list(parameters, public)

    def run(
        self,
        parameters: DpKps,
        terms: Terms,
        records: Records,
        model: None,  # noqa: ARG002  (the writer is a public thing like the embedding)
        meter: Meter,
        progress: Progress,
        public: Public = NOTHING_PUBLIC,
    ) -> Iterator[Text | Artifact]:
        """Release vocabulary and sketches, then draw and write."""
        sketch = sketched(parameters, terms, records, meter, progress, public)
        yield from sketch.artifacts()
        rules = Rules([parameters.prompt])
        yield from _written(parameters, terms, sketch, progress, public, meter.kept, rules)
        if rules.left_out:
            yield Artifact.of_json(LEFT_OUT, LEFT_OUT, rules.counts())

    def reuse(
        self,
        parameters: DpKps,
        terms: Terms,
        artifacts: Mapping[str, Released],
        model: None,  # noqa: ARG002
        progress: Progress,
        public: Public = NOTHING_PUBLIC,
    ) -> Iterator[Text]:
        """Draw from the sketches of an earlier job. Raises DataError where they don't fit."""
        sketch = Sketched.released(artifacts)
        most = max(sketch.layout.blocks)
        if sketch.layout.method != "independent" and parameters.sequence_length > most:
            length = parameters.sequence_length
            raise DataError(
                f"sequence_length: {length} of sketches of at most {most} (allowed: 1 to {most})"
            )
        rules = Rules([parameters.prompt])
        yield from _written(parameters, terms, sketch, progress, public, KeptDraws(), rules)


def sketched(
    parameters: DpKps,
    terms: Terms,
    records: Records,
    meter: Meter,
    progress: Progress,
    public: Public,
) -> Sketched:
    """Return all that is released. Raises DataError if the term list doesn't serve."""
    listed_terms, artifact = sketches.term_list(parameters, public)
    every = list(listed_terms.documents)
    counts = partial(sketches.term_counts, parameters, records, listed_terms, progress.check)
    noisy = sketches.release_counts(parameters, terms, counts, meter)
    places = sketches.largest(noisy, parameters.vocabulary_size)
    phrases = tuple(all_released(artifact, [every[place] for place in places]))
    # Fourier features are drawn from a seed: a later attempt's must be those of the sums that are
    # kept.
    seed = meter.kept.seed("sketches", None) if parameters.seed is None else parameters.seed
    layout = Layout.of(parameters, terms, records.labels, seed)
    fourier = layout.sketch == "fourier"
    points = (
        embed_all(public.embedder("embedding"), phrases, PHRASE_TOKENS)
        if fourier
        else _none(len(phrases))
    )
    # Terms that an embedding can't place would all lie at one point: Fourier sketches do without
    # them.
    placed = (points != 0).any(axis=1) if fourier else np.ones(len(phrases), bool)
    usable = {str(phrase): place for place, phrase in enumerate(phrases) if placed[place]}

    def exact() -> sketches.Integers:
        term_vectors = sketches.own_terms(parameters, records, listed_terms, usable, progress.check)
        features = layout.sketches(points) if fourier else []
        return sketches.sums(
            parameters, layout, term_vectors, len(phrases), features, progress.check
        )

    sums = sketches.release_sums(parameters, terms, layout, exact, meter)
    return Sketched(layout, phrases, noisy[places], sums, points)


def _none(terms: int) -> Floats:
    """No vectors: (terms, 0)."""
    return np.zeros((terms, 0), np.float32)


def sequences(parameters: DpKps, found: Sketched, public: Public) -> Sequences:
    """Return what sequences are drawn from: sketches, with this job's kernel if it has one."""
    points = _none(len(found.phrases))
    if parameters.embedding is not None and found.layout.sketch == "histogram":
        points = embed_all(public.embedder("embedding"), found.phrases, PHRASE_TOKENS)
    return Sequences(found, points, parameters.bandwidth, parameters.top_phrases)


def _written(
    parameters: DpKps,
    terms: Terms,
    found: Sketched,
    progress: Progress,
    public: Public,
    kept: KeptDraws,
    rules: Rules,
) -> Iterator[Text]:
    """Yield the free steps, label by label; what the rules leave out is no text."""
    drawing = sequences(parameters, found, public)
    random = np.random.default_rng(parameters.seed)
    asking = _prompts(parameters, terms, found, public)
    for place, label in enumerate(found.layout.labels):
        for first in range(0, parameters.sequences_per_label, TOGETHER):
            count = min(TOGETHER, parameters.sequences_per_label - first)
            name = f"{label!r} from {first}"
            if kept.keeps:
                random = np.random.default_rng(kept.seed(f"sequences of {name}", parameters.seed))
            rows = drawing.drawn(place, count, parameters.sequence_length, random)
            phrases = [[found.phrases[term] for term in row] for row in rows.tolist()]
            if asking is None:
                for phrase in phrases:
                    progress.advance()
                    yield Text(listed(phrase), label)
                continue
            requests = [asking.of(phrase, public_label(terms, label)) for phrase in phrases]
            end = parameters.stop or ("" if asking.chat else "\n")
            manner = Manner(parameters.max_tokens, parameters.temperature, end)
            make = partial(_advancing, progress, requests, manner)
            texts = f"texts of {name}"
            for written in kept_texts(kept, texts, parameters.seed, asking.writer, progress, make):
                if rules.publishes(written.text):
                    yield Text(written.text, label, written.complete)


def _advancing(
    progress: Progress, asked: Sequence[PublicPrompt], manner: Manner, writer: Writer
) -> Iterator[Written]:
    """Yield a text of each prompt, each a step."""
    for written in writer.write(asked, manner):
        progress.advance()
        yield written


def _prompts(parameters: DpKps, terms: Terms, found: Sketched, public: Public) -> Prompts | None:
    """Return None where the sequences themselves are the output."""
    if parameters.output == "phrases":
        return None
    corpus = None if parameters.examples is None else public.corpus("examples")
    writer = public.writer("writer", parameters.seed)
    return prompts(parameters, terms, found.phrases, writer, corpus)
