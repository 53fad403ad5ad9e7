"""The objects that the current application was made with."""

import ipaddress
from typing import Any

from flask import current_app, request

from accountant.identities.sessions import Origin
from accountant.settings import Settings


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


def origin(method: str) -> Origin:
    """Return the origin of this request; `method` is page, api, provider or passkey."""
    address = request.remote_addr or ""
    try:
        address = str(ipaddress.ip_address(address))
    except ValueError:
        address = "unknown"
    return Origin(method, address, request.headers.get("User-Agent", "")[:200].replace("\0", ""))
