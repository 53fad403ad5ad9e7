"""dp-kps: prompts of drawn phrases and example texts, a writer's answers, and later jobs."""

from dataclasses import dataclass

import pytest

from accountant.core.errors import DataError
from accountant.core.privacy.events import FREE
from accountant.core.privacy.price import Terms
from tests.workers.conformance.toys import Embedder
from tests.workers.mechanisms.test_dp_kps import LABELS, PRICE, RUNNER, WORDS, dataset, public, run
from workers.data.public_text import vouch
from workers.data.records import Records
from workers.generation.writer import Written
from workers.interface import Artifact, Progress, Public, Released, Text


class Echo:
    """A writer that keeps its prompts and answers with their number; every third answer is
    empty.
    """

    def __init__(self):
        self.prompts, self.manner = [], None

    def seeded(self, seed):
        return self

    def shortened(self, text, tokens):
        return text.through(lambda whole: " ".join(whole.split(" ")[:tokens]))

    def write(self, prompts, manner, each=1):
        for row, prompt in enumerate(prompts):
            self.prompts.append(prompt)
            self.manner = manner
            yield Written(vouch("" if row % 3 == 2 else f"text {row}"), True, row)


@dataclass
class Shots:
    rows: list

    def texts(self):
        return ((vouch(text), label) for label, text in self.rows)


def written(raw: dict, shots: list | None = None, data: Records | None = None):
    echo = Echo()
    things = public(endpoints={"writer": echo}, corpora={"examples": Shots(shots or [])})
    raw = {"output": "texts", "writer": "w", "seed": 3, "vocabulary_epsilon": 100.0} | raw
    results, _, progress = run(
        raw, data or dataset("soup lift cold price", "front desk soup, day"), things
    )
    return [each for each in results if isinstance(each, Text)], echo, progress


def test_prompts_have_the_drawn_phrases_and_the_label_only_where_it_is_asked_for():
    texts, echo, progress = written(
        {"prompt": "About: {phrases}.", "temperature": 0.7, "stop": "\n"}
    )
    assert [each.label for each in texts] == ["a", "a", "b", "b"]  # the empty ones are left out
    assert progress.done == progress.total == 6
    assert (echo.manner.temperature, echo.manner.stop) == (0.7, "\n")
    assert not any(each.chat for each in echo.prompts)
    _, asked, _ = written({"prompting": "chat"})
    assert all(each.chat for each in asked.prompts)
    # a text after a plain prompt ends with its line
    assert (asked.manner.stop, written({})[1].manner.stop) == ("", "\n")
    for prompt in echo.prompts:
        phrases = prompt.text.removeprefix("About: ").removesuffix(".").split(", ")
        assert len(phrases) == 3
        assert set(phrases) <= set(WORDS)
    drawn, _, _ = run({"seed": 3, "vocabulary_epsilon": 100.0}, dataset("soup lift cold price"))
    assert all(", " in each.text for each in drawn if isinstance(each, Text))
    _, echo, _ = written({"prompt": "{label}: {phrases}"})
    assert [prompt.text[0] for prompt in echo.prompts] == ["a"] * 3 + ["b"] * 3


def test_prefaces_refusals_and_the_request_itself_are_no_texts_and_their_share_is_told():
    said = [
        "Soup was cold.",
        "Here is a text:\n\nSoup",
        "I'm sorry, but I cannot write",
        "Write all about soup",
    ]

    class Chatty(Echo):
        def write(self, prompts, manner, each=1):
            yield from (Written(vouch(said[row]), True, row) for row in range(len(prompts)))

    raw = {"output": "texts", "writer": "w", "vocabulary_epsilon": 100.0, "sequences_per_label": 4}
    raw["prompt"] = "Write all about soup: {phrases}"
    things = public(endpoints={"writer": Chatty()}, corpora={"examples": Shots([])})
    made, _, progress = run(raw, dataset("soup lift cold price"), things)
    assert [each.text for each in made if isinstance(each, Text)] == said[:1] * 2
    assert progress.done == progress.total == 8
    (counts,) = (each for each in made if getattr(each, "name", "") == "texts-left-out")
    why = {"preface": 2, "refusal": 2, "repeats the request": 2}
    assert counts.json() == {"written": 8, "left_out": why}


def test_example_texts_stand_before_the_prompt_with_their_own_phrases_label_by_label():
    shots = [
        ("a", "Nothing of it."),
        ("a", "Cold SOUP again and again"),
        ("a", "Soup for a day"),
        ("elsewhere", "The lift"),
    ]
    data = dataset("soup lift cold price day", "front desk soup")
    raw = {
        "prompt": "{label}/{phrases}:",
        "examples": "e",
        "shots": 2,
        "max_tokens": 3,
        "vocabulary_size": 10,
    }
    _, echo, _ = written(raw, shots, data)
    for prompt in echo.prompts:
        first, second, asked = prompt.text.split("\n\n")
        assert first == "a/cold, soup:\nCold SOUP again"
        assert second == "/lift:\nThe lift"  # a label that is not the dataset's own stays out
        assert asked[:2] in ("a/", "b/")
    _, echo, _ = written(raw, shots[:1], data)
    assert all("\n" not in prompt.text for prompt in echo.prompts)


@pytest.mark.parametrize("raw", [{}, {"sketch": "fourier"}, {"method": "logarithmic"}])
def test_a_later_job_draws_from_the_artifacts_alone(raw):
    results, _, _ = run(
        {**raw, "seed": 8}, dataset("soup lift cold", "front desk, garden", "soup day price")
    )
    artifacts = {
        each.name: Released(each.name, each.content)
        for each in results
        if isinstance(each, Artifact)
    }
    again = {
        "from_job": "JOB",
        "output": "phrases",
        "sequence_length": 3,
        "sequences_per_label": 3,
        "seed": 8,
    }
    again |= {"embedding": "toy", "bandwidth": 0.25}
    terms = Terms(labels=LABELS)
    parameters = PRICE.parse(again, terms)
    assert PRICE.price(parameters, terms).dp == FREE
    things = Public(embedders={"embedding": Embedder()})
    made_again = list(RUNNER.reuse(parameters, terms, artifacts, None, Progress(6), things))
    assert made_again == [each for each in results if isinstance(each, Text)]
    if "method" in raw:
        longer = PRICE.parse(again | {"sequence_length": 4}, terms)
        with pytest.raises(DataError, match="sequence_length: 4"):
            list(RUNNER.reuse(longer, terms, artifacts, None, Progress(6), things))
    else:
        wider = PRICE.parse(again | {"bandwidth": 5.0, "sequence_length": 9}, terms)
        texts = list(RUNNER.reuse(wider, terms, artifacts, None, Progress(6), things))
        # each of the six terms once: no sequence has one twice
        assert all(len(set(each.text.split(", "))) == 6 for each in texts)
