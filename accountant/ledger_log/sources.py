"""What the entries of the log don't say of data: where it lies, how it is read, whose it is.

    sources/<dataset>/<version>    kept beside the log before the REGISTER that finds the version
                                   right

Without it a dataset, or a version of its data, that came after the backup could not be made again,
and the people in it could be registered with another allowance. A file is sealed (AES-256-GCM,
block by block) under a key that the check worker and the operator have: the other processes that
write the log learn nothing.
"""

import json
import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from cryptography.exceptions import InvalidTag

from accountant.core.errors import LogUnusable
from accountant.ledger_log.log import LedgerLog
from accountant.sealing import key_for, seal, unseal

#: A fingerprint and whether it is of a unit (unit_fingerprints.Fingerprint).
Fingerprint = tuple[bytes, bool]

_FINGERPRINT = struct.Struct("16s?")
_AT_ONCE = 50_000
_PURPOSE = "kept sources"
_LENGTH = struct.Struct(">I")


def keep(
    log: LedgerLog,
    dataset: str,
    version: int,
    key: bytes,
    stated: Mapping[str, Any],
    fingerprints: Iterable[Fingerprint],
) -> None:
    """Write what is `stated` of a version (JSON) and its fingerprints, in place of what was kept of
    it.

    `key`: the secret `identity`. Memory does not grow with the fingerprints. Raises LogUnusable.
    """
    sealing = key_for(_PURPOSE, key)
    try:
        with log.keep(_name(dataset, version)) as file:
            for number, block in enumerate(_blocks(stated, fingerprints)):
                sealed = seal(sealing, _place(dataset, version, number), block)
                file.write(_LENGTH.pack(len(sealed)) + sealed)
    except OSError as error:
        raise LogUnusable(f"what is known of data can't be kept: {error.strerror}") from None


def is_kept(log: LedgerLog, dataset: str, version: int) -> bool:
    """Return whether a version was kept."""
    return log.is_kept(_name(dataset, version))


def kept(
    log: LedgerLog, dataset: str, version: int, key: bytes
) -> tuple[dict[str, Any], Iterator[Fingerprint]]:
    """Return what was stated of a version, and its fingerprints; both may raise LogUnusable."""
    blocks = _read(log, dataset, version, key)
    return json.loads(next(blocks)), (
        each for block in blocks for each in _FINGERPRINT.iter_unpack(block)
    )


def _name(dataset: str, version: int) -> str:
    return f"sources/{dataset}/{version}"


def _blocks(stated: Mapping[str, Any], fingerprints: Iterable[Fingerprint]) -> Iterator[bytes]:
    """Yield what is stated, then fingerprints, then an empty block: the end can't be cut unseen."""
    yield json.dumps(stated).encode()
    block = bytearray()
    for fingerprint in fingerprints:
        block += _FINGERPRINT.pack(*fingerprint)
        if len(block) >= _AT_ONCE * _FINGERPRINT.size:
            yield bytes(block)
            block.clear()
    if block:
        yield bytes(block)
    yield b""


def _read(log: LedgerLog, dataset: str, version: int, key: bytes) -> Iterator[bytes]:
    named = f"what was kept of version {version} of {dataset!r}"
    sealing = key_for(_PURPOSE, key)
    try:
        with log.open_kept(_name(dataset, version)) as file:
            number, block = 0, b" "
            while block:
                length = file.read(_LENGTH.size)
                sealed = (
                    file.read(_LENGTH.unpack(length)[0]) if len(length) == _LENGTH.size else b""
                )
                block = unseal(sealing, _place(dataset, version, number), sealed)
                number += 1
                yield block
    except OSError as error:
        raise LogUnusable(
            f"{named} can't be read: {error.strerror or type(error).__name__}"
        ) from None
    except (InvalidTag, ValueError):
        raise LogUnusable(f"{named} is not what was kept under this key `identity`") from None


def _place(dataset: str, version: int, number: int) -> bytes:
    return f"{dataset}/{version}/{number}".encode()
