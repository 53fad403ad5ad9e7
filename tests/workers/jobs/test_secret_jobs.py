# ruff: noqa: F811 (fixtures of other files)
"""A release in the secret currency: reserved, metered, settled, and checked from the export."""

import json
import uuid

import pytest

from accountant.core.errors import VerificationFailed
from accountant.core.ledger.allowances import Allowance, SecretDeclaration
from accountant.core.ledger.export_formats import verify_lines
from accountant.core.privacy.blowup import Without
from accountant.core.privacy.secrets import SecretKind, SecretTerms
from accountant.queries import entries, integrity, jobs
from accountant.transactions import allowances, submission
from accountant.transactions.job_requests import JobRequest
from tests import blurs, tallies
from tests.support import yes
from tests.workers.conftest import wait_for
from tests.workers.jobs.test_artifact_jobs import Desk, desk, words  # noqa: F401

pytestmark = pytest.mark.slow
STATED = SecretTerms(1e-4, 0.05, 2, 0.5, Without.REMOVED)


@pytest.fixture(scope="module", autouse=True)
def known(desk):
    tallies.register(blurs)
    yield
    tallies.forget(blurs)


def dataset(desk: Desk, kind: SecretKind) -> str:
    name = desk.dataset(desk.file(words(30)), policy={"secret_jobs": True})
    allowed = Allowance(None, None, "secrets", secret=SecretDeclaration(STATED, kind))
    allowances.allow(desk.engine, name, allowed, desk.steward)
    return name


def run(desk: Desk, name: str, **parameters: object) -> tuple[uuid.UUID, dict]:
    request = JobRequest(name, blurs.NAME, None, parameters, "test")
    job_id = submission.submit(desk.engine, request, desk.analyst)
    seen = wait_for(
        lambda: jobs.job(desk.engine, job_id, desk.analyst), lambda job: job["state"] != "submitted"
    )
    if seen["state"] == "awaiting_approval":
        yes(desk.engine, job_id, desk.steward, "yes")
    return job_id, desk.ended(job_id)


def entry(desk: Desk, name: str, job_id: uuid.UUID, kind: str) -> dict:
    lines = list(entries.export(desk.engine, name, desk.steward, "jsonl"))
    verify_lines(lines)
    found = [json.loads(line) for line in lines if str(job_id) in line]
    return next(each["body"]["secret"] for each in found if each["kind"] == kind)


def account(desk: Desk, name: str) -> dict:
    return desk.facts(name)["secret"]


def test_rounds_that_are_not_taken_return_where_jobs_compose(desk):
    name = dataset(desk, SecretKind.MANY)
    whole_id, whole = run(desk, name, sigma=20.0, rounds=3, takes=3)
    assert whole["state"] == "succeeded", whole
    spent = float(account(desk, name)["spent"])
    assert entry(desk, name, whole_id, "COMMIT") == entry(desk, name, whole_id, "RESERVE")
    part_id, part = run(desk, name, sigma=20.0, rounds=3, takes=1)
    assert part["state"] == "succeeded", part
    reserved, committed = (entry(desk, name, part_id, kind) for kind in ("RESERVE", "COMMIT"))
    assert (reserved["release"]["rounds"], committed["release"]["rounds"]) == (3, 1)
    assert int(committed["cost"]) < int(reserved["cost"])
    more = float(account(desk, name)["spent"]) - spent
    assert more == pytest.approx(int(committed["cost"]) / 1e9)
    assert float(account(desk, name)["reserved"]) == 0
    assert integrity.check(desk.engine, name) == []


def test_a_mechanism_that_takes_more_than_was_reserved_fails_and_pays_all(desk):
    name = dataset(desk, SecretKind.MANY)
    job_id, job = run(desk, name, rounds=1, takes=2)
    assert job["state"] == "failed"
    assert entry(desk, name, job_id, "COMMIT") == entry(desk, name, job_id, "RESERVE")
    assert float(account(desk, name)["spent"]) > 0


def test_one_exact_job_pays_its_reservation(desk):
    name = dataset(desk, SecretKind.ONE)
    job_id, job = run(desk, name, sigma=20.0, rounds=2, takes=1)
    assert job["state"] == "succeeded", job
    reserved, committed = (entry(desk, name, job_id, kind) for kind in ("RESERVE", "COMMIT"))
    assert committed["cost"] == reserved["cost"]
    assert integrity.check(desk.engine, name) == []
    _, second = run(desk, name, sigma=1000.0)
    assert (second["state"], second["refusal"]["cap"]) == ("refused", "secret")


def test_an_export_that_says_another_release_does_not_verify(desk):
    name = dataset(desk, SecretKind.MANY)
    job_id, _ = run(desk, name, sigma=20.0, rounds=2, takes=1)
    lines = list(entries.export(desk.engine, name, desk.steward, "jsonl"))
    forged = [
        line.replace('"rounds":1', '"rounds":2') if str(job_id) in line else line for line in lines
    ]
    assert forged != lines
    with pytest.raises(VerificationFailed):
        verify_lines(forged)
