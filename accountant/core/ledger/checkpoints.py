"""Signed checkpoints of a ledger, so that its owner can't rewrite a history that was once exported.

A checkpoint states dataset, number and hash of the last entry, and the balances. It is signed with
Ed25519. An auditor who keeps one holds the owner to every entry up to it: a later export must begin
with the same history. Keys are rotated by introduction: the old key signs the new one, so one known
key vouches for all later ones. A checkpoint file is self-contained:

    {"checkpoint": {...}, "signature": hex, "keys": [{"key": {...}, "signature": hex or null}, ...]}

Keys stand from the oldest to the one that signed. Nothing here is private: balances are those that
a public export states.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from accountant.core.errors import VerificationFailed
from accountant.core.ledger.canonical_json import canonical
from accountant.core.ledger.hash_chain import format_time, read_time

FORMAT = "exchequer-checkpoint"
KEY_FORMAT = "exchequer-key"
FIELDS = ("format", "version", "dataset", "seq", "head", "balances", "at", "key")
KEY_FIELDS = ("format", "version", "id", "public", "introduced_at", "introduced_by")


def key_id(public: bytes) -> str:
    """Return the name of a key: the first 128 bits of its public bytes' SHA-256, in hex."""
    return hashlib.sha256(public).hexdigest()[:32]


def public_key(seed: bytes) -> bytes:
    """Return the 32 public bytes of the key whose secret is `seed` (32 bytes)."""
    return Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()


# --- keys ---------------------------------------------------------------------------------------


def introduction(public: bytes, at: datetime, old_seed: bytes | None) -> dict[str, Any]:
    """Return a signing key with the old key's signature on it; the first key has none."""
    old = None if old_seed is None else key_id(public_key(old_seed))
    document = {
        "format": KEY_FORMAT,
        "version": 1,
        "id": key_id(public),
        "public": public.hex(),
        "introduced_at": format_time(at),
        "introduced_by": old,
    }
    return {"key": document, "signature": None if old_seed is None else _sign(document, old_seed)}


@dataclass(frozen=True)
class Key:
    """A public key, valid from its introduction until the next one's."""

    id: str
    public: bytes
    since: datetime
    until: datetime | None = None


def read_keys(value: object) -> tuple[Key, ...]:
    """Return the keys, oldest first, each introduced by the last. Raises VerificationFailed."""
    if not isinstance(value, list) or not value:
        raise VerificationFailed("it names no keys")
    keys: list[Key] = []
    for each in value:
        document = _fields(each, "key", KEY_FIELDS, KEY_FORMAT, ("key", "signature"))
        public = _bytes(document["public"], 32)
        key = Key(key_id(public), public, _time(document["introduced_at"]))
        if document["id"] != key.id:
            raise VerificationFailed("a key's id is not that of its public bytes")
        if keys:
            old = keys[-1]
            if document["introduced_by"] != old.id or key.since <= old.since:
                raise VerificationFailed(f"key {key.id} was not introduced by the key before it")
            _check(document, each.get("signature"), old.public, f"the introduction of key {key.id}")
            keys[-1] = Key(old.id, old.public, old.since, key.since)
        elif each["signature"] is not None or document["introduced_by"] is not None:
            raise VerificationFailed("the first key was introduced by one that is not among them")
        keys.append(key)
    return tuple(keys)


# --- checkpoints --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Checkpoint:
    """The contents of a signed checkpoint, and the keys that came with it."""

    dataset: str
    seq: int
    head: str
    balances: Mapping[str, Any]
    at: datetime
    key: str
    keys: tuple[Key, ...]


def sign(
    dataset: str,
    seq: int,
    head: str,
    balances: Mapping[str, Any],
    at: datetime,
    seed: bytes,
    keys: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """Return a signed checkpoint file. `keys`: introductions, the oldest first, `seed`'s last."""
    document = {
        "format": FORMAT,
        "version": 1,
        "dataset": dataset,
        "seq": seq,
        "head": head,
        "balances": dict(balances),
        "at": format_time(at),
        "key": key_id(public_key(seed)),
    }
    return {
        "checkpoint": document,
        "signature": _sign(document, seed),
        "keys": [dict(k) for k in keys],
    }


def read_checkpoint(value: object, pinned: bytes | None = None) -> Checkpoint:
    """Return the checkpoint in a file, after its signature was verified. Raises VerificationFailed.

    `pinned` is a public key that the reader knows from another source: the signing key must be that
    key or follow from it by introductions. Without one, the checkpoint is only as trustworthy as
    the channel it came through.
    """
    document = _fields(value, "checkpoint", FIELDS, FORMAT, ("checkpoint", "signature", "keys"))
    assert isinstance(value, dict)
    keys = read_keys(value.get("keys"))
    own = {key.id: key for key in keys}.get(str(document["key"]))
    if own is None:
        raise VerificationFailed("the key that signed the checkpoint is not among its keys")
    if pinned is not None and key_id(pinned) not in {key.id for key in keys[: keys.index(own) + 1]}:
        raise VerificationFailed(
            f"the checkpoint is signed by key {own.id}, which does not follow from key "
            f"{key_id(pinned)}"
        )
    _check(document, value.get("signature"), own.public, "the checkpoint")
    at = _time(document["at"])
    if at < own.since or (own.until is not None and at >= own.until):
        raise VerificationFailed(f"key {own.id} was not in use when the checkpoint was made")
    seq, head, balances = document["seq"], document["head"], document["balances"]
    if type(seq) is not int or not isinstance(head, str) or not isinstance(balances, dict):
        raise VerificationFailed("the checkpoint's fields have the wrong types")
    return Checkpoint(document["dataset"], seq, head, balances, at, own.id, keys)


# --- parts --------------------------------------------------------------------------------------


def _sign(document: Mapping[str, Any], seed: bytes) -> str:
    return Ed25519PrivateKey.from_private_bytes(seed).sign(canonical(document)).hex()


def _check(document: Mapping[str, Any], signature: object, public: bytes, what: str) -> None:
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(
            _bytes(signature, 64), canonical(document)
        )
    except (InvalidSignature, ValueError):
        raise VerificationFailed(f"the signature of {what} does not hold") from None


def _fields(
    value: object, name: str, fields: tuple[str, ...], form: str, around: tuple[str, ...]
) -> dict[str, Any]:
    """Return the signed document in `value`, whose other fields are `around`. Allows no others."""
    document = value.get(name) if isinstance(value, dict) and set(value) == set(around) else None
    if not isinstance(document, dict) or set(document) != set(fields):
        raise VerificationFailed(f"this is no {name}: its fields are not {', '.join(fields)}")
    if (
        document["format"] != form
        or type(document["version"]) is not int
        or document["version"] != 1
    ):
        raise VerificationFailed(f"unknown format or version of a {name}")
    return document


def _bytes(text: object, length: int) -> bytes:
    try:
        value = bytes.fromhex(text) if isinstance(text, str) else b""
    except ValueError:
        value = b""
    if len(value) != length or value.hex() != text:
        raise VerificationFailed(f"not {length} bytes in hex where a key or signature belongs")
    return value


def _time(text: object) -> datetime:
    try:
        return read_time(text if isinstance(text, str) else "")
    except ValueError:
        raise VerificationFailed(f"{str(text)[:40]!r} is no time") from None
