"""The path of one job from its request to its COMMIT, in this tree and in another by turns.

    python -m benchmarks.post_to_commit [--against FOLDER] [--rounds 5] [--each 40]

One job at a time, with a log outside the database and without a model: admission, claim, the start
of reading, COMMIT. Counted is processor time here and in the server for each step, in milliseconds:
it grows less than wall time when other work shares the machine. Figures are medians of the rounds.
`--against`: another tree of this program, with the commands of this one.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar
from uuid import UUID

from accountant.core.privacy.events import from_json
from accountant.queries import jobs
from accountant.transactions import leases, settlement
from benchmarks.admission import Ground, new_ground, server
from benchmarks.admission_parts import postmaster_of, server_seconds

T = TypeVar("T")
STEPS = ("admission", "claim", "reading begins", "COMMIT")


class Clock:
    """Processor time by step: here and in the server, summed."""

    def __init__(self, postmaster: int) -> None:
        self.postmaster = postmaster
        self.sums = {step: [0.0, 0.0] for step in STEPS}

    def run(self, step: str, act: Callable[[], T]) -> T:
        """Run a step and add what it took."""
        here, there = time.process_time(), server_seconds(self.postmaster)
        result = act()
        self.sums[step][0] += time.process_time() - here
        self.sums[step][1] += server_seconds(self.postmaster) - there
        return result


def run_job(ground: Ground, clock: Clock, number: int) -> UUID:
    """Take one job from its request to its COMMIT."""
    engine = ground.engine
    job_id = clock.run("admission", lambda: ground.submit(ground.datasets[1], number))
    event = from_json(jobs.job(engine, job_id, ground.steward)["event"])
    claim = clock.run("claim", lambda: leases.claim(engine, job_id, 1, "worker", 60.0))
    assert claim is not None
    clock.run("reading begins", lambda: leases.begin_reading(engine, claim))
    output = settlement.Output("draft", "0" * 64)
    clock.run("COMMIT", lambda: settlement.publish(engine, claim, event, output, "worker"))
    return job_id


def serve() -> None:
    """Print the milliseconds by step for each number of jobs that a line of input asks for."""
    with server(None) as (servers, folder):
        ground = new_ground(servers, folder, 2, log=True)
        postmaster = postmaster_of(folder)
        for number in range(20):
            run_job(ground, Clock(postmaster), number)
        print("ready", flush=True)
        for line in sys.stdin:
            clock, count = Clock(postmaster), int(line)
            for number in range(count):
                run_job(ground, clock, number)
            means = {step: [1e3 * sum_ / count for sum_ in clock.sums[step]] for step in STEPS}
            print(json.dumps(means), flush=True)
        ground.engine.dispose()


def start(tree: Path) -> "subprocess.Popen[str]":
    """Return a process that serves with the code of a tree."""
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).resolve()), "--serve"],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree.resolve())},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--against", type=Path, help="another tree, which runs by turns")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--each", type=int, default=40, help="jobs of one round")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve()
        return
    trees = {"this tree": Path(__file__).resolve().parents[1]}
    if options.against is not None:
        trees["the other"] = options.against
    processes = {name: start(tree) for name, tree in trees.items()}
    rounds: dict[str, list[dict[str, list[float]]]] = {name: [] for name in trees}
    for _ in range(options.rounds):
        for name, process in processes.items():
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(f"{options.each}\n")
            process.stdin.flush()
            rounds[name].append(json.loads(process.stdout.readline()))
    for process in processes.values():
        assert process.stdin is not None
        process.stdin.close()
        process.wait()
    print(f"medians of {options.rounds} x {options.each} jobs, load {os.getloadavg()[0]:.1f}")
    for step in STEPS:
        for name, found in rounds.items():
            here, there = (
                statistics.median(means[step][place] for means in found) for place in (0, 1)
            )
            print(f"{step:16} {name:10} {here:6.2f} ms here, {there:6.2f} ms in the server")


if __name__ == "__main__":
    main()
