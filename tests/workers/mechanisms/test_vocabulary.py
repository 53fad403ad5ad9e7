"""Term lists: the counts, the bounds, and that records are cut as the list was."""

import random
from collections import Counter

import pytest

from accountant.core import mechanisms
from accountant.core.errors import DataError, InvalidRequest
from accountant.core.privacy.events import FREE
from accountant.core.privacy.price import Terms
from workers.data.corpora import Corpus
from workers.data.terms import TermList
from workers.data.words import words
from workers.interface import Artifact, Progress, Public
from workers.mechanisms import runner

PRICE = mechanisms.get("vocabulary")


def made(tmp_path, texts: list[str], **raw) -> tuple[TermList, Progress]:
    path = tmp_path / "corpus.csv"
    path.write_text("text\n" + "".join(f'"{text}"\n' for text in texts), "utf-8")
    parameters = PRICE.parse({"corpus": "c", "least_documents": 1, **raw}, Terms())
    assert PRICE.price(parameters, Terms()).dp == FREE
    progress = Progress(runner("vocabulary").total(parameters, Terms()))
    public = Public(corpora={"corpus": Corpus("c", str(path), "{text}")})
    *lines, artifact = runner("vocabulary").make(parameters, Terms(), None, progress, public)
    assert isinstance(artifact, Artifact)
    found = TermList.of(artifact)
    assert [(line.term, line.documents) for line in lines] == list(found.documents.items())
    return found, progress


def test_counts_are_those_of_a_plain_count(tmp_path):
    random.seed(5)
    texts = [" ".join(random.choices("abcdefg", k=random.randint(1, 12))) for _ in range(200)]
    plain: Counter[str] = Counter()
    for text in texts:
        own = text.split()
        plain.update({" ".join(own[i : i + n]) for n in (1, 2, 3) for i in range(len(own) - n + 1)})
    found, progress = made(tmp_path, texts, words=3, least_documents=7, function_words=True)
    assert found.documents == {term: count for term, count in plain.items() if count >= 7}
    assert list(found.documents.values()) == sorted(found.documents.values(), reverse=True)
    assert (found.texts, progress.done) == (200, progress.total)
    fewer, _ = made(tmp_path, texts, words=3, least_documents=7, function_words=True, most_terms=5)
    assert list(fewer.documents) == list(found.documents)[:5]


def test_common_words_are_left_out_and_end_no_term(tmp_path):
    texts = ["the end of the line", "the end of days", "the end of it", "an end"]
    kept = {"words": 3, "least_documents": 2, "function_words": True}
    found, _ = made(tmp_path, texts, most_documents=3, **kept)
    assert set(found.documents) == {"the", "of", "the end of"}


def test_function_words_are_left_out_and_end_no_term(tmp_path):
    texts = ["The end of the line.", "It’s an end of the line"]
    found, _ = made(tmp_path, texts, words=4)
    assert set(found.documents) == {"end", "line", "end of the line"}


def test_records_are_cut_and_cased_as_the_list_is():
    assert words("Don’t  RE-READ: the Ｌift (2x)!") == ["don’t", "re-read", "the", "lift", "2x"]
    listed = TermList({"front desk": 3, "desk": 5, "lift": 2, "front": 1}, 9)
    text = "The FRONT   desk; a desk. The lift, front-desk, front desk"
    assert list(listed.found(text)) == ["front desk", "desk", "lift", "front desk"]
    assert listed.distinct(text, 2) == ["front desk", "desk"]
    assert listed.distinct(text, 10) == ["front desk", "desk", "lift"]
    assert listed.distinct("", 3) == []
    assert TermList.of(Artifact.of_json("terms", "term-list", listed.to_json())) == listed


def test_what_is_no_term_list_is_named():
    for value in ({}, [], {"texts": 3, "terms": [["x"]]}, {"terms": {}}):
        with pytest.raises(DataError, match="term list"):
            TermList.of(Artifact.of_json("terms", "term-list", value))


def test_bounds_that_no_term_can_have_are_refused(tmp_path):
    with pytest.raises(InvalidRequest, match="most_documents"):
        PRICE.parse({"corpus": "c", "least_documents": 5, "most_documents": 4}, Terms())
    with pytest.raises(DataError, match="least_documents"):
        made(tmp_path, ["one text"], least_documents=9)
