"""Output of the commands: results on standard output, everything else on standard error.

With --json, standard output holds one JSON document and nothing else, and notes are for terminals
only.
"""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from accountant.core.errors import ExchequerError, FieldProblem, InvalidRequest, invalid
from web.client.files import draft

REFUSED, BAD_INPUT, UNREACHABLE, STILL_WAITING = 1, 2, 3, 4

# Markup is off: a text of a dataset or of a server is printed as it is, never read as a style.
out = Console(markup=False, highlight=False, emoji=False)
err = Console(markup=False, highlight=False, emoji=False, stderr=True)


class Failed(ExchequerError):
    """A command that was understood and did not succeed; the text says what to do next."""

    code = "failed"


class Mode:
    """The output mode of a command; set when it starts."""

    json = False


def printable(text: object) -> str:
    """Return the text without control characters, which a terminal would obey."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in str(text))


def minute(at: str | None) -> str | None:
    """Return a time of the server to the minute, as people read it; the server's times are UTC."""
    return at and at[:16].replace("T", " ")


def say(text: str = "", style: str | None = None) -> None:
    """A line on standard output, not wrapped where a program reads it."""
    out.print(printable(text), style=style, soft_wrap=not out.is_terminal)


def note(text: str) -> None:
    """Print a line on standard error, but not to a program that asked for JSON."""
    if Mode.json and not err.is_terminal:
        return
    err.print(printable(text), style="dim", soft_wrap=True)


def complain(text: str) -> None:
    """An error on standard error."""
    err.print(f"exchequer: {printable(text)}", style="red", soft_wrap=True)


def print_json(value: Any) -> None:
    """One JSON document, for programs: never wrapped, never coloured."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, right: str = "", whole: str = ""
) -> Table:
    """Return a table. Columns in `right` hold figures; those in `whole` are never cut."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, collapse_padding=True)
    for name in columns:
        figures = name in right.split()
        table.add_column(
            name,
            justify="right" if figures else "left",
            overflow="fold",
            no_wrap=figures or name in whole.split(),
        )
    for row in rows:
        table.add_row(*("–" if cell is None else printable(cell) for cell in row))
    return table


def facts(pairs: Iterable[tuple[str, object]]) -> Table:
    """Return names and values, one pair a line."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in pairs:
        table.add_row(name, "–" if value is None else printable(value))
    return table


def print_error(value: Any) -> None:
    """One JSON document on standard error."""
    sys.stderr.write(
        json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False, default=str) + "\n"
    )


def stop(code: int) -> NoReturn:
    """End the command."""
    raise typer.Exit(code)


# --- files --------------------------------------------------------------------------------------


def save(target: str, write: Callable[[BinaryIO], object]) -> None:
    """Let `write` fill the file `target`, or standard output for "-".

    The file appears under its name only when it is whole.
    """
    if target == "-":
        write(sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return
    path = Path(target)
    with _draft(path) as file:
        write(file)


def save_json(target: str, document: Any) -> None:
    """One JSON document as a file."""
    text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    save(target, lambda file: file.write(text.encode()))


@contextmanager
def _draft(path: Path) -> Iterator[BinaryIO]:
    if path.exists() and not path.is_file():  # a device or a pipe can't be replaced
        if path.is_dir():
            raise invalid("-o", f"{path} is a folder", "the name of a file")
        with path.open("wb") as file:
            yield file
        return
    try:
        with draft(path) as file:
            yield file
    except OSError as error:
        problem = f"{path} can't be written ({error.strerror})"
        raise invalid("-o", problem, "a file in an existing folder that you may write to") from None


def read_text(path: str, field: str) -> str:
    """Return the text of a file. Raises InvalidRequest if it can't be read."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise invalid(field, f"{path} is not UTF-8 text", "a text file") from None
    except OSError as error:
        raise invalid(
            field, f"{path} can't be read ({error.strerror})", "an existing file"
        ) from None


def require_finite(value: Any, path: str) -> None:
    """Raise InvalidRequest naming the field that holds NaN or an infinity: JSON has neither."""
    problems = list(_not_finite(value, path))
    if problems:
        raise InvalidRequest(problems)


def _not_finite(value: Any, path: str) -> Iterator[FieldProblem]:
    if isinstance(value, float) and value - value != 0:
        yield FieldProblem(path, f"{value!r} is not finite", "a finite number")
    elif isinstance(value, dict):
        for name, number in value.items():
            yield from _not_finite(number, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list):
        for index, number in enumerate(value):
            yield from _not_finite(number, f"{path}[{index}]")
