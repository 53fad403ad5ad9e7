"""Noisy counts: what neighbours move against what is charged, meter against price, and no torch."""

import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accountant.core import mechanisms
from accountant.core.errors import InvalidRequest, MeterExceeded
from accountant.core.mechanisms.noisy_count import (
    MECHANISM,
    MOST_NOISE,
    NoisyCount,
    counts_moved,
    sensitivity,
)
from accountant.core.privacy.events import Laplace, releases
from accountant.core.privacy.price import Neighbours, Terms
from tests.test_architecture import ROOT
from workers.data.records import Layout, Record, Records, read
from workers.interface import Progress
from workers.mechanisms.noisy_count import Runner, true_counts
from workers.noise.meter import Meter

PRICE = mechanisms.get("noisy-count")
LABELS = ("a", "b", "c")


def dataset(tmp_path_factory, rows: list[tuple[str, str]], bound: int) -> Records:
    """These (unit, label) rows as a worker reads them from a file."""
    file = tmp_path_factory.mktemp("counts") / "data.csv"
    file.write_text(
        "".join(["who,label,text\n", *(f"{who},{label},hello\n" for who, label in rows)])
    )
    return read(str(file), Layout("{text}", "who", "label", LABELS, bound), b"k" * 32)


def run(raw: dict, terms: Terms, data: Records):
    parameters = PRICE.parse(raw, terms)
    meter = Meter(PRICE.price(parameters, terms).dp)
    progress = Progress(Runner().total(parameters, terms))
    return (
        list(Runner().run(parameters, terms, data, None, meter, progress)),
        parameters,
        meter,
        progress,
    )


UNITS = st.lists(
    st.lists(st.sampled_from([*LABELS, "unknown"]), min_size=1, max_size=5), max_size=5
)


@given(
    UNITS,
    st.lists(st.sampled_from([*LABELS, "unknown"]), min_size=1, max_size=5),
    st.lists(st.sampled_from([*LABELS, "unknown"]), min_size=1, max_size=5),
    st.integers(1, 4),
    st.sampled_from(["label", "dataset"]),
    st.sampled_from(["laplace", "gaussian"]),
)
def test_one_unit_moves_the_counts_by_no_more_than_is_charged(
    tmp_path_factory, others, old, new, bound, per, noise
):
    """Added, removed or replaced, with any labels, unreadable ones too: L1 and L2 within the
    sensitivity.
    """
    rest = [(f"u{i}", label) for i, unit in enumerate(others) for label in unit]
    first, second = [("x", label) for label in old], [("y", label) for label in new]
    for neighbours, one, two in (
        (Neighbours.ADD_REMOVE, rest, rest + first),
        (Neighbours.REPLACE_ONE, rest + first, rest + second),
    ):
        terms = Terms(neighbours, max_records_per_unit=bound, labels=LABELS)
        parameters = PRICE.parse({"per": per, "noise": noise}, terms)
        before, after = (
            true_counts(parameters, terms, dataset(tmp_path_factory, rows, bound))
            for rows in (one, two)
        )
        assert list(before) == list(after) == (list(LABELS) if per == "label" else [None])
        moves = [abs(after[label] - before[label]) for label in before]
        assert max(moves) <= 1
        assert sum(moves) <= counts_moved(parameters, terms)
        norm = sum(moves) if noise == "laplace" else sum(m * m for m in moves) ** 0.5
        assert norm <= sensitivity(parameters, terms)


@pytest.mark.parametrize("neighbours", list(Neighbours))
@pytest.mark.parametrize("bound", [1, 2])
def test_the_worst_neighbours_reach_the_sensitivity(tmp_path_factory, neighbours, bound):
    """The charge is not more than can happen."""
    terms = Terms(neighbours, max_records_per_unit=bound, labels=LABELS)
    parameters = PRICE.parse({}, terms)
    ends = [
        [("x", label) for label in LABELS[:bound]],
        [("y", label) for label in LABELS[::-1][:bound]],
    ]
    if neighbours is Neighbours.ADD_REMOVE:
        ends[1] = []
    counts = [
        true_counts(parameters, terms, dataset(tmp_path_factory, rows, bound)) for rows in ends
    ]
    moves = sum(abs(counts[0][label] - counts[1][label]) for label in LABELS)
    shared = set(LABELS[:bound]) & set(LABELS[::-1][:bound])  # bound 2 of 3 labels: they share one
    expected = counts_moved(parameters, terms)
    if neighbours is Neighbours.REPLACE_ONE and shared:
        expected -= len(shared)
    assert moves == expected


@pytest.mark.parametrize("neighbours", list(Neighbours))
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize(("per", "labels"), [("label", LABELS), ("dataset", (None,))])
def test_meter_equals_price_and_every_declared_label_has_a_count(neighbours, noise, per, labels):
    terms = Terms(neighbours, labels=LABELS)
    data = Records(LABELS, (Record("u", "a", "x"),), b"k" * 32)
    counts, parameters, meter, progress = run({"per": per, "noise": noise}, terms, data)
    assert releases(meter.realized) == releases(PRICE.price(parameters, terms).dp)
    assert [each.label for each in counts] == list(labels)
    assert progress.done == progress.total == len(labels)
    with pytest.raises(MeterExceeded):
        list(Runner().run(parameters, terms, data, None, meter, progress))


def test_equal_records_are_two_units_and_records_of_one_unit_are_one(monkeypatch):
    monkeypatch.setattr("workers.noise.meter.laplace_on_grid", lambda values, scale: values)
    twice = (Record("same", "a", "x"), Record("same", "a", "x"), Record("other", "b", "x"))
    for bound, per, expected in (
        (1, "label", [2, 1, 0]),
        (2, "label", [1, 1, 0]),
        (1, "dataset", [3]),
        (2, "dataset", [2]),
    ):
        terms = Terms(max_records_per_unit=bound, labels=LABELS)
        counts, *_ = run({"per": per}, terms, Records(LABELS, twice, b"k" * 32))
        assert [each.count for each in counts] == expected


def test_noise_has_the_scale_that_is_priced():
    """Laplace of epsilon 1: P(|noise| = 0 after rounding) is 1 - e^(-1/2); 4,000 draws are within 5
    sigma.
    """
    terms = Terms(labels=())
    data = Records((None,), (), b"k" * 32)
    drawn = Counter(run({"epsilon": 1.0}, terms, data)[0][0].count for _ in range(4_000))
    expected = 1 - 2.718281828459045**-0.5
    assert abs(drawn[0] / 4_000 - expected) < 5 * (expected * (1 - expected) / 4_000) ** 0.5
    assert min(drawn) < 0 < max(drawn)
    assert PRICE.price(PRICE.parse({"epsilon": 1.0}, terms), terms).dp == Laplace(1.0)


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("bound", [1, 1_000, 10_000])
def test_what_is_admitted_is_noise_that_can_be_drawn(noise, bound):
    """Else the job would fail, and be charged, for a number that was public all along."""
    terms = Terms(
        Neighbours.REPLACE_ONE, 1e-6, bound, None, tuple(f"label {n}" for n in range(20_000))
    )
    for multiplier in (1e-3, 1.0, 5e7, 1e9):
        raw = {"noise": noise, "noise_multiplier": multiplier}
        if multiplier * sensitivity(NoisyCount(**raw), terms) > MOST_NOISE:
            with pytest.raises(InvalidRequest, match="noise_multiplier"):
                MECHANISM.parse(raw, terms)
            continue
        parameters = MECHANISM.parse(raw, terms)
        meter = Meter(MECHANISM.price(parameters, terms).dp)
        run = Runner().run(
            parameters, terms, Records(terms.labels, (), b"k"), None, meter, Progress(1)
        )
        assert len(list(run)) == len(terms.labels)


@pytest.mark.slow
def test_a_worker_that_only_counts_never_loads_torch():
    code = (
        "import sys, workers.jobs.tasks; from workers.mechanisms import runner; "
        "runner('noisy-count'); "
        "assert 'torch' not in sys.modules and 'transformers' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
