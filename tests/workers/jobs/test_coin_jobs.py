"""Jobs of rounds whose batches nobody knows, through the real relay, broker and workers."""

import json

import pytest
from sqlalchemy import func, select

from accountant import tables
from accountant.core.ledger.allowances import Allowance
from accountant.core.ledger.export_formats import verify_lines
from accountant.core.privacy.events import Allocated, SelfComposed, from_json
from accountant.queries import entries, integrity
from accountant.transactions import allowances, settlement
from tests.workers.conftest import published, wait_for
from tests.workers.jobs.test_jobs import Desk

pytestmark = pytest.mark.slow

ROUNDS = {"amplification": "allocation", "rounds": 3, "batches_per_label": 8, "batches_to_run": 2}


@pytest.fixture(scope="module")
def desk(warm_engine, tmp_path_factory) -> Desk:
    return Desk(warm_engine, tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def dataset(desk) -> str:
    name = desk.dataset()
    allowances.allow(desk.engine, name, Allowance("10", "0.000001", "test"), desk.steward)
    return name


def sealed(desk: Desk, job_id) -> bytes | None:
    query = select(tables.job_keys.c.sealed).where(tables.job_keys.c.job_id == job_id)
    with desk.engine.connect() as connection:
        return connection.execute(query).scalar_one_or_none()


def reading(desk: Desk, job_id) -> bool:
    query = select(tables.jobs.c.reading_began_at).where(tables.jobs.c.id == job_id)
    with desk.engine.connect() as connection:
        return connection.execute(query).scalar_one() is not None


def test_a_job_of_rounds_is_admitted_run_settled_and_verified(desk, dataset):
    job_id = desk.submit(dataset, tokens_per_batch=6, **ROUNDS)
    job = desk.ended(job_id)
    assert job["state"] == "succeeded", job
    event = from_json(job["event"])
    assert isinstance(event, SelfComposed)
    assert isinstance(event.event, Allocated)
    assert (event.count, event.event.batches, event.event.run, event.event.tokens) == (3, 8, 2, 6)
    assert [entry["kind"] for entry in job["entries"]] == ["RESERVE", "COMMIT"]
    assert job["entries"][0]["costs"] == job["entries"][1]["costs"]
    texts = published(desk.engine, job["id"], desk.analyst).read_text().splitlines()
    assert all(set(json.loads(each)) == {"text", "label", "complete"} for each in texts)
    assert len(texts) > 12, "of three rounds, two batches and six labels"
    assert sealed(desk, job_id) is None
    assert integrity.check(desk.engine, dataset) == []
    verify_lines(entries.export(desk.engine, dataset, desk.steward, "jsonl"))


@pytest.mark.release  # in one process: test_resuming, test_job_keys
def test_after_kill_9_the_job_goes_on_under_the_same_key(desk, dataset, warm_service):
    """A retry under another key beside what was kept would put units into two batches."""
    before = desk.facts(dataset)["account"]["filters"][0]["spent"]
    job_id = desk.submit(dataset, tokens_per_batch=40, **ROUNDS)
    wait_for(lambda: reading(desk, job_id), bool)
    key = sealed(desk, job_id)
    assert key is not None
    assert desk.job(job_id)["progress"]["done"] == 0, "a round's time would tell of its batches"
    warm_service.kill("generate")
    wait_for(lambda: desk.job(job_id)["attempt"], lambda attempt: attempt == 2)
    assert sealed(desk, job_id) == key
    warm_service.start("generate")
    seen = set()

    def ended() -> str:
        seen.add(sealed(desk, job_id))
        job = desk.job(job_id)
        assert job["state"] == "succeeded" or job["progress"]["done"] == 0
        return str(job["state"])

    assert (
        wait_for(ended, lambda state: state not in ("queued", "running", "settling")) == "succeeded"
    )
    assert seen <= {key, None}
    assert sealed(desk, job_id) is None
    job = desk.job(job_id)
    assert job["entries"][0]["costs"] == job["entries"][-1]["costs"]
    after = desk.facts(dataset)["account"]["filters"][0]
    assert float(after["spent"]) > float(before)
    assert float(after["reserved"]) == 0
    assert integrity.check(desk.engine, dataset) == []


def test_a_job_cancelled_in_a_round_is_charged_whole_and_leaves_no_key(desk, dataset):
    job_id = desk.submit(dataset, tokens_per_batch=200, **ROUNDS)
    wait_for(lambda: reading(desk, job_id), bool)
    settlement.cancel(desk.engine, job_id, desk.analyst)
    job = desk.ended(job_id)
    assert job["state"] == "cancelled"
    assert job["entries"][0]["costs"] == job["entries"][-1]["costs"]
    assert sealed(desk, job_id) is None
    with desk.engine.connect() as connection:
        assert (
            connection.execute(select(func.count()).select_from(tables.job_keys)).scalar_one() == 0
        )
