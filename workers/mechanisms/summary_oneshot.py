"""`summary-oneshot` (paper 004, Algorithm 2): one noisy mean state of each group, and texts decoded
from it.

    states of a group's records, clipped   -> one sum of integers -> noise -> mean states   artifact
      "means"
    mean state -> adapter -> soft tokens   -> the model writes after them; any number, free

The sums of all groups stand side by side in each release: a unit is in one group. A later job with
`from_job` decodes the means again. States and clean sums are never written to disk.
"""

from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from accountant.core.errors import DataError
from accountant.core.mechanisms.batches import doubled
from accountant.core.mechanisms.group_means import Group, sizes
from accountant.core.mechanisms.summary_oneshot import MEANS, SummaryOneshot, event
from accountant.core.privacy.price import Terms
from workers.data.records import Records
from workers.embedding import mean_states
from workers.embedding.mean_states import Reader, View
from workers.generation import soft_prompt_adapter
from workers.generation.local_writer import LocalWriter, generator
from workers.generation.writer import Manner
from workers.interface import NOTHING_PUBLIC, Artifact, Progress, Public, Released, Text
from workers.models import LocalModel
from workers.noise.clipping import GRID
from workers.noise.kept_draws import KeptDraws
from workers.noise.meter import Meter, Values

Floats = NDArray[np.float32]

#: How often a summary that doesn't come to its end is written: the last one is published.
TRIES = 8


def key_of(group: Group) -> str:
    """Return the name of a group's means in the artifact."""
    return "all" if group is None else f"group {group}"


class Runner:
    """Runs `summary-oneshot`."""

    resumes = True

    def total(self, parameters: SummaryOneshot, terms: Terms) -> int:
        """Return the public number of steps: summaries written, and one release."""
        written = 0
        if parameters.adapter is not None:
            written = parameters.decodings * max(1, len(terms.groups))
        return written + (parameters.from_job is None)

    def run(
        self,
        parameters: SummaryOneshot,
        terms: Terms,
        records: Records,
        model: LocalModel,
        meter: Meter,
        progress: Progress,
        public: Public = NOTHING_PUBLIC,
    ) -> Iterator[Text | Artifact]:
        """Release the means, then decode them where there is an adapter."""
        reader = Reader(model, parameters.template, parameters.record_tokens)
        view = view_of(parameters, reader, public, progress)
        totals = partial(sums, parameters, terms, records, reader, view, progress)
        means = release(parameters, terms, totals, view, meter)
        progress.advance()
        named = {key_of(group): group_mean for group, group_mean in means.items()}
        yield Artifact.of_tensors("means", MEANS, named)
        yield from _decoded(parameters, means, model, progress, public, meter.kept)

    def reuse(
        self,
        parameters: SummaryOneshot,
        terms: Terms,
        artifacts: Mapping[str, Released],
        model: LocalModel,
        progress: Progress,
        public: Public = NOTHING_PUBLIC,
    ) -> Iterator[Text]:
        """Decode an earlier job's means. Raises DataError if they are of other groups."""
        tensors = artifacts["means"].tensors()
        groups: tuple[Group, ...] = terms.groups or (None,)
        if set(tensors) != set(map(key_of, groups)):
            raise DataError("from_job: its means are not of the groups that the dataset has now")
        means = {group: tensors[key_of(group)] for group in groups}
        if any(
            group_mean.ndim != 2 or group_mean.shape[1] != model.structure.hidden
            for group_mean in means.values()
        ):
            raise DataError("from_job: its means are not of this model's width")
        yield from _decoded(parameters, means, model, progress, public, KeptDraws())


def view_of(parameters: SummaryOneshot, reader: Reader, public: Public, progress: Progress) -> View:
    """Where states are clipped: around what the public corpus gives, or as they are."""
    if parameters.public_corpus is None:
        return mean_states.plain(reader.model.structure.hidden)
    states, _ = mean_states.corpus_states(
        reader, public.corpus("public_corpus"), parameters.public_texts, progress.check
    )
    return mean_states.public_view(states, parameters.centre, parameters.components)


def sums(
    parameters: SummaryOneshot,
    terms: Terms,
    records: Records,
    reader: Reader,
    view: View,
    progress: Progress,
) -> NDArray[np.int64]:
    """Return groups' clipped sums in order: (groups, q). Private, in memory only."""
    texts: dict[Group, list[str]] = {group: [] for group in terms.groups or (None,)}
    for record in records.records:
        group = record.group if terms.groups else None
        if group in texts:
            texts[group].append(record.text)
    return np.stack(
        [
            mean_states.clipped_sum(view, reader.states(text), parameters.clip, progress.check)
            for text in texts.values()
        ]
    )


def release(
    parameters: SummaryOneshot, terms: Terms, totals: Values, view: View, meter: Meter
) -> dict[Group, Floats]:
    """Return groups' noisy means, (releases, hidden) each. `totals`: what `sums` gives."""
    sensitivity = Fraction(doubled(terms) * terms.max_records_per_unit * GRID)

    def rows() -> NDArray[np.int64]:
        sums = totals() if callable(totals) else totals
        return np.repeat(sums.reshape(1, -1), parameters.releases, axis=0)  # (releases, groups * q)

    groups = sizes(parameters, terms)
    noisy = meter.gaussian(rows, sensitivity, event(parameters))
    noisy = noisy.reshape(len(noisy), len(groups), -1)
    return {
        group: mean_states.mean_state(view, noisy[:, place], parameters.clip, size).astype(
            np.float32
        )
        for place, (group, size) in enumerate(groups.items())
    }


def _decoded(
    parameters: SummaryOneshot,
    means: Mapping[Group, Floats],
    model: LocalModel,
    progress: Progress,
    public: Public,
    kept: KeptDraws,
) -> Iterator[Text]:
    """`decodings` summaries of every group, as they end; the label of a text is its group.

    They cost nothing and are few: an attempt that goes on keeps the means and writes all of them
    again. What is decoded is the average of a group's releases, whose noise is that of one at the
    whole budget. One that is cut at `max_tokens` is written again, up to TRIES times in all.
    """
    if parameters.adapter is None:
        return
    (weights,) = public.sources["adapter"].values()
    adapter = soft_prompt_adapter.of_tensors(
        weights.tensors(), model.structure.hidden, parameters.soft_tokens
    )
    groups = list(means)
    with torch.inference_mode():
        soft = adapter(
            torch.from_numpy(np.stack([group_mean.mean(axis=0) for group_mean in means.values()]))
        )
    seed = kept.seed("summaries", parameters.seed) if kept.keeps else parameters.seed
    writer = LocalWriter(model, generator(model.device, seed))
    manner = Manner(parameters.max_tokens, parameters.temperature)
    rows, each = list(range(len(groups))), parameters.decodings
    for tries in reversed(range(TRIES)):
        cut = []
        for written in writer.write_after([soft[row] for row in rows], manner, each):
            row = rows[written.row]
            if tries and not written.complete:
                cut.append(row)
                continue
            progress.advance()
            yield Text(written.text, groups[row], written.complete)
        rows, each = cut, 1
