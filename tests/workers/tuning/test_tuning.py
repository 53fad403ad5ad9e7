"""Tuning: the curve is what a release's error really is, and it is found from public data by one command."""

import json
import subprocess
import sys

import numpy as np
import pytest

from accountant.core.privacy.price import Neighbours, Terms
from tests.workers.conftest import ROOT
from workers.embedding import mean_states
from workers.mechanisms import summary_oneshot
from workers.noise.meter import Meter
from workers.sample import PUBLIC_SAMPLE_CSV
from workers.tuning import summaries
from workers.tuning.__main__ import main


def made_up(seed: int = 1) -> summaries.Material:
    """States with a large common mean, and groups that differ in three directions of twelve."""
    random = np.random.default_rng(seed)
    middles = np.zeros((4, 12))
    middles[:, :3] = random.normal(size=(4, 3)) * 2
    states = 20 + middles[np.arange(400) % 4] + random.normal(size=(400, 12)) * 0.3
    # Halves are every other text, so neighbours share a group.
    order = np.argsort(np.arange(400) % 4, kind="stable")
    return summaries.Material(states[order], [(f"{n}", "abcd"[n % 4]) for n in order])


def test_the_error_is_that_of_means_as_they_are_released():
    given, setting = made_up(), summaries.Setting(1.0, 40)
    view = mean_states.public_view(given.halves[0], True, 4)
    groups = given.halves[1]
    (point,) = [
        each
        for each in summaries.curve(given, setting)
        if each.components == 4 and each.clip == max(p.clip for p in _of(given, setting, 4))
    ]
    means = np.stack([own.mean(axis=0) for own in groups])
    signal = np.mean(np.sum((means - means.mean(axis=0)) ** 2, axis=1))
    raw = {"epsilon": 1.0, "clip": point.clip, "public_size": len(groups[0])}
    errors = []
    for _ in range(300):
        terms = Terms(public_size=40)
        parameters = summaries.ONESHOT.parse(raw | {"public_size": 40}, terms)
        total = mean_states.clipped_sum(view, groups[0][:40], point.clip).reshape(1, -1)
        meter = Meter(summaries.ONESHOT.price(parameters, terms).dp)
        (released,) = summary_oneshot.release(parameters, terms, total, view, meter).values()
        errors.append(np.sum((released[0] - groups[0][:40].mean(axis=0)) ** 2) / signal)
    # The first group stands for all: they are alike but for their middles.
    assert np.mean(errors) == pytest.approx(point.error, rel=0.35)


def _of(given, setting, components):
    return [each for each in summaries.curve(given, setting) if each.components == components]


def test_a_centre_and_few_directions_win_where_states_share_a_mean():
    given, setting = made_up(), summaries.Setting(0.5, 40)
    points = list(summaries.curve(given, setting))
    best = summaries.best(points)
    assert best.centre
    assert best.components == 4  # three would do; it is the least that is tried
    assert best.error < 1 < min(each.error for each in points if not each.centre)
    assert best.clip < 10 < 60 < max(each.clip for each in points if not each.centre)
    # More budget or a larger group means less noise; replacing a record means more.
    for other, sign in (
        (summaries.Setting(5.0, 40), -1),
        (summaries.Setting(0.5, 400), -1),
        (summaries.Setting(0.5, 40, neighbours=Neighbours.REPLACE_ONE), 1),
    ):
        assert (other.sigma(1.0) - setting.sigma(1.0)) * sign > 0


@pytest.mark.slow
def test_one_command_finds_parameters_and_prints_the_curve():
    """`exchequer tune summary-oneshot`, on the bundled model and the bundled public reviews."""
    command = ["tune", "summary-oneshot", "--corpus", str(PUBLIC_SAMPLE_CSV), "--label-column", "business"]
    command += ["--texts", "60", "--record-tokens", "24", "--soft-tokens", "none", "--public-size", "300"]
    command += ["--template", "A review: {record}", "--epsilon", "4", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "web.cli", *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert set(found["parameters"]) == {"clip", "centre", "components", "max_tokens"}
    least = min(found["curve"], key=lambda point: point["error"])
    assert least["clip"] == found["parameters"]["clip"]
    assert found["sigma"] == least["sigma"]
    terms = Terms(public_size=300)
    around = found["parameters"]["centre"] or found["parameters"]["components"] is not None
    parameters = {**found["parameters"], "epsilon": 4.0, "public_corpus": "c" if around else None}
    assert summaries.ONESHOT.parse(parameters, terms).clip == least["clip"]


@pytest.mark.slow
def test_soft_tokens_are_chosen_by_held_out_loss(capsys):
    arguments = ["summary-oneshot", f"--corpus={PUBLIC_SAMPLE_CSV}", "--texts=120", "--record-tokens=24"]
    assert main([*arguments, "--soft-tokens=1,4", "--steps=6", "--label-column=business"]) == 0
    told = capsys.readouterr().out
    assert "| soft tokens m | held-out loss |" in told
    assert '"soft_tokens": ' in told


@pytest.mark.parametrize(
    ("option", "named"),
    [
        ("--soft-tokens=0", "soft-tokens"),
        ("--soft-tokens=few", "soft-tokens"),
        ("--epsilon=-1", "epsilon"),
        ("--public-size=0", "public_size"),
        ("--texts=1", "texts"),
        ("--model=/nowhere", "path"),
        ("--label-column=text", "corpus"),
    ],
)
def test_bad_input_names_the_field(capsys, option, named):
    arguments = ["summary-oneshot", f"--corpus={PUBLIC_SAMPLE_CSV}", "--texts=20", "--soft-tokens=none"]
    assert main([*arguments, option]) == 2
    assert named in capsys.readouterr().err
