"""Signed notes: a known one of the Go checksum database's library, and texts that are none."""

import pytest

from accountant.core.errors import VerificationFailed
from accountant.core.transparency.notes import (
    COSIGNATURE,
    Head,
    Key,
    cosign,
    key_of,
    note,
    read_head,
    read_key,
    sign,
    verified,
)

#: The example in the documentation of golang.org/x/mod/sumdb/note.
PETER = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
KNOWN = (
    "If you think cryptography is the answer to your problem,\n"
    "then you don't know what your problem is.\n"
    "\n"
    "— PeterNeumann "
    "x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n"
)
SEED, OTHER = bytes(range(32)), bytes(range(1, 33))
HEAD = Head("exchequer.example/log", 3, b"\x07" * 32)


def test_a_note_of_another_library_is_verified():
    key = read_key(PETER)
    assert str(key) == PETER
    text, signed = verified(KNOWN, [key])
    assert text.endswith("problem is.\n")
    assert signed == {key: None}
    with pytest.raises(VerificationFailed, match="the signature of PeterNeumann does not hold"):
        verified(KNOWN.replace("answer", "question"), [key])


def test_a_checkpoint_is_signed_and_cosigned():
    text = str(HEAD)
    given = note(
        text, [sign(text, HEAD.origin, SEED), cosign(text, "witness.example", OTHER, 1_700_000_000)]
    )
    log, witness = key_of(HEAD.origin, SEED), key_of("witness.example", OTHER, COSIGNATURE)
    assert verified(given, [log, witness]) == (text, {log: None, witness: 1_700_000_000})
    assert read_head(text) == HEAD
    assert read_head(text + "more\n") == HEAD
    with pytest.raises(VerificationFailed, match="none of the keys"):
        verified(given, [key_of(HEAD.origin, OTHER)])
    # a witness's key is no log's key: the types differ
    with pytest.raises(VerificationFailed, match="none of the keys"):
        verified(given, [Key("witness.example", 1, witness.public)])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a\n3\n",
        "a\n03\nBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=\n",
        "a\n-3\nBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=\n",
        "a\n3\nBwcH\n",
        "a\n3\nBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwd=\n",
        "\n3\nBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=\n",
        "a\n3\nBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=",
    ],
)
def test_what_is_no_checkpoint_is_refused(text):
    with pytest.raises(VerificationFailed):
        read_head(text)


@pytest.mark.parametrize(
    "change",
    [
        lambda given: given.replace("\n\n", "\n"),
        lambda given: given[:-1],
        lambda given: given + "- a b\n",
        lambda given: given.replace("— ", "— two "),
        lambda given: given.replace("\n\n", "\n\t\n\n"),
        lambda given: given + given.rpartition("\n\n")[2] * 64,
        lambda given: given + "— a AAAA\n",
    ],
)
def test_what_is_no_note_is_refused(change):
    with pytest.raises(VerificationFailed):
        verified(change(KNOWN), [read_key(PETER)])


@pytest.mark.parametrize(
    "text", ["", "a", "a+b+c", PETER[:-2], PETER.replace("c74f", "c74e"), "a b" + PETER]
)
def test_what_is_no_key_is_refused(text):
    with pytest.raises(ValueError, match="is no key"):
        read_key(text)
