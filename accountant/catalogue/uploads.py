"""Files that stewards send: taken in block by block, checked while they pass, kept by their hash.

    receive ── draft, locked, 0600 ── scanned ── fsync ── Parquet read through by a process of its
            own ── under one lock: row, rename to SHA-256 ──▶ an address, as a dataset declares it

Nothing stays of a file that was refused or broken off: its draft goes with the request, and a draft
whose process was killed is found by its lock. A file that no dataset and no corpus names is
destroyed in time.
"""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import secrets
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, Row, func, select, update
from sqlalchemy.dialects.postgresql import insert as upsert

from accountant import tables
from accountant.core import files
from accountant.core.errors import Conflict, NoRoom, TooLarge
from accountant.core.files.filetypes import Found, Limits, Scanner, check_columns, refused
from accountant.core.files.private import sync_folder
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

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_DRAFT = ".part"
_DRAFT_SECONDS = 60.0  # a younger draft may not be locked yet
_NAMED = re.compile(r"[0-9a-f]{64}\.(csv|jsonl)(\.gz)?|[0-9a-f]{64}\.parquet")

_CHECK = Path(files.__file__).with_name("parquet_check.py")
_CHECK_MEMORY = 3 * 2**30
_CHECK_SECONDS = 120


#: An upload as it is told: see `_view`.
Kept = dict[str, Any]


@dataclass(frozen=True)
class Store:
    """The folder for uploads, their limits, and how long an unused one is kept."""

    folder: Path
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
        return cls(settings.uploads, settings.upload_bytes, limits, settings.upload_hours)


# --- receiving ----------------------------------------------------------------------------------


def receive(
    engine: Engine, store: Store, blocks: Iterable[bytes], actor: Actor, name: str | None = None
) -> Kept:
    """Keep a file; returns what it is, its columns, and the address under which a dataset may name
    it.

    The same bytes make one file, regardless of the sender. `name`: what the sender calls it, for
    display. Memory does not grow with the file. Raises InvalidRequest (field `file`) for what is no
    table of texts or breaks a limit, TooLarge, and NoRoom where the disk is full; none of them
    leaves anything behind.
    """
    actor.require("steward")
    try:
        with _draft(store.folder) as draft:
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
    except OSError as error:
        if error.errno in _FULL:
            raise NoRoom("there is no room left to keep this file") from None
        raise


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


class _Draft:
    """A file on its way in, written without a buffer: what is refused later is not written then."""

    def __init__(self, handle: int, path: Path) -> None:
        self.handle, self.path = handle, path

    def write(self, block: bytes) -> None:
        view = memoryview(block)
        while view:
            view = view[os.write(self.handle, view) :]

    def sync(self) -> None:
        os.fsync(self.handle)


@contextlib.contextmanager
def _draft(folder: Path) -> Iterator[_Draft]:
    """Return a new private file, locked while it is written, and removed unless it is renamed."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / f".{secrets.token_hex(16)}{_DRAFT}"
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield _Draft(handle, path)
    finally:
        path.unlink(missing_ok=True)
        os.close(handle)


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


def _keep(engine: Engine, store: Store, draft: _Draft, file: File, actor: Actor) -> Kept:
    """Name the file by its hash and write its row, so that no sweep comes between."""
    sha256, contents = file.sha256, file.found
    target = store.folder / f"{sha256}{contents.suffix}"
    values = {
        "sha256": sha256,
        "address": str(target),
        "name": file.name,
        "format": contents.format,
        "compression": contents.compression,
        "bytes": file.size,
        "uncompressed_bytes": contents.uncompressed_bytes,
        "columns": list(contents.columns),
        "uploaded_by": actor.id,
    }
    again = {**values, "uploaded_at": func.clock_timestamp(), "removed_at": None}
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
        draft.path.rename(target)
        sync_folder(store.folder)
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
        _remove(connection, Path(row.address), sha256)


def sweep(engine: Engine, store: Store) -> int:
    """Destroy uploads unnamed in time and drafts of killed processes; returns how many."""
    if not store.folder.is_dir():
        return 0
    old = uploads.c.uploaded_at < func.clock_timestamp() - timedelta(hours=store.hours)
    with engine.begin() as connection:
        _lock(connection)
        query = select(uploads.c.sha256, uploads.c.address).where(uploads.c.removed_at.is_(None))
        overdue = connection.execute(query.where(old, ~_claimed())).all()
        for row in overdue:
            with set_aside.apart("upload", row.sha256), connection.begin_nested():
                path = Path(row.address)
                if path.parent != store.folder or not _NAMED.fullmatch(path.name):
                    raise ValueError("no file of this folder")  # the relay could delete others, too
                _remove(connection, path, row.sha256)
        addresses = set(connection.execute(query.with_only_columns(uploads.c.address)).scalars())
        lost = [path for path in store.folder.iterdir() if _is_lost(path, addresses)]
        for path in lost:
            path.unlink(missing_ok=True)
    return len(overdue) + len(lost)


def _remove(connection: Connection, path: Path, sha256: str) -> None:
    path.unlink(missing_ok=True)
    ended = update(uploads).where(uploads.c.sha256 == sha256)
    connection.execute(ended.values(removed_at=func.clock_timestamp()))


def _is_lost(path: Path, known: set[str]) -> bool:
    """Return a draft that nobody holds any more, or a file whose row was never written."""
    try:
        if time.time() - path.stat().st_mtime < _DRAFT_SECONDS:
            return False
        if _NAMED.fullmatch(path.name):
            return str(path) not in known
        if not path.name.endswith(_DRAFT):
            return False
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    except OSError:
        return False
