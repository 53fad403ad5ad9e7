"""The port of a stack's page: bound by the supervisor, inherited by the web server.

Binding is what claims a port, so two stacks that start together get two. A port that nobody chose
is the next free one; the home keeps its number, so the page stays at one address.
"""

import errno
import os
import socket
from contextlib import suppress
from pathlib import Path

from accountant.settings import Settings
from web.stack.addresses import kept_port, port_file
from web.stack.processes import HOME_MARK, StackError

LISTENING = "EXCHEQUER_LISTENING"  # the number of the file descriptor that a program inherits
_TRIED = 100
LOOPBACK = ("127.0.0.1", "::1")  # the second, where a machine has IPv6 alone


def claim(settings: Settings, home: Path) -> tuple[socket.socket, Settings, str]:
    """Listen at the page's address, and keep the port in the home.

    Returns the socket, the settings with its host and port, and a sentence on a port that was taken
    or "". Raises StackError if EXCHEQUER_HOST or EXCHEQUER_PORT can't be had.
    """
    host = next((host for host in hosts(settings) if unreachable(host) is None), settings.host)
    chosen = "port" in settings.model_fields_set
    first = settings.port if chosen else kept_port(home) or settings.port
    ports = [first] if chosen else [first, *range(settings.port, settings.port + _TRIED)]
    taken = ""
    for port in ports:
        listener = _bound(host, port)
        if listener is not None:
            if not chosen:
                with suppress(OSError):  # a full disk: the next start looks for a port again
                    port_file(home).write_text(f"{port}\n")
            return listener, settings.model_copy(update={"host": host, "port": port}), taken
        taken = taken or f"port {port} is taken by {holder(port)}"
    if chosen:
        raise _error(f"can't listen: {taken}", "End that, or set EXCHEQUER_PORT to another port")
    raise _error(
        f"finds no free port from {ports[1]} to {ports[-1]}", "Set EXCHEQUER_PORT to a free one"
    )


def hosts(settings: Settings) -> tuple[str, ...]:
    """Return the addresses that the page may have: the chosen one, or this machine's loopback."""
    return (settings.host,) if "host" in settings.model_fields_set else LOOPBACK


def unreachable(host: str) -> str | None:
    """Return why a server on this host could not be reached from here, or None.

    The kernel lets programs bind 127.0.0.1 where no interface has it.
    """
    try:
        with _listening(host, 0) as server:
            socket.create_connection(server.getsockname()[:2], timeout=5.0).close()
    except OSError as error:
        return error.strerror or str(error)
    return None


def _bound(host: str, port: int) -> socket.socket | None:
    """Return a listening socket, or None if another program has the port."""
    try:
        return _listening(host, port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return None
        if error.errno == errno.EACCES:
            raise _error(f"may not use port {port}", "Set EXCHEQUER_PORT to 1024 or more") from None
        raise _error(f"can't listen on {host} ({error.strerror})", "Set EXCHEQUER_HOST") from None


def _listening(host: str, port: int) -> socket.socket:
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    return socket.create_server(address, family=family, backlog=1024)


def _error(reason: str, remedy: str) -> StackError:
    return StackError("the page", reason, remedy=remedy)


def holder(port: int) -> str:
    """Return who listens on a TCP port, as far as this user may see it."""
    import psutil  # type: ignore[import-untyped]

    try:
        listening = [
            connection
            for connection in psutil.net_connections("tcp")
            if connection.status == psutil.CONN_LISTEN
        ]
        pids = [
            connection.pid
            for connection in listening
            if connection.laddr.port == port and connection.pid
        ]
        process = psutil.Process(min(pids))
        name = f"{process.name()} (process {process.pid})"
        marks = process.environ()
        supervises = "web.stack.supervisor" in process.cmdline()
        home = marks.get("EXCHEQUER_HOME" if supervises else HOME_MARK)
    except (ValueError, OSError, psutil.Error):
        return "a program of another user, or of another container"
    return f"Exchequer of {home} ({name})" if home else name


def inherited() -> socket.socket | None:
    """Return the socket that the supervisor listens on for this program, if it started it."""
    number = os.environ.get(LISTENING)
    return None if number is None else socket.socket(fileno=int(number))
