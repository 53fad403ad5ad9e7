"""How long a job is said to take: from public numbers, in plain words, and never from what a job did."""

from dataclasses import replace

import pytest

from accountant.core import mechanisms
from accountant.core.mechanisms.durations import MODEL, Speed, Work, estimate, in_words, together
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
    trained_pass=0.02,
    trained=3e-4,
    adapted=1e-3,
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
ADAPTED = {"corpus": "reviews", "public_texts": 100, "record_tokens": 50, "steps": 50, "batch_size": 20}


def works(name, raw, terms=None):
    """What a job asks, by the field that names the model."""
    mechanism, terms = mechanisms.get(name), terms or Terms(public_size=1_000)
    return mechanism.work(mechanism.parse(raw, terms), terms, 20)


def test_each_part_of_the_work_counts_with_its_speed():
    work = Work(contexts=192, steps=1920, columns=100, prompts=1000, read_columns=10, draws=5, written=7)
    passes, rows = 1920 / 96 * 0.01, 1920 * (1e-3 + 1e-5 * 100)
    read = 1000 * (1e-4 + 1e-7 * 10)
    drawn = 1920 * 1e-5 + 5 * 1e-4
    assert estimate(work, SPEED).seconds == pytest.approx(passes + rows + read + drawn + 7e-3)
    trained = Work(trained_passes=2, trained=100, adapted=30)
    assert estimate(trained, SPEED).seconds == pytest.approx(2 * 0.02 + 100 * 3e-4 + 30 * 1e-3)


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
        ("summary-adapter", ADAPTED, {"steps": 100}),
        ("summary-adapter", ADAPTED, {"soft_tokens": 40}),
        ("summary-adapter", ADAPTED, {"evaluate_every": 1}),
        ("summary-adapter", ADAPTED, {"public_texts": 10_000}),
    ],
)
def test_a_larger_job_takes_longer(name, raw, more):
    small, large = (
        together([estimate(work, SPEED) for work in works(name, each).values()]).seconds
        for each in (raw, raw | more)
    )
    assert large > 1.1 * small


@pytest.mark.parametrize(("name", "raw"), [("aug-pe", EVOLVED), ("secpe", PROTECTED)])
@pytest.mark.parametrize("varying", ["rewrite", "continue"])
def test_the_writer_is_asked_to_write_and_what_embeds_is_asked_to_read(name, raw, varying):
    raw = raw | {"varying": varying}
    (own,) = works(name, raw).values()
    split = works(name, raw | {"writer": "another"})
    assert split.keys() == {"writer", MODEL}
    assert split["writer"].written == own.written
    assert split[MODEL].written == 0
    assert split["writer"].prompts + split[MODEL].prompts == own.prompts
    both = works(name, raw | {"writer": "another", "embedding": "e"})
    assert both.keys() == {"writer", "embedding"}
    assert both["writer"] == split["writer"]
    assert both["embedding"].prompts >= split[MODEL].prompts  # it pads each text
    assert works(name, raw | {"embedding": "e"}) == {MODEL: both["writer"], "embedding": both["embedding"]}


def test_a_job_that_embeds_nothing_asks_the_writer_alone():
    raw = {"from_job": "a job", "writer": "another", "samples": 30}
    assert works("aug-pe", raw).keys() == {"writer"}


def test_an_embedding_model_counts_for_shots_in_place_of_the_own():
    raw = {"epsilon": 2.0, "sampling_rate": 0.5, "samples": 10, "shots": 1}
    own, split = (works("epsvec", raw | each) for each in ({}, {"embedding": "e"}))
    assert split["embedding"].prompts == own[MODEL].prompts - split[MODEL].prompts > 0


def test_training_takes_the_loss_of_each_target_and_of_those_held_out():
    work = works("summary-adapter", ADAPTED)[MODEL]
    rows = 50 * 20 + 3 * 32  # of 20 sets a step, and of 32 held out in three measures
    assert work.trained == rows * (10 + 50)
    assert work.trained_passes == 50 * 2 + 3 * 2  # of 16 rows at the most
    assert work.adapted == 50 * (10 + 1)
    assert work.prompts == 100 * (20 + 50)
    assert work.most


def test_a_speed_from_before_training_was_measured_tells_all_but_training():
    old = {key: value for key, value in vars(SPEED).items() if "trained" not in key and key != "adapted"}
    known = Speed.read(old)
    assert not known.tells(works("summary-adapter", ADAPTED)[MODEL])
    (work,) = works("aug-pe", EVOLVED).values()
    assert known.tells(work)
    assert estimate(work, known) == estimate(work, SPEED)


def test_parts_on_several_machines_add_up_and_each_is_named_once():
    one, two = (
        estimate(Work(written=1), SPEED),
        estimate(Work(written=2, most=True), replace(SPEED, device="b")),
    )
    found = together([one, two, one])
    assert found.seconds == pytest.approx(4e-3)
    assert found.device == "a machine and b"
    assert found.most
    assert together([one]) == one


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("epsvec", {"epsilon": 2.0, "sampling_rate": 0.5, "rejection": "judge", "judge": "another"}),
        ("dp-kps", SEEDED | {"writer": None, "output": "phrases"}),
        ("noisy-count", {}),
    ],
)
def test_where_nothing_public_tells_nothing_is_said(name, raw):
    assert not works(name, raw)


def test_samples_that_an_earlier_job_released_are_not_written_again():
    anew, from_there = (works("aug-pe", EVOLVED | each)[MODEL] for each in ({}, {"population": "a job"}))
    samples = EVOLVED["samples"]
    each = mechanisms.get("aug-pe").parse(EVOLVED, Terms()).variations
    assert anew.written - from_there.written == samples * (each + 1) * EVOLVED["max_tokens"]
