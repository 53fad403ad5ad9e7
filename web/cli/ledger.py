"""`ledger show`, `ledger export` and `verify`, which needs neither server nor database."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, TextIO

import typer

from accountant.core.errors import VerificationFailed, invalid
from web.cli.output import REFUSED, facts, note, out, print_json, report, save, say, stop, table
from web.cli.profile import connect

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
FORMATS = ("jsonl", "csv")

ledgers = typer.Typer(help="The ledger of a dataset (stewards and auditors).", no_args_is_help=True)


@ledgers.command("show")
def show(
    dataset: str,
    limit: Annotated[int, typer.Option(min=1)] = 50,
    before: Annotated[int | None, typer.Option(help="Entries below this number.")] = None,
    as_json: Json = False,
) -> None:
    """Show entries, newest first."""
    with connect() as client:
        entries = client.ledger(dataset, before=before, limit=limit)
    if as_json:
        print_json(entries)
    else:
        out.print(entry_table(entries))


def entry_table(entries: list[dict[str, Any]]) -> Any:
    """Ledger entries as rows that fit 80 columns; the cost is the one on the first filter."""
    from accountant.core.budget import EPSILON_UNITS, to_decimal

    def cost(body: dict[str, Any]) -> str | None:
        renyi = (body.get("costs") or {}).get("renyi")
        return None if renyi is None else to_decimal(int(renyi["main"]), EPSILON_UNITS)

    rows = [
        (
            each["seq"],
            each["kind"],
            _minute(each["at"]),
            cost(each["body"]),
            f"{each['actor']}: {_what(each)}",
        )
        for each in entries
    ]
    return table(["seq", "entry", "UTC", "cost", "who and what"], rows, right="seq cost", whole="entry UTC")


def _minute(at: str) -> str:
    return f"{at[5:10]} {at[11:16]}"


def _what(entry: dict[str, Any]) -> str:
    body = entry["body"]
    match entry["kind"]:
        case "ALLOW":
            return f"ε {body['epsilon']}, δ {body['delta']}: {body['reason']}"
        case "RESERVE":
            approval = body["approval"]
            by = f"; {approval['by']} approved: {approval['reason']}" if approval else ""
            return f"job {str(entry['job'])[:8]}{by}"
        case _:
            return f"job {str(entry['job'])[:8]} {body.get('outcome') or body.get('reason') or ''}".rstrip()


@ledgers.command("export")
def export(
    dataset: str,
    form: Annotated[str, typer.Option("--format", metavar="jsonl|csv")] = "jsonl",
    public: Annotated[bool, typer.Option("--public", help="Not available yet.")] = False,
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="FILE", help='"-": standard output.')
    ] = "-",
) -> None:
    """Export a ledger for an auditor; `exchequer verify` checks it."""
    if public:
        raise invalid(
            "--public", "exports for publication are not available yet", "an export without --public"
        )
    if form not in FORMATS:
        why = "is not available yet" if form == "parquet" else "is no format"
        raise invalid("--format", f"{form!r} {why}", ", ".join(FORMATS))
    with connect() as client:
        save(output, lambda file: client.save_ledger(dataset, form, file))
    if output != "-":
        note(f"saved {output}; check it with `exchequer verify {output}`")


def verify(
    file: Annotated[str, typer.Argument(help='An export; "-": standard input.')], as_json: Json = False
) -> None:
    """Check an exported ledger, offline: chain, states, prices and balances."""
    from accountant.core.verification import summary

    try:
        found = verified(file)
    except VerificationFailed as error:
        if as_json:
            print_json({"ok": False, "entry": error.seq, "problem": str(error)})
        stop(report(error) if not as_json else REFUSED)
    balances = summary(found.books, found.live)
    if as_json:
        head = {"dataset": found.dataset, "entries": found.entries, "head": found.head}
        print_json({"ok": True, **head, "balances": balances})
        return
    say("verify: ok")
    out.print(facts([("dataset", found.dataset), ("entries", found.entries), ("head", found.head)]))
    _show_balances(balances)


def verified(file: str) -> Any:
    """The ledger in an export, replayed. Raises VerificationFailed, or InvalidRequest for no such file."""
    from accountant.core.verification import verify_lines

    with _lines(file) as lines:
        try:
            return verify_lines(lines)
        except UnicodeDecodeError:
            raise VerificationFailed("the file is not UTF-8 text") from None


@contextmanager
def _lines(file: str) -> Iterator[TextIO]:
    """The lines of a file, one at a time: an export may be larger than the memory."""
    try:
        # closefd: standard input is not ours to close. newline: CSV fields may hold line ends.
        source = 0 if file == "-" else file
        opened = open(source, encoding="utf-8", newline="", closefd=source != 0)  # noqa: SIM115
    except OSError as error:
        raise invalid("FILE", f"{file} can't be read ({error.strerror})", "an exported ledger") from None
    try:
        with opened:
            yield opened
    except OSError as error:
        raise invalid("FILE", f"{file} can't be read ({error.strerror})", "an exported ledger") from None


def _show_balances(balances: dict[str, Any]) -> None:
    from accountant.core.budget import EPSILON_UNITS, to_decimal

    if balances["filters"] is None:
        say("no allowance was ever set")
        return
    rows = []
    for each in balances["filters"]:
        limit, spent, reserved = (int(each[name][0]) for name in ("limit", "spent", "reserved"))
        figures = [to_decimal(n, EPSILON_UNITS) for n in (limit, spent, reserved, limit - spent - reserved)]
        state = "closed" if each["closed"] else "exceeded" if spent + reserved > limit else "holds"
        rows.append((each["kind"], *figures, state))
    columns = ["filter", "limit", "spent", "reserved", "left", "state"]
    out.print(table(columns, rows, right="limit spent reserved left"))
    say(f"reservations not settled yet: {balances['live_reservations']}")
