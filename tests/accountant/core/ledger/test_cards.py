"""Data cards: the sentence is true of each kind of release, and no figure states less than was
paid.
"""

import re
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accountant.core.ledger.data_card import (
    Guarantee,
    _code,
    _section,
    figure,
    inherited,
    sentence,
    step,
)

PLAIN = {"delta": 2.9053e-06, "neighbours": "add-remove", "unit": "record", "records_per_unit": 1}


@given(st.floats(1e-9, 1e9))
def test_a_figure_never_states_less(value):
    shown = Decimal(figure(value))
    assert shown >= Decimal(repr(value))
    assert shown <= Decimal(repr(value)) * Decimal("1.001")


def test_an_epsilon_delta_release():
    told = sentence(Guarantee(epsilon=0.123421, **PLAIN))
    assert told == (
        "By itself the release is (0.1235, 2.9053e-06)-differentially private for adding or "
        "removing one "
        "record, given whatever was released before it."
    )


@pytest.mark.parametrize(
    ("neighbours", "unit", "most", "words"),
    [
        ("replace-one", "record", 1, "replacing one record"),
        (
            "add-remove",
            "patient_id",
            4,
            "adding or removing one patient_id (of which at most 4 records are read)",
        ),
        (
            "replace-one",
            "patient_id",
            1,
            "replacing one patient_id (of which at most one record are read)",
        ),
    ],
)
def test_the_step_names_relation_and_unit(neighbours, unit, most, words):
    assert step(neighbours, unit, most) == words.replace("one record are", "one record is")


def test_where_batches_were_secret_there_are_two_sentences():
    told = sentence(Guarantee(epsilon=0.5, to_key_holders=8.123421, **PLAIN))
    first, second = told.split(". That is for ")
    assert first.startswith("By itself the release is (0.5, 2.9053e-06)-differentially private")
    assert second == (
        "whoever does not hold the job's key, deleted as it ended; for whoever does, it is "
        "(8.124, 2.9053e-06)-differentially private."
    )


def test_an_ex_post_output_has_no_epsilon():
    told = sentence(Guarantee(epsilon=None, ex_post_cap="2.5", **PLAIN))
    assert told.startswith("The output has no (ε, δ) guarantee")
    assert "neither a bound nor a mean" in told
    assert "differentially private for" not in told
    both = sentence(Guarantee(epsilon=0.1, ex_post_cap="2.5", **PLAIN))
    assert "the noisy counts released with it are (0.1, 2.9053e-06)-differentially private" in both


def test_free_and_secret_releases_claim_nothing_else():
    assert sentence(Guarantee(epsilon=None, **PLAIN)).startswith("Reads nothing private")
    assert "no (ε, δ) statement" in sentence(Guarantee(epsilon=1.0, secret=True, **PLAIN))
    told = inherited({"job": "J", "artifacts": {}}, "By itself the release is X.")
    assert "artifacts of job J" in told
    assert told.endswith("By itself the release is X.")
    assert "published output of job J" in inherited({"job": "J", "output": "s"}, None)


@pytest.mark.parametrize(
    "text",
    [
        "`` **ε 0** ``",
        "a `` b ```` c",
        "`",
        "``\r\r# Guarantee\r\rSpends nothing.\r\r``",
        "one\ntwo\r\nthree\u2028four\x0bfive\x85six",
    ],
)
def test_a_text_stays_where_it_stands_on_a_card(text):
    """Parameters come from the asker: their text must not read as a line of the card."""
    (line,) = _section("Parameters", {"prompt": _code(text)})[2:-1]
    assert len(line.splitlines()) == 1
    shown = line.removeprefix("- **prompt**: ")
    fence = re.match("`+", shown)[0]
    inside = shown[len(fence) : -len(fence)]
    assert shown.endswith(fence)
    assert not inside.startswith("`")
    assert not inside.endswith("`")
    # nothing inside closes it (CommonMark 6.1)
    assert len(fence) not in map(len, re.findall("`+", inside))
