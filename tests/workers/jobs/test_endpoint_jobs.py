# ruff: noqa: F811 (fixtures of other files)
"""Jobs that ask an endpoint: lineage in the ledger, failures, and none that reads records."""

import json
import uuid

import pytest
from sqlalchemy import text

from accountant.catalogue import corpora, models
from accountant.core.errors import Conflict, InvalidRequest, VerificationFailed
from accountant.core.ledger.allowances import Allowance, SecretDeclaration
from accountant.core.ledger.export_formats import verify_lines
from accountant.core.privacy.blowup import Without
from accountant.core.privacy.secrets import SecretKind, SecretTerms
from accountant.queries import entries
from accountant.transactions import allowances, submission
from accountant.transactions.job_requests import JobRequest
from tests.support import yes
from tests.workers.conftest import ENDPOINT_KEY, SAMPLE, wait_for
from tests.workers.generation.conftest import served  # noqa: F401
from tests.workers.jobs.test_jobs import Desk

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def desk(warm_engine, folder) -> Desk:
    """With workers that may reach this machine, and a key."""
    return Desk(warm_engine, folder)


@pytest.fixture(scope="module")
def endpoint(desk, served):
    """Register an endpoint that behaves in some way; its name, once a worker has looked at it."""

    def register(behaviour: str, name: str | None = None, **declared) -> str:
        name = name or f"{behaviour.split('/', maxsplit=1)[0]}-{uuid.uuid4().hex[:6]}"
        spec = models.EndpointSpec.model_validate(
            {"model": "sample", "version": "2026-11", "chat": False, **declared}
        )
        url = behaviour if "://" in behaviour else served.url(behaviour)
        models.add_model(
            desk.engine, name, url, "public text", desk.steward, "endpoint", endpoint=spec
        )
        wait_for(lambda: desk.model_state(name)["state"], lambda state: state != "checking")
        return name

    return register


def small(desk, folder, **changes) -> str:
    """A dataset of a few records that are nobody's else."""
    path = folder / f"{uuid.uuid4().hex}.csv"
    rows = (f'hotel positive,"The room was clean {uuid.uuid4().hex}"\n' for _ in range(12))
    path.write_text("label,text\n" + "".join(rows))
    return desk.dataset(uri=str(path), labels=["hotel positive"], **changes)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("reviews")


@pytest.fixture(scope="module")
def dataset(desk, folder) -> str:
    made = small(desk, folder)
    allowances.allow(desk.engine, made, Allowance("10", "0.000001", "test"), desk.steward)
    return made


@pytest.fixture(scope="module")
def source(desk, dataset) -> tuple[str, dict[str, str]]:
    """(dataset, what an evaluation of its job names besides a judge)."""
    job_id = desk.submit(dataset, tokens_per_batch=6, max_text_tokens=2, record_tokens=24)
    assert desk.ended(job_id)["state"] == "succeeded"
    corpus = f"corpus-{uuid.uuid4().hex[:6]}"
    spec = corpora.CorpusSpec(
        name=corpus, uri=str(SAMPLE / "public_sample.csv"), statement="made up"
    )
    corpora.add(desk.engine, spec, desk.steward)
    shown = lambda: corpora.show(desk.engine, corpus, desk.steward)["state"]  # noqa: E731
    wait_for(shown, lambda state: state == "ready")
    return dataset, {
        "from_job": str(job_id),
        "corpus": corpus,
        "metrics": "judge",
        "most_texts": 40,
    }


def judged(desk, source, judge: str):
    dataset, named = source
    request = JobRequest(dataset, "evaluation", None, {**named, "judge": judge}, "test")
    return submission.submit(desk.engine, request, desk.analyst)


@pytest.mark.release
def test_an_endpoint_judges_and_stands_in_the_ledger(desk, source, endpoint, served):
    name = endpoint("good", "good")
    job = desk.ended(judged(desk, source, name))
    assert job["state"] == "succeeded", job["failure"]
    dataset, _ = source
    lines = list(entries.export(desk.engine, dataset, desk.steward, "jsonl"))
    verify_lines(lines)
    exported = [json.loads(line) for line in lines if job["id"] in line]
    judge = next(each["body"] for each in exported if each["kind"] == "RESERVE")["source"][
        "public"
    ]["judge"]
    assert judge["sha256"] == desk.model_state(name)["facts"]["sha256"]
    assert {key: judge[key] for key in ("kind", "name", "model", "version")} == {
        "kind": "endpoint",
        "name": "good",
        "model": "sample",
        "version": "2026-11",
    }
    assert all(cost["main"] == "0" for each in job["entries"] for cost in each["costs"].values())
    assert served.asked("good")[-1]["headers"]["authorization"] == f"Bearer {ENDPOINT_KEY}"
    assert not any(ENDPOINT_KEY in line for line in lines)


@pytest.mark.release
def test_an_endpoint_that_comes_back_is_waited_for(desk, source, endpoint, served, tmp_path):
    away = tmp_path / "away"
    away.touch()
    name = endpoint(f"gate/{str(away).replace('/', '%2F')}")
    job_id = judged(desk, source, name)
    wait_for(lambda: len(served.asked("gate")), lambda asked: asked >= 2)
    away.unlink()
    assert desk.ended(job_id)["state"] == "succeeded"


@pytest.mark.release
@pytest.mark.parametrize(
    ("behaviour", "declared", "reason"),
    [
        ("refuses/401", {}, "answered 401"),
        ("refuses/400", {}, "answered 400"),
        ("good", {"requests": 1}, "spending limit"),
    ],
)
def test_a_job_fails_with_its_endpoints_reason_and_nothing_is_charged(
    desk,
    source,
    endpoint,
    behaviour,
    declared,
    reason,
):
    name = endpoint(behaviour, **declared)
    before = desk.facts(source[0])["account"]["filters"]
    job = desk.ended(judged(desk, source, name))
    assert (job["state"], [each["kind"] for each in job["entries"]]) == (
        "failed",
        ["RESERVE", "VOID"],
    )
    assert reason in job["failure"]
    assert name in job["failure"]
    assert desk.facts(source[0])["account"]["filters"] == before


@pytest.mark.release
def test_a_lost_worker_asks_again_under_the_same_reservation(
    desk,
    source,
    endpoint,
    served,
    warm_service,
    tmp_path,
):
    away = tmp_path / "away"
    away.touch()
    name = endpoint(f"gate/{str(away).replace('/', '%2F')}")
    before = len(served.asked("gate"))
    job_id = judged(desk, source, name)
    wait_for(lambda: len(served.asked("gate")) - before, lambda asked: asked >= 1)
    warm_service.kill("generate")
    away.unlink()
    warm_service.start("generate")
    job = desk.ended(job_id)
    assert (job["state"], job["attempt"]) == ("succeeded", 2)
    assert [each["kind"] for each in job["entries"]] == ["RESERVE", "COMMIT"]


# --- who may ask --------------------------------------------------------------------------------


def private(desk, dataset, **parameters):
    short = {
        "template": "{examples}Another ({label}):",
        "description": "text",
        "stop": None,
        "shots": 0,
    }
    values = short | {
        "epsilon": 1.0,
        "layers": "1-2",
        "samples_per_label": 5,
        "max_tokens": 16,
        "record_tokens": 16,
        **parameters,
    }
    request = JobRequest(dataset, "epsvec", desk.model, {**values, "rejection": "judge"}, "test")
    return submission.submit(desk.engine, request, desk.analyst)


def test_a_job_that_reads_records_may_name_no_endpoint(desk, dataset, endpoint):
    with pytest.raises(
        InvalidRequest, match=r"parameters\.judge: an endpoint is asked by jobs that read no"
    ):
        private(desk, dataset, judge=endpoint("good"))


def test_no_forged_row_gives_an_endpoint_to_a_job_that_reads_records(
    desk, endpoint, served, folder
):
    """The ledger takes no such request, so nothing is opened, nothing sent, nothing charged."""
    name = endpoint("good")
    dataset = small(desk, folder, policy={})
    allowances.allow(desk.engine, dataset, Allowance("10", "0.000001", "test"), desk.steward)
    job_id = private(desk, dataset, judge=desk.model, record_tokens=16, candidates=2, partners=2)
    seen = wait_for(lambda: desk.job(job_id), lambda job: job["state"] != "submitted")
    assert seen["state"] == "awaiting_approval", seen
    named = {"kind": "endpoint", "name": name, "sha256": desk.model_state(name)["facts"]["sha256"]}
    with desk.engine.begin() as connection:
        update = text("UPDATE jobs SET resources = CAST(:named AS jsonb) WHERE id = :id")
        connection.execute(update, {"named": json.dumps({"judge": named}), "id": job_id})
    before = len(served.asked("good"))
    with pytest.raises(VerificationFailed, match="its source of judge"):
        yes(desk.engine, job_id, desk.steward, "test")
    waiting = desk.job(job_id)
    assert (waiting["state"], waiting["entries"]) == ("awaiting_approval", [])
    assert len(served.asked("good")) == before


@pytest.mark.parametrize(
    "url", ["https://10.1.2.3/v1", "http://169.254.169.254/v1", "ftp://example.org"]
)
def test_an_address_inside_is_refused(desk, endpoint, url):
    name = endpoint(url, f"inside-{uuid.uuid4().hex[:6]}")
    found = desk.model_state(name)
    assert found["state"] == "invalid"
    assert found["error"].startswith("path: ")


def test_an_endpoint_is_no_model_of_a_job_and_a_declaration_is_checked(desk, dataset, endpoint):
    name = endpoint("good")
    request = JobRequest(dataset, "private-prediction", name, {"tokens_per_batch": 4}, "test")
    with pytest.raises(InvalidRequest, match="model"):
        submission.submit(desk.engine, request, desk.analyst)
    spec = models.EndpointSpec(model="m", version="1")
    for kind, declared, url in (
        ("endpoint", None, "https://example.org"),
        ("language", spec, "https://example.org"),
        ("endpoint", spec, "https://example.org/v1?key=secret"),
    ):
        with pytest.raises(InvalidRequest):
            models.add_model(
                desk.engine, "another", url, "text", desk.steward, kind, endpoint=declared
            )
    with pytest.raises(Conflict):
        models.add_model(
            desk.engine, name, "https://example.org", "t", desk.steward, "endpoint", endpoint=spec
        )


# --- many rounds --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def clusters(desk, source, folder) -> tuple[str, str]:
    """(dataset, a job of `secpe` that released its noisy clusters)."""
    stated = SecretTerms(1e-4, 0.05, 2, 0.5, Without.REMOVED)
    dataset = small(desk, folder, secret_terms=["zanzibar"], policy={"secret_jobs": True})
    declared = SecretDeclaration(stated, SecretKind.ONE)
    allowances.allow(
        desk.engine, dataset, Allowance(None, None, "test", secret=declared), desk.steward
    )
    few = {
        "clusters": 2,
        "samples": 2,
        "variations": 1,
        "iterations": 1,
        "max_tokens": 8,
        "public_texts": 40,
    }
    named = {**few, "public_corpus": source[1]["corpus"], "prompting": "plain", "record_tokens": 32}
    request = JobRequest(dataset, "secpe", desk.model, named, "test")
    job_id = submission.submit(desk.engine, request, desk.analyst)
    seen = wait_for(lambda: desk.job(job_id), lambda job: job["state"] != "submitted")
    if seen["state"] == "awaiting_approval":
        yes(desk.engine, job_id, desk.steward, "test")
    job = desk.ended(job_id)
    assert job["state"] == "succeeded", job
    return dataset, str(job_id)


def evolved(desk, clusters, writer: str):
    """Five rounds from released clusters: 4 first samples, then 2 variations a round."""
    few = {
        "samples": 2,
        "variations": 1,
        "iterations": 5,
        "max_tokens": 8,
        "prompting": "plain",
        "seed": 1,
    }
    named = {
        **few,
        "from_job": clusters[1],
        "writer": writer,
        "varying": "continue",
        "record_tokens": 32,
    }
    request = JobRequest(clusters[0], "secpe", desk.model, named, "test")
    return submission.submit(desk.engine, request, desk.analyst)


@pytest.mark.release
def test_an_endpoint_that_dies_in_the_third_round_is_waited_for_and_nothing_is_charged(
    desk, clusters, endpoint, served, tmp_path
):
    away = tmp_path / "away"
    name = endpoint(f"gate/{str(away).replace('/', '%2F')}")
    charged = desk.facts(clusters[0])["secret"]
    before = len(served.asked("gate"))
    job_id = evolved(desk, clusters, name)
    wait_for(lambda: len(served.asked("gate")) - before, lambda asked: asked >= 6)
    away.touch()  # in the third round, or soon after it
    died = len(served.asked("gate"))
    wait_for(lambda: len(served.asked("gate")) - died, lambda asked: asked >= 1)
    away.unlink()
    job = desk.ended(job_id)
    assert (job["state"], job["attempt"]) == ("succeeded", 1), job["failure"]
    assert [each["kind"] for each in job["entries"]] == ["RESERVE", "COMMIT"]
    assert job["progress"]["done"] == job["progress"]["total"] == 4 + 4 * 2
    assert desk.facts(clusters[0])["secret"] == charged


@pytest.mark.release
def test_an_endpoint_that_stays_away_fails_the_job_by_name_and_it_can_be_asked_again(
    desk, clusters, endpoint, served
):
    charged = desk.facts(clusters[0])["secret"]
    name = endpoint("good", requests=9)  # the tenth request, in the fourth round, is one too many
    job = desk.ended(evolved(desk, clusters, name))
    assert (job["state"], [each["kind"] for each in job["entries"]]) == (
        "failed",
        ["RESERVE", "VOID"],
    )
    assert name in job["failure"]
    assert "spending limit" in job["failure"]
    again = desk.ended(evolved(desk, clusters, endpoint("good")))
    assert again["state"] == "succeeded", again["failure"]
    assert desk.facts(clusters[0])["secret"] == charged


def test_a_paid_evolution_may_name_no_endpoint(desk, dataset, endpoint):
    raw = {"epsilon": 1.0, "samples": 2, "writer": endpoint("good"), "max_tokens": 8}
    request = JobRequest(dataset, "aug-pe", desk.model, raw, "test")
    with pytest.raises(
        InvalidRequest, match=r"parameters\.writer: an endpoint is asked by jobs that read no"
    ):
        submission.submit(desk.engine, request, desk.analyst)
