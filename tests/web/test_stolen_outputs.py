"""A stolen worker publishes files that are no outputs, and no page or route of the web hands them
out.
"""

import hashlib
import json
import os
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from accountant.core.privacy.events import from_json
from accountant.database import connect
from accountant.results import draft_name
from accountant.transactions import leases, settlement, stopped_workers
from accountant.transactions.artifacts import Stored
from tests import tallies
from tests.conftest import as_process
from tests.support import put

pytestmark = pytest.mark.slow

SECRET = b'{"text": "EXCHEQUER_KEY_SESSION=0123456789"}\n'
NAME = hashlib.sha256(SECRET).hexdigest()
TOLD = b"EXCHEQUER_KEY_SESSION"


@pytest.fixture
def job(site, owner_url):
    """Ends a job with a worker's credentials: an output and an artifact of these names and
    hashes.
    """
    tallies.register()
    site.api("steward").put(f"{site.dataset}/policy", {"auto_approve_epsilon": "10"})
    worker = connect(as_process(owner_url, "worker"), pool_size=1)

    def end(draft: str, sha256: str) -> str:
        body = site.job(mechanism="tally", model=None, parameters={"epsilon": 1.0})
        made = site.api("analyst").post("/jobs", body).json
        claim = leases.claim(worker, UUID(made["id"]), 1, "a worker", 60)
        leases.begin_reading(worker, claim)
        stored = Stored("counts", "noisy-counts", "application/json", sha256, len(SECRET), draft)
        output = settlement.Output(draft, sha256, (stored,))
        settlement.publish(worker, claim, from_json(made["event"]), output, "a worker")
        return made["id"]

    yield end
    worker.dispose()
    tallies.forget()


def served(site, job_id: str) -> bytes:
    """All that the web says of the job's output and artifact, by every way."""
    routes = ("result", "output?format=csv", "output?card=true")
    pages = ("", "/result", "/output.csv", f"?line=1&words=e#{job_id}")
    api, page = site.api("analyst"), site.pages("analyst")
    answers = [api.get(f"/jobs/{job_id}/{path}") for path in routes]
    answers += [page.get(f"/jobs/{job_id}{path}") for path in pages]
    answers += [page.get(f"/jobs/compare?a={job_id}&b={job_id}")]
    answers += [api.get(f"/artifacts/{NAME}"), page.get(f"/artifacts/{NAME}")]
    assert all(answer.status_code < 500 for answer in answers)
    return b"".join(answer.data for answer in answers)


@pytest.fixture
def secret(tmp_path) -> Path:
    path = tmp_path / "secret"
    path.write_bytes(SECRET)
    return path


def test_the_ways_hand_out_what_was_published(site, job):
    put(site.results, SECRET)
    assert TOLD in served(site, job("draft", NAME))
    (site.results / NAME).unlink()


@pytest.mark.parametrize(
    "address",
    ["{secret}", "file://{secret}", "../secret", "/proc/self/environ", "s3://elsewhere/x"],
)
def test_an_address_is_opened_by_nobody(site, job, secret, address):
    """The web's environment holds a secret; so does a file that the web may read."""
    assert TOLD not in served(site, job(address.format(secret=secret), NAME))


@pytest.mark.parametrize("kind", ["link", "hard link", "draft"])
def test_a_file_that_the_worker_puts_there_is_not_handed_out(site, job, secret, kind):
    site.results.mkdir(exist_ok=True)
    path, sha256 = site.results / NAME, NAME
    if kind == "link":
        path.symlink_to(secret)
    elif kind == "hard link":
        sha256 = "e" * 64
        path = site.results / sha256
        os.link(secret, path)
    else:
        path = site.results / "drafts" / draft_name(uuid4(), uuid4(), "texts")
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(SECRET)
    try:
        assert TOLD not in served(site, job("draft", sha256))
    finally:
        path.unlink()


def test_a_hash_that_the_row_says_is_not_what_the_entry_says(site, job, owner):
    """The row of the job is changed after its COMMIT: the entry decides."""
    put(site.results, SECRET)
    published = put(site.results, json.dumps({"text": "published"}).encode())[1]
    job_id = job("draft", published)
    with owner.begin() as connection:
        connection.exec_driver_sql(
            "UPDATE jobs SET output_sha256 = %s WHERE id = %s", (NAME, job_id)
        )
        connection.exec_driver_sql(
            "UPDATE artifacts SET sha256 = %s WHERE job_id = %s", (NAME, job_id)
        )
    said = served(site, job_id)
    (site.results / NAME).unlink()
    assert TOLD not in said


def test_health_says_that_a_worker_takes_no_jobs_and_nothing_in_its_words(site, owner_url):
    """Whoever reads /healthz is not signed in, and a stolen worker has read private data.

    No worker takes the pages away: a proxy asks /readyz.
    """
    worker = connect(as_process(owner_url, "worker"), pool_size=1)
    stopped_workers.say(worker, "machine/1", "a private text")
    worker.dispose()
    client = site.app.test_client()
    ready, health = client.get("/readyz"), client.get("/healthz")
    stopped_workers.forget(site.engine, "machine/1")
    assert (ready.status_code, health.status_code) == (200, 200)
    assert (
        health.json["workers"]
        == "jobs wait: a worker takes none; `exchequer stack status` says why"
    )
    assert "workers" not in client.get("/healthz").json
