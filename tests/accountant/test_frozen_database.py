"""A database that is stopped in the middle of everything: every process goes on, and says so."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from unittest.mock import patch

import httpx2
import psutil
import pytest

from accountant import connections
from accountant.database import UNAVAILABLE, connect, migrate, problem
from tests.conftest import NOT_SYNCED
from tests.web.serving import free_port, serving

#: Far above what it takes, which is three seconds, and far below for ever.
PATIENCE_SECONDS = 20.0
#: A probe looks for 0.8 s, and says then what it does not know; the rest is for a busy machine.
PROBE_SECONDS = 2.5


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    from web.local import Servers
    from web.stack import postgres

    with patch.dict(postgres.SETTINGS, NOT_SYNCED):
        own = Servers(tmp_path_factory.mktemp("frozen"), valkey=False)
        with own:
            migrate(own.owner_url, own.database_url)
            yield own


@contextmanager
def frozen(server):
    """The postmaster and every backend stopped, as by a machine that hangs."""
    postmaster = psutil.Process(server.children["postgres"].handle.pid)
    postmaster.suspend()  # first, so that no backend begins
    stopped = [postmaster, *postmaster.children(recursive=True)]
    for process in stopped:
        with suppress(psutil.NoSuchProcess):  # a backend at its end
            process.suspend()
    try:
        yield
    finally:
        for process in stopped:
            with suppress(psutil.NoSuchProcess):
                process.resume()


def answers(run, *args):
    """The result, or the error: in a thread, so that a hang fails the test and not the suite."""
    found = []

    def kept():
        try:
            found.append(run(*args))
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=kept, daemon=True)
    thread.start()
    thread.join(PATIENCE_SECONDS)
    assert found, "it hangs"
    return found[0]


def ask(engine, statement="SELECT 1"):
    with engine.connect() as connection:
        return connection.exec_driver_sql(statement).scalar_one_or_none()


@pytest.mark.slow
def test_statements_end_while_the_server_is_silent_and_work_again_after(server):
    engine = connect(server.database_url)
    assert ask(engine) == 1
    with engine.connect() as waiting, frozen(server):
        assert isinstance(answers(waiting.exec_driver_sql, "SELECT 1"), UNAVAILABLE)
        assert isinstance(answers(ask, engine), UNAVAILABLE)  # a new connection
        assert answers(problem, engine) == "database unreachable"
    deadline = time.monotonic() + PATIENCE_SECONDS
    while isinstance(found := answers(ask, engine), UNAVAILABLE) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert found == 1
    assert problem(engine) is None
    engine.dispose()


def test_a_slow_statement_of_a_server_that_answers_is_waited_for(server, monkeypatch):
    monkeypatch.setattr(connections, "PATIENCE_SECONDS", 0.1)
    monkeypatch.setattr(connections, "LOOK_SECONDS", 0.5)
    monkeypatch.setattr(connections, "PAUSE_SECONDS", 0.1)
    engine = connect(server.database_url)
    # longer than a look, and looked at often
    assert ask(engine, "SELECT 7 FROM pg_sleep(1.5)") == 7
    engine.dispose()


def test_limits_of_a_connection_and_of_an_address(server):
    engine = connect(server.database_url)
    shown = {each: ask(engine, f"SHOW {each}") for each in ("statement_timeout", "lock_timeout")}
    assert shown == {"statement_timeout": "90s", "lock_timeout": "1min"}
    engine.dispose()
    mark = "&" if "?" in server.database_url else "?"
    own = connect(f"{server.database_url}{mark}options=-c%20statement_timeout%3D7s")
    assert ask(own, "SHOW statement_timeout") == "7s"
    own.dispose()


@pytest.mark.slow
def test_the_web_service_says_that_its_database_is_frozen_with_every_thread_in_use(
    server, tmp_path
):
    probe = f"127.0.0.1:{free_port()}"
    settings = {"probe_address": probe, "ledger_log": tmp_path / "log"}
    with (
        serving(server.database_url, tmp_path, **settings) as web,
        ThreadPoolExecutor(24) as pool,
        httpx2.Client(timeout=PATIENCE_SECONDS) as client,
    ):

        def get(path, base=web.url):
            headers = {"Authorization": "Bearer exq_any"} if path.startswith("/api") else {}
            return client.get(f"{base}{path}", headers=headers)

        def at_once(path):
            began = time.monotonic()
            answer = get(path, f"http://{probe}")
            assert time.monotonic() - began < PROBE_SECONDS, path
            return answer

        def statuses(ask):
            return [ask(path).status_code for path in ("/livez", "/readyz", "/healthz")]

        assert statuses(get) == [200, 200, 200]
        with frozen(server):
            # more than there are threads
            asked = [pool.submit(get, "/api/v1/datasets") for _ in range(24)]
            time.sleep(0.2)
            for _ in range(3):
                assert statuses(at_once) == [200, 503, 503]
            assert "database " in at_once("/readyz").json()["status"]
            assert "exchequer_database_up 0.0" in get("/metrics", f"http://{probe}").text
            assert statuses(get) == [200, 503, 503]
            assert {each.result().status_code for each in asked} == {503}
        deadline = time.monotonic() + PATIENCE_SECONDS
        while get("/readyz").status_code != 200:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert get("/api/v1/datasets").status_code == 401
