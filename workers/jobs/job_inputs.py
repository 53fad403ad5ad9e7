"""Inputs of a job: its database and data's layout, models, public corpora, an earlier job's published output.

Everything is compared with the hash in the ledger before it is used.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from accountant import settings
from accountant.core.errors import DataError
from accountant.core.mechanisms.base import Mechanism
from accountant.core.secret_patterns import Secrets
from accountant.core.webhook_rules import networks
from accountant.database import Engine, engine_for
from accountant.ledger_log.signed import SignedPlaces
from accountant.results import Changed, Results
from accountant.transactions import leases, public_resources, sources
from workers import models
from workers.data import corpora, public_text, records
from workers.embedding import embedders
from workers.generation import endpoint
from workers.generation.endpoint import Endpoint, Registered
from workers.generation.writer import WriterError
from workers.interface import NOTHING_PUBLIC, Public
from workers.jobs import artifacts


def engine() -> Engine:
    """The database that this worker's settings name, and the log outside it."""
    configured = settings.load()
    if configured.database_url is None:
        raise RuntimeError("DATABASE_URL is not set")
    return engine_for(configured.database_url, configured.ledger_log, signed=SignedPlaces.of(configured))


def results() -> Results:
    """The results folder that this worker's settings name."""
    return Results(settings.load().results)


def layout_of(dataset: Any, version: Any) -> records.Layout:
    """The layout of a version of a dataset, from their rows."""
    return records.Layout(
        text_template=version.text_template,
        unit_column=version.unit_column,
        label_column=version.label_column,
        labels=tuple(dataset.labels),
        max_records_per_unit=dataset.max_records_per_unit,
        unit_spelling=dataset.unit_spelling,
        missing_units=dataset.missing_units,
        group_column=version.group_column,
        groups=tuple(dataset.groups),
        secret_column=version.secret_column,
        secrets=Secrets(tuple(dataset.secret_patterns), tuple(dataset.secret_terms)),
    )


def language_model(row: Any, sha256: str) -> models.LocalModel:
    """A registered language model. Raises ModelError if its files do not hash to `sha256`."""
    configured = settings.load()
    with _naming(row):
        folder = models.resolve(row.path, configured.model_root_list, configured.model_hub)
        return models.load(folder, sha256, configured.model_dtype, configured.decoding_gib)


def _embedder(row: Any, sha256: str) -> embedders.Embedder:
    configured = settings.load()
    with _naming(row):
        folder = models.resolve(row.path, configured.model_root_list, configured.model_hub)
        return embedders.load(folder, sha256)


@contextmanager
def _naming(row: Any) -> Iterator[None]:
    """Let a ModelError say which model it is about: a job may use several."""
    try:
        yield
    except models.ModelError as error:
        raise models.ModelError(f"the model {row.name!r}: {str(error).removeprefix('path: ')}") from None


def _endpoint(row: Any, check: Callable[[], None]) -> Endpoint:
    configured = settings.load()
    declared = {name: row.endpoint[name] for name in ("model", "chat", "requests", "tokens")}
    return Endpoint(
        Registered(name=row.name, url=row.path, **declared),
        configured.endpoint_keys.get(row.name),
        networks(configured.endpoint_networks),
        configured.endpoint_seconds,
        check,
    )


def public_things(
    engine: Engine, job: Any, mechanism: Mechanism[Any], parameters: Any, check: Callable[[], None]
) -> Public:
    """Return the public things that a job's parameters name. Raises ModelError or DataError if bytes changed.

    `check` is called while an endpoint is waited for, and may raise. No other job gets an endpoint than one
    that names it.
    """
    if not (job.resources or job.sources or mechanism.reads_output):
        return NOTHING_PUBLIC
    roots = settings.load().data_root_list
    found: dict[str, dict[str, Any]] = {"corpus": {}, "embedding": {}, "model": {}, "endpoint": {}}
    for field, (row, sha256) in public_resources.rows(engine, job).items():
        match job.resources[field]["kind"]:
            case "corpus":
                found["corpus"][field] = corpora.open_corpus(row, roots, sha256)
            case "embedding":
                found["embedding"][field] = _embedder(row, sha256)
            case "endpoint":
                if endpoint.digest(row) != sha256:
                    raise WriterError(f"the endpoint {row.name!r} is not what was registered")
                found["endpoint"][field] = _endpoint(row, check)
            case _:
                found["model"][field] = language_model(row, sha256)
    _check_public(engine, job)
    texts = _texts(engine, job) if mechanism.reads_output else None
    released = {
        field: artifacts.read(results(), rows)
        for field, rows in sources.read_by(engine, job, parameters).items()
    }
    return Public(found["corpus"], found["embedding"], found["model"], found["endpoint"], texts, released)


def _check_public(engine: Engine, job: Any) -> None:
    """Raise DataError where a corpus that this job or a job beside it read is none any more.

    Data that is registered is compared with all corpora (transactions.unit_fingerprints), so a row that is
    ready says enough. Whose data a corpus holds is for its stewards alone.
    """
    own = [(field, row) for field, (row, _) in public_resources.rows(engine, job).items()]
    behind = [(field, row) for field, row, _ in sources.corpora_behind(engine, job)]
    named = {field for field, each in job.resources.items() if each["kind"] == "corpus"}
    for field, row in [*((field, row) for field, row in own if field in named), *behind]:
        if row.state != "ready":
            gone = (
                "can't be used any more" if row.state == "invalid" else "is looked through again: ask later"
            )
            raise DataError(f"{field}: the corpus {row.name!r} {gone}")


def _texts(engine: Engine, job: Any) -> tuple[Mapping[str, Any], ...]:
    """The texts that the source job published, line by line."""
    sha256 = leases.published(engine, job.source_job_id)
    try:
        with results().open(sha256) as file:
            content = file.read()
    except Changed:
        raise DataError(
            "the output of the job in from_job is not what was published: its bytes changed"
        ) from None
    except OSError:
        raise DataError("the output of the job in from_job is not where it was published") from None
    return tuple(public_text.published(line) for line in content.decode("utf-8").splitlines())
