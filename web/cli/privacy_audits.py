"""`audit reconstruction` and `audit leave-one-out`: mechanisms against planted records, on this
machine.

An audit runs where workers run, as a process of its own: nothing of it is imported here, and it
touches neither the server nor any dataset.
"""

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from web.cli import installation
from web.cli.output import BAD_INPUT, REFUSED, stop
from web.version import ROOT

Arms = Annotated[
    list[str] | None,
    typer.Option(
        "--arm",
        help="mean, median, invisible-ink; leave-one-out: summary-token, summary-oneshot too; "
        "repeat it.",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="A parameter of the arms that have it; repeat it."
    ),
]
Model = Annotated[
    str | None,
    typer.Option(metavar="FOLDER", help="A model. [one that copies its context, made by hand]"),
]
Texts = Annotated[
    int | None, typer.Option(help="Texts that a batch has room for. [20; leave-one-out: 8]")
]
Output = Annotated[
    str | None, typer.Option("--output", "-o", metavar="FOLDER", help="[audit-reconstruction, …]")
]

audits = typer.Typer(help="Checks of the mechanisms on planted records.", no_args_is_help=True)


@audits.command()
def reconstruction(
    keys: Annotated[
        int | None, typer.Option(help="Five-digit keys, half of them planted. [50000]")
    ] = None,
    arm: Arms = None,
    settings: Settings = None,
    model: Model = None,
    texts: Texts = None,
    output: Output = None,
) -> None:
    """Do planted keys come out more often than others? Exit code 1 where they do."""
    _run("reconstruction", arm, settings, output, model=model, keys=keys, texts=texts)


@audits.command("leave-one-out")
def leave_one_out(
    keys: Annotated[int | None, typer.Option(help="Planted records. [256]")] = None,
    sample: Annotated[
        bool, typer.Option("--sample", help="The bundled reviews and model.")
    ] = False,
    arm: Arms = None,
    settings: Settings = None,
    model: Model = None,
    texts: Texts = None,
    output: Output = None,
) -> None:
    """Is what a batch lost below what it is stated to cost? Exit code 1 where it is not."""
    flags = ("--sample",) if sample else ()
    _run("leave-one-out", arm, settings, output, *flags, model=model, keys=keys, texts=texts)


def _run(
    audit: str,
    arms: list[str] | None,
    settings: list[str] | None,
    output: str | None,
    *flags: str,
    model: str | None = None,
    **numbers: int | None,
) -> None:
    installation.require("`exchequer audit`", "torch", "transformers")
    command = [sys.executable, "-m", "workers.privacy_audits", audit, *flags]
    command += [f"--{option}={value}" for option, value in numbers.items() if value is not None]
    command += [f"--arm={each}" for each in arms or []]
    command += [f"--set={each}" for each in settings or []]
    command += [] if model is None else [f"--model={Path(model).resolve()}"]
    command += [f"--output={Path(output or f'audit-{audit}').resolve()}"]
    code = subprocess.run(command, cwd=ROOT, check=False).returncode
    if code:
        stop(code if code in (REFUSED, BAD_INPUT) else REFUSED)
