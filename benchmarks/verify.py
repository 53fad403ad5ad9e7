"""A ledger of a million entries: how long verification and export take, and in how much memory.

    python -m benchmarks.verify --entries 1000000 [--form jsonl|csv|parquet] [--public] [--file PATH]

Writes the file with the writers' own code (core/ledger), then measures each of these in a process
of its own, in one run on one machine: `sha256sum`, plain JSON parsing of every line, and the verification
that `exchequer verify` does, of JSON Lines by one process and by two. Prints processor seconds of all
processes together, those of the busiest, the time that passed, the peak of their memory together, and ratios.

Other work on the machine makes the time that passes longer, and that of two processes more than that of one:
the load is printed before and after. Two processes can't be done sooner than the busier of them.

The ledger: its rules and one allowance, then jobs of 40 shapes in two mechanisms. Of every ten, eight settle
with what was reserved, one is void and one stays live until the end. Every reason and every output's hash is
another.
"""

import argparse
import json
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from accountant.core import mechanisms
from accountant.core.ledger import export_formats, parquet_exports
from accountant.core.ledger.accounts import demand
from accountant.core.ledger.entry_bodies import allow_body, commit_body, reserve_body
from accountant.core.ledger.hash_chain import GENESIS, Entry, EntryKind, canonical, digest, published
from accountant.core.ledger.lineage import of_version
from accountant.core.ledger.policy import Policy
from accountant.core.ledger.replay import Replay
from accountant.core.ledger.rules import PRICED, UNIT_TERMS, policy_body, register_body
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
        found.append((mechanism_id, parameters.model_dump(mode="json"), terms, event))
    return found


def _declared() -> SimpleNamespace:
    """The terms of the jobs, as a dataset declares them."""
    terms = {"groups": [], **shapes()[0][2].to_json()}
    priced = {name: terms[name] for name in PRICED}
    return SimpleNamespace(unit_column=None, **priced, **dict.fromkeys(UNIT_TERMS, "refuse"))


def steps(entries: int, replay: Replay) -> Iterator[tuple[EntryKind, str | None, dict[str, Any]]]:
    """Kinds, jobs and bodies of a realistic mix; bodies are made on the books as they are."""
    random.seed(1)
    kept: dict[int, tuple[dict[str, Any], dict[str, Any]]] = {}
    jobs = shapes()
    model = {"name": "model", "sha256": "0" * 64}
    approval = {"by": "a steward", "reason": "within the plan of this quarter"}
    for version in (None, 1):
        yield EntryKind.REGISTER, None, register_body(_declared(), version)
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
        job, shape = str(uuid.UUID(int=random.getrandbits(128), version=4)), random.randrange(len(jobs))
        reserve, commit = kept[shape]
        reason = f"within the plan of this quarter, item {made}"
        commit = {**commit, "output_sha256": random.randbytes(32).hex()}
        yield EntryKind.RESERVE, job, {**reserve, "approval": {**approval, "reason": reason}}
        made += 1
        turn = made % 10
        if turn < 8:
            waiting.append((EntryKind.COMMIT, job, commit))
        elif turn == 8:
            waiting.append(
                (EntryKind.VOID, job, {"outcome": "cancelled", "reason": "cancelled in the queue"})
            )
        if len(waiting) > 5 and made < entries:
            yield waiting.pop(0)
            made += 1


def documents(
    entries: int, public: bool, result: dict[str, Any]
) -> Iterator[tuple[dict[str, Any], str, str]]:
    """(document, hash, canonical text) of each entry; `result` gets the totals at the end."""
    replay, head = Replay(), GENESIS
    for seq, (kind, job, body) in enumerate(steps(entries, replay), start=1):
        replay.apply(kind, job, body)
        at = START + timedelta(milliseconds=700 * seq)
        entry = Entry(DATASET, seq, kind, at, "grace", job, body, head)
        document = entry.document()
        head = digest(document)
        shown = dict(published(document)) if public else document
        yield head, canonical(shown).decode()
    result["header"] = export_formats.header(
        DATASET, entries, head, replay.books, replay.live_count, public=public
    )


def write(path: Path, entries: int, form: str, public: bool) -> None:
    """The export of a ledger of so many entries."""
    result: dict[str, Any] = {}
    # Salts are random, so the entries are kept on disk between the passes.
    with tempfile.TemporaryFile("w+", encoding="utf-8") as spool:
        for recorded, text in documents(entries, public, result):
            spool.write(f"{recorded}{text}\n")
        spool.seek(0)
        export(path, form, result["header"], ((line[:64], line[64:-1]) for line in spool))


def export(path: Path, form: str, header: dict[str, Any], rows: Iterable[tuple[str, str]]) -> None:
    """A file of (hash, canonical text) rows. JSON Lines and Parquet state totals first: `header` has them."""
    if form == "parquet":
        columns = (export_formats.columns(json.loads(text), recorded, text) for recorded, text in rows)
        with path.open("wb") as binary:
            binary.writelines(parquet_exports.write(header, columns))
        return
    with path.open("w", encoding="utf-8") as file:
        if form == "csv":
            file.write(export_formats.CSV_HEADER)
            file.writelines(export_formats.csv_row(json.loads(t), recorded, t) for recorded, t in rows)
            file.write(export_formats.csv_totals(header))
        else:
            file.write(export_formats.json_header(header))
            file.writelines(export_formats.json_row(recorded, text) for recorded, text in rows)


class Measured(NamedTuple):
    """Seconds of the clock, of all processors and of the busiest process, and MB at the most."""

    clock: float
    processors: float
    busiest: float
    memory: float


def measured(command: list[str]) -> Measured:
    """What a process and its children take. Looks at them ten times a second; what is shared counts once."""
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    memory, seconds = 0.0, {process.pid: 0.0}
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            break
        with suppress(OSError):  # one of them has just ended
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            own = [process.pid, *map(int, children)]
            memory = max(memory, sum(map(_resident, own)))
            seconds |= {each: _used(each) for each in own}
        time.sleep(0.1)
    took = time.monotonic() - began
    if status:
        raise SystemExit(f"{command} failed")
    return Measured(took, usage.ru_utime + usage.ru_stime, max(seconds.values()), memory)


def _resident(pid: int) -> float:
    """MB of a process, pages that it shares with others divided among them."""
    found = re.search(r"^Pss:\s+(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
    return int(found[1]) / 1024 if found else 0


def _used(pid: int) -> float:
    """Processor seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


PARSE = "import json,sys\nfor line in open(sys.argv[1], encoding='utf-8'): json.loads(line)"


def main() -> None:
    given = argparse.ArgumentParser()
    given.add_argument("--entries", type=int, default=1_000_000)
    given.add_argument("--form", choices=("jsonl", "csv", "parquet"), default="jsonl")
    given.add_argument("--public", action="store_true")
    given.add_argument("--file", type=Path, help="where to leave the ledger; used as it is if it is there")
    asked = given.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = asked.file or Path(folder) / f"ledger.{asked.form}"
        if not path.exists():
            write(path, asked.entries, asked.form, asked.public)
        usage = resource.getrusage(resource.RUSAGE_SELF)
        took, peak = usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024
        size = path.stat().st_size / 1e6
        print(f"{asked.entries:,} entries, {asked.form}{', public' if asked.public else ''}, {size:,.0f} MB")
        print(f"{'made and written':24} {took:8.1f} s  {peak:6.0f} MB")
        results = {"sha256sum": measured(["sha256sum", str(path)])}
        if asked.form == "jsonl":
            results["plain JSON parsing"] = measured([sys.executable, "-c", PARSE, str(path)])
        print(f"load {os.getloadavg()[0]:.1f} before verification")
        verify = [sys.executable, "-m", "web.cli", "verify", "--json", str(path), "--processes"]
        results["exchequer verify"] = own = measured([*verify, "1"])
        if asked.form == "jsonl":
            results["  by two processes"] = measured([*verify, "2"])
        print(f"{'':24} {'processors':>11} {'busiest':>8} {'clock':>8} {'memory':>8}")
        for name, found in results.items():
            print(
                f"{name:24} {found.processors:9.1f} s {found.busiest:6.1f} s {found.clock:6.1f} s "
                f"{found.memory:5.0f} MB"
            )
        for name in list(results)[: 2 if asked.form == "jsonl" else 1]:
            print(f"verify takes {own.processors / results[name].processors:.1f} x {name} (processors)")
        print(f"verify: {own.processors / asked.entries * 1e6:.1f} µs of processors an entry, with the start")
        if asked.form == "jsonl":
            two = results["  by two processes"]
            print(
                f"two processes: {own.clock / two.clock:.2f} x as fast by the clock; at most "
                f"{own.processors / two.busiest:.2f} x on idle processors"
            )
        print(f"load {os.getloadavg()[0]:.1f} after it")


if __name__ == "__main__":
    main()
