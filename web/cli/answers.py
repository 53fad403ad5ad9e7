"""Answers of commands: a document for programs, and lines and tables for people."""

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import typer
from rich.table import Table

from web.cli.options import Json
from web.cli.output import out, print_json, say

#: Texts and tables are for people; anything else is the document for programs, of which there is one.
Answer = Iterator[Any]


class Group(typer.Typer):
    """Commands of which those that yield an Answer have the option --json."""

    def command(self, *given: Any, **options: Any) -> Callable[[Any], Any]:
        register = super().command(*given, **options)
        return lambda each: register(_printed(each) if inspect.isgeneratorfunction(each) else each)


def _printed(command: Callable[..., Answer]) -> Callable[..., None]:
    """The command with --json, which prints its document and not the rest; it runs to its end either way."""

    @functools.wraps(command)
    def run(*given: Any, as_json: bool, **options: Any) -> None:
        for each in command(*given, **options):
            if not isinstance(each, str | Table):
                if as_json:
                    print_json(each)
            elif not as_json:
                show((each,))

    signature = inspect.signature(command)
    option = inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Json)
    own = [*signature.parameters.values(), option]
    run.__signature__ = signature.replace(parameters=own)  # type: ignore[attr-defined]
    return run


def show(told: Iterable[str | Table]) -> None:
    """Print lines and tables."""
    for each in told:
        say(each) if isinstance(each, str) else out.print(each)
