"""A Ceph cluster of one monitor, one OSD in memory and a gateway that speaks S3: Debian's packages
ceph-mon, ceph-osd and radosgw, as processes on loopback in a temporary folder.
"""

import os
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

PROGRAMS = ("ceph", "ceph-authtool", "ceph-mon", "ceph-osd", "monmaptool", "radosgw")
LACKS = [each for each in PROGRAMS if shutil.which(each) is None]
CONF = """
[global]
fsid = {cluster}
mon host = {monitor}
public network = 127.0.0.0/8
public addr = 127.0.0.1
mon data = {folder}/mon
osd data = {folder}/osd
run dir = {folder}
admin socket = {folder}/$name.asok
log file = {folder}/$name.log
pid file =
keyring = {folder}/keyring
osd objectstore = memstore
memstore device bytes = 1073741824
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 1
osd pool default pgp num = 1
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
osd class load list = *
osd class default list = *
mon allow pool size one = true
mon data avail crit = 0
"""
CAPS = ("--cap", "mon", "allow *", "--cap", "osd", "allow *")


@contextmanager
def serving() -> Iterator[str]:
    """A gateway with a user whose two keys are "test", by its URL."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # it syncs often
    with TemporaryDirectory(prefix="ceph-", dir=memory) as name, ExitStack() as stack:
        folder, port = Path(name), _free_port()
        monitor = f"[v2:127.0.0.1:{_free_port()}]"
        cluster, osd = str(uuid.uuid4()), str(uuid.uuid4())
        (folder / "ceph.conf").write_text(
            CONF.format(cluster=cluster, monitor=monitor, folder=folder)
        )
        for each in ("mon", "osd"):
            (folder / each).mkdir()
        environment = os.environ | {"CEPH_CONF": str(folder / "ceph.conf")}

        def call(*command: str) -> None:
            done = subprocess.run(
                command, env=environment, cwd=folder, capture_output=True, text=True, timeout=180
            )
            assert done.returncode == 0, done.stderr

        def start(*command: str) -> None:
            process = subprocess.Popen(
                command,
                env=environment,
                cwd=folder,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            stack.callback(process.wait)
            stack.callback(process.kill)  # what they hold is thrown away

        call("ceph-authtool", "--create-keyring", "keyring", "--gen-key", "-n", "mon.", *CAPS[:3])
        for user in ("client.admin", "client.rgw.a", "osd.0"):
            call("ceph-authtool", "keyring", "--gen-key", "-n", user, *CAPS)
        call("monmaptool", "--create", "--fsid", cluster, "--addv", "a", monitor, "monmap")
        call("ceph-mon", "--mkfs", "-i", "a", "--monmap", "monmap", "--keyring", "keyring")
        start("ceph-mon", "-f", "-i", "a")
        call("ceph", "osd", "new", osd, "0")
        call("ceph-osd", "--mkfs", "-i", "0", "--osd-uuid", osd)
        start("ceph-osd", "-f", "-i", "0")
        keys = ("--access-key=test", "--secret-key=test")
        call("radosgw-admin", "user", "create", "--uid=test", "--display-name=test", *keys)
        start(
            "radosgw",
            "-f",
            "-n",
            "client.rgw.a",
            f"--rgw-frontends=beast endpoint=127.0.0.1:{port}",
        )
        until = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert time.monotonic() < until, "the gateway does not start"
                time.sleep(0.2)
        yield f"http://127.0.0.1:{port}"


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
