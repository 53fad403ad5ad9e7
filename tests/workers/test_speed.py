"""The speed of a model: measured where its files are checked, on made-up prompts, and told in quotes."""

import uuid

import pytest

from accountant import settings
from accountant.catalogue import models as model_catalogue
from accountant.catalogue import registration
from accountant.core.mechanisms.durations import Speed, Work
from accountant.queries import quotes
from accountant.settings import Settings
from tests.support import Bench, person
from tests.workers.conftest import SAMPLE
from web.cli.price import shown
from workers import speed
from workers.jobs import checks

pytestmark = pytest.mark.slow

RAW = {"tokens_per_batch": 100, "batches_per_label": 4}


@pytest.fixture(scope="module")
def model(engine, database_url):
    """The bundled model, as a worker found it."""
    with pytest.MonkeyPatch.context() as patch:
        configured = Settings(database_url=database_url, model_roots=str(SAMPLE))
        patch.setattr(settings, "load", lambda: configured)
        steward = person(engine, "steward")
        name = f"m-{uuid.uuid4().hex[:8]}"
        added = model_catalogue.add_model(engine, name, str(SAMPLE / "model"), "made up", steward)
        checks.check_model(str(added))
        row = registration.find(engine, "model", added)
    assert row.state == "ready", row
    return row


def test_a_quote_with_a_model_says_how_long_it_takes(engine, model):
    speed = Speed.read(model.facts["speed"])
    figures = [value for value in vars(speed).values() if isinstance(value, float)]
    assert all(value >= 0 for value in figures)
    assert sum(figures) > 0
    bench = Bench(engine, policy={"time_limit_seconds": 60})
    bench.allow()
    quoted = [
        quotes.quote_on(engine, bench.dataset, "private-prediction", raw, model=model.name)
        for raw in (RAW, RAW | {"tokens_per_batch": 1_000_000, "temperature": 1000.0})
    ]
    short, long = (each.duration for each in quoted)
    assert 0 < short.low < short.seconds < short.high < long.seconds
    assert short.warning is None
    assert long.warning.startswith("time_limit_seconds: ")
    assert f"for about {max(1, int(100 * 60 / long.seconds))} % of this work" in long.warning
    (table, *_) = shown(quoted[1].document())
    assert "waiting in the queue comes on top" in str(vars(table))
    assert "time_limit_seconds" in str(vars(table))


def test_a_job_without_a_model_is_told_the_speed_of_the_one_that_writes(engine, model):
    bench = Bench(engine)
    bench.allow()
    raw = {"vocabulary": "JOB", "vocabulary_size": 50, "sequences_per_label": 20, "sequence_length": 5}
    quoted = [
        quotes.quote_on(engine, bench.dataset, "dp-kps", raw | each, model=None)
        for each in ({"writer": model.name}, {"writer": bench.model}, {"output": "phrases"})
    ]
    written, unmeasured, phrases = (each.duration for each in quoted)
    assert written.seconds > 0
    assert "at most about" in written.sentence
    assert unmeasured is None
    assert phrases is None


def test_without_a_model_or_its_speed_nothing_is_said(engine, model):
    bench = Bench(engine)
    bench.allow()
    for mechanism, named in (
        ("private-prediction", None),
        ("private-prediction", "nobody"),
        ("private-prediction", bench.model),  # nobody measured it
        ("noisy-count", model.name),
    ):
        raw = RAW if mechanism == "private-prediction" else {}
        assert quotes.quote_on(engine, bench.dataset, mechanism, raw, model=named).duration is None


def test_a_model_that_can_not_be_loaded_here_is_registered_without_a_speed(monkeypatch, tmp_path):
    facts = {"sha256": "0" * 64, "parameters": 1}
    assert speed.of_files(tmp_path, facts, "auto", None) == {}
    assert speed.of_files(SAMPLE / "model", facts | {"parameters": 10**15}, "auto", None) == {}


def test_an_embedding_model_is_measured_as_one_that_only_reads(engine, monkeypatch):
    configured = Settings(database_url=engine.url.render_as_string(False), model_roots=str(SAMPLE))
    monkeypatch.setattr(settings, "load", lambda: configured)
    steward = person(engine, "steward")
    named = (f"e-{uuid.uuid4().hex[:8]}", str(SAMPLE / "model"), "made up", steward, "embedding")
    added = model_catalogue.add_model(engine, *named)
    checks.check_model(str(added))
    found = Speed.read(registration.find(engine, "model", added).facts["speed"])
    assert found.prompt + found.prompt_column > 0
    assert found.pass_ == found.written == 0


def test_training_on_a_model_is_measured(model):
    found = Speed.read(model.facts["speed"])
    assert found.tells(Work(trained=1))
    assert found.trained_pass + found.trained > 0
    assert found.adapted > 0


def test_an_embedding_model_that_can_not_be_loaded_is_registered_without_a_speed(tmp_path):
    assert speed.of_embedding(tmp_path, {"sha256": "0" * 64}) == {}
