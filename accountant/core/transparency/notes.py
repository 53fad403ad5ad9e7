"""Signed notes (C2SP signed-note), a log's checkpoints (tlog-checkpoint) and cosignatures
(tlog-cosignature).

    origin
    size
    base64 of the root

    — name base64(key id, signature)

The text ends before the last empty line, each signature is a line. A cosignature is that of a
witness: it signs the text with a time, and says that it saw no other tree of this log
(witnesses.py).
"""

import base64
import binascii
import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from accountant.core.errors import VerificationFailed

#: Types of signatures: Ed25519 over the text; a witness's Ed25519 over the text and a time.
PLAIN, COSIGNATURE = 1, 4
_MOST_SIGNATURES = 64
_SIZE = re.compile(r"0|[1-9][0-9]{0,18}")
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f]")


@dataclass(frozen=True)
class Key:
    """A public key by name, for one type of signature."""

    name: str
    kind: int
    public: bytes

    def __post_init__(self) -> None:
        if not self.name or "+" in self.name or any(letter.isspace() for letter in self.name):
            raise ValueError(f"{self.name!r:.60} is no name of a key: no spaces, no plus")

    @property
    def id(self) -> bytes:
        """The first 4 bytes of the hash of name, type and key."""
        named = self.name.encode() + b"\n" + bytes([self.kind]) + self.public
        return hashlib.sha256(named).digest()[:4]

    def __str__(self) -> str:
        """Return the key as people hand it out: name, id and key (a C2SP verifier key)."""
        return f"{self.name}+{self.id.hex()}+{_base64(bytes([self.kind]) + self.public)}"


def read_key(text: str) -> Key:
    """Return the inverse of `str(key)`. Raises ValueError."""
    parts = text.strip().split("+", 2)
    try:
        material = _bytes(parts[2])
        key = Key(parts[0], material[0], material[1:])
        if len(key.public) == 32 and key.kind in (PLAIN, COSIGNATURE) and key.id.hex() == parts[1]:
            return key
    except (IndexError, ValueError):
        pass
    raise ValueError(f"{text!r:.80} is no key: NAME+ID+KEY")


def key_of(name: str, seed: bytes, kind: int = PLAIN) -> Key:
    """Return the public key of a secret one (32 bytes)."""
    return Key(
        name, kind, Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()
    )


# --- checkpoints --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Head:
    """The head of a log's tree: whose, how many leaves, and its root."""

    origin: str
    size: int
    root: bytes

    def __str__(self) -> str:
        """Return the text that is signed."""
        return f"{self.origin}\n{self.size}\n{_base64(self.root)}\n"


def read_head(text: str) -> Head:
    """Return the head in a checkpoint's text; more lines may follow. Raises VerificationFailed."""
    lines = text.split("\n")
    if len(lines) < 4 or lines[-1] or not lines[0] or _SIZE.fullmatch(lines[1]) is None:
        raise VerificationFailed("this is no checkpoint of a log: origin, size and root in lines")
    try:
        root = _bytes(lines[2])
    except ValueError:
        root = b""
    if len(root) != 32:
        raise VerificationFailed("the root of a checkpoint is not 32 bytes")
    return Head(lines[0], int(lines[1]), root)


# --- notes --------------------------------------------------------------------------------------


def sign(text: str, name: str, seed: bytes) -> str:
    """Return a signature line of a note with this text."""
    return _line(key_of(name, seed), Ed25519PrivateKey.from_private_bytes(seed).sign(text.encode()))


def cosign(text: str, name: str, seed: bytes, time: int) -> str:
    """Return the line of a witness that saw this checkpoint at `time` (seconds since 1970)."""
    signature = Ed25519PrivateKey.from_private_bytes(seed).sign(_witnessed(text, time))
    return _line(key_of(name, seed, COSIGNATURE), time.to_bytes(8, "big") + signature)


def note(text: str, lines: Iterable[str]) -> str:
    """Return a signed note of a text (which ends a line) and signature lines."""
    return f"{text}\n{''.join(lines)}"


def parse(given: str) -> tuple[str, list[str]]:
    """Return the text and signature lines of a note, unverified. Raises VerificationFailed."""
    text, empty, signed = given.rpartition("\n\n")
    lines = signed.splitlines(keepends=True)
    if not empty or not lines or _CONTROL.search(given) or len(lines) > _MOST_SIGNATURES:
        raise VerificationFailed("this is no signed note")
    for line in lines:
        _signature(line)
    return text + "\n", lines


def verified(given: str, keys: Iterable[Key]) -> tuple[str, dict[Key, int | None]]:
    """Return the text of a note, and which of `keys` signed it; with the time, where a witness did.

    Signatures by other keys are passed over. Raises VerificationFailed if one of these does not
    hold, or if there is none.
    """
    text, lines = parse(given)
    wanted = {(key.name, key.id): key for key in keys}
    signed: dict[Key, int | None] = {}
    for line in lines:
        name, signature = _signature(line)
        key = wanted.get((name, signature[:4]))
        if key is not None:
            signed[key] = _check(text, key, signature[4:])
    if not signed:
        raise VerificationFailed("the note is signed by none of the keys that are asked for")
    return text, signed


def _check(text: str, key: Key, signature: bytes) -> int | None:
    message, time = text.encode(), None
    if key.kind == COSIGNATURE:
        time = int.from_bytes(signature[:8], "big")
        message, signature = _witnessed(text, time), signature[8:]
    try:
        Ed25519PublicKey.from_public_bytes(key.public).verify(signature, message)
    except (InvalidSignature, ValueError):
        raise VerificationFailed(f"the signature of {key.name} does not hold") from None
    return time


def _witnessed(text: str, time: int) -> bytes:
    return f"cosignature/v1\ntime {time}\n{text}".encode()


def _line(key: Key, signature: bytes) -> str:
    return f"— {key.name} {_base64(key.id + signature)}\n"


def _signature(line: str) -> tuple[str, bytes]:
    """Return the name, and the key's id with the signature, in a line of a note."""
    parts = line.split(" ")
    try:
        if len(parts) == 3 and parts[0] == "—" and parts[1] and line.endswith("\n"):
            signature = _bytes(parts[2][:-1])
            if len(signature) > 4:
                return parts[1], signature
    except ValueError:
        pass
    raise VerificationFailed("a line of the note is no signature")


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    """Return the bytes in base64, in its one standard form. Raises ValueError."""
    try:
        data = base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError(f"{text!r:.40} is no base64") from None
    if _base64(data) != text:
        raise ValueError(f"{text!r:.40} is no base64")
    return data


#: For proofs, whose hashes are written in the same way.
to_base64, from_base64 = _base64, _bytes
