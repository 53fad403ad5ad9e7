"""Maintenance: nothing is admitted and nothing begins; what runs ends, and everything is read."""

from collections.abc import Iterator
from uuid import uuid4

import pytest

from accountant.core.errors import InvalidRequest, NotPermitted, UnderMaintenance
from accountant.transactions import leases, maintenance, messages, settlement
from tests.support import awaiting, yes
from web.probes import probe_app
from workers.jobs import checks

WHY = "an upgrade until noon"


@pytest.fixture
def closed(site) -> Iterator[None]:
    """A service under maintenance, and open again afterwards."""
    admin = site.actor("administrator")
    maintenance.switch(site.engine, admin, True, WHY)
    yield
    maintenance.switch(site.engine, admin, False, "done")


def body(site, epsilon=0.1):
    return {"mechanism": "noisy-count", "parameters": {"epsilon": epsilon}, "purpose": "a test"}


def test_nothing_is_admitted_and_everything_is_read(site, closed):
    analyst = site.api("analyst")
    answer = analyst.post("/jobs", {"dataset": site.bench.dataset, **body(site)})
    assert (answer.status_code, answer.json["code"]) == (503, "maintenance")
    assert WHY in answer.json["detail"]
    assert answer.headers["Retry-After"] == "120"
    assert analyst.get("/jobs").status_code == 200
    assert WHY in site.pages("analyst").get("/jobs").text
    told = probe_app(site.app).test_client().get("/readyz")
    assert (told.status_code, told.json["maintenance"]) == (200, WHY)


def test_a_request_that_waits_is_not_approved_meanwhile(site):
    job_id = site.bench.submit(3)
    assert any(job.id == str(job_id) for job in awaiting_of(site))
    admin = site.actor("administrator")
    maintenance.switch(site.engine, admin, True, WHY)
    try:
        with pytest.raises(UnderMaintenance, match=WHY):
            yes(site.engine, job_id, site.bench.steward, "yes")
    finally:
        maintenance.switch(site.engine, admin, False, "done")
    assert yes(site.engine, job_id, site.bench.steward, "yes") == job_id


def awaiting_of(site):
    return awaiting(site.engine, site.bench.steward, site.bench.dataset)


def test_what_runs_ends_and_nothing_else_begins(site):
    engine, admin = site.engine, site.actor("administrator")
    running, waiting = site.bench.submit(3), site.bench.submit(3)
    for job_id in (running, waiting):
        yes(engine, job_id, site.bench.steward, "yes")
    claim = leases.claim(engine, running, 1, "worker", 60)
    assert claim is not None
    maintenance.switch(engine, admin, True, WHY)
    try:
        assert maintenance.standing(engine)["running_jobs"] == 1
        assert leases.claim(engine, waiting, 1, "worker", 60) is None
        sent = []
        assert messages.deliver(engine, lambda *each: sent.append(each)) == 0
        assert not sent
        leases.renew(engine, claim, 60, 0, 1)
        leases.begin_reading(engine, claim)
        settlement.fail(engine, claim, "failed", "", "worker")
        assert maintenance.standing(engine)["running_jobs"] == 0
    finally:
        maintenance.switch(engine, admin, False, "done")
    assert leases.claim(engine, waiting, 1, "worker", 60) is not None


def test_who_switches_it_and_why_is_kept(site, closed):
    assert site.api("analyst").get("/maintenance").status_code == 403
    with pytest.raises(NotPermitted):
        maintenance.switch(site.engine, site.bench.steward, False, "no")
    admin = site.api("administrator")
    assert admin.get("/maintenance").json["reason"] == WHY
    with pytest.raises(InvalidRequest, match="reason: 0 characters"):
        maintenance.switch(site.engine, site.actor("administrator"), True, " ")
    acts = admin.get("/activity").json["activity"]
    act = next(act for act in acts if act["action"] == "maintenance began")
    assert (act["actor"], act["detail"]) == (
        site.actor("administrator").name,
        {"reason": WHY},
    )


def test_a_charge_of_another_program_begins_afterwards(site, closed, monkeypatch):
    with pytest.raises(UnderMaintenance), site.engine.begin() as connection:
        maintenance.require_open(connection)
    with pytest.raises(UnderMaintenance):
        leases.claim(site.engine, uuid4(), 1, "tool", 60, charges=True)


def test_no_look_at_a_model_admits_a_job(site, closed, monkeypatch):
    monkeypatch.setattr(checks.job_inputs, "engine", lambda: site.engine)
    monkeypatch.setattr(checks.approval, "waiting", lambda *_: pytest.fail("it looks"))
    checks.probe(str(uuid4()))
