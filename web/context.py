"""The objects that the current application was made with."""

from typing import Any

from flask import current_app, request

from accountant.settings import Settings


def settings() -> Settings:
    """The settings of the current application."""
    found: Settings = current_app.extensions["exchequer"]["settings"]
    return found


def here() -> str:
    """Return the address of the current request on its host, the path of the service included."""
    return request.script_root + request.path


def engine() -> Any:
    """The database engine of the current application, to be handed on to `accountant`."""
    return current_app.extensions["exchequer"]["engine"]
