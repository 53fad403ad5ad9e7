"""How long a job is said to take: from public numbers, in plain words, and never from what a job did."""

import pytest

from accountant.core import mechanisms
from accountant.core.mechanisms.durations import Speed, Work, estimate, in_words
from accountant.core.privacy.price import Terms

SPEED = Speed(
    device="a machine",
    pass_=0.01,
    row=1e-3,
    column=1e-5,
    prompt=1e-4,
    prompt_column=1e-7,
    draw_row=1e-5,
    draw=1e-4,
    written=1e-3,
)

EVOLVED = {"epsilon": 8.0, "samples": 30, "epochs": 4, "max_tokens": 40, "prompt": "A review:"}
PROTECTED = {
    **{"prior": 1e-4, "bound": 0.02, "records_per_secret": 3, "sampling_rate": 0.5, "neighbour": "removed"},
    **{"public_corpus": "reviews", "public_texts": 100, "clusters": 5, "iterations": 4, "samples": 30},
    **{"prompt": "A review:"},
}
SEEDED = {
    **{"vocabulary": "JOB", "vocabulary_size": 50, "sequences_per_label": 100, "sequence_length": 5},
    "writer": "somebody",
}


def test_each_part_of_the_work_counts_with_its_speed():
    work = Work(contexts=192, steps=1920, columns=100, prompts=1000, read_columns=10, draws=5, written=7)
    passes, rows = 1920 / 96 * 0.01, 1920 * (1e-3 + 1e-5 * 100)
    read = 1000 * (1e-4 + 1e-7 * 10)
    drawn = 1920 * 1e-5 + 5 * 1e-4
    assert estimate(work, SPEED).seconds == pytest.approx(passes + rows + read + drawn + 7e-3)


def test_rows_that_fill_a_pass_take_as_long_as_those_that_are_wanted():
    four, sixteen = (estimate(Work(rows, 4 * 10, 0), SPEED).seconds for rows in (4, 16))
    assert four == pytest.approx(4 * sixteen)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.2, "1 second"), (8, "8 seconds"), (240, "4 minutes"), (9_000, "2.5 hours"), (3e6, "35 days")],
)
def test_durations_in_words(seconds, words):
    assert in_words(seconds) == words


def test_the_sentence_says_what_is_left_out_and_the_range_holds_the_estimate():
    found = estimate(Work(contexts=16, steps=10_000, most=True), SPEED)
    assert found.low < found.seconds < found.high
    told = found.sentence()
    assert told.startswith("at most about ")
    assert "waiting in the queue comes on top" in told
    assert "a machine" in told


@pytest.mark.parametrize(
    ("name", "raw", "more"),
    [
        ("private-prediction", {"batches_per_label": 3, "tokens_per_batch": 20}, {"tokens_per_batch": 40}),
        ("private-prediction", {"batches_per_label": 3, "tokens_per_batch": 20}, {"batches_per_label": 6}),
        ("invisible-ink", {"batches_per_label": 3}, {"texts_per_batch": 40}),
        ("epsvec", {"epsilon": 2.0, "sampling_rate": 0.5, "samples": 10}, {"samples": 1_000}),
        ("summary-token", {"epsilon": 2.0, "public_size": 500}, {"public_size": 1_000}),
        ("summary-oneshot", {"epsilon": 2.0, "public_size": 500}, {"public_size": 1_000}),
        ("aug-pe", EVOLVED, {"epochs": 8}),
        ("aug-pe", EVOLVED, {"samples": 80}),
        ("aug-pe", EVOLVED | {"varying": "continue"}, {"max_tokens": 80}),
        ("secpe", PROTECTED, {"iterations": 8}),
        ("secpe", PROTECTED, {"public_texts": 20_000}),
        ("dp-kps", SEEDED, {"sequences_per_label": 200}),
        ("dp-kps", SEEDED, {"max_tokens": 400}),
    ],
)
def test_a_larger_job_takes_longer(name, raw, more):
    mechanism, terms = mechanisms.get(name), Terms(public_size=1_000)
    small, large = (
        estimate(mechanism.work(mechanism.parse(each, terms), terms, 20), SPEED).seconds
        for each in (raw, raw | more)
    )
    assert large > 1.1 * small


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("aug-pe", EVOLVED | {"writer": "another", "embedding": "e"}),  # two speeds: nothing is said
        ("dp-kps", SEEDED | {"writer": None, "output": "phrases"}),
        ("noisy-count", {}),
    ],
)
def test_where_nothing_public_tells_nothing_is_said(name, raw):
    mechanism, terms = mechanisms.get(name), Terms(public_size=1_000)
    assert mechanism.work(mechanism.parse(raw, terms), terms, 20) is None


def test_samples_that_an_earlier_job_released_are_not_written_again():
    mechanism, terms = mechanisms.get("aug-pe"), Terms(public_size=1_000)
    anew, from_there = (
        mechanism.work(mechanism.parse(EVOLVED | each, terms), terms, 20)
        for each in ({}, {"population": "a job"})
    )
    samples = EVOLVED["samples"]
    each = mechanism.parse(EVOLVED, terms).variations
    assert anew.written - from_there.written == samples * (each + 1) * EVOLVED["max_tokens"]
