"""The tasks: run a claimed job, probe a model, check a dataset or a model.

What may leave a worker while it reads private data: public progress, and at the end the output. An error
raised while private data is read is shown to nobody outside, so its text goes nowhere.
"""

import hashlib
import hmac
import socket
from typing import Any
from uuid import UUID

import structlog
from sqlalchemy import Engine

from accountant import artifacts, identity, leases, ledger, registry, settings
from accountant import corpora as registered_corpora
from accountant.core import mechanisms
from accountant.core.errors import Cancelled, DataError, ExchequerError, LeaseLost
from accountant.core.events import from_json
from accountant.core.pricing import Terms
from accountant.database import engine_for
from workers import artifacts as stored
from workers import corpora, embeddings, fingerprints, models, records, staging
from workers.app import app
from workers.heartbeat import Heartbeat
from workers.interface import Progress, Reuser
from workers.meter import Meter

log = structlog.get_logger()


def _engine() -> Engine:
    url = settings.load().database_url
    if url is None:
        raise RuntimeError("DATABASE_URL is not set")
    return engine_for(url)


def _worker_name() -> str:
    return f"worker@{socket.gethostname()}"


# --- generation ---------------------------------------------------------------------------------


@app.task(name="exchequer.generate")
def generate(job_id: str, attempt: int) -> None:
    """Run one attempt of a job, if it is still there to be claimed."""
    configured = settings.load()
    engine = _engine()
    claim = leases.claim(engine, UUID(job_id), attempt, _worker_name(), configured.lease_seconds)
    if claim is None:
        return
    uri = staging.staged_uri(configured.results, claim.job_id, claim.token)
    progress = Progress(total=0)
    run = _Run(engine, claim, uri, progress)
    try:
        with Heartbeat(engine, claim, configured.lease_seconds, progress) as heartbeat:
            progress.check = heartbeat.check
            run.execute()
    except LeaseLost:
        staging.destroy(uri)
        log.warning("lease lost, output destroyed", job=job_id, attempt=attempt)
    except Exception as error:
        staging.destroy(uri)
        _end(run, error)


def _end(run: "_Run", error: Exception) -> None:
    """Settle an attempt that failed: what may be said of it depends on whether reading had begun."""
    if isinstance(error, Cancelled):
        outcome, reason = "cancelled", "cancelled while it ran"
    elif run.reading:
        outcome, reason = "failed", "it failed while private data was read; the cause is shown to nobody"
    else:
        outcome = "failed"
        reason = str(error) if isinstance(error, ExchequerError) else "it failed before any data was read"
        log.error("job failed before reading", job=str(run.claim.job_id), error=repr(error))
    try:
        ledger.fail(run.engine, run.claim, outcome, reason, _worker_name())
    except LeaseLost:
        log.warning("lease lost while failing", job=str(run.claim.job_id))


class _Run:
    """One claimed attempt."""

    def __init__(self, engine: Engine, claim: ledger.Claim, uri: str, progress: Progress) -> None:
        self.engine, self.claim, self.uri, self.progress = engine, claim, uri, progress
        self.reading = False

    def execute(self) -> None:
        """Load the model, read records or artifacts, run, publish."""
        from workers.mechanisms import runner

        work = leases.work(self.engine, self.claim.job_id)
        terms = Terms.from_json(work.job.terms)
        parameters = mechanisms.get(work.job.mechanism).parse(work.job.parameters, terms)
        running = runner(work.job.mechanism)
        model = None if work.model is None else _load(work.model)
        meter = Meter(from_json(work.job.event))
        self.progress.total = running.total(parameters, terms)
        self.progress.check()
        rows = artifacts.read_by(self.engine, work.job)
        if rows is None:
            made = running.run(parameters, terms, self._records(work), model, meter, self.progress)
        else:  # nothing private is opened: no reading begins, and a failure is void
            assert isinstance(running, Reuser)
            made = running.reuse(parameters, terms, stored.read(rows), model, self.progress)
        output = stored.write(self.uri, made)
        ledger.publish(self.engine, self.claim, meter.realized, output, _worker_name())

    def _records(self, work: leases.Work) -> records.Records:
        """Commit "reading begins", then open the data."""
        address = records.check_address(work.version.uri, settings.load().data_root_list)
        leases.begin_reading(self.engine, self.claim)
        self.reading = True
        return records.read(address, layout_of(work.dataset, work.version), batch_key(self.claim.job_id))


def _load(row: Any) -> models.LocalModel:
    """A job's model, if its files are still those that were registered."""
    configured = settings.load()
    folder = models.resolve(row.path, configured.model_root_list, configured.model_hub)
    return models.load(folder, row.facts["sha256"])


def layout_of(dataset: Any, version: Any) -> records.Layout:
    """How to read a version of a dataset, from their rows."""
    return records.Layout(
        text_template=version.text_template,
        unit_column=version.unit_column,
        label_column=version.label_column,
        labels=tuple(dataset.labels),
        max_records_per_unit=dataset.max_records_per_unit,
    )


def batch_key(job_id: UUID) -> bytes:
    """The key of a job's batches: secret, different for every job, the same for each of its attempts."""
    return hmac.new(settings.load().secret("units"), job_id.bytes, hashlib.sha256).digest()


# --- public looks -------------------------------------------------------------------------------


@app.task(name="exchequer.probe")
def probe(job_id: str, attempt: int = 0) -> None:  # noqa: ARG001
    """Find how many tokens a waiting job's template takes in its model; reads nothing private."""
    engine, configured = _engine(), settings.load()
    work = leases.work(engine, UUID(job_id))
    if work.model is None:
        return
    try:
        folder = models.resolve(work.model.path, configured.model_root_list, configured.model_hub)
        tokens = models.template_tokens(folder, work.job.parameters["template"], work.job.terms["labels"])
    except models.ModelError as error:
        ledger.probed(engine, UUID(job_id), None, f"model: {error}")
        return
    ledger.probed(engine, UUID(job_id), {"template_tokens": tokens}, None)


@app.task(name="exchequer.check_dataset")
def check_dataset(version_id: str, attempt: int = 0) -> None:  # noqa: ARG001
    """Read new data through once, and claim its units; what is wrong is told to its stewards only."""
    engine = _engine()
    found = registry.version_to_check(engine, UUID(version_id))
    if found is None:
        return
    version, dataset = found
    configured = settings.load()
    key = configured.secret("identity")
    try:
        address = records.check_address(version.uri, configured.data_root_list)
        units = fingerprints.fingerprints(address, layout_of(dataset, version), key)
        identity.claim(engine, version.id, fingerprints.proof(key), units)
    except DataError as problem:
        registry.dataset_refused(engine, version.id, str(problem))


@app.task(name="exchequer.check_model")
def check_model(model_id: str, attempt: int = 0) -> None:  # noqa: ARG001
    """Look at a new model's files: what it is, how long its context is, and its hash."""
    engine, configured = _engine(), settings.load()
    row = registry.model_row(engine, UUID(model_id))
    if row is None:
        return
    try:
        folder = models.resolve(row.path, configured.model_root_list, configured.model_hub)
        inspect = embeddings.inspect if row.kind == "embedding" else models.inspect
        registry.model_checked(engine, row.id, inspect(folder), None)
    except models.ModelError as error:
        registry.model_checked(engine, row.id, None, str(error))
    except Exception as error:
        registry.model_checked(engine, row.id, None, f"path: it can't be read ({type(error).__name__})")


@app.task(name="exchequer.check_corpus")
def check_corpus(corpus_id: str, attempt: int = 0) -> None:  # noqa: ARG001
    """Read a new public corpus through once: how many texts, which labels, and its hash."""
    engine = _engine()
    row = registered_corpora.to_check(engine, UUID(corpus_id))
    if row is None:
        return
    try:
        address = records.check_address(row.uri, settings.load().data_root_list)
        facts = corpora.inspect(address, row.text_template, row.label_column)
        registered_corpora.checked(engine, row.id, facts, None)
    except DataError as problem:
        registered_corpora.checked(engine, row.id, None, str(problem))
    except Exception as problem:  # whatever a file system or codec raises: the steward gets the kind
        registered_corpora.checked(engine, row.id, None, f"it can't be read: {type(problem).__name__}")
