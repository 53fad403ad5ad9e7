"""Whole evaluations: what is asked for, what is missing, and the report that comes out."""

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

from accountant.core.errors import InvalidRequest
from accountant.core.mechanisms.evaluation import MECHANISM
from accountant.core.privacy.events import FREE
from accountant.core.privacy.price import Terms
from workers.evaluation.__main__ import main
from workers.evaluation.report import plot, to_html, to_json
from workers.evaluation.run import Embedding, Texts, evaluate

JOB = "0" * 36
SPORT = [f"The team of town {n} won its match by {n} goals" for n in range(30)]
WORLD = [f"A treaty on border {n} was signed after {n} votes" for n in range(30)]
LABELS = ["sport"] * 30 + ["world"] * 30
BOTH = Texts(SPORT + WORLD, LABELS)


def _vector(text: str) -> list[float]:
    return [float("match" in text), float("treaty" in text), len(text) / 50, text.count("1")]


EMBEDDING = Embedding(
    "by hand", lambda texts: np.array([_vector(text) for text in texts], dtype=np.float32)
)


def asked(**changes):
    raw = {"from_job": JOB, "corpus": "news", "embedding": "by hand", **changes}
    return MECHANISM.parse(raw, Terms())


def test_an_evaluation_is_free():
    assert MECHANISM.price(asked(), Terms()).dp == FREE


def test_every_default_metric_gives_a_figure_with_its_settings():
    figures = list(evaluate(asked(), BOTH, BOTH, EMBEDDING))
    assert [each.name for each in figures] == [
        "MAUVE",
        "Fréchet distance",
        "Length distance",
        "Distinct openings, ratio",
        "TSTR accuracy",
    ]
    assert all(each.settings for each in figures)
    assert figures[0].value == pytest.approx(1.0, abs=1e-3)
    assert figures[-1].value == 1.0


def test_most_texts_bounds_both_sides():
    figures = list(evaluate(asked(metrics="lengths", most_texts=5), BOTH, BOTH))
    assert figures[0].settings["texts"] == [5, 5]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"metrics": "mauve, bleu"}, "metrics"),
        ({"metrics": " , "}, "metrics"),
        ({"embedding": None}, "embedding"),
        ({"metrics": "judge"}, "judge"),
        ({"most_texts": 1}, "most_texts"),
        ({"from_job": "short"}, "from_job"),
    ],
)
def test_what_can_not_be_computed_is_refused_beforehand(changes, field):
    with pytest.raises(InvalidRequest) as caught:
        asked(**changes)
    assert caught.value.problems[0].field == field


@pytest.mark.parametrize(
    ("metric", "field"), [("tstr", "corpus"), ("next-token", "language_model"), ("judge", "judge")]
)
def test_what_the_texts_lack_is_named(metric, field):
    with pytest.raises(InvalidRequest) as caught:
        list(evaluate(asked(metrics=metric, language_model="a-model"), BOTH, Texts(WORLD)))
    assert caught.value.problems[0].field == field


def test_the_report_shows_values_settings_and_plots():
    figures = list(evaluate(asked(), BOTH, BOTH, EMBEDDING))
    page = to_html("A <report>", {"job": JOB}, figures)
    assert "<title>A &lt;report&gt;</title>" in page
    assert page.count("<svg") == sum(bool(each.series) for each in figures) == 3
    assert "scaling 5.0" in page
    document = json.loads(to_json({"job": JOB}, figures))
    assert [each["name"] for each in document["figures"]] == [each.name for each in figures]


def test_a_plot_is_the_same_bytes_for_the_same_figure():
    figure = next(iter(evaluate(asked(metrics="lengths"), BOTH, BOTH)))
    first = plot(figure)
    assert first == plot(figure)
    ET.fromstring(first)


@pytest.mark.slow
def test_the_command_writes_a_report(tmp_path, monkeypatch):
    rows = [
        json.dumps({"text": t, "label": label}) for t, label in zip(BOTH.texts, LABELS, strict=True)
    ]
    (tmp_path / "texts.jsonl").write_text("\n".join(rows))
    given = ["texts.jsonl", "texts.jsonl", "--metrics", "lengths,tstr"]
    given += ["--synthetic-label", "label", "--reference-label", "label"]
    command = [sys.executable, "-m", "workers.evaluation", *given, "-o", "report.html"]
    environment = {"PYTHONPATH": str(Path(__file__).resolve().parents[3]), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "TSTR accuracy" in (tmp_path / "report.html").read_text()
    monkeypatch.setattr(sys, "argv", ["evaluation", *given, "--metrics", "bleu"])
    with pytest.raises(SystemExit, match="metrics: 'bleu' is unknown"):
        main()
