"""Probes tell whether requests can be served, and answer whatever hangs."""

import fcntl
import secrets
import socket
import time
import uuid
from threading import Event

import pytest

from accountant.database import connect
from accountant.deadlines import Run
from accountant.ledger_log import files
from accountant.settings import Settings
from accountant.transactions import signing
from tests.conftest import as_application, as_process, fresh_database
from tests.object_stores import Prefix, answering_503, frozen, s3
from tests.restores import ground
from tests.support import yes
from tests.web.conftest import open_site
from web import probes
from web.app import create_app
from web.probes import probe_app

pytestmark = pytest.mark.slow

__all__ = ["s3"]

#: A probe looks for 0.8 s, and says then what it does not know; the rest is for a busy machine.
SECONDS = 2.5


@pytest.fixture
def logged(servers, tmp_path):
    """A service with a log of its own."""
    with ground(servers, tmp_path / "log") as at:
        url = at.engine.url.render_as_string(hide_password=False)
        settings = Settings(
            home=tmp_path, DATABASE_URL=url, ledger_log=tmp_path / "log", public_log_seconds=0
        )
        app = create_app(settings)
        assert ask(app)[0] == 200
        yield app
        app.extensions["exchequer"]["engine"].dispose()


def ask(app, path="/readyz"):
    """The status, and what is said; in time."""
    began = time.monotonic()
    answer = probe_app(app).test_client().get(path)
    assert time.monotonic() - began < SECONDS
    return answer.status_code, answer.json["status"]


def test_a_lock_of_the_log_that_another_process_holds(logged, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "LOCK_SECONDS", 2.0)
    with (tmp_path / "log" / "lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert ask(logged) == (503, "the log outside the database does not answer")
        time.sleep(2.0)
        assert "another process holds its lock" in until(logged, 503)
        assert ask(logged, "/livez") == (200, "ok")
        assert logged.test_client().get("/livez").status_code == 200
    until(logged, 200)


def until(app, status):
    """What is said once the probe has this status."""
    ends = time.monotonic() + 10
    while (found := ask(app))[0] != status or "does not answer" in found[1]:
        assert time.monotonic() < ends, found
        time.sleep(0.05)
    return found[1]


def test_a_store_of_the_log_that_is_away(servers, tmp_path, s3):
    place = Prefix(f"{s3}/{uuid.uuid4().hex}/log")
    with ground(servers, tmp_path / "log", place) as at:
        url = at.engine.url.render_as_string(hide_password=False)
        settings = Settings(home=tmp_path, DATABASE_URL=url, ledger_log=place, public_log_seconds=0)
        app = create_app(settings)
        until(app, 200)
        with answering_503():
            assert "can't be" in until(app, 503)
        until(app, 200)
        with frozen():
            assert ask(app) == (503, "the log outside the database does not answer")
            assert ask(app, "/livez") == (200, "ok")
        until(app, 200)
        app.extensions["exchequer"]["engine"].dispose()


def test_a_node_with_another_key_is_not_ready(logged, tmp_path, monkeypatch):
    settings = logged.extensions["exchequer"]["settings"]
    for key, status in ((secrets.token_hex(32), 503), (settings.secret("session").hex(), 200)):
        monkeypatch.setenv("EXCHEQUER_KEY_SESSION", key)
        node = create_app(settings)
        said = ask(node)
        node.extensions["exchequer"]["engine"].dispose()
        assert said[0] == status, said
        assert ("the key `session` is not the cluster's" in said[1]) == (status == 503)


def test_a_log_of_another_database_is_told(logged, tmp_path):
    """Every request is answered by 503 there; so is the probe."""
    settings = logged.extensions["exchequer"]["settings"]
    other = create_app(settings.model_copy(update={"ledger_log": tmp_path / "other"}))
    status, told = ask(other)
    assert status == 503
    assert "this database's log is" in told


def test_a_place_of_results_that_hangs_or_needs_a_library(logged, monkeypatch):
    go = Event()
    monkeypatch.setattr("accountant.results._Disk.reach", lambda _: go.wait(20))
    assert ask(logged) == (503, "the place of results does not answer")
    go.set()
    monkeypatch.undo()
    until(logged, 200)
    settings = logged.extensions["exchequer"]["settings"]
    away = create_app(settings.model_copy(update={"results_url": "gs://bucket/results"}))
    status, told = ask(away)
    assert status == 503
    assert "gcsfs" in told


def test_a_library_that_is_missing_for_uploads_is_named_and_takes_no_pages_away(logged):
    settings = logged.extensions["exchequer"]["settings"]
    app = create_app(settings.model_copy(update={"uploads_folder": "gs://bucket/uploads"}))
    probes = app.extensions["exchequer"]["probes"]
    answer, status = probes.ready(time.monotonic() + 10)
    assert (status, answer["status"]) == (200, "ok")
    assert "gcsfs" in answer["uploads"]
    app.extensions["exchequer"]["engine"].dispose()


def test_a_library_that_is_missing_for_the_published_log_is_named(logged):
    """With a log nothing is answered that could not be compared; without one pages go on."""
    settings = logged.extensions["exchequer"]["settings"]
    changed = {"public_log": "gs://bucket/log"}
    app = create_app(settings.model_copy(update=changed))
    answer, status = app.extensions["exchequer"]["probes"].ready(time.monotonic() + 10)
    assert status == 503
    assert "gcsfs" in answer["status"]
    app.extensions["exchequer"]["engine"].dispose()
    app = create_app(settings.model_copy(update=changed | {"ledger_log": None}))
    answer, status = app.extensions["exchequer"]["probes"].ready(time.monotonic() + 10)
    assert (status, answer["status"]) == (200, "ok")
    assert "gcsfs" in answer["public_log"]
    app.extensions["exchequer"]["engine"].dispose()


def test_all_that_a_probe_asks_has_one_deadline(logged, monkeypatch):
    """Two in a row were 1.6 s together, where orchestrators wait for one."""
    deadlines, real = set(), Run.result

    def result(run, deadline):
        deadlines.add(deadline)
        return real(run, deadline)

    monkeypatch.setattr(Run, "result", result)
    assert ask(logged, "/healthz")[0] == 200
    assert len(deadlines) == 1


def test_probes_are_opened_after_their_first_look(logged, monkeypatch):
    """It loads libraries, which takes longer than a probe may."""
    made = logged.extensions["exchequer"]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    settings = made["settings"].model_copy(update={"probe_address": address})
    monkeypatch.setitem(made, "settings", settings)
    real, opened = made["probes"].ready, []

    def ready(deadline):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), 1)
        opened.append(deadline)
        return real(deadline)

    monkeypatch.setattr(made["probes"], "ready", ready)
    probes.listen(logged)
    assert len(opened) == 1


def test_a_signer_that_is_silent_takes_no_pages_away(site, owner_url, monkeypatch):
    monkeypatch.setattr(probes, "SIGNER_SECONDS", -1.0)
    answer = probe_app(site.app).test_client().get("/readyz")
    assert answer.status_code == 200
    assert answer.json["signer"].startswith("silent for 0 s")


def test_an_export_whose_signer_is_silent_is_refused_before_its_first_byte(
    servers, tmp_path, password_hash, monkeypatch
):
    monkeypatch.setattr(signing, "ANSWER_SECONDS", 0.2)
    with fresh_database(servers) as owner:
        app = create_app(Settings(home=tmp_path, DATABASE_URL=as_process(owner, "web")))
        engine = connect(as_application(servers, owner))
        site = open_site(app, engine, password_hash)
        auditor = site.api("auditor")
        answers = [
            auditor.get(f"{site.dataset}/ledger/export"),
            auditor.post(f"{site.dataset}/checkpoints"),
        ]
        for answer in answers:
            assert (answer.status_code, answer.json["code"]) == (503, "signer-silent")
        engine.dispose()
        app.extensions["exchequer"]["engine"].dispose()


@pytest.mark.parametrize("error", [RuntimeError, PermissionError, TimeoutError])
def test_a_result_whose_store_gives_no_answer_is_not_said_to_be_gone(
    site, publish, monkeypatch, error
):
    job_id = site.bench.submit(3)
    yes(site.engine, job_id, site.bench.steward, "yes")
    publish(str(job_id), b'{"text": "a"}\n')
    path = f"/jobs/{job_id}/output"
    assert site.api("analyst").get(path).status_code == 200

    def away(*_, **__):
        raise error("what a library raises")

    monkeypatch.setattr("accountant.results._Disk.read", away)
    answer = site.api("analyst").get(path)
    assert (answer.status_code, answer.json["code"]) == (503, "results-away")
