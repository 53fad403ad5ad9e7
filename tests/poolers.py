"""A real PgBouncer in transaction mode, set as docs/operations.md says, before a database."""

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import make_url

from tests.web.serving import ROOT, free_port
from web.stack.addresses import APPLICATION, ROLES

PGBOUNCER = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
CONFIG = """
[databases]
{name} = host={socket} dbname={name} {connect_query}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {folder}/users
pool_mode = transaction
default_pool_size = {connections}
max_client_conn = 300
query_wait_timeout = 30
server_check_query = select 1
"""
#: PgBouncer refuses to be root; the server's socket lies in root's folder.
AS_NOBODY = (
    ["setpriv", "--reuid=65534", "--inh-caps=+dac_override", "--ambient-caps=+dac_override"]
    if os.geteuid() == 0
    else []
)


def version() -> tuple[int, ...]:
    """PgBouncer's."""
    said = subprocess.run([PGBOUNCER, "--version"], capture_output=True, text=True).stdout
    return tuple(map(int, re.search(r"PgBouncer (\d+)\.(\d+)", said).groups()))


class Pooler:
    """One before the database at `url`, with so many connections for each role."""

    def __init__(self, url: str, folder: Path, connections: int) -> None:
        self.folder, self.port = folder, free_port()
        place = make_url(url)
        guide = (ROOT / "docs" / "operations.md").read_text()
        settings = re.search(r"^    exchequer = .*?connect_query='(.*)'$", guide, re.M)[1]
        if version() < (1, 20):  # it holds 500 bytes: what servers have by default is left out
            wanted = ("lock_timeout", "statement", "idle_in", "search_path", "TimeZone")
            kept = [each for each in settings.split("; ") if each[4:].startswith(wanted)]
            settings = "; ".join(kept)
        said = {"name": place.database, "socket": place.query["host"], "port": self.port}
        said |= {"connect_query": f"connect_query='{settings}'"}
        said |= {"folder": folder, "connections": connections}
        (folder / "ini").write_text(CONFIG.format(**said))
        names = (APPLICATION, *ROLES.values())
        (folder / "users").write_text("".join(f'"{name}" ""\n' for name in names))
        query = {"pooler": "transaction", "sslmode": "disable"}
        pooled = place.set(host="127.0.0.1", port=self.port, query=query)
        self.url = pooled.render_as_string(hide_password=False)
        self.start()

    def start(self) -> None:
        """Begin, or begin again after `kill`."""
        with (self.folder / "log").open("ab") as log:
            command = [*AS_NOBODY, PGBOUNCER, self.folder / "ini"]
            self.process = subprocess.Popen(command, stderr=log)

    def kill(self) -> None:
        """End it at once, with every connection."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(20)


@contextmanager
def pooled(url: str, folder: Path, connections: int) -> Iterator[Pooler]:
    """Run one for as long as a block lasts."""
    pooler = Pooler(url, folder, connections)
    try:
        yield pooler
    finally:
        pooler.kill()
