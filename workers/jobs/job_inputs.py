"""Inputs of a job besides its data: models, public corpora, and an earlier job's published output.

Everything is compared with the hash in the ledger before it is used.
"""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import fsspec

from accountant import settings
from accountant.core.errors import DataError
from accountant.core.mechanisms.base import Mechanism
from accountant.core.webhook_rules import networks
from accountant.database import Engine
from accountant.transactions import leases, public_resources, sources, unit_fingerprints
from workers import models
from workers.data import corpora, fingerprints, public_text, records
from workers.embedding import embedders
from workers.generation import endpoint
from workers.generation.endpoint import Endpoint, Registered
from workers.generation.writer import WriterError
from workers.interface import NOTHING_PUBLIC, Public
from workers.jobs import artifacts


def language_model(row: Any, sha256: str) -> models.LocalModel:
    """A registered language model. Raises ModelError if its files do not hash to `sha256`."""
    configured = settings.load()
    folder = models.resolve(row.path, configured.model_root_list, configured.model_hub)
    return models.load(folder, sha256, configured.model_dtype, configured.decoding_gib)


def _embedder(row: Any, sha256: str) -> embedders.Embedder:
    configured = settings.load()
    return embedders.load(models.resolve(row.path, configured.model_root_list, configured.model_hub), sha256)


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
    _check_public(engine, job, found["corpus"])
    texts = _texts(engine, job) if mechanism.reads_output else None
    released = {
        field: artifacts.read(rows) for field, rows in sources.read_by(engine, job, parameters).items()
    }
    return Public(found["corpus"], found["embedding"], found["model"], found["endpoint"], texts, released)


def _check_public(engine: Engine, job: Any, own: Mapping[str, corpora.Corpus]) -> None:
    """Raise DataError where a corpus that this job or a job beside it read holds private records by now.

    A corpus was compared with all datasets when it was registered; some of these were registered since. Which
    dataset it is, and how much of it, is for stewards alone.
    """
    configured = settings.load()
    behind = [
        (field, corpora.open_corpus(row, configured.data_root_list, sha256))
        for field, row, sha256 in sources.corpora_behind(engine, job)
    ]
    for field, corpus in [*own.items(), *behind]:
        key = configured.secret("identity")
        texts = fingerprints.fingerprints(corpus.address, records.Layout(corpus.text_template), key)
        if unit_fingerprints.private_in(engine, fingerprints.proof(key), texts) is not None:
            held = f"the corpus {corpus.name!r} holds records of a dataset by now"
            raise DataError(f"{field}: {held}, so nothing that is made of it is public")


def _texts(engine: Engine, job: Any) -> tuple[Mapping[str, Any], ...]:
    """The texts that the source job published, line by line."""
    uri, sha256 = leases.published(engine, job.source_job_id)
    try:
        with fsspec.open(uri, "rb") as file:
            content = file.read()
    except OSError:
        raise DataError("the output of the job in from_job is not where it was published") from None
    if hashlib.sha256(content).hexdigest() != sha256:
        raise DataError("the output of the job in from_job is not what was published: its bytes changed")
    return tuple(public_text.published(line) for line in content.decode("utf-8").splitlines())
