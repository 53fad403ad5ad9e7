"""The cost of reading records: a CSV file, a Parquet file and JSON Lines of a size, in this tree
and another.

    python -m benchmarks.reading [--gigabytes 1] [--before FOLDER] [--rounds 2] [--forms …] [--what
      …]

`--before` is another checkout of the project. Both trees read the same files in turn, each in a
process of its own: all records as a job reads them, and the units' fingerprints as a registration
does. The least CPU seconds of all rounds count. A record has an integer unit, a label and a text of
about 300 characters.
"""

import argparse
import csv
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

WORDS = (
    "the",
    "gym",
    "was",
    "clean",
    "quiet",
    "but",
    "showers",
    "cold",
    "left",
    "early",
    "better",
    "place",
    "größer",
)
LABELS = ("pos", "neg")
FORMS = ("csv", "parquet", "jsonl")

_READ = """
import sys, time
from workers.data import fingerprints, records
path, what = sys.argv[1:]
layout = records.Layout("{text}", "person", "label", ("pos", "neg"), 3)
begin = time.process_time()
if what == "read":
    found = records.records(path, layout)
else:
    found = fingerprints.fingerprints(path, layout, b"k" * 32)
count = sum(1 for _ in found)
print(time.process_time() - begin, count)
"""


def make(folder: Path, size: int) -> None:
    """Write the three files, each of about `size` bytes of text."""
    import pyarrow
    from pyarrow import parquet

    draw = random.Random(7)
    texts = [" ".join(draw.choices(WORDS, k=55)) + "." for _ in range(5_000)]
    schema = pyarrow.schema([("person", "int64"), ("label", "string"), ("text", "string")])
    with (
        (folder / "data.csv").open("w", newline="") as first,
        (folder / "data.jsonl").open("w") as second,
        parquet.ParquetWriter(
            folder / "data.parquet", schema, compression="none", use_dictionary=False
        ) as third,
    ):
        rows = csv.writer(first)
        rows.writerow(schema.names)
        while first.tell() < size:
            group = [
                (
                    draw.randrange(10**7),
                    draw.choice(LABELS),
                    f"{draw.random()} {draw.choice(texts)}",
                )
                for _ in range(20_000)
            ]
            rows.writerows(group)
            second.writelines(
                json.dumps(dict(zip(schema.names, row, strict=True)), ensure_ascii=False) + "\n"
                for row in group
            )
            third.write_table(pyarrow.table(list(zip(*group, strict=True)), schema=schema))


def seconds(tree: Path, path: Path, what: str) -> float:
    """CPU seconds that a tree takes to read a file, or to register it, in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", _READ, str(path), what]
    made = subprocess.run(
        command, cwd=tree, env=environment, capture_output=True, text=True, check=True
    )
    return float(made.stdout.split()[0])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--gigabytes", type=float, default=1)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=FORMS)
    parser.add_argument(
        "--what", nargs="+", choices=("read", "register"), default=("read", "register")
    )
    options = parser.parse_args()
    here = Path(__file__).resolve().parent.parent
    trees = {"this tree": here, **({"before": options.before.resolve()} if options.before else {})}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make(folder, int(options.gigabytes * 1e9))
        print(
            f"{'file':10s}{'':12s}{'bytes':>16s}"
            + "".join(f"{tree:>14s}" for tree in trees)
            + f"{'ratio':>8s}"
        )
        for form in options.forms:
            path = folder / f"data.{form}"
            for what in options.what:
                least = {tree: float("inf") for tree in trees}
                for _ in range(options.rounds):
                    for tree, root in trees.items():
                        least[tree] = min(least[tree], seconds(root, path, what))
                columns = "".join(f"{least[tree]:12.1f} s" for tree in trees)
                ratio = f"{least['this tree'] / least['before']:8.2f}" if "before" in least else ""
                print(f"{form:10s}{what:12s}{path.stat().st_size:16,d}{columns}{ratio}", flush=True)


if __name__ == "__main__":
    main()
