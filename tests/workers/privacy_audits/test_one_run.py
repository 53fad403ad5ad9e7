"""The one-run audit: its bound, and arms of every kind of noise, whole and halved.

    EXCHEQUER_RECORD=1 pytest tests/workers/privacy_audits/test_one_run.py -m "slow or release"

records what the arms found in benchmarks/audits.json, for docs/comparison.md.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from accountant.core import mechanisms
from accountant.core.privacy.composition import epsilon_alone, gaussian_epsilon
from accountant.core.privacy.events import Allocated, Exponential, Gaussian, SelfComposed
from accountant.core.privacy.price import Terms
from benchmarks import one_run
from tests.workers.conformance import toys
from tests.workers.evolution import writers
from workers.data.terms import TermList
from workers.interface import NOTHING_PUBLIC, Artifact, Public, Released
from workers.models import LocalModel
from workers.noise import meter
from workers.privacy_audits import subjects
from workers.privacy_audits.subjects import Subject

#: At which a sound arm fails in one of 10^5 runs of the test.
SURE = 1 - 1e-5
PARTS = tuple(f"part {number}" for number in range(40))
AUDITS = Path(one_run.__file__).with_name("audits.json")


@pytest.fixture(scope="module")
def copier(tmp_path_factory) -> LocalModel:
    return subjects.load_model(None, tmp_path_factory.mktemp("copier"))


@pytest.fixture
def halved(monkeypatch) -> None:
    """The guard taken out: every draw has half the noise that its event states."""
    draw, gaussian, laplace = meter.draw, meter.gaussian_on_grid, meter.laplace_on_grid
    monkeypatch.setattr(meter, "draw", lambda scores, scale: draw(scores, 2 * scale))
    monkeypatch.setattr(meter, "gaussian_on_grid", lambda each, sigma: gaussian(each, sigma / 2))
    monkeypatch.setattr(meter, "laplace_on_grid", lambda each, scale: laplace(each, scale / 2))


def arm(
    mechanism_id: str,
    raw: dict,
    model: LocalModel | None = None,
    public: Public = NOTHING_PUBLIC,
    grouped: bool = False,
    each: int = 10,
    names: tuple[str, ...] = PARTS,
) -> Subject:
    mechanism = mechanisms.get(mechanism_id)
    parts = {"groups": names} if grouped else {"labels": names}
    terms = Terms(delta=subjects.DELTA, public_size=each * len(names), **parts)
    parameters = mechanism.parse(raw, terms)
    price = mechanism.price(parameters, terms)
    return Subject(mechanism_id, mechanism_id, parameters, terms, price, model, public)


def laplace_counts(_: LocalModel) -> Subject:
    return arm("noisy-count", {"noise": "laplace", "noise_multiplier": 1.0, "per": "label"})


def gaussian_counts(_: LocalModel) -> Subject:
    return arm("noisy-count", {"noise": "gaussian", "noise_multiplier": 0.5, "per": "label"})


def mean_of_logits(copier: LocalModel) -> Subject:
    raw = subjects.key_parameters(copier) | {"batch_size": 2, "clip": 3.0, "temperature": 2.0}
    raw |= {"tokens_per_batch": 1, "max_text_tokens": 1, "batches_per_label": 1, "min_tokens": 0}
    fields = mechanisms.get("private-prediction").fields
    return arm("private-prediction", {name: raw[name] for name in raw if name in fields}, copier)


def secret_batches(copier: LocalModel) -> Subject:
    """Ten digits alone to draw from: the bound of a token's shift is all but reached."""
    raw = subjects.key_parameters(copier) | {"batch_size": 2, "clip": 2.0, "temperature": 0.5}
    raw |= {"tokens_per_batch": 1, "max_text_tokens": 1, "batches_per_label": 2, "min_tokens": 0}
    raw |= {"amplification": "allocation", "rounds": 2, "top_k": 10}
    fields = mechanisms.get("private-prediction").fields
    given = {name: raw[name] for name in raw if name in fields}
    return arm("private-prediction", given, copier, names=PARTS[:10])


def clustered(copier: LocalModel) -> Subject:
    """One cluster and one batch of it, so that what is counted moves no record elsewhere."""
    raw = subjects.key_parameters(copier) | {"batch_size": 2, "clip": 0.4, "temperature": 2.0}
    raw |= {"tokens_per_batch": 1, "max_text_tokens": 1, "batches_per_label": 1, "min_tokens": 0}
    raw |= {"batching": "clusters", "clusters": 40, "public_centres": 40, "top_k": 10}
    raw |= {"public_corpus": "toy", "embedding": "toy", "cluster_epsilon": 1.0}
    fields = mechanisms.get("private-prediction").fields
    public = toys.public({"public_corpus": "corpus", "embedding": "embedding"})
    given = {name: raw[name] for name in raw if name in fields}
    return arm("private-prediction", given, copier, public)


def median_of_logits(copier: LocalModel) -> Subject:
    raw = subjects.key_parameters(copier) | {"aggregation": "median", "ex_post_cap": 100.0}
    raw |= {"batch_size": 2, "clip": 2.0, "temperature": 1.5, "min_tokens": 0}
    raw |= {"tokens_per_batch": 1, "max_text_tokens": 1, "batches_per_label": 1}
    fields = mechanisms.get("private-prediction").fields
    return arm("private-prediction", {name: raw[name] for name in raw if name in fields}, copier)


def ink(copier: LocalModel) -> Subject:
    """A clip that the digits of another key reach too: the bulk moves down, and its own up."""
    raw = subjects.key_parameters(copier) | {"batch_size": 1, "clip": 0.4, "temperature": 0.8}
    raw |= {"texts_per_batch": 1, "max_tokens": 1, "batches_per_label": 1, "min_tokens": 0}
    fields = mechanisms.get("invisible-ink").fields
    return arm("invisible-ink", {name: raw[name] for name in raw if name in fields}, copier)


def vectors(_: LocalModel) -> Subject:
    raw = {"layers": "1-2", "noise_multiplier": 0.7, "shots": 0, "partners": 1, "samples": 1}
    raw |= {"samples_per_label": 1, "max_tokens": 2, "record_tokens": 24, "clip": 1.0, "seed": 5}
    raw |= {"template": "Another review ({label}):", "stop": None}
    return arm("epsvec", raw, toys.model(), each=1, names=PARTS[:10])


def shots(_: LocalModel) -> Subject:
    """What is released first: how many records are near to each candidate, with noise."""
    raw = {"layers": "1", "noise_multiplier": 1e5, "shots": 1, "candidates": 2, "partners": 1}
    raw |= {"shots_noise_multiplier": 0.5, "samples": 1, "samples_per_label": 1, "max_tokens": 2}
    raw |= {"record_tokens": 24, "clip": 1.0, "seed": 5, "stop": None}
    raw |= {"template": "{examples}Another review ({label}):"}
    return arm("epsvec", raw, toys.model(), each=1, names=PARTS[:10])


def summary_by_token(copier: LocalModel) -> Subject:
    raw = {"public_size": 1, "min_group": 1, "noise_multiplier": 0.5, "seed": 1, "max_tokens": 1}
    raw |= {"clip": 1.0, "record_tokens": 24, "template": "{record}\nMy 5-digit key is"}
    return arm("summary-token", raw, copier, grouped=True)


def summary_in_one_shot(_: LocalModel) -> Subject:
    raw = {"public_size": 1, "min_group": 1, "noise_multiplier": 0.5, "seed": 1, "max_tokens": 1}
    raw |= {"clip": 1.0, "record_tokens": 24, "soft_tokens": 2, "releases": 1}
    return arm("summary-oneshot", raw, toys.model(), grouped=True)


class Again(writers.Words):
    """Writes the same in every run."""

    def seeded(self, seed: int | None) -> "Again":
        return Again(seed)


def votes(_: LocalModel) -> Subject:
    raw = {"epochs": 1, "samples": 3, "variations": 0, "votes": 1, "lookahead": 0, "seed": 1}
    raw |= {"noise_multiplier": 0.5, "max_tokens": 4, "prompting": "plain"}
    raw |= {"embedding": "places", "writer": "words"}
    return arm("aug-pe", raw, None, writers.public(Again()))


def term_counts(_: LocalModel) -> Subject:
    """Every canary's key is a term, and the only one that it has."""
    terms = {record.text[-6:-1]: 1 for record in one_run._canaries(laplace_counts(None))}
    listed = Artifact.of_json("terms", "term-list", TermList(terms, 1).to_json())
    raw = {"vocabulary": "JOB", "vocabulary_noise_multiplier": 1.0, "vocabulary_size": 5}
    raw |= {"terms_per_record": 1, "output": "phrases", "sequences_per_label": 1}
    found = {"terms": Released(listed.name, listed.content)}
    return arm("dp-kps", raw, None, Public(sources={"vocabulary": found}))


def sketches(_: LocalModel) -> Subject:
    """One term, which all canaries have: nothing is learned of one from the counts before."""
    listed = Artifact.of_json("terms", "term-list", TermList({"key": 1}, 1).to_json())
    raw = {"vocabulary": "JOB", "kde_noise_multiplier": 1.0, "vocabulary_size": 1}
    raw |= {"terms_per_record": 1, "output": "phrases", "sequences_per_label": 1}
    raw |= {"sequence_length": 1}
    found = {"terms": Released(listed.name, listed.content)}
    return arm("dp-kps", raw, None, Public(sources={"vocabulary": found}))


class Sides:
    """Places public texts at 1 and all others opposite, where one moves a centre furthest."""

    dimensions, context_tokens = 1, 64

    def embed(self, texts: Iterable[str], tokens: int | None = None) -> Iterator[np.ndarray]:
        for text in texts:
            yield np.full((1, 1), 1.0 if "room" in text else -1.0, np.float32)


def secrets(_: LocalModel) -> Subject:
    raw = {"prior": 0.05, "records_per_secret": 1, "sampling_rate": 0.8, "neighbour": "removed"}
    raw |= {"noise_multiplier": 1.0, "public_corpus": "toy", "clusters": 1, "iterations": 1}
    raw |= {"samples": 2, "variations": 0, "seed": 1, "max_tokens": 4, "prompting": "plain"}
    raw |= {"embedding": "sides", "writer": "words"}
    public = Public(
        {"public_corpus": toys.Corpus()}, {"embedding": Sides()}, {}, {"writer": Again()}
    )
    return arm("secpe", raw, None, public, names=PARTS[:10])


#: How many runs each takes until halved noise is missed in fewer than one of 10^4 of them.
ARMS: dict[Callable[[LocalModel], Subject], int] = {
    laplace_counts: 300,
    gaussian_counts: 8,
    votes: 8,
    term_counts: 300,
    sketches: 120,
}
LONG = {
    mean_of_logits: 80,
    secret_batches: 120,
    clustered: 180,
    median_of_logits: 80,
    ink: 200,
    vectors: 30,
    shots: 32,
    summary_by_token: 8,
    summary_in_one_shot: 8,
    secrets: 160,
}
#: Releases that come before what an arm looks at.
BEFORE = {sketches: 1}


EVERY = [
    *(pytest.param(*each, id=each[0].__name__) for each in ARMS.items()),
    *(pytest.param(*each, id=each[0].__name__, marks=pytest.mark.release) for each in LONG.items()),
]


def record(make: Callable[[LocalModel], Subject], figures: dict[str, Any]) -> None:
    """Add figures of an arm to those that the page shows, if this run is to record them."""
    if os.environ.get("EXCHEQUER_RECORD"):
        kept = json.loads(AUDITS.read_text("utf-8"))
        kept[make.__name__] = kept.get(make.__name__, {}) | figures
        AUDITS.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", "utf-8")


@pytest.mark.slow
@pytest.mark.parametrize(("make", "runs"), EVERY)
def test_an_arm_passes_with_its_noise(copier, make, runs):
    result = one_run.audit(make(copier), runs, SURE, BEFORE.get(make, 0))
    assert result["passed"], result
    assert 0 < result["lower_bound"] <= result["stated"]
    named = ("mechanism", "measure", "canaries", "guesses")
    figures = {name: round(result[name], 3) for name in ("stated", "lower_bound")}
    record(make, {name: result[name] for name in named} | figures)


@pytest.mark.slow
@pytest.mark.usefixtures("halved")
@pytest.mark.parametrize(("make", "runs"), EVERY)
def test_an_arm_fails_with_half_its_noise(copier, make, runs):
    result = one_run.audit(make(copier), runs, SURE, BEFORE.get(make, 0))
    assert not result["passed"], result
    record(make, {"halved": round(result["lower_bound"], 3)})


def test_what_is_recorded_is_of_every_arm_and_shows_halved_noise():
    kept = json.loads(AUDITS.read_text("utf-8"))
    assert set(kept) == {make.__name__ for make in (*ARMS, *LONG)}
    for name, found in kept.items():
        assert 0 < found["lower_bound"] <= found["stated"] < found["halved"], name


# --- the bound ------------------------------------------------------------------------------------


def test_right_guesses_of_a_coin_with_a_known_bias_are_refuted_as_often_as_is_said():
    """Randomized response is the worst case of ε-DP: the law of its right guesses is the bound."""
    epsilon, guesses = 1.0, 40
    law = stats.binom(guesses, stats.logistic.cdf(epsilon))
    wrong = sum(
        law.pmf(right)
        for right in range(guesses + 1)
        if one_run.lower_bound(guesses, guesses, right, 0.0, 0.95) > epsilon
    )
    assert 0.01 < wrong <= 0.05


def test_delta_makes_the_bound_smaller_and_no_guess_refutes_nothing():
    plain, less = (one_run.lower_bound(500, 100, 95, delta, 0.95) for delta in (0.0, 1e-5))
    assert 0 < less < plain
    assert one_run.lower_bound(500, 100, 0, 1e-5, 0.95) == 0
    assert one_run.luck(500, 100, 95, plain, 0.0) == pytest.approx(0.05, rel=1e-6)


def test_the_bound_of_a_curve_is_that_of_the_releases_with_the_most_noise_that_is_left():
    right = 336  # Φ(1) of 400, which is what μ = 2 gives
    found = one_run.lower_curve(Gaussian(0.5), 400, right, 0.95)
    assert gaussian_epsilon(1.6, subjects.DELTA) < found < gaussian_epsilon(2.0, subjects.DELTA)
    rounds = SelfComposed(Allocated(2, 2, 1, Exponential(2.0)), 2)
    assert 0 < one_run.lower_curve(rounds, 400, right, 0.95) < epsilon_alone(rounds, 1e-6)[0]
    assert one_run.lower_curve(rounds, 400, 210, 0.95) == 0


def test_a_secret_is_found_where_few_of_those_that_are_not_there_would_be():
    others = list(range(1_000))
    assert one_run.found_at(0.05, [949.0] * 3 + [2_000.0], others, 0.95) == 1
    assert one_run.found_at(0.05, [990.0] * 3 + [2_000.0], others, 0.95) == 4
    assert one_run.found_at(0.05, [5.0], [1.0, 2.0], 0.95) == 0
