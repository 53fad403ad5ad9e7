"""benchmarks.comparison: every row is a request that its mechanism prices within ε, and cells are
told apart, compared with zero-shot's, and run once.
"""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import workers
from accountant.core import mechanisms
from accountant.core.mechanisms.summary_oneshot import STATE_LENGTHS
from accountant.core.privacy.composition import epsilon_alone
from accountant.queries import measured
from benchmarks import comparison, comparison_page, summaries, utility_runs
from benchmarks.utility_data import Corpus
from tests.support import needs_shared
from workers.evaluation.transfer import Labelled

SAMPLE = Path(workers.__file__).parent / "sample" / "model"

CELLS = {
    "m|imdb|zero-shot|3|1|128-8-16": {"texts": 8, "loss": 4.0, "right label": 0.5},
    "m|imdb|paper|3|1|128-8-16": {"texts": 2, "loss": 9.0, "right label": 0.25, "epsilon": 3.0},
    "m|imdb|support + allocation|3|1|128-8-16": {
        "texts": 8,
        "loss": 4.5,
        "right label": 0.75,
        "epsilon": 1.2,
    },
    "m|imdb|epsvec|3|1|128-8-16": {"texts": 0, "why": "nobody swept it"},
}


def case() -> comparison.Case:
    pairs = [(f"text {number} of {label}", label) for number in range(64) for label in ("a", "b")]
    part = Labelled([text for text, _ in pairs], [label for _, label in pairs])
    made = comparison.Case("imdb", None, {}, comparison.SMALL)
    made.__dict__["corpus"] = Corpus("made up", ("a", "b"), part, part)
    return made


@pytest.mark.parametrize("name", [n for n in comparison.ROWS if n not in ("zero-shot", "epsvec")])
@pytest.mark.parametrize("epsilon", [1.0, 3.0])
def test_every_row_is_a_request_within_its_epsilon(name, epsilon):
    mechanism, build = comparison.ROWS[name]
    own = case()
    terms = utility_runs.terms_of(own.corpus)
    priced = mechanisms.get(mechanism)
    if (name, epsilon) == ("allocation", 1.0):
        with pytest.raises(ValueError, match="no rounds costs at most 1"):
            build(own, epsilon)
        return
    price = priced.price(priced.parse(build(own, epsilon), terms), terms)
    if name == "secpe":
        assert price.secret["bound"] <= 21 * comparison.PRIOR
    elif name != "median":
        assert 0 < epsilon_alone(price.dp, terms.delta)[0] <= epsilon + 1e-6


def test_the_paper_draws_from_all_tokens_and_support_from_few():
    drawn = {name: comparison.ROWS[name][1](case(), 3.0)["top_k"] for name in comparison.FIRST[1:]}
    assert drawn == {"paper": 0, "support + allocation": 100}


def test_cells_that_answer_the_first_question_come_first():
    every = list(comparison.cells(comparison.options_of(["model"])))
    first = every[: 3 * len(comparison.PROMPTS)]
    assert {(each.row, each.epsilon) for each in first} == {
        (name, 3.0) for name in comparison.FIRST
    }
    assert len({each.key for each in every}) == len(every)


def test_the_page_holds_losses_against_zero_shot_and_says_what_was_not_run():
    rows, audits = list(comparison.ROWS), json.loads(comparison.AUDITS.read_text("utf-8"))
    whole = {"m|imdb|zero-shot|3|1|2000-100-48": {"texts": 100, "loss": 4.0}}
    others = {*CELLS, "another"}, {*whole, "a", "b"}
    text = comparison_page.page(CELLS | whole, *others, rows, audits)
    assert "It has run 4 of the 5\ncells of `--small`, and 1 of the 3 of a whole run" in text
    assert "| IMDb, 128-8-16 | 2 | 8 | 3.00 | 1.20 | 5.00 | 0.50 | 0.25 | 0.75 |" in text
    assert "| | cells | texts | label | loss | ε |" in text, "no column that all rows lack"
    assert "128 records" in text
    assert "2000 records" not in text, "one row compares nothing"
    assert "IMDb epsvec, 128-8-16 (nobody swept it)" in text
    assert len([word for word in text.split() if word != "|"]) <= 900


def test_each_row_that_reads_records_has_its_audit_on_the_page():
    audits = json.loads(comparison.AUDITS.read_text("utf-8"))
    assert set(audits) == set(comparison_page.AUDITED)
    rows = {
        row.split(":")[0] for each in comparison_page.AUDITED.values() for row in each.split(", ")
    }
    assert set(comparison.ROWS) - {"zero-shot"} <= rows
    (line,) = [each for each in comparison_page.audits(audits) if each.startswith("| aug-pe |")]
    stated, found, halved = map(float, line.split(" | ")[1:4])
    assert found <= stated < halved


def test_a_point_is_the_mean_of_the_size_with_the_most_cells():
    larger = {name.replace("128-8-16", "256-8-24"): cell for name, cell in CELLS.items()}
    yelp = {name.replace("imdb", "yelp"): {**cell, "loss": 6.0} for name, cell in larger.items()}
    cells = comparison_page.parted(CELLS | larger | yelp)
    found = comparison_page.points(cells, ["paper", "epsvec"])
    assert found == [(3.0, 2.5, "paper")]


@needs_shared
def test_epsilon_buys_more_texts_where_few_tokens_can_be_drawn():
    paper, support = (comparison.bought(name) for name in ("paper", "support"))
    texts = {epsilon: number for epsilon, number, _ in support}
    assert all(0 < number < texts[epsilon] for epsilon, number, _ in paper)
    assert sorted(paper) == sorted(paper, key=lambda point: point[1]), "more for more"
    assert len(paper) < len(support), "no point where no text is whole"


@pytest.mark.slow
def test_all_plots_are_drawn(tmp_path):
    swept = {"m|imdb|clip 2|3|1|128-8-16": {"texts": 8, "loss": 5.0, "epsilon": 0.5}}
    cells = {name: {"epsilon": 0.0, "seconds": 9, **cell} for name, cell in CELLS.items()} | swept
    bought = {"paper": [(1.0, 40, ""), (3.0, 400, "")]}
    comparison_page.plots(cells, list(comparison.ROWS), ["clip 2"], bought, tmp_path)
    drawn = {f"comparison-{name}.png" for name, _ in comparison_page.PLOTS}
    assert {path.name for path in tmp_path.iterdir()} == drawn


def test_what_is_said_of_groups_is_what_the_planner_proposes():
    facts = {"sha256": next(iter(STATE_LENGTHS)), "hidden_size": 576, "context_tokens": 8192}
    kept = json.loads(summaries.FIGURES.read_text("utf-8"))
    assert kept["outlooks"] == summaries.outlooks(facts)
    text = summaries.section()
    assert all(each in text for each in kept["outlooks"].values())
    assert f"| one-shot | {kept['rows']['one-shot 3']['texts']} |" in text


def test_what_the_ask_page_cites_is_of_enough_texts_of_one_size_and_says_where():
    full = {
        "smollm2|imdb|support + allocation|3|1|2000-100-48": {
            **{"texts": 90, "finished": 0.5, "tokens": 40.0, "right label": 0.6, "loss": 4.5}
        },
        "smollm2|yelp|support + allocation|3|1|2000-100-48": {"texts": 0, "why": "none fits"},
        "smollm2|imdb|zero-shot|3|1|2000-100-48": {"texts": 90, "right label": 0.4, "loss": 4.0},
        "smollm2|imdb|support + allocation|10|1|2000-100-48": {"texts": 100, "finished": 1.0},
    }
    assert comparison_page.cited(CELLS) == {}, "8 texts say nothing"
    (found,) = comparison_page.cited(CELLS | full).values()
    assert found["texts"] == 45, "a cell that wrote nothing counts"
    assert (found["finished"], found["right label of zero-shot"]) == (0.5, 0.4)
    assert found["loss above zero-shot"] == 0.5
    told = measured.told(found)
    assert told.startswith(
        "Measured elsewhere, on IMDb and Yelp; your data may differ. At ε 3 SmolL"
    )
    assert "wrote 45 texts of 40 tokens on average: 50 % were finished, 60 % had" in told
    assert told.endswith("a token's loss was 0.5 nats above that without records.")


def test_what_is_cited_is_of_mechanisms_there_are_and_of_no_other_a_word_is_said():
    kept = json.loads(Path(measured.__file__).with_name("measured.json").read_text("utf-8"))
    assert kept == comparison_page.cited(json.loads(comparison.FIGURES.read_text("utf-8")))
    assert set(kept) <= set(comparison_page.CITED) <= set(mechanisms.runnable())
    assert all(measured.measured(mechanism) for mechanism in kept)
    assert measured.measured("noisy-count") == ""


@pytest.mark.slow
@needs_shared
def test_rows_run_on_the_bundled_model_and_a_known_cell_never_again(tmp_path, monkeypatch):
    monkeypatch.setattr(comparison, "FIGURES", tmp_path / "figures.json")
    # In this process, which has imported torch already.
    pool = lambda most, _: ThreadPoolExecutor(most)  # noqa: E731
    monkeypatch.setattr(comparison, "ProcessPoolExecutor", pool)
    asked = [str(SAMPLE), "--small", "--dataset", "yelp", "--threads", "1"]
    for row in ("median", "epsvec"):
        asked += ["--row", row]
    options = comparison.options_of(asked)
    known = {}
    comparison.run(options, known)
    kept = json.loads((tmp_path / "figures.json").read_text())
    assert kept == known
    rows = {name.split("|")[2]: cell for name, cell in known.items()}
    assert {name for name, cell in rows.items() if "why" in cell} == {"epsvec"}  # nobody swept it
    assert all(cell["texts"] for name, cell in rows.items() if name != "epsvec")
    monkeypatch.setattr(comparison, "cell", None)
    comparison.run(options, known)
