"""Inputs of a job: its database and data's layout, models, public corpora, an earlier job's
published output.

Everything is compared with the hash in the ledger before it is used.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from accountant import settings
from accountant.core.errors import DataError
from accountant.core.ledger.orders import Order
from accountant.core.ledger.rules import dataset_columns
from accountant.core.mechanisms.base import Mechanism
from accountant.core.secret_patterns import Secrets
from accountant.core.webhook_rules import networks
from accountant.database import Engine, engine_for
from accountant.ledger_log.signed import SignedPlaces
from accountant.results import Changed, Results
from accountant.transactions import public_resources
from workers import models
from workers.data import corpora, public_text, records
from workers.embedding import embedders
from workers.generation import endpoint
from workers.generation.endpoint import Endpoint, Registered
from workers.generation.writer import WriterError
from workers.interface import NOTHING_PUBLIC, Public
from workers.jobs import artifacts


def engine() -> Engine:
    """Return the database that this worker's settings name, and the log outside it."""
    configured = settings.load()
    if configured.database_url is None:
        raise RuntimeError("DATABASE_URL is not set")
    return engine_for(
        configured.database_url, configured.ledger_log, signed=SignedPlaces.of(configured)
    )


def results() -> Results:
    """Return the results folder that this worker's settings name."""
    return Results(settings.load().results)


def layout_of(register: Mapping[str, Any], secrets: Secrets) -> records.Layout:
    """Return the layout of a version of a dataset, from the body of its REGISTER."""
    terms, layout = dataset_columns(register["terms"]), register["layout"]
    return records.Layout(
        text_template=layout["text_template"],
        unit_column=terms["unit_column"],
        label_column=layout["label_column"],
        labels=tuple(terms["labels"]),
        max_records_per_unit=terms["max_records_per_unit"],
        unit_spelling=terms["unit_spelling"],
        missing_units=terms["missing_units"],
        group_column=layout["group_column"],
        groups=tuple(terms["groups"]),
        secret_column=layout["secret_column"],
        secrets=secrets,
    )


def language_model(engine: Engine, named: Mapping[str, Any]) -> models.LocalModel:
    """Return a RESERVE's language model. Raises ModelError if its files' hash differs."""
    row = public_resources.find(engine, "model", named["name"])
    if row is None:
        raise models.ModelError(f"the model {named['name']!r} is not registered any more")
    return _language_model(row, named["sha256"])


def _language_model(row: Any, sha256: str) -> models.LocalModel:
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
        raise models.ModelError(
            f"the model {row.name!r}: {str(error).removeprefix('path: ')}"
        ) from None


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
    engine: Engine,
    order: Order,
    mechanism: Mechanism[Any],
    check: Callable[[], None],
) -> Public:
    """Return the public things that an order names. Raises ModelError or DataError if bytes
    changed.

    `check` is called while an endpoint is waited for, and may raise. No other job gets an endpoint
    than one that names it.
    """
    source = order.source
    named, beside = source.get("public", {}), source.get("sources", {})
    if not (named or beside or mechanism.reads_output):
        return NOTHING_PUBLIC
    _check_public(engine, order.corpora)
    roots = settings.load().data_root_list
    found: dict[str, dict[str, Any]] = {"corpus": {}, "embedding": {}, "model": {}, "endpoint": {}}
    for field, each in named.items():
        row = public_resources.find(engine, each["kind"], each["name"])
        if row is None:
            raise DataError(f"{field}: {each['name']!r} is not registered any more")
        match each["kind"]:
            case "corpus":
                # Its row was written by the process that looked at it: no file that a RESERVE
                # names otherwise is opened as public.
                if row.facts is None or row.facts["sha256"] != each["sha256"]:
                    raise DataError(f"{field}: the corpus {row.name!r} can't be used any more")
                found["corpus"][field] = corpora.open_corpus(row, roots, each["sha256"])
            case "embedding":
                found["embedding"][field] = _embedder(row, each["sha256"])
            case "endpoint":
                if endpoint.digest(row) != each["sha256"]:
                    raise WriterError(f"the endpoint {row.name!r} is not what was registered")
                found["endpoint"][field] = _endpoint(row, check)
            case _:
                found["model"][field] = _language_model(row, each["sha256"])
    texts = _texts(source["output"]) if mechanism.reads_output else None
    released = {
        field: artifacts.read(results(), each["artifacts"]) for field, each in beside.items()
    }
    return Public(
        found["corpus"], found["embedding"], found["model"], found["endpoint"], texts, released
    )


def _check_public(engine: Engine, corpora: Iterable[tuple[str, str]]) -> None:
    """Raise DataError where a corpus that this job or a job beside it read is none any more.

    Data that is registered is compared with all corpora (transactions.unit_fingerprints), so a row
    that is ready says enough. Whose data a corpus holds is for its stewards alone.
    """
    for field, name in corpora:
        row = public_resources.find(engine, "corpus", name)
        if row is None or row.state != "ready":
            gone = (
                "is looked through again: ask later"
                if row is not None and row.state == "checking"
                else "can't be used any more"
            )
            raise DataError(f"{field}: the corpus {name!r} {gone}")


def _texts(sha256: str) -> tuple[Mapping[str, Any], ...]:
    """Return the texts that the source job published, line by line."""
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
