"""Whole evaluations: what is asked for, what is missing, and the report that comes out."""

import json
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest

from accountant.core.errors import InvalidRequest
from accountant.core.mechanisms.evaluation import MECHANISM
from accountant.core.privacy.events import FREE
from accountant.core.privacy.price import Terms
from workers.evaluation.__main__ import main
from workers.evaluation.report import plot, to_html, to_json
from workers.evaluation.run import Embedding, Sides, Texts, Tools, evaluate

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


def evaluated(parameters, ours=BOTH, reference=BOTH, **tools):
    return list(evaluate(parameters, Sides.of(ours, reference), Tools(**tools)))


def asked(**changes):
    raw = {"from_job": JOB, "corpus": "news", "embedding": "by hand", **changes}
    return MECHANISM.parse(raw, Terms())


def test_an_evaluation_is_free():
    assert MECHANISM.price(asked(), Terms()).dp == FREE


def test_every_default_metric_gives_a_figure_or_says_why_not():
    figures = {each.name: each for each in evaluated(asked(), embedding=EMBEDDING)}
    assert list(figures) == [
        "Loss",
        "Usable texts",
        "Right labels",
        "Finished",
        "Duplicates",
        "Talk about the task",
        "Longest copied run",
        "MAUVE",
        "Length distance",
        "Distinct openings, ratio",
        "TSTR accuracy",
    ]
    why = {name: each.sentence for name, each in figures.items() if np.isnan(each.value)}
    assert why["MAUVE"] == "Not computed: MAUVE needs 100 texts a side, and there are 30."
    assert why["Loss"].startswith("Not computed: loss needs one: a registered language model")
    assert set(why) == {"Loss", "Usable texts", "Right labels", "Finished", "MAUVE"}
    assert figures["TSTR accuracy"].value == 1.0
    assert figures["TSTR accuracy"].interval[0] > 0.85


def test_every_figure_stands_beside_zero_shot_and_real_texts_with_intervals():
    sides = replace(
        Sides.of(BOTH, BOTH), zero_shot=Texts(["goal", "vote today"] * 10, ["sport", "world"] * 10)
    )
    for figure in evaluate(asked(metrics="duplicates, copying, lengths, tstr"), sides, Tools()):
        for value in (figure, figure.beside["zero-shot"], figure.beside["real texts"]):
            low, high = value.interval
            assert low <= value.value <= high
    assert figure.least_texts == 20


def test_one_label_costs_its_metric_and_no_other():
    one = Texts(WORLD, ["world"] * 30)
    figures = evaluated(asked(metrics="tstr, lengths, duplicates"), one)
    assert figures[0].sentence == "Not computed: the training texts have fewer than two labels."
    assert [np.isnan(each.value) for each in figures] == [True, False, False]


def test_most_texts_bounds_both_sides():
    figures = evaluated(asked(metrics="lengths", most_texts=25))
    assert figures[0].settings["texts"] == [25, 25]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"metrics": "mauve, bleu"}, "metrics"),
        ({"metrics": " , "}, "metrics"),
        ({"zero_shot": "{record}"}, "zero_shot"),
        ({"most_texts": 1}, "most_texts"),
        ({"from_job": "short"}, "from_job"),
    ],
)
def test_what_can_not_be_computed_is_refused_beforehand(changes, field):
    with pytest.raises(InvalidRequest) as caught:
        asked(**changes)
    assert caught.value.problems[0].field == field


@pytest.mark.parametrize(
    ("metric", "lacks"),
    [("tstr", "labelled texts"), ("next-token", "language model"), ("judge", "endpoint")],
)
def test_what_the_texts_lack_is_named(metric, lacks):
    (figure,) = evaluated(asked(metrics=metric), BOTH, Texts(WORLD + SPORT))
    assert lacks in figure.sentence


def test_the_report_shows_values_settings_and_plots():
    figures = evaluated(asked(), embedding=EMBEDDING)
    page = to_html("A <report>", {"job": JOB}, figures)
    assert "<title>A &lt;report&gt;</title>" in page
    assert page.count("<svg") == sum(bool(each.series) for each in figures) == 2
    assert "case folded" in page
    assert "MAUVE needs 100 texts" in page
    document = json.loads(to_json({"job": JOB}, figures))
    assert [each["name"] for each in document["figures"]] == [each.name for each in figures]


def test_a_plot_is_the_same_bytes_for_the_same_figure():
    (figure,) = evaluated(asked(metrics="lengths"))
    first = plot(figure)
    assert first == plot(figure)
    ET.fromstring(first)


def test_the_command_writes_a_report(tmp_path, monkeypatch):
    rows = [
        json.dumps({"text": t, "label": label}) for t, label in zip(BOTH.texts, LABELS, strict=True)
    ]
    (tmp_path / "texts.jsonl").write_text("\n".join(rows))
    given = ["texts.jsonl", "texts.jsonl", "--metrics", "lengths,tstr"]
    given += ["--synthetic-label", "label", "--reference-label", "label"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["evaluation", *given, "-o", "report.html"])
    main()
    assert "TSTR accuracy" in (tmp_path / "report.html").read_text()
    monkeypatch.setattr(sys, "argv", ["evaluation", *given, "--metrics", "bleu"])
    with pytest.raises(SystemExit, match="metrics: 'bleu' is unknown"):
        main()
