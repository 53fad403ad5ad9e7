"""The Python client against the real web service on a real database; no worker runs."""

import json
import sys
import threading
from collections.abc import Callable, Iterator
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID
from xml.etree import ElementTree

import pytest
from flask import Flask
from sqlalchemy import Engine
from waitress import create_server

import web.client as exchequer
from accountant.core.privacy.units import up
from accountant.identities import credentials
from accountant.identities.actor import Actor
from accountant.transactions import submission
from tests.support import Bench
from web.client import Client, Refused

pytestmark = pytest.mark.slow

TEXTS = b'{"text": "a good place", "label": null, "complete": true}\n' * 3


@pytest.fixture(scope="module")
def address(app: Flask) -> Iterator[str]:
    server = create_server(app, host="127.0.0.1", port=0, threads=8)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.effective_port}"
    server.close()
    thread.join(timeout=10)


@pytest.fixture
def as_person(engine: Engine, address: str) -> Iterator[Callable[[Actor], Client]]:
    made: list[Client] = []

    def connect(person: Actor) -> Client:
        made.append(Client(address, credentials.add_token(engine, person.id, "test", None)))
        return made[-1]

    yield connect
    for each in made:
        each.close()


def ask(bench: Bench, client: Client, tokens: int = 10, **more: object) -> exchequer.Job:
    parameters = {"tokens_per_batch": tokens}
    more = {"purpose": "test"} | more
    return client.dataset(bench.dataset).submit(
        "private-prediction", parameters, model=bench.model, **more
    )


def test_the_catalogue_is_typed(open_bench: Bench, as_person: Callable[[Actor], Client]) -> None:
    client = as_person(open_bench.analyst)
    assert client.whoami().roles == ["analyst"]
    dataset = client.dataset(open_bench.dataset)
    assert dataset.name in [each.name for each in client.datasets()]
    assert dataset.facts.neighbours == "add-remove"
    assert dataset.facts.versions is None  # addresses of data are for stewards
    assert (
        as_person(open_bench.steward).dataset(open_bench.dataset).facts.versions[0].uri
        == "/nowhere.csv"
    )
    budget = dataset.budget()
    assert budget.epsilon == Decimal(10)
    assert budget.delta == Decimal("0.0000029053")
    assert [each.kind for each in budget.filters] == ["renyi", "gaussian", "renyi2", "basic"]
    assert all(each.left == each.limit - each.spent - each.reserved for each in budget.filters)
    assert open_bench.model in [each.name for each in client.models()]
    assert "noisy-count" in [each.id for each in client.mechanisms()]
    assert client.corpora() == []


def test_a_price_says_what_admission_would_say(
    open_bench: Bench, as_person: Callable[[Actor], Client]
) -> None:
    dataset = as_person(open_bench.analyst).dataset(open_bench.dataset)
    quote = dataset.price("private-prediction", {"tokens_per_batch": 10})
    assert quote.fits
    assert quote.decision == "Admitted"
    assert quote.epsilon is not None
    assert 0 < quote.epsilon < 10
    assert quote.jobs_of_this_shape is not None
    assert quote.jobs_of_this_shape > 1
    too_much = dataset.price("private-prediction", {"tokens_per_batch": 100_000})
    assert not too_much.fits
    assert too_much.refusal is not None
    fitted = dataset.fit("private-prediction", "tokens_per_batch")
    assert fitted.fitted == ("tokens_per_batch", too_much.refusal.largest)
    # The largest takes the account: its quote, by zCDP, is above the epsilon that is approved by
    # policy.
    assert not fitted.decision.startswith("Admitted")
    job = dataset.submit(fitted, model=open_bench.model, purpose="test")
    assert job.state == "awaiting_approval"


def test_a_proposal_can_be_submitted_as_it_is(
    open_bench: Bench, as_person: Callable[[Actor], Client]
) -> None:
    dataset = as_person(open_bench.analyst).dataset(open_bench.dataset)
    found = dataset.propose("texts")
    assert found.outlook.verdict == "good"
    assert found.mechanism is not None
    assert found.output is not None
    quote = dataset.price(found.mechanism, found.parameters)
    assert quote.fits
    assert quote.output == found.output
    assert quote.outlook == found.outlook
    job = dataset.submit(
        found.mechanism, found.parameters, model=found.model, purpose="what is proposed"
    )
    assert job.state in ("awaiting_approval", "queued")


def test_a_refused_job_names_cap_asked_left_and_what_fits(
    open_bench: Bench, as_person: Callable[[Actor], Client]
) -> None:
    client = as_person(open_bench.analyst)
    with pytest.raises(Refused) as caught:
        ask(open_bench, client, 600)
    refused = caught.value
    assert (refused.cap, refused.size_field) == ("basic", "tokens_per_batch")
    assert refused.asked is not None
    assert refused.left is not None
    assert float(refused.asked) > float(refused.left)
    for said in (refused.cap, refused.asked, refused.left, f"tokens_per_batch = {refused.largest}"):
        assert said in str(refused)
    assert isinstance(refused.largest, int)
    assert ask(open_bench, client, refused.largest).state != "refused"
    assert client.job(refused.job_id).state == "refused"  # it is on record
    assert "binding cap" in client.job(refused.job_id)._repr_html_()


def test_one_key_is_one_job(open_bench: Bench, as_person: Callable[[Actor], Client]) -> None:
    client = as_person(open_bench.analyst)
    first, again = (ask(open_bench, client, key="cell-4") for _ in range(2))
    assert first.id == again.id
    assert ask(open_bench, client).id != first.id
    with pytest.raises(exchequer.Conflict):
        ask(open_bench, client, 11, key="cell-4")


def test_jobs_are_read_page_after_page(
    open_bench: Bench, as_person: Callable[[Actor], Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    import web.client.transport

    made = [str(open_bench.submit(1)) for _ in range(7)]
    client = as_person(open_bench.analyst)
    monkeypatch.setattr(web.client.transport, "PAGE", 3)
    found = [each.id for each in client.jobs(dataset=open_bench.dataset, state="queued")]
    assert found == made[::-1]
    for wanted in ({"mechanism": "noisy-count"}, {"until": "2020-01-01"}, {"analyst": "nobody"}):
        assert list(client.jobs(dataset=open_bench.dataset, **wanted)) == []
    wanted = {"state": "queued", "since": "2020-01-01", "analyst": open_bench.analyst.name}
    assert len(list(client.jobs(dataset=open_bench.dataset, **wanted))) == len(made)
    assert open_bench.dataset in [
        each.name for each in client.datasets(q=open_bench.dataset, open=True)
    ]
    assert client.datasets(q="no such words") == []
    entries = [
        each.seq for each in as_person(open_bench.auditor).dataset(open_bench.dataset).ledger()
    ]
    assert entries == list(range(entries[0], 0, -1))
    assert len(entries) > 7


def test_a_wrong_name_suggests_those_that_are_close(
    open_bench: Bench, as_person: Callable[[Actor], Client]
) -> None:
    client = as_person(open_bench.analyst)
    slip = open_bench.dataset[:-1]
    with pytest.raises(exchequer.NotFound) as caught:
        client.dataset(slip)
    assert open_bench.dataset in caught.value.near
    assert f"Did you mean {open_bench.dataset!r}" in str(caught.value)
    asked = {
        "dataset": slip,
        "mechanism": "private-prediction",
        "model": open_bench.model,
        "purpose": "test",
    }
    with pytest.raises(exchequer.InvalidRequest) as wrong:
        client.api.submit(asked)
    assert open_bench.dataset in wrong.value.near
    with pytest.raises(exchequer.InvalidRequest) as wrong:
        client.dataset(open_bench.dataset).submit(
            "private-prediction", {}, model=open_bench.model[:-1], purpose="test"
        )
    assert open_bench.model in wrong.value.near
    with pytest.raises(exchequer.NotFound) as caught:
        client.dataset("nothing-like-it")
    assert caught.value.near == ()


def test_errors_have_types(
    bench: Bench, address: str, as_person: Callable[[Actor], Client], engine: Engine
) -> None:
    analyst = as_person(bench.analyst)
    with Client(address) as nobody, pytest.raises(exchequer.NotSignedIn):
        nobody.whoami()
    with pytest.raises(exchequer.Forbidden):
        list(analyst.dataset(bench.dataset).ledger())
    with pytest.raises(exchequer.InvalidRequest) as caught:
        analyst.dataset(bench.dataset).price("private-prediction", {"clip": -1})
    assert [each.field for each in caught.value.problems] == ["parameters.clip"]


def test_a_steward_decides_and_a_wait_ends(
    bench: Bench, engine: Engine, as_person: Callable[[Actor], Client]
) -> None:
    analyst, steward = as_person(bench.analyst), as_person(bench.steward)
    bench.warm()
    job = ask(bench, analyst)
    assert job.state == "awaiting_approval"
    with pytest.raises(exchequer.StillWaiting) as late:
        job.wait(timeout=0.3, progress=False)
    assert isinstance(late.value, TimeoutError)
    assert job.wait(progress=False, until="decided").state == "awaiting_approval"
    assert steward.job(job.id).approve("fits").state == "queued"
    assert job.refresh().state == "queued"
    assert job.cancel().state == "cancelled"
    with pytest.raises(exchequer.JobFailed) as ended:
        job.wait(progress=False)
    assert ended.value.state == "cancelled"
    other = ask(bench, analyst)
    steward.job(other.id).refuse("not this one")
    with pytest.raises(Refused, match="not this one"):
        other.wait(progress=False)


def test_results_are_those_that_the_ledger_names(
    open_bench: Bench,
    as_person: Callable[[Actor], Client],
    publish: Callable[[str, bytes], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = as_person(open_bench.analyst)
    job = ask(open_bench, client)
    with pytest.raises(exchequer.NotFound):
        job.results()
    publish(job.id, TEXTS)
    assert job.wait(progress=False).results() == [json.loads(line) for line in TEXTS.splitlines()]
    assert job.download(tmp_path / "texts.jsonl").read_bytes() == TEXTS
    frame = job.to_pandas()
    assert list(frame["text"]) == ["a good place"] * 3
    assert frame.attrs["exchequer"]["job"] == job.id
    assert frame.attrs["exchequer"]["sha256"] == job.facts.output_sha256
    altered = TEXTS.replace(b"good", b"fine")
    monkeypatch.setattr("web.api.outputs.open_output", lambda *_, **__: BytesIO(altered))
    with pytest.raises(exchequer.Altered):
        job.results()
    with pytest.raises(exchequer.Altered):
        job.download(tmp_path / "again.jsonl")
    assert not list(tmp_path.glob("*again*"))


def test_a_job_is_logged_to_mlflow_or_says_what_to_install(
    open_bench: Bench,
    as_person: Callable[[Actor], Client],
    publish: Callable[[str, bytes], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The calls that MLflow gets; with the real one they were tried by hand (mlflow-skinny
    3.17).
    """
    client = as_person(open_bench.analyst)
    job, evaluation = ask(open_bench, client), ask(open_bench, client)
    publish(job.id, TEXTS)
    figures = [
        {"name": "mauve (k=5)", "value": 0.5, "settings": {}},
        {"name": "lost", "value": None},
    ]
    publish(evaluation.id, b"".join(json.dumps(each).encode() + b"\n" for each in figures))
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(exchequer.NoMlflow, match="pip install"):
        job.wait(progress=False).to_mlflow()
    told: dict[str, list[Any]] = {}
    names = ("log_params", "set_tags", "log_metric", "log_text", "log_dict")
    fake = SimpleNamespace(
        **{each: lambda *a, _n=each: told.setdefault(_n, []).append(a) for each in names}
    )
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    job.to_mlflow(evaluation.wait(progress=False))
    assert dict(told["log_metric"])["mauve _k_5_"] == 0.5
    assert {name for name, _ in told["log_metric"]} == {"mauve _k_5_", "epsilon_alone", "delta"}
    assert told["set_tags"][0][0]["exchequer.output_sha256"] == job.facts.output_sha256
    assert [name for _, name in told["log_dict"]] == ["card.json", "evaluation.json"]
    ((texts, _),) = told["log_text"]
    assert [json.loads(each) for each in texts.splitlines()] == job.results()


def test_a_chart_says_what_is_spent_reserved_and_left(
    open_bench: Bench, as_person: Callable[[Actor], Client], tmp_path: Path
) -> None:
    dataset = as_person(open_bench.analyst).dataset(open_bench.dataset)
    open_bench.submit(200)
    chart = dataset.budget_chart()
    picture = ElementTree.fromstring(chart.save(tmp_path / "budget.svg").read_text())
    texts = [each.text or "" for each in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert any("ε 10 at δ 2.9053e-06" in each for each in texts)
    reserved = dataset.facts.account.filters[0].reserved
    assert any(f"reserved {up(reserved, 4):.4g}" in each for each in texts)
    widths = [
        int(each.get("width", 0)) for each in picture.iter("{http://www.w3.org/2000/svg}rect")
    ]
    assert round(500 * dataset.facts.account.filters[0].reserved_share) in widths
    assert chart._repr_html_() == f"<div>{chart._repr_svg_()}</div>"


def test_what_a_notebook_shows_is_escaped(
    engine: Engine, as_person: Callable[[Actor], Client]
) -> None:
    sly = Bench(engine, description="<script>alert(1)</script>")
    assert "no allowance yet" in as_person(sly.analyst).dataset(sly.dataset).budget_chart().svg
    sly.allow()
    dataset = as_person(sly.analyst).dataset(sly.dataset)
    shown = dataset._repr_html_()
    assert "&lt;script&gt;" in shown
    assert "<script>" not in shown
    job_id = submission.submit(engine, sly.request(), sly.analyst, None)
    assert str(UUID(str(job_id))) in as_person(sly.analyst).job(str(job_id))._repr_html_()


def test_a_steward_sets_allowance_and_policy(
    bench: Bench, as_person: Callable[[Actor], Client]
) -> None:
    dataset = as_person(bench.steward).dataset(bench.dataset)
    assert dataset.set_policy(auto_approve_epsilon="1")["auto_approve_epsilon"] == "1"
    assert dataset.set_policy(two_people=True)["auto_approve_epsilon"] == "1"
    policy, seen = dataset._api.tagged_policy(bench.dataset)
    assert policy["two_people"]
    as_person(bench.steward).dataset(bench.dataset).set_policy(auto_approve_epsilon="0.5")
    # what somebody else changed is not undone unseen
    with pytest.raises(exchequer.ApiProblem) as found:
        dataset._api.set_policy(bench.dataset, policy, seen=seen)
    assert (found.value.status, found.value.code) == (412, "changed")
    assert dataset.refresh().facts.policy.auto_approve_epsilon == "0.5"
    proposal = dataset.allow("12", "0.0000029053", "more")
    assert proposal is not None
    assert dataset.budget().epsilon == Decimal(10)


def test_a_token_is_never_shown(address: str) -> None:
    with Client(address, "exq_secret") as client:
        shown = repr(client) + client._repr_html_() + repr(client.api)
        shown += repr(exchequer.Profile(address, "ada", "exq_secret"))
    assert "exq_secret" not in shown
