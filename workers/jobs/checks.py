"""The tasks that look at what is registered: a model and its templates, new data, public corpora.

Problems of data are its steward's to read and quote no record; what else is raised is told by its
kind.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

import structlog

from accountant import settings
from accountant.catalogue import datasets, registration
from accountant.core.errors import DataError
from accountant.core.ledger.rules import register_body
from accountant.core.secret_patterns import Secrets
from accountant.core.template import templates
from accountant.core.webhook_rules import networks
from accountant.database import UNAVAILABLE
from accountant.transactions import approval, maintenance, unit_fingerprints
from workers import models
from workers.data import corpora, fingerprints, manifest, records
from workers.embedding import embedders
from workers.generation import endpoint
from workers.generation.writer import WriterError
from workers.jobs import job_inputs
from workers.jobs.app import app

log = structlog.get_logger()


@app.task(name="exchequer.probe")
def probe(job_id: str, attempt: int = 0) -> None:  # noqa: ARG001
    """Count the tokens of a waiting job's longest template in its model. Reads nothing private."""
    engine, configured = job_inputs.engine(), settings.load()
    with engine.connect() as connection:
        if maintenance.reason(connection) is not None:
            return  # it is sent again
    found = approval.waiting(engine, UUID(job_id))
    if found is None:
        return
    job, model = found
    try:
        folder = models.resolve(model.path, configured.model_root_list, configured.model_hub)
        labels = job.terms["labels"]
        tokens = max(
            models.template_tokens(folder, template, labels)
            for template in templates(job.parameters)
        )
    except models.ModelError as error:
        approval.probed(engine, UUID(job_id), None, f"model: {error}")
        return
    approval.probed(engine, UUID(job_id), {"template_tokens": tokens}, None)


@app.task(name="exchequer.check_dataset")
def check_dataset(version_id: str, attempt: int = 0) -> None:  # noqa: ARG001
    """Read new data through once and claim its units. Problems are told stewards only."""
    engine = job_inputs.engine()
    found = datasets.version_to_check(engine, UUID(version_id))
    if found is None:
        return
    version, dataset = found
    configured = settings.load()
    key = configured.secret("identity")
    try:
        address = records.check_address(version.uri, configured.data_root_list)
        checked = register_body(dataset, version)
        secrets = Secrets(tuple(dataset.secret_patterns), tuple(dataset.secret_terms))
        layout = job_inputs.layout_of(checked, secrets)
        records.check_columns(address, layout)
        data = manifest.of(address)
        units = manifest.unchanged(address, data, fingerprints.fingerprints(address, layout, key))
        unit_fingerprints.claim(
            engine, version.id, fingerprints.proof(key), units, {**checked, "data": data}, key
        )
    except DataError as problem:
        datasets.dataset_refused(engine, version.id, str(problem))
    except UNAVAILABLE:
        raise
    # whatever a file system or codec raises: its text may quote a record
    except Exception as problem:
        datasets.dataset_refused(engine, version.id, f"it can't be read: {type(problem).__name__}")


@app.task(name="exchequer.check_model")
def check_model(model_id: str, attempt: int = 0) -> None:  # noqa: ARG001
    """Inspect a new model's files: its type, its context length, and its hash."""
    engine, configured = job_inputs.engine(), settings.load()
    row = registration.find(engine, "model", UUID(model_id))
    if row is None or row.state != "checking":
        return
    try:
        if row.kind == "endpoint":
            allowed = networks(configured.endpoint_networks)
            registration.checked(engine, "model", row.id, endpoint.inspect(row, allowed), None)
            return
        folder = models.resolve(row.path, configured.model_root_list, configured.model_hub)
        inspect = embedders.inspect if row.kind == "embedding" else models.inspect
        facts = inspect(folder)
        facts |= _tried(row.kind, folder, facts, configured)
        registration.checked(engine, "model", row.id, facts, None)
    except (models.ModelError, WriterError) as error:
        registration.checked(engine, "model", row.id, None, str(error))
    except Exception as error:
        problem = f"path: it can't be read ({type(error).__name__})"
        registration.checked(engine, "model", row.id, None, problem)


def _tried(
    kind: str, folder: Path, facts: Mapping[str, Any], configured: settings.Settings
) -> dict[str, Any]:
    """Run a public text through a model, as jobs load it; `tried` names type and device, or why it
    was not.

    Raises ModelError where a number of the result is not finite.
    """
    if not models.has_room(facts["parameters"], split=kind != "embedding"):
        return {
            "tried": "no room in the worker that checks files; each job tries it before it reads"
        }
    if kind == "embedding":
        embedders.opened(folder, facts["sha256"])
        return {"tried": "float32"}
    return {
        "tried": models.try_out(
            folder, facts["sha256"], configured.model_dtype, configured.decoding_gib
        )
    }


@app.task(name="exchequer.check_corpus")
def check_corpus(corpus_id: str, attempt: int = 0) -> None:  # noqa: ARG001
    """Read a new public corpus: its texts, labels, hash, and that none of it is private."""
    engine = job_inputs.engine()
    row = registration.find(engine, "corpus", UUID(corpus_id))
    if row is None or row.state != "checking":
        return
    try:
        configured = settings.load()
        address, key = (
            records.check_address(row.uri, configured.data_root_list),
            configured.secret("identity"),
        )
        held, sha256 = corpora.hold(address)
        # refuses empty files, and files of the same bytes
        manifest.summary((each.file, each.shown, each.content.tell(), each.sha256) for each in held)
        facts = corpora.inspect(held, sha256, row.text_template, row.label_column)
        texts = fingerprints.fingerprints(held, records.Layout(row.text_template), key)
        shares = unit_fingerprints.compare_corpus(engine, row.id, fingerprints.proof(key), texts)
        error = unit_fingerprints.REFUSED if shares else None
        registration.checked(engine, "corpus", row.id, None if shares else facts, error, shares)
    except DataError as problem:
        registration.checked(engine, "corpus", row.id, None, str(problem))
    except UNAVAILABLE:
        raise
    # whatever a file system or codec raises: the steward gets the kind
    except Exception as problem:
        registration.checked(
            engine, "corpus", row.id, None, f"it can't be read: {type(problem).__name__}"
        )
