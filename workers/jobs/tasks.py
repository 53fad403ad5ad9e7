"""The tasks that run a job: claim an attempt, run it, settle it. What is looked at before is in
checks.py.

While a worker reads private data, only public progress may leave it, and at the end the output. An
error raised while private data is read is shown to nobody outside, so its text is discarded.
"""

import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar
from uuid import UUID

import structlog
from billiard.exceptions import SoftTimeLimitExceeded  # type: ignore[import-untyped]

from accountant import logs, settings
from accountant.core import mechanisms
from accountant.core.errors import (
    Cancelled,
    DataError,
    Drained,
    ExchequerError,
    KeyMismatch,
    LeaseLost,
    LedgerBehind,
    LogUnusable,
    TimeLimit,
    Unwritable,
    VerificationFailed,
)
from accountant.core.ledger.accounts import demand
from accountant.core.ledger.orders import Order, price_of
from accountant.core.mechanisms.base import Mechanism
from accountant.core.privacy.events import FREE, from_json
from accountant.core.privacy.price import Terms
from accountant.core.privacy.secret_batches import has_secret_batches
from accountant.core.secret_patterns import Secrets
from accountant.database import UNAVAILABLE, Engine
from accountant.faults import reached
from accountant.transactions import leases, messages, registrations, settlement
from accountant.transactions.rows import Claim
from workers import interruption, models
from workers.data import addresses, manifest, records
from workers.data.records import NO_SECRETS
from workers.generation.writer import WriterError
from workers.interface import Checker, Maker, Preparer, Progress, Public, Resumer, Reuser
from workers.jobs import artifacts as stored
from workers.jobs import job_inputs, results_watch, staging
from workers.jobs.app import app
from workers.jobs.child_watch import lease_secret, process_name
from workers.jobs.heartbeat import Heartbeat
from workers.jobs.journal import Journal
from workers.noise.kept_draws import KeptDraws
from workers.noise.meter import Meter

log = structlog.get_logger()
T = TypeVar("T")


def _worker_name() -> str:
    return f"worker@{socket.gethostname()}"


# --- generation ---------------------------------------------------------------------------------

RETRY_SECONDS = 1.0
#: Bytes of an output for which there has to be room, for each step of the public progress.
STEP_BYTES = 16


@app.task(name="exchequer.generate", bind=True)
def generate(self: Any, job_id: str, attempt: int, part: int = 0) -> None:
    """Run one attempt at one part of a job, if it can still be claimed."""
    _take(self.request.id, job_id, attempt, part)


@app.task(name="exchequer.free", bind=True)
def free(self: Any, job_id: str, attempt: int, part: int = 0) -> None:
    """The same for a job that reads no records: a queue of its own."""
    _take(self.request.id, job_id, attempt, part)


def _take(message: str, job_id: str, attempt: int, part: int) -> None:
    configured, engine = settings.load(), job_inputs.engine()
    reached("worker.received")
    if results_watch.is_stopped():  # it stays queued, and is sent again
        log.warning("job not taken: results can't be written", job=job_id, part=part)
        return
    worker = process_name(os.getppid(), message)
    units, secret = configured.secret("units"), lease_secret(job_id, attempt, part)
    seconds = configured.lease_seconds
    try:
        claim = leases.claim(engine, UUID(job_id), attempt, worker, seconds, part, units, secret)
    except VerificationFailed as error:  # no worker can take it
        log.error("job set aside", job=job_id, part=part, error=str(error))
        messages.refuse(engine, UUID(job_id), part)
        return
    except (KeyMismatch, LedgerBehind, LogUnusable) as error:  # it stays queued, and is sent again
        log.error("job not taken", job=job_id, part=part, error=str(error))
        return
    if claim is not None:
        reached("worker.claimed")
        assert claim.order is not None  # who claims a job has read its entries
        facts = {"job": job_id, "part": str(part), "attempt": str(attempt)}
        with logs.about(dataset=claim.order.dataset, **facts):
            log.info("attempt begins", mechanism=claim.order.mechanism)
            run(engine, claim, configured)


def run(engine: Engine, claim: Claim, configured: settings.Settings) -> None:
    """Run a claimed attempt until it ends in any way, and destroy what it leaves unpublished."""
    order, progress = claim.order, Progress(total=0)
    assert order is not None
    policy = order.policy
    limit = min(policy.time_limit_seconds or configured.attempt_seconds, configured.attempt_seconds)
    each, slot = policy.charge_each_attempt, policy.results_every_seconds
    with Heartbeat(engine, claim, configured.lease_seconds, limit, progress, each) as heartbeat:
        progress.check = heartbeat.check
        drafts = staging.Drafts.of(configured)
        attempt = _Attempt(
            engine, claim, order, configured, heartbeat, progress, each, slot, drafts=drafts
        )
        failed: Exception | None = None
        try:
            with interruption.watching(attempt.look):
                attempt.execute()
        except LeaseLost:
            log.warning("lease lost", job=str(claim.job_id), attempt=claim.attempt, part=claim.part)
        except Exception as error:
            failed = error
        # out of the handler: whatever is raised now would carry it into a log
        if failed is not None:
            attempt.end(failed)
    try:
        staging.tidy(engine, drafts.results, claim.job_id, drafts)
    except (*UNAVAILABLE, OSError) as error:  # the relay's look finds them
        log.warning("leftovers stay for now", job=str(claim.job_id), error=type(error).__name__)


def unread(error: Exception) -> str:
    """Return why a job failed before any data was read: all that was used till then is public."""
    from workers.engine import is_out_of_memory

    if isinstance(error, ExchequerError):
        return str(error)
    if is_out_of_memory(error):
        return "the worker's memory is too small for the job: it failed before any data was read"
    if isinstance(error, SoftTimeLimitExceeded):
        return "it passed its time limit before any data was read"
    what = "a file or an address can't be read" if isinstance(error, OSError) else "it failed"
    # A library's text may hold paths, which are the stewards' alone: the log has it.
    return f"{what} ({type(error).__name__}), before any data was read"


@dataclass
class _Attempt:
    """One claimed attempt at one part."""

    engine: Engine
    claim: Claim
    order: Order
    configured: settings.Settings
    heartbeat: Heartbeat
    progress: Progress
    charged_each: bool = False
    slot: int | None = None
    reading: bool = False
    drafts: staging.Drafts = field(kw_only=True)
    kept: KeptDraws = field(default_factory=KeptDraws)

    def look(self) -> None:
        """Before a pass: keep what was drawn, then raise if the run must end."""
        self.kept.keep()
        self.heartbeat.check()

    def execute(self) -> None:
        """Load the model, read, run, and settle the job unless other parts still run."""
        from workers.mechanisms import runner

        order = self.order
        terms = Terms.from_json(order.terms)
        mechanism = mechanisms.get(order.mechanism)
        parameters = mechanism.parse(order.parameters, terms)
        running = runner(order.mechanism)
        model = None if order.model is None else job_inputs.language_model(self.engine, order.model)
        price = price_of(order.mechanism, order.parameters, order.terms)
        resumes = isinstance(running, Resumer) and running.resumes
        if resumes and order.reads_records and self.claim.key is not None:
            self.kept = KeptDraws(Journal(self.engine, self.claim, self._write))
        secret = demand(price).secret
        shared = self.order.parts > 1
        meter = Meter(from_json(self.order.event), price.ex_post_draws, shared, secret, self.kept)
        self.progress.total = running.total(parameters, terms)
        gridded = self.slot is not None and order.reads_records
        self.progress.silent = gridded or has_secret_batches(price.dp or FREE)
        self.progress.check()
        public = job_inputs.public_things(self.engine, order, mechanism, self.progress.check)
        output = self._staged(mechanism, running, parameters, terms, model, meter, public)
        results_watch.worked()
        if output.artifacts and order.parts > 1:
            raise ValueError("a job that several workers share releases texts, not artifacts")
        unknown = {artifact.kind for artifact in output.artifacts} - set(mechanism.releases)
        if unknown:
            raise ValueError(
                f"{mechanism.id} does not say that it releases {', '.join(sorted(unknown))}"
            )
        self.kept.keep()
        if self.kept.left:
            raise ValueError("an earlier attempt kept draws that this one has no place for")
        reached("worker.staged")
        self._settle(meter, output)

    def _staged(
        self,
        mechanism: Mechanism[Any],
        running: Any,
        parameters: Any,
        terms: Terms,
        model: models.LocalModel | None,
        meter: Meter,
        public: Public,
    ) -> settlement.Output:
        """Run the mechanism and stage its output. Only jobs that read records can open any."""
        order, progress, register = self.order, self.progress, self.order.register
        drafts, claim = self.drafts, self.claim
        room = max(results_watch.LEAST_BYTES, STEP_BYTES * progress.total)
        if register is not None:
            if mechanism.public:
                raise DataError(
                    f"{mechanism.id} reads public things only: this job opens no dataset"
                )
            if public.endpoints:  # what leaves before publication would tell what was read
                raise WriterError("a job that reads records asks no endpoint")
            if isinstance(running, Checker):
                running.check(parameters, terms, public)
            if isinstance(running, Preparer):
                running.prepare(parameters, terms, model, (self.claim.part, order.parts))
            return stored.write(
                drafts,
                claim,
                room,
                lambda: running.run(
                    parameters, terms, self._records(register), model, meter, progress, public
                ),
            )
        # Nothing private is opened: no reading begins, and a failure is void.
        with records.only(()):  # corpora were read already
            if mechanism.public:
                assert isinstance(running, Maker)
                return stored.write(
                    drafts,
                    claim,
                    room,
                    lambda: running.make(parameters, terms, model, progress, public),
                )
            assert isinstance(running, Reuser)
            released = {}
            if not mechanism.reads_output:
                released = stored.read(drafts.results, order.source["artifacts"])
            return stored.write(
                drafts,
                claim,
                room,
                lambda: running.reuse(parameters, terms, released, model, progress, public),
            )

    def _records(self, register: Mapping[str, Any]) -> records.Records:
        """Fetch the bytes that were registered, commit "reading begins", and read this part's share
        of them.

        Bytes that are not those of the REGISTER end the job before any is looked at.
        """
        if self.claim.key is None:
            raise DataError("the job's key is gone, so nobody knows in which batches its units lie")
        layout = job_inputs.layout_of(register, self._secrets(register["layout"]["secrets"]))
        address = records.check_address(register["layout"]["uri"], self.configured.data_root_list)
        addresses.check_reachable(address)
        held = manifest.fetch(address, register["data"])
        reached("worker.before reading")
        self._write(lambda: leases.begin_reading(self.engine, self.claim))
        self.reading = True
        log.info("reading begins")
        claim = self.claim
        facts = {
            "job": claim.job_id,
            "part": claim.part,
            "attempt": claim.attempt,
            "token": claim.token,
        }
        reached("worker.opens data", **facts)
        data = records.read(held, layout, self.claim.key)
        return replace(data, share=(self.claim.part, self.order.parts))

    def _secrets(self, sha256: str | None) -> Secrets:
        """Return the patterns and words of secrets that the REGISTER states by their hash."""
        if sha256 is None:
            return NO_SECRETS
        return Secrets(*registrations.secrets_of(self.engine, self.order.dataset, sha256))

    def _settle(self, meter: Meter, output: settlement.Output) -> None:
        """Hand in this part's share; the last part publishes the whole and settles the job."""
        self._await_slot()
        engine, claim, seconds = self.engine, self.claim, self.configured.lease_seconds
        done, total = self.progress.told, self.progress.total
        self._write(lambda: leases.renew(engine, claim, seconds, done, total))
        cost, curve = (
            (meter.realized_ex_post, meter.ex_post_curve) if meter.has_ex_post else (None, None)
        )
        outputs = self._write(
            lambda: leases.finish(engine, claim, meter.realized, output, cost, curve)
        )
        log.info("part handed in")  # at the time at which its end may be seen
        if outputs is None:
            return
        whole = self._write(
            lambda: staging.joined(self.drafts, staging.name_of(claim, "all"), outputs)
        )
        reached("worker.finished")
        self._write(
            lambda: settlement.publish(
                engine,
                claim,
                meter.realized,
                whole,
                _worker_name(),
                ex_post=cost,
                curve=curve,
                secret_rounds=meter.secret_rounds,
            )
        )
        try:
            reached("worker.committed")
            self.drafts.publish(whole.draft, whole.sha256)
            for artifact in whole.artifacts:
                self.drafts.publish(artifact.draft, artifact.sha256)
        except OSError as error:  # the next look publishes it
            log.error(
                "an output waits to be published", job=str(claim.job_id), error=type(error).__name__
            )
        reached("worker.published")
        log.info("job succeeded")

    def _await_slot(self) -> None:
        """Wait until the time at which this job's end may be seen: its own duration depends on the
        data.

        The worker is kept so long, or the next job's start would tell what this one's end does not.
        """
        # once: what it meets there, as a cancellation, is told there
        slot, self.slot = self.slot, None
        if slot is not None and self.reading:
            job_id = self.claim.job_id
            self.heartbeat.wait(
                self._write(lambda: leases.seconds_to_slot(self.engine, job_id, slot))
            )

    def end(self, error: Exception) -> None:
        """Settle a failed attempt or hand it back, its cause discarded if reading had begun."""
        if not self._goes_on(error):
            try:
                self._await_slot()
            # as if it had not failed yet: that it did is not told before its time
            except Drained as drained:
                error = drained
            except LeaseLost:
                log.warning("lease lost while waiting to fail", job=str(self.claim.job_id))
                return
        if self._goes_on(error):
            try:
                self.kept.keep()
                planned, most = (
                    isinstance(error, Drained | Unwritable),
                    self.configured.max_attempts,
                )
                if isinstance(error, Unwritable):
                    worker = results_watch.name(os.getppid())
                    self._write(lambda: results_watch.failed(self.engine, worker, str(error)))
                self._write(lambda: leases.hand_back(self.engine, self.claim, most, planned))
                log.info("attempt handed back")
            except LeaseLost:
                log.warning("lease lost while handing back", job=str(self.claim.job_id))
            return
        outcome, reason = "failed", ""  # while data was read, settlement says all that may be said
        if isinstance(error, Cancelled):
            outcome, reason = "cancelled", "cancelled while it ran"
        elif not self.reading:
            reason = unread(error)
            log.error("job failed before reading", job=str(self.claim.job_id), error=repr(error))
        try:
            self._write(
                lambda: settlement.fail(self.engine, self.claim, outcome, reason, _worker_name())
            )
            reached("worker.ended")
            log.info("job ended", outcome=outcome)
        except LeaseLost:
            log.warning("lease lost while failing", job=str(self.claim.job_id))

    def _goes_on(self, error: Exception) -> bool:
        """Return True if the next attempt goes on where this one was stopped.

        After a time limit only where draws are kept: drawing anew because it took long would choose
        among draws.
        """
        if isinstance(error, Drained) or (isinstance(error, Unwritable) and not self.reading):
            return True
        late = isinstance(error, TimeLimit | SoftTimeLimitExceeded)
        return late and self.kept.keeps and not self.charged_each

    def _write(self, step: Callable[[], T]) -> T:
        """Run a step, retrying while database, log or results folder is away and the lease holds.

        An outage is not a failure of the job. A step may have succeeded before its answer was lost;
        repeated, it either has the same effect or finds the lease gone.
        """
        while True:
            try:
                return step()
            except (*UNAVAILABLE, LedgerBehind, LogUnusable, Unwritable):
                if not self.heartbeat.held():
                    raise LeaseLost("the database was away until the lease ended") from None
                time.sleep(RETRY_SECONDS)
