"""The path below which the service lies, where a proxy gives it one of a host's paths."""

import re
from collections.abc import Iterable
from typing import Any

from flask import Flask

from accountant.settings import PATH

_SAFE = re.compile(PATH)


class Mount:
    """WSGI middleware that puts each link below a path, whether or not the proxy takes it off
    requests.

    The path is that of EXCHEQUER_PUBLIC_URL, or else the one that the server or a trusted proxy
    states.
    """

    def __init__(self, application: Any, path: str) -> None:
        self.application = application
        self.path = path

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        """Answer a request, with its path split into the mount and the rest."""
        stated = environ.get("SCRIPT_NAME", "").rstrip("/")
        environ["SCRIPT_NAME"] = self.path or (stated if _SAFE.fullmatch(stated) else "")
        if self.path:
            environ["PATH_INFO"] = below(self.path, environ.get("PATH_INFO", ""))
        return self.application(environ, start_response)


def below(mount: str, path: str) -> str:
    """Return a request's path without the mount, if it begins with it."""
    return path.removeprefix(mount) if mount and f"{path}/".startswith(f"{mount}/") else path


def check_mount(app: Flask, path: str) -> None:
    """Raise RuntimeError if a page of the service has the mount's first name: requests could be
    either's.
    """
    first = path.split("/")[1] if path else ""
    taken = {rule.rule.split("/")[1] for rule in app.url_map.iter_rules()} - {""}
    if first in taken:
        raise RuntimeError(
            f"EXCHEQUER_PUBLIC_URL: its path begins with /{first}, which is a page of the service; "
            "use "
            "another path, such as /exchequer"
        )
