"""Settings of gunicorn: `gunicorn --config=python:web.gunicorn_settings 'web.app:create_app()'`."""

import os
import shutil
import tempfile
from typing import Any

from gunicorn.glogging import Logger

from accountant import logs


class Lines(Logger):  # type: ignore[misc]
    """Lines of gunicorn, as all others of the process."""

    def setup(self, cfg: Any) -> None:
        """Write them by the handler of the process, and no other."""
        super().setup(cfg)
        logs.configure()
        self.error_log.handlers.clear()
        self.error_log.propagate = True


logger_class = Lines
worker_class = "gthread"  # a request waits for the database most of its time
workers = 2
threads = 32  # slow senders hold one each until their body's deadline
worker_tmp_dir = "/dev/shm"  # noqa: S108 (a heartbeat on a disk can block: healthy processes die)

# Where the processes of this server keep their counters: set before anything imports the library.
_counters = tempfile.mkdtemp(prefix="exchequer-metrics-")
os.environ["PROMETHEUS_MULTIPROC_DIR"] = _counters


def post_worker_init(worker: Any) -> None:
    """Answer probes beside requests, in each process."""
    from web import probes

    probes.listen(worker.wsgi)


def child_exit(_: Any, worker: Any) -> None:
    """Leave out the gauges of a process that ended; its counters stay."""
    from prometheus_client import multiprocess

    multiprocess.mark_process_dead(worker.pid)


def on_exit(_: Any) -> None:
    """Remove the counters with the server."""
    shutil.rmtree(_counters, ignore_errors=True)
