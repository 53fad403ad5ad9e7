"""One dataset, four tools, one allowance: the ledger beside dp-accounting's own composition."""

import random
import secrets
from collections import Counter
from typing import Any
from uuid import UUID, uuid4

import pytest
from dp_accounting import dp_event
from dp_accounting.pld import privacy_loss_distribution as pld
from sqlalchemy import Engine, text

from accountant.core.errors import Conflict, InvalidRequest
from accountant.core.ledger import runners
from accountant.core.ledger.allowances import Allowance
from accountant.core.ledger.export_formats import verify_lines
from accountant.core.privacy.events import Event, from_releases, releases, to_json
from accountant.core.privacy.foreign_events import read_event
from accountant.core.privacy.price import Neighbours
from accountant.queries import datasets, entries, integrity
from accountant.queries import jobs as job_queries
from accountant.transactions import (
    allowances,
    charges,
    leases,
    overdrafts,
    settlement,
    submission,
)
from accountant.transactions.job_requests import JobRequest
from accountant.transactions.settlement import Output
from tests.accountant.core.ledger.test_mixed_charges import GRID, divergence, losses
from tests.accountant.transactions.test_charges import POLICY, RUNNER, SEED
from tests.support import Bench, person, yes
from web.client.charges import as_event, dp_sgd, opendp

EPSILON, DELTA, ORDER = "3", "0.000001", "8"
#: What every charge here states of the dataset.
STATED = {"unit": "record", "relation": "add-remove", "records_per_unit": 1}


class Measurement:
    """What an OpenDP measurement says of itself."""

    def __init__(self, cost: Any, measure: str) -> None:
        self.cost, self.output_measure = cost, measure

    def map(self, d_in: int) -> Any:
        return self.cost * d_in if isinstance(self.cost, float) else self.cost


def tumult(**amounts: float) -> Any:
    """A budget of Tumult."""
    kind = type("Budget", (), {})
    kind.__module__ = "tmlt.analytics"
    budget = kind()
    vars(budget).update(amounts)
    return budget


class Ledger:
    """A dataset's ledger, and beside it every release that was really made."""

    def __init__(self, engine: Engine) -> None:
        caps = {"stated_charges_epsilon": "10000", "signed_charges_epsilon": "10000"}
        self.engine, self.bench = engine, Bench(engine, policy=POLICY | caps)
        self.second = person(engine, "steward")
        self.allow(float(EPSILON), ORDER)
        self.released: Counter[Event] = Counter()

    def allow(self, epsilon: float, order: str | None = None) -> None:
        self.epsilon = epsilon
        allowed = Allowance(f"{epsilon:.6f}", DELTA, "a test", order=order)
        allowances.allow(self.engine, self.bench.dataset, allowed, self.bench.steward)

    def shown(self) -> Any:
        return datasets.dataset(self.engine, self.bench.dataset, self.bench.steward)

    def parameters(self, form: Any, signed: bool) -> dict[str, Any]:
        raw = {**STATED, "event": as_event(form), "tool": "a tool"}
        if not signed:
            return raw
        raw |= {"runner": RUNNER, "image": "git 1", "nonce": str(uuid4())}
        return {**raw, "signature": runners.sign(runners.begin_act(self.bench.dataset, raw), SEED)}

    def ask(self, mechanism: str, raw: dict[str, Any]) -> UUID | None:
        """Ask for a job; returns None if it is refused."""
        request = JobRequest(self.bench.dataset, mechanism, None, raw, "a test")
        job = submission.submit(self.engine, request, self.bench.analyst)
        state = job_queries.job(self.engine, job, self.bench.analyst).state
        assert state in ("queued", "refused")
        return job if state == "queued" else None

    def made(self, event: Event) -> None:
        self.released.update(releases(event))

    def charge(self, form: Any, ends: str = "whole", part: random.Random | None = None) -> bool:
        """Charge a program's event, to one of the ends there are. Returns False if refused."""
        signed, event = ends == "part", read_event(as_event(form), Neighbours.ADD_REMOVE)
        job = self.ask("charge", self.parameters(form, signed))
        if job is None:
            return False
        who, secret, engine = self.bench.analyst, secrets.token_bytes(32), self.engine
        if ends == "void":
            settlement.cancel(engine, job, who)
            return True
        charges.begin(engine, job, who, secret, 60)
        if ends == "lost":
            with engine.begin() as connection:
                over = "UPDATE parts SET lease_expires = clock_timestamp() - interval '1 second'"
                connection.execute(text(f"{over} WHERE job_id = :job"), {"job": job})
            leases.expire(engine, 3)
        if signed:
            assert part is not None
            some = Counter({each: part.randint(1, n) for each, n in releases(event).items()})
            event = from_releases(some)
            history = to_json(event)
            act = runners.settle_act(self.bench.dataset, str(job), history, None)
            charges.settle(engine, job, who, secret, history, None, runners.sign(act, SEED))
        elif ends != "lost":
            charges.settle(engine, job, who, secret, None, None, None)
        self.made(event)
        return True

    def count(self, multiplier: float, noise: str) -> bool:
        """Run a job of this service. Returns False if refused."""
        raw = {"noise": noise, "noise_multiplier": multiplier, "epsilon": None}
        job = self.ask("noisy-count", raw)
        if job is None:
            return False
        claim = leases.claim(self.engine, job, 1, "worker", 60)
        assert claim is not None
        leases.begin_reading(self.engine, claim)
        event = read_event(
            job_queries.job(self.engine, job, self.bench.steward)["event"], Neighbours.ADD_REMOVE
        )
        settlement.publish(self.engine, claim, event, Output("draft", "a" * 64), "worker")
        self.made(event)
        return True

    def overdraw(self, form: Any, signed: bool) -> bool:
        """Declare what has happened; returns False if it fits, which is no overdraft."""
        raw = self.parameters(form, signed)
        try:
            job = overdrafts.declare(self.engine, self.bench.dataset, raw, self.bench.steward, "it")
        except InvalidRequest as error:
            assert "it fits what is left" in str(error)  # noqa: PT017
            return False
        yes(self.engine, job, self.second, "I saw its log")
        self.made(read_event(as_event(form), Neighbours.ADD_REMOVE))
        return True

    def cover(self) -> None:
        """Raise the allowance until it covers an overdraft."""
        while self.shown()["overdrawn"]:
            try:
                self.allow(self.epsilon * 1.25)
            except Conflict:
                self.epsilon *= 1.25

    def composed(self) -> Any:
        """All that was released, composed by dp-accounting alone."""
        total = None
        for event, count in self.released.items():
            one = losses(event, count)
            total = one if total is None else total.compose(one)
        return total or pld.identity()

    def check(self) -> None:
        """Check the ledger against what was released, where a statement holds."""
        account = self.shown()["account"]
        by_renyi = sum(count * divergence(event) for event, count in self.released.items())
        assert float(account["filters"][0]["spent"]) == pytest.approx(by_renyi, rel=1e-6)
        assert self.composed().get_delta_for_epsilon(self.epsilon) <= float(DELTA)


#: A form for each that `exchequer.charge` takes, by how much of it: 1, 2 or 4.
FORMS = {
    "opacus": lambda size: dp_sgd(q=0.02, sigma=2.0 / size**0.5, steps=3),
    "dp-accounting": lambda size: dp_event.SelfComposedDpEvent(
        dp_event.GaussianDpEvent(64.0 / size), 3
    ),
    "dp-accounting, composed": lambda size: dp_event.ComposedDpEvent(
        [
            dp_event.LaplaceDpEvent(64.0 / size),
            dp_event.PoissonSampledDpEvent(0.02, dp_event.GaussianDpEvent(2.0)),
        ]
    ),
    "its JSON": lambda size: {"class_name": "ZCDpEvent", "rho": 1e-4 * size, "xi": 0.0},
    "ours": lambda size: to_json(read_event({"rho": 1e-4 * size}, Neighbours.ADD_REMOVE)),
    "opendp": lambda size: opendp(Measurement(8 * size * GRID, "MaxDivergence"), 4),
    "opendp, zCDP": lambda size: opendp(Measurement(1e-4 * size, "ZeroConcentratedDivergence"), 1),
    "tumult": lambda size: tumult(epsilon=32 * size * GRID, delta=1e-10),
    "tumult, zCDP": lambda size: tumult(rho=1e-4 * size),
    "(ε, δ)": lambda size: (32 * size * GRID, 1e-10 * size),
}


def test_one_dataset_four_tools_and_one_allowance(engine):
    """Used up in turn by a job of this service, Opacus, OpenDP and (ε, δ) alone.

    The portfolio keeps more than three quarters of the rounds that exact composition would allow:
    what is chosen after results can't be composed by a whole distribution of losses.
    """
    ledger = Ledger(engine)
    tools = [
        lambda: ledger.count(8.0, "gaussian"),
        lambda: ledger.charge(dp_sgd(q=0.02, sigma=2.0, steps=24)),
        lambda: ledger.charge(FORMS["opendp"](8)),
        lambda: ledger.charge(FORMS["(ε, δ)"](8)),
    ]
    assert all(tool() for tool in tools)
    one, rounds = ledger.composed(), 1
    while all(tool() for tool in tools):
        rounds += 1
    ledger.check()
    more = one.self_compose(int(rounds / 0.75) + 1)
    assert more.get_delta_for_epsilon(float(EPSILON)) > float(DELTA)
    stated = ledger.shown()["statements"][0]["text"]
    assert stated.startswith(f"All releases together are ({EPSILON}, {DELTA})-differentially")
    assert "It rests on charges of other programs, by themselves ε" in stated
    assert integrity.check(engine, ledger.bench.dataset) == []


@pytest.mark.slow
@pytest.mark.parametrize("charges", [50, pytest.param(100, marks=pytest.mark.release)])
def test_no_order_of_charges_of_every_kind_passes_delta(engine, charges):
    """Charges in every form and at every level, that end in every way, are void, lost or over."""
    chance, ledger = random.Random("100 charges"), Ledger(engine)
    met: Counter[str] = Counter()
    forms = [*FORMS, "ours measured"]
    for number in range(charges):
        name, size = forms[number % len(forms)], chance.choice((1, 2, 4, 8))
        ends = chance.choice(("whole", "part", "void", "lost"))
        if name == "ours measured":
            noise = chance.choice(("laplace", "gaussian"))
            done, ends = ledger.count(64.0 / size, noise), noise
        else:
            done = ledger.charge(FORMS[name](size), ends, chance)
        met["refused" if not done else ends] += 1
        met[name] += done
        if not done and chance.random() < 0.5:
            met["over"] += ledger.overdraw((64 * size * GRID * 8, 0.0), chance.random() < 0.5)
            if chance.random() < 0.5:
                assert not ledger.charge(FORMS["opendp"](1)), "it is overdrawn"
            ledger.cover()
        if number % 50 == 49:
            ledger.check()
    ledger.check()
    assert all(met[name] for name in forms), met
    ends = ("whole", "part", "void", "lost", "refused", "over", "laplace", "gaussian")
    assert all(met[end] for end in ends), met
    assert integrity.check(engine, ledger.bench.dataset) == []
    exported = entries.export(engine, ledger.bench.dataset, ledger.bench.auditor, "jsonl")
    assert verify_lines(list(exported)).books.overdrawn is False
