"""The audits find what they are there to find, and nothing where nothing is."""

import json
import sys
from types import SimpleNamespace

import pytest
import torch
from scipy import stats
from typer.testing import CliRunner

from accountant.core.errors import InvalidRequest
from accountant.core.privacy.price import Terms
from web.cli.commands import app
from workers.data.records import Records
from workers.interface import Text
from workers.mechanisms import invisible_ink, private_prediction
from workers.privacy_audits import leave_one_out, reconstruction, subjects
from workers.privacy_audits.__main__ import main


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return subjects.load_model(None, tmp_path_factory.mktemp("copier"))


@pytest.fixture
def sure(monkeypatch):
    """The audits' levels where a sound mechanism fails one of them in fewer than one of 10^7 runs.

    People who audit ask for less: a level of 0.001 is wrong once in a thousand, and so would a test
    be.
    """
    monkeypatch.setattr(reconstruction, "LEVEL", 1e-8)


def keys(count: int):
    return tuple(map(subjects.record_of, subjects.planted(2 * count)[0]))


# --- the statistics -----------------------------------------------------------------------------


def test_the_test_is_scipys_exact_one_and_holds_its_level():
    """Against Fisher's exact test of the same table; over the null's outcomes it rejects at most
    LEVEL.
    """
    for source, emitted in ((0, 0), (3, 9), (40, 60), (55, 60)):
        table = [[source, emitted - source], [300 - source, 300 - emitted + source]]
        assert reconstruction.two_sided(source, emitted, 300, 300) == pytest.approx(
            stats.fisher_exact(table).pvalue, rel=1e-6
        )
    law = stats.hypergeom(600, 300, 200)
    rejected = sum(
        law.pmf(x)
        for x in range(201)
        if reconstruction.two_sided(x, 200, 300, 300) < reconstruction.LEVEL
    )
    assert 0 < rejected <= reconstruction.LEVEL


def test_the_stated_effect_is_found_with_the_stated_probability():
    share = reconstruction.detectable(300, 5_000, 5_000)
    least = next(
        x
        for x in range(150, 301)
        if reconstruction.two_sided(x, 300, 5_000, 5_000) < reconstruction.LEVEL
    )
    assert stats.binom.sf(least - 1, 300, share) == pytest.approx(reconstruction.POWER, abs=0.04)
    assert reconstruction.detectable(5, 25_000, 25_000) is None


def test_only_whole_keys_count_and_repeated_ones_once():
    texts = [
        Text("12345."),
        Text(" 12345 is"),
        Text("123456"),
        Text("00007"),
        Text("no 54321"),
        Text("54321"),
    ]
    outcome = reconstruction.count(texts, [12345, 7], [54321, 1])
    assert (outcome.texts, outcome.numbers) == (6, 4)
    assert (outcome.source, outcome.held_out) == (3, 1)
    assert (outcome.source_keys, outcome.held_out_keys) == (2, 1)


# --- the model ----------------------------------------------------------------------------------


def test_the_model_gives_each_context_its_own_key(model):
    encode = model.tokenizer.encode
    for key in (0, 90317, 55555):
        ids = encode(
            f"{subjects.record_of(key).text}\n{subjects.SENTENCE}", add_special_tokens=False
        )
        for digit in f"{key:05d}":
            with torch.inference_mode():
                logits = model.network(torch.tensor([ids])).logits[0, -1]
            assert model.tokenizer.decode([int(logits.argmax())]) == digit
            first, second = logits.topk(2).values.tolist()
            assert first - second == pytest.approx(6, abs=0.05)
            ids.append(int(logits.argmax()))


# --- reconstruction -----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.usefixtures("sure")
def test_reconstruction_passes_what_protects_and_catches_what_does_not(tmp_path):
    arguments = ["reconstruction", "--keys=2000", "--texts=10", "--arm=mean", "--arm=median"]
    code = main([*arguments, "--arm=invisible-ink", f"--output={tmp_path}"])
    found = json.loads((tmp_path / "report.json").read_text())
    assert code == 0, found
    *arms, control = found["results"]
    assert [arm["arm"] for arm in arms] == ["mean", "median", "invisible-ink"]
    for arm in arms:
        assert arm["p"] >= found["level"] == 1e-8
        assert arm["numbers"] > arm["texts"] / 2
    assert control["p"] < 1e-6
    assert control["parameters"]["batch_size"] == 1
    assert control["epsilon"] > 1000
    page = (tmp_path / "report.md").read_text()
    assert "passed" in page
    assert all(arm["arm"] in page for arm in found["results"])


@pytest.mark.slow
@pytest.mark.usefixtures("sure")
def test_reconstruction_catches_a_runner_that_samples_from_one_record(model, monkeypatch):
    """The guard taken out: the mean of a batch replaced by the logits of its first record."""
    real = private_prediction.Mean.add
    monkeypatch.setattr(
        private_prediction.Mean,
        "add",
        lambda self, logits: real(self, logits[:1] * 1.0) or self.total.mul_(64),
    )
    found = reconstruction.audit(model, ["mean"], 5000, 10, {})
    assert not found["passed"]
    assert found["results"][0]["p"] < reconstruction.LEVEL
    assert found["results"][1]["passed"]


# --- leave one out ------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arm", "batch_size"), [("mean", 3), ("median", 3), ("invisible-ink", 3), ("median", 16)]
)
def test_what_a_batch_lost_is_below_what_is_stated(model, arm, batch_size):
    given = subjects.key_parameters(model) | {"tokens_per_batch": 20, "texts_per_batch": 4}
    found = leave_one_out.audit(model, [arm], keys(30), given, {"batch_size": batch_size})
    assert found["passed"], found
    (result,) = found["results"]
    assert sum(row["records"] for row in result["batches"]) == 30
    # A record has an effect, and the audit sees it; the median of many contexts shows none of one.
    seen = max(row["lower_bound"] for row in result["batches"])
    assert seen > 0 or (arm, batch_size) == ("median", 16)


def test_the_lower_bound_is_the_ratio_of_the_two_distributions(model, monkeypatch):
    """One record, one token: |ln P - ln P'| by hand from the scores that the runner drew from."""
    given = subjects.key_parameters(model) | {"tokens_per_batch": 1, "max_text_tokens": 1}
    terms = Terms(public_size=1)
    arm = subjects.subject("mean", model, given, {"batch_size": 2}, terms)
    data = Records((None,), keys(1), b"k" * 32)
    noted = arm.meter(leave_one_out.Noting)
    arm.run(data, noted)
    again = leave_one_out.likelihoods(arm, data, noted, set(data.records))
    loss = abs(noted.likely[None, 0] - again.likely[None, 0])
    # Alone of two: its own digit scores 9/2, other digits 3/2, the rest -3/2; without it all score
    # 0.
    size = model.vocabulary
    scores = torch.full((size,), -3.0)
    scores[[i for i in range(size) if model.tokenizer.decode([i]).isdigit()]] = 3.0
    own = model.tokenizer.encode(data.records[0].text[-6], add_special_tokens=False)[0]
    scores[own] = 9.0
    law = torch.log_softmax(scores / 2 / arm.parameters.temperature, 0)
    (token,) = noted.drawn[None, 0]
    assert loss == pytest.approx(
        abs(float(law[token]) + float(torch.log(torch.tensor(size)))), abs=0.01
    )


@pytest.mark.slow
@pytest.mark.parametrize("arm", ["mean", "median", "invisible-ink"])
def test_leave_one_out_finds_a_clip_that_is_not_applied(model, monkeypatch, arm):
    """The guard taken out: contributions 60 times as large as the price says."""
    if arm == "mean":
        real = private_prediction.Mean.add
        monkeypatch.setattr(
            private_prediction.Mean,
            "add",
            lambda self, logits: real(self, logits) or self.total.mul_(60),
        )
    elif arm == "median":
        costs = private_prediction.grid_costs
        monkeypatch.setattr(private_prediction, "grid_costs", lambda *a: costs(*a) / 60)
    else:
        steps = invisible_ink.difference_steps
        monkeypatch.setattr(invisible_ink, "difference_steps", lambda *a: steps(*a) * 60)
    given = subjects.key_parameters(model) | {"tokens_per_batch": 20, "texts_per_batch": 4}
    found = leave_one_out.audit(model, [arm], keys(12), given, {"batch_size": 3})
    assert not found["passed"]


# --- the commands -------------------------------------------------------------------------------


def test_bad_requests_name_the_field(tmp_path, capsys):
    for arguments, named in (
        (["reconstruction", "--keys=1"], "keys"),
        (["reconstruction", "--texts=0"], "texts"),
        (["reconstruction", "--set=clips=1"], "clips"),
        (["reconstruction", "--set=clip"], "set"),
        (["reconstruction", "--set=clip=-1"], "clip"),
        (["leave-one-out", "--model=/nowhere"], "path"),
    ):
        assert main([*arguments, f"--output={tmp_path}"]) == 2
        assert named in capsys.readouterr().err
    with pytest.raises(InvalidRequest):
        subjects.check_fields({"max_tokens": 1}, ["mean"])


def test_the_command_line_runs_an_audit_and_writes_its_report(tmp_path, monkeypatch):
    """In this process, which has imported torch already."""

    def run(command, **_):
        assert command[:3] == [sys.executable, "-m", "workers.privacy_audits"]
        return SimpleNamespace(returncode=main(command[3:]))

    monkeypatch.setattr("web.cli.evaluation.subprocess.run", run)
    command = ["audit", "leave-one-out", "--keys", "8", "--texts", "2", "--arm", "mean"]
    command += ["--set", "batch_size=4", "-o", str(tmp_path / "out")]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert "leave-one-out: passed" in done.output
    found = json.loads((tmp_path / "out" / "report.json").read_text())
    assert found["passed"]
    assert found["model"] == "copies its context, weights set by hand"


def test_the_command_line_ends_as_the_audit_did(monkeypatch, tmp_path):
    """A failed audit and bad input keep their exit codes; whatever else ends one is a failure."""
    monkeypatch.chdir(tmp_path)
    for code, wanted in ((0, 0), (1, 1), (2, 2), (-9, 1)):
        ended = SimpleNamespace(returncode=code)
        monkeypatch.setattr(
            "web.cli.evaluation.subprocess.run", lambda *_, ended=ended, **__: ended
        )
        told = CliRunner().invoke(app, ["audit", "reconstruction", "--keys", "1"])
        assert told.exit_code == wanted
