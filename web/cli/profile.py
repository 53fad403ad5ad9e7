"""Who you are to which server: ~/.config/exchequer/profile.json, mode 0600.

EXCHEQUER_URL and EXCHEQUER_TOKEN override it. A stored token goes only to the server that gave it.
"""

import json
import os
from pathlib import Path
from typing import Any

from web.client import Client

DEFAULT_URL = "http://127.0.0.1:8750"


def path() -> Path:
    """The file."""
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "exchequer" / "profile.json"


def read() -> dict[str, Any]:
    """{"current": url, "servers": {url: {"name", "token"}}}; a damaged file counts as none."""
    try:
        found = json.loads(path().read_text(encoding="utf-8"))
        return {"current": str(found["current"]), "servers": dict(found["servers"])}
    except (OSError, ValueError, KeyError, TypeError):
        return {"current": default_url(), "servers": {}}


def default_url() -> str:
    """The local stack's address."""
    port = os.environ.get("EXCHEQUER_PORT", "")
    return f"http://127.0.0.1:{port}" if port.isdigit() else DEFAULT_URL


def write(url: str, name: str, token: str) -> None:
    """Keep a token, and make its server the one that commands talk to."""
    url = url.rstrip("/")
    kept = read()
    kept["current"] = url
    kept["servers"][url] = {"name": name, "token": token}
    target = path()
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(kept, file, indent=2)
    draft.replace(target)


def server_url() -> str:
    """The server that commands talk to."""
    return (os.environ.get("EXCHEQUER_URL") or str(read()["current"])).rstrip("/")


def token_for(url: str) -> str | None:
    """The token for a server, if there is one."""
    given = os.environ.get("EXCHEQUER_TOKEN")
    return given or read()["servers"].get(url, {}).get("token")


def connect() -> Client:
    """A client for the current server, signed in where there is a token: else the server says so."""
    url = server_url()
    return Client(url, token_for(url))
