"""Folders, sockets and environment variables of a home, computed the same way everywhere."""

import hashlib
import json
import os
import re
import shutil
import stat
import threading
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from pydantic import SecretStr

from accountant.rights import PROCESSES, Process
from accountant.settings import Settings
from web.stack.processes import StackError

POSTGRES = "postgres"
VALKEY = "valkey"
SERVERS = (POSTGRES, VALKEY)
VALKEY_SOCKET = "valkey.sock"
OWNER = "exchequer"
APPLICATION = "exchequer_application"  # the operator's, at the command line
ROLES: dict[Process, str] = {process: f"exchequer_{process}" for process in PROCESSES}

_URL_PATH = re.compile(r"[A-Za-z0-9._/-]{1,80}")  # sun_path holds 107 bytes; nothing to escape


def environment(settings: Settings) -> dict[str, str]:
    """Return variables by which a process reads these settings and finds the servers."""
    home = settings.home.resolve()
    variables = {}
    for name, info in type(settings).model_fields.items():
        value = getattr(settings, name)
        # A default host or port is not handed on: the supervisor may take others in their place.
        handed_on = name in settings.model_fields_set or name not in ("host", "port")
        if value is not None and handed_on:
            variables[str(info.validation_alias or f"EXCHEQUER_{name.upper()}")] = _spelled(value)
    variables["EXCHEQUER_HOME"] = str(home)
    if variables.setdefault("DATABASE_URL", database_url(home)) == database_url(home):
        variables["DATABASE_OWNER_URL"] = owner_url(home)
        variables.setdefault("EXCHEQUER_LEDGER_LOG", str(home / "ledger-log"))
        variables.setdefault("EXCHEQUER_PUBLIC_LOG", str(home / "public-log"))
        variables |= {
            f"DATABASE_{variable.upper()}_URL": database_url(home, role)
            for variable, role in ROLES.items()
        }
    variables.setdefault("BROKER_URL", broker_url(home))
    return variables


def _spelled(value: Any) -> str:
    """Return a setting as the environment spells it: a secret as it is, a table as JSON."""
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    return json.dumps(value) if isinstance(value, dict) else str(value)


def page_address(settings: Settings) -> str:
    """Return the web page's address for a browser on this machine, never a wildcard address."""
    wildcards = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 (compared, not bound)
    host = wildcards.get(settings.host, settings.host)
    chosen = "port" in settings.model_fields_set
    port = settings.port if chosen else kept_port(settings.home) or settings.port
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def port_file(home: Path) -> Path:
    """Return the file in which a home keeps the port of its page, if nobody chose one."""
    return home / "port"


def kept_port(home: Path) -> int | None:
    """Return the port that the page of this home had the last time, if nobody chose one."""
    try:
        port = int(port_file(home).read_text())
    except (OSError, ValueError):
        return None
    return port if 0 < port < 65536 else None


def prepare(home: Path) -> None:
    """Make a home and its folders, each for us alone; an existing home keeps its mode."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in ("run", "logs", "keys", "results", "valkey"):
        (home / name).mkdir(mode=0o700, exist_ok=True)


def database_url(home: Path, role: str = APPLICATION) -> str:
    """Return the embedded database's address, in a role that only adds to the ledger."""
    return f"postgresql+psycopg://{role}@/{OWNER}?host={socket_folder(home, POSTGRES)}"


def owner_url(home: Path) -> str:
    """Return the same as the owner of its tables."""
    return database_url(home, OWNER)


def broker_url(home: Path) -> str:
    """Return address of the embedded broker."""
    return f"redis+socket://{socket_folder(home, VALKEY)}/{VALKEY_SOCKET}?virtual_host=0"


def redis_url(url: str) -> str:
    """Return a broker's address as redis-py spells it: it has no redis+socket scheme."""
    parts = urlsplit(url)
    if parts.scheme != "redis+socket":
        return url
    database = parse_qs(parts.query).get("virtual_host", ["0"])[0]
    return f"unix://{parts.path}?db={database}"


def socket_folder(home: Path, name: str) -> str:
    """Return a server's folder as a client names it: short and plain, through a link where home is
    neither.

    The servers bind their sockets by relative names, so only clients meet the limit of 107 bytes.
    """
    folder = home.resolve() / name
    if _URL_PATH.fullmatch(str(folder)):
        return str(folder)
    link = _links(home) / name
    _claim_private(link.parent)
    if not link.is_symlink() or os.readlink(link) != str(folder):
        draft = link.with_name(f".{name}.{os.getpid()}.{threading.get_ident()}")
        draft.unlink(missing_ok=True)
        draft.symlink_to(folder)
        draft.replace(link)
    return str(link)


def _links(home: Path) -> Path:
    key = hashlib.sha256(f"{os.geteuid()}:{home.resolve()}".encode()).hexdigest()[:16]
    return Path("/tmp") / f"exq-{key}"  # noqa: S108 (TMPDIR may be long; _claim_private checks it)


def _claim_private(folder: Path) -> None:
    """Make a folder below /tmp, or make sure that an existing one is ours and ours alone."""
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        status = folder.lstat()
        private = stat.S_ISDIR(status.st_mode) and not status.st_mode & 0o077
        if not private or status.st_uid != os.geteuid():
            raise StackError("servers", f"{folder} exists and isn't ours alone") from None


def forget_links(home: Path) -> None:
    """Remove what `socket_folder` made; it makes it again when needed."""
    folder = _links(home)
    if folder.is_dir() and not folder.is_symlink():
        shutil.rmtree(folder, ignore_errors=True)  # links only; rmtree doesn't follow them
