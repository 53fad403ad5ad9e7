"""Identity and artifacts through the real relay, broker and workers; the mechanism:
tests/tallies.py.
"""

import hashlib
import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import text

from accountant.catalogue import datasets
from accountant.core.ledger.allowances import Allowance
from accountant.core.ledger.export_formats import verify_lines
from accountant.queries import datasets as dataset_queries
from accountant.queries import entries, integrity, jobs, quotes
from accountant.transactions import allowances, artifacts, submission
from accountant.transactions.job_requests import JobRequest
from tests import tallies
from tests.support import person
from tests.workers.conftest import Service, folder_of, published, result, wait_for
from workers.interface import Artifact
from workers.jobs import artifacts as stored

pytestmark = pytest.mark.slow


class Desk:
    """People, and datasets that real workers check."""

    def __init__(self, service: Service, engine, folder: Path) -> None:
        self.service, self.engine, self.folder = service, engine, folder
        self.steward, self.analyst = person(engine, "steward"), person(engine, "analyst")

    def file(self, texts: list[str], label: str = "up") -> str:
        path = self.folder / f"{uuid.uuid4().hex[:8]}.csv"
        path.write_text("label,text,who\n" + "".join(f'{label},"{t}",{t[:40]} w\n' for t in texts))
        return str(path)

    def dataset(self, uri: str, **spec: object) -> str:
        name = f"notes-{uuid.uuid4().hex[:6]}"
        raw = {"name": name, "uri": uri, "policy": {"auto_approve_epsilon": "10"}}
        raw |= {"label_column": "label", "labels": ["up", "down"], **spec}
        datasets.add_dataset(self.engine, datasets.read_dataset(raw), self.steward)
        wait_for(lambda: self.facts(name)["state"], lambda state: state != "checking")
        return name

    def facts(self, name: str) -> dict:
        return dataset_queries.dataset(self.engine, name, self.steward)

    def ask(self, dataset: str, **parameters: object) -> uuid.UUID:
        request = JobRequest(dataset, tallies.NAME, None, parameters, "test")
        return submission.submit(self.engine, request, self.analyst)

    def ended(self, job_id: uuid.UUID) -> dict:
        final = ("succeeded", "failed", "cancelled", "refused")
        look = lambda: jobs.job(self.engine, job_id, self.analyst)  # noqa: E731
        return wait_for(look, lambda job: job["state"] in final)

    def rows(self, job_id: uuid.UUID):
        with self.engine.connect() as connection:
            return artifacts.of_job(connection, job_id)


@pytest.fixture(scope="module")
def desk(warm_service: Service, warm_engine, tmp_path_factory) -> Iterator[Desk]:
    tallies.register()
    yield Desk(warm_service, warm_engine, tmp_path_factory.mktemp("notes"))
    tallies.forget()


def words(count: int) -> list[str]:
    tag = uuid.uuid4().hex[:8]
    return [f"{tag} note {n}" for n in range(count)]


@pytest.fixture(scope="module")
def released(desk) -> tuple[str, uuid.UUID]:
    """A dataset of 400 records, and a job that left its artifacts."""
    name = desk.dataset(desk.file(words(400)))
    allowances.allow(desk.engine, name, Allowance("10", "0.000001", "test"), desk.steward)
    job_id = desk.ask(name, epsilon=1.0)
    assert desk.ended(job_id)["state"] == "succeeded"
    return name, job_id


def test_artifacts_are_published_with_their_hashes(desk, released):
    name, job_id = released
    rows = desk.rows(job_id)
    assert [(row.name, row.kind) for row in rows] == [
        ("counts", "noisy-counts"),
        ("vector", "noisy-vector"),
    ]
    for row in rows:
        content = result(row.sha256).read_bytes()
        assert hashlib.sha256(content).hexdigest() == row.sha256
        assert len(content) == row.size
    found = stored.read(folder_of(rows[0]), {row.name: row.sha256 for row in rows})
    counts = found["counts"].json()
    assert abs(counts["up"] - 400) < 100
    assert found["vector"].tensors()["layer.0"].tolist() == list(counts.values())
    verify_lines(entries.export(desk.engine, name, desk.steward, "jsonl"))


def test_a_job_over_artifacts_runs_without_opening_the_data(desk):
    """The data is gone by then, and the dataset has nothing left for anybody."""
    uri = desk.file(words(50))
    name = desk.dataset(uri)
    allowances.allow(desk.engine, name, Allowance("1", "0.000001", "test"), desk.steward)
    quote = quotes.quote_on(desk.engine, name, tallies.NAME, {}, fit_field="epsilon")
    source = desk.ask(name, noise_multiplier=quote["parameters"]["noise_multiplier"])
    assert desk.ended(source)["state"] == "succeeded"
    assert desk.ended(desk.ask(name, epsilon=0.1))["state"] == "refused"
    Path(uri).unlink()
    free = desk.ended(desk.ask(name, from_job=str(source)))
    assert free["state"] == "succeeded", free
    assert [each["kind"] for each in free["entries"]] == ["RESERVE", "COMMIT"]
    assert all(cost["main"] == "0" for each in free["entries"] for cost in each["costs"].values())
    job_id = uuid.UUID(free["id"])
    lines = published(desk.engine, job_id, desk.analyst).read_text().splitlines()
    assert [json.loads(line)["label"] for line in lines] == ["up", "down"]
    assert [row.name for row in desk.rows(job_id)] == ["largest"]
    with desk.engine.connect() as connection:
        query = text("SELECT reading_began_at FROM jobs WHERE id = :job")
        assert connection.execute(query, {"job": job_id}).scalar_one() is None
    assert integrity.check(desk.engine, name) == []
    verify_lines(entries.export(desk.engine, name, desk.steward, "jsonl"))


@pytest.mark.parametrize("spoil", ["changed", "longer", "gone"])
def test_an_artifact_whose_bytes_changed_is_not_read(desk, spoil):
    name = desk.dataset(desk.file(words(20)))
    allowances.allow(desk.engine, name, Allowance("10", "0.000001", "test"), desk.steward)
    source = desk.ask(name, epsilon=1.0)
    assert desk.ended(source)["state"] == "succeeded"
    path = result(desk.rows(source)[0].sha256)
    # all published
    wait_for(lambda: list(path.parent.glob(f"drafts/{source}.*")), lambda left: left == [])
    content = path.read_bytes()
    match spoil:
        case "changed":
            path.write_bytes(content.replace(b"up", b"UP"))
        case "longer":
            path.write_bytes(content + b" ")
        case "gone":
            path.unlink()
    job = desk.ended(desk.ask(name, from_job=str(source)))
    assert job["state"] == "failed"
    assert "'counts'" in job["failure"]
    assert [each["kind"] for each in job["entries"]] == ["RESERVE", "VOID"]


def test_a_free_job_that_fails_in_its_mechanism_is_void(desk, released):
    name, source = released
    job = desk.ended(desk.ask(name, from_job=str(source), fails=True))
    assert (job["state"], job["entries"][-1]["kind"]) == ("failed", "VOID")


def test_a_job_that_fails_leaves_no_artifact_and_no_file(desk, released):
    name, _ = released
    job = desk.ended(desk.ask(name, epsilon=0.1, fails=True))
    assert (job["state"], job["entries"][-1]["kind"]) == ("failed", "COMMIT")
    assert "secret" not in json.dumps(job.document())
    assert desk.rows(uuid.UUID(job["id"])) == []
    drafts = Path(desk.service.environment["EXCHEQUER_HOME"]) / "results" / "drafts"
    # The job has ended when its charge is committed; what it staged goes right after that.
    wait_for(lambda: list(drafts.glob(f"{job['id']}.*")), lambda left: left == [])


# --- identity -----------------------------------------------------------------------------------


def test_the_same_data_is_refused_under_another_name_however_it_is_laid_out(desk):
    texts = [f"{note}: {uuid.uuid4().hex} and {uuid.uuid4().hex}" for note in words(30)]
    first = desk.dataset(desk.file(texts))
    shouted = desk.file([f"  {t.upper()}!" for t in texts])  # spelling makes nobody a second person
    changes = [
        {"uri": shouted},
        {"uri": desk.file(texts[:10] + words(20))},
        {"uri": desk.file(texts), "text_template": "A note: {text}"},
        {"uri": desk.file(texts), "unit_column": "who"},
    ]
    for change in changes:
        facts = desk.facts(desk.dataset(**change))
        assert facts["state"] == "invalid", change
        assert repr(first) in facts["versions"][0]["error"]
    assert desk.facts(desk.dataset(desk.file(words(30))))["state"] == "ready"


def test_people_are_found_by_the_column_that_names_them(desk):
    """Other words of the same people; and the same words of others, who are others."""
    people = words(10)
    first = desk.dataset(desk.file(people), unit_column="who")
    assert desk.facts(first)["state"] == "ready"
    path = desk.folder / "later.csv"
    path.write_text(
        "label,text,who\n" + "".join(f"up,{uuid.uuid4().hex},{t} W \n" for t in people[:5])
    )
    assert desk.facts(desk.dataset(str(path), unit_column="who"))["state"] == "invalid"
    path = desk.folder / "others.csv"
    path.write_text("label,text,who\n" + "".join(f"up,{t},{uuid.uuid4().hex}\n" for t in people))
    assert desk.facts(desk.dataset(str(path), unit_column="who"))["state"] == "ready"


def test_new_data_of_the_same_people_is_a_version_with_its_own_layout(desk):
    texts = words(60)
    name = desk.dataset(desk.file(texts[:30]))
    allowances.allow(desk.engine, name, Allowance("10", "0.000001", "test"), desk.steward)
    path = desk.folder / f"{uuid.uuid4().hex}.csv"
    path.write_text("kind,words\n" + "".join(f"down,{t}\n" for t in texts))
    changes = {"uri": str(path), "text_template": "{words}", "label_column": "kind"}
    datasets.add_version(desk.engine, name, changes, desk.steward)
    wait_for(lambda: desk.facts(name)["versions"][-1]["state"], lambda state: state == "ready")
    source = desk.ask(name, noise_multiplier=0.01)
    assert desk.ended(source)["state"] == "refused"  # no allowance for a figure that exact
    source = desk.ask(name, epsilon=5.0)
    assert desk.ended(source)["state"] == "succeeded"
    rows = desk.rows(source)
    counts = stored.read(folder_of(rows[0]), {row.name: row.sha256 for row in rows})[
        "counts"
    ].json()
    assert counts["down"] > 40 > 20 > counts["up"]


def test_no_fingerprint_tells_what_it_is_of(desk):
    text_of_one = words(1)[0]
    desk.dataset(desk.file([text_of_one]))
    with desk.engine.connect() as connection:
        stored_bytes = (
            connection.execute(text("SELECT fingerprint FROM fingerprints")).scalars().all()
        )
    plain = hashlib.sha256(text_of_one.encode()).digest()[:16]
    assert plain not in stored_bytes
    assert all(len(each) == 16 for each in stored_bytes)


# --- files --------------------------------------------------------------------------------------


def test_an_artifact_is_json_or_safetensors_and_says_its_name():
    vector = Artifact.of_tensors("vector", "steering", {"layer.3": np.arange(6.0).reshape(2, 3)})
    assert vector.tensors()["layer.3"].shape == (2, 3)
    with pytest.raises(ValueError, match="no JSON"):
        vector.json()
    with pytest.raises(ValueError, match="JSON, safetensors or HTML"):
        Artifact("model", "weights", "application/x-pickle", b"")
    with pytest.raises(ValueError, match="lower case"):
        Artifact.of_json("../up", "counts", {})
    with pytest.raises(ValueError, match="not JSON compliant"):
        Artifact.of_json("counts", "counts", float("nan"))
