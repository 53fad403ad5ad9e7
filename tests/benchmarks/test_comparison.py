"""benchmarks.comparison: every row is a request that its mechanism prices within ε, and cells are
told apart, compared with zero-shot's, and run once.
"""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import workers
from accountant.core import mechanisms
from accountant.core.privacy.composition import epsilon_alone
from accountant.queries import measured
from benchmarks import comparison, comparison_page, utility_runs
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
    rows = list(comparison.ROWS)
    whole = {"m|imdb|zero-shot|3|1|2000-100-48": {"texts": 100, "loss": 4.0}}
    text = comparison_page.page(CELLS | whole, {*CELLS, "another"}, {*whole, "a", "b"}, rows)
    assert "It has run 4\nof the 5 cells of `--small`, and 1 of the 3 of a whole run" in text
    assert "| imdb, 128-8-16 | 2 | 8 | 3.00 | 1.20 | 5.00 | 0.50 | 0.25 | 0.75 |" in text
    assert "imdb epsvec: nobody swept it" in text
    assert len(text.split()) <= 900


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
