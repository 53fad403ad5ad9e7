"""Replay of requests, settlements, voids and corrections in any order: entries give the cached balances."""

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from accountant.core.errors import Conflict, ExchequerError
from accountant.core.ledger.export_formats import verify_lines
from accountant.core.privacy.events import SelfComposed, from_json, to_json
from accountant.queries import entries, integrity, jobs
from accountant.transactions import leases, proposals, settlement
from accountant.transactions.settlement import Output
from tests.support import Bench, commit_unread, person, without_rules

pytestmark = pytest.mark.slow

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["submit", "publish", "publish unread", "cancel", "correct", "nothing", "allow"]),
        st.integers(0, 5),
        st.integers(1, 400),
    ),
    min_size=4,
    max_size=14,
)


class Oracle:
    """The charge of each job in steps of one token: every value that an account's sum may take."""

    def __init__(self, engine) -> None:
        with without_rules():  # a ledger from before may hold charges of jobs that read nothing
            self.bench = Bench(engine, policy={"auto_approve_epsilon": "1000"})
        self.second = person(engine, "steward")
        self.bench.allow("10")
        self.bench.warm()
        self.engine = engine
        self.jobs: list = []
        self.charged: dict = {}
        self.read: dict = {}
        self.live: dict = {}

    def step(self, act: str, which: int, amount: int) -> None:
        if act == "submit":
            self.submit(amount % 40 + 2)  # one token alone is no composition
        elif act == "allow":
            self.allow(amount)
        elif which < len(self.jobs):
            self.on_job(act, self.jobs[which], amount)

    def submit(self, tokens: int) -> None:
        job_id = self.bench.submit(tokens)
        if jobs.job(self.engine, job_id, self.bench.steward)["state"] == "queued":
            self.jobs.append(job_id)
            self.live[job_id] = tokens

    def allow(self, amount: int) -> None:
        try:
            self.bench.allow(str(amount))
        except Conflict:
            assert self.charged or self.live

    def on_job(self, act: str, job_id, amount: int) -> None:
        event = from_json(jobs.job(self.engine, job_id, self.bench.steward)["event"]).event
        if job_id in self.live and act in ("publish", "publish unread"):
            self.publish(job_id, event, amount, act == "publish")
        elif job_id in self.live and act == "cancel":
            settlement.cancel(self.engine, job_id, self.bench.analyst)
            self.charged[job_id], self.read[job_id] = 0, False
            del self.live[job_id]
        elif job_id not in self.live and act in ("correct", "nothing"):
            self.correct(job_id, event, 0 if act == "nothing" else amount)

    def publish(self, job_id, event, amount: int, read: bool) -> None:
        spent = min(amount, self.live.pop(job_id))
        claim = leases.claim(self.engine, job_id, 1, "worker", 60)
        if read:
            leases.begin_reading(self.engine, claim)
            settlement.publish(
                self.engine, claim, SelfComposed(event, spent), Output("x", "0" * 64), "worker"
            )
        else:
            commit_unread(self.engine, claim, SelfComposed(event, spent))
        self.charged[job_id], self.read[job_id] = spent, read

    def correct(self, job_id, event, tokens: int) -> None:
        before = self.charged[job_id]
        after = max(before, tokens) if self.read[job_id] else tokens
        true = to_json(SelfComposed(event, tokens)) if tokens else None
        try:
            found = proposals.correct(self.engine, job_id, self.bench.steward, "why", event=true)
            proposals.confirm(self.engine, found, self.second, "seen")
        except ExchequerError:
            assert after == before
            return
        assert after != before
        self.charged[job_id] = after
        self.read[job_id] |= after > before

    def check(self) -> None:
        assert integrity.check(self.engine, self.bench.dataset) == []
        found = verify_lines(entries.export(self.engine, self.bench.dataset, self.bench.auditor, "jsonl"))
        account = found.books.account
        one = account.costs(self._token())
        for each in account.filters:
            cost = one[each.filter.kind].main
            assert abs(each.spent.main - cost * sum(self.charged.values())) <= len(self.charged) * cost
            assert abs(each.reserved.main - cost * sum(self.live.values())) <= len(self.live) * cost
        assert found.books.overdrawn == found.books.accounts.overdrawn
        assert found.books.history.jobs == len(self.live) + sum(1 for each in self.charged.values() if each)

    def _token(self):
        job_id = self.bench.submit(2)
        job = jobs.job(self.engine, job_id, self.bench.steward)
        if job["state"] == "queued":
            settlement.cancel(self.engine, job_id, self.bench.analyst)
        return from_json(job["event"]).event


@settings(
    max_examples=int(os.environ.get("EXCHEQUER_REPLAYS", "8")),
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(steps=STEPS)
def test_replaying_the_entries_gives_the_cached_balances(engine, steps):
    oracle = Oracle(engine)
    for act, which, amount in steps:
        oracle.step(act, which, amount)
    oracle.check()
