"""Where data may be opened: addresses under configured roots, out of which no link leads, and their files."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from urllib.parse import unquote

import fsspec
from fsspec.implementations.local import LocalFileSystem

from accountant.core.errors import DataError

FORMATS = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
COMPRESSIONS = (".gz", ".bz2", ".xz", ".zst")


def check_address(uri: str, roots: list[str]) -> str:
    """The address, if it lies under a configured root. Raises DataError otherwise."""
    if "::" in uri:  # fsspec would take it apart, and open another file than the one that is checked here
        raise DataError("the address chains file systems with '::', which this service does not read")
    if "://" in uri and not uri.startswith("file://"):
        for root in roots:
            if uri.startswith(root.rstrip("/") + "/") and ".." not in unquote(uri):
                return uri
        raise DataError("the address is not under a data root that this service may read")
    path = Path(uri.removeprefix("file://")).resolve()
    for root in roots:
        if "://" not in root and path.is_relative_to(Path(root).resolve()):
            return str(path)
    raise DataError("the file is not under a data root that this service may read")


#: The addresses that this thread may open now; None: any. What a job without records is held to.
_allowed: ContextVar[frozenset[str] | None] = ContextVar("allowed", default=None)


@contextmanager
def only(addresses: Iterable[str]) -> Iterator[None]:
    """Within this context, data is opened at these addresses and nowhere else."""
    before = _allowed.set(frozenset(addresses))
    try:
        yield
    finally:
        _allowed.reset(before)


def files(address: str) -> list[str]:
    """The files at an address, in order. Raises DataError if there are none, or if they may not be opened."""
    allowed = _allowed.get()
    if allowed is not None and address not in allowed:
        raise DataError("a job that reads no records tried to open data that it does not name")
    system, path = fsspec.core.url_to_fs(address)
    if system.isdir(path):
        found = sorted(name for name in system.find(path) if format_of(name) is not None)
        if not found:
            raise DataError("the folder has no CSV, JSON Lines or Parquet file")
        if isinstance(system, LocalFileSystem):
            _stay_within(path, found)
        return [system.unstrip_protocol(name) for name in found]
    if not system.exists(path):
        raise DataError("there is no such file")
    return [address]


def check_reachable(address: str) -> None:
    """Look whether the files at an address may be read, and open none. Raises DataError if not."""
    try:
        found = files(address)
    except DataError:
        raise
    except Exception as error:  # each file system has its own; their texts name the address
        raise DataError(f"the data's address can't be reached ({type(error).__name__})") from None
    for name in found:
        system, path = fsspec.core.url_to_fs(name)
        if isinstance(system, LocalFileSystem) and not os.access(path, os.R_OK):
            raise DataError("the worker may not read the data at its address")


def _stay_within(folder: str, found: list[str]) -> None:
    """Raise DataError where a file of a folder is a link to elsewhere: the folder was checked, not that."""
    inside = Path(folder).resolve()
    if not all(Path(name).resolve().is_relative_to(inside) for name in found):
        raise DataError("a link in the folder leads out of it")


def format_of(name: str) -> str | None:
    """The format that a file's name tells, compressed or not; None: none of FORMATS."""
    path = Path(name.lower())
    while path.suffix in COMPRESSIONS:
        path = path.with_suffix("")
    return FORMATS.get(path.suffix)
