"""The port of a stack's page: bound by the supervisor, inherited by the web server.

Binding is what claims a port, so two stacks that start together get two. A port that nobody chose is the next
free one; the home keeps its number, so the page stays at one address.
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
PAGE = "the page"  # what failed, in errors
_TRIED = 100
_LOOPBACK = ("127.0.0.1", "::1")  # the second, where a machine has IPv6 alone


def claim(settings: Settings, home: Path) -> tuple[socket.socket, Settings, str]:
    """Listen at the page's address, and keep the port in the home.

    Returns the socket, the settings with its host and port, and a sentence on a port that was taken or "".
    Raises StackError if EXCHEQUER_HOST or EXCHEQUER_PORT can't be had.
    """
    chosen = "port" in settings.model_fields_set
    first = settings.port if chosen else kept_port(home) or settings.port
    ports = [first] if chosen else [first, *range(settings.port, settings.port + _TRIED)]
    taken = ""
    for port in ports:
        listener = _bound(settings, port)
        if listener is not None:
            host = listener.getsockname()[0] if "host" not in settings.model_fields_set else settings.host
            if not chosen:
                with suppress(OSError):  # a full disk: the next start looks for a port again
                    port_file(home).write_text(f"{port}\n")
            return listener, settings.model_copy(update={"host": host, "port": port}), taken
        taken = taken or f"port {port} is taken by {holder(port)}"
    if chosen:
        raise StackError(PAGE, f"can't listen: {taken}. End that, or set EXCHEQUER_PORT to another port")
    raise StackError(PAGE, f"finds no free port from {ports[1]} to {ports[-1]}. Set EXCHEQUER_PORT")


def _bound(settings: Settings, port: int) -> socket.socket | None:
    """Return a listening socket that can be reached, or None if another program has the port."""
    hosts = (settings.host,) if "host" in settings.model_fields_set else _LOOPBACK
    for host in hosts:
        try:
            family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            with socket.socket(family, kind) as listener:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # right after an earlier stack
                listener.bind(address)
                listener.listen(1024)
                # The kernel lets programs bind 127.0.0.1 where no interface has it.
                socket.create_connection(listener.getsockname()[:2], timeout=2.0).close()
                return listener.dup()
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return None
            if error.errno == errno.EACCES:
                raise StackError(
                    PAGE, f"may not use port {port}. Set EXCHEQUER_PORT to 1024 or more"
                ) from None
            reason = error.strerror or error
    raise StackError(
        PAGE,
        f"can't be reached at {' or '.join(hosts)} ({reason}). Set EXCHEQUER_HOST to an address of this "
        "machine, or bring its loopback interface up",
    )


def holder(port: int) -> str:
    """Return who listens on a TCP port, as far as this user may see it."""
    import psutil  # type: ignore[import-untyped]

    try:
        listening = [each for each in psutil.net_connections("tcp") if each.status == psutil.CONN_LISTEN]
        pids = [each.pid for each in listening if each.laddr.port == port and each.pid]
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
