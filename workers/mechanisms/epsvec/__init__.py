"""`epsvec` (paper 000, Algorithms 1 and 2): three steps, and what they release.

    shots      candidates of the model alone -> noisy counts of the nearest -> the largest  artifact
      "shots"
    vectors    states of records minus those of partners -> noisy sums -> directions        artifact
      "vectors"
    texts      the model with the shots in its prompt, steered by the vectors; any number, free

A later job with `from_job` begins at the third step. Its prompts, layers and shots are those of the
first job, because a vector is the difference to what that very prompt makes of the model.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from accountant.core.mechanisms.batches import LEFT_OUT
from accountant.core.mechanisms.epsvec import Epsvec, layer_range
from accountant.core.privacy.price import Terms
from workers.data.public_text import PublicText
from workers.data.public_text import label as public_label
from workers.data.records import Records
from workers.embedding.model_states import OwnEmbedder
from workers.embedding.neighbours import Integers
from workers.generation.kept_texts import kept_texts
from workers.generation.local_writer import LocalWriter, generator
from workers.generation.writer import Manner, Writer, Written
from workers.interface import NOTHING_PUBLIC, Artifact, Progress, Public, Released, Text
from workers.mechanisms.epsvec import shots as fixed_shots
from workers.mechanisms.epsvec import vectors as dataset_vectors
from workers.mechanisms.epsvec.prompts import Prompt, Scaffold
from workers.mechanisms.epsvec.shots import Label, Shot
from workers.mechanisms.epsvec.steering import Steered, check_fit, texts_of
from workers.models import LocalModel
from workers.noise.kept_draws import KeptDraws
from workers.noise.meter import Meter

SHOTS, VECTORS = "shots", "vectors"


class Runner:
    """Runs `epsvec`."""

    resumes = True

    def total(self, parameters: Epsvec, terms: Terms) -> int:
        """Return texts read and written, as the parameters state them: public."""
        labels = max(1, len(terms.labels))
        written = _wanted(parameters, terms)
        if parameters.from_job is not None:
            return written
        candidates = parameters.candidates if parameters.shots else 0
        return written + labels * (candidates + parameters.partners + parameters.samples_per_label)

    def run(
        self,
        parameters: Epsvec,
        terms: Terms,
        records: Records,
        model: LocalModel,
        meter: Meter,
        progress: Progress,
        public: Public = NOTHING_PUBLIC,
    ) -> Iterator[Text | Artifact]:
        """Release shots and vectors, then write."""
        scaffold = Scaffold.of(parameters)
        writer = LocalWriter(model, generator(model.device, parameters.seed))
        chosen = find_shots(parameters, terms, records, writer, meter, progress, public)
        yield Artifact.of_json(
            SHOTS,
            "fixed-shots",
            {"scaffold": scaffold.to_json(), "labels": fixed_shots.to_json(chosen)},
        )
        vectors = find_vectors(parameters, terms, records, writer, meter, progress, chosen)
        layers = np.array(layer_range(parameters), np.int64)
        yield Artifact.of_tensors(
            VECTORS, "dataset-vectors", {"vectors": vectors, "layers": layers}
        )
        steered = Steered(scaffold, chosen, layers, vectors)
        kept = 0
        for text in _write(parameters, terms, writer, progress, public, steered, meter.kept):
            kept += 1
            yield text
        if parameters.drafts > 1:
            drafts = parameters.drafts * _wanted(parameters, terms)
            left_out = {"less readable, further from the label, or dropped by rule": drafts - kept}
            yield Artifact.of_json(LEFT_OUT, LEFT_OUT, {"written": drafts, "left_out": left_out})

    def reuse(
        self,
        parameters: Epsvec,
        terms: Terms,
        artifacts: Mapping[str, Released],
        model: LocalModel,
        progress: Progress,
        public: Public = NOTHING_PUBLIC,
    ) -> Iterator[Text]:
        """Write with an earlier job's shots and vectors. Raises DataError if they don't fit."""
        chosen = fixed_shots.from_released(artifacts[SHOTS])
        tensors = artifacts[VECTORS].tensors()
        steered = Steered(
            Scaffold.released(artifacts[SHOTS]), chosen, tensors["layers"], tensors["vectors"]
        )
        check_fit(parameters, terms, model, steered)
        writer = LocalWriter(model, generator(model.device, parameters.seed))
        yield from _write(parameters, terms, writer, progress, public, steered, KeptDraws())


def _wanted(parameters: Epsvec, terms: Terms) -> int:
    """Return the texts that are asked for."""
    return parameters.samples * (max(1, len(terms.labels)) if parameters.label is None else 1)


def find_shots(
    parameters: Epsvec,
    terms: Terms,
    records: Records,
    writer: LocalWriter,
    meter: Meter,
    progress: Progress,
    public: Public,
) -> dict[Label, list[Shot]]:
    """Return the first step: candidates of every label, their noisy counts, the shots."""
    if not parameters.shots:
        return {label: [] for label in records.labels}
    scaffold, model = Scaffold.of(parameters), writer.model
    candidates = {}
    for label in records.labels:
        prompt = scaffold.prompt(model.tokenizer, public_label(terms, label))
        # Each text once, and no empty one: a count is of a text, not of how often it was written.
        name = f"candidates of {label!r}"
        written = _counted(
            writer, prompt, parameters.candidates, parameters, progress, meter.kept, name
        )
        candidates[label] = list(dict.fromkeys(text for text in written if text))
    embedder = OwnEmbedder(model) if parameters.embedding is None else public.embedder("embedding")
    tokens = parameters.record_tokens

    def counts() -> dict[Label, Integers]:
        return fixed_shots.count_near(records, candidates, embedder, tokens, progress.check)

    sizes = {label: len(texts) for label, texts in candidates.items()}
    noisy = fixed_shots.release(parameters, terms, sizes, counts, meter)
    return {
        label: fixed_shots.largest(texts, noisy[label], parameters.shots)
        for label, texts in candidates.items()
    }


def find_vectors(
    parameters: Epsvec,
    terms: Terms,
    records: Records,
    writer: LocalWriter,
    meter: Meter,
    progress: Progress,
    shots: Mapping[Label, Sequence[Shot]],
) -> NDArray[np.float32]:
    """Return the second step: partners of every label, the sum over the records drawn, the noisy
    vectors.

    (labels, layers, hidden). Progress moves when all labels are done: that of one would tell its
    size.
    """
    scaffold, layers, model = Scaffold.of(parameters), layer_range(parameters), writer.model
    model.structure.check_layers(list(layers))
    partners: dict[Label, tuple[Prompt, list[PublicText]]] = {}
    for label, label_shots in shots.items():
        prompt = scaffold.prompt(
            model.tokenizer, public_label(terms, label), [shot.text for shot in label_shots]
        )
        name = f"partners of {label!r}"
        texts = _counted(
            writer, prompt, parameters.partners, parameters, progress, meter.kept, name
        )
        partners[label] = prompt, texts
    taking_part = dataset_vectors.drawn(parameters, terms, records, meter.kept)

    def total() -> NDArray[np.int64]:
        tokens, kind = parameters.record_tokens, parameters.partner
        views = {
            label: dataset_vectors.View(
                prompt, dataset_vectors.partners(model, prompt, texts, tokens, layers, kind)
            )
            for label, (prompt, texts) in partners.items()
        }
        return dataset_vectors.sums(
            parameters, model, taking_part, records.key, views, progress.check
        )

    vectors = dataset_vectors.release(parameters, terms, len(shots), total, meter)
    progress.advance(parameters.samples_per_label * len(shots))
    return vectors


def _counted(
    writer: LocalWriter,
    prompt: Prompt,
    count: int,
    parameters: Epsvec,
    progress: Progress,
    kept: KeptDraws,
    name: str,
) -> list[PublicText]:
    """Return texts by the prompt alone, each a step, kept under `name` before use."""
    manner = Manner(parameters.max_tokens, parameters.temperature, Scaffold.of(parameters).marker)

    def make(own: Writer) -> Iterator[Written]:
        for written in own.write([prompt.asked], manner, count):
            progress.advance()
            yield written

    return [row.text for row in kept_texts(kept, name, parameters.seed, writer, progress, make)]


def _write(
    parameters: Epsvec,
    terms: Terms,
    writer: LocalWriter,
    progress: Progress,
    public: Public,
    steered: Steered,
    kept: KeptDraws,
) -> Iterator[Text]:
    """Yield the third step, for every label or the one that is asked for."""
    judge = public.writer("judge", parameters.seed) if parameters.rejection == "judge" else None
    for label in steered.shots:
        if parameters.label in (None, label):
            yield from texts_of(parameters, terms, writer, steered, label, judge, progress, kept)
