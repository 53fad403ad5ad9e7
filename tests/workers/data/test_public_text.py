"""Allowed sources of public text: a list of callers, literals, and what keeps to public text."""

import ast
import copy
import pickle
from pathlib import Path

import pytest

from accountant.core.privacy.price import Terms
from workers import models
from workers.data import public_text
from workers.data.public_text import PublicText, constant, filled, joined, vouch
from workers.interface import Artifact, Released
from workers.sample import MODEL_DIR

WORKERS = Path(__file__).resolve().parents[3] / "workers"

#: Who may say that a text is public: what was registered as a corpus, and what Writers wrote, also
#: in an earlier attempt.
SOURCES = {
    "data/public_text.py",
    "data/corpora.py",
    "generation/local_writer.py",
    "generation/kept_texts.py",
    "generation/endpoint.py",
}


def calls(name: str) -> list[tuple[str, ast.Call]]:
    found = []
    for path in sorted(WORKERS.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and name in (
                getattr(node.func, "id", None),
                getattr(node.func, "attr", None),
            ):
                found.append((path.relative_to(WORKERS).as_posix(), node))
    return found


def test_only_public_sources_vouch():
    assert {where for where, _ in calls("vouch")} == SOURCES
    assert not [where for where, node in calls("__new__") if where not in {"data/public_text.py"}]


def test_constants_are_literals():
    found = calls("constant")
    assert found
    for where, node in found:
        assert isinstance(node.args[0], ast.Constant), where


def test_what_is_computed_of_public_text_is_a_plain_text_again():
    text = constant("One {slot}")
    for each in (
        text + "x",
        text[:3],
        text.strip(),
        text.format(slot="x"),
        f"{text}",
        "".join([text]),
    ):
        assert type(each) is str
    assert type(text.through(str.upper)) is PublicText
    assert copy.deepcopy(text) is text
    assert type(pickle.loads(pickle.dumps(text))) is str
    assert filled(text, {"slot": constant("two")}) == "One two"
    for wrong in (
        lambda: joined(text, "x"),
        lambda: filled(text, {"slot": "x"}),
        lambda: filled("{slot}", {}),
    ):
        with pytest.raises(TypeError):
            wrong()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("MeanOfTransportation", "mean of transportation"),
        ("office_holder", "office holder"),
        ("Beauty & Spas", "Beauty & Spas"),
        ("The OfficeHolder", "The OfficeHolder"),
        ("Company", "Company"),
        ("Sci/Tech", "Sci/Tech"),
        ("NASA", "NASA"),
        ("pH", "pH"),
    ],
)
def test_prompts_say_a_label_in_words(name, said):
    assert public_text.label(Terms(labels=(name,)), name) == said
    tokenizer = models.tokenizer(MODEL_DIR)
    prompts = [models.Prompt(tokenizer, "A {label}: {record}", each) for each in (name, said)]
    assert prompts[0].before == prompts[1].before


def test_a_label_must_be_declared_and_a_released_text_released():
    assert public_text.label(Terms(labels=("up",)), "up") == "up"
    with pytest.raises(ValueError, match="declared"):
        public_text.label(Terms(labels=("up",)), "a record's text")
    made = Artifact.of_json("shots", "fixed-shots", {"a": [{"text": "chosen"}]})
    released = Released(made.name, made.content)
    assert public_text.released(released, "chosen") == "chosen"
    with pytest.raises(ValueError, match="released"):
        public_text.released(released, "another")
    with pytest.raises((ValueError, AttributeError)):
        public_text.released(made, "chosen")


def test_texts_of_a_published_line_are_public():
    line = public_text.published('{"text": "one", "n": 3, "label": null}')
    assert type(line["text"]) is PublicText
    assert line["n"] == 3
    assert vouch("x") == "x"


def test_many_released_texts_are_checked_against_one_reading():
    made = Artifact.of_json("evolution", "evolution", {"a": [{"text": "one"}, {"text": "two"}]})
    released = Released(made.name, made.content)
    found = public_text.all_released(released, ["two", "one", "two"])
    assert found == ["two", "one", "two"]
    assert all(type(each) is PublicText for each in found)
    for artifact, texts in ((released, ["one", "another"]), (made, ["one"])):
        with pytest.raises((ValueError, AttributeError)):
            public_text.all_released(artifact, texts)
