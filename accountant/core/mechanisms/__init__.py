"""The registry: every mechanism that has a price, built in or shipped by others.

A built-in one is a module of this package that defines MECHANISM; others come by entry point
(registration.py). Prices are imported when the registry is first asked for, never by importing this package.
"""

from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from accountant.core.errors import invalid
from accountant.core.mechanisms import rehearsal
from accountant.core.mechanisms.base import Mechanism
from accountant.core.mechanisms.registration import found as found_elsewhere

#: Every mechanism by its id, in the order of menus.
MECHANISMS: dict[str, Mechanism[Any]]


@cache
def _found() -> tuple[dict[str, Mechanism[Any]], dict[str, str]]:
    modules = (import_module(f"{__name__}.{each.name}") for each in iter_modules(__path__))
    own = {each.MECHANISM.id: each.MECHANISM for each in modules if hasattr(each, "MECHANISM")}
    others, refused = found_elsewhere(own)
    every = sorted({**own, **others}.values(), key=lambda each: (each.order, each.id))
    return {each.id: each for each in every}, refused


def __getattr__(name: str) -> Any:
    if name == "MECHANISMS":
        return _found()[0]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def runnable() -> dict[str, Mechanism[Any]]:
    """The mechanisms that this service can run; the others have a price only."""
    return {name: each for name, each in _found()[0].items() if each.runner is not None}


def find(mechanism_id: object) -> Mechanism[Any] | None:
    """The mechanism called `mechanism_id`, or the rehearsal of one; None where there is none."""
    if not isinstance(mechanism_id, str):
        return None
    if mechanism_id.startswith(rehearsal.PREFIX):
        rehearsed = _found()[0].get(mechanism_id.removeprefix(rehearsal.PREFIX))
        return None if rehearsed is None else rehearsal.of(rehearsed)
    return _found()[0].get(mechanism_id)


def get(mechanism_id: object) -> Mechanism[Any]:
    """The mechanism called `mechanism_id`. Raises InvalidRequest naming those that exist."""
    known, refused = _found()
    found = find(mechanism_id)
    if found is None:
        why = f"unknown mechanism {mechanism_id!r}"
        if isinstance(mechanism_id, str) and mechanism_id in refused:
            why = f"{mechanism_id} was refused at registration: {refused[mechanism_id]}"
        raise invalid("mechanism", why, ", ".join(known))
    return found


def get_runnable(mechanism_id: object) -> Mechanism[Any]:
    """The same for a job: raises InvalidRequest where there is a price and no runner."""
    found = get(mechanism_id)
    if found.runner is None:
        problem = "priced, but this service has no runner for it yet"
        raise invalid("mechanism", problem, ", ".join(sorted(runnable())))
    return found
