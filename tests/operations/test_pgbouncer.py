"""The service behind a real PgBouncer in transaction mode, set as docs/operations.md says: web,
relay and workers, each with one connection to the server, whichever sessions they ask for.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import make_url

from accountant.database import connect, problem
from accountant.queries import integrity
from tests.support import Bench
from tests.web.serving import ROOT, free_port
from tests.workers.conftest import serving, wait_for
from tests.workers.jobs.test_jobs import FEW, Desk, allowed
from web.stack.addresses import APPLICATION, ROLES

PGBOUNCER = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PGBOUNCER is None, reason="pgbouncer is not installed"),
]
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
default_pool_size = 1
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
    said = subprocess.run([PGBOUNCER, "--version"], capture_output=True, text=True).stdout
    return tuple(map(int, re.search(r"PgBouncer (\d+)\.(\d+)", said).groups()))


@pytest.fixture(scope="module")
def pooled_url(database_url, tmp_path_factory) -> Iterator[str]:
    """The service's database through one connection for each role."""
    folder, port, url = tmp_path_factory.mktemp("pool"), free_port(), make_url(database_url)
    guide = (ROOT / "docs" / "operations.md").read_text()
    settings = re.search(r"^    exchequer = .*?connect_query='(.*)'$", guide, re.M)[1]
    if version() < (1, 20):  # it holds 500 bytes: what servers have by default is left out
        wanted = ("lock_timeout", "statement", "idle_in", "search_path", "TimeZone")
        settings = "; ".join(each for each in settings.split("; ") if each[4:].startswith(wanted))
    connect_query = f"connect_query='{settings}'"
    places = {"name": url.database, "socket": url.query["host"], "port": port, "folder": folder}
    (folder / "ini").write_text(CONFIG.format(connect_query=connect_query, **places))
    names = (APPLICATION, *ROLES.values())
    (folder / "users").write_text("".join(f'"{name}" ""\n' for name in names))
    process = subprocess.Popen([*AS_NOBODY, PGBOUNCER, folder / "ini"])
    query = {"pooler": "transaction", "sslmode": "disable"}
    pooled = url.set(host="127.0.0.1", port=port, query=query)
    try:
        yield pooled.render_as_string(hide_password=False)
    finally:
        process.terminate()
        process.wait(20)


def test_a_job_runs_to_its_end_with_its_relay_and_workers(servers, pooled_url, tmp_path_factory):
    engine = connect(pooled_url)
    with serving(servers.broker_url, pooled_url, {}, tmp_path_factory, vhost=2):
        desk = Desk(engine, tmp_path_factory.mktemp("data"))
        dataset = allowed(desk, FEW)
        job = desk.ended(desk.submit(dataset), 120)
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
