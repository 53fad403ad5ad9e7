"""A database that is behind its log says so to people and programs, and the pages stay up."""

import os
from unittest import mock

import pytest

from accountant.settings import Settings
from tests.restores import ground
from tests.web.browsers import Site
from web.app import create_app


@pytest.mark.slow
def test_programs_and_people_are_told(servers, tmp_path, password_hash):
    with ground(servers, tmp_path / "log") as behind:
        behind.bench.allow()
        copy = behind.backup()
        behind.bench.submit(10)
        behind.restore(copy)
        configured = {
            "home": tmp_path / "home",
            "DATABASE_URL": behind.engine.url.render_as_string(hide_password=False),
            "ledger_log": tmp_path / "log",
        }
        app = create_app(Settings(**configured))
        site = Site(app, behind.engine, behind.bench, password_hash)
        request = {
            "dataset": behind.bench.dataset,
            "mechanism": "noisy-count",
            "parameters": {"epsilon": 0.1},
            "purpose": "test",
        }
        refused = site.api("analyst").post("/jobs", request)
        assert (refused.status_code, refused.json["code"]) == (503, "ledger-behind")
        assert "exchequer ledger recover" in refused.json["detail"]
        page = site.pages("steward").get(f"/datasets/{behind.bench.dataset}").text
        assert "No job runs here now" in page
        told = app.test_client().get("/healthz")
        assert (told.status_code, told.json["ledger_log"]) == (
            200,
            "1 dataset has a ledger that is not what its log holds: stop all services, then "
            "`exchequer ledger recover`",
        )
        assert app.test_client().get("/readyz").status_code == 200
        with mock.patch.object(os, "fsync", side_effect=OSError(5, "Input/output error")):
            told = app.test_client().get("/readyz")
        assert told.status_code == 503
        assert "can't be written: Input/output error" in told.json["status"]
        other = create_app(Settings(**configured | {"ledger_log": tmp_path / "another"}))
        told = other.test_client().get("/healthz")
        assert told.status_code == 503
        assert "place that was named holds none" in told.json["status"]
        app.extensions["exchequer"]["engine"].dispose()
        other.extensions["exchequer"]["engine"].dispose()
