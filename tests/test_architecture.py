"""What the accountant prices is what workers run. Import rules, types and style: `make lint`."""

import inspect
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_what_the_accountant_calls_runnable_is_what_workers_run():
    from accountant.core.mechanisms import RUNNABLE
    from workers.mechanisms import RUNNERS, runner

    assert set(RUNNERS) == RUNNABLE
    assert all(hasattr(runner(name), "run") for name in RUNNERS)


def test_a_mechanism_that_reads_artifacts_has_a_runner_without_records_and_meter():
    from accountant.core.mechanisms import MECHANISMS
    from workers.mechanisms import RUNNERS, runner

    for name in RUNNERS:
        if "from_job" in MECHANISMS[name].fields:
            names = inspect.signature(runner(name).reuse).parameters
            assert list(names) == ["parameters", "terms", "artifacts", "model", "progress", "public"]
