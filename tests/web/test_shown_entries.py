"""No answer shows an entry that the log outside does not hold: neither a page nor an address is
forgotten.

A writer is stopped between its COMMIT and the log: everything else that is asked for meanwhile is
looked at.
"""

import os
import threading
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest
from sqlalchemy import text

from accountant import faults
from accountant.core.errors import LogUnusable
from accountant.ledger_log.files import FolderLog
from accountant.ledger_log.homes import log_at
from accountant.ledger_log.log import entries as logged_entries
from accountant.settings import Settings
from accountant.transactions import ledger_log
from tests import tallies
from tests.restores import ground
from tests.support import Bench
from tests.web.browsers import Site
from tests.web.routes import API, EVERYONE, PAGES, Request
from tests.web.test_roles import Sender, make_world
from web.app import create_app

#: A thread that is held has to be let go in the end, also by a test that failed.
PATIENCE_SECONDS = 120


@pytest.fixture(scope="module")
def shared(servers, tmp_path_factory, password_hash):
    """A service with a log, as its people see it."""
    folder = tmp_path_factory.mktemp("shown")
    with ground(servers, folder / "log") as at:
        url = at.engine.url.render_as_string(hide_password=False)
        app = create_app(
            Settings(home=folder / "home", DATABASE_URL=url, ledger_log=folder / "log")
        )
        engine = app.extensions["exchequer"]["engine"]
        at.bench.engine = engine
        yield Site(app, engine, at.bench, password_hash), folder / "log"
        engine.dispose()


@pytest.fixture
def site(shared):
    tallies.register()
    yield shared[0]
    tallies.forget()


@pytest.fixture
def folder(shared) -> Path:
    return shared[1]


def logged(folder: Path) -> int:
    """The entries that stand in the log's files by now."""
    return sum(1 for _ in logged_entries(log_at(folder)))


def committed(site: Site) -> int:
    with site.engine.connect() as connection:
        return int(connection.execute(text("SELECT count(*) FROM entries")).scalar_one())


@contextmanager
def held(point: str, act):
    """`act` in a thread of its own, stopped at a crash point until the block ends."""
    arrived, go = threading.Event(), threading.Event()
    acting = threading.Thread(target=act)

    def stop(name: str, _: object) -> None:
        if name == point and threading.current_thread() is acting:
            arrived.set()
            go.wait(PATIENCE_SECONDS)

    with mock.patch.object(faults, "hook", stop):
        acting.start()
        try:
            assert arrived.wait(PATIENCE_SECONDS)
            yield
        finally:
            go.set()
            acting.join()


def test_an_entry_that_is_shown_stands_in_the_log(site, folder):
    """A request is committed and its writer stands still: another request sees the job, and has it
    logged.
    """
    asker, dataset = site.api("analyst"), site.bench.dataset
    before = committed(site)
    with held("writing.committed", lambda: site.bench.submit(10)):
        assert (committed(site), logged(folder)) == (before + 1, before)
        newest = asker.get(f"/jobs?dataset={dataset}").json["jobs"][0]
        assert newest["state"] == "queued"
        assert logged(folder) == before + 1
    assert logged(folder) == committed(site) == before + 1


def test_a_line_that_nobody_synced_is_synced_before_it_is_shown(site):
    synced, real = [], os.fsync

    def noted(handle: int) -> None:
        synced.append(
            (threading.current_thread(), Path(f"/proc/self/fd/{handle}").readlink().suffix)
        )
        real(handle)

    asker = site.api("analyst")
    with held("log.written", lambda: site.bench.submit(10)), mock.patch.object(os, "fsync", noted):
        assert asker.get("/jobs").status_code == 200
        assert synced == [(threading.current_thread(), ".jsonl")]


@contextmanager
def unlogged(site: Site):
    """An entry is in the database alone, and the log's disk is full."""

    class Killed(BaseException):
        pass

    # a dataset whose rules no request has changed
    another, before = Bench(site.engine), committed(site)
    with mock.patch.object(ledger_log, "_fill", side_effect=Killed), pytest.raises(Killed):
        another.allow()
    assert committed(site) > before
    with mock.patch.object(FolderLog, "append", side_effect=LogUnusable("the disk is full")):
        yield


@pytest.mark.slow
def test_no_route_shows_what_the_log_can_not_take(site, tmp_path):
    """Every GET of the API and of the pages, as somebody who may: 503, and nothing of the
    answer.
    """
    world = make_world(site)
    wanted: list[tuple[str, str, Request, bool]] = []
    for routes, api in ((API, True), (PAGES, False)):
        for name, route in routes.items():
            request = route.request(world)
            if request.method == "GET" and route.may != EVERYONE:
                wanted.append((name, min(route.may), request, api))
    assert len(wanted) > 60
    senders = {who: Sender(world, who) for who in {who for _, who, _, _ in wanted}}
    stranger = site.app.test_client()
    shown, refused = [], []
    with unlogged(site):
        for name, who, request, api in wanted:
            answer = senders[who].send(request, api=api)
            closed = answer.status_code == 503 and "the disk is full" in answer.text
            (refused if closed else shown).append(f"{name}: {answer.status_code}")
        assert stranger.get("/sign-in").status_code == 200
        assert stranger.get("/livez").status_code == 200
        assert stranger.get("/readyz").status_code == 503  # it tells no more than anybody met
    assert not shown
    assert site.api("analyst").get("/jobs").status_code == 200  # the disk has room again
