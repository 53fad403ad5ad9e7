"""`exchequer verify`: an export is checked at home, with neither server nor database."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from io import BufferedReader
from pathlib import Path
from typing import Annotated, Any

import typer

from accountant.core.errors import InvalidRequest, VerificationFailed, invalid
from accountant.core.names import FILTER_NAMES
from web.cli.failures import report
from web.cli.options import Json
from web.cli.output import REFUSED, facts, out, print_json, say, stop, table


def verify(
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE...", help='Saved ledgers, or "-" for what is piped in.'),
    ],
    checkpoint: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE", help="A checkpoint kept from earlier: the export must begin with it."
        ),
    ] = None,
    public_key: Annotated[
        str | None,
        typer.Option(
            metavar="KEY", help="The signing key as you know it: 64 hex digits, or a file of keys."
        ),
    ] = None,
    log_key: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="Ask for a proof of the log with this key: NAME+ID+KEY."),
    ] = None,
    witness_key: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY", help="A witness who must have signed the log's tree."),
    ] = None,
    log_checkpoint: Annotated[
        str | None,
        typer.Option(metavar="NOTE", help="A checkpoint of the log that you have from elsewhere."),
    ] = None,
    log: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="The log's files: it must hold this history alone."),
    ] = None,
    registry: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="A registry entry of this ledger, as it stood at this export."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check a saved ledger at home: each hash, signature, price and sum. It needs no server."""
    from accountant.core.ledger.export_formats import summary

    demands = _demands(log_key, witness_key or (), log_checkpoint, log)
    file, *more = files
    if more:
        for option, value in (("--checkpoint", checkpoint), ("--registry", registry)):
            if value:
                raise invalid(
                    option, "given with several exports", "one export, or none of this option"
                )
        if "-" in files:
            raise invalid("FILE", "standard input among several exports", "files")
        _show_several(_outcomes(files, public_key, demands), as_json)
        return
    try:
        ledger = verified(file, checkpoint or (), public_key)
        logged = None if demands is None else _logged(ledger, demands)
        if registry is not None:
            _check_registry(registry, ledger)
    except VerificationFailed as error:
        if as_json:
            print_json({"ok": False, "entry": error.seq, "problem": str(error)})
        stop(report(error) if not as_json else REFUSED)
    balances = summary(ledger.books, ledger.live, public=ledger.public)
    if as_json:
        shown_facts = _facts(ledger, public_key is not None)
        print_json(
            {"ok": not ledger.unproved, **shown_facts, **_log_facts(logged), "balances": balances}
        )
    else:
        say("verify: incomplete" if ledger.unproved else "verify: ok")
        for sentence in ledger.unproved:
            say(sentence)
        if ledger.added:
            added = " and ".join(ledger.added)
            say(f"another program saved this file and added {added}: left out, nothing else")
        out.print(
            facts([("dataset", ledger.dataset), ("entries", ledger.entries), ("head", ledger.head)])
        )
        _show_balances(balances)
        _show_signatures(ledger, public_key is not None)
        _show_log(ledger, logged)
        _show_hidden(ledger)
    if ledger.unproved:
        stop(REFUSED)


def _outcomes(files: Sequence[str], public_key: str | None, asked: Any) -> list[dict[str, Any]]:
    """Return what is found of each of several exports.

    {"file", "ok", "dataset", "entries", "head", "unproved"}, or {"file", "ok", "entry", "problem"}.
    """
    ledgers: dict[str, Any] = {}
    problems: dict[str, Exception] = {}
    for file in files:
        try:
            ledgers[file] = verified(file, (), public_key)
            if asked is not None:
                _logged(ledgers[file], asked)
        except (VerificationFailed, InvalidRequest) as error:
            problems[file] = error
    sound = {ledger.dataset: ledger for file, ledger in ledgers.items() if file not in problems}
    outcomes = []
    for file in files:
        try:
            if file in problems:
                raise problems[file]
            outcome = ledgers[file].beside(sound)
        except (VerificationFailed, InvalidRequest) as error:
            seq = getattr(error, "seq", None)
            outcomes.append({"file": file, "ok": False, "entry": seq, "problem": str(error)})
            continue
        facts = {"dataset": outcome.dataset, "entries": outcome.entries, "head": outcome.head}
        lists = {"added": list(outcome.added), "unproved": list(outcome.unproved)}
        outcomes.append({"file": file, "ok": not outcome.unproved, **facts, **lists})
    return outcomes


def _show_several(found: list[dict[str, Any]], as_json: bool) -> None:
    failed = [ledger for ledger in found if not ledger["ok"]]
    if as_json:
        print_json({"ok": not failed, "files": found})
    else:
        say("verify: " + (f"failed: {len(failed)} of {len(found)}" if failed else "ok"))
        rows = [
            (
                ledger["file"],
                "ok" if ledger["ok"] else ledger.get("problem", "incomplete"),
                ledger.get("dataset"),
                ledger.get("entries"),
            )
            for ledger in found
        ]
        out.print(table(["file", "found", "dataset", "entries"], rows, right="entries"))
        for ledger in found:
            if ledger.get("added"):
                added = " and ".join(ledger["added"])
                say(f"{ledger['file']}: another program added {added}: left out")
            for rule in ledger.get("unproved", ()):
                say(f"{ledger['file']}: {rule}")
    if failed:
        stop(REFUSED)


def _facts(found: Any, pinned: bool) -> dict[str, Any]:
    signed = [
        {"seq": checkpoint.seq, "at": checkpoint.at.isoformat(), "key": checkpoint.key}
        for checkpoint in found.checkpoints
    ]
    return {
        "dataset": found.dataset,
        "entries": found.entries,
        "head": found.head,
        "checkpoints": signed,
        "key_pinned": pinned,
        "hidden": found.hidden,
        "added": list(found.added),
        "unproved": list(found.unproved),
    }


def verified(file: str, checkpoints: Sequence[str] = (), public_key: str | None = None) -> Any:
    """Return the ledger in a JSON Lines export, replayed.

    Raises VerificationFailed, or InvalidRequest for no such file or one of another format.
    """
    from accountant.core.ledger.checkpoints import read_checkpoint
    from accountant.core.ledger.export_formats import text_lines, verify_lines

    pinned = None if public_key is None else _pinned(public_key)
    saved_checkpoints = [
        read_checkpoint(_json(checkpoint, "--checkpoint", "a checkpoint"), pinned)
        for checkpoint in checkpoints
    ]
    added: list[str] = []
    with _opened(file) as opened:
        try:
            ledger = verify_lines(text_lines(opened, added), saved_checkpoints, pinned)
            return replace(ledger, added=tuple(added))
        except UnicodeDecodeError:
            raise VerificationFailed("the file is not UTF-8 text") from None


def _demands(
    key: str | None, witnesses: Sequence[str], checkpoint: str | None, folder: str | None
) -> Any:
    """Return what is asked of the log; None: nothing. Raises InvalidRequest naming an option."""
    from accountant.core.transparency.notes import read_key
    from accountant.core.transparency.proofs import Demands

    if key is None:
        if witnesses or checkpoint or folder:
            raise invalid(
                "--log-key", "not given, and something is asked of the log", "the log's key"
            )
        return None
    keys = []
    for option, value in (
        ("--log-key", key),
        *(("--witness-key", witness) for witness in witnesses),
    ):
        try:
            keys.append(read_key(value))
        except ValueError as error:
            raise invalid(option, str(error), "a key as its holder publishes it") from None
    note = None
    if checkpoint is not None:
        try:
            note = Path(checkpoint).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            raise invalid(
                "--log-checkpoint", f"{checkpoint} can't be read", "a signed note"
            ) from None
    return Demands(keys[0], keys[1:], note, None if folder is None else Path(folder))


def _logged(found: Any, asked: Any) -> Any:
    """(entry, its place in the log) as proved. Raises VerificationFailed."""
    from accountant.core.transparency.proofs import check_export

    return check_export(found.dataset, found.hashes, found.log_proof, asked, found.logged_at)


def _log_facts(logged: Any) -> dict[str, Any]:
    if logged is None:
        return {}
    seq, place = logged
    signed = {key.name: time for key, time in place.signed.items()}
    facts = {
        "seq": seq,
        "index": place.index,
        "size": place.head.size,
        "root": place.head.root.hex(),
    }
    return {"log": {**facts, "origin": place.head.origin, "signed": signed}}


def _check_registry(file: str, found: Any) -> None:
    from accountant.core.ledger.registry_entries import differences

    entry = _json(file, "--registry", "a file made by `exchequer ledger registry`")
    if problems := differences(entry if isinstance(entry, dict) else {}, found):
        raise VerificationFailed(f"the registry entry is not this ledger's: {'; '.join(problems)}")


def _pinned(given: str) -> bytes:
    """Return the bytes of a public key: hex digits, or the oldest key of `key list --json`."""
    from accountant.core.ledger.checkpoints import read_keys

    if len(given) == 64:
        try:
            return bytes.fromhex(given)
        except ValueError:
            pass
    key = _json(given, "--public-key", "64 hex digits, or a file of keys")
    try:
        return read_keys(key.get("keys") if isinstance(key, dict) else None)[0].public
    except VerificationFailed as error:
        raise invalid(
            "--public-key", str(error), "a file made by `exchequer key list --json`"
        ) from None


def _json(file: str, field: str, allowed: str) -> Any:
    from accountant.core.ledger.canonical_json import read_json, value_text

    try:
        value = read_json(Path(file).read_text(encoding="utf-8-sig"))
        value_text(value)  # what has no canonical form can't be compared
        return value
    except OSError as error:
        raise invalid(field, f"{file} can't be read ({error.strerror})", allowed) from None
    except (ValueError, RecursionError) as error:
        raise invalid(field, f"{file} is no JSON ({error})", allowed) from None


@contextmanager
def _opened(file: str) -> Iterator[BufferedReader]:
    """Return an open file, read one line at a time: an export may be larger than the memory."""
    try:
        # closefd: standard input is not ours to close.
        source = 0 if file == "-" else file
        opened = open(source, "rb", closefd=source != 0)  # noqa: SIM115
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
        for filter_ in balances["filters"]:
            limit, spent, reserved = (
                int(filter_[name][0]) for name in ("limit", "spent", "reserved")
            )
            amounts = (limit, spent, reserved, max(0, limit - spent - reserved))
            state = (
                "closed" if filter_["closed"] else "passed" if spent + reserved > limit else "holds"
            )
            rows.append(
                (
                    FILTER_NAMES[filter_["kind"]],
                    *(to_decimal(n, EPSILON_UNITS) for n in amounts),
                    state,
                )
            )
        columns = ["filter", "limit", "spent", "reserved", "left", "state"]
        out.print(table(columns, rows, right="limit spent reserved left"))
    say(f"reservations not settled yet: {balances['live_reservations']}")


def _show_signatures(found: Any, pinned: bool) -> None:
    if not found.checkpoints:
        say(
            "no signed checkpoint: nothing here shows who made this file, or that it is all there "
            "was"
        )
        return
    for checkpoint in found.checkpoints:
        covers = "all" if checkpoint.seq == found.entries else f"the first {checkpoint.seq:,}"
        say(
            f"signed {checkpoint.at:%Y-%m-%d %H:%M:%S} UTC by key {checkpoint.key}: {covers} of "
            f"{found.entries:,} entries"
        )
    if not pinned:
        say("the key comes from the files themselves: give the one you know with --public-key")


def _show_log(found: Any, logged: Any) -> None:
    if logged is None:
        if found.log_proof is not None:
            say("it has a proof of a public log, not checked: give the log's key with --log-key")
        return
    seq, place = logged
    covers = "all" if seq == found.entries else f"the first {seq:,}"
    say(
        f"logged by {place.head.origin} as entry {place.index + 1:,} of {place.head.size:,}: "
        f"{covers} of {found.entries:,} entries"
    )
    for key, time in place.signed.items():
        if time is not None:
            say(
                f"witnessed by {key.name} at {datetime.fromtimestamp(time, UTC):%Y-%m-%d %H:%M:%S} "
                "UTC"
            )


def _show_hidden(found: Any) -> None:
    if not found.hidden:
        return
    say(
        f"not shown: {found.hidden:,} private values (who acted and why, prompts); the chain "
        "covers their commitments, and rules about people are unchecked where they are hidden"
    )
    if found.books.ex_post.hidden:
        say(
            "not shown: realized ex-post costs, so the ex-post balance and admission against it "
            "are unchecked"
        )
