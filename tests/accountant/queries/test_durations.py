"""How long a quote says that a job takes: each model's own measured speed for what it does, or nothing."""

import uuid
from dataclasses import replace

import pytest

from accountant.catalogue import models, registration
from accountant.core import mechanisms
from accountant.core.mechanisms.durations import MODEL, Speed, estimate
from accountant.core.privacy.price import Terms
from accountant.queries import quotes
from tests.support import Bench, public_things

SPEED = Speed("a machine", 0.01, 1e-3, 1e-5, 1e-4, 1e-7, 1e-5, 1e-4, 1e-3, 0.02, 3e-4, 1e-3)
SLOW = replace(SPEED, device="another", prompt=1e-3, written=1e-2)
BEFORE = {key: value for key, value in vars(SPEED).items() if "trained" not in key and key != "adapted"}
EVOLVED = {"epsilon": 2.0, "samples": 30, "epochs": 4, "record_tokens": 80, "varying": "continue"}


@pytest.fixture(scope="module")
def bench(engine):
    made = Bench(engine)
    made.allow()
    return made


def model(bench, facts, kind="language", context=1_000):
    """The name of a model with these figures of a speed; None: it was not measured."""
    name = f"{kind}-{uuid.uuid4().hex[:8]}"
    added = models.add_model(bench.engine, name, "/nowhere", "made up", bench.steward, kind=kind)
    found = {"sha256": uuid.uuid4().hex * 2, "context_tokens": context}
    measured = {} if facts is None else {"speed": facts}
    registration.checked(bench.engine, "model", added, found | measured, None)
    return name


def told(bench, mechanism, raw, named):
    return quotes.quote_on(bench.engine, bench.dataset, mechanism, raw, model=named).duration


@pytest.fixture(scope="module")
def own(bench):
    return model(bench, vars(SPEED))


def works(name, raw):
    mechanism, terms = mechanisms.get(name), Terms(public_size=1_000)
    return mechanism.work(mechanism.parse(raw, terms), terms, 0)


def test_writing_takes_as_long_as_the_writer_does_and_the_rest_as_the_own_model(bench, own):
    raw = EVOLVED | {"writer": model(bench, vars(SLOW))}
    found, work = told(bench, "aug-pe", raw, own), works("aug-pe", raw)
    expected = estimate(work["writer"], SLOW).seconds + estimate(work[MODEL], SPEED).seconds
    assert found.seconds == pytest.approx(expected)
    assert found.device == "another and a machine"
    assert told(bench, "aug-pe", EVOLVED, own).device == "a machine"


@pytest.mark.parametrize("context", [1_000, 60])
def test_an_embedding_model_reads_no_more_of_a_text_than_its_context(bench, own, context):
    raw = EVOLVED | {"embedding": model(bench, vars(SLOW), "embedding", context)}
    work = works("aug-pe", raw)
    cut = min(80, context)
    texts = work["embedding"].prompts // 80
    embedded = replace(work["embedding"], prompts=texts * cut, read_columns=cut)
    expected = estimate(work[MODEL], SPEED).seconds + estimate(embedded, SLOW).seconds
    assert told(bench, "aug-pe", raw, own).seconds == pytest.approx(expected)


@pytest.mark.parametrize("field", ["writer", "embedding"])
def test_a_model_that_was_not_measured_leaves_the_whole_untold(bench, own, field):
    raw = EVOLVED | {field: model(bench, None, "embedding" if field == "embedding" else "language")}
    assert told(bench, "aug-pe", raw, own) is None
    assert told(bench, "aug-pe", EVOLVED | {field: "nobody"}, own) is None


def test_a_writer_alone_does_not_tell_what_a_model_without_figures_does(bench, own):
    assert told(bench, "aug-pe", EVOLVED | {"writer": own}, model(bench, None)) is None
    assert told(bench, "aug-pe", EVOLVED | {"writer": own}, None) is None


def test_training_is_told_by_a_model_on_which_it_was_measured(bench, own):
    raw = {"corpus": "nobody", "record_tokens": 50}
    assert told(bench, "summary-adapter", raw, own).sentence.startswith("at most about ")
    assert told(bench, "summary-adapter", raw, model(bench, BEFORE)) is None
    assert told(bench, "aug-pe", EVOLVED, model(bench, BEFORE)) == told(bench, "aug-pe", EVOLVED, own)


def test_no_more_public_texts_are_counted_than_the_corpus_has(bench, own):
    corpus = public_things(bench.engine, bench.steward, 100, [])["public_corpus"]
    raw = {"record_tokens": 50, "corpus": corpus}
    asked, larger, small = (
        told(bench, "summary-adapter", raw | each, own).seconds
        for each in ({}, {"public_texts": 9_000}, {"public_texts": 50})
    )
    assert small < asked == larger
