"""examples/private-prediction*.json through the real relay, broker and workers.

As they stand, but for the number of clusters, which is two for each label, and for the labels and
the size and length of batches, which are whole before a release.
"""

import json
import uuid

import pytest

from accountant.catalogue import corpora, models
from accountant.core.ledger.allowances import Allowance
from accountant.core.ledger.export_formats import verify_lines
from accountant.queries import entries, integrity, jobs
from accountant.transactions import allowances, artifacts, submission
from accountant.transactions.job_requests import JobRequest
from tests.support import yes
from tests.workers.conftest import ROOT, SAMPLE, folder_of, published, wait_for
from tests.workers.jobs.test_jobs import LABELS, Desk
from workers.jobs import artifacts as stored
from workers.sample import THEMES

pytestmark = pytest.mark.slow

#: What the examples call the bundled model's other use, and the bundled public reviews.
NAMES = {"public_corpus": "sample-public", "embedding": "sample-embedding"}
#: Of each batch, in place of 64 tokens and of 128 records, and of two labels alone.
TOKENS = 8
RECORDS = 32
#: Of each label in the data.
REVIEWS = 40
SOME = LABELS[:2]
EXAMPLES = ("private-prediction", "private-prediction-clusters", "private-prediction-median")


@pytest.fixture(scope="module")
def desk(warm_engine, tmp_path_factory) -> Desk:
    engine = warm_engine
    made = Desk(engine, tmp_path_factory.mktemp("data"))
    spec = {
        "name": NAMES["public_corpus"],
        "uri": str(SAMPLE / "public_sample.csv"),
        "label_column": "label",
        "statement": "made up by workers/sample/corpus.py",
    }
    corpora.add(engine, corpora.CorpusSpec.model_validate(spec), made.steward)
    models.add_model(
        engine,
        NAMES["embedding"],
        str(SAMPLE / "model"),
        "public sample text",
        made.steward,
        kind="embedding",
    )
    wait_for(lambda: made.model_state(NAMES["embedding"])["state"], lambda state: state == "ready")
    corpus = lambda: corpora.show(engine, NAMES["public_corpus"], made.steward)  # noqa: E731
    wait_for(lambda: corpus()["state"], lambda state: state == "ready")
    return made


@pytest.fixture(scope="module")
def dataset(desk) -> str:
    return allowed(desk, REVIEWS)


def allowed(desk: Desk, most: int | None) -> str:
    """A dataset with what the three examples need."""
    name = desk.dataset(most, public_size=1500)
    allowances.allow(
        desk.engine, name, Allowance("60", "0.000001", "test", ex_post="5"), desk.steward
    )
    return name


@pytest.fixture(scope="module")
def found(desk, dataset) -> dict[str, tuple[dict, list[dict]]]:
    """(job, its texts) of each example, with short batches."""
    return {example: ended(desk, dataset, example, tokens=TOKENS) for example in EXAMPLES}


def ended(
    desk: Desk, dataset: str, example: str, tokens: int | None = None
) -> tuple[dict, list[dict]]:
    """The job of an example, and its texts."""
    request = json.loads((ROOT / "examples" / f"{example}.json").read_text())
    assert (request["dataset"], request["model"]) == ("sample-reviews", "sample-model")
    assert (
        NAMES.items()
        >= {
            name: request["parameters"][name] for name in NAMES.keys() & request["parameters"]
        }.items()
    )
    parameters = request["parameters"]
    if "clusters" in parameters:  # which are those of all labels
        parameters["clusters"] = 2 * len(LABELS)
    elif tokens is not None:
        parameters["labels"] = list(SOME)
    if tokens is not None:
        parameters |= {"tokens_per_batch": tokens, "batch_size": RECORDS}
    asked = JobRequest(dataset, request["mechanism"], desk.model, parameters, request["purpose"])
    job_id = submission.submit(desk.engine, asked, desk.analyst)
    state = wait_for(lambda: desk.job(job_id)["state"], lambda state: state != "submitted")
    if state == "awaiting_approval":
        yes(desk.engine, job_id, desk.steward, "fine")
    job = desk.ended(job_id)
    assert job["state"] == "succeeded", job
    assert job["progress"]["done"] == job["progress"]["total"]
    path = published(desk.engine, job_id, desk.analyst)
    return job, [json.loads(line) for line in path.read_bytes().splitlines()]


@pytest.mark.release
def test_their_texts_tell_what_the_private_reviews_are_about(desk):
    """2 % of the public reviews have their label's theme, 95 % of the private ones, 40 to 90 % of
    the texts.

    The three together give about 55: over a twelfth would have it in 3 of 1,000 runs if they were
    like the public reviews, and at 40 % no more have it in fewer than one of 10^6.
    """
    dataset = allowed(desk, None)
    texts = [text for example in EXAMPLES for text in ended(desk, dataset, example)[1]]
    told = sum(THEMES[each["label"].split()[0]] in each["text"] for each in texts)
    assert told > len(texts) / 12


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_runs_and_pays(desk, dataset, found, example):
    job, texts = found[example]
    assert {each["label"] for each in texts} == set(LABELS if "clusters" in example else SOME)
    reserved, committed = job["entries"]
    with desk.engine.connect() as connection:
        released = artifacts.of_job(connection, uuid.UUID(job["id"]))
    figures = {each["job"]: each for each in jobs.ex_post(desk.engine, dataset, desk.steward)}
    if example.endswith("median"):
        assert all(cost["main"] == "0" for cost in committed["costs"].values())
        assert released == []
        figure = figures[job["id"]]
        assert 0 < float(figure["realized"]) < 20
        assert len(figure["curve"]["batches"]) == 2 * len(SOME)
        assert figure["curve"]["tokens"][-1] == TOKENS
    else:
        assert reserved["costs"] == committed["costs"]
        assert job["id"] not in figures
    if example.endswith("clusters"):
        (row,) = released
        tensors = stored.read(folder_of(row), {row.name: row.sha256})["clusters"].tensors()
        assert tensors["counts"].shape == (len(LABELS), 40)
        assert tensors["batches"].sum(axis=1).tolist() == [2] * len(LABELS)
    assert integrity.check(desk.engine, dataset) == []
    verify_lines(entries.export(desk.engine, dataset, desk.steward, "jsonl"))
