"""Metrics for Prometheus: requests as the server's processes count them, figures of the database.

    request ── web.request_log ──▶ counters: files that gunicorn's processes share
    scrape ──▶ counters of all processes + queries.figures, read now

They are told at the address of probes alone (web.probes), which is not the public's.
"""

import os
import time
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest, multiprocess
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from accountant.database import Engine
from accountant.deadlines import Bounded
from accountant.queries import figures
from accountant.transactions import ledger_log

#: A scrape waits for figures no longer than this.
SECONDS = 5.0

_PROCESS = CollectorRegistry()
REQUESTS = Counter(
    "exchequer_http_requests",
    "Requests that were answered",
    ("route", "method", "status"),
    registry=_PROCESS,
)
REQUEST_SECONDS = Histogram(
    "exchequer_http_request_seconds",
    "Seconds from a request to the end of its answer",
    ("route",),
    registry=_PROCESS,
    buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 120),
)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


def count(route: str, method: str, status: int, seconds: float) -> None:
    """Count an answered request."""
    REQUESTS.labels(route, method if method in _METHODS else "other", str(status)).inc()
    REQUEST_SECONDS.labels(route).observe(seconds)


class Metrics:
    """What a scrape is answered."""

    def __init__(self, engine: Engine) -> None:
        self._figures = Bounded(lambda: figures.read(engine))
        log = ledger_log.log_of(engine)
        self._logged = None if log is None else Bounded(log.length)

    def exposition(self) -> bytes:
        """Return all metrics as text. Without the database, those of the processes alone."""
        counted = _PROCESS
        if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
            counted = CollectorRegistry()
            multiprocess.MultiProcessCollector(counted)
        read = CollectorRegistry()
        read.register(_Read(list(self._read())))
        return generate_latest(counted) + generate_latest(read)

    def _read(self) -> Iterator[GaugeMetricFamily]:
        deadline = time.monotonic() + SECONDS
        reading = self._figures.begin()
        counting = None if self._logged is None else self._logged.begin()
        rows = reading.result(deadline)
        logged = None if counting is None else counting.result(deadline)
        told = GaugeMetricFamily("exchequer_database_up", "1 where figures could be read")
        told.add_metric((), float(rows is not None))
        yield told
        families = {
            name: GaugeMetricFamily(f"exchequer_{name}", figure.help, labels=figure.labels)
            for name, figure in figures.FIGURES.items()
        }
        for name, labels, value in rows or ():
            families[name].add_metric(labels, value)
        yield from families.values()
        entries = next((value for name, _, value in rows or () if name == "entries"), None)
        if entries is not None and logged is not None:
            missing = GaugeMetricFamily(
                "exchequer_entries_not_logged", "Entries that the log outside the database lacks"
            )
            missing.add_metric((), max(0, entries - logged))
            yield missing


class _Read(Collector):
    def __init__(self, families: list[GaugeMetricFamily]) -> None:
        self._families = families

    def collect(self) -> Iterator[GaugeMetricFamily]:
        return iter(self._families)
