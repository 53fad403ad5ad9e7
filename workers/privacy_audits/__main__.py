"""`python -m workers.privacy_audits`: run an audit and write its report; `exchequer audit` calls
it.

Exit code 0: passed; 1: it found something; 2: bad input.
"""

import argparse
import csv
import sys
import tempfile
from pathlib import Path
from typing import Any

from accountant.core.errors import ExchequerError, invalid
from workers import sample
from workers.data.records import Record
from workers.models import LocalModel
from workers.privacy_audits import leave_one_out, reconstruction, report, subjects


def main(arguments: list[str] | None = None) -> int:
    """Run the audit that the arguments name, and return the exit code."""
    options = _parser().parse_args(arguments)
    try:
        with tempfile.TemporaryDirectory() as scratch:
            summary = _run(options, Path(scratch))
    except ExchequerError as error:
        print(f"audit: {error}", file=sys.stderr)
        return 2
    data, text = report.write(summary, Path(options.output))
    print(text.read_text(encoding="utf-8"))
    print(f"written to {text} and {data}")
    return 0 if summary["passed"] else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m workers.privacy_audits", description=__doc__.partition("\n\n")[0]
    )
    commands = parser.add_subparsers(dest="audit", required=True)
    for name, texts in (("reconstruction", 20), ("leave-one-out", 8)):
        command = commands.add_parser(name)
        command.add_argument("--arm", action="append", choices=tuple(subjects.ARMS), default=None)
        command.add_argument("--model", default=None)
        command.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
        command.add_argument("--texts", type=int, default=texts)
        command.add_argument("--output", "-o", default=f"audit-{name}")
        if name == "reconstruction":
            command.add_argument("--keys", type=int, default=50_000)
        else:
            command.add_argument("--keys", type=int, default=256)
            command.add_argument("--sample", action="store_true")
    return parser


def _run(options: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    if options.texts < 1:
        raise invalid("texts", f"{options.texts} texts a batch", "a whole number from 1")
    arms = options.arm or ["mean", "median"]
    settings = subjects.parse_set(options.set)
    subjects.check_fields(settings, arms)
    folder = options.model
    if options.audit == "leave-one-out" and options.sample:
        folder = folder or str(sample.MODEL_DIR)
    model = subjects.load_model(folder, scratch)
    name = "copies its context, weights set by hand" if folder is None else Path(folder).name
    if options.audit == "reconstruction":
        summary = reconstruction.audit(model, arms, options.keys, options.texts, settings)
    else:
        records, labels = _records(options, model)
        summary = leave_one_out.audit(model, arms, records, labels, settings)
    return {"model": name, **summary}


def _records(
    options: argparse.Namespace, model: LocalModel
) -> tuple[tuple[Record, ...], dict[str, Any]]:
    """Return the planted records of a leave-one-out audit, and the parameters that go with them."""
    if not options.sample:
        key_parameters = subjects.key_parameters(model)
        length = key_parameters["max_text_tokens"]
        records = tuple(map(subjects.record_of, subjects.planted(2 * options.keys)[0]))
        return records, key_parameters | {
            "tokens_per_batch": length * options.texts,
            "texts_per_batch": options.texts,
        }
    key_parameters = {
        "template": sample.TEMPLATE,
        "public_template": "A review ({label}):",
        "record_tokens": 64,
        "tokens_per_batch": 48 * options.texts,
        "max_text_tokens": 48,
        "max_tokens": 48,
        "texts_per_batch": options.texts,
    }
    with sample.PRIVATE_CSV.open(encoding="utf-8", newline="") as file:
        rows = {row["text"]: row["label"] for row in csv.DictReader(file)}
    return tuple(Record(text, label, text) for text, label in rows.items())[
        : options.keys
    ], key_parameters


if __name__ == "__main__":
    sys.exit(main())
