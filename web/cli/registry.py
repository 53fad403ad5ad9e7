"""`registry`: what a public registry of deployments is told of a dataset, made from its ledger."""

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from web.cli.answers import Group
from web.cli.options import DatasetName, Output
from web.cli.output import note, save_json
from web.cli.session import connect

registry = Group(help="Entries for a public registry of deployments.", no_args_is_help=True)


@registry.command("export")
def export(
    dataset: DatasetName,
    curator: Annotated[
        str | None, typer.Option(help="Who holds the data. Nothing checks it.")
    ] = None,
    use: Annotated[str | None, typer.Option(help="What for. Nothing checks it.")] = None,
    contact: Annotated[str | None, typer.Option(help="Whom to ask. Nothing checks it.")] = None,
    output: Output = "-",
) -> None:
    """Make a registry entry from the public export of a ledger, verified here (stewards and
    auditors).
    """
    from accountant.core.ledger.registry_entries import registry_entry
    from web.cli.verify import verified

    with connect() as client, tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.jsonl"
        with path.open("wb") as file:
            client.save_ledger(dataset, "jsonl", file, public=True)
        ledger = verified(str(path))
    answers = {"curator": curator, "use": use, "contact": contact}
    save_json(
        output, registry_entry(ledger, {name: answer for name, answer in answers.items() if answer})
    )
    if output != "-":
        note(
            f"saved {output}; `exchequer verify EXPORT --registry {output}` compares it with the "
            "ledger"
        )
