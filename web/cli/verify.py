"""`exchequer verify`: an export is checked at home, with neither server nor database."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from accountant.core.errors import InvalidRequest, VerificationFailed, invalid
from accountant.core.names import FILTER_NAMES
from web.cli.failures import report
from web.cli.options import Json
from web.cli.output import REFUSED, facts, out, print_json, say, stop, table


def verify(
    file: Annotated[str, typer.Argument(help='An export, any format; "-": standard input, text only.')],
    checkpoint: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="A checkpoint kept from earlier: the export must begin with it."),
    ] = None,
    public_key: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="The signing key as you know it: 64 hex digits, or a file of keys."),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Fail where a rule can't be proved: no entry states it.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Check an exported ledger, offline: chain, signatures, states, prices, balances, and rules."""
    from accountant.core.ledger.export_formats import summary

    try:
        found = verified(file, checkpoint or (), public_key)
        if strict and found.unproved:
            raise VerificationFailed(found.unproved[0])
    except VerificationFailed as error:
        if as_json:
            print_json({"ok": False, "entry": error.seq, "problem": str(error)})
        stop(report(error) if not as_json else REFUSED)
    balances = summary(found.books, found.live, public=found.books.ex_post.hidden)
    if as_json:
        print_json({"ok": True, **_facts(found, public_key is not None), "balances": balances})
        return
    say("verify: ok")
    out.print(facts([("dataset", found.dataset), ("entries", found.entries), ("head", found.head)]))
    _show_balances(balances)
    _show_signatures(found, public_key is not None)
    _show_hidden(found)
    for each in found.unproved:
        say(each)


def _facts(found: Any, pinned: bool) -> dict[str, Any]:
    signed = [{"seq": each.seq, "at": each.at.isoformat(), "key": each.key} for each in found.checkpoints]
    return {
        "dataset": found.dataset,
        "entries": found.entries,
        "head": found.head,
        "checkpoints": signed,
        "key_pinned": pinned,
        "hidden": found.hidden,
        "unproved": list(found.unproved),
    }


def verified(file: str, checkpoints: Sequence[str] = (), public_key: str | None = None) -> Any:
    """The ledger in an export, replayed. Raises VerificationFailed, or InvalidRequest for no such file."""
    from accountant.core.files import parquet
    from accountant.core.ledger import parquet_exports
    from accountant.core.ledger.export_formats import verify_lines

    pinned = None if public_key is None else _pinned(public_key)
    known = [_checkpoint(each, pinned) for each in checkpoints]
    if file != "-" and _starts_with(file, parquet.MAGIC):
        return parquet_exports.verify(file, known, pinned)
    with _lines(file) as lines:
        try:
            return verify_lines(lines, known, pinned)
        except UnicodeDecodeError:
            raise VerificationFailed("the file is not UTF-8 text") from None


def _checkpoint(file: str, pinned: bytes | None) -> Any:
    from accountant.core.ledger.checkpoints import read_checkpoint

    return read_checkpoint(_json(file, "--checkpoint", "a checkpoint"), pinned)


def _pinned(given: str) -> bytes:
    """The 32 bytes of a public key: hex digits, or the oldest key in a file from `ledger keys --json`."""
    from accountant.core.ledger.checkpoints import read_keys

    if len(given) == 64:
        try:
            return bytes.fromhex(given)
        except ValueError:
            pass
    found = _json(given, "--public-key", "64 hex digits, or a file of keys")
    try:
        return read_keys(found.get("keys") if isinstance(found, dict) else None)[0].public
    except VerificationFailed as error:
        raise invalid("--public-key", str(error), "a file made by `exchequer ledger keys --json`") from None


def _json(file: str, field: str, allowed: str) -> Any:
    try:
        return json.loads(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise invalid(field, f"{file} can't be read ({error.strerror})", allowed) from None
    except (ValueError, RecursionError):
        raise invalid(field, f"{file} is no JSON", allowed) from None


def _starts_with(file: str, magic: bytes) -> bool:
    try:
        with Path(file).open("rb") as opened:
            return opened.read(len(magic)) == magic
    except OSError as error:
        raise _unreadable(file, error) from None


@contextmanager
def _lines(file: str) -> Iterator[TextIO]:
    """The lines of a file, one at a time: an export may be larger than the memory."""
    try:
        # closefd: standard input is not ours to close. newline: CSV fields may hold line ends.
        source = 0 if file == "-" else file
        opened = open(source, encoding="utf-8", newline="", closefd=source != 0)  # noqa: SIM115
    except OSError as error:
        raise _unreadable(file, error) from None
    try:
        with opened:
            yield opened
    except OSError as error:
        raise _unreadable(file, error) from None


def _unreadable(file: str, error: OSError) -> InvalidRequest:
    return invalid("FILE", f"{file} can't be read ({error.strerror})", "an exported ledger")


# --- what is printed ----------------------------------------------------------------------------


def _show_balances(balances: dict[str, Any]) -> None:
    from accountant.core.privacy.units import EPSILON_UNITS, to_decimal

    if balances["filters"] is None:
        say("no allowance was ever set")
    else:
        rows = []
        for each in balances["filters"]:
            limit, spent, reserved = (int(each[name][0]) for name in ("limit", "spent", "reserved"))
            amounts = (limit, spent, reserved, max(0, limit - spent - reserved))
            state = "closed" if each["closed"] else "passed" if spent + reserved > limit else "holds"
            rows.append((FILTER_NAMES[each["kind"]], *(to_decimal(n, EPSILON_UNITS) for n in amounts), state))
        columns = ["filter", "limit", "spent", "reserved", "left", "state"]
        out.print(table(columns, rows, right="limit spent reserved left"))
    say(f"reservations not settled yet: {balances['live_reservations']}")


def _show_signatures(found: Any, pinned: bool) -> None:
    if not found.checkpoints:
        say("no signed checkpoint: nothing here shows who made this file, or that it is all there was")
        return
    for each in found.checkpoints:
        covers = "all" if each.seq == found.entries else f"the first {each.seq:,}"
        say(
            f"signed {each.at:%Y-%m-%d %H:%M:%S} UTC by key {each.key}: {covers} of {found.entries:,} entries"
        )
    if not pinned:
        say("the key comes from the files themselves: give the one you know with --public-key")


def _show_hidden(found: Any) -> None:
    if not found.hidden:
        return
    say(
        f"not shown: {found.hidden:,} private values (who acted and why, prompts); the chain covers their "
        "commitments, and rules about people are unchecked where they are hidden"
    )
    if found.books.ex_post.hidden:
        say(
            "not shown: realized ex-post costs, so the ex-post balance and admission against it are unchecked"
        )
