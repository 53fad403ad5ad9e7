"""Mechanisms of a few large releases that are stopped and go on: each made once, texts as in one
run.
"""

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import numpy as np
import pytest

from accountant.core import mechanisms
from accountant.core.privacy.events import FREE
from accountant.core.privacy.price import Terms
from accountant.core.privacy.secrets import SecretRelease
from tests.workers.evolution.writers import Words
from tests.workers.evolution.writers import public as writing
from tests.workers.mechanisms import test_dp_kps, test_secpe
from tests.workers.noise.test_kept_draws import Memory, Stopped
from workers import models
from workers.data.records import Record, Records
from workers.interface import Artifact, Progress, Public, Released
from workers.mechanisms import runner, summary_adapter
from workers.noise import coins
from workers.noise.kept_draws import KeptDraws
from workers.noise.meter import Meter
from workers.sample import MODEL_DIR

LABELS = ("a", "b")


class Cut(Memory):
    """A store at which each attempt ends after its `most`-th row, or before it, when that row is
    lost.
    """

    def __init__(self, most: int, loses: bool = False) -> None:
        super().__init__()
        self.most, self.loses, self.left = most, loses, most

    def keep(self, draws) -> None:
        self.left -= 1
        if not self.left and self.loses and self.most > 1:
            raise Stopped
        super().keep(draws)
        if not self.left:
            raise Stopped


@dataclass(frozen=True)
class Case:
    """A job: what it asks for, its records, and its public things."""

    mechanism: str
    raw: dict
    terms: Terms = Terms(labels=LABELS)  # noqa: RUF009  (frozen)
    public: Any = Public
    texts: tuple[str, ...] = (
        "the soup was cold",
        "a quiet room",
        "front desk price",
        "lift",
        "4711 early day",
    )
    model: bool = False
    seeds: bool = True
    grouped: bool = field(default=False)

    def records(self, texts: tuple[str, ...] | None = None) -> Records:
        texts = texts or self.texts * 2
        groups = self.terms.groups
        rows = [
            Record(
                f"u{n}",
                self.terms.labels[n % 2] if self.terms.labels else None,
                text,
                groups[n % 2] if groups else None,
            )
            for n, text in enumerate(texts)
        ]
        labels = self.terms.labels or (None,)
        return Records(labels, tuple(rows), b"k" * 32, groups=groups, secrets=test_secpe.SECRETS)


GROUPED = Terms(groups=("north", "south"))
EVOLVING = {
    "embedding": "places",
    "writer": "words",
    "prompting": "plain",
    "samples": 4,
    "variations": 2,
}
EPSVEC = {"layers": "1-2", "noise_multiplier": 0.5, "shots": 1, "shots_noise_multiplier": 0.5}
EPSVEC |= {"candidates": 3, "partners": 2, "samples_per_label": 3, "samples": 3, "max_tokens": 8}
EPSVEC |= {"record_tokens": 12, "coefficient": 2.0, "stop": None, "sampling_rate": 0.5}
READ = {
    "record_tokens": 12,
    "template": "A review: {record}",
    "noise_multiplier": 0.3,
    "public_size": 20,
}
ADAPTED = {"adapter": "JOB", "soft_tokens": 3, "max_tokens": 4, "decodings": 2}


class Fresh(Words):
    """What it writes follows from its seed and its prompts."""

    def seeded(self, seed: int | None) -> "Fresh":
        return Fresh(seed, self.words)


def words(**more) -> Public:
    return writing(Fresh(words=("soup", "cold", "room", "quiet")), **more)


CASES = {
    "dp-kps": Case("dp-kps", {**test_dp_kps.SMALL, "noise": "laplace"}, public=test_dp_kps.public),
    "dp-kps texts": Case(
        "dp-kps",
        {
            **test_dp_kps.SMALL,
            "output": "texts",
            "writer": "w",
            "sketch": "fourier",
            "noise": "gaussian",
        },
        public=lambda: replace(test_dp_kps.public(), endpoints={"writer": Fresh()}),
    ),
    "aug-pe": Case(
        "aug-pe", {**EVOLVING, "epochs": 3, "lookahead": 1, "noise_multiplier": 1.0}, public=words
    ),
    "secpe": Case(
        "secpe",
        {
            **EVOLVING,
            **test_secpe.DECLARED,
            **{"iterations": 3, "recluster": True, "clusters": 2, "noise_multiplier": 2.0},
            "public_corpus": "toy",
        },
        public=lambda: words(public_corpus=test_secpe.Corpus(labels=LABELS)),
    ),
    "epsvec": Case("epsvec", EPSVEC, Terms(public_size=20, labels=LABELS), model=True),
    "epsvec without replacement": Case(
        "epsvec",
        {**EPSVEC, "sampling": "without-replacement", "sampling_rate": None},
        Terms("replace-one", public_size=10, labels=LABELS, label_sizes=(5, 5)),
        model=True,
    ),
    "summary-token": Case("summary-token", {**READ, "max_tokens": 4}, GROUPED, model=True),
    "summary-oneshot": Case("summary-oneshot", {**READ, **ADAPTED}, GROUPED, model=True),
}
SLOW = ("epsvec", "epsvec without replacement", "summary-token", "summary-oneshot")
EVERY = [case if case not in SLOW else pytest.param(case, marks=pytest.mark.slow) for case in CASES]


@pytest.fixture(scope="module")
def bundled():
    return models.load(MODEL_DIR, models.digest(MODEL_DIR))


@pytest.fixture(scope="module")
def adapter(bundled) -> Released:
    """An adapter of two steps."""
    raw = {"corpus": "c", "steps": 2, "set_size": 4, "target_tokens": 6, "batch_size": 2, "seed": 1}
    raw |= {"centre": False, "record_tokens": 12, "soft_tokens": 3, "template": READ["template"]}
    corpus = type(
        "Texts", (), {"texts": lambda _: ((f"Soup {n} was cold.", "ab"[n % 2]) for n in range(24))}
    )
    parameters = mechanisms.get("summary-adapter").parse(raw, Terms())
    made = summary_adapter.Runner().make(
        parameters, Terms(), bundled, Progress(2), Public({"corpus": corpus()})
    )
    trained = list(made)[-1]
    return Released(trained.name, trained.content)


@pytest.fixture
def attempt(request, monkeypatch):
    """Runs one attempt at a case: (what it made, meter, progress). Noise follows from what it is
    added to.
    """
    drawn: Counter = Counter()

    def noise(kind):
        def add(values, scale):
            drawn[kind] += 1
            return (
                values
                + (np.cumsum(np.abs(values.ravel())).reshape(values.shape) + drawn.total()) % 7
                - 3
            )

        return add

    monkeypatch.setattr("workers.noise.meter.gaussian_on_grid", noise("gaussian"))
    monkeypatch.setattr("workers.noise.meter.laplace_on_grid", noise("laplace"))
    tossed = count()
    monkeypatch.setattr(coins, "heads", lambda _: next(tossed) % 3 > 0)
    monkeypatch.setattr(coins, "places", lambda many, size: [next(tossed) % many, *range(1, size)])

    def run(name: str, store: Memory | None, texts=None, seed: int | None = 3):
        case = CASES[name]
        mechanism, running = mechanisms.get(case.mechanism), runner(case.mechanism)
        assert running.resumes
        public, model = case.public(), None
        if case.model:
            model = request.getfixturevalue("bundled")
        if case.mechanism == "summary-oneshot":
            public = Public(sources={"adapter": {"adapter": request.getfixturevalue("adapter")}})
        parameters = mechanism.parse({**case.raw, "seed": seed}, case.terms)
        price = mechanism.price(parameters, case.terms)
        secret = None if price.secret is None else SecretRelease.from_json(price.secret["release"])
        meter = Meter(price.dp or FREE, secret=secret, kept=KeptDraws(store))
        progress = Progress(running.total(parameters, case.terms))
        made = list(
            running.run(parameters, case.terms, case.records(texts), model, meter, progress, public)
        )
        meter.kept.keep()
        assert not meter.kept.left
        return (
            [each.content if isinstance(each, Artifact) else each for each in made],
            meter,
            progress,
        )

    run.drawn, run.tossed = drawn, tossed
    return run


def renewed(attempt) -> None:
    """Noise and coins of the next run are those of a first one."""
    attempt.drawn.clear()


@pytest.mark.parametrize("name", [each for each in EVERY if "without replacement" not in str(each)])
def test_stopped_behind_any_row_each_release_is_made_once_and_the_texts_are_those_of_one_run(
    attempt, name, monkeypatch
):
    """Also with a store that loses the row with which an attempt ends, as kill -9 may."""
    whole = Memory()
    monkeypatch.setattr(coins, "heads", lambda _: True)
    monkeypatch.setattr(coins, "places", lambda many, size: list(range(size)))
    expected, plain, progress = attempt(name, whole)
    releases = Counter(attempt.drawn)
    assert releases.total() >= 1
    quick = ((1, False), (2, False), (3, True), (5, True))
    for most, loses in quick if not CASES[name].model else ((3, False),):
        renewed(attempt)
        store = Cut(most, loses)
        for _ in range(100):
            store.left = store.most
            with suppress(Stopped):
                made, meter, told = attempt(name, store)
                break
        else:
            pytest.fail("it never ends")
        if not loses:
            assert attempt.drawn == releases
            assert made == expected
        assert meter.realized == plain.realized
        assert meter.secret_rounds == plain.secret_rounds
        assert told.done == progress.done == progress.total
        assert {key: len(each) for key, each in store.by_part.items()} == {
            key: len(each) for key, each in whole.by_part.items()
        }


@pytest.mark.parametrize("name", EVERY)
def test_what_was_released_is_not_computed_again(attempt, name):
    """The last attempt finds everything kept: it says the same with other records, coins and no
    noise.
    """
    store = Memory()
    expected, _, _ = attempt(name, store, seed=None)
    drawn, tossed = attempt.drawn.total(), next(attempt.tossed)
    other = tuple(f"4711 nothing like it {n}" for n in range(10))
    again, _, _ = attempt(name, store, other, seed=None)
    assert (attempt.drawn.total(), next(attempt.tossed)) == (drawn, tossed + 1)
    assert again == expected
