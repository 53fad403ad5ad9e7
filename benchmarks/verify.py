"""A long ledger: how long verification takes.

    python -m benchmarks.verify --entries 10000 [--public] [--file PATH]
    python -m benchmarks.verify --file PATH --against FOLDER [--rounds 5]

Writes an export with the writers' own code (core/ledger), then measures each of these in a process
of its own: `sha256sum`, plain JSON parsing of every line, and `exchequer verify` of it and of a
short one, whose time is the start. Prints processor seconds, the time that passed, and what an
entry takes after the start. `--against`: another tree of this program, which verifies the same file
by turns.

Other work on the machine makes all times longer: the load is printed before and after.

The ledger: its rules and one allowance, then jobs of 40 shapes in two mechanisms. Of every ten,
eight settle with what was reserved, one is void and one stays live until the end. Every reason and
every output's hash is another.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from accountant.core import mechanisms
from accountant.core.ledger import export_formats
from accountant.core.ledger.accounts import demand
from accountant.core.ledger.commitments import hidden
from accountant.core.ledger.entry_bodies import allow_body, commit_body, reserve_body
from accountant.core.ledger.hash_chain import GENESIS, Entry, EntryKind, canonical, digest
from accountant.core.ledger.lineage import of_version
from accountant.core.ledger.policy import Policy
from accountant.core.ledger.replay import Replay
from accountant.core.ledger.rules import LAYOUT, PRICED, UNIT_TERMS, policy_body, register_body
from accountant.core.privacy.price import Terms

DATASET = "a-million"
START = datetime(2026, 1, 1, tzinfo=UTC)


def shapes() -> list[tuple[str, dict[str, Any], Terms, Any]]:
    """(mechanism, parameters, terms, event) of the jobs."""
    terms = Terms(delta=1e-6, public_size=10_000, labels=("billing", "delivery", "praise"))
    raw = [("private-prediction", {"tokens_per_batch": 8 * each}) for each in range(1, 21)]
    raw += [("noisy-count", {"epsilon": each / 1000}) for each in range(1, 21)]
    found = []
    for mechanism_id, values in raw:
        mechanism = mechanisms.get(mechanism_id)
        parameters = mechanism.parse(values, terms)
        event = demand(mechanism.price(parameters, terms)).dp
        found.append((mechanism_id, mechanism.recorded(parameters), terms, event))
    return found


def _declared() -> SimpleNamespace:
    """The terms of the jobs, as a dataset declares them."""
    terms = {"groups": [], **shapes()[0][2].to_json()}
    priced = {name: terms[name] for name in PRICED}
    secrets = {"secret_patterns": (), "secret_terms": ()}
    return SimpleNamespace(
        unit_column=None, **priced, **secrets, **dict.fromkeys(UNIT_TERMS, "refuse")
    )


def steps(entries: int, replay: Replay) -> Iterator[tuple[EntryKind, str | None, dict[str, Any]]]:
    """Kinds, jobs and bodies of a realistic mix; bodies are made on the books as they are."""
    random.seed(1)
    kept: dict[int, tuple[dict[str, Any], dict[str, Any]]] = {}
    jobs = shapes()
    model = {"name": "model", "sha256": "0" * 64}
    approval = {"by": "sam", "reason": "within the plan of this quarter"}
    files = {"files": 1, "bytes": 5, "sha256": "0" * 64, "list": []}
    layout = dict.fromkeys(LAYOUT) | {"uri": "a-million.csv"}
    version = SimpleNamespace(number=1, data=files, **layout)
    for each in (None, version):
        yield EntryKind.REGISTER, None, register_body(_declared(), each)
    yield EntryKind.POLICY, None, policy_body(Policy(two_people=False))
    yield EntryKind.ALLOW, None, allow_body(None, "1000000", "0.000001", "for the benchmark")
    account = replay.books.account
    assert account is not None
    for number, (mechanism_id, parameters, terms, event) in enumerate(jobs):
        reserve = reserve_body(
            account,
            mechanism_id,
            parameters,
            terms,
            event,
            model=model if mechanisms.get(mechanism_id).uses_model else None,
            approval=approval,
            source=of_version(1),
        )
        kept[number] = reserve, commit_body(account, event, "succeeded", 1, "0" * 64)
    made, waiting = 4, []
    while made < entries:
        job, shape = (
            str(uuid.UUID(int=random.getrandbits(128), version=4)),
            random.randrange(len(jobs)),
        )
        reserve, commit = kept[shape]
        reason = f"within the plan of this quarter, item {made}"
        commit = {**commit, "output_sha256": random.randbytes(32).hex()}
        yield EntryKind.RESERVE, job, {**reserve, "approval": {**approval, "reason": reason}}
        made += 1
        turn = made % 10
        if turn < 8:
            waiting.append((EntryKind.COMMIT, job, commit))
        elif turn == 8:
            void = {"outcome": "cancelled", "reason": "cancelled in the queue", "read": False}
            waiting.append((EntryKind.VOID, job, void))
        if len(waiting) > 5 and made < entries:
            yield waiting.pop(0)
            made += 1


def documents(entries: int, public: bool, result: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """(hash, canonical text) of each entry; `result` gets the totals at the end."""
    replay, head = Replay(), GENESIS
    for seq, (kind, job, body) in enumerate(steps(entries, replay), start=1):
        replay.apply(kind, job, body)
        at = START + timedelta(milliseconds=700 * seq)
        entry = Entry(DATASET, seq, kind, at, "grace", job, body, head)
        document = entry.document()
        head = digest(document)
        shown = dict(hidden(document)) if public else document
        yield head, canonical(shown).decode()
    result["header"] = export_formats.header(
        DATASET, entries, head, replay.books, replay.live_count, public=public
    )


def write(path: Path, entries: int, public: bool = False) -> None:
    """The export of a ledger of so many entries."""
    result: dict[str, Any] = {}
    # Salts are random, so the entries are kept on disk between the passes.
    with tempfile.TemporaryFile("w+", encoding="utf-8") as spool:
        for recorded, text in documents(entries, public, result):
            spool.write(f"{recorded}{text}\n")
        spool.seek(0)
        export(path, result["header"], ((line[:64], line[64:-1]) for line in spool))


def export(path: Path, header: dict[str, Any], rows: Iterable[tuple[str, str]]) -> None:
    """A JSON Lines file of (hash, canonical text) rows."""
    with path.open("w", encoding="utf-8") as file:
        file.write(export_formats.json_header(header))
        file.writelines(export_formats.json_row(recorded, text) for recorded, text in rows)


class Measured(NamedTuple):
    """Seconds of the processor and of the clock."""

    processor: float
    clock: float


def measured(command: list[str], folder: Path | None = None) -> Measured:
    """What a process takes, started in `folder`."""
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=folder)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{command} failed")
    clock = time.monotonic() - began
    return Measured(usage.ru_utime + usage.ru_stime, clock)


PARSE = "import json,sys\nfor line in open(sys.argv[1], encoding='utf-8'): json.loads(line)"
VERIFY = [sys.executable, "-m", "web.cli", "verify", "--json"]
SHORT = 200


def show(name: str, found: Measured) -> None:
    print(f"{name:28} {found.processor:7.2f} s {found.clock:7.2f} s")


def compare(path: Path, entries: int, short: Path, trees: list[Path], rounds: int) -> None:
    """Verify by turns with each tree, and print the best of each."""
    best: dict[Path, list[Measured]] = {}
    for _ in range(rounds):
        for tree in trees:
            best.setdefault(tree, []).append(measured([*VERIFY, str(path)], tree))
    for tree, found in best.items():
        start = min(measured([*VERIFY, str(short)], tree) for _ in range(rounds))
        least = min(found)
        show(f"exchequer verify, {tree.name}", least)
        show("  its start", start)
        taken = (least.processor - start.processor) / (entries - SHORT) * 1e6
        print(f"  {taken:.0f} µs of the processor an entry after the start")


def main() -> None:
    given = argparse.ArgumentParser()
    given.add_argument("--entries", type=int, default=10_000)
    given.add_argument("--public", action="store_true")
    given.add_argument(
        "--file", type=Path, help="where to leave the ledger; used as it is if it is there"
    )
    given.add_argument(
        "--against", type=Path, help="another tree, which verifies the file by turns"
    )
    given.add_argument("--rounds", type=int, default=5)
    asked = given.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path, short = (
            (asked.file or Path(folder) / "ledger.jsonl").resolve(),
            Path(folder) / "short.jsonl",
        )
        if not path.exists():
            write(path, asked.entries, asked.public)
        write(short, SHORT, asked.public)
        with path.open(encoding="utf-8") as file:
            entries = json.loads(next(file))["entries"]
        size = path.stat().st_size / 1e6
        print(f"{entries:,} entries{', public' if asked.public else ''}, {size:,.0f} MB")
        print(f"load {os.getloadavg()[0]:.1f} before")
        print(f"{'':28} {'processor':>9} {'clock':>9}")
        show("sha256sum", measured(["sha256sum", str(path)]))
        show("plain JSON parsing", measured([sys.executable, "-c", PARSE, str(path)]))
        trees = [Path.cwd(), *([] if asked.against is None else [asked.against.resolve()])]
        compare(path, entries, short, trees, asked.rounds)
        print(f"load {os.getloadavg()[0]:.1f} after")


if __name__ == "__main__":
    main()
