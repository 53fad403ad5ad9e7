"""The conformance kit: built-in mechanisms pass it, and each mistake is refused by name."""

import math
import sys
from dataclasses import replace
from fractions import Fraction
from importlib import import_module
from random import Random

import numpy as np
import pytest
from pydantic import Field

from accountant.core import mechanisms
from accountant.core.mechanisms.base import Mechanism, Parameters
from accountant.core.privacy.blowup import GroupSampling, Without
from accountant.core.privacy.events import FREE, Exponential, Gaussian, Laplace, SelfComposed
from accountant.core.privacy.price import Price
from accountant.core.privacy.secrets import SecretRelease
from tests.workers.conformance import kit as conformance
from tests.workers.conformance import samples
from tests.workers.conformance.metadata import Refused
from tests.workers.conformance.noting import Noting, compare_secret
from workers.interface import Artifact, Text

RUNNABLE = {name: each.runner for name, each in mechanisms.runnable().items()}
#: What each test changes before it conforms: `MECHANISM` and `Runner` of this module.
STEPS = 8


@pytest.mark.slow
@pytest.mark.parametrize("name", ["noisy-count", "evaluation", "vocabulary"])
def test_built_in_mechanisms_without_a_model_conform(name):
    conformance.conform(f"accountant.core.mechanisms.{name.replace('-', '_')}", trials=30)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", sorted(set(RUNNABLE) - {"noisy-count", "evaluation", "vocabulary"})
)
def test_built_in_mechanisms_with_a_model_conform(name):
    """A trial of epsvec, which reads each record in three ways, takes as long as those of all the
    others.
    """
    trials = 2 if name == "epsvec" else 5
    conformance.conform(f"accountant.core.mechanisms.{name.replace('-', '_')}", trials=trials)


# --- mistakes -----------------------------------------------------------------------------------


class Toy(Parameters):
    """Records of each label, with Laplace noise, and a letter drawn for each label."""

    multiplier: float = Field(1.0, ge=0.01, le=100, description="scale over sensitivity")
    letters: int = Field(2, ge=1, le=10, description="letters of each label")
    from_job: str | None = Field(None, min_length=1, max_length=100, description="an earlier job")


def price(parameters, terms):
    if parameters.from_job is not None:
        return Price(FREE, ("free",))
    far = terms.max_records_per_unit * (2 if terms.neighbours == "replace-one" else 1)
    draws = SelfComposed(Exponential(far / STEPS), parameters.letters)
    return Price(_both(Laplace(parameters.multiplier), draws), ("counts and letters",))


def _both(*events):
    from accountant.core.privacy.events import Composed

    return Composed(events)


MECHANISM = Mechanism(
    id="toy",
    title="Toy",
    summary="For tests.",
    source="none",
    parameters=Toy,
    price=price,
    resolve=lambda parameters, _: parameters,
    context_tokens=lambda *_: 0,
    size_field="multiplier",
    uses_model=False,
    runner=__name__,
    artifacts={"counts": "noisy counts"},
    batches=lambda _, terms: 1,
)


class Runner:
    """Counts records, then draws letters by how many records each label's batch holds."""

    def total(self, parameters, terms):
        return 1

    def run(self, parameters, terms, records, model, meter, progress, public):
        far = terms.max_records_per_unit * (2 if terms.neighbours == "replace-one" else 1)
        counts = np.array(
            [sum(r.label == label for r in records.records) for label in records.labels]
        )
        noisy = meter.laplace(counts, self.sensitivity(far), Laplace(parameters.multiplier))
        yield Artifact.of_json(self.name, "counts", noisy.tolist())
        for (label, number), texts in records.batches(1).items():
            scores = np.zeros(3, np.int64)
            scores[0] = self.score(texts)
            for _ in range(self.letters(parameters, texts)):
                event = Exponential(far / STEPS)
                letter = meter.parallel((label, number)).sample_token(scores, self.scale(), event)
                yield Text("abc"[letter], label)
        progress.advance(self.told(records))

    def reuse(self, parameters, terms, artifacts, model, progress, public):
        assert artifacts["counts"].json() is not None
        progress.advance()
        yield Text("again")

    name = "counts"

    def sensitivity(self, far):
        return far

    def score(self, texts):
        return len(texts)

    def letters(self, parameters, texts):
        return parameters.letters

    def scale(self):
        from fractions import Fraction

        return Fraction(1, STEPS)

    def told(self, records):
        return 1


@pytest.fixture
def own(monkeypatch):
    """This module's mechanism with a change; what it imports is no matter."""
    monkeypatch.setattr(conformance, "_check_files", lambda *_: None)

    def changed(**change):
        monkeypatch.setattr(sys.modules[__name__], "MECHANISM", replace(MECHANISM, **change))

    return changed


def test_the_toy_conforms(own):
    assert conformance.conform(__name__, trials=30) is MECHANISM


@pytest.mark.parametrize(
    ("method", "instead", "why"),
    [
        ("sensitivity", lambda _, far: far / 2, "laplace: one unit moves 2 times"),
        ("sensitivity", lambda _, far: far * 0.999, "laplace: one unit moves"),
        ("score", lambda _, texts: 2 * len(texts), "token: one unit moves scores"),
        ("score", lambda _, texts: len("".join(texts)), "token: one unit moves scores"),
        ("letters", lambda _, parameters, texts: parameters.letters - 1, "price: it is"),
        ("letters", lambda _, parameters, texts: parameters.letters + 1, "price: the run asks"),
        (
            "letters",
            lambda _, parameters, texts: min(len(texts), parameters.letters),
            "price: it is|numbers|another release",
        ),
        (
            "scale",
            lambda _: __import__("fractions").Fraction(1, STEPS - 1),
            "token: one unit moves scores",
        ),
        ("told", lambda _, records: len(records.records), "progress: "),
        ("name", "others", "artifacts: "),
        ("reuse", lambda *_: iter(()), r"Runner.reuse: it takes \['_'\]"),
        ("score", lambda _, texts: 1 / 0, "run: ZeroDivisionError"),
    ],
)
def test_a_runner_that_does_other_than_it_says_is_refused(own, monkeypatch, method, instead, why):
    monkeypatch.setattr(Runner, method, instead)
    with pytest.raises(Refused, match=why):
        conformance.conform(__name__, trials=30)


def test_noise_by_another_event_than_the_price_is_refused(own):
    own(price=lambda p, t: replace(price(p, t), dp=_both(Laplace(p.multiplier * 2))))
    with pytest.raises(Refused, match="price: the run asks"):
        conformance.conform(__name__)
    own(price=lambda p, t: Price(_both(price(p, t).dp, Gaussian(1.0)), ("more",)))
    with pytest.raises(Refused, match="price: it is"):
        conformance.conform(__name__)


def test_a_job_over_artifacts_that_is_not_free_is_refused(own):
    own(price=lambda p, t: price(p.model_copy(update={"from_job": None}), t))
    with pytest.raises(Refused, match="reads artifacts alone must be free"):
        conformance.conform(__name__)


def test_batches_that_two_workers_would_release_twice_are_refused(own):
    own(batches=lambda *_: 2)
    # the counts are one release from all the data
    with pytest.raises(Refused, match="price: the run asks"):
        conformance.conform(__name__)


def _partial(parameters, _):
    return parameters if parameters.multiplier < 100 else 1 / 0


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"title": " "}, "title: it is empty"),
        ({"summary": ""}, "summary: it is empty"),
        ({"source": ""}, "source: it is empty"),
        ({"id": "Toy"}, "id: "),
        ({"size_field": "size"}, "size_field: "),
        ({"groups": {"A": "size"}}, "groups: "),
        ({"runner": None}, "runner: it has none"),
        ({"resolve": _partial}, "parse: ZeroDivisionError"),
        ({"price": lambda p, _: Price(Laplace(math.log(p.multiplier)), ("x",))}, "price: "),
        ({"price": lambda p, _: Price(Laplace(p.multiplier))}, "price: AssertionError"),
        ({"price": lambda p, _: Price(FREE, ("free",))}, "reads records and costs nothing"),
        ({"reads_output": True}, "it must be free"),
    ],
)
def test_metadata_and_prices_that_nobody_can_use_are_refused(own, change, why):
    own(**change)
    with pytest.raises(Refused, match=why):
        conformance.conform(__name__)


def test_fields_without_description_or_bounds_are_refused(own):
    class Silent(Toy):
        more: int = Field(1, ge=1, le=2)

    class Open(Toy):
        more: int = Field(1, ge=1, description="a number")

    for kind, why in (
        (Silent, "more: it has no description"),
        (Open, "more: a number needs bounds"),
    ):
        own(parameters=kind)
        with pytest.raises(Refused, match=why):
            conformance.conform(__name__)


# --- the secret currency ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("without", "counts", "centre", "far"),
    [
        (Without.REMOVED, [1, 0], 10, None),
        (Without.REMOVED, [2, 0], 0, "1.41421"),
        (Without.REMOVED, [1, 0], 11, "1.05"),
        (Without.REDACTED, [1, -1], 14, None),
        (Without.REDACTED, [1, -1], 15, "1.03"),
        (Without.REDACTED, [2, -1], 0, "1.11"),
    ],
)
def test_records_with_a_secret_may_move_a_round_as_far_as_the_price_assumes(
    without, counts, centre, far
):
    """Counts and a centre, in units of one record's move: sqrt(2) of it where removed, 2 where
    redacted.
    """
    group = GroupSampling(3, 1.0, without)
    stated = SecretRelease(3, 1.0, without, 2.0, 1)
    price = Price(
        None, ("secret",), secret={"release": stated.to_json(), "prior": 0.1, "bound": 0.5}
    )
    moves = [Fraction(10), Fraction(3)]
    one = Noting(price)
    one.secret(np.array([5, 6]), np.zeros((2, 2), np.int64), moves, stated)
    two = Noting(price, one)
    two.secret(np.array([5, 6]) - counts, np.array([[centre, 0], [0, 0]]), moves, stated)
    if far is None:
        compare_secret(one, two, group, 1)
    else:
        with pytest.raises(Refused, match=f"secret: 1 records move a round {far}"):
            compare_secret(one, two, group, 1)
    compare_secret(one, two, group, 2)
    declared = Noting(price, one)
    with pytest.raises(Refused, match="secret: a neighbour makes another release in its place"):
        declared.secret(
            np.array([5, 6]), np.zeros((2, 2), np.int64), [Fraction(11), Fraction(3)], stated
        )


def test_a_secret_price_must_be_taken_whole_and_alone(monkeypatch):
    secpe = mechanisms.get("secpe")
    running = import_module(secpe.runner).Runner()
    small = {"iterations": 1, "samples": 1, "variations": 0, "max_tokens": 2, "record_tokens": 8}
    terms, raw = samples.terms(Random(0)), {**secpe.example, **small}
    terms = replace(terms, max_records_per_unit=1)
    parsed = secpe.parse(raw, terms)
    price = secpe.price(parsed, terms)
    more = replace(
        price, secret=price.secret | {"release": price.secret["release"] | {"rounds": 2}}
    )
    trial = (replace(secpe, price=lambda *_: more), running, terms, raw, parsed, Random(1), False)
    with pytest.raises(Refused, match="price: it is 2 rounds, the run made 1"):
        conformance._try(*trial)
    both = replace(secpe, price=lambda *_: replace(price, dp=FREE))
    with pytest.raises(Refused, match="price: one in secrets has no other part"):
        conformance._try(both, *trial[1:])
