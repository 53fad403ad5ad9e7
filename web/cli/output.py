"""What the commands print: results on standard output, everything else on standard error.

Exit codes: 0 done, 1 refused or failed, 2 bad usage or input, 3 the server does not answer.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from accountant.core.errors import (
    ExchequerError,
    FieldProblem,
    InvalidRequest,
    NotFound,
    VerificationFailed,
    invalid,
)
from web.client import ApiProblem, Unreachable

REFUSED, BAD_INPUT, UNREACHABLE = 1, 2, 3

# Markup is off: a text of a dataset or of a server is printed as it is, never read as a style.
out = Console(markup=False, highlight=False, emoji=False)
err = Console(markup=False, highlight=False, emoji=False, stderr=True)


class Failed(ExchequerError):
    """A command that was understood and did not succeed; the text says what to do next."""

    code = "failed"


def printable(text: object) -> str:
    """The text without control characters, which a terminal would obey."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in str(text))


def say(text: str = "", style: str | None = None) -> None:
    """A line on standard output, not wrapped where a program reads it."""
    out.print(printable(text), style=style, soft_wrap=not out.is_terminal)


def note(text: str) -> None:
    """A line about what goes on, on standard error."""
    err.print(printable(text), style="dim", soft_wrap=True)


def complain(text: str) -> None:
    """An error on standard error."""
    err.print(f"exchequer: {printable(text)}", style="red", soft_wrap=True)


def print_json(value: Any) -> None:
    """One JSON document, for programs: never wrapped, never coloured."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], title: str | None = None, right: str = ""
) -> Table:
    """A table; columns named in `right` (space separated) hold figures. Cells may be renderables."""
    made = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", pad_edge=False)
    for name in columns:
        made.add_column(
            name, justify="right" if name in right.split() else "left", overflow="fold", no_wrap=False
        )
    for row in rows:
        made.add_row(*("–" if cell is None else printable(cell) for cell in row))
    return made


def facts(pairs: Iterable[tuple[str, object]]) -> Table:
    """Names and values, one pair a line."""
    made = Table(box=None, show_header=False, pad_edge=False)
    made.add_column(style="bold", no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in pairs:
        made.add_row(name, "–" if value is None else printable(value))
    return made


def stop(code: int) -> NoReturn:
    """End the command."""
    raise typer.Exit(code)


# --- errors -------------------------------------------------------------------------------------


def sentence(problem: FieldProblem) -> str:
    """One field: what was wrong, what is allowed, what to do."""
    allowed = f" Allowed: {problem.allowed}." if problem.allowed else ""
    return f"{problem.field}: {problem.problem}.{allowed} Correct it and run the command again."


def report(error: ExchequerError) -> int:
    """Print an expected error, one sentence per field; returns the exit code."""
    match error:
        case InvalidRequest():
            for problem in error.problems:
                complain(sentence(problem))
            return BAD_INPUT
        case Unreachable():
            complain(
                f"{error}. Start the local stack with `exchequer up`, or name a server in EXCHEQUER_URL."
            )
            return UNREACHABLE
        case ApiProblem():
            return _report_answer(error)
        case VerificationFailed():
            err.print(f"verify: failed: {printable(error)}", style="red", soft_wrap=True)
            return REFUSED
        case NotFound():
            complain(str(error))
            return BAD_INPUT
        case _:
            complain(str(error))
            return REFUSED


def _report_answer(error: ApiProblem) -> int:
    if error.problems:
        for problem in error.problems:
            complain(sentence(problem))
        return BAD_INPUT
    if error.status == 401:
        complain(f"{error.detail}. Sign in with `exchequer login`.")
        return REFUSED
    if error.status in (502, 503):
        complain(f"the server is not ready: {error.detail}. Try again, or look at `exchequer status`.")
        return UNREACHABLE
    if error.status >= 500:
        complain(f"the server failed: {error.detail}. Its log says why; the request can be repeated.")
        return REFUSED
    complain(error.detail)
    return BAD_INPUT if error.status in (400, 404, 422) else REFUSED


# --- files --------------------------------------------------------------------------------------


def save(target: str, write: Callable[[BinaryIO], None]) -> None:
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


@contextmanager
def _draft(path: Path) -> Iterator[BinaryIO]:
    if path.exists() and not path.is_file():  # a device or a pipe can't be replaced
        if path.is_dir():
            raise invalid("-o", f"{path} is a folder", "the name of a file")
        with path.open("wb") as file:
            yield file
        return
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with draft.open("xb") as file:
            yield file
        draft.replace(path)
    except OSError as error:
        problem = f"{path} can't be written ({error.strerror})"
        raise invalid("-o", problem, "a file in an existing folder that you may write to") from None
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def read_text(path: str, field: str) -> str:
    """The text of a file that a person named. Raises InvalidRequest where it can't be read."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise invalid(field, f"{path} is not UTF-8 text", "a text file") from None
    except OSError as error:
        raise invalid(field, f"{path} can't be read ({error.strerror})", "an existing file") from None


def require_finite(value: Any, path: str) -> None:
    """Raise InvalidRequest naming the field that holds NaN or an infinity: JSON has neither."""
    problems = list(_not_finite(value, path))
    if problems:
        raise InvalidRequest(problems)


def _not_finite(value: Any, path: str) -> Iterator[FieldProblem]:
    if isinstance(value, float) and value - value != 0:
        yield FieldProblem(path, f"{value!r} is not finite", "a finite number")
    elif isinstance(value, dict):
        for name, each in value.items():
            yield from _not_finite(each, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from _not_finite(each, f"{path}[{index}]")
