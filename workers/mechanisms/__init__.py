"""One algorithm file for each price in accountant.core.mechanisms that names it as its runner."""

from functools import cache
from importlib import import_module

from accountant.core import mechanisms
from workers.interface import Runner


@cache
def runner(mechanism_id: str) -> Runner:
    """Return the runner of a mechanism, imported when it is first asked for: some need torch and
    some don't.

    Raises InvalidRequest where there is none.
    """
    named = mechanisms.get_runnable(mechanism_id).runner
    assert named is not None
    runner: Runner = import_module(named).Runner()
    return runner
