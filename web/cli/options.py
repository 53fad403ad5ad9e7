"""Arguments and options that several commands share."""

from typing import Annotated

import typer

from web.cli import completion

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
DatasetName = Annotated[str, typer.Argument(autocompletion=completion.datasets)]
DatasetOption = Annotated[str | None, typer.Option(autocompletion=completion.datasets)]
Database = Annotated[
    bool,
    typer.Option("--database", help="Work on the database itself, where no server runs."),
]
JobId = Annotated[str, typer.Argument(metavar="ID", autocompletion=completion.jobs)]
Output = Annotated[
    str, typer.Option("-o", "--output", metavar="FILE", help='"-": standard output.')
]
Wait = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until a worker has checked it.")]
Timeout = Annotated[
    float | None,
    typer.Option(min=0, metavar="SECONDS", help="With --wait: no longer; exit code 4."),
]
