"""Inputs of a job besides its data: models, public corpora, and an earlier job's published output.

Everything is compared with the hash in the ledger before it is used.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import fsspec

from accountant import settings
from accountant.core.errors import DataError
from accountant.database import Engine
from accountant.transactions import leases, public_resources
from workers import models
from workers.data import corpora
from workers.embedding import embedders
from workers.interface import NOTHING_PUBLIC, Public


def language_model(row: Any, sha256: str) -> models.LocalModel:
    """A registered language model. Raises ModelError if its files do not hash to `sha256`."""
    configured = settings.load()
    folder = models.resolve(row.path, configured.model_root_list, configured.model_hub)
    return models.load(folder, sha256, configured.model_dtype, configured.decoding_gib)


def _embedder(row: Any, sha256: str) -> embedders.Embedder:
    configured = settings.load()
    return embedders.load(models.resolve(row.path, configured.model_root_list, configured.model_hub), sha256)


def public_things(engine: Engine, job: Any, reads_output: bool) -> Public:
    """The public inputs that a job's parameters name. Raises ModelError or DataError if bytes changed."""
    if not job.resources and not reads_output:
        return NOTHING_PUBLIC
    roots = settings.load().data_root_list
    found: dict[str, dict[str, Any]] = {"corpus": {}, "embedding": {}, "model": {}}
    for field, (row, sha256) in public_resources.rows(engine, job).items():
        match job.resources[field]["kind"]:
            case "corpus":
                found["corpus"][field] = corpora.open_corpus(row, roots, sha256)
            case "embedding":
                found["embedding"][field] = _embedder(row, sha256)
            case _:
                found["model"][field] = language_model(row, sha256)
    texts = _texts(engine, job) if reads_output else None
    return Public(found["corpus"], found["embedding"], found["model"], texts)


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
    return tuple(json.loads(line) for line in content.decode("utf-8").splitlines())
