"""The results folder: what jobs published, each file named by its SHA-256, and the drafts of their
attempts.

    ROOT/<sha256>         published: a COMMIT names it
    ROOT/drafts/<name>    of an attempt: sealed under a key of the workers until the COMMIT

No name of a file comes out of a row or a request. On a disk a file is opened below the root's own
descriptor and never through a link. In an object store it is opened below the root's address.
"""

import asyncio
import hashlib
import io
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from tempfile import NamedTemporaryFile
from typing import IO, Any, Protocol
from uuid import UUID

import fsspec
from fsspec.implementations.local import LocalFileSystem

BLOCK_BYTES = 2**16
#: Files whose hashes of blocks are kept, so that a page of a large output reads that page alone.
REMEMBERED = 64
#: What a crash left of a copy is destroyed after this.
COPY_SECONDS = 3600.0
#: Seconds that an S3 server may take for a connection and for a sign of life; how often it is
#: asked; and seconds for all of it: a client that asks for leave to send waits for that for ever.
S3_LIMITS = {"connect_timeout": 2, "read_timeout": 5, "retries": {"total_max_attempts": 1}}
S3_TRIES, S3_SECONDS = 2, 30
#: Of a large file, what is read ahead or sent at once: it must pass within S3_SECONDS.
S3_BLOCK_BYTES = 8 * 2**20
_SHA256 = re.compile(r"[0-9a-f]{64}")
#: Job, lease token, and which of the attempt's files.
_DRAFT = re.compile(r"([0-9a-f-]{36})\.([0-9a-f-]{36})\.[0-9a-z]{1,20}")
_COPY = "copy."
_SAFE = os.O_NOFOLLOW | os.O_CLOEXEC


class Changed(OSError):
    """A file is not what its name says."""


def place_at(address: str, **options: Any) -> tuple[Any, str]:
    """Return the file system of an address and the path in it. Each call of S3 ends in time."""
    if not address.startswith("s3://"):
        place: tuple[Any, str] = fsspec.core.url_to_fs(address, **options)
        return place
    limits = {"config_kwargs": S3_LIMITS, "default_block_size": S3_BLOCK_BYTES}
    system, path = fsspec.core.url_to_fs(address, **limits, **options)

    async def call(*args: Any, **values: Any) -> Any:
        return await asyncio.wait_for(type(system)._call_s3(system, *args, **values), S3_SECONDS)

    system.retries, system._call_s3 = S3_TRIES, call
    system.call_s3 = partial(fsspec.asyn.sync, system.loop, call)
    parts = {"chunksize": S3_BLOCK_BYTES, "max_concurrency": 1}
    system.put_file = partial(fsspec.asyn.sync, system.loop, system._put_file, **parts)
    return system, path


@dataclass(frozen=True)
class Results:
    """The files below `root`: a folder, or an address in an object store."""

    root: str

    @cached_property
    def _store(self) -> "_Store":
        return _store_at(self.root)

    # --- published ------------------------------------------------------------------------------

    def open(self, sha256: str, *, whole: bool = True) -> "Published":
        """Open a published file for reading.

        `whole` compares the whole file first. Without it, only the blocks that are read are
        compared, if this process has seen the file before. Raises FileNotFoundError, Changed or
        another OSError.
        """
        digests = (_digests.__wrapped__ if whole else _digests)(self, sha256)
        return Published(self._read(sha256), digests)

    def _read(self, sha256: str) -> IO[bytes]:
        if not _SHA256.fullmatch(sha256):
            raise FileNotFoundError(f"{sha256[:64]!r} is no SHA-256")
        return self._store.read("", sha256)

    def has(self, sha256: str) -> bool:
        """Return whether a file of this name was published."""
        try:
            self._read(sha256).close()
        except OSError:
            return False
        return True

    def publish(self, sha256: str, content: Callable[[], Iterable[bytes]]) -> None:
        """Write a file under its SHA-256, whole or not at all. Raises Changed if it has another."""
        total = hashlib.sha256()
        for block in content():
            total.update(block)
        if total.hexdigest() != sha256:
            raise Changed("a draft is not what was written")
        with self._store.replace(sha256) as file:
            for block in content():
                file.write(block)

    def facts(self, sha256: str) -> tuple[int, str] | None:
        """Return (bytes, media type) of a published file, or None if it is gone or changed."""
        try:
            with self.open(sha256) as file:
                first, size = file.read(1), file.size
        except OSError:
            return None
        kinds = {b"{": "application/json", b"[": "application/json", b"<": "text/html"}
        return size, kinds.get(first, "application/x-safetensors")

    def problem(self) -> str | None:
        """Return why nothing can be read here now, or None. A folder that nobody made is empty."""
        why = problem_of(self.root)
        return None if why is None else f"results can't be read: {why}"

    # --- drafts ---------------------------------------------------------------------------------

    def drafts(self) -> list[tuple[str, UUID, UUID]]:
        """Return (name, job, lease token) of every draft. Destroys what a crash left of copies."""
        draft_names = []
        for name in self._store.drafts():
            parts = _DRAFT.fullmatch(name)
            with suppress(ValueError):
                if parts is not None:
                    draft_names.append((name, UUID(parts[1]), UUID(parts[2])))
        return draft_names

    def create(
        self, name: str, reserved: int = 0, again: "Again" = lambda _: False
    ) -> AbstractContextManager[IO[bytes]]:
        """Return a block that writes a draft, with room for so many bytes from its beginning.

        `again`: whether it is sent to a store again after this error. It may wait before it says.
        """
        return self._store.create(_checked(name), reserved, again)

    def draft(self, name: str) -> IO[bytes]:
        """Open a draft for reading."""
        return self._store.read(DRAFTS, _checked(name))

    def remove(self, name: str) -> None:
        """Destroy a draft, if it is there."""
        with suppress(FileNotFoundError):
            self._store.remove(_checked(name))


def problem_of(root: str) -> str | None:
    """Return why a folder or an address can't be read now, or None."""
    try:
        _store_at(root).reach()
    except FileNotFoundError:
        return None
    except (ImportError, Changed) as error:
        return str(error)
    except Exception as error:  # of whatever library reads this kind of address
        return type(error).__name__
    return None


def draft_name(job: UUID, token: UUID, part: str) -> str:
    """Return a draft's name for the attempt with this lease token. `part`: which file."""
    return f"{job}.{token}.{part}"


def _checked(name: str) -> str:
    if not _DRAFT.fullmatch(name):
        raise FileNotFoundError(f"{name[:100]!r} is no draft's name")
    return name


# --- reading ------------------------------------------------------------------------------------


@lru_cache(maxsize=REMEMBERED)
def _digests(results: Results, sha256: str) -> tuple[bytes, ...]:
    """Return a published file's block hashes. Raises Changed unless the whole has its name."""
    total, digests = hashlib.sha256(), []
    with results._read(sha256) as file:
        while block := file.read(BLOCK_BYTES):
            total.update(block)
            digests.append(hashlib.sha256(block).digest())
    if total.hexdigest() != sha256:
        raise Changed("the file is not what was published: its bytes changed")
    return tuple(digests)


class Published(io.BufferedReader):
    """A published file, each block compared before it is handed out: it may change meanwhile."""

    def __init__(self, file: IO[bytes], digests: tuple[bytes, ...]) -> None:
        self.size = file.seek(0, os.SEEK_END)
        file.seek(0)
        super().__init__(_Blocks(file, digests), BLOCK_BYTES)


class _Blocks(io.RawIOBase):
    def __init__(self, file: IO[bytes], digests: tuple[bytes, ...]) -> None:
        self._file, self._digests = file, digests
        self._number, self._left = 0, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._left:
            self._left = self._file.read(BLOCK_BYTES)
            digests = [hashlib.sha256(self._left).digest()] if self._left else []
            if digests != list(self._digests[self._number : self._number + 1]):
                raise Changed("the file is not what was published: its bytes changed")
            self._number += 1
        count = min(len(buffer), len(self._left))
        buffer[:count], self._left = self._left[:count], self._left[count:]
        return count

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a place from the beginning of the file."""
        if whence != os.SEEK_SET:
            raise io.UnsupportedOperation("places are counted from the beginning")
        self._number, inside = divmod(offset, BLOCK_BYTES)
        self._file.seek(offset - inside)
        self._left = b""
        self.readinto(bytearray(inside))
        return offset

    def tell(self) -> int:
        return min(self._number * BLOCK_BYTES, self._file.tell()) - len(self._left)

    def close(self) -> None:
        self._file.close()
        super().close()


# --- where files lie ----------------------------------------------------------------------------

DRAFTS = "drafts"


#: Whether something is tried again after an error.
Again = Callable[[Exception], bool]


class _Store(Protocol):
    """A place of files: "" for published ones, and DRAFTS. Results checks names."""

    def read(self, folder: str, name: str) -> IO[bytes]: ...
    def create(
        self, name: str, reserved: int, again: Again
    ) -> AbstractContextManager[IO[bytes]]: ...
    def replace(self, name: str) -> AbstractContextManager[IO[bytes]]: ...
    def remove(self, name: str) -> None: ...
    def drafts(self) -> Iterable[str]: ...
    def reach(self) -> None: ...


def _store_at(root: str) -> _Store:
    system, path = place_at(root, use_listings_cache=False)  # others write here too
    return _Disk(path) if isinstance(system, LocalFileSystem) else _Objects(system, path)


class _Disk:
    def __init__(self, root: str) -> None:
        self._root = root

    @contextmanager
    def _folder(self, name: str = DRAFTS) -> Iterator[int]:
        """Return the descriptor of a folder, below that of the root."""
        root = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        folder = root
        try:
            if name:
                folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | _SAFE, dir_fd=root)
            yield folder
        finally:
            if folder != root:
                os.close(folder)
            os.close(root)

    def read(self, folder: str, name: str) -> IO[bytes]:
        with self._folder(folder) as inside:
            handle = os.open(name, os.O_RDONLY | os.O_NONBLOCK | _SAFE, dir_fd=inside)
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise Changed("it is no file")
        return os.fdopen(handle, "rb")

    @contextmanager
    def create(self, name: str, reserved: int = 0, *_: Again) -> Iterator[IO[bytes]]:
        with self._folder("") as root, suppress(FileExistsError):
            os.mkdir(DRAFTS, dir_fd=root)
        with self._folder() as inside:
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=inside)
            handle = os.open(
                name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE, 0o666, dir_fd=inside
            )
        with os.fdopen(handle, "wb") as file:
            if reserved:
                os.posix_fallocate(handle, 0, reserved)
            yield file
            file.truncate()
            file.flush()
            os.fsync(handle)

    @contextmanager
    def replace(self, name: str) -> Iterator[IO[bytes]]:
        copy = _COPY + secrets.token_hex(16)
        try:
            with self.create(copy) as file:
                yield file
            with self._folder("") as root, self._folder() as inside:
                os.rename(copy, name, src_dir_fd=inside, dst_dir_fd=root)
                os.fsync(root)
        except BaseException:
            with suppress(OSError):
                self.remove(copy)
            raise

    def remove(self, name: str) -> None:
        with self._folder() as inside:
            os.unlink(name, dir_fd=inside)

    def drafts(self) -> Iterable[str]:
        try:
            with self._folder() as inside:
                names = os.listdir(inside)
                for name in (file_name for file_name in names if file_name.startswith(_COPY)):
                    with suppress(FileNotFoundError):
                        if os.stat(name, dir_fd=inside).st_mtime < time.time() - COPY_SECONDS:
                            os.unlink(name, dir_fd=inside)
        except FileNotFoundError:
            return []
        return names

    def reach(self) -> None:
        with self._folder("") as root:
            os.statvfs(root)


class _Objects:
    def __init__(self, system: Any, root: str) -> None:
        self._system, self._root = system, root.rstrip("/")

    def _path(self, name: str, folder: str = DRAFTS) -> str:
        return f"{self._root}/{folder}/{name}" if folder else f"{self._root}/{name}"

    def read(self, folder: str, name: str) -> IO[bytes]:
        file: IO[bytes] = self._system.open(self._path(name, folder), "rb")
        return file

    @contextmanager
    def create(self, name: str, reserved: int, again: Again) -> Iterator[IO[bytes]]:
        if reserved:  # there is no room to keep: that anything can be written at all is seen
            self._system.pipe_file(self._path(name), b"")
        with self._whole(self._path(name), reserved, again) as file:
            yield file

    @contextmanager
    def replace(self, name: str) -> Iterator[IO[bytes]]:
        with self._whole(self._path(name, "")) as file:
            yield file

    @contextmanager
    def _whole(
        self, path: str, reserved: int = 0, again: Again = lambda _: False
    ) -> Iterator[IO[bytes]]:
        """Return a block that writes an object, which is sent only if the block ends well.

        A file of fsspec is sent when an error ends its block too. `reserved`: room in bytes.
        """
        with NamedTemporaryFile() as file:
            if reserved:
                os.posix_fallocate(file.fileno(), 0, reserved)
            yield file
            file.truncate()
            file.flush()
            while True:
                try:
                    self._system.put_file(file.name, path)
                    return
                except Exception as error:  # each store's library has errors of its own
                    if not again(error):
                        raise

    def remove(self, name: str) -> None:
        self._system.rm_file(self._path(name))

    def drafts(self) -> Iterable[str]:
        try:
            listing = self._system.ls(self._path("").rstrip("/"), detail=False)
        except FileNotFoundError:
            return []
        return [path.rsplit("/", 1)[-1] for path in listing]

    def reach(self) -> None:
        bucket = self._root.partition("/")[0]
        try:
            self._system.info(bucket)
        except FileNotFoundError:
            raise Changed("the bucket is not there") from None
        except PermissionError:  # of whom its prefix alone is shown
            self._system.exists(self._root)
