"""Where long work looks whether it must stop: before every forward pass, every piece of a file,
every text.

    with watching(look):            # the attempt's: raises LeaseLost, Cancelled, TimeLimit or
        Drained
        ...  network(...)           # a network that `looks` asks first, whoever calls it
        ...  check()                # loops without a network ask by themselves

What is asked has nothing to do with data: a clock, a flag in the database, a lease.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_look: ContextVar[Callable[[], None] | None] = ContextVar("look", default=None)


@contextmanager
def watching(look: Callable[[], None]) -> Iterator[None]:
    """Within this context `check` calls `look`, which raises when the work must stop."""
    before = _look.set(look)
    try:
        yield
    finally:
        _look.reset(before)


def check() -> None:
    """Raise what `look` raises; nothing outside of `watching`."""
    look = _look.get()
    if look is not None:
        look()


def looks(network: Any) -> None:
    """From now on `check` is called before each forward pass of this torch module."""
    network.register_forward_pre_hook(lambda *_: check())
