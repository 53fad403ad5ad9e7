"""The text that is hashed, made of the text that is stored."""

import pytest

from accountant.core.errors import VerificationFailed
from accountant.core.ledger.canonical_json import value_text
from accountant.core.ledger.commitments import hidden, published_text, sealed

RESERVE = {
    "kind": "RESERVE",
    "actor": "ada",
    "body": {
        "approval": {"by": "sam", "reason": "agreed"},
        "parameters": {"template": "{record}", "clip": 0.000001, "stop": None},
    },
}
DOCUMENTS = (
    RESERVE,
    {"kind": "COMMIT", "actor": "worker", "body": {"ex_post": {"cap": "7"}}},
    {"kind": "POLICY", "actor": "sam", "body": {"policy": {"analysts": ["ada"], "signers": []}}},
    {"kind": "LOSS", "actor": "sam", "body": {"ex_post": {"cap": "7"}, "reason": "gone"}},
    {
        "kind": "REVERSAL",
        "actor": "sam",
        "body": {"cap": "7", "reserve": sealed(RESERVE, b"2" * 32), "reason": "wrong"},
    },
)


@pytest.mark.parametrize("plain", DOCUMENTS, ids=lambda document: document["kind"])
def test_the_published_text_is_that_of_the_published_document(plain):
    document = sealed(plain, b"1" * 32)
    published = value_text(hidden(document))
    assert published_text(document, value_text(document)) == published
    assert published_text(hidden(document), published) == published


def test_an_opening_that_stands_at_a_public_place_too_is_hidden_at_its_own():
    document = sealed(RESERVE, b"1" * 32)
    document["A"] = document["actor"]  # before it in the text
    published = published_text(document, value_text(document))
    assert published == value_text(hidden(document))
    assert value_text(document["actor"]) in published


def test_what_is_neither_opened_nor_committed_to_is_refused():
    document = {**sealed(RESERVE, b"1" * 32), "actor": "ada"}
    with pytest.raises(VerificationFailed, match="neither opened nor committed"):
        published_text(document, value_text(document))
