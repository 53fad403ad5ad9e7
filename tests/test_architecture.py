"""The accountant prices exactly what workers run. Import rules, types and style: `make lint`."""

import inspect
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_what_the_accountant_calls_runnable_is_what_workers_run():
    import pkgutil

    import workers.mechanisms
    from accountant.core.mechanisms import runnable

    files = {
        f"workers.mechanisms.{each.name}"
        for each in pkgutil.iter_modules(workers.mechanisms.__path__)
    }
    assert {each.runner for each in runnable().values()} == files
    for name, mechanism in runnable().items():
        running = workers.mechanisms.runner(name)
        if mechanism.public:  # it has no way to records
            names = inspect.signature(running.make).parameters
            assert set(names) == {"parameters", "terms", "model", "progress", "public"}, name
            assert not hasattr(running, "run"), name
        else:
            assert hasattr(running, "run"), name


def test_a_mechanism_that_reads_artifacts_has_a_runner_without_records_and_meter():
    from accountant.core.mechanisms import runnable
    from workers.mechanisms import runner

    for name, mechanism in runnable().items():
        if "from_job" in mechanism.fields:
            names = inspect.signature(runner(name).reuse).parameters
            assert list(names) == [
                "parameters",
                "terms",
                "artifacts",
                "model",
                "progress",
                "public",
            ]
