"""Files that stewards send: taken in block by block, checked while they pass, kept by their hash.

    receive ── private draft ── scanned ── fsync ── Parquet read through by a process of its own
            ── under one lock: row, name by SHA-256 ──▶ an address, as a dataset declares it

Nothing stays of a file that was refused or broken off (upload_places.py). A file that no dataset
and no corpus names is destroyed in time.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, Row, func, select, update
from sqlalchemy.dialects.postgresql import insert as upsert

from accountant import tables
from accountant.catalogue.upload_places import Draft, Place, is_named, place_of, remove
from accountant.core import files
from accountant.core.errors import Conflict, TooLarge
from accountant.core.files.filetypes import Found, Limits, Scanner, check_columns, refused
from accountant.identities import activity_log
from accountant.identities.actor import Actor
from accountant.settings import Settings
from accountant.tables import paging
from accountant.tables.lookup import one
from accountant.transactions import set_aside

uploads, versions, corpora = tables.uploads, tables.dataset_versions, tables.corpora

#: The advisory lock under which files get and lose their names, so that none goes while it is
#: claimed.
_LOCK = 0x6578_7570

#: Characters of a file's name that are kept.
MOST_NAME = 200

_CHECK = Path(files.__file__).with_name("parquet_check.py")
_CHECK_MEMORY = 3 * 2**30
_CHECK_SECONDS = 120


#: An upload as it is told: see `_view`.
Kept = dict[str, Any]


@dataclass(frozen=True)
class Store:
    """The place of uploads, their limits, and how long an unused one is kept."""

    place: Place
    most_bytes: int
    limits: Limits
    hours: float

    @classmethod
    def of(cls, settings: Settings) -> "Store":
        """Return the store of these settings."""
        limits = Limits(
            settings.upload_uncompressed_bytes,
            settings.upload_ratio,
            settings.upload_line_bytes,
            settings.upload_columns,
        )
        return cls(place_of(settings.uploads), settings.upload_bytes, limits, settings.upload_hours)


# --- receiving ----------------------------------------------------------------------------------


def receive(
    engine: Engine, store: Store, blocks: Iterable[bytes], actor: Actor, name: str | None = None
) -> Kept:
    """Keep a file; returns what it is, its columns, and the address under which a dataset may name
    it.

    The same bytes make one file, regardless of the sender. `name`: what the sender calls it, for
    display. Memory does not grow with the file. Raises InvalidRequest (field `file`) for what is no
    table of texts or breaks a limit, TooLarge, NoRoom where the place is full, and UploadsAway;
    none of them leaves anything behind.
    """
    actor.require("steward")
    with store.place.draft() as draft:
        scanner, total, size = Scanner(store.limits), hashlib.sha256(), 0
        for block in blocks:
            size += len(block)
            if size > store.most_bytes:
                raise TooLarge(f"an upload may be at most {store.most_bytes:,} bytes")
            total.update(block)
            scanner.feed(block)
            draft.write(block)
        contents = scanner.finish()
        draft.sync()
        if contents.format == "parquet":
            contents = _read_parquet(draft.handle, store, size)
        file = File(total.hexdigest(), size, shown_name(name), contents)
        return _keep(engine, store, draft, file, actor)


@dataclass(frozen=True)
class File:
    """A file that was taken in whole: its hash, its bytes, its name for display and what it is."""

    sha256: str
    size: int
    name: str | None
    found: Found


def shown_name(name: str | None) -> str | None:
    """Return the last part of a file's name without what can't be shown, or None if it is empty."""
    last = re.split(r"[/\\]", name or "")[-1]
    return "".join(letter for letter in last if letter.isprintable()).strip()[:MOST_NAME] or None


def _read_parquet(handle: int, store: Store, size: int) -> Found:
    """Return the columns of a Parquet file, read by a process with bounded memory and time."""
    if find_spec("pyarrow") is None:
        raise refused("is Parquet, which this server does not read: send CSV or JSON Lines")
    most = min(store.limits.uncompressed_bytes, max(2**20, store.limits.ratio * size))
    limits = {
        "memory": _CHECK_MEMORY,
        "seconds": _CHECK_SECONDS,
        "bytes": most,
        "columns": store.limits.columns,
    }
    os.lseek(handle, 0, os.SEEK_SET)
    try:
        ended = subprocess.run(
            [sys.executable, "-I", str(_CHECK), json.dumps(limits)],
            stdin=handle,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # it may quote the file
            timeout=4 * _CHECK_SECONDS,
            env={"ARROW_DEFAULT_MEMORY_POOL": "system", "OMP_NUM_THREADS": "1"},
            check=False,
        )
        answer = json.loads(ended.stdout)
    except (subprocess.TimeoutExpired, ValueError):
        answer = {"problem": "can't be read as Parquet within the memory and time that a check has"}
    if "problem" in answer:
        raise refused(str(answer["problem"]))
    check_columns(answer["columns"], store.limits.columns)
    return Found("parquet", None, tuple(answer["columns"]), int(answer["bytes"]))


def _keep(engine: Engine, store: Store, draft: Draft, file: File, actor: Actor) -> Kept:
    """Name the file by its hash and write its row, so that no sweep comes between."""
    sha256, contents = file.sha256, file.found
    stored_name = f"{sha256}{contents.suffix}"
    values = {
        "sha256": sha256,
        "address": store.place.address(stored_name),
        "name": file.name,
        "format": contents.format,
        "compression": contents.compression,
        "bytes": file.size,
        "uncompressed_bytes": contents.uncompressed_bytes,
        "columns": list(contents.columns),
        "uploaded_by": actor.id,
    }
    again = {**values, "uploaded_at": func.clock_timestamp(), "removed_at": None}
    store.place.send(draft, stored_name)
    with engine.begin() as connection:
        _lock(connection)
        connection.execute(
            upsert(uploads)
            .values(values)
            .on_conflict_do_update(index_elements=["sha256"], set_=again)
        )
        activity_log.record(
            connection, actor, "file uploaded", "upload", sha256, format=contents.format
        )
        store.place.keep(draft, stored_name)
    return show(engine, store, sha256, actor)


def _lock(connection: Connection) -> None:
    connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))


# --- reading ------------------------------------------------------------------------------------


def listing(
    engine: Engine, store: Store, viewer: Actor, *, limit: int = 50, after: paging.After = None
) -> list[Kept]:
    """Return a steward's uploads, newest first; `after` is (uploaded_at, sha256)."""
    viewer.require("steward")
    query = paging.window(_query(viewer), [uploads.c.uploaded_at, uploads.c.sha256], limit, after)
    with engine.connect() as connection:
        return [_view(store, row) for row in connection.execute(query)]


def show(engine: Engine, store: Store, sha256: str, viewer: Actor) -> Kept:
    """Return one upload of a steward's own. Raises NotFound."""
    viewer.require("steward")
    with engine.connect() as connection:
        row = one(
            connection, _query(viewer).where(uploads.c.sha256 == sha256), "upload", sha256[:64]
        )
    return _view(store, row)


def _query(viewer: Actor) -> Any:
    users = tables.users
    named = select(func.array_agg(tables.datasets.c.name.distinct())).where(
        tables.datasets.c.id == versions.c.dataset_id, _names(versions)
    )
    return (
        select(
            uploads,
            users.c.name.label("uploader"),
            named.correlate(uploads).scalar_subquery().label("datasets"),
            _claimed().label("claimed"),
        )
        .join(users, users.c.id == uploads.c.uploaded_by)
        .where(uploads.c.removed_at.is_(None), uploads.c.uploaded_by == viewer.id)
    )


def _names(table: Any) -> Any:
    return table.c.uri.in_([uploads.c.address, func.concat("file://", uploads.c.address)])


def _claimed() -> Any:
    """Return the condition that a dataset or a corpus names the file."""
    by_dataset, by_corpus = (
        select(table.c.id).where(_names(table)).correlate(uploads).exists()
        for table in (versions, corpora)
    )
    return by_dataset | by_corpus


def _view(store: Store, row: Row[Any]) -> Kept:
    expires = None if row.claimed else (row.uploaded_at + timedelta(hours=store.hours)).isoformat()
    shown = (
        "address",
        "name",
        "sha256",
        "format",
        "compression",
        "bytes",
        "uncompressed_bytes",
        "columns",
    )
    return {
        **{name: getattr(row, name) for name in shown},
        "uploaded_by": row.uploader,
        "uploaded_at": row.uploaded_at.isoformat(),
        "datasets": sorted(row.datasets or ()),
        "expires_at": expires,
    }


# --- destroying ---------------------------------------------------------------------------------


def discard(engine: Engine, sha256: str, actor: Actor) -> None:
    """Destroy one's own upload. Raises NotFound, and Conflict if a dataset names it."""
    actor.require("steward")
    with engine.begin() as connection:
        _lock(connection)
        query = select(uploads.c.address, _claimed().label("claimed"))
        same_file = (uploads.c.sha256 == sha256, uploads.c.uploaded_by == actor.id)
        stored = query.where(*same_file, uploads.c.removed_at.is_(None))
        row = one(connection, stored, "upload", sha256[:64])
        if row.claimed:
            raise Conflict("a dataset or corpus was registered with this file")
        activity_log.record(connection, actor, "file destroyed", "upload", sha256)
        _remove(connection, row.address, sha256)


def sweep(engine: Engine, store: Store) -> int:
    """Destroy uploads unnamed in time and drafts of killed processes; returns how many."""
    held = store.place.names()
    if held is None:
        return 0
    old = uploads.c.uploaded_at < func.clock_timestamp() - timedelta(hours=store.hours)
    with engine.begin() as connection:
        _lock(connection)
        query = select(uploads.c.sha256, uploads.c.address).where(uploads.c.removed_at.is_(None))
        overdue = connection.execute(query.where(old, ~_claimed())).all()
        for row in overdue:
            with set_aside.apart("upload", row.sha256), connection.begin_nested():
                name = row.address.rpartition("/")[2]
                if row.address != store.place.address(name) or not is_named(name):
                    raise ValueError("no file of this place")  # the relay could delete others, too
                _remove(connection, row.address, row.sha256)
        known = set(connection.execute(query.with_only_columns(uploads.c.address)).scalars())
        unknown = [name for name in held if store.place.address(name) not in known]
        lost = [name for name in unknown if store.place.is_lost(name)]
        for name in lost:
            remove(store.place.address(name))
    return len(overdue) + len(lost)


def _remove(connection: Connection, address: str, sha256: str) -> None:
    remove(address)
    ended = update(uploads).where(uploads.c.sha256 == sha256)
    connection.execute(ended.values(removed_at=func.clock_timestamp()))
