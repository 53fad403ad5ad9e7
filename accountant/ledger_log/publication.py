"""The log as others may see it: a leaf for each entry, in a tree that is signed and witnessed.

    log (log.py) ── entries_from ──▶ core.transparency.publication.publish ──▶ files
      (published.py) to be served

The published log says that an entry was written, and in which order; its document stays in the log.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx2

from accountant.core.errors import VerificationFailed, invalid
from accountant.core.transparency.notes import COSIGNATURE, Head, Key, key_of, read_key
from accountant.core.transparency.publication import proof_of, publish
from accountant.core.transparency.witnesses import Ask, LogSigner
from accountant.ledger_log.kept_heads import kept_heads
from accountant.ledger_log.log import LedgerLog, entries_after
from accountant.ledger_log.published import files_at
from accountant.settings import Settings

_SECONDS = 30


def publish_configured(configured: Settings, log: LedgerLog) -> tuple[Head, Key]:
    """`publish_log` with the place, name, key and witnesses of the settings; also returns the
    log's key.

    What was signed is remembered in `signed_logs`. Raises InvalidRequest where no place is set.
    """
    if configured.public_log is None:
        raise invalid("public_log", "not set", "a folder or s3://…: EXCHEQUER_PUBLIC_LOG")
    name, seed = configured.public_log_name, configured.secret("public_log")
    signer = LogSigner(kept_heads(configured.signed_logs), name, seed)
    head = publish_log(log, configured.public_log, signer, configured.public_log_witnesses)
    key = key_of(name, seed)
    if published_key(configured.public_log) != str(key):
        files_at(configured.public_log).replace(KEY, f"{key}\n".encode())
    return head, key


#: Beside the checkpoint: the key that signs it, as `exchequer verify` takes it.
KEY = "key"


def published_key(place: Path | str | None) -> str | None:
    """Return the key of a published log, as it stands there; None if none does.

    Raises LogUnusable where a store does not answer.
    """
    key = None if place is None else files_at(place).read(KEY)
    return None if key is None else key.decode().strip()


def publish_log(
    log: LedgerLog, place: Path | str, signer: LogSigner, witnesses: Mapping[str, str]
) -> Head:
    """Publish what the log holds by now, synced; returns the head that was signed.

    `witnesses`: the key of each by its address (C2SP tlog-witness). Raises LogUnusable,
    VerificationFailed, and InvalidRequest for a key that is none.
    """
    requests = [(_witness_key(key), _asking(address)) for address, key in witnesses.items()]
    last = log.position().n
    log.sync()  # what is published stays
    return publish(files_at(place), lambda count: entries_from(log, count, last), signer, requests)


def log_proof(place: Path | str, dataset: str, entries: int) -> dict[str, object] | None:
    """Return the place in the published log of an export of so many entries, or None."""
    files = files_at(place)
    if files.read("checkpoint") is None:
        return None
    proof = proof_of(files, dataset, entries)
    return None if proof is None else {"seq": proof[0], "proof": proof[1]}


def entries_from(log: LedgerLog, count: int, last: int) -> Iterator[tuple[str, int, str]]:
    """Yield (dataset, number, hash) of the log's entries after the first `count`, up to the `last`.

    Each is checked against its line, like in `entries_after`. Raises LogUnusable.
    """
    for position, dataset, entry in entries_after(log, count):
        if position.n > last:
            return
        yield dataset, entry.seq, entry.hash


def _witness_key(text: str) -> Key:
    try:
        key = read_key(text)
    except ValueError as error:
        raise invalid(
            "public_log_witnesses", str(error), "the key that the witness publishes"
        ) from None
    if key.kind != COSIGNATURE:
        raise invalid(
            "public_log_witnesses", f"{text!r:.80} is no key of a witness", "a key of type 4"
        )
    return key


def _asking(address: str) -> Ask:
    def ask(request: str) -> tuple[int, str]:
        try:
            answer = httpx2.post(
                f"{address.rstrip('/')}/add-checkpoint", content=request.encode(), timeout=_SECONDS
            )
        except httpx2.HTTPError as error:
            raise VerificationFailed(f"the witness at {address} gives no answer: {error}") from None
        return answer.status_code, answer.text

    return ask
