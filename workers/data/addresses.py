"""Where data may be opened: addresses under configured roots, out of which no link leads, and their
files.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from urllib.parse import unquote

import fsspec
from fsspec.implementations.local import LocalFileSystem

from accountant.core.errors import DataError
from workers.data.folders import data_files
from workers.data.folders import format_of as format_of  # noqa: PLC0414


def check_address(uri: str, roots: list[str]) -> str:
    """Return the address, if it lies under a configured root. Raises DataError otherwise."""
    # fsspec would take it apart, and open another file than the one that is checked here
    if "::" in uri:
        raise DataError(
            "the address chains file systems with '::', which this service does not read"
        )
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
    """Return the data files at an address, in order. Raises DataError without allowed ones."""
    allowed = _allowed.get()
    if allowed is not None and address not in allowed:
        raise DataError("a job that reads no records tried to open data that it does not name")
    system, path = fsspec.core.url_to_fs(address)
    if system.isdir(path):
        top = path.rstrip("/")
        local = isinstance(system, LocalFileSystem)
        try:
            every = system.find(top, **({"on_error": "raise"} if local else {}))
        except OSError as error:
            raise DataError(
                f"the folder can't be listed as a whole: {type(error).__name__}"
            ) from None
        paths = [
            f"{top}/{name}" for name in data_files(name.removeprefix(f"{top}/") for name in every)
        ]
        if local:
            _stay_within(top, every)
        return [system.unstrip_protocol(name) for name in paths]
    if not system.exists(path):
        raise DataError("there is no such file")
    return [address]


def check_reachable(address: str) -> None:
    """Look whether the files at an address may be read, and open none. Raises DataError if not."""
    try:
        paths = files(address)
    except DataError:
        raise
    except Exception as error:  # each file system has its own; their texts name the address
        raise DataError(f"the data's address can't be reached ({type(error).__name__})") from None
    for name in paths:
        system, path = fsspec.core.url_to_fs(name)
        if isinstance(system, LocalFileSystem) and not os.access(path, os.R_OK):
            raise DataError("the worker may not read the data at its address")


def names(address: str, found: list[str]) -> list[str]:
    """Return the paths of the files in the folder at an address; "" for a single file."""
    if found == [address]:
        return [""]
    system, path = fsspec.core.url_to_fs(address)
    top = system.unstrip_protocol(path.rstrip("/")) + "/"
    return [name.removeprefix(top) for name in found]


def _stay_within(folder: str, found: list[str]) -> None:
    """Raise DataError if a folder's link leads out of it, or to a folder (not listed)."""
    inside = Path(folder).resolve()
    if not all(Path(name).resolve().is_relative_to(inside) for name in found):
        raise DataError("a link in the folder leads out of it")
    if any(Path(name).is_dir() for name in found):
        raise DataError("a link in the folder leads to a folder: put the files themselves there")
