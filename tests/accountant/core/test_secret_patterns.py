"""Patterns of secrets: bounded and of linear time, or refused by name; what is found."""

import re

import pytest

from accountant.catalogue.datasets import read_dataset
from accountant.core.errors import InvalidRequest
from accountant.core.secret_patterns import Secrets, check


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        (r"\d+", "upper bound"),
        (r"a*", "upper bound"),
        (r".*secret", "upper bound"),
        (r"\d{4,}", "upper bound"),
        (r"(?:x?y)+z", "upper bound"),
        (r"[^]*]*", "upper bound"),
        (r"[[:alpha:]]+", "upper bound"),
        (r"(a)\1", "linear"),
        (r"(?<=x)\d{4}", "linear"),
        (r"(?=\d)x", "linear"),
        (r"(", "linear"),
        (r"(?:x{1000}){1000}", "linear"),
        (r"(?:\pL{1,100}){1,9}", "too large"),
        (r"\pL{20}", "written out"),
        (r"x{0,3}", "nothing"),
        ("", "empty"),
        ("x" * 501, "too long"),
        (r"\Q*\E", "quotes"),
        (".", "any text"),
        (r"[a-z]{3}", "any text"),
        (r"\w", "any text"),
        (r"\b[A-Z][a-z]{2,9}\b", "capitals count as small"),
        (r"(?-i:[A-Z])\d{4}", "capitals"),
        (r"(?m)^PIN \d{4}", "lines"),
        (r"\P{Lu}{2}\d", "capitals"),
        (r"[[:^upper:]]\d", "capitals"),
        ("[sß]\\d", "in brackets"),
        ("[ｦ-ﾟ]\\d", "folding tears apart"),
        (r"(?:\d{4}|\b[a-z]{1,9}\b)", "any text"),
    ],
)
def test_unbounded_and_non_linear_patterns_are_refused_by_field(pattern, why):
    with pytest.raises(InvalidRequest, match=why) as caught:
        check([r"\d{4}", pattern], [])
    (problem,) = caught.value.problems
    assert problem.field == "secret_patterns"
    assert "bounded" in problem.allowed


@pytest.mark.parametrize(
    "pattern",
    [
        r"\d",
        "soup",
        r"[A-Z]{2}\d{6}",
        r"\b\d{4}\b",
        r"PIN \d{4,8}",
        r"[+*]\d{2}",
        r"\*{3}",
        r"[[:digit:]*+]{2}",
        r"a\+b",
        "x{,5}y",
    ],
)
def test_bounded_patterns_serve(pattern):
    check([pattern], [])


def test_numbers_and_terms_are_bounded_too():
    for patterns, terms, field in (
        ([r"\d{4}"] * 51, [], "secret_patterns"),
        ([], ["x"] * 10_001, "secret_terms"),
        ([], ["fine", " "], "secret_terms"),
        ([], ["x" * 201], "secret_terms"),
    ):
        with pytest.raises(InvalidRequest) as caught:
            check(patterns, terms)
        assert {each.field for each in caught.value.problems} == {field}


def test_a_declaration_is_refused_by_field_before_anything_is_read():
    raw = {"name": "notes", "uri": "/nowhere.csv"}
    for wrong, field in (
        ({"secret_patterns": [r"\d+"]}, "secret_patterns"),
        ({"secret_terms": [""]}, "secret_terms"),
        ({"group_column": "product"}, "groups"),
        ({"groups": ["a"]}, "groups"),
        ({"group_column": "product", "groups": ["a", "a"]}, "groups"),
    ):
        with pytest.raises(InvalidRequest) as caught:
            read_dataset(raw | wrong)
        assert [each.field for each in caught.value.problems] == [field]
    fine = {"group_column": "product", "groups": ["a", "b"], "secret_patterns": [r"\b\d{4}\b"]}
    assert read_dataset(raw | fine).groups == ("a", "b")


def test_secrets_are_found_as_whole_words():
    secrets = Secrets((r"\b\d{4}\b", r"key-[a-f]{2}"), ("Ann Lee", "C++", "Zoë"))
    for text in ("ANN LEE wrote", "wrote C++: it", "a 1234, b", "key-ab;", "so Zoë, so"):
        assert secrets.is_in(text)
    for text in ("annlee wrote C+", "12345", "key-xy", "Joanna."):
        assert not secrets.is_in(text)
        assert not Secrets().is_in(text)
    assert secrets.is_in("Joanna.", own="Joanna")
    assert Secrets(("é{2}",), ()).is_in("aéé")


@pytest.mark.timeout(120)  # an instant; Python's own would take longer than the world exists
def test_time_is_linear_where_pythons_own_is_not():
    nested = r"(?:a{1,9}){1,9}b"
    check([nested], [])
    assert not Secrets((nested,), ()).is_in("a" * 4000)
    assert re.compile(nested) is not None


def test_many_terms_are_matched_in_pieces():
    terms = tuple(f"name{number}" for number in range(2000))
    check([], terms)
    assert Secrets((), terms).is_in("x name1999 name20000")
    assert not Secrets((), terms).is_in("x name20000")
