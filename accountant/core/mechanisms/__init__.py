"""The registry: every mechanism that has a price, each a module of this package that defines
MECHANISM.

Prices are imported when the registry is first asked for, never by importing this package.
"""

from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from accountant.core.errors import invalid
from accountant.core.mechanisms import charge, rehearsal
from accountant.core.mechanisms.base import Mechanism

#: Every mechanism by its id, in the order of menus.
MECHANISMS: dict[str, Mechanism[Any]]


@cache
def _found() -> dict[str, Mechanism[Any]]:
    modules = (import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__))
    every = (module.MECHANISM for module in modules if hasattr(module, "MECHANISM"))
    return {
        mechanism.id: mechanism
        for mechanism in sorted(every, key=lambda each: (each.order, each.id))
    }


def __getattr__(name: str) -> Any:
    if name == "MECHANISMS":
        return _found()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def runnable() -> dict[str, Mechanism[Any]]:
    """Return the mechanisms that this service can run; the others have a price only."""
    return {name: mechanism for name, mechanism in _found().items() if mechanism.runner is not None}


def find(mechanism_id: object) -> Mechanism[Any] | None:
    """Return the mechanism called `mechanism_id`, or the rehearsal of one; None without either."""
    if not isinstance(mechanism_id, str):
        return None
    if mechanism_id.startswith(rehearsal.PREFIX):
        rehearsed = _found().get(mechanism_id.removeprefix(rehearsal.PREFIX))
        return None if rehearsed is None else rehearsal.of(rehearsed)
    if mechanism_id == charge.ID:  # in no menu: other programs ask for it
        return charge.CHARGE
    return _found().get(mechanism_id)


def get(mechanism_id: object) -> Mechanism[Any]:
    """Return the mechanism called `mechanism_id`. Raises InvalidRequest naming those that exist."""
    mechanism = find(mechanism_id)
    if mechanism is None:
        raise invalid("mechanism", f"unknown mechanism {mechanism_id!r}", ", ".join(_found()))
    return mechanism


def get_runnable(mechanism_id: object) -> Mechanism[Any]:
    """Return the same for a job: raises InvalidRequest where there is a price and no runner."""
    mechanism = get(mechanism_id)
    if mechanism.runner is None:
        problem = "priced, but this service has no runner for it yet"
        raise invalid("mechanism", problem, ", ".join(sorted(runnable())))
    return mechanism
