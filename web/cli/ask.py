"""`exchequer ask`: what to ask for on a dataset, and what that would be worth."""

import json
import shlex
from typing import Annotated

import typer

from web.cli.answers import Answer
from web.cli.options import DatasetName
from web.cli.output import REFUSED, facts, save_json, stop, table
from web.cli.session import connect


def ask(
    dataset: DatasetName,
    goal: Annotated[
        str, typer.Option("--for", metavar="texts|phrases|summaries|counts", help="What you want.")
    ] = "texts",
    share: Annotated[
        float | None, typer.Option(help="Of what is left at most this part, 0 to 1.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="The model that would run it.")] = None,
    project: Annotated[str | None, typer.Option(help="Whose cap counts, too.")] = None,
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", metavar="FILE.json", help="Save the request."),
    ] = None,
) -> Answer:
    """See what to ask for, and what you would get. The exit code is 1 if too little is left."""
    with connect() as client:
        found = client.proposal(dataset, goal, share=share, model=model, project=project)
    yield found
    made, outlook = found["output"], found["outlook"]
    yield outlook["sentence"]
    if found["mechanism"] is None:
        stop(REFUSED)
    yield facts(
        (name, value)
        for name, value in (
            ("mechanism", found["mechanism"]),
            ("model", found["model"]),
            ("writes", made and made["sentence"]),
            (
                "spends",
                f"at most {found['share']:.0%} of what is left" if found["share"] else "nothing",
            ),
            ("you still name", found["lacks"]),
        )
        if value is not None
    )
    yield table(
        ["parameter", "value"],
        [(name, json.dumps(value)) for name, value in found["parameters"].items()],
    )
    yield from found["notes"]
    if output is None:
        yield "To ask for it, save it with -o FILE.json and submit that."
        return
    request = {"dataset": dataset, "purpose": "", "project": project}
    request |= {name: found[name] for name in ("mechanism", "model", "parameters")}
    kept = {name: value for name, value in request.items() if value is not None}
    save_json(output, kept)
    yield "saved; say what it is for, and send it:"
    yield f"exchequer job submit {shlex.quote(output)} --set purpose='a report on …'"
