"""Rows that say what an entry says, made again from it: jobs, artifacts, a dataset's terms and
policy.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Connection, func, insert, select, update
from sqlalchemy.dialects.postgresql import insert as upsert

from accountant import tables
from accountant.core.errors import LogUnusable
from accountant.core.ledger.hash_chain import GENESIS, Entry, EntryKind
from accountant.core.ledger.policy import PEOPLE
from accountant.core.ledger.reservations import read_event, reserved_columns, settled_columns
from accountant.core.ledger.rules import LAYOUT, dataset_columns
from accountant.core.privacy.events import FREE, to_json
from accountant.core.privacy.pld_bounds import quoted
from accountant.ledger_log import sources
from accountant.ledger_log.log import LedgerLog
from accountant.ledger_log.sources import Fingerprint
from accountant.transactions import job_keys, kept_draws
from accountant.transactions.locked_account import LockedAccount

jobs, datasets, versions, users, models = (
    tables.jobs,
    tables.datasets,
    tables.dataset_versions,
    tables.users,
    tables.models,
)

#: (bytes, media type) of what was published under a SHA-256, or None if it is not there any more.
Find = Callable[[str], tuple[int, str] | None]

#: The address of data, or a model, that was lost with what the backup lacks.
LOST = "lost:"
#: What is said of a job that no entry ended when the database was recovered.
LOST_ATTEMPT = (
    "the database was restored from a backup while it was queued or ran: it is charged in full"
)
_UNKNOWN = "recovered from the log outside the database, which does not say it"


@dataclass(frozen=True)
class Sources:
    """What was kept beside the log of data that the backup lacks. `key`: the secret `identity`."""

    log: LedgerLog
    key: bytes | None

    def kept(self, dataset: str, version: int) -> tuple[dict[str, Any], Iterator[Fingerprint]]:
        """Return what was stated of a version, and its fingerprints. Raises LogUnusable."""
        if self.key is None:
            raise LogUnusable(
                "what was kept of data is sealed under the key `identity`, which is not here"
            )
        return sources.kept(self.log, dataset, version, self.key)


def add_dataset(
    connection: Connection, name: str, terms: Mapping[str, Any], actor: str, at: Any
) -> None:
    """The row of a dataset that the backup lacks, as its first REGISTER states it, with an empty
    account.

    Until data of it is found right again it is as one whose data was refused: a steward declares it
    anew.
    """
    dataset_id = uuid4()
    row = dataset_columns(terms) | {"description": _UNKNOWN, "policy": {}, "created_at": at}
    created_by = _person(connection, actor)
    connection.execute(
        insert(datasets).values(id=dataset_id, name=name, created_by=created_by, **row)
    )
    connection.execute(insert(tables.accounts).values(dataset_id=dataset_id, chain_head=GENESIS))
    _unknown_version(connection, dataset_id, 1, created_by)


def _unknown_version(
    connection: Connection, dataset_id: UUID, number: int, created_by: UUID
) -> None:
    row = {"uri": LOST, "text_template": "{text}", "state": "invalid", "error": _UNKNOWN}
    values = {
        "id": uuid4(),
        "dataset_id": dataset_id,
        "number": number,
        "created_by": created_by,
        **row,
    }
    connection.execute(upsert(versions).values(values).on_conflict_do_nothing())


def _elsewhere(locked: LockedAccount, entry: Entry) -> None:
    """The version of data that never comes here: all that there is of it stands in its REGISTER."""
    values = {
        "uri": None,
        "text_template": "{text}",
        "unit_column": entry.body["terms"]["unit_column"],
        "state": "ready",
        "error": None,
        "created_by": _person(locked.connection, entry.actor),
        "created_at": entry.at,
    }
    number = {"dataset_id": locked.dataset_id, "number": entry.body["version"]}
    row = upsert(versions).values(id=uuid4(), **number, **values)
    locked.connection.execute(row.on_conflict_do_update(index_elements=[*number], set_=values))


def _found_right(locked: LockedAccount, register: Mapping[str, Any], kept: Sources) -> None:
    """The version that a REGISTER found right, with the fingerprints of whoever is in it."""
    connection, dataset_id, number = locked.connection, locked.dataset_id, register["version"]
    stated, fingerprints = kept.kept(locked.dataset, number)
    dataset, version = dict(stated["dataset"]), dict(stated["version"])
    version |= {name: register["layout"][name] for name in LAYOUT} | {"data": register["data"]}
    version["unit_column"] = register["terms"]["unit_column"]
    version["created_by"] = _person(connection, version["created_by"])
    dataset["created_by"] = _person(connection, dataset["created_by"])
    for missing in range(1, number):  # refused, or never found right
        _unknown_version(connection, dataset_id, missing, version["created_by"])
    connection.execute(update(datasets).where(datasets.c.id == dataset_id).values(**dataset))
    values = {**version, "state": "ready", "error": None, "shared_with": None}
    row = upsert(versions).values(id=uuid4(), dataset_id=dataset_id, number=number, **values)
    connection.execute(
        row.on_conflict_do_update(index_elements=["dataset_id", "number"], set_=values)
    )
    rows = (
        {"fingerprint": value, "dataset_id": dataset_id, "is_unit": unit}
        for value, unit in fingerprints
    )
    while batch := list(islice(rows, 10_000)):
        connection.execute(upsert(tables.fingerprints).on_conflict_do_nothing(), batch)


def now() -> Any:
    return func.clock_timestamp()


def reserve(locked: LockedAccount, entry: Entry) -> None:
    """The row of a job, as its RESERVE left it; the row must be there before the entry."""
    if entry.kind is not EntryKind.RESERVE:
        return
    connection, body, job_id = locked.connection, entry.body, UUID(entry.job)
    event, approval = read_event(body["event"]), body["approval"]
    delta = body["terms"]["delta"]
    stated = reserved_columns(body) | {
        "event": None if event == FREE else to_json(event),
        "epsilon_alone": None if event == FREE else quoted(event, delta)[0],
        "model_id": None if body["model"] is None else _model(connection, body["model"]["name"]),
        "state": "queued",
        "attempt": 1,
        "queued_at": entry.at,
        "refusal": None,
        "finished_at": None,
    }
    if approval is not None:
        stated |= {"decided_by": _person(connection, approval["by"]), "decided_at": entry.at}
    row = {
        "id": job_id,
        "dataset_id": locked.dataset_id,
        "version_id": _version(connection, locked.dataset_id, body["source"].get("version")),
        "analyst_id": _person(connection, entry.actor),
        "purpose": _UNKNOWN,
        "breakdown": [_UNKNOWN],
        "request_sha256": "0" * 64,
        "created_at": entry.at,
        **stated,
    }
    connection.execute(
        upsert(jobs).values(row).on_conflict_do_update(index_elements=["id"], set_=stated)
    )


def _person(connection: Connection, name: str) -> UUID:
    """Return the account of this name. A missing one is made again, closed, without a role."""
    values = {"id": uuid4(), "name": name, "roles": [], "active": False}
    connection.execute(upsert(users).values(values).on_conflict_do_nothing())
    person_id: UUID = connection.execute(
        select(users.c.id).where(users.c.name == name)
    ).scalar_one()
    return person_id


def _model(connection: Connection, name: str) -> UUID:
    """Return the model of this name. A missing one is made again, unusable."""
    steward = connection.execute(
        select(users.c.id).order_by(users.c.created_at).limit(1)
    ).scalar_one()
    values = {"id": uuid4(), "name": name, "path": LOST, "trained_on": _UNKNOWN, "state": "invalid"}
    values |= {"error": _UNKNOWN, "created_by": steward}
    connection.execute(upsert(models).values(values).on_conflict_do_nothing())
    model_id: UUID = connection.execute(
        select(models.c.id).where(models.c.name == name)
    ).scalar_one()
    return model_id


def _version(connection: Connection, dataset_id: UUID, number: int | None) -> UUID:
    """Return the version that a job read; of a job that read none, the newest."""
    query = select(versions.c.id).where(versions.c.dataset_id == dataset_id)
    if number is not None:
        query = query.where(versions.c.number == number)
    version_id: UUID = connection.execute(
        query.order_by(versions.c.number.desc()).limit(1)
    ).scalar_one()
    return version_id


def follow(locked: LockedAccount, entry: Entry, find: Find, kept: Sources) -> None:
    """Write the rows that an entry changes: of the job that it ends, or of its dataset."""
    connection, body = locked.connection, entry.body
    match entry.kind:
        case EntryKind.REGISTER:
            terms = dataset_columns(body["terms"])
            connection.execute(
                update(datasets).where(datasets.c.id == locked.dataset_id).values(**terms)
            )
            if "layout" in body:
                _found_right(locked, body, kept)
            elif body["version"] is not None:
                _elsewhere(locked, entry)
        case EntryKind.POLICY:
            for each in {name for field in PEOPLE for name in body["policy"][field]}:
                # nobody else may come by this name, and with it by its rights
                _person(connection, each)
            ruled = update(datasets).where(datasets.c.id == locked.dataset_id)
            connection.execute(ruled.values(policy=body["policy"]))
        case EntryKind.COMMIT:
            _ended(connection, entry, **_committed(connection, entry, find))
        case EntryKind.VOID:
            _ended(connection, entry, failure=body["reason"], reading_began_at=None)


def _ended(connection: Connection, entry: Entry, **columns: Any) -> None:
    job_id = UUID(entry.job)
    job_keys.forget(connection, job_id)
    kept_draws.forget(connection, job_id)
    parts = tables.parts
    connection.execute(
        update(parts)
        .where(parts.c.job_id == job_id)
        .values(
            state="stopped", lease_token=None, lease_expires=None, draft=None, staged_sha256=None
        )
        .values(realized=None, realized_ex_post=None, ex_post_curve=None)
    )
    ended = settled_columns(entry.body) | {"finished_at": entry.at, **columns}
    connection.execute(update(jobs).where(jobs.c.id == job_id).values(**ended))


def _committed(connection: Connection, entry: Entry, find: Find) -> dict[str, Any]:
    body, job_id = entry.body, UUID(entry.job)
    began = func.least(func.coalesce(jobs.c.reading_began_at, entry.at), entry.at)
    columns: dict[str, Any] = {
        "reading_began_at": began if body["read"] else None,
        "failure": None if body["outcome"] == "succeeded" else _UNKNOWN,
    }
    for artifact in body.get("artifacts", ()):
        size, media = find(artifact["sha256"]) or (0, "application/json")
        row = {
            "job_id": job_id,
            "name": artifact["name"],
            "kind": artifact["kind"],
            "sha256": artifact["sha256"],
        }
        connection.execute(insert(tables.artifacts).values(**row, media_type=media, size=size))
    return columns


def close_decisions(connection: Connection, dataset_id: UUID) -> None:
    """Expire the backup's open decisions: they may stand in entries already, accepted."""
    decisions = tables.decisions
    opened = update(decisions).where(
        decisions.c.dataset_id == dataset_id, decisions.c.state == "open"
    )
    connection.execute(opened.values(state="expired", answered_at=now()))
