"""One unit in or out, or replaced: what it moves, in exact integers, against what is charged.

Random datasets, keys and bounds; states and embeddings of any size, among them NaN and infinities.
The last test takes the real model.
"""

import hashlib
import secrets
from collections.abc import Iterable, Iterator
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accountant.core import mechanisms
from accountant.core.mechanisms.batches import doubled
from accountant.core.mechanisms.epsvec import shots_sensitivity
from accountant.core.privacy.price import Neighbours, Terms
from workers import models
from workers.data.public_text import vouch
from workers.data.records import Record, Records
from workers.embedding.neighbours import unit
from workers.mechanisms.epsvec import vectors
from workers.mechanisms.epsvec.prompts import Scaffold
from workers.mechanisms.epsvec.shots import count_near
from workers.mechanisms.epsvec.vectors import View, drawn, partners, sums
from workers.noise import coins
from workers.noise.clipping import GRID, to_grid
from workers.sample import LABELS as SAMPLE_LABELS
from workers.sample import MODEL_DIR

pytestmark = pytest.mark.slow

PRICE = mechanisms.get("epsvec")
LABELS = ("a", "b", "c")
ADD, REPLACE = Neighbours
WIDTH, LAYERS = 7, 3
RAW = {
    "layers": "0-2",
    "noise_multiplier": 1.0,
    "shots": 0,
    "samples_per_label": 3,
    "sampling_rate": 1.0,
}

UNIT = st.lists(st.tuples(st.sampled_from(LABELS), st.integers(0, 30)), min_size=1, max_size=4)


def numbers(text: str, count: int, scale: float) -> np.ndarray:
    """Values that a text stands for: any size, and sometimes not numbers at all."""
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
    random = np.random.default_rng(seed)
    values = random.normal(size=count) * scale * 10.0 ** random.integers(-3, 4)
    match seed % 11:
        case 0:
            values[seed % count] = np.nan
        case 1:
            values[seed % count] = np.inf
        case 2:
            values[:] = 0
        case 3:
            values[:] = 3e38
    return values.astype(np.float32)


class Numbers:
    """An embedder of made-up texts."""

    dimensions, context_tokens = WIDTH, 100

    def embed(self, texts: Iterable[str], tokens: int | None = None) -> Iterator[np.ndarray]:
        for text in texts:
            yield unit(numbers(text, WIDTH, 1.0)[None])


def dataset(units: dict[str, list[tuple[str, int]]], key: bytes, bound: int) -> Records:
    """At most `bound` records of each unit, as the reader leaves them."""
    made = [
        Record(name, label, f"text {n}") for name, own in units.items() for label, n in own[:bound]
    ]
    return Records(LABELS, tuple(made), key)


def neighbours_of(others, old, new, relation) -> tuple[dict, dict]:
    rest = {f"u{n}": unit for n, unit in enumerate(others)}
    if relation is ADD:
        return rest | {"x": old}, rest
    return rest | {"x": old}, rest | {"y": new}


@settings(max_examples=150, deadline=None)
@given(
    st.lists(UNIT, max_size=6), UNIT, UNIT, st.binary(min_size=32, max_size=32), st.integers(1, 3)
)
@pytest.mark.parametrize("relation", list(Neighbours))
def test_one_unit_moves_the_counts_of_all_labels_by_no_more_than_is_charged(
    relation, others, old, new, key, bound
):
    terms = Terms(relation, max_records_per_unit=bound, labels=LABELS)
    candidates = {label: [f"{label} candidate {n}" for n in range(9)] for label in LABELS}
    with_it, without = (
        count_near(dataset(units, key, bound), candidates, Numbers(), 50, lambda: None)
        for units in neighbours_of(others, old, new, relation)
    )
    squares = sum(int(((with_it[label] - without[label]) ** 2).sum()) for label in LABELS)
    moved = sum(int(np.abs(with_it[label] - without[label]).sum()) for label in LABELS)
    assert squares <= bound**2 * doubled(terms)
    assert squares**0.5 <= shots_sensitivity(terms)
    if bound == 1 and relation is ADD:
        assert moved <= 1  # one count


@settings(max_examples=200, deadline=None)
@given(
    st.lists(UNIT, max_size=6),
    UNIT,
    UNIT,
    st.binary(min_size=32, max_size=32),
    st.integers(1, 3),
    st.sampled_from(["per-layer", "joint"]),
    st.floats(1e-3, 1e3),
    st.integers(1, 4),
)
@pytest.mark.parametrize("relation", list(Neighbours))
def test_one_unit_moves_each_layer_by_no_more_than_is_charged(
    relation, others, old, new, key, bound, clipping, clip, count
):
    """The sums with and without, for all labels together, in steps of the grid."""
    terms = Terms(relation, max_records_per_unit=bound, labels=LABELS)
    parameters = PRICE.parse(RAW | {"clipping": clipping, "clip": clip}, terms)
    views = {
        label: View(
            None,
            numbers(f"{label} {count}", count * LAYERS * WIDTH, clip).reshape(count, LAYERS, WIDTH),
        )
        for label in LABELS
    }
    for view in views.values():
        np.nan_to_num(view.partners, copy=False)

    def states(_model, _prompt, texts, _tokens, _layers):
        for text in texts:
            yield numbers(text, LAYERS * WIDTH, clip).reshape(LAYERS, WIDTH)

    class Shaped:
        class structure:
            hidden = WIDTH

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vectors, "states", states)
        with_it, without = (
            sums(parameters, Shaped, drawn(parameters, terms, data), key, views)
            for data in (
                dataset(units, key, bound) for units in neighbours_of(others, old, new, relation)
            )
        )
    step = with_it - without
    charged = (doubled(terms) * bound * GRID) ** 2
    if clipping == "joint":
        assert int((step**2).sum()) <= charged
    else:
        assert all(int((layer**2).sum()) <= charged for layer in step)
    touched = {label for label, _ in [*old, *(new if relation is REPLACE else [])]}
    for place, label in enumerate(LABELS):
        assert label in touched or not step[:, place].any()


@given(st.integers(0, 2**40), st.floats(1e-4, 1e4), st.sampled_from(["per-layer", "joint"]))
def test_a_clipped_difference_is_never_longer_than_the_norm(seed, clip, clipping):
    random = np.random.default_rng(seed)
    difference = random.normal(size=(LAYERS, WIDTH)) * 10.0 ** random.integers(-6, 30)
    axis = 1 if clipping == "per-layer" else None
    steps = to_grid(difference, clip, axis)
    squares = (steps**2).sum(axis=1) if clipping == "per-layer" else [(steps**2).sum()]
    assert max(map(int, squares)) <= GRID**2
    # and short ones are what they were, to a step
    short = difference / max(1.0, np.linalg.norm(difference) / clip * 2)
    back = to_grid(short, clip, axis) * clip / GRID
    assert np.abs(back - short).max() <= clip / GRID


# --- the draw -----------------------------------------------------------------------------------


@given(st.lists(UNIT, max_size=6), st.integers(1, 3))
def test_each_unit_has_one_coin_and_all_its_records_with_it(others, bound):
    terms = Terms(max_records_per_unit=bound, labels=LABELS)
    parameters = PRICE.parse(RAW | {"sampling_rate": 0.3}, terms)
    data = dataset({f"u{n}": unit for n, unit in enumerate(others)}, b"k" * 32, bound)
    rates: list[float] = []

    def coin(rate: float) -> bool:
        rates.append(rate)
        return len(rates) % 2 == 0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coins, "heads", coin)
        found = drawn(parameters, terms, data)
    units = len({record.unit for record in data.records})
    assert rates == [0.3] * units
    kept = {record.unit for record in found}
    assert len(kept) == units // 2
    assert found == [record for record in data.records if record.unit in kept]


def test_equal_records_are_two_units_with_two_coins(monkeypatch):
    data = Records(LABELS, (Record("same", "a", "x"), Record("same", "a", "x")), b"k" * 32)
    terms = Terms(labels=LABELS)
    parameters = PRICE.parse(RAW | {"sampling_rate": 0.5}, terms)
    for answers, kept in (([True, False], 1), ([True, True], 2), ([False, False], 0)):
        turn = iter(answers)
        monkeypatch.setattr(coins, "heads", lambda _, turn=turn: next(turn))
        assert len(drawn(parameters, terms, data)) == kept


def test_a_fixed_sample_is_exactly_m_of_the_declared_n_in_each_label(monkeypatch):
    """Places that hold no record are drawn like any other; nothing takes their turn."""
    terms = Terms(REPLACE, public_size=30, labels=LABELS, label_sizes=(10, 8, 12))
    parameters = PRICE.parse(
        RAW | {"sampling": "without-replacement", "sampling_rate": None}, terms
    )
    made = [
        Record(f"{label}{n}", label, "x")
        for label, n in (("a", 10), ("b", 5), ("c", 12))
        for n in range(n)
    ]
    data = Records(LABELS, tuple(made), b"k" * 32)
    asked: list[tuple[int, int]] = []

    def last(many: int, count: int) -> list[int]:
        asked.append((many, count))
        return list(range(many))[-count:]

    with monkeypatch.context() as patch:
        patch.setattr(coins, "places", last)
        found = drawn(parameters, terms, data)
    assert asked == [(10, 3), (8, 3), (12, 3)]
    assert [record.unit for record in found] == ["a7", "a8", "a9", "c9", "c10", "c11"]
    seen = {record.unit for _ in range(200) for record in drawn(parameters, terms, data)}
    assert seen == {record.unit for record in made}


@pytest.mark.parametrize("rate", [0.375, 1.0, 2.0**-20, 0.1])
def test_the_coin_has_exactly_its_rate(rate, monkeypatch):
    numerator, denominator = Fraction(rate).as_integer_ratio()
    bits = []
    monkeypatch.setattr(secrets, "randbits", lambda count: bits.append(count) or numerator - 1)
    assert coins.heads(rate)
    monkeypatch.setattr(secrets, "randbits", lambda count: numerator)
    assert coins.heads(rate) == (rate == 1.0)
    assert bits in ([], [denominator.bit_length() - 1])


# --- with the real model ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["hashed", "mean"])
def test_with_the_real_model_one_record_adds_its_own_difference_and_moves_no_other(kind):
    """Shuffled, with the record in the middle, to the last bit."""
    model = models.load(MODEL_DIR, models.digest(MODEL_DIR))
    labels = SAMPLE_LABELS[:2]
    terms = Terms(labels=labels)
    raw = RAW | {"layers": "1-3", "clip": 2.0, "record_tokens": 20, "partner": kind}
    parameters = PRICE.parse(raw, terms)
    scaffold = Scaffold(
        vouch("{examples}Another review ({label}):"), vouch("text"), None, "plain", 20
    )
    views = {}
    for label in labels:
        prompt = scaffold.prompt(model.tokenizer, vouch(label), [vouch("The room was small.")])
        texts = ["A quiet hotel.", "", "The lift was slow and I left."]
        found = partners(model, prompt, texts, 20, range(1, 4), kind)
        assert len(found) == (2 if kind == "hashed" else 1)  # an empty text is nobody's partner
        views[label] = View(prompt, found)
    records = [
        Record(f"u{n}", labels[n % 2], f"Day {n}: the soup was " + "cold " * n) for n in range(30)
    ]
    key = b"k" * 32
    whole = sums(parameters, model, records, key, views)
    own = sums(parameters, model, [records[14]], key, views)
    rest = sums(parameters, model, records[:14] + records[15:], key, views)
    assert (whole - rest == own).all()
    assert (sums(parameters, model, records[::-1], key, views) == whole).all()
    assert not own[:, 1].any()
    assert own[:, 0].any()
    assert all(int((layer**2).sum()) <= GRID**2 for layer in own)
    silent = sums(parameters, model, [Record("u", labels[0], " ")], key, views)
    assert not silent.any()
