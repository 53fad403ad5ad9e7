"""Many claimants on many datasets: `python -m benchmarks.claimants [--seconds 120]`.

100 datasets with 20 concurrent claimants each, spread over processes whose threads ask for jobs of
mixed size until the time is up; what is admitted is cancelled now and then, so that room comes
back. Exits 1 unless no dataset is overspent (integrity.check replays each ledger and compares
balances, entries and jobs) and no claimant met an error: a refusal is an answer.
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import text

from accountant.database import connect
from accountant.identities.actor import Actor
from accountant.queries import integrity, jobs
from accountant.transactions import settlement, submission
from accountant.transactions.job_requests import JobRequest
from benchmarks.admission import new_ground, server

CLAIMANTS = 20
#: Tokens per job; 358 fit the allowance, so a handful of jobs fill a dataset.
SIZES = (5, 17, 40, 90)


@dataclass
class Outcome:
    """The claimants' results: answers by kind, errors by type, milliseconds of each request."""

    answers: Counter[str]
    errors: Counter[str]
    taken: list[float]


def claim(url: str, datasets: list[str], analyst: Actor, model: str, seconds: float) -> Outcome:
    """CLAIMANTS threads for each dataset, in this process."""
    engine = connect(url, pool_size=5, wait_seconds=600)  # hundreds of threads share these few
    outcome = Outcome(Counter(), Counter(), [])
    # Real jobs are probed: the first in each process reads the probe, the others find it known.
    end = time.monotonic() + seconds

    def run(dataset: str) -> None:
        # sizes and pauses, nothing private
        chance = random.Random(f"{dataset} {threading.get_ident()}")
        while time.monotonic() < end:
            request = JobRequest(
                dataset,
                "private-prediction",
                model,
                {"tokens_per_batch": chance.choice(SIZES)},
                "claim",
            )
            start = time.perf_counter()
            try:
                job_id = submission.submit(engine, request, analyst, str(uuid4()))
                outcome.taken.append(1e3 * (time.perf_counter() - start))
                state = jobs.job(engine, job_id, analyst)["state"]
                outcome.answers[state] += 1
                if state == "queued" and chance.random() < 0.8:
                    settlement.cancel(engine, job_id, analyst)
            except Exception as error:
                outcome.errors[f"{type(error).__name__}: {str(error)[:80]}"] += 1

    threads = [
        threading.Thread(target=run, args=(each,)) for each in datasets for _ in range(CLAIMANTS)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    engine.dispose()
    return outcome


def measure(
    datasets: int, seconds: float, processes: int, home: Path | None = None
) -> dict[str, Any]:
    """Run it on a server of its own; what was met, and what the checks found wrong afterwards."""
    with server(home) as (servers, folder):
        ground = new_ground(servers, folder, datasets, epsilon="10")
        shares = [ground.datasets[number::processes] for number in range(processes)]
        told = {"url": ground.url, "analyst": str(ground.analyst.id), "model": ground.model}
        claimants = [
            subprocess.Popen(
                [sys.executable, "-m", "benchmarks.claimants", "--as-claimants"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=Path(__file__).resolve().parents[1],
            )
            for _ in shares
        ]
        for process, share in zip(claimants, shares, strict=True):
            assert process.stdin is not None
            process.stdin.write(json.dumps({**told, "datasets": share, "seconds": seconds}))
            process.stdin.close()
        met = []
        for process in claimants:
            assert process.stdout is not None
            met.append(json.loads(process.stdout.read()))
            process.wait()
        wrong = {
            name: found
            for name in ground.datasets
            if (found := integrity.check(ground.engine, name))
        }
        with ground.engine.connect() as connection:
            entries = connection.execute(text("SELECT count(*) FROM entries")).scalar_one()
        ground.engine.dispose()
    taken = sorted(value for each in met for value in each["taken"])
    return {
        "answers": dict(sum((Counter(each["answers"]) for each in met), Counter())),
        "errors": dict(sum((Counter(each["errors"]) for each in met), Counter())),
        "wrong": wrong,
        "entries": entries,
        "p50": statistics.median(taken),
        "p99": taken[int(0.99 * len(taken))],
    }


def main() -> int:
    """Print what was met; 1 where anything is wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--datasets", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--home", type=Path, help="where the server's folder is made: a real disk")
    parser.add_argument("--as-claimants", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.as_claimants:
        told = json.load(sys.stdin)
        analyst = Actor(UUID(told["analyst"]), "analyst", frozenset({"analyst"}))
        outcome = claim(told["url"], told["datasets"], analyst, told["model"], told["seconds"])
        print(json.dumps(outcome.__dict__))
        return 0
    found = measure(asked.datasets, asked.seconds, asked.processes, asked.home)
    answers = sum(found["answers"].values())
    print(
        f"{asked.datasets} datasets x {CLAIMANTS} claimants, {asked.processes} processes, "
        f"{asked.seconds:g} s"
    )
    print(f"{answers:,} answers {found['answers']}, {found['entries']:,} entries")
    print(
        f"p50 {found['p50']:.0f} ms, p99 {found['p99']:.0f} ms from asking to the committed answer"
    )
    print(f"errors other than refusals: {found['errors'] or 'none'}")
    print(f"datasets whose ledger does not check: {found['wrong'] or 'none'}")
    return int(bool(found["errors"] or found["wrong"]))


if __name__ == "__main__":
    sys.exit(main())
