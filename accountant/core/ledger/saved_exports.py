"""Exports that another program saved: what it put around the text is left out, and told.

A byte-order mark, UTF-16, Windows line ends and blank lines at the end change no entry. Nothing
else is left out.
"""

import codecs
import io
from collections.abc import Iterator
from typing import NamedTuple

from accountant.core.errors import VerificationFailed

_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_UTF32 = (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)
_HEAD = 4
MARK = "a byte-order mark"
WINDOWS = "Windows line ends"
UTF16 = "UTF-16"


class Start(NamedTuple):
    """The beginning of a text: its encoding, and the bytes before the text itself."""

    encoding: str
    skip: int
    added: tuple[str, ...]


def read_start(head: bytes) -> Start:
    """Read the first bytes of a file.

    Raises VerificationFailed for an encoding that is not read.
    """
    if head.startswith(codecs.BOM_UTF8):
        return Start("utf-8", len(codecs.BOM_UTF8), (MARK,))
    if head.startswith(_UTF32) or (b"\0" in head and not head.startswith(_UTF16)):
        raise VerificationFailed("the file is not UTF-8 text: save it as UTF-8, or export it again")
    if head.startswith(_UTF16):
        return Start("utf-16", 0, (UTF16,))
    return Start("utf-8", 0, ())


def blank_lines(count: int) -> str:
    """Return how blank lines at the end are told."""
    return f"{count:,} blank {'line' if count == 1 else 'lines'} at the end"


def text_lines(file: io.BufferedReader, added: list[str]) -> Iterator[str]:
    """Yield the lines of a text as exported; `added` gets what another program put around."""
    start = read_start(file.peek(_HEAD)[:_HEAD])
    file.read(start.skip)
    added.extend(start.added)
    # newline: a return within a line ends it, so that it is no space between two names.
    text = io.TextIOWrapper(file, start.encoding, newline="")
    blank: list[str] = []
    end = "\n"
    for number, line in enumerate(text):
        if not line.strip("\r\n"):
            blank.append(line)
            continue
        if number == 0 and line.startswith("\ufeff"):
            raise VerificationFailed("the file begins with two byte-order marks: export it again")
        if number == 0 and line.endswith("\r\n"):
            added.append(WINDOWS)
            end = "\r\n"
        yield from blank  # between lines they are somebody's change
        blank.clear()
        yield line.removesuffix(end) + "\n" if line.endswith(end) else line
    if blank:
        added.append(blank_lines(len(blank)))
