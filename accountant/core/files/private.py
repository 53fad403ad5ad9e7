"""Files that must be on the disk, and small ones that are for their owner alone, such as keys."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def sync_folder(folder: Path) -> None:
    """Put on the disk which files a folder has."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def private_draft(path: Path, text: str) -> Iterator[Path]:
    """Write a text beside `path` and onto the disk, and yield the file, to be linked or renamed to
    `path`.

    The draft is removed at the end. Raises OSError with the name of `path`, which is then as it
    was.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        try:
            with os.fdopen(
                os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w"
            ) as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from None
        yield draft
    finally:
        draft.unlink(missing_ok=True)
