"""Artifacts and versions on the API and the pages: listed, handed out by hash, hidden where not
shared.
"""

import json
from pathlib import Path
from uuid import UUID

import pytest

from accountant.core.privacy.events import from_json
from accountant.transactions import leases, settlement
from accountant.transactions.artifacts import Stored
from tests import tallies
from tests.support import found_right, put

CONTENT = b'{"up": 41, "down": 17}'


@pytest.fixture(autouse=True)
def _tallies():
    tallies.register()
    yield
    tallies.forget()


@pytest.fixture
def released(site) -> tuple[str, Path, str]:
    """A job with one artifact: its id, the file, and the hash."""
    site.api("steward").put(f"{site.dataset}/policy", {"auto_approve_epsilon": "10"})
    body = site.job(mechanism="tally", model=None, parameters={"epsilon": 1.0})
    job_id = site.api("analyst").post("/jobs", body).json["id"]
    claim = leases.claim(site.engine, UUID(job_id), 1, "a worker", 60)
    leases.begin_reading(site.engine, claim)
    content = json.dumps({"job": job_id}).encode()
    file, sha256 = put(site.results, content)
    stored = Stored("counts", "noisy-counts", "application/json", sha256, len(content), "draft")
    output = settlement.Output("draft", "0" * 64, (stored,))
    event = from_json(site.api("steward").get(f"/jobs/{job_id}").json["event"])
    settlement.publish(site.engine, claim, event, output, "a worker")
    return job_id, file, sha256


def test_artifacts_are_listed_and_handed_out(site, released):
    job_id, file, sha256 = released
    api = site.api("analyst")
    (found,) = api.get(f"/artifacts?job={job_id}").json["artifacts"]
    assert (found["sha256"], found["job"], found["kind"]) == (sha256, job_id, "noisy-counts")
    assert str(file.parent) not in json.dumps(found)
    answer = api.get(f"/artifacts/{sha256}")
    assert answer.data == file.read_bytes()
    assert answer.mimetype == "application/json"
    assert answer.headers["ETag"] == f'"{sha256}"'
    assert f"counts-{sha256[:8]}.json" in answer.headers["Content-Disposition"]


def test_a_file_whose_bytes_changed_is_not_handed_out(site, released):
    _, file, sha256 = released
    file.write_bytes(b'{"job": "another"}')
    answer = site.api("analyst").get(f"/artifacts/{sha256}")
    assert (answer.status_code, answer.json["code"]) == (409, "conflict")
    file.unlink()
    assert site.api("analyst").get(f"/artifacts/{sha256}").status_code == 404


def test_others_see_them_where_the_policy_says_so(site, released):
    job_id, _, sha256 = released
    other = site.api("analyst-2")
    assert other.get("/artifacts").json["artifacts"] == []
    assert other.get(f"/artifacts/{sha256}").json == other.get(f"/artifacts/{sha256}").json
    assert (
        other.get(f"/artifacts/{sha256}").status_code
        == other.get(f"/artifacts/{'0' * 64}").status_code
        == 404
    )
    assert site.pages("analyst-2").get(f"/artifacts/{sha256}").status_code == 404
    site.api("steward").put(f"{site.dataset}/policy", {"share_artifacts": True})
    assert len(other.get(f"/artifacts?dataset={site.bench.dataset}").json["artifacts"]) == 1
    assert other.get(f"/artifacts/{sha256}").status_code == 200
    assert other.get(f"/jobs/{job_id}").status_code == 404
    assert "shared" in site.pages("analyst-2").get(site.dataset).text


def test_pages_list_them_and_say_how_to_use_them(site, released):
    job_id, file, sha256 = released
    browser = site.pages("analyst")
    page = browser.get(f"/jobs/{job_id}").text
    assert "noisy-counts" in page
    assert "costs nothing" in page
    assert f"/artifacts/{sha256}" in page
    listing = browser.get(f"/artifacts?dataset={site.bench.dataset}").text
    assert sha256[:10] in listing
    assert browser.get(f"/artifacts/{sha256}").data == file.read_bytes()
    assert (
        "No artifacts"
        in site.pages("analyst-3").get(f"/artifacts?dataset={site.bench.dataset}").text
    )


def test_a_free_job_from_request_to_ledger(site, released):
    job_id, _, _ = released
    site.api("steward").put(f"{site.dataset}/policy", {"auto_approve_epsilon": "0"})
    body = site.job(mechanism="tally", model=None, parameters={"from_job": job_id})
    answer = site.api("analyst").post("/jobs", body)
    assert (answer.json["state"], answer.json["epsilon_alone"]) == ("queued", 0.0)
    assert answer.json["source_job"] == job_id
    page = site.pages("analyst").get(f"/jobs/{answer.json['id']}").text
    assert job_id[:8] in page
    problem = site.api("analyst-2").post("/jobs", body)
    assert (problem.status_code, problem.json["problems"][0]["field"]) == (
        422,
        "parameters.from_job",
    )


@pytest.mark.parametrize(
    "path", ["/artifacts/x", "/artifacts/%00", "/artifacts?job=x", "/artifacts?limit=0"]
)
def test_bad_addresses_name_nothing(site, path):
    assert site.api("analyst").get(path).status_code in (404, 422)


# --- versions -----------------------------------------------------------------------------------


def test_a_steward_adds_a_version(site):
    path = f"{site.dataset}/versions"
    assert site.api("analyst").post(path, {"uri": "/data/b.csv"}).status_code == 403
    answer = site.api("steward").post(path, {"uri": "/data/b.csv", "text_template": "{body}"})
    assert answer.status_code == 201
    assert [each["state"] for each in answer.json["versions"]] == ["ready", "checking"]
    assert answer.json["state"] == "ready"
    assert answer.json["versions"][1]["text_template"] == "{body}"
    wrong = site.api("steward").post(path, {"uri": "/data/b.csv", "unit_column": "who"})
    assert (wrong.status_code, wrong.json["problems"][0]["field"]) == (422, "unit_column")
    assert (
        site.api("steward").post("/datasets/nothing/versions", {"uri": "/x.csv"}).status_code == 404
    )


def test_the_page_adds_a_version_and_keeps_what_was_typed(site):
    browser, path = site.pages("steward"), site.dataset
    assert "Address of the new version" in browser.get(path).text
    assert "Address of the new version" not in site.pages("analyst").get(path).text
    answer = browser.post(f"{path}/versions", path, uri="/data/c.csv", text_template="no column")
    assert answer.status_code == 422
    assert "/data/c.csv" in answer.text
    assert browser.post(f"{path}/versions", path, uri="/data/c.csv").status_code == 303
    versions = site.api("steward").get(path).json["versions"]
    assert (versions[-1]["uri"], versions[-1]["text_template"]) == ("/data/c.csv", "{text}")


def test_refused_data_shows_its_reason_to_stewards_alone(site):
    from accountant.catalogue import datasets

    steward = site.actor("steward")
    version = datasets.add_version(site.engine, site.bench.dataset, {"uri": "/data/d.csv"}, steward)
    datasets.dataset_refused(
        site.engine, version, "units of it have an account already, in dataset 'secret'"
    )
    assert "already, in dataset" in site.pages("steward").get(site.dataset).text
    for who in ("analyst", "auditor"):
        assert "secret&#39;" not in site.pages(who).get(site.dataset).text
        assert "d.csv" not in json.dumps(site.api(who).get(site.dataset).json)
    later = datasets.add_version(site.engine, site.bench.dataset, {"uri": "/data/e.csv"}, steward)
    found_right(site.engine, later)
    assert [each["number"] for each in site.api("steward").get(site.dataset).json["versions"]] == [
        1,
        2,
        3,
    ]
