"""dp-kps: what a unit moves, the meter against the price, densities against exact ones, and free
steps.
"""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from accountant.core import mechanisms
from accountant.core.errors import DataError, InvalidRequest, MeterExceeded
from accountant.core.mechanisms import dp_kps as prices
from accountant.core.privacy.calibration import laplace_multiplier
from accountant.core.privacy.events import Laplace, releases
from accountant.core.privacy.price import Neighbours, Terms
from tests.workers.conformance import kit as conformance
from tests.workers.conformance.toys import Embedder
from workers.data.records import Record, Records
from workers.data.terms import TermList
from workers.embedding.embedders import embed_all
from workers.embedding.neighbours import unit
from workers.interface import Artifact, Progress, Public, Released, Text
from workers.mechanisms import runner
from workers.mechanisms.dp_kps import sequences, sketched, sketches
from workers.mechanisms.dp_kps.features import Features
from workers.mechanisms.dp_kps.sequences import Sequences, draw, smoothed
from workers.mechanisms.dp_kps.sketches import Layout, Sketched
from workers.noise.meter import Meter

PRICE, RUNNER = mechanisms.get("dp-kps"), runner("dp-kps")
LABELS = ("a", "b")
WORDS = (
    "soup",
    "lift",
    "front desk",
    "desk",
    "cold",
    "quiet room",
    "price",
    "garden",
    "day",
    "early",
)
ADD, REPLACE = Neighbours.ADD_REMOVE, Neighbours.REPLACE_ONE
SMALL = {"vocabulary": "JOB", "vocabulary_size": 6, "output": "phrases", "sequences_per_label": 3}
SMALL |= {"sequence_length": 3, "terms_per_record": 4, "features": 5, "embedding": "toy"}


def listed(words=WORDS) -> dict[str, Released]:
    made = Artifact.of_json("terms", "term-list", TermList(dict.fromkeys(words, 1), 9).to_json())
    return {"terms": Released(made.name, made.content)}


def public(words=WORDS, **more) -> Public:
    return Public(
        embedders={"embedding": Embedder()}, sources={"vocabulary": listed(words)}, **more
    )


def dataset(*texts: str, label: str | None = "a") -> Records:
    records = tuple(Record(f"u{n}", label, text) for n, text in enumerate(texts))
    return Records(LABELS if label else (None,), records, b"k" * 32)


class Clean(Meter):
    """A meter that pays and adds nothing: for densities without noise."""

    def _without(self, values, sensitivity, event, part=None):
        values = values() if callable(values) else values
        kind = Laplace if isinstance(event, Laplace) else type(next(iter(releases(event))))
        self._pay(event, kind, values.shape, part)
        return values

    gaussian = laplace = _without


def made(
    raw: dict, data: Records, terms: Terms | None = None, meter=Meter, things: Public | None = None
):
    """(parameters, meter, what is released) of the private steps."""
    terms = terms or Terms(labels=tuple(each for each in data.labels if each))
    parameters = PRICE.parse(SMALL | raw, terms)
    used = meter(PRICE.price(parameters, terms).dp)
    found = sketched(parameters, terms, data, used, Progress(0), things or public())
    return parameters, used, found


def run(raw: dict, data: Records, things: Public | None = None):
    terms = Terms(labels=tuple(each for each in data.labels if each))
    parameters = PRICE.parse(SMALL | raw, terms)
    meter, progress = (
        Meter(PRICE.price(parameters, terms).dp),
        Progress(RUNNER.total(parameters, terms)),
    )
    return (
        list(RUNNER.run(parameters, terms, data, None, meter, progress, things or public())),
        meter,
        progress,
    )


# --- privacy ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.release)])
def test_100_random_configurations_draw_what_they_priced(seed):
    conformance.conform("accountant.core.mechanisms.dp_kps", trials=100, seed=seed)


TEXT = st.lists(st.sampled_from([*WORDS, "front", "unknown", "ünïcode"]), max_size=8).map(" ".join)
UNIT = st.lists(st.tuples(st.sampled_from(LABELS), TEXT), max_size=3)


@settings(deadline=None)
@example(
    [],
    3 * [("a", WORDS[0])],
    3 * [("a", WORDS[1])],
    REPLACE,
    ("histogram", "independent"),
    "gaussian",
    1,
)
@given(
    st.lists(UNIT, max_size=4),
    UNIT,
    UNIT,
    st.sampled_from(Neighbours),
    st.sampled_from(
        [("histogram", "independent"), ("fourier", "independent"), ("fourier", "linear")]
    ),
    st.sampled_from(["laplace", "gaussian"]),
    st.integers(1, 12),
)
def test_a_unit_moves_the_sums_by_no_more_than_is_declared(
    others, old, new, relation, how, noise, terms_each
):
    """Added, removed or replaced, records in several labels: in whole numbers, on the running
    code.
    """
    terms = Terms(relation, max_records_per_unit=3, labels=LABELS)
    raw = {"sketch": how[0], "method": how[1], "noise": noise, "terms_per_record": terms_each}
    raw |= {"sequence_length": min(3, terms_each), "seed": 1}
    parameters = PRICE.parse(SMALL | raw, terms)
    moved = []
    for changed in (old, new if relation is REPLACE else []):
        records = [
            Record(f"u{n}", label, text)
            for n, each in enumerate([*others, changed])
            for label, text in each
        ]
        data = Records(LABELS, tuple(records), b"k" * 32)
        terms_found, _ = sketches.term_list(parameters, public())
        counts = sketches.term_counts(parameters, data, terms_found, lambda: None)
        layout = Layout.of(parameters, terms, LABELS, 5)
        usable = {word: place for place, word in enumerate(WORDS[:6])}
        own = sketches.own_terms(parameters, data, terms_found, usable, lambda: None)
        points = embed_all(Embedder(), WORDS[:6])
        features = layout.sketches(points) if how[0] == "fourier" else []
        moved.append((counts, sketches.sums(parameters, layout, own, 6, features, lambda: None)))
    (counts, sums), (counts_then, sums_then) = moved
    assert int(abs(counts - counts_then).sum()) <= prices.vocabulary_sensitivity(parameters, terms)
    most = prices.shift(parameters, terms) * layout.steps
    for row, row_then in zip(sums, sums_then, strict=True):  # one release each, of all labels
        steps = [int(each) for each in (row - row_then).ravel()]
        if noise == "laplace":
            assert sum(map(abs, steps)) <= most
        else:
            assert sum(step * step for step in steps) <= most**2


@pytest.mark.parametrize("sketch", ["histogram", "fourier"])
def test_the_bound_on_a_record_is_reached(sketch):
    """One term alone moves a histogram as far as is declared, and Fourier features nearly so."""
    _, _, found = made(
        {"sketch": sketch, "features": 200, "seed": 3}, dataset("soup soup"), meter=Clean
    )
    far = abs(found.sums[0]).max()
    assert far == found.layout.steps if sketch == "histogram" else far > 0.99 * found.layout.steps
    _, _, none = made(
        {"sketch": sketch, "features": 200, "seed": 3}, dataset("nothing"), meter=Clean
    )
    assert not none.sums.any()


def test_what_a_record_adds_does_not_depend_on_the_others():
    """To the last bit, in any order, whatever rows stand beside it."""
    texts = [
        f"{WORDS[n % 10]} {WORDS[n * 7 % 10]} {WORDS[n * 3 % 9]} {WORDS[n // 10 % 10]}"
        for n in range(3_000)
    ]
    raw = {"method": "logarithmic", "features": 33, "seed": 4, "vocabulary_size": 10}
    sums = [
        made(raw, data, meter=Clean)[2].sums
        for data in (
            dataset(*texts),
            dataset(*texts[::-1]),
            dataset(*texts[:1_500], *texts[1_501:]),
        )
    ]
    # Counts of terms order the kept ones: the same three times here.
    alone = made(raw, dataset(*texts), meter=Clean)[2]
    assert (sums[0] == sums[1]).all()
    own = [
        WORDS.index(word) for word in TermList(dict.fromkeys(WORDS, 1), 9).distinct(texts[1_500], 4)
    ]
    order = [WORDS.index(term) for term in alone.phrases]
    features = alone.layout.sketches(alone.points)
    for number, sketch in enumerate(features):
        places = np.array([[order.index(word) for word in own[: sketch.blocks]]], np.int64)
        expected = (
            sketch.integers(places, alone.layout.steps)[0] if len(own) >= sketch.blocks else 0
        )
        assert (sums[0][number, 0] - sums[2][number, 0] == expected).all()


def test_a_release_that_was_not_reserved_is_refused():
    terms = Terms(labels=LABELS)
    parameters = PRICE.parse(SMALL, terms)
    # the vocabulary alone, the sketches alone
    for part in PRICE.price(parameters, terms).dp.events:
        with pytest.raises(MeterExceeded):
            sketched(parameters, terms, dataset("soup"), Meter(part), Progress(0), public())


def test_the_two_parts_of_the_price_are_stated_metered_and_settled():
    raw = {
        "vocabulary_epsilon": 1.0,
        "kde_epsilon": 5.0,
        "method": "logarithmic",
        "sequence_length": 4,
    }
    parameters, meter, _ = made(raw, dataset("soup", "lift"))
    event = PRICE.price(parameters, Terms(labels=LABELS)).dp
    assert event.events[0] == Laplace(1.0)
    assert releases(event.events[1]) == {Laplace(laplace_multiplier(5.0, 3)): 3}
    assert releases(meter.realized) == releases(event)


@pytest.mark.parametrize("sketch", ["histogram", "fourier"])
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_the_noise_has_the_variance_of_the_price(sketch, noise):
    """200 draws of 2 labels and 600 numbers: 3 % is six standard errors for Laplace, more for
    Gaussian.
    """
    raw = {"sketch": sketch, "noise": noise, "features": 600, "seed": 5, "vocabulary_size": 600}
    terms = Terms(labels=LABELS)
    parameters = PRICE.parse(SMALL | raw, terms)
    layout = Layout.of(parameters, terms, LABELS, 5)
    exact = np.zeros((1, 2, 600), np.int64)
    drawn = np.stack(
        [
            sketches.release_sums(
                parameters, terms, layout, exact, Meter(PRICE.price(parameters, terms).dp.events[1])
            )
            for _ in range(200)
        ]
    )
    largest = 1 if sketch == "histogram" else math.sqrt(2)
    scale = parameters.kde_noise_multiplier * prices.sketch_sensitivity(parameters, terms)
    variance = scale**2 * (2 if noise == "laplace" else 1)
    assert float(np.mean((drawn / layout.steps * largest) ** 2)) == pytest.approx(
        variance, rel=0.03
    )


def test_every_term_of_the_public_vocabulary_gets_noise():
    parameters = PRICE.parse(SMALL | {"vocabulary_epsilon": 0.01}, Terms())
    noisy = sketches.release_counts(
        parameters, Terms(), np.zeros(10_000, np.int64), Meter(prices.vocabulary_event(parameters))
    )
    assert (noisy != 0).mean() > 0.99


# --- bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "field"),
    [((), "vocabulary: its list has no terms"), (WORDS[:5], "vocabulary_size: 6 of 5")],
)
def test_a_vocabulary_that_does_not_serve_is_named_before_records_are_read(words, field):
    terms = Terms()
    parameters = PRICE.parse(SMALL, terms)
    with pytest.raises(DataError, match=field):
        RUNNER.check(parameters, terms, public(words))


def test_what_a_run_needs_is_named():
    missing = lambda raw: PRICE.missing(PRICE.parse(raw, Terms()))  # noqa: E731
    assert missing({"output": "phrases"}).field == "vocabulary"
    assert (
        missing({"vocabulary": "JOB", "sketch": "fourier", "output": "phrases"}).field
        == "embedding"
    )
    assert missing({"vocabulary": "JOB"}).field == "writer"
    assert missing({"vocabulary": "JOB", "writer": "large"}) is None
    assert missing({"from_job": "JOB", "output": "phrases"}) is None
    facts = {"writer": {"context_tokens": 512}}
    long = PRICE.parse({"vocabulary": "JOB", "writer": "small", "max_tokens": 300}, Terms())
    assert PRICE.unfit_public(long, Terms(), facts).field == "max_tokens"
    short = long.model_copy(update={"max_tokens": 100})
    assert PRICE.unfit_public(short, Terms(), facts) is None
    with pytest.raises(InvalidRequest, match="kde_epsilon"):
        PRICE.parse({"from_job": "JOB", "kde_epsilon": 1.0}, Terms())


def test_a_label_without_records_and_records_without_terms_run_like_any_other():
    for raw in ({}, {"method": "linear"}, {"sketch": "fourier"}):
        for data in (dataset("", "none here"), dataset(), dataset("soup lift")):
            results, _, progress = run(raw, data)
            texts = [each for each in results if isinstance(each, Text)]
            assert [each.label for each in texts] == ["a"] * 3 + ["b"] * 3
            assert progress.done == progress.total == 6


def test_a_record_is_cut_at_a_public_length():
    late = "x " * 50 + "soup"
    _, _, cut = made({"record_words": 50}, dataset(late), meter=Clean)
    _, _, whole = made({"record_words": 51}, dataset(late), meter=Clean)
    assert not cut.counts.any()
    assert whole.counts[0] == 1
    assert whole.phrases[0] == "soup"


# --- densities ----------------------------------------------------------------------------------


def kernel_mean(records: list[np.ndarray], query: np.ndarray, scale: float) -> float:
    """sum over records of the mean over their points of exp(-|x - y|^2 scale); points (k, d)."""
    return sum(
        float(np.exp(-scale * ((points - query) ** 2).sum(axis=1)).mean()) for points in records
    )


def corpus(
    random: np.random.Generator, words: list[str], each: int, count: int
) -> tuple[Records, list[list[int]]]:
    chosen = [random.choice(len(words), each, replace=False).tolist() for _ in range(count)]
    return dataset(*(" ".join(words[n] for n in row) for row in chosen), label=None), chosen


class Placed:
    """Random unit vectors by word."""

    dimensions, context_tokens = 8, 64

    def __init__(self, words, seed=0):
        self.words, self.rows = (
            list(words),
            unit(np.random.default_rng(seed).standard_normal((len(words), 8))),
        )

    def embed(self, texts, tokens=None):
        yield np.stack([self.rows[self.words.index(text)] for text in texts])


def test_densities_of_a_histogram_without_noise_are_exact():
    random = np.random.default_rng(1)
    words = [f"word{n}" for n in range(40)]
    data, chosen = corpus(random, words, 7, 300)
    things = Public(embedders={"embedding": Placed(words)}, sources={"vocabulary": listed(words)})
    raw = {"vocabulary_size": 40, "terms_per_record": 7, "bandwidth": 0.7}
    parameters, _, found = made(raw, data, Terms(), Clean, things)
    density = sequences(parameters, found, things).single[0]
    rows = Placed(words).rows.astype(np.float64)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    exact = [
        kernel_mean([rows[own] for own in chosen], rows[words.index(term)], 1 / 0.7**2)
        for term in found.phrases
    ]
    assert np.sqrt(np.mean((density / 300 - np.array(exact) / 300) ** 2)) <= 1e-6
    bare = sequences(parameters.model_copy(update={"embedding": None}), found, things).single[0]
    assert bare == pytest.approx(
        [sum(words.index(term) in own for own in chosen) / 7 for term in found.phrases]
    )


@pytest.mark.parametrize("method", ["independent", "linear", "logarithmic"])
def test_densities_of_fourier_sketches_without_noise_are_near_exact_ones(method):
    """Every prefix length against its own kernel; padded ones after the rescaling of Theorem B.2.

    The bound on an estimate's deviation is 1.2 / sqrt(I), times e^(u (blocks - l)) where l places
    are padded.
    """
    random, features, bandwidth, length = np.random.default_rng(2), 4_000, 1.3, 5
    words = [f"word{n}" for n in range(30)]
    data, chosen = corpus(random, words, 5, 200)
    things = Public(embedders={"embedding": Placed(words)}, sources={"vocabulary": listed(words)})
    raw = {
        "vocabulary_size": 30,
        "terms_per_record": 5,
        "bandwidth": bandwidth,
        "features": features,
    }
    raw |= {"method": method, "sketch": "fourier", "sequence_length": length, "seed": 6}
    parameters, _, found = made(raw, data, Terms(), Clean, things)
    drawing = sequences(parameters, found, things)
    order = [words.index(term) for term in found.phrases]
    rows = Placed(words).rows.astype(np.float64)[order]
    own = [[order.index(word) for word in each] for each in chosen]
    if method == "independent":
        exact = [
            kernel_mean([rows[each] for each in own], query, 1 / bandwidth**2) for query in rows
        ]
        assert np.sqrt(np.mean((drawing.single[0] - exact) ** 2)) / 200 <= 1.2 / math.sqrt(features)
        return
    for place in range(1, length + 1):
        number = next(n for n, most in enumerate(found.layout.blocks) if most >= place)
        blocks = found.layout.blocks[number]
        norm = {"linear": 1 / blocks, "logarithmic": 2 / 2**number}[method]
        prefixes = np.array([each[: place - 1] for each in own[:20]], np.int64).reshape(
            20, place - 1
        )
        weights = found.sums[number, 0] / found.layout.steps
        estimate = drawing.features[number].densities(weights, prefixes) / 200
        exact = np.empty_like(estimate)
        for i, prefix in enumerate(prefixes):
            before = sum(
                ((rows[[each[p] for each in own]] - rows[prefix[p]]) ** 2).sum(axis=1)
                for p in range(place - 1)
            )
            last = ((rows[[each[place - 1] for each in own]][:, None] - rows[None]) ** 2).sum(
                axis=2
            )
            squared = np.asarray(before)[..., None] + last if place > 1 else last
            exact[i] = np.exp(-squared * norm / bandwidth**2).mean(axis=0)
        blow = math.exp(norm / bandwidth**2 * (blocks - place))
        assert np.sqrt(np.mean((estimate - exact) ** 2)) <= 1.2 * blow / math.sqrt(features)


def test_a_term_without_a_vector_is_like_itself_only_and_no_fourier_sketch_has_it():
    weights = np.array([[4.0, 2.0, 1.0]])
    points = np.array([[1, 0], [0, 0], [1, 0]], np.float32)
    assert smoothed(weights, points, 0.5).tolist() == [[5.0, 2.0, 5.0]]

    layout = Layout("fourier", "independent", (1,), 50, 0.5, 1, 1, (None,))
    found = Sketched(layout, (), np.zeros(3, np.int64), np.ones((1, 1, 50), np.int64), points)
    assert Sequences(found, points[:, :0], 1.0).single[0, 1] == 0


def test_draws_follow_densities_and_negative_ones_are_never_drawn():
    random = np.random.default_rng(3)

    def shares(densities: list[float], **options: Any) -> np.ndarray:
        first = draw(np.repeat([densities], 40_000, axis=0), 1, random, **options)[:, 0]
        return np.bincount(first, minlength=len(densities)) / 40_000

    assert shares([3.0, -5.0, 1.0, 0.0]) == pytest.approx([0.75, 0, 0.25, 0], abs=0.01)
    assert shares([5.0, 1.0, 3.0, 4.0], top=2) == pytest.approx([5 / 9, 0, 0, 4 / 9], abs=0.01)
    assert shares([-1.0, -2.0, 0.0]) == pytest.approx([1 / 3] * 3, abs=0.01)
    usable = np.array([True, False, True])
    assert shares([-1.0, -2.0, 0.0], usable=usable) == pytest.approx([0.5, 0, 0.5], abs=0.01)


def test_no_sequence_has_a_phrase_twice():
    random = np.random.default_rng(5)
    rows = draw(np.repeat([[4.0, 3.0, 2.0, 1.0, 0.0]], 20_000, axis=0), 4, random)
    assert all(len(set(row)) == 4 for row in rows.tolist())
    # the second is a draw of what the first left, and what has no density comes after all others
    second = rows[rows[:, 0] == 0][:, 1]
    assert np.bincount(second, minlength=5) / len(second) == pytest.approx(
        [0, 1 / 2, 1 / 3, 1 / 6, 0], abs=0.02
    )
    assert 4 not in rows
    assert (draw(rows[:9] * 1.0, 9, random).shape) == (9, 4)
    for method in ("independent", "linear"):
        raw = {"method": method, "vocabulary_size": 10, "sequence_length": 3, "seed": 1}
        parameters, _, found = made(raw, dataset("soup lift"), meter=Clean)
        things = Public(embedders={"embedding": Embedder()}, sources={"vocabulary": listed()})
        drawn = sequences(parameters, found, things).drawn(0, 50, 3, random)
        assert all(len(set(row)) == 3 for row in drawn.tolist())


def test_iterative_sequences_keep_together_what_stands_together():
    """Two kinds of records, of unlike words: independent draws mix them, draws phrase by phrase do
    not.
    """
    words = [f"{kind}{n}" for kind in "xy" for n in range(4)]
    random = np.random.default_rng(4)
    texts = [
        " ".join(f"{'xy'[n % 2]}{place}" for place in random.permutation(4)) for n in range(400)
    ]
    placed = Placed(words)
    placed.rows = unit(placed.rows + 2 * np.sign(np.arange(8) - 3.5)[:, None])
    things = Public(embedders={"embedding": placed}, sources={"vocabulary": listed(words)})
    mixed = {}
    for method in ("independent", "linear", "logarithmic"):
        raw = {"vocabulary_size": 8, "method": method, "sketch": "fourier", "features": 3_000}
        raw |= {"bandwidth": 0.5, "sequence_length": 4, "seed": 7}
        parameters, _, found = made(raw, dataset(*texts, label=None), Terms(), Clean, things)
        rows = sequences(parameters, found, things).drawn(0, 200, 3, random)
        kinds = [{found.phrases[term][0] for term in row} for row in rows.tolist()]
        mixed[method] = sum(len(each) > 1 for each in kinds) / 200
        assert len({tuple(row) for row in rows.tolist()}) > 30  # draws, not one best sequence
    assert mixed["independent"] > 0.8
    assert max(mixed["linear"], mixed["logarithmic"]) < 0.2


def test_features_are_the_same_for_a_seed():
    points = embed_all(Embedder(), WORDS)
    one, two = (Features.of(points, 2, 7, 0.5, 1.0, 11, 3) for _ in range(2))
    assert (one.parts == two.parts).all()
    assert (one.offsets == two.offsets).all()
    other = Features.of(points, 2, 7, 0.5, 1.0, 12, 3)
    assert (one.parts != other.parts).any()


def test_a_record_with_too_few_terms_adds_nothing_to_longer_sequences():
    raw = {"method": "linear", "seed": 1, "vocabulary_size": 10}
    _, _, found = made(raw, dataset("soup lift"), meter=Clean)
    assert [bool(row.any()) for row in found.sums] == [True, True, False]


def test_terms_that_an_embedding_can_not_place_take_no_part_in_fourier_sketches():
    class Holes(Embedder):
        def embed(self, texts, tokens=None):
            yield from super().embed("" if text == "soup" else text for text in texts)

    things = Public(embedders={"embedding": Holes()}, sources={"vocabulary": listed()})
    raw = {"sketch": "fourier", "vocabulary_size": 10, "seed": 1}
    alone = made(raw, dataset("soup"), meter=Clean, things=things)[2]
    assert not alone.sums.any()
    parameters, _, found = made(raw, dataset("soup lift"), meter=Clean, things=things)
    rows = sequences(parameters, found, things).drawn(
        1, 50, 3, np.random.default_rng(1)
    )  # a label without any
    assert "soup" not in {found.phrases[term] for row in rows.tolist() for term in row}
