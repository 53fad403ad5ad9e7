"""Dataset vectors (paper 000, Algorithm 1), with the sum of integers that the price is stated for.

    h(x)     = hidden states after each layer, averaged over the text's tokens, inside the
             fixed-shot prompt
    d(x)     = h(x) - h(partner): a synthetic text picked by a keyed hash of the record, or the mean
             of all
    clipped  = d(x) scaled to norm C or less, on a grid of 2^16 steps to C, towards zero: never
             longer than C
    sum      = of the records drawn, exact in int64; one release for all layers and labels
    vector   = sum with noise, over the public m, brought to length 1 layer by layer (free)

The labels' sums stand side by side in each release: a unit whose records bear several labels is
drawn once and moves all of them together by no more than its records' number times C. A record's
coin and its partner depend on nothing but itself, so one that comes or goes moves no other. Sums,
states and coins are never written to disk.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain, islice, zip_longest

import numpy as np
from numpy.typing import NDArray

from accountant.core.mechanisms.batches import doubled
from accountant.core.mechanisms.epsvec import Epsvec, layer_range, vectors_event
from accountant.core.privacy.price import Terms
from workers.data.keyed_hashes import keyed_hash
from workers.data.records import Record, Records
from workers.engine import Shape, hidden_states, sizes
from workers.mechanisms.epsvec.prompts import Prompt
from workers.models import LocalModel
from workers.noise import coins
from workers.noise.clipping import GRID, to_grid
from workers.noise.kept_draws import KeptDraws
from workers.noise.meter import Meter, Values

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]
Label = str | None

#: Texts in one forward pass, at most: public.
ROWS = 64


# --- who takes part -----------------------------------------------------------------------------


def drawn(
    parameters: Epsvec, terms: Terms, records: Records, kept: KeptDraws | None = None
) -> list[Record]:
    """Return the records of the units that take part: all records of a unit, or none.

    All coins are tossed in one go and kept before anything is computed from them, so that no
    attempt has others.
    """
    kept = kept or KeptDraws()
    if parameters.sampling == "poisson":
        rate = parameters.sampling_rate
        assert rate is not None
        units = _units(terms, records.records)
        coin = kept.step("who takes part", lambda: [int(coins.heads(rate)) for _ in units])
        return [record for unit, heads in zip(units, coin, strict=True) if heads for record in unit]
    chosen: list[Record] = []
    strata = [(size, _units(terms, group)) for size, group in _strata(terms, records)]
    count = parameters.samples_per_label
    # A place without a record, because it could not be read, is drawn like any other.
    every = kept.step(
        "who takes part",
        lambda: [coins.places(max(size, len(units)), count) for size, units in strata],
    )
    for (_, units), places in zip(strata, every, strict=True):
        chosen += [record for place in places if place < len(units) for record in units[place]]
    return chosen


def _units(terms: Terms, records: Iterable[Record]) -> list[list[Record]]:
    """Return records by unit. Where a unit has one record, equal records are units of their own."""
    if terms.max_records_per_unit == 1:
        return [[record] for record in records]
    units: dict[str, list[Record]] = {}
    for record in records:
        units.setdefault(record.unit, []).append(record)
    return list(units.values())


def _strata(terms: Terms, records: Records) -> list[tuple[int, list[Record]]]:
    """(exact public size, records) of each label, or of everything where there is no label."""
    sizes_of = terms.label_sizes if terms.labels else (terms.public_size or 0,)
    groups = [
        [record for record in records.records if record.label == label] for label in records.labels
    ]
    return list(zip(sizes_of, groups, strict=True))


# --- states -------------------------------------------------------------------------------------


def states(
    model: LocalModel, prompt: Prompt, texts: Iterable[str], tokens: int, layers: range
) -> Iterator[Floats]:
    """Yield mean-pooled states of each text in the place after the prompt: (layers, hidden)
    float32, in order.

    An empty text gives NaN. Every pass has the same public shape; memory does not grow with the
    texts.
    """
    prefix, batch = prompt.ids[:-1], prompt.ids[-1:]
    shape = Shape(len(prefix), 1 + tokens, 0)
    chosen = sizes(model.network, shape, 1, ROWS, model.memory_bytes)
    stream = iter(texts)
    while group := [batch + prompt.read(text, tokens) for text in islice(stream, chosen.rows)]:
        spans = [(1, len(ids)) for ids in group]
        hidden = hidden_states(
            model.structure, group, layers, shape, chosen, prefix=prefix, spans=spans
        )
        yield from (layer_states.cpu().numpy() for layer_states in hidden)


def partners(
    model: LocalModel, prompt: Prompt, texts: Sequence[str], tokens: int, layers: range, kind: str
) -> Floats:
    """Return partners' states, (partners, layers, hidden); for kind "mean" their mean."""
    stack = np.stack(list(states(model, prompt, texts, tokens, layers)))  # (texts, layers, hidden)
    stack = stack[np.isfinite(stack).all(axis=(1, 2))]
    if not len(stack):  # the model wrote nothing: records are compared with the origin
        return np.zeros((1, len(layers), model.structure.hidden), np.float32)
    return stack.mean(axis=0, keepdims=True) if kind == "mean" else stack


def partner_of(record: Record, key: bytes, count: int) -> int:
    """Return the number of a record's partner: a keyed hash of the record, and of nothing else."""
    place = keyed_hash(key, "partner", record.unit, record.label or "", record.text)
    return int.from_bytes(place[:8], "big") * count >> 64


# --- sums ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class View:
    """The prompt and partners that the records of one label are compared with."""

    prompt: Prompt
    partners: Floats


def sums(
    parameters: Epsvec,
    model: LocalModel,
    records: Sequence[Record],
    key: bytes,
    views: Mapping[Label, View],
    check: Callable[[], None] = lambda: None,
) -> Integers:
    """Return the sum of the clipped differences of all records, label beside label: (layers,
    labels, hidden) int64.

    Private, and held in memory only. A label with fewer records than are expected is filled up with
    empty ones, which add nothing, so that labels take about the same time.
    """
    layers = layer_range(parameters)
    axis = 1 if parameters.clipping == "per-layer" else None
    total = np.zeros((len(layers), len(views), model.structure.hidden), np.int64)
    for place, (label, view) in enumerate(views.items()):
        members = [record for record in records if record.label == label]
        filling = [""] * (parameters.samples_per_label - len(members))
        texts = chain((record.text for record in members), filling)
        label_states = states(model, view.prompt, texts, parameters.record_tokens, layers)
        for record, state in zip_longest(members, label_states):
            check()
            if record is None:
                continue
            partner = view.partners[partner_of(record, key, len(view.partners))]
            difference = state.astype(np.float64) - partner  # (layers, hidden)
            total[:, place] += to_grid(difference, parameters.clip, axis)
    return total


def release(parameters: Epsvec, terms: Terms, labels: int, total: Values, meter: Meter) -> Floats:
    """Return the vectors of all labels, of length 1 in each layer: (labels, layers, hidden)
    float32.

    One release for each layer, or one for all where they were clipped together, on one draw of
    records. `total`: what `sums` gives, or computes it; `labels`: their number.
    """
    sensitivity = Fraction(doubled(terms) * terms.max_records_per_unit * GRID)

    def rows() -> Integers:
        sums = total() if callable(total) else total
        return sums.reshape(len(sums), -1)  # (layers, labels * hidden)

    noisy = meter.gaussian(rows, sensitivity, vectors_event(parameters, terms))
    mean = noisy.reshape(len(noisy), labels, -1) * (
        parameters.clip / GRID / parameters.samples_per_label
    )
    norms = np.sqrt(np.sum(mean**2, axis=2, keepdims=True))  # (layers, labels, 1)
    vectors = np.divide(mean, norms, out=np.zeros_like(mean), where=norms > 0)
    return np.ascontiguousarray(vectors.transpose(1, 0, 2), np.float32)
