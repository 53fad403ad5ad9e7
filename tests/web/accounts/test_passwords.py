"""Rules for new passwords (NIST SP 800-63B), and hashes that go on to work."""

import unicodedata

import pytest
from argon2 import PasswordHasher
from hypothesis import given, settings
from hypothesis import strategies as st

from accountant.core.errors import InvalidRequest
from tests.web.browsers import PASSWORD
from web.passwords import (
    MAX_PASSWORD,
    MIN_PASSWORD,
    easily_guessed,
    hash_password,
    new_password,
    rehashed,
    verify_password,
)


@pytest.mark.parametrize(
    "password",
    [
        PASSWORD,
        "correct horse battery staple",
        "a raven in the cellar",
        "Zebra-Umbrella-Nine-Locks",
        "żółć gęślą jaźń 2",
        "日本語のとても長いパスワードです",
        "🐘🦒🦓🐅🐆🦛🦏🐪🐫🦘🦬🐃🐂🐄🐎",
        "8f!kQ2#zL0@pW7$x",
        "x" * 10 + "some other thing",
        "monkey dragon sunshine princess football shadow",  # six words, whichever they are
        pytest.param(new_password(), id="a generated one"),
    ],
)
def test_a_long_password_of_any_kind_will_do(password):
    assert verify_password(hash_password(password, "ada.lovelace"), password)


@pytest.mark.parametrize(
    "password",
    [
        "passwordpassword",
        "Password-Password",
        "P@ssw0rd-P@ssw0rd",
        "password12345678",
        "123456789012345",
        "qwertyuiopasdfgh",
        "1q2w3e4r5t6y7u8i",
        "aaaaaaaaaaaaaaaaaaaa",
        "abababababababab",
        "abcdefgh abcdefgh",
        "letmein-welcome-1",
        "this is my password",
        "Exchequer2026!!!!",
        "exchequer-exchequer",
        "ada.lovelace2026",
        "lovelace-lovelace",
        "ada lovelace password",
    ],
)
def test_what_is_tried_first_is_refused_and_the_answer_says_what_is_allowed(password):
    with pytest.raises(InvalidRequest) as refused:
        hash_password(password, "ada.lovelace")
    (problem,) = refused.value.problems
    assert problem.field == "password"
    assert "first that somebody would try" in problem.problem
    assert "15 to 1,024 characters of any kind" in problem.allowed


def test_only_the_whole_password_is_compared():
    assert not easily_guessed("my password is a heron's egg", ["ada"])
    assert not easily_guessed("exchequer pays the piper", ["ada"])


@pytest.mark.parametrize(
    ("length", "fits"), [(MIN_PASSWORD - 1, False), (MIN_PASSWORD, True), (64, True)]
)
def test_length_is_counted_in_characters(length, fits):
    password = ("ñandú llueve " * 9)[: length - 1] + "k"
    if fits:
        hash_password(unicodedata.normalize("NFD", password))
    else:
        with pytest.raises(InvalidRequest, match=f"{length} characters"):
            hash_password(unicodedata.normalize("NFD", password))


def test_too_long_is_refused_and_never_cut():
    long = "".join(chr(97 + (i * i) % 23) for i in range(MAX_PASSWORD))
    stored = hash_password(long)
    assert verify_password(stored, long)
    assert not verify_password(stored, long + "x")
    assert not verify_password(stored, long[:-1])
    with pytest.raises(InvalidRequest):
        hash_password(long + "x")


def test_two_keyboards_type_one_password():
    for typed in ("Crème brûlée for nine", ("ñandú llueve " * 99)[:MAX_PASSWORD]):
        stored = hash_password(unicodedata.normalize("NFD", typed))
        for form in ("NFC", "NFD"):
            assert verify_password(stored, unicodedata.normalize(form, typed))


def test_a_hash_is_argon2id_and_only_an_older_kind_is_replaced(served_hashes):
    stored = hash_password(PASSWORD)
    assert stored.startswith("$argon2id$v=19$m=65536,t=3,p=4$")
    assert rehashed(stored, PASSWORD) is None
    assert rehashed(PasswordHasher(time_cost=1).hash(PASSWORD), PASSWORD) is not None


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=80), st.lists(st.text(max_size=20), max_size=3))
def test_the_check_ends_for_any_text(password, context):
    easily_guessed(password, context)


@settings(max_examples=50, deadline=None)
@given(
    st.sampled_from(["password", "exchequer", "ada", "qwerty", "2026", "aaaa"]), st.integers(1, 4)
)
def test_up_to_four_known_pieces_are_guessed(word, times):
    assert easily_guessed("-".join([word] * times), ["ada"])
