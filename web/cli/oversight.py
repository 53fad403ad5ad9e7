"""`activity`, `refusals`, `sign-ins`, `report`, `spending`: what auditors look through."""

from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any

import typer

from web.cli.options import DatasetName, DatasetOption, Json, Output
from web.cli.output import out, print_json, save_json, say, table
from web.cli.profile import connect

Limit = Annotated[int, typer.Option(min=1, help="Rows, at most.")]
Since = Annotated[str | None, typer.Option(metavar="DAY", help="A day as 2026-01-31, or a time.")]
Until = Annotated[str | None, typer.Option(metavar="DAY", help="The same.")]


def _listed(rows: Iterator[dict[str, Any]], limit: int, columns: list[str], as_json: bool) -> None:
    found = list(islice(rows, limit))
    if as_json:
        print_json(found)
    elif not found:
        say("nothing of the kind")
    else:
        cells = [[_cell(each.get(name)) for name in columns] for each in found]
        out.print(table([name.replace("_", " ") for name in columns], cells))


def _cell(value: Any) -> object:
    return value[:16].replace("T", " ") if isinstance(value, str) and value[10:11] == "T" else value


def activity(
    what: Annotated[str | None, typer.Option(help="A kind of act.")] = None,
    actor: Annotated[str | None, typer.Option(help="Who did it.")] = None,
    dataset: DatasetOption = None,
    since: Since = None,
    until: Until = None,
    limit: Limit = 50,
    as_json: Json = False,
) -> None:
    """Say who did what, newest first."""
    with connect() as client:
        rows = client.activity(what=what, actor=actor, dataset=dataset, since=since, until=until)
        _listed(rows, limit, ["at", "actor", "action", "dataset", "object", "reason"], as_json)


def refusals(
    dataset: DatasetOption = None,
    cap: Annotated[str | None, typer.Option(help="What was binding.")] = None,
    analyst: Annotated[str | None, typer.Option(help="Who asked.")] = None,
    mechanism: Annotated[str | None, typer.Option()] = None,
    limit: Limit = 50,
    as_json: Json = False,
) -> None:
    """List refused requests, newest first: what was binding, asked and left."""
    with connect() as client:
        rows = client.refusals(dataset=dataset, cap=cap, analyst=analyst, mechanism=mechanism)
        found = list(islice(rows, limit))
    if as_json:
        print_json(found)
        return
    told = ({**each, **(each["refusal"] or {})} for each in found)
    _listed(told, limit, ["refused_at", "dataset", "cap", "asked", "left", "analyst"], False)


def sign_ins(
    name: Annotated[str | None, typer.Option(help="The account.")] = None,
    outcome: Annotated[str | None, typer.Option()] = None,
    method: Annotated[str | None, typer.Option()] = None,
    limit: Limit = 50,
    as_json: Json = False,
) -> None:
    """List tries to sign in, newest first: your own, or everybody's for auditors and administrators."""
    with connect() as client:
        rows = client.sign_ins(name=name, outcome=outcome, method=method)
        _listed(rows, limit, ["at", "name", "method", "outcome", "address"], as_json)


def report(
    dataset: DatasetName,
    public: Annotated[
        bool, typer.Option("--public", help="No names, no reasons, no realized ex-post costs.")
    ] = False,
    output: Output = "-",
    as_json: Json = False,
) -> None:
    """Save everything that the printed report of a dataset says, as JSON."""
    with connect() as client:
        found = client.report(dataset, public=public)
    save_json(output, found)
    if as_json and output != "-":
        print_json({"dataset": dataset, "file": output})


def spending(dataset: DatasetName, as_json: Json = False) -> None:
    """Show what is left, and what it went on by month, analyst and mechanism."""
    with connect() as client:
        found = client.spending(dataset)
    if as_json:
        print_json(found)
        return
    measures = [each["name"] for each in found["measures"]]
    rows = [[each[name] for name in ("name", "limit", "used", "left")] for each in found["measures"]]
    out.print(table(["measure", "limit", "used", "left"], rows, right="limit used left"))
    said = ["month", "analyst", "mechanism", "jobs", *measures]
    went = [[each.get(name) for name in said] for each in found["spending"]]
    out.print(table(said, went, right=" ".join(["jobs", *measures])))
