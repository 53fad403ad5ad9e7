"""`make faults`: inject faults and print what was found. Exit code 1 where a promise is broken."""

import argparse
import json
import random
import shutil
import sys
from pathlib import Path

from tests.faults.checker import check_exports
from tests.faults.harness import Harness, Outcome


def main() -> int:
    """Run, print, and say by the exit code whether every promise held."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--faults", type=int, default=200, help="how many faults to inject")
    parser.add_argument("--seed", type=int, default=None, help="replay the faults of another run")
    parser.add_argument(
        "--mutation", default="", help="take out one guard (see tests/faults/mutations.py)"
    )
    parser.add_argument("--keep", action="store_true", help="keep the folder of a clean run too")
    parser.add_argument("--report", type=Path, help="write what was found as JSON")
    parser.add_argument(
        "--again", type=Path, help="judge the limits of an earlier run's exports, in this folder"
    )
    chosen = parser.parse_args()
    if chosen.again:
        found = check_exports(chosen.again).broken["overspends"]
        print(*(f"{len(found)} overspends", *found[:8]), sep="\n")
        return 1 if found else 0
    seed = random.SystemRandom().randrange(2**31) if chosen.seed is None else chosen.seed
    print(f"seed {seed}: {chosen.faults} faults", flush=True)
    with Harness(seed, chosen.mutation, lambda line: print(line, flush=True)) as harness:
        outcome = harness.run(chosen.faults)
    print(summary(outcome))
    if chosen.report:
        chosen.report.write_text(
            json.dumps({"broken": outcome.findings.broken, "reached": sorted(outcome.reached)})
        )
    if outcome.findings.clean and not chosen.keep:
        shutil.rmtree(harness.home, ignore_errors=True)
    else:
        print(f"logs, witness and exports: {outcome.folder}")
    return 0 if outcome.findings.clean else 1


def upper_bound(faults: int, confidence: float = 0.95) -> float:
    """The rate of harmful faults above which none in `faults` has less than 1 - confidence
    probability.

    Exact for a binomial with no event; about 3 / n (the rule of three).
    """
    return 1 - (1 - confidence) ** (1 / faults)


def summary(outcome: Outcome) -> str:
    """The figures, each with what it counts."""
    total = sum(outcome.injected.values())
    jobs = {
        state: outcome.findings.counts[state]
        for state in ("succeeded", "failed", "cancelled", "refused")
    }
    lines = [
        f"{total} faults in {outcome.seconds:.0f} s, seed {outcome.seed} "
        f"(lease {outcome.settings['lease']} s, {outcome.settings['datasets']} datasets)",
        *(f"  {count:5}  {kind}" for kind, count in outcome.injected.most_common()),
        f"  {len(outcome.points)} crash points hit; {len(outcome.reached)} reached",
        "jobs: "
        + ", ".join(f"{count} {state}" for state, count in jobs.items())
        + f"; {outcome.findings.counts['attempts that read data']} attempts read data",
        f"  {outcome.findings.counts['artifacts published']} artifacts, "
        f"{outcome.findings.counts['jobs of artifacts']} free jobs; "
        f"{outcome.findings.counts['jobs of several parts']} jobs of several parts; "
        f"{outcome.findings.counts['REVERSAL']} corrections",
        f"  {outcome.restores}",
    ]
    for promise, cases in outcome.findings.broken.items():
        lines.append(f"  {len(cases):5}  {promise}")
        lines += [f"         {case}" for case in cases[:8]]
    for note, cases in outcome.findings.notes.items():
        lines.append(f"  {len(cases):5}  {note} (no promise is broken by these)")
        lines += [f"         {case}" for case in cases[:3]]
    if outcome.findings.clean:
        lines.append(
            f"all zero: with 95 % confidence fewer than {upper_bound(total):.2%} of such faults do "
            "harm"
        )
    lines.append(f"again: make faults FAULTS={total} SEED={outcome.seed}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
