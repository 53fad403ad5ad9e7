"""Datasets and their versions, as stewards declare them. Writes these tables and no balance."""

import json
from collections.abc import Mapping
from typing import Any, Literal
from uuid import UUID, uuid4

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from sqlalchemy import Connection, Engine, Row, insert, select, update
from sqlalchemy.exc import IntegrityError

from accountant import settings, tables
from accountant.catalogue import registration
from accountant.core import secret_patterns
from accountant.core.errors import Conflict, FieldProblem, InvalidRequest, invalid
from accountant.core.files import cells
from accountant.core.ledger.hash_chain import GENESIS
from accountant.core.ledger.policy import Policy
from accountant.core.ledger.rules import UNIT_TERMS
from accountant.core.names import NAME
from accountant.core.template import slots
from accountant.identities import activity_log
from accountant.identities.actor import Actor
from accountant.tables.lookup import one
from accountant.transactions import idempotency, owners, registrations
from accountant.transactions.idempotency import Once
from accountant.transactions.ledger_log import writing


class DatasetSpec(BaseModel):
    """A steward's declaration of a dataset. All of it is public except `uri`."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    name: str = Field(
        pattern=NAME, description="what people and programs call it. Public, and fixed"
    )
    uri: str | None = Field(
        min_length=1,
        max_length=2000,
        description="where the records lie: a file, folder or address under a data root that the "
        "workers may open. Stewards alone see it. null: the data never comes here, and only "
        "charges of other programs are made",
    )
    description: str = Field(
        "", max_length=4000, description="what the texts are and where they come from. Public"
    )
    neighbours: Literal["add-remove", "replace-one"] = Field(
        "add-remove",
        description="what two datasets differ in: one unit more or less, or one in another's "
        "place. With add-remove, how many records there are stays private",
    )
    unit_column: str | None = Field(
        None,
        description="who is protected: all records with the same value here, such as one user. "
        "Without it each record is a unit",
    )
    max_records_per_unit: int = Field(
        1,
        ge=1,
        le=10_000,
        description="how many records of a unit are used at most, chosen by a keyed hash. With a "
        "larger bound each job costs more",
    )
    unit_spelling: Literal["refuse", "merge", "keep"] = Field(
        "refuse",
        description="what to do if names differ only in spelling, such as Sam and SAM: refuse the "
        "data, merge them, or keep them apart",
    )
    missing_units: Literal["refuse", "separate"] = Field(
        "refuse",
        description="records without a unit: refuse such data, or make each a unit by itself",
    )
    public_size: int | None = Field(
        None,
        ge=1,
        le=10**12,
        description="a round number of records that may be published, never a copied count",
    )
    label_column: str | None = Field(
        None,
        description="the column of a text's kind. Jobs may write one kind at a time",
    )
    labels: tuple[str, ...] = Field(
        (), description="all labels there may be. Their names are public"
    )
    group_column: str | None = Field(
        None,
        description="the column of the groups that summaries are of. A unit is in one group only",
    )
    groups: tuple[str, ...] = Field(
        (), description="all groups there may be. Their names are public"
    )
    secret_patterns: tuple[str, ...] = Field(
        (),
        description="what a secret looks like, in RE2 syntax with bounded repetitions, as "
        "`\\b\\d{4}\\b`. Stewards alone see it",
    )
    secret_terms: tuple[str, ...] = Field(
        (), description="words that are secrets. Stewards alone see them"
    )
    secret_column: str | None = Field(
        None,
        description="the column of a record's secret, which is one wherever it stands in the text",
    )
    text_template: str = Field(
        "{text}",
        max_length=4000,
        description="a record's text from its columns, as `{title}. {body}`",
    )
    policy: Policy = Policy()


def read_dataset(raw: Mapping[str, Any]) -> DatasetSpec:
    """Return a checked declaration. Raises InvalidRequest naming every wrong field."""
    try:
        # JSON mode: JSON has no tuples, and everything else stays strict.
        spec = DatasetSpec.model_validate_json(json.dumps(dict(raw)))
    except ValidationError as error:
        raise InvalidRequest(_problems(error)) from None
    problems = []
    if spec.unit_column is None and spec.max_records_per_unit != 1:
        problems.append(FieldProblem("max_records_per_unit", "the unit is a record", "1"))
    for field in UNIT_TERMS:
        if spec.unit_column is None and getattr(spec, field) != "refuse":
            problems.append(FieldProblem(field, "the unit is a record", "refuse"))
    if (spec.label_column is None) != (not spec.labels):
        problems.append(
            FieldProblem("labels", "a label column and its labels go together", "both or none")
        )
    if (spec.group_column is None) != (not spec.groups):
        problems.append(
            FieldProblem("groups", "a group column and its groups go together", "both or none")
        )
    for field, names in (("labels", spec.labels), ("groups", spec.groups)):
        # Two names that one cell may be are one name: "1" and "1.0".
        if len(set(map(cells.text, names))) != len(names) or any(
            not 0 < len(name) <= 200 for name in names
        ):
            problems.append(
                FieldProblem(field, "empty, overlong or repeated", "distinct, 1 to 200 characters")
            )
        elif "" in map(cells.text, names):
            problems.append(
                FieldProblem(field, "one is read as missing", "another name than nan or NaT")
            )
    try:
        secret_patterns.check(spec.secret_patterns, spec.secret_terms)
    except InvalidRequest as error:
        problems += error.problems
    problems += _unread(spec)
    if not slots(spec.text_template):
        problems.append(FieldProblem("text_template", "names no column", "at least one {column}"))
    if problems:
        raise InvalidRequest(problems)
    spec.policy.check("policy.")
    return spec


def _unread(spec: DatasetSpec) -> list[FieldProblem]:
    """Return a problem for each field that says how data is read that never comes here."""
    read = CORRECTABLE - {"uri", "unit_column", "max_records_per_unit"}
    return [
        FieldProblem(name, "the data never comes here, so nothing reads it", "nothing")
        for name, field in DatasetSpec.model_fields.items()
        if spec.uri is None and name in read and getattr(spec, name) != field.default
    ]


def _problems(error: ValidationError) -> list[FieldProblem]:
    return [
        FieldProblem(
            ".".join(str(part) for part in problem["loc"]) or "body", problem["msg"].lower()
        )
        for problem in error.errors(include_url=False)
    ]


def add_dataset(engine: Engine, spec: DatasetSpec, actor: Actor, once: Once | None = None) -> UUID:
    """Register a dataset, which a worker checks before anything runs. Returns its version's id.

    Without an address nobody checks it: it is ready for charges at once.
    """
    actor.require("steward")
    if spec.uri is not None:
        registration.require_room(engine, actor)
    spec = _with_defaults(spec)
    dataset_id, version_id = uuid4(), uuid4()
    values = spec.model_dump(mode="json", exclude={*LAYOUT} - {"unit_column"})
    try:
        with writing(engine) as connection:
            earlier = idempotency.claim(connection, once, version_id)
            if earlier != version_id:
                return earlier
            owners.check_people(connection, spec.policy, prefix="policy.")
            connection.execute(
                insert(tables.datasets).values(id=dataset_id, created_by=actor.id, **values)
            )
            connection.execute(
                insert(tables.accounts).values(dataset_id=dataset_id, chain_head=GENESIS)
            )
            registrations.begin(connection, dataset_id, spec, spec.policy, actor.name)
            activity_log.record(
                connection,
                actor,
                "dataset registered",
                "dataset",
                spec.name,
                policy=values["policy"],
            )
            return _add_version(connection, version_id, dataset_id, 1, spec, actor)
    except IntegrityError:
        raise Conflict(f"there is a dataset {spec.name!r} already") from None


def _with_defaults(spec: DatasetSpec) -> DatasetSpec:
    """Return the declaration with what the service's settings say of a field that it leaves out."""
    field = "results_every_seconds"
    if field in spec.policy.model_fields_set:
        return spec
    every = settings.load().results_every_seconds or None
    return spec.model_copy(update={"policy": spec.policy.model_copy(update={field: every})})


#: What each version of a dataset declares for itself: where its data lies and how it is read.
LAYOUT = ("uri", "text_template", "unit_column", "label_column", "group_column", "secret_column")


def _add_version(
    connection: Connection,
    version_id: UUID,
    dataset_id: UUID,
    number: int,
    spec: DatasetSpec,
    actor: Actor,
) -> UUID:
    connection.execute(
        insert(tables.dataset_versions).values(
            id=version_id,
            dataset_id=dataset_id,
            number=number,
            state="ready" if spec.uri is None else "checking",
            created_by=actor.id,
            **{field: getattr(spec, field) for field in LAYOUT},
        )
    )
    if spec.uri is not None:
        connection.execute(insert(tables.outbox).values(task="check_dataset", subject=version_id))
    return version_id


#: What another version of data in use may declare: its units are those that the statements name.
VERSION = frozenset(LAYOUT) - {"unit_column"}
#: What all versions share, and may be declared again while no data was found right.
SHARED = (
    "labels",
    "groups",
    "max_records_per_unit",
    *UNIT_TERMS,
    "secret_patterns",
    "secret_terms",
)
CORRECTABLE = frozenset({*LAYOUT, *SHARED})


def correct_dataset(
    engine: Engine, name: str, changes: Mapping[str, Any], actor: Actor, once: Once | None = None
) -> UUID:
    """Declare again a dataset whose data was refused, and have it checked: as its next version.

    `changes`: any of CORRECTABLE. Raises Conflict once any version was found right: what jobs may
    have read stays, and other data of the same people is a new version.
    """
    actor.require("steward")
    _known(changes, CORRECTABLE, "can't be corrected")
    registration.require_room(engine, actor)
    version_id = uuid4()
    with writing(engine) as connection:
        locked = registrations.lock(connection, name)
        dataset, versions = _locked_dataset(connection, name, actor)
        earlier = idempotency.claim(connection, once, version_id)
        if earlier != version_id:
            return earlier
        if any(version.state != "invalid" for version in versions):
            raise Conflict("the dataset's data is in use or still being checked")
        spec = _declared(dataset, versions[-1], changes)
        values = spec.model_dump(mode="json", include={"unit_column", *SHARED})
        connection.execute(
            update(tables.datasets).where(tables.datasets.c.id == dataset.id).values(**values)
        )
        registrations.declare_anew(locked, spec, actor.name)
        activity_log.record(
            connection, actor, "data corrected", "dataset", name, fields=sorted(changes)
        )
        return _add_version(connection, version_id, dataset.id, len(versions) + 1, spec, actor)


def add_version(
    engine: Engine, name: str, changes: Mapping[str, Any], actor: Actor, once: Once | None = None
) -> UUID:
    """Add data to a dataset: a version on the same account, with its own layout. Returns its id.

    `changes`: any of VERSION, and `uri` always; what is not given stays as in the newest version in
    use. Jobs asked for once a worker has found it right run on it. Raises Conflict where no version
    was found right yet, and InvalidRequest where the privacy unit would be named by another column,
    or labels would appear or vanish: prices and statements rest on these.
    """
    actor.require("steward")
    _known(changes, VERSION, "is the dataset's, for every version")
    if not changes.get("uri"):
        raise invalid("uri", "is missing", "where the new data lies")
    registration.require_room(engine, actor)
    version_id = uuid4()
    with writing(engine) as connection:
        dataset, versions = _locked_dataset(connection, name, actor)
        earlier = idempotency.claim(connection, once, version_id)
        if earlier != version_id:
            return earlier
        ready = [version for version in versions if version.state == "ready"]
        if any(version.uri is None for version in ready):
            raise Conflict("the data of this dataset never comes here, so it has no versions")
        if not ready:
            raise Conflict(
                "no data of this dataset was found right yet: correct what was refused first"
            )
        for field in ("label_column", "group_column", "secret_column"):
            there = getattr(ready[-1], field) is not None
            if field in changes and (changes[field] is not None) != there:
                allowed = "the name of a column" if there else "nothing"
                raise invalid(field, "every version of a dataset has one, or none has", allowed)
        # The statements name the dataset's unit: data on visits would break what is said of
        # patients.
        spec = _declared(dataset, ready[-1], {**changes, "unit_column": dataset.unit_column})
        activity_log.record(
            connection, actor, "data added", "dataset", name, version=len(versions) + 1
        )
        return _add_version(connection, version_id, dataset.id, len(versions) + 1, spec, actor)


def _known(changes: Mapping[str, Any], fields: frozenset[str], problem: str) -> None:
    unknown = sorted(set(changes) - fields)
    if unknown or not changes:
        raise invalid(unknown[0] if unknown else "body", problem, ", ".join(sorted(fields)))


def _locked_dataset(
    connection: Connection, name: str, actor: Actor
) -> tuple[Row[Any], list[Row[Any]]]:
    """Return a dataset's row, locked, and its versions in order. Raises NotFound, NotPermitted."""
    dataset_query = select(tables.datasets).where(tables.datasets.c.name == name)
    dataset = one(connection, dataset_query.with_for_update(), "dataset", name)
    owners.require(actor, Policy.model_validate(dataset.policy), "steward")
    query = select(tables.dataset_versions).where(
        tables.dataset_versions.c.dataset_id == dataset.id
    )
    return dataset, list(connection.execute(query.order_by(tables.dataset_versions.c.number)))


def _declared(dataset: Row[Any], version: Row[Any], changes: Mapping[str, Any]) -> DatasetSpec:
    """Return a dataset's declaration with this version's layout and `changes`, checked whole."""
    declared = {
        field: getattr(dataset, field) for field in DatasetSpec.model_fields if field not in LAYOUT
    }
    return read_dataset(
        {**declared, **{field: getattr(version, field) for field in LAYOUT}, **changes}
    )


def version_to_check(engine: Engine, version_id: UUID) -> tuple[Row[Any], Row[Any]] | None:
    """(version, dataset) of a version that waits for its check."""
    versions, datasets = tables.dataset_versions, tables.datasets
    with engine.connect() as connection:
        version = connection.execute(
            select(versions).where(versions.c.id == version_id, versions.c.state == "checking")
        ).one_or_none()
        if version is None:
            return None
        return version, connection.execute(
            select(datasets).where(datasets.c.id == version.dataset_id)
        ).one()


def dataset_refused(engine: Engine, version_id: UUID, error: str) -> None:
    """Record that a worker could not read the data; `unit_fingerprints.claim` records success."""
    versions = tables.dataset_versions
    with engine.begin() as connection:
        connection.execute(
            update(versions)
            .where(versions.c.id == version_id, versions.c.state == "checking")
            .values(state="invalid", error=error)
        )
