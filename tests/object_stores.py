"""Object stores that speak S3: moto's server, which the lock of developers has, and Ceph's."""

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock

import fsspec
import psutil
import pytest

LACKS = [each for each in ("moto", "s3fs") if importlib.util.find_spec(each) is None]


ROOT, SERVER = Path(__file__).resolve().parents[1], "tests.s3_server"
#: A server's fixture as a parameter.
CEPH = pytest.param("ceph", marks=pytest.mark.release)


@pytest.fixture(scope="module")
def s3(s3_url: str) -> Iterator[str]:
    """A bucket of moto's server, by its address."""
    with reached(s3_url):
        yield "s3://bucket"


@pytest.fixture
def ceph(ceph_url: str) -> Iterator[str]:
    """A bucket of Ceph, by its address, until the test ends."""
    with reached(ceph_url):
        yield "s3://bucket"


@pytest.fixture(scope="module")
def ceph_of_module(ceph_url: str) -> Iterator[str]:
    """The same until the module ends, for its fixtures."""
    with reached(ceph_url):
        yield "s3://bucket"


@pytest.fixture(params=["s3", CEPH])
def bucket(request: pytest.FixtureRequest) -> str:
    """A bucket of either server, by its address."""
    address: str = request.getfixturevalue(request.param)
    return address


@contextmanager
def reached(url: str) -> Iterator[None]:
    """A server with a bucket, and in the environment what s3fs needs in order to get there."""
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    configured = dict.fromkeys(names, "test")
    configured |= {"AWS_DEFAULT_REGION": "us-east-1", "AWS_ENDPOINT_URL": url}
    known = fsspec.get_filesystem_class("s3")
    with mock.patch.dict(os.environ, configured):
        known.clear_instance_cache()  # of another server
        with suppress(FileExistsError):
            fsspec.filesystem("s3").mkdir("bucket")
        yield
    known.clear_instance_cache()


@contextmanager
def serving() -> Iterator[str]:
    """A server that speaks S3, and in the environment what s3fs needs in order to get there."""
    with started() as url, reached(url):
        yield "s3://bucket"


@contextmanager
def started() -> Iterator[str]:
    """moto's server, by its URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", SERVER, "-H", "127.0.0.1", "-p", str(port)]
    away = Path(tempfile.gettempdir()) / f"s3-away-{port}"
    server = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
        env=os.environ | {"EXCHEQUER_TEST_AWAY": str(away)},
    )
    try:
        with mock.patch.dict(os.environ, {"EXCHEQUER_TEST_AWAY": str(away)}):
            until = time.monotonic() + 60
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    assert server.poll() is None
                    assert time.monotonic() < until, "moto does not start"
                    time.sleep(0.2)
            yield f"http://127.0.0.1:{port}"
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(20)


class Prefix(str):
    """A place in a store, for what tests do to folders."""

    @property
    def _system(self) -> Any:
        return fsspec.filesystem("s3", use_listings_cache=False)

    def files(self) -> list[str]:
        """The addresses of all objects, in order."""
        return [f"s3://{path}" for path in self._system.find(self)]

    def with_name(self, name: str) -> "Prefix":
        return Prefix(f"{self.rsplit('/', 1)[0]}/{name}")

    def exists(self) -> bool:
        return bool(self.files())

    def copy(self, target: "Prefix") -> None:
        for each in self.files():
            self._system.copy(each, target + each.removeprefix(self))

    def remove(self) -> None:
        for each in self.files():
            self._system.rm_file(each)

    def rename(self, target: "Prefix") -> None:
        self.copy(target)
        self.remove()

    def read(self, name: str) -> bytes:
        content: bytes = self._system.cat_file(f"{self}/{name}")
        return content

    def write(self, name: str, content: bytes) -> None:
        self._system.pipe_file(f"{self}/{name}", content)


@contextmanager
def frozen() -> Iterator[None]:
    """The store's server is there, and answers nothing."""
    port = os.environ["AWS_ENDPOINT_URL"].rpartition(":")[2]
    children = (each for each in psutil.Process().children() if each.status() != "zombie")
    (server,) = (each for each in children if {SERVER, port} <= set(each.cmdline()))
    server.suspend()
    try:
        yield
    finally:
        server.resume()


@contextmanager
def answering_503() -> Iterator[None]:
    """The store's server is there, and answers that it can't serve."""
    with _refusing(""):
        yield


@contextmanager
def full(address: str) -> Iterator[None]:
    """The store's server has no room for more at this address."""
    with _refusing(address.removeprefix("s3:/")):
        yield


@contextmanager
def _refusing(what: str) -> Iterator[None]:
    away = Path(os.environ["EXCHEQUER_TEST_AWAY"])
    draft = away.with_suffix(".draft")
    draft.write_text(what)
    draft.rename(away)
    try:
        yield
    finally:
        away.unlink()
