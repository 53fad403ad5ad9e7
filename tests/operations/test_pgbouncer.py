"""The service behind a real PgBouncer in transaction mode, set as docs/operations.md says: web,
relay and workers, each with one connection to the server, whichever sessions they ask for.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from accountant.database import connect, problem
from accountant.queries import integrity
from tests.poolers import PGBOUNCER, pooled
from tests.support import Bench
from tests.workers.conftest import serving, wait_for
from tests.workers.jobs.test_jobs import FEW, Desk, allowed, count

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PGBOUNCER is None, reason="pgbouncer is not installed"),
]


@pytest.fixture(scope="module")
def pooled_url(database_url, tmp_path_factory) -> Iterator[str]:
    """The service's database through one connection for each role."""
    with pooled(database_url, tmp_path_factory.mktemp("pool"), 1) as pooler:
        yield pooler.url


def test_a_job_runs_to_its_end_with_its_relay_and_workers(servers, pooled_url, tmp_path_factory):
    engine = connect(pooled_url)
    with serving(servers.broker_url, pooled_url, {}, tmp_path_factory, vhost=2):
        desk = Desk(engine, tmp_path_factory.mktemp("data"))
        dataset = allowed(desk, FEW)
        job = desk.ended(count(desk, dataset), 120)
    assert (job["state"], job["attempt"]) == ("succeeded", 1)
    assert [entry["kind"] for entry in job["entries"]] == ["RESERVE", "COMMIT"]
    assert integrity.check(engine, dataset) == []
    engine.dispose()


def test_sixty_people_are_served_by_one_connection(pooled_url):
    engine = connect(pooled_url, pool_size=30)
    wait_for(lambda: problem(engine), lambda seen: seen is None, 60)
    bench = Bench(engine, policy={"auto_approve_epsilon": "10"})
    bench.allow()
    bench.warm()
    with ThreadPoolExecutor(30) as pool:
        asked = list(pool.map(lambda number: bench.submit(10, key=f"k{number % 30}"), range(60)))
    assert len(set(asked)) == 30  # each key is one job, whichever connection served it
    assert integrity.check(engine, bench.dataset) == []
    engine.dispose()
