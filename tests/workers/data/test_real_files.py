"""Real files: reviews, news, abstracts; records and units beside counts by hand.

Each file is counted by the standard library alone, read as it is, and read again as other libraries
write it: in parts of other formats, with its identifiers typed as they come.
"""

import csv
import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support import SHARED, needs_shared
from workers.data import fingerprints, manifest, records
from workers.data.records import Layout

KEY = b"k" * 32

#: file -> (column of the text, of the unit, of the label).
FILES: dict[str, tuple[str, str | None, str | None]] = {
    "ag_news/test.csv.gz": ("description", None, "label_name"),
    "openreview/iclr2017_reviews.csv.gz": ("review", "title", "rating"),
    "opinion_summaries/fewsum.jsonl.gz": ("reviews", "id", "category"),
    "pubmedqa/pqa_labeled.jsonl.gz": ("question", "pmid", None),
    "yelp_augpe/dev.csv.gz": ("text", None, "label1"),
}


def by_hand(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        if ".jsonl" in path.name:
            return [json.loads(line) for line in file]
        return list(csv.DictReader(file))


def layout_of(name: str, rows: list[dict[str, Any]], bound: int) -> Layout:
    text, unit, label = FILES[name]
    labels = () if label is None else tuple(sorted({row[label] for row in rows}))
    return Layout(f"{{{text}}}", unit, label, labels, bound if unit else 1)


def counted(name: str, rows: list[dict[str, Any]], bound: int) -> int:
    unit = FILES[name][1]
    if unit is None:
        return len(rows)
    return sum(min(bound, count) for count in Counter(row[unit] for row in rows).values())


def registered(address: Path, layout: Layout) -> tuple[int, int]:
    """(units by fingerprint, records that a job counts)."""
    records.check_columns(str(address), layout)
    manifest.of(str(address))
    units = {
        each.value for each in fingerprints.fingerprints(str(address), layout, KEY) if each.is_unit
    }
    return len(units), len(records.read(str(address), layout, KEY).records)


@needs_shared
@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_a_real_file_counts_as_by_hand_whoever_wrote_it(name, tmp_path):
    path = SHARED / "data" / name
    if not path.exists():
        pytest.skip(f"{name} is not here")
    rows = by_hand(path)
    for bound in (1, 3):
        layout = layout_of(name, rows, bound)
        units, count = registered(path, layout)
        assert count == counted(name, rows, bound)
        if layout.unit_column:
            assert units == len({row[layout.unit_column] for row in rows})
    pandas = pytest.importorskip("pandas")
    half = len(rows) // 2
    first, second = pandas.DataFrame(rows[:half]), pandas.DataFrame(rows[half:])
    first.to_parquet(tmp_path / "a.parquet")
    if ".csv" in path.name:  # its own types: numbers, and floats where a number is missing
        first = pandas.read_csv(path, keep_default_na=False).iloc[:half]
        first.to_parquet(tmp_path / "a.parquet")
    second.to_json(tmp_path / "b.jsonl.gz", orient="records", lines=True)
    assert registered(tmp_path, layout)[1] == counted(name, rows, 3)
