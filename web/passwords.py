"""Passwords after NIST SP 800-63B (revision 4, section 3.1.1.2): long, not guessable, else as one
likes.

No rules about kinds of characters, no change after some time. A password is kept as an argon2id
hash of its NFC form. The rules hold for new passwords; one that was kept before goes on to work.
"""

import re
import secrets
import unicodedata
from collections.abc import Iterable
from functools import lru_cache

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from accountant.core.errors import invalid

#: A password is the only factor here: revision 4 asks for 15 characters then. Counted after
#: normalization.
MIN_PASSWORD = 15
MAX_PASSWORD = 1024
ALLOWED = (
    f"{MIN_PASSWORD} to {MAX_PASSWORD:,} characters of any kind, spaces too: a few words that have "
    "nothing to do with you or with this service, or what a password manager makes"
)

# --- what is easily guessed ---------------------------------------------------------------------

SERVICE_WORDS = (
    "exchequer",
    "privacy",
    "budget",
    "epsilon",
    "ledger",
    "steward",
    "analyst",
    "auditor",
)
#: The roots of the passwords that most people use; digits, rows of keys and repeats are found by
#: rule.
COMMON_WORDS = (
    "password",
    "passwort",
    "passwd",
    "pass",
    "secret",
    "letmein",
    "welcome",
    "login",
    "signin",
    "admin",
    "administrator",
    "root",
    "user",
    "guest",
    "test",
    "testing",
    "default",
    "changeme",
    "change",
    "temp",
    "temporary",
    "access",
    "master",
    "hello",
    "iloveyou",
    "love",
    "loveyou",
    "monkey",
    "dragon",
    "shadow",
    "sunshine",
    "princess",
    "football",
    "baseball",
    "soccer",
    "superman",
    "batman",
    "pokemon",
    "starwars",
    "michael",
    "jordan",
    "jennifer",
    "thomas",
    "charlie",
    "daniel",
    "jessica",
    "ashley",
    "michelle",
    "trustno",
    "whatever",
    "freedom",
    "flower",
    "cookie",
    "summer",
    "winter",
    "spring",
    "autumn",
    "january",
    "february",
    "march",
    "april",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
    "monday",
    "friday",
    "computer",
    "internet",
    "server",
    "database",
    "system",
    "company",
    "account",
    "private",
    "please",
    "enter",
    "abcabc",
    "qwert",
    "azerty",
    "qwertz",
    "asdf",
    "zxcv",
    "the",
    "my",
    "your",
    "is",
    "this",
    "new",
    "old",
    "one",
    "two",
    "three",
    "for",
    "me",
    "in",
    "it",
    "and",
)
_ROWS = (
    "abcdefghijklmnopqrstuvwxyz",
    "qwertyuiop",
    "qwertzuiop",
    "azertyuiop",
    "asdfghjkl",
    "zxcvbnm",
    "yxcvbnm",
    "01234567890123456789",
    "1q2w3e4r5t6y7u8i9o0p",
    "1qaz2wsx3edc4rfv5tgb6yhn7ujm8ik9ol0p",
)
_LEET = str.maketrans("013457@$!", "oleastasi")
_MOST_PIECES = 4
_LONGEST = 64  # of those that are put together from pieces


def easily_guessed(password: str, context: Iterable[str] = ()) -> bool:
    """Return True if the whole password is among the first that an attacker would try.

    The list that it is compared with is made by rule: up to four pieces in a row, where a piece is
    a word of the lists above, a word of `context`, up to four digits, a run along the alphabet or
    the keyboard, or one character repeated; marks between them count for nothing. A part alone is
    never a reason.
    """
    folded = unicodedata.normalize("NFKC", password).casefold()
    plain = "".join(filter(str.isalnum, folded))
    if len(set(folded)) < 5 or _repeats(folded):
        return True
    marks = re.findall(r"[\W_]+", folded)
    if not plain or len(plain) > _LONGEST or any(len(set(mark)) > 2 for mark in marks):
        return False
    words = {*COMMON_WORDS, *SERVICE_WORDS, *_words(context)}
    return _repeats(plain) or any(_splits(text, words) for text in {plain, plain.translate(_LEET)})


def _words(context: Iterable[str]) -> set[str]:
    """Return the names given, whole and in parts."""
    parts = {part for name in context for part in [name, *re.split(r"[^a-z0-9]+", name.casefold())]}
    return {
        plain for part in parts if len(plain := "".join(filter(str.isalnum, part.casefold()))) >= 3
    }


def _repeats(text: str) -> bool:
    """Return True if the text is a shorter one repeated."""
    period = (text + text).find(text, 1)
    return period < len(text) and period <= 8


def _splits(text: str, known: set[str]) -> bool:
    """Return True if a text is a few guessable pieces in a row, the fewest of each prefix."""
    fewest = [0] + [len(text) + 1] * len(text)
    for end in range(1, len(text) + 1):
        for begin in range(end):
            if fewest[begin] < _MOST_PIECES and _guessable(text[begin:end], known):
                fewest[end] = min(fewest[end], fewest[begin] + 1)
    return fewest[-1] <= _MOST_PIECES


def _guessable(piece: str, known: set[str]) -> bool:
    if piece in known or (piece.isdigit() and len(piece) <= 4) or len(set(piece)) == 1:
        return True
    return len(piece) >= 3 and any(piece in row or piece[::-1] in row for row in _ROWS)


# --- keeping ------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _hasher() -> PasswordHasher:
    return PasswordHasher()  # argon2id with the parameters of RFC 9106 for little memory


def normal(password: str) -> str:
    """Return the form that is hashed: the same letters typed on two keyboards are one password."""
    return unicodedata.normalize("NFC", password)


def hash_password(password: str, *context: str, field: str = "password") -> str:
    """Return the argon2id hash of a new password; `context`: names that it may not be made of.

    Raises InvalidRequest for `field` where it is too short, too long or easily guessed.
    """
    plain = normal(password)
    if not MIN_PASSWORD <= len(plain) <= MAX_PASSWORD:
        raise invalid(field, f"{len(plain)} characters", ALLOWED)
    try:
        hashed = _hasher().hash(plain)
    except UnicodeEncodeError:
        raise invalid(field, "holds characters that are no text", "any text") from None
    if easily_guessed(plain, context):
        raise invalid(field, "among the first that somebody would try", ALLOWED)
    return hashed


def verify_password(stored: str, password: str) -> bool:
    """Return True if `password` matches the hash `stored`; hashes once, whatever either is."""
    try:
        return _hasher().verify(stored, normal(password)[: MAX_PASSWORD + 1])
    except (VerificationError, InvalidHashError, UnicodeEncodeError):
        return False


def rehashed(stored: str, password: str) -> str | None:
    """Return another hash of a right password if the kept one is of an older kind."""
    return _hasher().hash(normal(password)) if _hasher().check_needs_rehash(stored) else None


@lru_cache(maxsize=1)
def nobodys_hash() -> str:
    """Return a hash to compare unknown names with, so that they cost the same work."""
    return _hasher().hash(secrets.token_hex(16))


def new_password() -> str:
    """96 random bits, to be typed once: 20 letters and digits in groups."""
    letters = "abcdefghijkmnpqrstuvwxyz23456789"  # 32, none that looks like another
    return "-".join("".join(secrets.choice(letters) for _ in range(5)) for _ in range(4))
