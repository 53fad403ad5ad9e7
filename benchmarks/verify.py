"""A ledger of a million entries: how long verification and export take, and in how much memory.

    python -m benchmarks.verify --entries 1000000 [--form jsonl|csv|parquet] [--public]

Writes the file with the writers' own code (core/ledger), then measures each of these in a process
of its own, in one run on one machine: `sha256sum`, plain JSON parsing of every line, and the verification
that `exchequer verify` does. Prints processor seconds, peak resident memory (a child's begins with that of
this process) and ratios.

The ledger: its rules and one allowance, then jobs of 40 shapes in two mechanisms. Of every ten, eight settle
with what was reserved, one is void and one stays live until the end. Every reason and every output's hash is
another.
"""

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from accountant.core import mechanisms
from accountant.core.ledger import export_formats, parquet_exports
from accountant.core.ledger.accounts import demand
from accountant.core.ledger.entry_bodies import allow_body, commit_body, reserve_body
from accountant.core.ledger.hash_chain import GENESIS, Entry, EntryKind, canonical, digest, published
from accountant.core.ledger.lineage import of_version
from accountant.core.ledger.policy import Policy
from accountant.core.ledger.replay import Replay
from accountant.core.ledger.rules import PRICED, policy_body, register_body
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


def _stated() -> dict[str, Any]:
    """The terms of the jobs, as a dataset declares them."""
    terms = shapes()[0][2].to_json()
    return {"groups": [], **{name: terms[name] for name in PRICED if name in terms}}


def steps(entries: int, replay: Replay) -> Iterator[tuple[EntryKind, str | None, dict[str, Any]]]:
    """Kinds, jobs and bodies of a realistic mix; bodies are made on the books as they are."""
    random.seed(1)
    kept: dict[int, tuple[dict[str, Any], dict[str, Any]]] = {}
    jobs = shapes()
    model = {"name": "model", "sha256": "0" * 64}
    approval = {"by": "a steward", "reason": "within the plan of this quarter"}
    for version in (None, 1):
        yield EntryKind.REGISTER, None, register_body(SimpleNamespace(unit_column=None, **_stated()), version)
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


def measured(command: list[str]) -> tuple[float, float]:
    """(processor seconds, peak resident MB) of a process: other work on the machine counts for neither."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{command} failed")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


PARSE = "import json,sys\nfor line in open(sys.argv[1], encoding='utf-8'): json.loads(line)"


def main() -> None:
    given = argparse.ArgumentParser()
    given.add_argument("--entries", type=int, default=1_000_000)
    given.add_argument("--form", choices=("jsonl", "csv", "parquet"), default="jsonl")
    given.add_argument("--public", action="store_true")
    asked = given.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"ledger.{asked.form}"
        write(path, asked.entries, asked.form, asked.public)
        usage = resource.getrusage(resource.RUSAGE_SELF)
        took, peak = usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024
        size = path.stat().st_size / 1e6
        print(f"{asked.entries:,} entries, {asked.form}{', public' if asked.public else ''}, {size:,.0f} MB")
        print(f"{'made and written':24} {took:8.1f} s  {peak:6.0f} MB")
        results = {"sha256sum": measured(["sha256sum", str(path)])}
        if asked.form == "jsonl":
            results["plain JSON parsing"] = measured([sys.executable, "-c", PARSE, str(path)])
        verify = [sys.executable, "-m", "web.cli", "verify", "--json", str(path)]
        results["exchequer verify"] = measured(verify)
        own = results["exchequer verify"][0]
        for name, (seconds, memory) in results.items():
            ratio = "" if name == "exchequer verify" else f"   verify takes {own / seconds:.1f} x that"
            print(f"{name:24} {seconds:8.1f} s  {memory:6.0f} MB{ratio}")


if __name__ == "__main__":
    main()
