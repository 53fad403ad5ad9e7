"""examples/summary-*.json through the real relay, broker and workers: an adapter, means, free
decodings.
"""

import csv
import json
import re
import uuid
from collections import Counter
from pathlib import Path

import pytest
from sqlalchemy import text

from accountant.catalogue import corpora
from accountant.core.errors import InvalidRequest
from accountant.core.ledger import data_card
from accountant.core.ledger.allowances import Allowance
from accountant.core.ledger.export_formats import verify_lines
from accountant.queries import data_cards, entries, integrity
from accountant.transactions import allowances, artifacts, submission
from accountant.transactions.job_requests import JobRequest
from tests.support import other_people, yes
from tests.workers.conftest import ROOT, SAMPLE, folder_of, published, wait_for
from tests.workers.jobs.test_jobs import LABELS, Desk
from workers.jobs import artifacts as stored
from workers.sample import KINDS
from workers.sample import LABELS as EVERY_LABEL

pytestmark = pytest.mark.slow

CORPUS = f"reviews-{uuid.uuid4().hex[:6]}"
GROUPS = {"group_column": "business", "groups": list(KINDS)}


def registered(desk: Desk, name: str, uri: Path) -> None:
    spec = {"name": name, "uri": str(uri), "label_column": "label", "statement": "made up"}
    corpora.add(desk.engine, corpora.CorpusSpec.model_validate(spec), desk.steward)
    shown = lambda: corpora.show(desk.engine, name, desk.steward)["state"]  # noqa: E731
    wait_for(shown, lambda state: state == "ready")


@pytest.fixture(scope="module")
def desk(warm_engine, tmp_path_factory) -> Desk:
    made = Desk(warm_engine, tmp_path_factory.mktemp("data"))
    registered(made, CORPUS, SAMPLE / "public_sample.csv")
    return made


def grouped(desk: Desk, epsilon: str = "29") -> tuple[str, Path]:
    """(dataset with groups and an allowance, its file): some forty reviews of each kind of
    business.
    """
    uri = desk.reviews(40)
    name = desk.dataset(uri=str(uri), public_size=250, **GROUPS)
    allowances.allow(desk.engine, name, Allowance(epsilon, "0.000001", "test"), desk.steward)
    return name, uri


@pytest.fixture(scope="module")
def dataset(desk) -> tuple[str, Path]:
    return grouped(desk)


def ask(
    desk: Desk, dataset: str, example: str, model: str | None = None, **changes: object
) -> uuid.UUID:
    request = json.loads((ROOT / "examples" / f"{example}.json").read_text())
    assert (request["dataset"], request["model"]) == ("sample-reviews", "sample-model")
    named: dict[str, object] = {"corpus": CORPUS, "public_corpus": CORPUS}
    # Fewer texts than in the example: what is written is not the point here.
    named |= {"public_texts": 150, "decodings": 2, "components": 64}
    own = {name: value for name, value in named.items() if name in request["parameters"]}
    parameters = {**request["parameters"], **own, **changes}
    asked = JobRequest(
        dataset, request["mechanism"], model or desk.model, parameters, request["purpose"]
    )
    job_id = submission.submit(desk.engine, asked, desk.analyst)
    state = wait_for(lambda: desk.job(job_id)["state"], lambda state: state != "submitted")
    if state == "awaiting_approval":
        yes(desk.engine, job_id, desk.steward, "fine")
    return job_id


def texts_of(desk: Desk, job_id: uuid.UUID) -> list[dict]:
    path = published(desk.engine, job_id, desk.analyst)
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def succeeded(desk: Desk, job_id: uuid.UUID) -> dict:
    job = desk.ended(job_id, 300)
    assert job["state"] == "succeeded", job
    assert job["progress"]["done"] == job["progress"]["total"]
    return job


@pytest.fixture(scope="module")
def adapter(desk, dataset) -> uuid.UUID:
    """The adapter of the example, trained for a few steps: what it writes is not the point here."""
    job_id = ask(desk, dataset[0], "summary-adapter", steps=6, evaluate_every=2, seed=1)
    job = succeeded(desk, job_id)
    assert all(cost["main"] == "0" for entry in job["entries"] for cost in entry["costs"].values())
    measures = texts_of(desk, job_id)
    assert [each["step"] for each in measures] == [2, 4, 6]
    assert all(0 < each["held_out"] < 10 for each in measures)
    return job_id


@pytest.fixture(scope="module")
def means(desk, dataset, adapter) -> uuid.UUID:
    return ask(
        desk, dataset[0], "summary-oneshot", adapter=str(adapter), epsilon=4.0, public_size=45
    )


def test_a_oneshot_summary_pays_its_price_and_speaks_by_group(desk, dataset, adapter, means):
    job = succeeded(desk, means)
    reserved, committed = job["entries"]
    assert reserved["costs"] == committed["costs"]
    texts = texts_of(desk, means)
    assert {each["label"] for each in texts} == set(KINDS)
    assert len(texts) == 2 * len(KINDS)
    with desk.engine.connect() as connection:
        (row,) = artifacts.of_job(connection, means)
    tensors = stored.read(folder_of(row), {row.name: row.sha256})["means"].tensors()
    assert set(tensors) == {f"group {kind}" for kind in KINDS}
    lines = list(entries.export(desk.engine, dataset[0], desk.steward, "jsonl"))
    verify_lines(lines)
    assert integrity.check(desk.engine, dataset[0]) == []
    body = next(entry["body"] for entry in map(json.loads, lines) if entry.get("job") == str(means))
    assert body["source"]["sources"]["adapter"]["job"] == str(adapter)
    assert body["source"]["public"]["public_corpus"]["name"] == CORPUS


def test_the_data_card_names_adapter_and_public_sizes_and_no_real_one(
    desk, dataset, adapter, means
):
    succeeded(desk, means)
    card = data_cards.card(desk.engine, means, desk.analyst).document()
    told = data_card.markdown(card) + json.dumps(card)
    assert str(adapter) in data_card.markdown(card)
    assert ", ".join(KINDS) in data_card.markdown(card)
    with dataset[1].open(newline="") as file:
        sizes = Counter(row["business"] for row in csv.DictReader(file))
    assert not re.findall(rf"(?<![\w.-])({'|'.join(map(str, sizes.values()))})(?![\w.-])", told)
    public = data_cards.card(desk.engine, adapter, desk.analyst).document()
    assert "public things alone" in data_card.markdown(public)


def test_means_are_decoded_again_for_nothing_when_data_and_budget_are_gone(desk):
    name, uri = grouped(desk, "1")
    trained = ask(desk, name, "summary-adapter", steps=1, seed=1)
    succeeded(desk, trained)
    first = ask(desk, name, "summary-oneshot", adapter=str(trained), epsilon=0.8, public_size=45)
    succeeded(desk, first)
    assert (
        desk.ended(ask(desk, name, "summary-token", epsilon=0.8, public_size=45))["state"]
        == "refused"
    )
    uri.unlink()
    again = {"from_job": str(first), "adapter": str(trained), "decodings": 2, "seed": 4}
    job = succeeded(desk, ask(desk, name, "summary-oneshot-again", **again))
    assert [each["kind"] for each in job["entries"]] == ["RESERVE", "COMMIT"]
    assert all(cost["main"] == "0" for entry in job["entries"] for cost in entry["costs"].values())
    assert len(texts_of(desk, uuid.UUID(job["id"]))) == 2 * len(KINDS)
    with desk.engine.connect() as connection:
        query = text("SELECT reading_began_at FROM jobs WHERE id = :job")
        assert connection.execute(query, {"job": job["id"]}).scalar_one() is None
    verify_lines(entries.export(desk.engine, name, desk.steward, "jsonl"))


def test_a_token_summary_writes_one_text_a_group(desk, dataset):
    job_id = ask(desk, dataset[0], "summary-token", max_tokens=6, public_size=45)
    job = succeeded(desk, job_id)
    assert job["entries"][0]["costs"] == job["entries"][1]["costs"]
    assert [each["label"] for each in texts_of(desk, job_id)] == list(KINDS)


# --- adapters of others -------------------------------------------------------------------------


def test_another_dataset_uses_the_adapter_and_its_ledger_says_where_it_comes_from(
    desk, dataset, adapter
):
    name, _ = grouped(desk)
    job_id = ask(desk, name, "summary-oneshot", adapter=str(adapter), public_size=45)
    succeeded(desk, job_id)
    lines = list(entries.export(desk.engine, name, desk.steward, "jsonl"))
    verify_lines(lines)
    assert integrity.check(desk.engine, name) == []
    body = next(
        entry["body"] for entry in map(json.loads, lines) if entry.get("job") == str(job_id)
    )
    stated = body["source"]["sources"]["adapter"]
    assert (stated["dataset"], stated["mechanism"]) == (dataset[0], "summary-adapter")


def test_no_other_release_of_another_dataset_is_read(desk, means):
    """The means of one dataset are no artifact of another, whatever the field."""
    name, _ = grouped(desk)
    succeeded(desk, means)
    with pytest.raises(InvalidRequest, match=r"parameters\.from_job"):
        ask(desk, name, "summary-oneshot-again", from_job=str(means), adapter=str(means))
    with pytest.raises(InvalidRequest, match=r"parameters\.adapter"):
        ask(desk, name, "summary-oneshot", adapter=str(means), public_size=45)


def test_an_adapter_of_another_model_is_refused_by_field(desk, dataset, adapter):
    other = Desk(desk.engine, desk.folder).model  # the same files under another name
    with pytest.raises(InvalidRequest, match=r"parameters\.adapter.*another model"):
        ask(desk, dataset[0], "summary-oneshot", other, adapter=str(adapter), public_size=45)


def test_an_adapter_whose_corpus_holds_private_records_by_now_is_refused_before_reading(desk):
    """Registered as public, then its texts turn up in a dataset: what was learned from them is not
    public.
    """
    source = other_people(SAMPLE / "public_sample.csv", desk.folder / f"{uuid.uuid4().hex[:6]}.csv")
    name = f"leaky-{uuid.uuid4().hex[:6]}"
    registered(desk, name, source)
    first, _ = grouped(desk)
    trained = ask(desk, first, "summary-adapter", corpus=name, steps=1, seed=1)
    succeeded(desk, trained)
    allowed = {"adapter": str(trained), "public_corpus": name, "public_size": 200}
    lines = source.read_text().splitlines()
    private = desk.folder / f"{uuid.uuid4().hex[:6]}.csv"
    private.write_text("\n".join([lines[0], *lines[1:40]]) + "\n")
    second = desk.dataset(uri=str(private), public_size=30, labels=list(EVERY_LABEL))
    assert desk.facts(second)["state"] == "ready"
    for dataset in (first, second):
        allowances.allow(desk.engine, dataset, Allowance("30", "0.000001", "test"), desk.steward)
        with pytest.raises(InvalidRequest, match=rf"public_corpus: '{name}' is invalid") as refused:
            ask(desk, dataset, "summary-oneshot", **allowed)
        assert second not in str(refused.value)  # which dataset it is, is for stewards


# --- refused before anything is reserved ----------------------------------------------------------


def test_small_groups_and_long_texts_are_refused_by_field(desk, dataset, adapter):
    with pytest.raises(InvalidRequest, match=r"parameters\.public_size.*min_group"):
        ask(desk, dataset[0], "summary-token", public_size=19)
    with pytest.raises(InvalidRequest, match=r"parameters\.group_sizes"):
        ask(desk, dataset[0], "summary-token", group_sizes="hotel=8")
    with pytest.raises(InvalidRequest, match=r"parameters\.soft_tokens"):
        ask(
            desk, dataset[0], "summary-oneshot", adapter=str(adapter), public_size=45, soft_tokens=4
        )
    for example, changes in (("summary-token", {}), ("summary-oneshot", {"adapter": str(adapter)})):
        job_id = ask(desk, dataset[0], example, public_size=45, max_tokens=600, **changes)
        job = desk.ended(job_id)
        assert (job["state"], job["entries"]) == ("refused", [])
        assert job["refusal"]["why"].startswith("max_tokens")


def test_a_unit_in_two_groups_is_refused_when_it_is_declared(desk):
    path = desk.folder / f"{uuid.uuid4().hex[:6]}.csv"
    rows = [f"p{n % 4},{KINDS[n % 3]},{LABELS[0]},text {uuid.uuid4().hex}" for n in range(12)]
    path.write_text("reviewer,business,label,text\n" + "\n".join(rows) + "\n")
    name = desk.dataset(uri=str(path), unit_column="reviewer", **GROUPS)
    facts = desk.facts(name)
    assert facts["state"] == "invalid"
    assert "group_column" in facts["versions"][0]["error"]
