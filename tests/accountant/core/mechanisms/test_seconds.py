"""Seconds from public sizes and rehearsals: what is linear is found again, two runs say nothing."""

import pytest

from accountant.core import mechanisms
from accountant.core.mechanisms.seconds import predicted, work
from accountant.core.privacy.price import Terms

TERMS = Terms(public_size=600, labels=("a", "b", "c"))


def linear(reading: float, writing: float) -> float:
    return 3 + 0.1 * reading + 0.002 * writing


RUNS = [
    ((1, size, rows), linear(size, rows)) for size, rows in ((100, 900), (400, 900), (250, 9_000))
]


@pytest.mark.parametrize("wanted", [(50, 200), (100, 900), (2_000, 100_000)])
def test_seconds_that_are_linear_are_found_exactly(wanted):
    assert predicted(RUNS, (1, *wanted)) == pytest.approx(linear(*wanted))
    assert predicted(RUNS * 2, (1, *wanted)) == pytest.approx(linear(*wanted))


def test_two_runs_say_nothing():
    assert predicted(RUNS[:2], (1, 100, 900)) is None


def test_no_part_is_below_zero_however_runs_differ():
    """A larger run that was quicker makes no larger one quicker still."""
    runs = [((1, 100, 1_000), 9.0), ((1, 200, 2_000), 8.0), ((1, 400, 4_000), 7.0)]
    assert 7 <= predicted(runs, (1, 4_000, 40_000)) <= 9


@pytest.mark.parametrize(
    ("raw", "texts", "done"),
    [
        ({"tokens_per_batch": 10, "batch_size": 50}, 600, (600, (600 + 12) * 10)),
        ({"tokens_per_batch": 10, "batch_size": 50, "labels": ("a",)}, 600, (200, (200 + 4) * 10)),
        (
            # a record is read once, in whatever round
            {"tokens_per_batch": 10, "batch_size": 50, "amplification": "allocation", "rounds": 3}
            | {"batches_to_run": 2},
            600,
            (600, 3 * (300 + 6) * 10),
        ),
    ],
)
def test_work_follows_from_parameters_and_public_sizes(raw, texts, done):
    parameters = mechanisms.get("private-prediction").parse(raw, TERMS)
    assert work(parameters, TERMS, texts) == pytest.approx((1, *done))


def test_work_of_other_mechanisms_and_of_unknown_sizes_is_not_guessed():
    ink = mechanisms.get("invisible-ink").parse({"max_tokens": 8, "texts_per_batch": 2}, TERMS)
    batches = ink.batches_run(TERMS)
    assert work(ink, TERMS, 600) == (1, 600, (600 + batches) * 16)
    counts = mechanisms.get("noisy-count").parse({"per": "label", "epsilon": 1.0}, TERMS)
    assert work(counts, TERMS, 600) is None
    assert work(ink, TERMS, None) is None


def test_work_of_texts_from_phrases_is_that_of_each_labels_passes_and_of_a_report():
    """120 sequences of a label are two passes of 64 rows, and a pass counts as 64 rows more."""
    raw = {"vocabulary": "job", "writer": "w", "sequences_per_label": 120, "max_tokens": 10}
    kps = mechanisms.get("dp-kps").parse(raw, TERMS)
    assert work(kps, TERMS, 600) == (0, 360, 3 * (120 + 2 * 64) * 10)
    # beside them 200 of zero-shot, and 360 + 200 + 600 + 50 texts are compared
    _, reading, writing = work(kps, TERMS, 600, held_out=50)
    assert (reading, writing) == (360 + 1_210, (3 * 248 + 200 + 4 * 64) * 10)
    listed = mechanisms.get("dp-kps").parse({"vocabulary": "job", "output": "phrases"}, TERMS)
    assert work(listed, TERMS, 600) is None


def test_seconds_of_texts_from_phrases_have_no_part_that_no_size_moves():
    runs = [((0, size, rows), linear(size, rows) - 3) for (_, size, rows), _ in RUNS]
    assert predicted(runs, (0, 5, 100)) == pytest.approx(linear(5, 100) - 3)
