"""The objects that the current application was made with."""

import ipaddress
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from flask import current_app, request

from accountant.database import one_moment
from accountant.identities.sessions import Origin
from accountant.settings import Settings

P = ParamSpec("P")
R = TypeVar("R")


def settings() -> Settings:
    """Return the settings of the current application."""
    settings: Settings = current_app.extensions["exchequer"]["settings"]
    return settings


def here() -> str:
    """Return the address of the current request on its host, the path of the service included."""
    return request.script_root + request.path


def engine() -> Any:
    """Return the database engine of the current application, to be handed on to `accountant`."""
    return current_app.extensions["exchequer"]["engine"]


def at_one_moment(view: Callable[P, R]) -> Callable[P, R]:
    """Return a view that only reads, and reads all of one moment on one connection."""

    @wraps(view)
    def shown(*args: P.args, **kwargs: P.kwargs) -> R:
        with one_moment(engine()):
            return view(*args, **kwargs)

    return shown


def origin(method: str) -> Origin:
    """Return the origin of this request; `method` is page, api, provider or passkey."""
    address = request.remote_addr or ""
    try:
        address = str(ipaddress.ip_address(address))
    except ValueError:
        address = "unknown"
    return Origin(method, address, request.headers.get("User-Agent", "")[:200].replace("\0", ""))
