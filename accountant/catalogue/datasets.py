"""People, tokens, datasets and models: what the ledger refers to. Writes these tables and no balance."""

import hashlib
import json
import re
import secrets
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID, uuid4

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from sqlalchemy import Connection, Engine, Row, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from accountant import tables
from accountant.core.errors import Conflict, FieldProblem, InvalidRequest, NotFound, invalid
from accountant.core.ledger.admission import Policy
from accountant.core.ledger.allowances import check_removal
from accountant.core.ledger.hash_chain import GENESIS
from accountant.core.privacy.secrets import SecretTerms
from accountant.core.template import slots
from accountant.identities import activity_log, sessions
from accountant.transactions import idempotency
from accountant.transactions.idempotency import Once
from accountant.transactions.settlement import Actor

ROLES = ("steward", "analyst", "auditor", "administrator")
#: What a token may do, of what its owner may; docs/accounts.md says what each opens.
SCOPES = ("read", "jobs:submit", "budget:approve", "data:manage", "admin")
MODEL_KINDS = ("language", "embedding")
NAME = r"^[a-z0-9][a-z0-9._-]{0,62}$"

# --- people -------------------------------------------------------------------------------------


def add_user(
    engine: Engine,
    name: str,
    password_hash: str | None,
    roles: list[str],
    *,
    actor: Actor | None = None,
    password_expires: datetime | None = None,
) -> UUID:
    """A new account. Raises InvalidRequest for unknown roles and Conflict where the name is taken.

    `actor`: the administrator, None for whoever has the database. `password_expires`: of a one-time password.
    """
    check_roles(roles)
    if not re.fullmatch(NAME, name):
        raise invalid("name", repr(name), "lower case letters, digits, '.', '_' and '-', at most 63")
    user_id = uuid4()
    try:
        with engine.begin() as connection:
            connection.execute(
                insert(tables.users).values(
                    id=user_id,
                    name=name,
                    password_hash=password_hash,
                    password_expires=password_expires,
                    roles=roles,
                )
            )
            activity_log.record(connection, actor, "account added", "account", name, roles=roles)
    except IntegrityError:
        raise Conflict(f"there is a user {name!r} already") from None
    return user_id


def check_roles(roles: Iterable[str]) -> None:
    """Raise InvalidRequest for a role that is none, and for no role at all."""
    unknown = sorted(set(roles) - set(ROLES))
    if unknown or not roles:
        raise invalid("roles", f"{', '.join(map(repr, unknown)) or 'none'}", ", ".join(ROLES))


def find_user(engine: Engine, *, name: str | None = None, user_id: UUID | None = None) -> Row[Any] | None:
    """An active user by name or by id."""
    users = tables.users
    wanted = users.c.name == name if user_id is None else users.c.id == user_id
    with engine.connect() as connection:
        return connection.execute(select(users).where(wanted, users.c.active)).one_or_none()


def set_password(
    engine: Engine,
    user_id: UUID,
    password_hash: str,
    *,
    actor: Actor | None = None,
    expires: datetime | None = None,
    replaces: str | None = None,
) -> bool:
    """Replace a password. Every session ends, and every token that a sign-in made.

    `expires`: the moment after which a one-time password is worth nothing; None: it is the person's own.
    `replaces`: the hash that was compared with what its owner typed; where another stands by now, nothing
    is done and the answer is False: who has the old password does not undo a reset.
    """
    users = tables.users
    which = users.c.id == user_id
    if replaces is not None:
        which &= users.c.active & (users.c.password_hash == replaces)
    with engine.begin() as connection:
        name = connection.execute(
            update(users)
            .where(which)
            .values(password_hash=password_hash, password_expires=expires)
            .returning(users.c.name)
        ).scalar_one_or_none()
        if name is None:
            return False
        sessions.end(connection, user_id)
        action = "password changed" if expires is None else "password reset"
        activity_log.record(connection, actor, action, "account", name)
    return True


def rehash_password(engine: Engine, user_id: UUID, old: str, new: str) -> Row[Any] | None:
    """Keep the same password under another hash; sessions go on. None where it was changed meanwhile."""
    users = tables.users
    with engine.begin() as connection:
        same = (users.c.id == user_id) & (users.c.password_hash == old)
        kept = update(users).where(same).values(password_hash=new).returning(*users.c)
        return connection.execute(kept).one_or_none()


def actor_of(user: Row[Any]) -> Actor:
    """The actor that a user is."""
    return Actor(user.id, user.name, frozenset(user.roles))


def add_token(
    engine: Engine,
    user_id: UUID,
    name: str,
    expires_at: datetime | None,
    *,
    scopes: Iterable[str] = SCOPES,
    by_sign_in: bool = False,
) -> str:
    """A new API token: returned once, kept only as its SHA-256 (it is 256 random bits)."""
    with engine.begin() as connection:
        return new_token(connection, user_id, name, expires_at, scopes, by_sign_in)[1]


def sign_in_token(engine: Engine, user: Row[Any], expires_at: datetime) -> str | None:
    """A token with every scope, for signing in. None where the account is not as `user` was read."""
    with engine.begin() as connection:
        if not sessions.unchanged(connection, user):
            return None
        return new_token(connection, user.id, "sign-in", expires_at, SCOPES, True)[1]


def new_token(
    connection: Connection,
    user_id: UUID,
    name: str,
    expires_at: datetime | None,
    scopes: Iterable[str],
    by_sign_in: bool,
) -> tuple[UUID, str]:
    """(id, token) of a new API token, in the caller's transaction."""
    token_id, token = uuid4(), f"exq_{secrets.token_urlsafe(32)}"
    connection.execute(
        insert(tables.api_tokens).values(
            id=token_id,
            user_id=user_id,
            name=name,
            token_sha256=_sha256(token),
            expires_at=expires_at,
            scopes=list(scopes),
            by_sign_in=by_sign_in,
        )
    )
    return token_id, token


def user_of_token(engine: Engine, token: str) -> Row[Any] | None:
    """The active user of a token that is neither expired nor revoked, with the token's `scopes`.

    Its last use is noted, to the minute.
    """
    users, tokens = tables.users, tables.api_tokens
    query = (
        select(users, tokens.c.id.label("token_id"), tokens.c.scopes, tokens.c.by_sign_in, _UNNOTED)
        .join(tokens, tokens.c.user_id == users.c.id)
        .where(
            tokens.c.token_sha256 == _sha256(token),
            tokens.c.revoked_at.is_(None),
            users.c.active,
            (tokens.c.expires_at.is_(None)) | (tokens.c.expires_at > func.clock_timestamp()),
        )
    )
    with engine.connect() as connection:
        found = connection.execute(query).one_or_none()
        if found is not None and found.unnoted:
            noted = update(tokens).where(tokens.c.id == found.token_id)
            connection.execute(noted.values(last_used_at=func.clock_timestamp()))
            connection.commit()
    return found


_MINUTE_AGO = func.clock_timestamp() - timedelta(minutes=1)
_UNNOTED = func.coalesce(tables.api_tokens.c.last_used_at < _MINUTE_AGO, True).label("unnoted")


def _sha256(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


# --- datasets -----------------------------------------------------------------------------------


class DatasetSpec(BaseModel):
    """What a steward declares about a dataset. All of it is public except `uri`."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    name: str = Field(pattern=NAME, description="name in the catalogue")
    uri: str = Field(min_length=1, max_length=2000, description="file, folder or address, under a data root")
    description: str = Field("", max_length=4000)
    neighbours: Literal["add-remove", "replace-one"] = Field(
        "add-remove", description="neighbouring relation: one unit added or removed, or replaced"
    )
    unit_column: str | None = Field(None, description="column of the privacy unit; nothing: a record")
    max_records_per_unit: int = Field(1, ge=1, le=10_000, description="records kept per unit")
    public_size: int | None = Field(
        None, ge=1, le=10**12, description="a round public figure, never a copied count"
    )
    label_column: str | None = Field(None, description="column of the label; nothing: no labels")
    labels: tuple[str, ...] = Field((), description="the labels there may be; their names are public")
    text_template: str = Field(
        "{text}", max_length=4000, description="a record's text from its columns, as {title}. {body}"
    )
    policy: Policy = Policy()


def read_dataset(raw: Mapping[str, Any]) -> DatasetSpec:
    """A checked declaration. Raises InvalidRequest naming every wrong field."""
    try:
        # JSON mode: JSON has no tuples, and everything else stays strict.
        spec = DatasetSpec.model_validate_json(json.dumps(dict(raw)))
    except ValidationError as error:
        raise InvalidRequest(_problems(error)) from None
    problems = []
    if spec.unit_column is None and spec.max_records_per_unit != 1:
        problems.append(FieldProblem("max_records_per_unit", "the unit is a record", "1"))
    if (spec.label_column is None) != (not spec.labels):
        problems.append(FieldProblem("labels", "a label column and its labels go together", "both or none"))
    if len(set(spec.labels)) != len(spec.labels) or any(not 0 < len(label) <= 200 for label in spec.labels):
        problems.append(
            FieldProblem("labels", "empty, overlong or repeated", "distinct, 1 to 200 characters")
        )
    if not slots(spec.text_template):
        problems.append(FieldProblem("text_template", "names no column", "at least one {column}"))
    if problems:
        raise InvalidRequest(problems)
    spec.policy.check("policy.")
    return spec


def _problems(error: ValidationError) -> list[FieldProblem]:
    return [
        FieldProblem(".".join(str(part) for part in each["loc"]) or "body", each["msg"].lower())
        for each in error.errors(include_url=False)
    ]


def add_dataset(engine: Engine, spec: DatasetSpec, actor: Actor, once: Once | None = None) -> UUID:
    """Register a dataset; a worker checks its data before anything can run. Returns the version's id."""
    actor.require("steward")
    dataset_id, version_id = uuid4(), uuid4()
    values = spec.model_dump(mode="json", exclude={"uri", "text_template", "label_column"})
    try:
        with engine.begin() as connection:
            earlier = idempotency.claim(connection, once, version_id)
            if earlier != version_id:
                return earlier
            connection.execute(insert(tables.datasets).values(id=dataset_id, created_by=actor.id, **values))
            connection.execute(insert(tables.accounts).values(dataset_id=dataset_id, chain_head=GENESIS))
            activity_log.record(
                connection, actor, "dataset registered", "dataset", spec.name, policy=values["policy"]
            )
            return _add_version(connection, version_id, dataset_id, 1, spec, actor)
    except IntegrityError:
        raise Conflict(f"there is a dataset {spec.name!r} already") from None


#: What each version of a dataset declares for itself: where its data lies and how it is read.
LAYOUT = ("uri", "text_template", "unit_column", "label_column")


def _add_version(
    connection: Connection, version_id: UUID, dataset_id: UUID, number: int, spec: DatasetSpec, actor: Actor
) -> UUID:
    connection.execute(
        insert(tables.dataset_versions).values(
            id=version_id,
            dataset_id=dataset_id,
            number=number,
            state="checking",
            created_by=actor.id,
            **{field: getattr(spec, field) for field in LAYOUT},
        )
    )
    connection.execute(insert(tables.outbox).values(task="check_dataset", subject=version_id))
    return version_id


#: What another version of data in use may declare: its units are those that the statements name.
VERSION = frozenset(LAYOUT) - {"unit_column"}
CORRECTABLE = frozenset({*LAYOUT, "labels", "max_records_per_unit"})


def correct_dataset(
    engine: Engine, name: str, changes: Mapping[str, Any], actor: Actor, once: Once | None = None
) -> UUID:
    """Declare again a dataset whose data was refused, and have it checked: as its next version.

    `changes`: any of CORRECTABLE. Raises Conflict once any version was found right: what jobs may have
    read stays, and other data of the same people is a new version.
    """
    actor.require("steward")
    _known(changes, CORRECTABLE, "can't be corrected")
    version_id = uuid4()
    with engine.begin() as connection:
        stated = _stated_secrets(connection, name)
        dataset, versions = _locked_dataset(connection, name)
        earlier = idempotency.claim(connection, once, version_id)
        if earlier != version_id:
            return earlier
        if any(version.state != "invalid" for version in versions):
            raise Conflict("the dataset's data is in use or still being checked")
        spec = _declared(dataset, versions[-1], changes)
        if stated is not None:
            check_removal(stated, spec.unit_column)
        values = spec.model_dump(mode="json", include={"unit_column", "labels", "max_records_per_unit"})
        connection.execute(update(tables.datasets).where(tables.datasets.c.id == dataset.id).values(**values))
        activity_log.record(connection, actor, "data corrected", "dataset", name, fields=sorted(changes))
        return _add_version(connection, version_id, dataset.id, len(versions) + 1, spec, actor)


def _stated_secrets(connection: Connection, name: str) -> SecretTerms | None:
    """What is stated about a dataset's secrets; its account is held, as whoever allows something holds it."""
    accounts, datasets = tables.accounts, tables.datasets
    query = select(accounts.c.secret).join(datasets, datasets.c.id == accounts.c.dataset_id)
    found = connection.execute(
        query.where(datasets.c.name == name).with_for_update(of=accounts)
    ).scalar_one_or_none()
    return None if found is None else SecretTerms.from_json(found["terms"])


def add_version(
    engine: Engine, name: str, changes: Mapping[str, Any], actor: Actor, once: Once | None = None
) -> UUID:
    """Add data to a dataset: a version on the same account, with its own layout. Returns its id.

    `changes`: any of VERSION, and `uri` always; what is not given stays as in the newest version in use.
    Jobs asked for once a worker has found it right run on it. Raises Conflict where no version was found
    right yet, and InvalidRequest where the privacy unit would be named by another column, or labels would
    appear or vanish: prices and statements rest on these.
    """
    actor.require("steward")
    _known(changes, VERSION, "is the dataset's, for every version")
    if not changes.get("uri"):
        raise invalid("uri", "is missing", "where the new data lies")
    version_id = uuid4()
    with engine.begin() as connection:
        dataset, versions = _locked_dataset(connection, name)
        earlier = idempotency.claim(connection, once, version_id)
        if earlier != version_id:
            return earlier
        ready = [version for version in versions if version.state == "ready"]
        if not ready:
            raise Conflict("no data of this dataset was found right yet: correct what was refused first")
        there = ready[-1].label_column is not None
        if "label_column" in changes and (changes["label_column"] is not None) != there:
            allowed = "the name of a column" if there else "nothing"
            raise invalid("label_column", "every version of a dataset has one, or none has", allowed)
        # The statements name the dataset's unit: data on visits would break what is said of patients.
        spec = _declared(dataset, ready[-1], {**changes, "unit_column": dataset.unit_column})
        activity_log.record(connection, actor, "data added", "dataset", name, version=len(versions) + 1)
        return _add_version(connection, version_id, dataset.id, len(versions) + 1, spec, actor)


def _known(changes: Mapping[str, Any], fields: frozenset[str], problem: str) -> None:
    unknown = sorted(set(changes) - fields)
    if unknown or not changes:
        raise invalid(unknown[0] if unknown else "body", problem, ", ".join(sorted(fields)))


def _locked_dataset(connection: Connection, name: str) -> tuple[Row[Any], list[Row[Any]]]:
    """A dataset's row, held, and its versions in order. Raises NotFound."""
    dataset = connection.execute(
        select(tables.datasets).where(tables.datasets.c.name == name).with_for_update()
    ).one_or_none()
    if dataset is None:
        raise NotFound("dataset", name)
    query = select(tables.dataset_versions).where(tables.dataset_versions.c.dataset_id == dataset.id)
    return dataset, list(connection.execute(query.order_by(tables.dataset_versions.c.number)))


def _declared(dataset: Row[Any], version: Row[Any], changes: Mapping[str, Any]) -> DatasetSpec:
    """The declaration of a dataset with this version's layout and `changes`, checked as a whole."""
    own = {field: getattr(dataset, field) for field in DatasetSpec.model_fields if field not in LAYOUT}
    return read_dataset({**own, **{field: getattr(version, field) for field in LAYOUT}, **changes})


def version_to_check(engine: Engine, version_id: UUID) -> tuple[Row[Any], Row[Any]] | None:
    """(version, dataset) of a version that waits for its check."""
    versions, datasets = tables.dataset_versions, tables.datasets
    with engine.connect() as connection:
        version = connection.execute(
            select(versions).where(versions.c.id == version_id, versions.c.state == "checking")
        ).one_or_none()
        if version is None:
            return None
        return version, connection.execute(select(datasets).where(datasets.c.id == version.dataset_id)).one()


def dataset_refused(engine: Engine, version_id: UUID, error: str) -> None:
    """A worker could not read the data as it is declared; `identity.claim` says what was found right."""
    versions = tables.dataset_versions
    with engine.begin() as connection:
        connection.execute(
            update(versions)
            .where(versions.c.id == version_id, versions.c.state == "checking")
            .values(state="invalid", error=error)
        )


# --- models -------------------------------------------------------------------------------------


def add_model(
    engine: Engine,
    name: str,
    path: str,
    trained_on: str,
    actor: Actor,
    kind: str = "language",
    once: Once | None = None,
) -> UUID:
    """Register a model; a worker checks its files first. `trained_on` is the steward's declaration.

    `kind`: `language` writes texts, `embedding` places them in a space.
    """
    actor.require("steward")
    problems = []
    if kind not in MODEL_KINDS:
        problems.append(FieldProblem("kind", repr(kind), ", ".join(MODEL_KINDS)))
    if not re.fullmatch(NAME, name):
        problems.append(FieldProblem("name", repr(name), "lower case letters, digits, '.', '_' and '-'"))
    if not path.strip():
        problems.append(FieldProblem("path", "empty", "a folder under a model root, or a hub name"))
    if not trained_on.strip():
        problems.append(FieldProblem("trained_on", "empty", "a sentence: what the model was trained on"))
    if problems:
        raise InvalidRequest(problems)
    model_id = uuid4()
    try:
        with engine.begin() as connection:
            earlier = idempotency.claim(connection, once, model_id)
            if earlier != model_id:
                return earlier
            connection.execute(
                insert(tables.models).values(
                    id=model_id,
                    name=name,
                    kind=kind,
                    path=path,
                    trained_on=trained_on,
                    state="checking",
                    created_by=actor.id,
                )
            )
            connection.execute(insert(tables.outbox).values(task="check_model", subject=model_id))
            activity_log.record(connection, actor, "model registered", "model", name, trained_on=trained_on)
    except IntegrityError:
        raise Conflict(f"there is a model {name!r} already") from None
    return model_id


def model_row(engine: Engine, model_id: UUID) -> Row[Any] | None:
    """A model by id."""
    with engine.connect() as connection:
        return connection.execute(select(tables.models).where(tables.models.c.id == model_id)).one_or_none()


def model_checked(engine: Engine, model_id: UUID, facts: Mapping[str, Any] | None, error: str | None) -> None:
    """A worker has looked at the files: ready with public facts, or an error."""
    models = tables.models
    with engine.begin() as connection:
        connection.execute(
            update(models)
            .where(models.c.id == model_id, models.c.state == "checking")
            .values(
                state="ready" if error is None else "invalid",
                facts=None if facts is None else dict(facts),
                error=error,
            )
        )
