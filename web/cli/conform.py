"""`exchequer conform`: a mechanism of one's own, tried on this machine before it may be registered.

It runs where workers run, as a process of its own: nothing of it is imported here.
"""

import subprocess
import sys
from typing import Annotated

import typer

from web.cli import installation
from web.cli.output import BAD_INPUT, REFUSED, stop


def conform(
    module: Annotated[str, typer.Argument(help="The price's module, such as length_histogram.price.")],
    trials: Annotated[
        int | None, typer.Option(min=1, help="Random runs; fewer leave no record. [30]")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of the trials. [0]")] = None,
) -> None:
    """Try a mechanism: does it draw what it priced, and does one unit move no more than it declares?

    Leaves a record in its package, without which the service refuses it. Exit code 1 where it fails.
    """
    installation.require("`exchequer conform`", "pyarrow")
    command = [sys.executable, "-m", "workers.conformance", module]
    command += [] if trials is None else [f"--trials={trials}"]
    command += [] if seed is None else [f"--seed={seed}"]
    code = subprocess.run(command, check=False).returncode
    if code:
        stop(code if code in (REFUSED, BAD_INPUT) else REFUSED)
