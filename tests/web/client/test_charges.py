"""Charges of other programs by the Python client and by the command, over a real service."""

import json
import runpy
import warnings
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import Engine

import web.client as exchequer
from accountant.identities.actor import Actor
from accountant.queries import integrity
from accountant.transactions import settlement
from tests.support import Bench, person
from tests.web.client.test_client import address, as_person  # noqa: F401  (fixtures)
from tests.web.test_commands_live import Run, run  # noqa: F401  (a fixture)
from web.client import Client, Refused

pytestmark = pytest.mark.slow

STATED = {"tool": "opacus 1.6", "unit": "record", "relation": "add-remove", "purpose": "a model"}
RUNNER = exchequer.Runner("trainer", bytes(range(32)), "git 0123456")
TRAINING = exchequer.dp_sgd(q=0.01, sigma=1.0, steps=300)
As = Callable[[Actor], Client]


@pytest.fixture
def notes(engine: Engine) -> Bench:
    caps = {"stated_charges_epsilon": "10", "signed_charges_epsilon": "10"}
    policy = {**caps, "auto_approve_epsilon": "5", "runners": [RUNNER.named]}
    made = Bench(engine, policy=policy)
    made.allow()
    return made


def shares(job: exchequer.Job) -> float:
    """The part of its reservation on the Rényi filter that a charge was charged."""
    reserve, commit = (entry.costs for entry in job.refresh().facts.entries)
    assert reserve is not None
    assert commit is not None
    return int(commit["renyi"]["main"]) / int(reserve["renyi"]["main"])


def test_a_run_that_stops_early_is_charged_what_its_runner_signs(
    notes: Bench,
    as_person: As,  # noqa: F811
) -> None:
    dataset = as_person(notes.analyst).dataset(notes.dataset)
    with dataset.charge(TRAINING, runner=RUNNER, **STATED) as training:
        assert training.alive(1)
        job = training.settle(history=[(1.0, 0.01, 200)], output="ab" * 32)
    assert job.state == "succeeded"
    assert job.document["vouched"] == "signed"
    assert shares(job) == pytest.approx(2 / 3, rel=1e-6)


def test_an_end_that_is_refused_charges_nothing_yet_and_can_be_mended(
    notes: Bench,
    as_person: As,  # noqa: F811
) -> None:
    dataset = as_person(notes.analyst).dataset(notes.dataset)
    with (
        pytest.raises(exchequer.InvalidRequest, match="not among the 300 reserved"),
        dataset.charge(TRAINING, runner=RUNNER, **STATED) as training,
    ):
        training.settle(history=[(1.0, 0.01, 400)])
    assert shares(training.settle(history=[(1.0, 0.01, 200)])) == pytest.approx(2 / 3, rel=1e-6)


@pytest.mark.parametrize("ends", ["quietly", "with an error"])
def test_without_an_end_all_is_charged(
    notes: Bench,
    as_person: As,  # noqa: F811
    ends: str,
) -> None:
    dataset = as_person(notes.analyst).dataset(notes.dataset)
    charge = dataset.charge((0.5, 0), **STATED)
    try:
        with charge:
            if ends != "quietly":
                raise KeyError
    except KeyError:
        pass
    assert charge.job is not None
    assert charge.job.document["vouched"] == "stated"
    assert charge.job.state == "succeeded"
    assert shares(charge.job) == 1


def test_whoever_is_asked_to_stop_hears_it(notes: Bench, as_person: As) -> None:  # noqa: F811
    dataset = as_person(notes.analyst).dataset(notes.dataset)
    with dataset.charge({"rho": 0.01}, lease_seconds=20, **STATED) as query:
        assert query.job is not None
        settlement.cancel(notes.engine, UUID(query.job.id), notes.analyst)
        query._asked -= 2
        assert query.alive(1) is False


def test_a_charge_that_does_not_fit_never_runs(notes: Bench, as_person: As) -> None:  # noqa: F811
    dataset = as_person(notes.analyst).dataset(notes.dataset)
    ran = False
    with pytest.raises(Refused), dataset.charge((11, 0), **STATED):
        ran = True
    assert not ran


def test_a_charge_waits_for_a_steward_and_says_so(
    notes: Bench,
    as_person: As,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    dataset = as_person(notes.analyst).dataset(notes.dataset)
    charge = dataset.charge((6, 0), timeout=0.01, **STATED)
    with pytest.raises(exchequer.StillWaiting):
        charge.begin()
    assert charge.job is not None
    assert f"exchequer approve {charge.job.id} --reason" in capsys.readouterr().err
    as_person(notes.steward).job(charge.job.id).approve("it fits")
    with charge:
        assert charge.job.state == "running"


def test_a_script_charges_what_it_runs(notes: Bench, run: Run, tmp_path: Path) -> None:  # noqa: F811
    file, key, who = str(tmp_path / "charge.json"), str(tmp_path / "key"), notes.analyst
    run(who, "charge", "key", "trainer", "-o", key)
    Path(key).write_text(f"trainer {RUNNER.seed.hex()}")
    begin = ["charge", "begin", file, notes.dataset, "--event", "[[1.0, 0.01, 300]]"]
    for name, value in STATED.items():
        begin += [f"--{name}", value]
    begin += ["--runner", key, "--image", RUNNER.image, "--json"]
    first = json.loads(run(who, *begin))
    assert json.loads(run(who, *begin))["id"] == first["id"]  # cut off, and begun again
    run(who, "charge", "alive", file, "--step", "150")
    run(who, "charge", "void", file)  # too late: somebody asked it to stop, no more
    run(who, "charge", "alive", file, code=1)
    end = ["--history", "[[1.0, 0.01, 150]]", "--runner", key, "--output", "ab" * 32, "--json"]
    assert json.loads(run(who, "charge", "settle", file, *end))["state"] == "succeeded"


def test_a_script_takes_back_what_waits_for_a_steward(
    notes: Bench,
    run: Run,  # noqa: F811
    tmp_path: Path,
) -> None:
    file, who = tmp_path / "charge.json", notes.analyst
    begin = ["charge", "begin", str(file), notes.dataset, "--event", '{"epsilon": 6}']
    for name, value in STATED.items():
        begin += [f"--{name}", value]
    run(who, *begin, "--timeout", "0.01", code=4)
    run(who, "charge", "void", str(file))
    file.write_text(json.dumps({"asked": {}, "key": "k", "lease": "l"}))
    run(who, "charge", "settle", str(file), code=2)


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("unit", "patient", "'patient', and the dataset's is 'record'"),
        ("relation", "replace-one", "replace-one, and the dataset's is add-remove"),
        ("records_per_unit", 3, "3, and the dataset's is 1"),
    ],
)
def test_client_and_command_are_refused_other_terms_than_the_datasets(
    notes: Bench,
    run: Run,  # noqa: F811
    as_person: As,  # noqa: F811
    tmp_path: Path,
    field: str,
    value: object,
    told: str,
) -> None:
    stated = {**STATED, "records_per_unit": 1, field: value}
    client = as_person(notes.analyst)
    with pytest.raises(exchequer.InvalidRequest, match=told):
        client.dataset(notes.dataset).charge(TRAINING, **stated).begin()
    options = [f"--{name.replace('_', '-')}={each}" for name, each in stated.items()]
    begin = ["charge", "begin", tmp_path / "charge.json", notes.dataset, "--event=[[1.0, 0.01, 3]]"]
    run(notes.analyst, *begin, *options, code=2)  # what is wrong goes to stderr


def test_a_release_that_has_happened_is_declared_by_two(
    notes: Bench,
    run: Run,  # noqa: F811
    as_person: As,  # noqa: F811
) -> None:
    large = as_person(notes.steward).dataset(notes.dataset).charge((99.0, 0.0), **STATED)
    asked = large.declare("a script ran twice")["decision"]
    assert (asked["kind"], asked["state"]) == ("overdraft", "open")
    stated = [f"--{name}={STATED[name]}" for name in ("tool", "unit", "relation")]
    event = '--event={"epsilon": 98.0}'
    told = run(notes.steward, "charge", "declare", notes.dataset, event, *stated, "--reason=again")
    assert "another steward runs: exchequer decision answer" in told
    second = as_person(person(notes.engine, "steward")).api
    made = second.answer(asked["id"], True, "I saw its log")
    assert second.job(made["made_job"])["state"] == "succeeded"
    assert second.dataset(notes.dataset)["overdrawn"]


def test_opacus_and_opendp_stand_in_one_ledger(notes: Bench, as_person: As) -> None:  # noqa: F811
    for name in ("opacus", "opendp"):
        pytest.importorskip(name, reason=f"{name} comes with the extra `neighbours`")
    example = runpy.run_path(str(Path(__file__).parents[3] / "examples" / "charges.py"))
    dataset = as_person(notes.analyst).dataset(notes.dataset)
    trained, counted = example["train"](dataset, RUNNER), example["count"](dataset)
    assert trained.document["parameters"]["tool"].startswith("opacus 1.")
    assert shares(trained) == pytest.approx(2 / 3, rel=1e-6)
    assert shares(counted) == 1
    notes.warm()
    notes.submit(1)  # a synthesis job beside them
    assert integrity.check(notes.engine, notes.dataset) == []


def test_data_that_never_comes_here_is_registered_by_client_and_command(
    engine: Engine,
    as_person: As,  # noqa: F811
    run: Run,  # noqa: F811
) -> None:
    who, policy = person(engine, "steward"), {"stated_charges_epsilon": "1", "solo": True}
    made = as_person(who).add_dataset(f"far-{who.name}", None, policy=policy)
    assert made.document["state"] == "ready"
    named = ("dataset", "add", f"near-{who.name}")
    run(who, *named, "--uri", "/a.csv", "--elsewhere", code=2)
    run(who, *named, code=2)
    added = json.loads(run(who, *named, "--elsewhere", "--unit-column", "patient", "--json"))
    assert (added["state"], added["unit"]) == ("ready", "patient")
    assert "it never comes here (ready)" in run(who, "dataset", "show", f"near-{who.name}")
    count = ("job", "price", "noisy-count", "--set", "epsilon=0.1")
    run(who, *count, "--dataset", f"near-{who.name}", code=2)


def test_what_a_request_closes_is_said_before_it_is_sent_and_where_it_waits(
    notes: Bench,
    run: Run,  # noqa: F811
    as_person: As,  # noqa: F811
    tmp_path: Path,
) -> None:
    closes = "It closes the filters Gaussian and Basic for good: later jobs count on"
    dataset, stated = as_person(notes.analyst).dataset(notes.dataset), {**STATED, "timeout": 0.01}
    with (
        pytest.warns(UserWarning, match=closes),
        pytest.raises(exchequer.StillWaiting),
        dataset.charge({"rho": 1.0}, **stated),
    ):
        pass
    quote = dataset.price("charge", dataset.charge({"rho": 1.0}, **STATED).parameters)
    assert (quote.dataset.closes or "").startswith(closes)
    options = [f"--{name.replace('_', '-')}={each}" for name, each in stated.items()]
    begin = ["charge", "begin", tmp_path / "charge.json", notes.dataset]
    run(notes.analyst, *begin, '--event={"rho": 1.01}', *options, code=4, told=closes)
    request = {"dataset": notes.dataset, "mechanism": "charge", "purpose": "x"}
    request["parameters"] = dataset.charge({"rho": 1.02}, **STATED).parameters
    (tmp_path / "job.json").write_text(json.dumps(request))
    run(notes.analyst, "job", "submit", tmp_path / "job.json", told=closes)
    found = as_person(notes.steward).api.decisions(state="open")
    waits = [each for each in found if each["dataset"] == notes.dataset]
    assert {each["effect"]["closes"][: len(closes)] for each in waits} == {closes}
    shown = run(notes.steward, "decision", "show", waits[0]["id"])
    assert closes in " ".join(shown.split())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with dataset.charge((0.1, 0.0), **STATED):
            pass
