"""The registry of runners: one file each, named as its price in accountant.core.mechanisms is."""

from functools import cache
from importlib import import_module

from workers.interface import Runner

RUNNERS = ("epsvec", "evaluation", "invisible-ink", "noisy-count", "private-prediction", "vocabulary")


@cache
def runner(mechanism_id: str) -> Runner:
    """The runner of a mechanism, imported when it is first asked for: some need torch and some don't."""
    if mechanism_id not in RUNNERS:
        raise KeyError(mechanism_id)
    found: Runner = import_module(f"{__name__}.{mechanism_id.replace('-', '_')}").Runner()
    return found
