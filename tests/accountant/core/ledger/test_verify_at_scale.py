"""Verification holds the books, not the entries: its memory stays bounded however long the ledger
is.
"""

import subprocess
import sys

import pytest

from benchmarks.verify import documents, export

PEAK = """
import re, sys
from pathlib import Path
from web.cli.verify import verified
found = verified(sys.argv[1])
# Of this program alone: getrusage begins with what the process that started it held.
status = Path("/proc/self/status").read_text()
print(found.entries, int(re.search(r"VmHWM:\\s+(\\d+)", status)[1]) // 1024)
"""


#: 8,000 entries more; kept whole they would be 8 MB of text and far more as objects. A million
#: may take 150 MB above the start, so these may take 1.2.
LENGTHS = 1_000, 9_000


@pytest.fixture(scope="module")
def ledgers() -> list[tuple[dict, list[tuple[str, str]]]]:
    """(header, rows of an export) of each length."""
    found = []
    for length in LENGTHS:
        totals: dict = {}
        rows = list(documents(length, False, totals))
        found.append((totals["header"], rows))
    return found


@pytest.mark.slow
def test_memory_grows_by_little_with_the_entries(tmp_path, ledgers):
    peaks = []
    for header, rows in ledgers:
        path = tmp_path / f"{len(rows)}.jsonl"
        export(path, header, rows)
        command = [sys.executable, "-c", PEAK, str(path)]
        found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        assert int(found[0]) == len(rows)
        peaks.append(int(found[1]))
    assert peaks[1] < 300
    assert peaks[1] - peaks[0] < 6
