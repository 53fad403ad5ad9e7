"""The import rules of DESIGN section 7 hold, and the types check."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def test_import_rules_hold():
    run = subprocess.run(
        [Path(sys.executable).parent / "lint-imports"], cwd=ROOT, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout


def test_what_the_accountant_calls_runnable_is_what_workers_run():
    from accountant.core.mechanisms import RUNNABLE
    from workers.mechanisms import RUNNERS, runner

    assert set(RUNNERS) == RUNNABLE
    assert all(hasattr(runner(name), "run") for name in RUNNERS)


def test_a_mechanism_that_reads_artifacts_has_a_runner_without_records_and_meter():
    import inspect

    from accountant.core.mechanisms import MECHANISMS
    from workers.mechanisms import RUNNERS, runner

    for name in RUNNERS:
        if "from_job" in MECHANISMS[name].fields:
            names = inspect.signature(runner(name).reuse).parameters
            assert list(names) == ["parameters", "terms", "artifacts", "model", "progress"]


@pytest.mark.slow
def test_types_check_strictly():
    run = subprocess.run([sys.executable, "-m", "mypy"], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout


def test_style_holds():
    run = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "."], cwd=ROOT, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout
