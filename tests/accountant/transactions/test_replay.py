"""Replay of requests, settlements, voids and corrections in any order: entries give the cached
balances.
"""

from dataclasses import astuple, dataclass

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from accountant.core.errors import Conflict, ExchequerError
from accountant.core.ledger.export_formats import verify_lines
from accountant.core.privacy.events import FREE, SelfComposed, from_json, to_json
from accountant.core.privacy.filters import ZERO, Amount
from accountant.core.privacy.units import DELTA_UNITS, EPSILON_UNITS, to_decimal
from accountant.core.privacy.whole_jobs import whole_cost
from accountant.queries import entries, integrity, jobs
from accountant.transactions import corrections, leases, settlement
from accountant.transactions.locked_account import LockedAccount
from accountant.transactions.settlement import Output
from tests.support import Bench, person, yes

pytestmark = pytest.mark.slow

ALL_DELTA = 2_905_300_000_000_000  # 0.0000029053, in units

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["submit", "publish", "cancel", "correct", "nothing", "allow"]),
        st.integers(0, 5),
        st.integers(1, 30) | st.integers(1, 400),
    ),
    min_size=4,
    max_size=14,
)


@dataclass(frozen=True)
class Charge:
    """The charge of a job: in tokens, whose prices add up, and as a whole job on the basic filter.

    `tokens` is None where the job took the account for whole jobs and closed the other filters.
    `closes`: it closed the basic filter, half of whose delta is kept.
    """

    tokens: int | None = 0
    basic: Amount = ZERO
    closes: bool = False

    def with_larger(self, other: "Charge") -> "Charge":
        one = (
            None if self.tokens is None or other.tokens is None else max(self.tokens, other.tokens)
        )
        if self.closes or other.closes:
            return Charge(one, ZERO, True)
        main, delta = (
            max(pair) for pair in zip(astuple(self.basic), astuple(other.basic), strict=True)
        )
        return Charge(one, Amount(main, delta))


#: Prices with a delta, of which an early stop returns nothing, and one without.
STOPS = [
    ("submit", 0, 38),
    ("publish", 0, 10),
    ("submit", 0, 5),
    ("correct", 1, 5),
    ("correct", 0, 30),
]
#: A first job that takes the account: it is read, or cancelled and then corrected.
TAKES_ALL = [
    ("allow", 0, 2),
    ("submit", 0, 20),
    ("publish", 0, 5),
    ("submit", 0, 3),
    ("correct", 0, 10),
]
TAKES_AND_LEAVES = [
    ("allow", 0, 2),
    ("submit", 0, 20),
    ("cancel", 0, 1),
    ("submit", 0, 8),
    ("correct", 0, 4),
]


class Oracle:
    """The charge of each job, followed act by act: what an account's sums have to come to."""

    def __init__(self, engine) -> None:
        self.bench = Bench(engine, policy={"auto_approve_epsilon": "1000"})
        self.second = person(engine, "steward")
        self.engine = engine
        self.jobs: list = []
        self.charged: dict = {}
        self.read: dict = {}
        self.live: dict = {}
        self.allow(10)
        self.bench.warm()
        with engine.connect() as connection:
            *_, basic = LockedAccount(connection, self.bench.dataset).accounts.dp.filters
        self.basic = basic.filter

    def step(self, act: str, which: int, amount: int) -> None:
        if act == "submit":
            self.submit(amount % 40 + 2)  # one token alone is no composition
        elif act == "allow":
            self.allow(amount)
        elif self.jobs:
            self.on_job(act, self.jobs[which % len(self.jobs)], amount)

    def submit(self, tokens: int) -> None:
        job_id = self.bench.submit(tokens)
        job = jobs.job(self.engine, job_id, self.bench.steward)
        if job["state"] != "queued":
            return
        self.jobs.append(job_id)
        event = from_json(job["event"])
        with self.engine.connect() as connection:
            locked = LockedAccount(connection, self.bench.dataset)
            held = locked.reservation(job_id)
            after = locked.accounts.dp.filters[-1]
        takes_all = "whole" in held
        if not takes_all and held["costs"]["basic"] is None:
            whole = self.basic.cost(event)
            assert after.used.delta + whole.delta > after.limit.delta // 2
            self.live[job_id] = Charge(tokens, ZERO, True)
        elif takes_all:
            self.live[job_id] = Charge(None, Amount(*whole_cost(event, ALL_DELTA, self.epsilon)))
        else:
            self.live[job_id] = self.price(event.event, tokens)

    def price(self, token, tokens: int) -> Charge:
        """The price of so many tokens; on the basic filter, of a whole job with so many."""
        return Charge(tokens, self.basic.cost(SelfComposed(token, tokens))) if tokens else Charge()

    def allow(self, amount: int) -> None:
        try:
            self.bench.allow(str(amount), to_decimal(ALL_DELTA, DELTA_UNITS))
        except Conflict:
            assert self.charged or self.live
        else:
            self.epsilon = amount * EPSILON_UNITS

    def on_job(self, act: str, job_id, amount: int) -> None:
        job = from_json(jobs.job(self.engine, job_id, self.bench.steward)["event"])
        if job_id in self.live and act == "publish":
            self.publish(job_id, job.event, min(amount, job.count))
        elif job_id in self.live and act == "cancel":
            settlement.cancel(self.engine, job_id, self.bench.analyst)
            self.charged[job_id], self.read[job_id] = Charge(), False
            del self.live[job_id]
        elif job_id not in self.live and act in ("correct", "nothing"):
            self.correct(job_id, job.event, 0 if act == "nothing" else amount)

    def publish(self, job_id, token, spent: int) -> None:
        held, part = self.live.pop(job_id), self.price(token, spent)
        claim = leases.claim(self.engine, job_id, 1, "worker", 60)
        leases.begin_reading(self.engine, claim)
        settlement.publish(
            self.engine, claim, SelfComposed(token, spent), Output("x", "0" * 64), "worker"
        )
        tokens = None if held.tokens is None else spent
        # of a price with a delta nothing returns
        whole = held.closes or held.basic.delta or part.basic.delta
        self.charged[job_id] = Charge(tokens, held.basic if whole else part.basic, held.closes)
        self.read[job_id] = True

    def correct(self, job_id, token, tokens: int) -> None:
        before, after = self.charged[job_id], self.price(token, tokens)
        if self.read[job_id] or before.tokens is None:
            after = before.with_larger(after)
        true = to_json(SelfComposed(token, tokens) if tokens else FREE)
        try:
            found = corrections.correct(self.engine, job_id, self.bench.steward, "why", event=true)
            yes(self.engine, found, self.second, "seen")
        except ExchequerError:
            assert after == before
            return
        assert after != before
        self.charged[job_id] = after
        self.read[job_id] |= before.with_larger(after) != before

    def check(self) -> None:
        assert integrity.check(self.engine, self.bench.dataset) == []
        found = verify_lines(
            entries.export(self.engine, self.bench.dataset, self.bench.auditor, "jsonl")
        )
        *additive, basic = found.books.account.filters
        one = found.books.account.costs(self._token())
        for charges, part in ((self.charged, "spent"), (self.live, "reserved")):
            counted = sum(each.tokens or 0 for each in charges.values())
            for each in additive:
                # A job's sum is rounded up once, and a token's price here each time.
                over = one[each.filter.kind].main * counted - getattr(each, part).main
                assert 0 <= over <= counted
            assert getattr(basic, part) == sum((each.basic for each in charges.values()), ZERO)
        every = [*self.charged.values(), *self.live.values()]
        if any(each.tokens is None for each in every):
            assert all(each.closed for each in additive)
        assert basic.closed == sum(each.closes for each in every)
        assert found.books.overdrawn == found.books.accounts.overdrawn
        assert found.books.history.jobs == sum(1 for each in every if each != Charge())

    def _token(self):
        job_id = self.bench.submit(2)
        job = jobs.job(self.engine, job_id, self.bench.steward)
        if job["state"] == "queued":
            settlement.cancel(self.engine, job_id, self.bench.analyst)
        return from_json(job["event"]).event


# On a database of its own server each example is slow: shrinking a failure took minutes.
REPLAYS = settings(
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def replay(engine, steps):
    oracle = Oracle(engine)
    for act, which, amount in steps:
        oracle.step(act, which, amount)
    oracle.check()


@settings(REPLAYS, max_examples=4)
@given(steps=STEPS)
@example(steps=STOPS)
@example(steps=TAKES_ALL)
@example(steps=TAKES_AND_LEAVES)
def test_replaying_the_entries_gives_the_cached_balances(engine, steps):
    replay(engine, steps)


@pytest.mark.release
@settings(REPLAYS, max_examples=40)
@given(steps=STEPS)
def test_replaying_many_ledgers_gives_the_cached_balances(engine, steps):
    replay(engine, steps)
