"""The real ledger on PostgreSQL against an oracle in memory: any order of acts, the same outcome.

The oracle knows four sums and four limits. It computes costs and limits by the published formulas,
in floating point and without the service's code (tests/faults/checker.py), counts, and says
beforehand what each act must answer. Requests are drawn so that no sum lies within rounding of a
limit but exactly on one.
"""

import uuid
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import text

from accountant.core.errors import Conflict, LeaseLost, NotFound, NotPermitted
from accountant.core.ledger.allowances import Allowance
from accountant.core.ledger.export_formats import verify_lines
from accountant.core.privacy.events import from_json
from accountant.core.privacy.whole_jobs import whole_cost
from accountant.queries import entries, integrity
from accountant.transactions import allowances, leases, settlement, submission
from accountant.transactions.job_requests import JobRequest
from accountant.transactions.rows import Claim
from accountant.transactions.settlement import Output
from tests import support
from tests.faults.checker import Tally
from tests.support import Bench, person

AUTO = 0.3
DELTA = 1e-6
#: (noise, multiplier, whether the policy approves it by itself)
REQUESTS = {
    "large": ("laplace", 2.0, False),
    "middle": ("laplace", 4.0, True),
    "small": ("laplace", 8.0, True),
    "gaussian": ("gaussian", 4.0, False),
    "wide gaussian": ("gaussian", 40.0, True),
}
MOST_ATTEMPTS = 3


@dataclass
class Known:
    """The oracle's facts about a job."""

    request: str
    state: str
    attempt: int = 0
    read: bool = False
    claim: Claim | None = None
    flagged: bool = False
    old: list[Claim] = field(default_factory=list)


def in_state(*states: str):
    """A rule about one job in one of these states; it runs where there is one."""

    def decorate(function):
        @precondition(lambda self: self.picked(states))
        @rule(data=st.data())
        def act(self, data: st.DataObject) -> None:
            function(self, data, data.draw(st.sampled_from(self.picked(states))))

        act.__name__ = function.__name__
        return act

    return decorate


class Ledger(RuleBasedStateMachine):
    """Acts of a steward, two analysts, workers and the reaper on one dataset."""

    engine = None  # set by the test

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench(self.engine, policy={"auto_approve_epsilon": str(AUTO)})
        self.second = person(self.engine, "analyst")
        self.known: dict[uuid.UUID, Known] = {}
        self.keys: dict[tuple[str, str], tuple[str, uuid.UUID]] = {}
        self.tally = Tally()
        self.reserved, self.spent = 0, 0  # on the basic filter, pure jobs only: exact
        self._allow(1.0)

    # --- the oracle -----------------------------------------------------------------------------

    def picked(self, states: tuple[str, ...]) -> list[uuid.UUID]:
        return [job_id for job_id, job in self.known.items() if job.state in states]

    def _body(self, request: str) -> dict:
        """The event, with the delta that the service chooses for the job; what that costs is the
        oracle's.
        """
        noise, multiplier, _ = REQUESTS[request]
        event = {"type": noise, "noise_multiplier": multiplier}
        basic = self.filters[-1]
        _, delta = whole_cost(
            from_json(event), int(basic["step_delta"]), int(basic["whole_epsilon"])
        )
        return {"event": event, "costs": {"basic": {"delta": str(delta)}}}

    def _units(self, request: str) -> int:
        noise, multiplier, _ = REQUESTS[request]
        return round(1e9 / multiplier) if noise == "laplace" else 0

    def _fits(self, request: str) -> bool:
        self.tally.add(self._body(request), 1)
        fits = self.tally.holds()
        self.tally.add(self._body(request), -1)
        return fits

    def _reserve(self, job: Known) -> str:
        if not self._fits(job.request):
            return "refused"
        self.tally.add(self._body(job.request), 1)
        self.reserved += self._units(job.request)
        job.attempt = 1
        return "queued"

    def _resolve(self, job: Known, state: str, charged: bool) -> None:
        self.reserved -= self._units(job.request)
        if charged:
            self.spent += self._units(job.request)
        else:
            self.tally.add(self._body(job.request), -1)
        job.state, job.claim = state, None

    # --- people ---------------------------------------------------------------------------------

    def _allow(self, epsilon: float) -> None:
        allowance = Allowance(str(epsilon), "0.000001", "test")
        allowances.allow(self.bench.engine, self.bench.dataset, allowance, self.bench.steward)
        if not self.tally.filters:
            query = text(
                "SELECT document::json -> 'body' -> 'filters' FROM entries e JOIN datasets d "
                "ON d.id = e.dataset_id WHERE d.name = :name AND e.kind = 'ALLOW' ORDER BY seq "
                "LIMIT 1"
            )
            with self.bench.engine.connect() as connection:
                self.filters = connection.execute(query, {"name": self.bench.dataset}).scalar_one()
        self.tally.allow({"filters": self.filters, "epsilon": epsilon, "delta": DELTA})

    @rule(epsilon=st.sampled_from([0.25, 0.5, 1.0, 1.5, 2.0]))
    def allow(self, epsilon: float) -> None:
        """Up always; down to what is spent and reserved."""
        before = dict(self.tally.limits), self.tally.own_delta
        self.tally.allow({"filters": self.filters, "epsilon": epsilon, "delta": DELTA})
        possible = self.tally.holds()
        self.tally.limits, self.tally.own_delta = before
        if possible:
            self._allow(epsilon)
        else:
            with pytest.raises(Conflict):
                self._allow(epsilon)

    @rule(
        request=st.sampled_from(sorted(REQUESTS)),
        key=st.none() | st.sampled_from("abc"),
        second=st.booleans(),
    )
    def submit(self, request: str, key: str | None, second: bool) -> None:
        """Refused, waiting or queued; a key that was used answers as before, or is a conflict."""
        actor = self.second if second else self.bench.analyst
        noise, multiplier, automatic = REQUESTS[request]
        asked = JobRequest(
            self.bench.dataset,
            "noisy-count",
            None,
            {"noise": noise, "noise_multiplier": multiplier},
            "test",
        )
        earlier = self.keys.get((actor.name, key)) if key else None
        if earlier is not None and earlier[0] != request:
            with pytest.raises(Conflict):
                submission.submit(self.bench.engine, asked, actor, key)
            return
        job_id = submission.submit(self.bench.engine, asked, actor, key)
        if earlier is not None:
            assert job_id == earlier[1]
            return
        job = self.known[job_id] = Known(
            request, "awaiting_approval" if self._fits(request) else "refused"
        )
        if job.state == "awaiting_approval" and automatic:
            job.state = self._reserve(job)
        if key:
            self.keys[actor.name, key] = (request, job_id)

    @in_state("awaiting_approval", "queued", "succeeded")
    def decide(self, data: st.DataObject, job_id: uuid.UUID) -> None:
        """A steward says yes or no; yes may come too late to fit."""
        job, yes = self.known[job_id], data.draw(st.booleans())
        act = support.yes if yes else support.no
        if job.state != "awaiting_approval":
            with pytest.raises(Conflict):
                act(self.bench.engine, job_id, self.bench.steward, "test")
            return
        with pytest.raises((NotPermitted, NotFound)):  # nobody sees another analyst's job
            act(self.bench.engine, job_id, self.bench.analyst, "test")
        act(self.bench.engine, job_id, self.bench.steward, "test")
        job.state = self._reserve(job) if yes else "refused"

    @in_state("awaiting_approval", "queued", "running", "failed")
    def cancel(self, data: st.DataObject, job_id: uuid.UUID) -> None:
        job = self.known[job_id]
        if job.state in ("refused", "succeeded", "failed", "cancelled"):
            with pytest.raises(Conflict):
                settlement.cancel(self.bench.engine, job_id, self.bench.steward)
            return
        settlement.cancel(self.bench.engine, job_id, self.bench.steward)
        if job.state == "queued":
            self._resolve(job, "cancelled", charged=job.read)
        elif job.state == "awaiting_approval":
            job.state = "cancelled"
        else:
            job.flagged = True

    # --- workers and reaper ---------------------------------------------------------------------

    @in_state("queued", "running", "succeeded")
    def claim(self, data: st.DataObject, job_id: uuid.UUID) -> None:
        """Only the queued attempt can be taken; a message for another one does nothing."""
        job, late = self.known[job_id], data.draw(st.sampled_from([False, False, True]))
        attempt = job.attempt - 1 if late else job.attempt
        claim = leases.claim(self.bench.engine, job_id, attempt, "w", 3600)
        assert (claim is not None) == (job.state == "queued" and not late)
        if claim is not None:
            job.state, job.claim = "running", claim
            if data.draw(st.booleans()):
                leases.begin_reading(self.bench.engine, claim)
                job.read = True

    @in_state("running")
    def begin_reading(self, data: st.DataObject, job_id: uuid.UUID) -> None:
        job = self.known[job_id]
        leases.begin_reading(self.bench.engine, job.claim)
        job.read = True

    @in_state("running")
    def renew(self, data: st.DataObject, job_id: uuid.UUID) -> None:
        job = self.known[job_id]
        assert leases.renew(self.bench.engine, job.claim, 3600, 1, 3) == job.flagged

    def _publish(self, job_id: uuid.UUID, claim: Claim) -> None:
        event = from_json(self._body(self.known[job_id].request)["event"])
        settlement.publish(
            self.bench.engine, claim, event, Output(f"/{claim.token}", "0" * 64), "w"
        )

    @in_state("running")
    def publish(self, data: st.DataObject, job_id: uuid.UUID) -> None:
        job = self.known[job_id]
        if job.read:
            job.old.append(job.claim)
            self._publish(job_id, job.claim)
            self._resolve(job, "succeeded", charged=True)

    @in_state("running")
    def fail(self, data: st.DataObject, job_id: uuid.UUID) -> None:
        """Charged in whole after reading began, void before."""
        job, outcome = self.known[job_id], data.draw(st.sampled_from(["failed", "cancelled"]))
        job.old.append(job.claim)
        settlement.fail(self.bench.engine, job.claim, outcome, "test", "w")
        self._resolve(job, outcome, charged=job.read)

    @in_state("running")
    def expire(self, data: st.DataObject, job_id: uuid.UUID) -> None:
        """A lost lease refunds nothing; the attempts are counted."""
        job = self.known[job_id]
        with self.bench.engine.begin() as connection:
            query = text(
                "UPDATE parts SET lease_expires = clock_timestamp() - interval '1 s' WHERE job_id "
                "= :id"
            )
            connection.execute(query, {"id": job_id})
        leases.expire(self.bench.engine, MOST_ATTEMPTS)
        job.old.append(job.claim)
        if job.flagged:
            self._resolve(job, "cancelled", charged=job.read)
        elif job.attempt < MOST_ATTEMPTS:
            job.state, job.claim, job.attempt = "queued", None, job.attempt + 1
            if data.draw(st.booleans()):
                job.claim = leases.claim(self.bench.engine, job_id, job.attempt, "w", 3600)
                job.state = "running"
        else:
            self._resolve(job, "failed", charged=job.read)
        self._comes_late(job_id, job.old[-1])

    @precondition(lambda self: any(job.old for job in self.known.values()))
    @rule(data=st.data())
    def late_worker(self, data: st.DataObject) -> None:
        """After its lease is lost, a token does nothing in any state of the job."""
        late = [job_id for job_id, job in self.known.items() if job.old]
        running = [job_id for job_id in late if self.known[job_id].state == "running"]
        job_id = data.draw(st.sampled_from(running or late))
        self._comes_late(job_id, data.draw(st.sampled_from(self.known[job_id].old)))

    def _comes_late(self, job_id: uuid.UUID, claim: Claim) -> None:
        for act in (
            lambda: self._publish(job_id, claim),
            lambda: settlement.fail(self.bench.engine, claim, "failed", "late", "w"),
            lambda: leases.begin_reading(self.bench.engine, claim),
            lambda: leases.renew(self.bench.engine, claim, 3600, 1, 3),
        ):
            with pytest.raises(LeaseLost):
                act()

    # --- what must hold -------------------------------------------------------------------------

    @invariant()
    def nothing_is_overspent(self) -> None:
        assert self.tally.holds()

    @invariant()
    def balances_and_states_are_the_oracles(self) -> None:
        query = text(
            "SELECT a.* FROM accounts a JOIN datasets d ON d.id = a.dataset_id WHERE d.name = :name"
        )
        with self.bench.engine.connect() as connection:
            row = connection.execute(query, {"name": self.bench.dataset}).one()._mapping
            stored = connection.execute(
                text("SELECT id, state, attempt FROM jobs WHERE dataset_id = :id"),
                {"id": row["dataset_id"]},
            ).all()
        assert {(r.id, r.state, r.attempt) for r in stored} == {
            (job_id, job.state, job.attempt) for job_id, job in self.known.items()
        }
        for kind in ("renyi", "gaussian", "renyi2", "basic"):
            total = int(row[f"{kind}_reserved"] + row[f"{kind}_spent"]) / 1e9
            if kind != "basic":  # rounded up entry by entry there, summed in floating point here
                assert total == pytest.approx(self.tally.total[kind], rel=1e-6, abs=1e-6)
            # the service charges what is not pure by a bound, the oracle by the exact profile
            else:
                assert total >= self.tally.total[kind] - 1e-6
        if not self.tally.total["delta"]:
            assert (row["basic_reserved"], row["basic_spent"]) == (self.reserved, self.spent)

    def teardown(self) -> None:
        assert integrity.check(self.bench.engine, self.bench.dataset) == []
        verify_lines(
            entries.export(self.bench.engine, self.bench.dataset, self.bench.steward, "jsonl")
        )


@pytest.mark.slow
@pytest.mark.parametrize("orders", [5, pytest.param(25, marks=pytest.mark.release)])
def test_any_order_of_acts_leaves_what_the_oracle_says(engine, orders):
    Ledger.engine = engine
    run_state_machine_as_test(
        Ledger,
        settings=settings(
            max_examples=orders,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
