"""Signed checkpoints of live ledgers, and the keys that sign them.

A checkpoint is made with every export and on demand; at one entry, one key signs once. The secret
is 32 bytes, `settings.secret("checkpoint")`: a file of mode 0600 or the environment. Its public key
enters the table when it first signs; every later one is introduced by the key before it.

Where the process that is asked has no right to sign, another does (workers.jobs.signer): what is
passed on to it is the number of an entry, and what it signs are the balances that it replays by
itself.
"""

import json
import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, Row, delete, func, insert, select
from sqlalchemy.dialects.postgresql import insert as upsert

from accountant import tables
from accountant.core.errors import Conflict, SignerSilent
from accountant.core.ledger.checkpoints import introduction, key_id, public_key, sign
from accountant.database import reading
from accountant.tables import paging

#: In place of the secret: the key is another process's.
ELSEWHERE = b""
#: How long that process may take, and how often is looked.
ANSWER_SECONDS = 20.0
_LOOK_SECONDS = 0.05

#: Serialises introductions with signatures: a key never signs after it was replaced.
_LOCK = 0x6578_6368_6571


def make(
    engine: Engine,
    dataset_id: UUID,
    dataset: str,
    seq: int,
    head: str,
    balances: Mapping[str, Any],
    seed: bytes,
) -> dict[str, Any]:
    """Sign what a dataset's ledger was at entry `seq`, or give back what was signed there before.

    The caller read head and public balances in one snapshot. Raises Conflict where the key was
    replaced or never introduced. Raises SignerSilent where it is another process's and that one
    does not answer.
    """
    if seed == ELSEWHERE:
        return _asked(engine, dataset_id, seq)
    table = tables.checkpoints
    with engine.begin() as connection:
        connection.execute(select(func.pg_advisory_xact_lock_shared(_LOCK)))
        keys = _signing(connection, seed)
        key = key_id(public_key(seed))
        query = select(table.c.document).where(
            table.c.dataset_id == dataset_id, table.c.seq == seq, table.c.key_id == key
        )
        found = connection.execute(query).scalar_one_or_none()
        if found is None:
            # Not before the entry that it covers, where the clock was set back.
            entries = tables.entries
            written = select(entries.c.at).where(
                entries.c.dataset_id == dataset_id, entries.c.seq == seq
            )
            now = func.greatest(func.clock_timestamp(), written.scalar_subquery())
            at = connection.execute(select(now)).scalar_one()
            made = sign(dataset, seq, head, balances, at, seed, keys)
            row = {
                "dataset_id": dataset_id,
                "seq": seq,
                "key_id": key,
                "at": at,
                "document": json.dumps(made),
            }
            connection.execute(upsert(table).values(row).on_conflict_do_nothing())
            found = connection.execute(query).scalar_one()
        document: dict[str, Any] = json.loads(found)
        return document


# --- the process that signs, and those that ask it ----------------------------------------------


@lru_cache(maxsize=4)
def signs_here(engine: Engine) -> bool:
    """Return True if this process's database role may write checkpoints."""
    with engine.connect() as connection:
        may = select(func.has_table_privilege("checkpoints", "INSERT"))
        return bool(connection.execute(may).scalar_one())


def _asked(engine: Engine, dataset_id: UUID, seq: int) -> dict[str, Any]:
    """Ask the process that signs for a checkpoint at an entry, and wait for it."""
    requests, table, keys = tables.checkpoint_requests, tables.checkpoints, tables.signing_keys
    newest = select(keys.c.id).order_by(keys.c.introduced_at.desc()).limit(1).scalar_subquery()
    query = select(table.c.document).where(
        table.c.dataset_id == dataset_id, table.c.seq == seq, table.c.key_id == newest
    )
    with engine.begin() as connection:
        found = connection.execute(query).scalar_one_or_none()
        if found is None:
            wanted = upsert(requests).values(dataset_id=dataset_id, seq=seq)
            connection.execute(wanted.on_conflict_do_nothing())
    ends = time.monotonic() + ANSWER_SECONDS
    while found is None:
        if time.monotonic() > ends:
            raise SignerSilent
        time.sleep(_LOOK_SECONDS)
        with engine.connect() as connection:
            found = connection.execute(query).scalar_one_or_none()
    document: dict[str, Any] = json.loads(found)
    return document


def wanted(engine: Engine) -> list[tuple[UUID, int]]:
    """(dataset, entry) of the checkpoints that are asked for, the oldest request first."""
    requests = tables.checkpoint_requests
    query = select(requests.c.dataset_id, requests.c.seq).order_by(requests.c.at)
    with engine.connect() as connection:
        return [(row.dataset_id, row.seq) for row in connection.execute(query)]


def silence(engine: Engine) -> float:
    """Return seconds that the oldest request has waited for the process that signs; 0: none."""
    age = func.extract("epoch", func.clock_timestamp() - func.min(tables.checkpoint_requests.c.at))
    with engine.connect() as connection:
        return float(connection.execute(select(age)).scalar_one() or 0)


def answered(engine: Engine, dataset_id: UUID, seq: int) -> None:
    """Take a request away: it is signed, or can't be."""
    requests = tables.checkpoint_requests
    with engine.begin() as connection:
        connection.execute(
            delete(requests).where(requests.c.dataset_id == dataset_id, requests.c.seq == seq)
        )


def listed(
    connection: Connection, dataset_id: UUID, limit: int | None, after: paging.After = None
) -> list[dict[str, Any]]:
    """Return checkpoint files of a dataset, newest first."""
    table = tables.checkpoints
    query = select(table.c.document).where(table.c.dataset_id == dataset_id)
    rows = connection.execute(
        paging.window(query, [table.c.seq, table.c.at, table.c.key_id], limit, after)
    )
    return [json.loads(text) for text in rows.scalars()]


# --- keys ---------------------------------------------------------------------------------------


def keys(engine: Engine, seed: bytes) -> list[dict[str, Any]]:
    """Return every public key with its introduction, oldest first; the first use of the first key
    enters it.

    `seed` ELSEWHERE: those that the process that signs has introduced by now.
    """
    with reading(engine) as connection:
        rows = _rows(connection)
    if not rows and seed != ELSEWHERE:
        with engine.begin() as connection:
            connection.execute(select(func.pg_advisory_xact_lock_shared(_LOCK)))
            _signing(connection, seed)
            rows = _rows(connection)
    return [row.document for row in rows]


def rotate(engine: Engine, old: bytes, new: bytes) -> str:
    """Introduce the key of the secret `new`, signed by the one in use; returns its id.

    From now on `old` signs nothing any more. Raises Conflict where `old` is not in use.
    """
    with engine.begin() as connection:
        connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))
        _signing(connection, old)
        return _introduce(connection, new, old)


def in_use(engine: Engine, seed: bytes) -> bool:
    """Return True if this secret's key is the newest one."""
    with engine.connect() as connection:
        rows = _rows(connection)
        return bool(rows) and rows[-1].id == key_id(public_key(seed))


def _rows(connection: Connection) -> list[Row[Any]]:
    return list(
        connection.execute(
            select(tables.signing_keys).order_by(tables.signing_keys.c.introduced_at)
        )
    )


def _signing(connection: Connection, seed: bytes) -> list[dict[str, Any]]:
    """Return the introductions up to the key of `seed`, which must be the one in use."""
    rows = _rows(connection)
    if not rows:
        _introduce(connection, seed, None)
        rows = _rows(connection)
    if rows[-1].id != key_id(public_key(seed)):
        raise Conflict(
            f"this server's signing key is not the one in use, {rows[-1].id}: "
            "`exchequer key rotate` introduces a new one"
        )
    return [row.document for row in rows]


def _introduce(connection: Connection, seed: bytes, old: bytes | None) -> str:
    at = connection.execute(select(func.clock_timestamp())).scalar_one()
    document = introduction(public_key(seed), at, old)
    row = {
        "id": document["key"]["id"],
        "introduced_by": document["key"]["introduced_by"] or "",
        "introduced_at": at,
        "document": document,
    }
    statement = insert(tables.signing_keys) if old is not None else upsert(tables.signing_keys)
    if old is None:  # two processes may sign for the first time together: they have one key
        statement = upsert(tables.signing_keys).on_conflict_do_nothing()
    connection.execute(statement.values(row))
    return str(row["id"])
