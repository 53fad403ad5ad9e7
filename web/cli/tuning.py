"""`tune summary-oneshot`: parameters from a public corpus, on this machine.

Tuning runs where workers run, as a process of its own: nothing of it is imported here, and it touches neither
the server nor any dataset.
"""

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from web.cli import installation
from web.cli.output import BAD_INPUT, stop
from web.version import ROOT

tuning = typer.Typer(help="Parameters of a mechanism from public data.", no_args_is_help=True)


@tuning.callback()
def _tune() -> None:
    """Parameters of a mechanism from public data."""


@tuning.command("summary-oneshot")
def summary_oneshot(
    corpus: Annotated[str, typer.Option(metavar="FILE", help="Public texts: CSV, JSON Lines or Parquet.")],
    model: Annotated[str | None, typer.Option(metavar="FOLDER", help="A model. [the bundled one]")] = None,
    label_column: Annotated[
        str | None, typer.Option(help="The column whose values play the groups. [label]")
    ] = None,
    text_template: Annotated[str | None, typer.Option(help="A text from its columns. [{text}]")] = None,
    epsilon: Annotated[float | None, typer.Option(help="The price to tune for. [2]")] = None,
    delta: Annotated[float | None, typer.Option(help="[1e-6]")] = None,
    neighbours: Annotated[str | None, typer.Option(help="add-remove or replace-one. [add-remove]")] = None,
    public_size: Annotated[int | None, typer.Option(help="Public n of a group. [200]")] = None,
    texts: Annotated[int | None, typer.Option(help="Texts that are read, at most. [1000]")] = None,
    template: Annotated[str | None, typer.Option(help="The prompt of the job; slot {record}.")] = None,
    record_tokens: Annotated[int | None, typer.Option(help="A text is cut after this many. [256]")] = None,
    soft_tokens: Annotated[
        str | None, typer.Option(help="Values of m to try; none: no adapter is trained. [5,10,20]")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Steps of training for each of them. [60]")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Clip C, basis, soft tokens m and length T of a one-shot summary, with the curve behind them."""
    installation.require("`exchequer tune`", "torch", "transformers")
    given = {
        **{"label-column": label_column, "text-template": text_template, "epsilon": epsilon, "delta": delta},
        **{"neighbours": neighbours, "public-size": public_size, "texts": texts, "template": template},
        **{"record-tokens": record_tokens, "soft-tokens": soft_tokens, "steps": steps},
        "model": None if model is None else Path(model).resolve(),
    }
    command = [
        sys.executable,
        "-m",
        "workers.tuning",
        "summary-oneshot",
        f"--corpus={Path(corpus).resolve()}",
    ]
    command += [f"--{name}={value}" for name, value in given.items() if value is not None]
    command += ["--json"] if as_json else []
    if subprocess.run(command, cwd=ROOT, check=False).returncode:
        stop(BAD_INPUT)
