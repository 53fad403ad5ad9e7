"""Answers of commands: a document for programs, and lines and tables for people."""

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, get_args

from rich.table import Table
from typer.models import ParameterInfo

from accountant.core.errors import invalid
from accountant.core.privacy.units import is_plain
from web.cli.options import Json
from web.cli.output import out, print_json, say

#: Texts and tables are for people; anything else is the document for programs, of which there is
#: one.
Answer = Iterator[Any]


def prepared(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return a command that takes plain digits; one that yields an Answer has the option --json."""
    _read_plain_digits(command)
    return _printed(command) if inspect.isgeneratorfunction(command) else command


def _read_plain_digits(command: Callable[..., Any]) -> None:
    """Make the number options of a command take plain digits alone."""
    for name, annotation in inspect.get_annotations(command).items():
        kinds = {kind for arg in get_args(annotation)[:1] for kind in (arg, *get_args(arg))}
        about = next((arg for arg in get_args(annotation) if isinstance(arg, ParameterInfo)), None)
        if about is not None and kinds & {int, float}:
            option = next(iter(about.param_decls or ()), f"--{name.replace('_', '-')}")
            about.parser = functools.partial(
                _number, option, int if int in kinds else float, about.min
            )


def _number(
    option: str, kind: type[int] | type[float], least: float | None, value: Any
) -> int | float:
    """Read an option's number. Raises InvalidRequest if it is not in plain digits, or too small."""
    text, what = str(value), "a whole number" if kind is int else "a number"
    if not is_plain(text) or (kind is int and not text.removeprefix("-").isdecimal()):
        raise invalid(option, f"{text!r} is not {what} in plain digits", f"{what} such as 30")
    number = kind(text)
    if least is not None and number < least:
        raise invalid(option, f"{text} is too small", f"{least} or more")
    return number


def _printed(command: Callable[..., Answer]) -> Callable[..., None]:
    """Return the command with --json, which prints its document and nothing else."""

    @functools.wraps(command)
    def run(*given: Any, as_json: bool, **options: Any) -> None:
        for part in command(*given, **options):
            if not isinstance(part, str | Table):
                if as_json:
                    print_json(part)
            elif not as_json:
                show((part,))

    signature = inspect.signature(command)
    option = inspect.Parameter(
        "as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Json
    )
    parameters = [*signature.parameters.values(), option]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return run


def show(told: Iterable[str | Table]) -> None:
    """Print lines and tables."""
    for part in told:
        say(part) if isinstance(part, str) else out.print(part)


#: The columns of a table of figures.
SIDES = ("these", "zero-shot", "real texts")


def measured(figure: Mapping[str, Any]) -> list[str]:
    """Return the cells of a figure: its value and those beside it, each with its interval."""
    return [_shown(value) for value in (figure, *map(figure["beside"].get, SIDES[1:]))]


def _shown(value: Mapping[str, Any] | None) -> str:
    if value is None or value["value"] is None:
        return "none"
    ends = value["interval"]
    suffix = "" if ends is None else f" ({ends[0]:.3g} to {ends[1]:.3g})"
    return f"{value['value']:.3g}{suffix}"
