"""What auditors look through: acts, refused jobs, sign-ins, reports, spending, registry entries."""

import json
import tempfile
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from accountant.core.errors import invalid
from web.cli.answers import Answer
from web.cli.options import DatasetName, DatasetOption, Json, Output
from web.cli.output import minute, note, print_json, save_json, table
from web.cli.session import connect
from web.client.errors import cap_text

Limit = Annotated[int, typer.Option(min=1, help="Rows, at most.")]
Since = Annotated[str | None, typer.Option(metavar="DAY", help="A day as 2026-01-31, or a time.")]
Until = Annotated[str | None, typer.Option(metavar="DAY", help="The same.")]


def _rows(found: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str | Table:
    cells = [[_cell(row.get(name)) for name in columns] for row in found]
    return (
        table([name.replace("_", " ") for name in columns], cells)
        if cells
        else "nothing of the kind"
    )


def _cell(value: Any) -> object:
    return minute(value) if isinstance(value, str) and value[10:11] == "T" else value


def activity(
    what: Annotated[str | None, typer.Option(help="A kind of act.")] = None,
    actor: Annotated[str | None, typer.Option(help="Who did it.")] = None,
    dataset: DatasetOption = None,
    since: Since = None,
    until: Until = None,
    limit: Limit = 50,
) -> Answer:
    """List who did what, newest first."""
    with connect() as client:
        rows = client.activity(what=what, actor=actor, dataset=dataset, since=since, until=until)
        acts = list(islice(rows, limit))
    yield acts
    yield _rows(acts, ("at", "actor", "action", "dataset", "object", "reason"))


def refusals(
    dataset: DatasetOption = None,
    cap: Annotated[str | None, typer.Option(help="What was binding.")] = None,
    analyst: Annotated[str | None, typer.Option(help="Who asked.")] = None,
    mechanism: Annotated[str | None, typer.Option()] = None,
    limit: Limit = 50,
) -> Answer:
    """List refused jobs with the limit that each one met."""
    with connect() as client:
        rows = client.refusals(dataset=dataset, cap=cap, analyst=analyst, mechanism=mechanism)
        newest = list(islice(rows, limit))
    yield newest
    refusals = [{**row, **(row["refusal"] or {})} for row in newest]
    for row in refusals:
        row["cap"] = cap_text(row.get("cap", "not told"))
    yield _rows(refusals, ("refused_at", "dataset", "cap", "asked", "left", "analyst"))


def sign_ins(
    name: Annotated[str | None, typer.Option(help="The account.")] = None,
    outcome: Annotated[str | None, typer.Option()] = None,
    method: Annotated[str | None, typer.Option()] = None,
    limit: Limit = 50,
) -> Answer:
    """List tries to sign in, newest first."""
    with connect() as client:
        rows = client.sign_ins(name=name, outcome=outcome, method=method)
        attempts = list(islice(rows, limit))
    yield attempts
    yield _rows(attempts, ("at", "name", "method", "outcome", "address"))


def report(
    dataset: DatasetName,
    public: Annotated[
        bool,
        typer.Option(
            "--public", help="Leave out names, reasons and what ex-post jobs really cost."
        ),
    ] = False,
    output: Output = "-",
    as_json: Json = False,
) -> None:
    """Save a dataset's report as JSON."""
    with connect() as client:
        report = client.report(dataset, public=public)
    save_json(output, report)
    if as_json and output != "-":
        print_json({"dataset": dataset, "file": output})


def spending(dataset: DatasetName) -> Answer:
    """Show what is left, and what the rest was spent on."""
    with connect() as client:
        figures = client.spending(dataset)
    yield figures
    measures = [measure["name"] for measure in figures["measures"]]
    rows = [
        [measure[name] for name in ("name", "limit", "used", "left")]
        for measure in figures["measures"]
    ]
    yield table(["measure", "limit", "used", "left"], rows, right="limit used left")
    columns = ["month", "analyst", "mechanism", "jobs", *measures]
    went = [[row.get(name) for name in columns] for row in figures["spending"]]
    yield table(columns, went, right=" ".join(["jobs", *measures]))


def export(
    dataset: DatasetName,
    people: Annotated[
        str | None, typer.Option(metavar="FILE", help="The page of questions, filled in.")
    ] = None,
    output: Output = "-",
) -> None:
    """Make an entry for the OpenDP registry. Without --people: its questions."""
    from accountant.core.ledger.registry_entries import page, read_people, registry_entry
    from web.cli.verify import verified

    if people is None:
        save_json(output, page())
        note("fill it in, then say --people FILE")
        return
    try:
        answers = read_people(json.loads(Path(people).read_text("utf-8")))
    except (OSError, ValueError) as error:
        raise invalid("--people", str(error), "the page of questions, filled in") from None
    with connect() as client, tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.jsonl"
        with path.open("wb") as file:
            client.save_ledger(dataset, "jsonl", file, public=True)
        ledger = verified(str(path))
    save_json(output, registry_entry(ledger, answers))
    if output != "-":
        note(
            f"saved {output}; `exchequer verify EXPORT --registry {output}` compares it with the "
            "ledger"
        )
