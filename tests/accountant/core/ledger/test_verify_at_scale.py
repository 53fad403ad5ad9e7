"""Verification holds the books, not the entries: its memory stays bounded however long the ledger is."""

import subprocess
import sys

import pytest

from benchmarks.verify import write

PEAK = """
import re, sys
from pathlib import Path
from web.cli.verify import verified
found = verified(sys.argv[1])
# Of this program alone: getrusage begins with what the process that started it held.
print(found.entries, int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) // 1024)
"""


@pytest.mark.slow
@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
def test_memory_grows_by_little_with_the_entries(tmp_path, form):
    peaks = []
    for entries in (2_000, 30_000):
        path = tmp_path / f"{entries}.{form}"
        write(path, entries, form, public=False)
        command = [sys.executable, "-c", PEAK, str(path)]
        found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        assert int(found[0]) == entries
        peaks.append(int(found[1]))
    assert peaks[1] < 300
    # 28,000 entries more; kept whole they would be 28 MB of text and far more as objects. A million may
    # take 150 MB above the start, so these may take 4.2, and a few more for a larger row group.
    assert peaks[1] - peaks[0] < (25 if form == "parquet" else 10)
