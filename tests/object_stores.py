"""An object store that speaks S3: moto's server, which the lock of developers has."""

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import fsspec
import psutil
import pytest

LACKS = [each for each in ("moto", "s3fs") if importlib.util.find_spec(each) is None]


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """A bucket of a server that speaks S3, by its address."""
    if LACKS:
        pytest.skip(f"not installed: {', '.join(LACKS)}")
    with serving() as bucket:
        yield bucket


@contextmanager
def serving() -> Iterator[str]:
    """A server that speaks S3, and in the environment what s3fs needs in order to get there."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    configured = dict.fromkeys(names, "test") | {
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
    }
    try:
        with mock.patch.dict(os.environ, configured):
            until = time.monotonic() + 60
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    assert server.poll() is None
                    assert time.monotonic() < until, "moto does not start"
                    time.sleep(0.2)
            fsspec.get_filesystem_class("s3").clear_instance_cache()  # of another module's server
            fsspec.filesystem("s3").mkdir("bucket")
            yield "s3://bucket"
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(20)


@contextmanager
def frozen() -> Iterator[None]:
    """The store's server is there, and answers nothing."""
    (server,) = (each for each in psutil.Process().children() if "moto.server" in each.cmdline())
    server.suspend()
    try:
        yield
    finally:
        server.resume()
