"""Measurements, run as `python -m benchmarks.NAME`."""

import os

# One person of a benchmark asks for thousands of jobs that nobody runs.
for waiting in ("WAITING_JOBS", "APPROVALS"):
    os.environ.setdefault(f"EXCHEQUER_{waiting}_PER_PERSON", "1000000")
