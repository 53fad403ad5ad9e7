"""Jobs through the real relay, broker and workers, with the bundled model and data."""

import hashlib
import json
import shutil
import time
import uuid
from functools import cached_property
from pathlib import Path

import pytest
from sqlalchemy import func, select, text

from accountant import tables
from accountant.catalogue import datasets, models
from accountant.core.ledger.allowances import Allowance
from accountant.core.ledger.export_formats import verify_lines
from accountant.queries import datasets as dataset_queries
from accountant.queries import entries, integrity, jobs
from accountant.queries import models as model_queries
from accountant.transactions import allowances, messages, settlement, submission
from accountant.transactions.job_requests import JobRequest
from tests.support import other_people, person
from tests.workers.conftest import SAMPLE, published, wait_for
from workers.sample import KINDS, SENTIMENTS
from workers.sample import LABELS as EVERY_LABEL

pytestmark = pytest.mark.slow

#: One label of each kind.
LABELS = tuple(f"{kind} {SENTIMENTS[number % 2]}" for number, kind in enumerate(KINDS))
#: Reviews of a label that a job reads in no time, and as many that it is seen while it reads them.
FEW, MANY = 20, 100
DATA = {
    "label_column": "label",
    "public_size": 500,
    "policy": {"auto_approve_epsilon": "10"},
}


class Desk:
    """People, the bundled model and a dataset, registered through real checks when first used."""

    def __init__(self, engine, folder: Path) -> None:
        """Its data lies in `folder`: texts that no other dataset has."""
        self.engine, self.folder = engine, folder
        self.steward, self.analyst = person(engine, "steward"), person(engine, "analyst")

    @cached_property
    def model(self) -> str:
        name, path = f"sample-{uuid.uuid4().hex[:6]}", str(SAMPLE / "model")
        models.add_model(self.engine, name, path, "public sample text", self.steward)
        wait_for(lambda: self.model_state(name)["state"], lambda state: state != "checking")
        return name

    def model_state(self, name: str) -> dict:
        return next(m for m in model_queries.models(self.engine, self.steward) if m["name"] == name)

    def reviews(self, most: int | None = FEW) -> Path:
        """Write a file of bundled reviews, so many of each label."""
        path = self.folder / f"{uuid.uuid4().hex[:6]}.csv"
        return other_people(SAMPLE / "private.csv", path, LABELS, most)

    def dataset(self, most: int | None = FEW, **changes) -> str:
        name = f"reviews-{uuid.uuid4().hex[:6]}"
        if "uri" not in changes:
            changes["uri"] = str(self.reviews(most))
        raw = {"name": name, "labels": list(LABELS), **DATA, **changes}
        datasets.add_dataset(self.engine, datasets.read_dataset(raw), self.steward)
        wait_for(lambda: self.facts(name)["state"], lambda state: state != "checking")
        return name

    def whole_dataset(self) -> str:
        """All of the bundled reviews, under all of their labels."""
        uri = other_people(SAMPLE / "private.csv", self.folder / f"{uuid.uuid4().hex[:6]}.csv")
        return self.dataset(uri=str(uri), labels=list(EVERY_LABEL), public_size=3000)

    def facts(self, name: str) -> dict:
        return dataset_queries.dataset(self.engine, name, self.steward)

    def submit(self, dataset: str, **parameters):
        values = {
            "tokens_per_batch": 8,
            "batch_size": 64,
            "record_tokens": 64,
            "batches_per_label": 1,
            "template": "A review ({label}): {record}\nAnother review ({label}):",
            **parameters,
        }
        request = JobRequest(dataset, "private-prediction", self.model, values, "test")
        return submission.submit(self.engine, request, self.analyst)

    def job(self, job_id) -> dict:
        return jobs.job(self.engine, job_id, self.analyst)

    def ended(self, job_id, seconds: float = 400) -> dict:
        final = ("succeeded", "failed", "cancelled", "refused")
        query = select(tables.jobs.c.state).where(tables.jobs.c.id == uuid.UUID(str(job_id)))

        def state() -> str:  # a look at the whole job takes a processor from whoever runs it
            with self.engine.connect() as connection:
                return connection.execute(query).scalar_one()

        wait_for(state, lambda state: state in final, seconds)
        return self.job(job_id)


@pytest.fixture(scope="module")
def desk(warm_engine, tmp_path_factory) -> Desk:
    return Desk(warm_engine, tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def dataset(desk) -> str:
    return allowed(desk, FEW)


@pytest.fixture(scope="module")
def busy(desk) -> str:
    """A dataset that takes a while to read."""
    return allowed(desk, MANY)


def allowed(desk: Desk, most: int) -> str:
    name = desk.dataset(most)
    allowances.allow(desk.engine, name, Allowance("10", "0.000001", "test"), desk.steward)
    return name


def count(desk: Desk, dataset: str, actor=None) -> uuid.UUID:
    """A job without a model."""
    parameters = {"noise": "gaussian", "epsilon": 0.1}
    request = JobRequest(dataset, "noisy-count", None, parameters, "how many")
    return submission.submit(desk.engine, request, actor or desk.analyst)


def sent(desk: Desk, jobs_of: list[uuid.UUID]) -> int:
    """How many of these jobs the relay has told the broker of."""
    outbox = tables.outbox
    query = select(func.count()).where(outbox.c.subject.in_(jobs_of), outbox.c.sent_at.is_not(None))
    with desk.engine.connect() as connection:
        return connection.execute(query).scalar_one()


@pytest.mark.release  # test_parts: what waits is sent again; test_waiting_jobs: people take turns
def test_a_message_lost_by_the_broker_is_sent_again(desk, dataset, warm_service):
    """First of all: the worker that is killed has not loaded torch yet. And meanwhile people take
    turns.
    """
    import redis

    from web.local import redis_url

    warm_service.kill("generate")
    many, one = [count(desk, dataset) for _ in range(4)], count(desk, dataset, desk.steward)
    wait_for(lambda: sent(desk, [one]), lambda found: found == 1)
    assert sent(desk, many) == messages.AHEAD
    job_id = desk.submit(dataset)
    time.sleep(1)
    redis.Redis.from_url(redis_url(warm_service.environment["BROKER_URL"])).flushdb()
    warm_service.start("generate")
    assert [desk.ended(each)["state"] for each in (job_id, *many)] == ["succeeded"] * 5


def test_a_job_runs_is_charged_its_price_and_publishes_its_texts(desk, dataset):
    assert desk.facts(dataset)["state"] == "ready"
    job = desk.ended(desk.submit(dataset, tokens_per_batch=20))
    assert job["state"] == "succeeded", job
    assert [entry["kind"] for entry in job["entries"]] == ["RESERVE", "COMMIT"]
    assert job["entries"][0]["costs"] == job["entries"][1]["costs"]
    path = published(desk.engine, job["id"], desk.analyst)
    data = path.read_bytes()
    assert hashlib.sha256(data).hexdigest() == job["output_sha256"]
    texts = [json.loads(line) for line in data.splitlines()]
    assert texts
    assert all(set(each) == {"text", "label", "complete"} for each in texts)
    assert integrity.check(desk.engine, dataset) == []
    verify_lines(entries.export(desk.engine, dataset, desk.steward, "jsonl"))


def test_a_count_runs_without_a_model_and_says_one_number_per_label(desk, dataset):
    parameters = {"noise": "gaussian", "epsilon": 0.5}
    request = JobRequest(dataset, "noisy-count", None, parameters, "how many")
    job = desk.ended(submission.submit(desk.engine, request, desk.analyst))
    assert job["state"] == "succeeded", job
    assert job["entries"][0]["costs"] == job["entries"][1]["costs"]
    path = published(desk.engine, job["id"], desk.analyst)
    counts = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert [each["label"] for each in counts] == list(LABELS)
    assert all(isinstance(each["count"], int) for each in counts)
    assert job["progress"]["unit"] == "counts"
    assert integrity.check(desk.engine, dataset) == []


@pytest.mark.release  # test_resuming: killed again and again; test_parts: a lost part runs again
def test_a_worker_killed_while_it_reads_costs_nothing_and_the_job_runs_again(
    desk, busy, warm_service
):
    before = desk.facts(busy)["account"]["filters"][0]
    job_id = desk.submit(busy, tokens_per_batch=40)
    wait_for(lambda: desk.job(job_id)["progress"]["done"], lambda done: done > 0)
    warm_service.kill("generate")
    during = desk.facts(busy)["account"]["filters"][0]
    assert float(during["reserved"]) > 0
    wait_for(lambda: desk.job(job_id)["attempt"], lambda attempt: attempt == 2)
    warm_service.start("generate")
    job = desk.ended(job_id)
    assert job["state"] == "succeeded"
    after = desk.facts(busy)["account"]["filters"][0]
    cost = job["entries"][1]["costs"]["renyi"]["main"]
    assert round((float(after["spent"]) - float(before["spent"])) * 1e9) == int(cost)
    assert integrity.check(desk.engine, busy) == []


def test_a_running_job_stops_at_the_next_token_when_cancelled_and_is_charged(desk, busy):
    job_id = desk.submit(busy, tokens_per_batch=60)
    wait_for(lambda: desk.job(job_id)["progress"]["done"], lambda done: done > 0)
    settlement.cancel(desk.engine, job_id, desk.analyst)
    job = desk.ended(job_id)
    assert job["state"] == "cancelled"
    assert job["entries"][-1]["kind"] == "COMMIT"
    assert job["entries"][-1]["costs"] == job["entries"][0]["costs"]


def test_a_context_too_long_is_refused_before_anything_is_reserved(desk, dataset):
    job = desk.ended(desk.submit(dataset, record_tokens=500))
    assert job["state"] == "refused"
    assert job["refusal"]["cap"] == "model context"
    assert job["entries"] == []


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda folder: (folder / "model.safetensors").unlink(), "no model.safetensors"),
        (lambda folder: (folder / "config.json").unlink(), "config.json is missing"),
        (
            lambda folder: (folder / "model.safetensors").write_bytes(b"pickle"),
            "is cut or no safetensors file",
        ),
        (lambda folder: (folder / "tokenizer.json").unlink(), "tokenizer can't be loaded"),
    ],
)
def test_a_path_that_is_no_model_is_an_error_that_names_it(desk, tmp_path, spoil, message):
    folder = tmp_path / "model"
    shutil.copytree(SAMPLE / "model", folder)
    if "tokenizer" in message:
        (folder / "tokenizer_config.json").unlink()
    spoil(folder)
    name = f"bad-{uuid.uuid4().hex[:6]}"
    models.add_model(desk.engine, name, str(folder), "nothing", desk.steward)
    state = wait_for(lambda: desk.model_state(name), lambda model: model["state"] != "checking")
    assert state["state"] == "invalid"
    assert message in state["error"]


def test_a_model_whose_bytes_changed_does_not_run(desk, dataset, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(SAMPLE / "model", folder)
    name = f"moving-{uuid.uuid4().hex[:6]}"
    models.add_model(desk.engine, name, str(folder), "public", desk.steward)
    wait_for(lambda: desk.model_state(name)["state"], lambda state: state == "ready")
    (folder / "config.json").write_text((folder / "config.json").read_text() + " ")
    other = Desk.__new__(Desk)
    other.__dict__ |= {**desk.__dict__, "model": name}
    job = desk.ended(other.submit(dataset))
    assert job["state"] == "failed"
    assert "not those that were registered" in job["failure"]
    assert job["entries"][-1]["kind"] == "VOID"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"uri": "/etc/passwd"}, "not under a data root"),
        ({"uri": str(SAMPLE / "nothing.csv")}, "no such file"),
        ({"label_column": "stars"}, "no column stars"),
        ({"text_template": "{words}"}, "no column words"),
        ({"labels": ["hotel positive"]}, "not among the declared labels"),
    ],
)
def test_data_that_is_not_as_declared_is_refused_to_the_steward_only(desk, change, message):
    name = desk.dataset(**change)
    facts = desk.facts(name)
    assert facts["state"] == "invalid"
    assert message in facts["versions"][0]["error"]
    assert message not in json.dumps(
        dataset_queries.dataset(desk.engine, name, desk.analyst).document()
    )


def test_data_that_is_gone_before_it_is_read_is_void_and_says_so(desk):
    copy = desk.reviews()
    name = desk.dataset(uri=str(copy))
    allowances.allow(desk.engine, name, Allowance("10", "0.000001", "test"), desk.steward)
    copy.unlink()
    job = desk.ended(desk.submit(name))
    assert (job["state"], job["failure"]) == ("failed", "there is no such file")
    assert job["entries"][-1]["kind"] == "VOID"


def test_other_data_is_not_read_whatever_the_row_of_its_version_forgets(desk):
    """Nothing is charged: the entry says which bytes were registered, and others void the job
    unread.
    """
    copy = desk.reviews()
    name = desk.dataset(uri=str(copy))
    allowances.allow(desk.engine, name, Allowance("10", "0.000001", "test"), desk.steward)
    copy.write_text("other,columns\n1,2\n")
    with desk.engine.begin() as connection:
        forget = text("UPDATE dataset_versions SET data = NULL WHERE uri = :uri")
        connection.execute(forget, {"uri": str(copy)})
    job = desk.ended(desk.submit(name))
    assert (job["state"], job["entries"][-1]["kind"]) == ("failed", "VOID")
    assert job["failure"].startswith("the data has other bytes than when it was registered")
