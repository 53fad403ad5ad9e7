"""Outputs on their way out: sealed drafts that hold the lease token, published after the COMMIT
names them.

    attempt ── sealed draft ──▶ COMMIT ── opened, compared with it ──▶ a file named by its SHA-256

The key is the workers' own, so nobody else reads a draft. A lost attempt's draft is destroyed
unread. The drafts to destroy are determined from the database, never from memory: a worker whose
COMMIT succeeded while its answer was lost would otherwise destroy what it has to publish. Where a
worker dies between the two, the next look of a worker publishes.
"""

import hashlib
import json
import os
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Protocol
from uuid import UUID

from billiard.exceptions import SoftTimeLimitExceeded  # type: ignore[import-untyped]
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import GCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from accountant.core.errors import Unwritable
from accountant.database import Engine
from accountant.faults import reached
from accountant.results import BLOCK_BYTES, Again, Changed, Results, draft_name
from accountant.settings import Settings
from accountant.transactions import leases
from accountant.transactions.rows import Claim
from accountant.transactions.settlement import Output

#: An attempt that has read data is charged: so long it tries to send what it made.
SEND_SECONDS, PAUSE_SECONDS = 180.0, 1.0
_NONCE_BYTES, _TAG_BYTES = 12, 16


class Sink(Protocol):
    """Where the bytes of a draft go."""

    def write(self, content: bytes, /) -> object: ...


def _patience(seconds: float) -> Again:
    """Return what lets a draft be sent again, until `seconds` after its first failure."""
    failures: list[float] = []

    def again(error: Exception) -> bool:
        failures.append(time.monotonic())
        if isinstance(error, SoftTimeLimitExceeded) or failures[-1] - failures[0] >= seconds:
            return False
        time.sleep(PAUSE_SECONDS)
        return True

    return again


class Drafts:
    """The drafts of all attempts. `units`: the workers' key of that name."""

    def __init__(self, results: Results, units: bytes) -> None:
        self.results = results
        self._key = HKDF(SHA256(), 32, salt=None, info=b"drafts of outputs").derive(units)

    @classmethod
    def of(cls, configured: Settings) -> "Drafts":
        """Return the drafts that the settings name. Only a folder that they don't name is made."""
        if configured.results_url is None:
            with suppress(OSError):  # said where a draft is created
                Path(configured.results).mkdir(parents=True, exist_ok=True)
        return cls(Results(configured.results), configured.secret("units"))

    @contextmanager
    def create(self, name: str, reserved: int = 0, send_seconds: float = 0.0) -> Iterator[Sink]:
        """Return a block that writes a draft, which is on the disk at its end. `reserved`: room in
        bytes.

        A store that is away at its end is asked again for `send_seconds`. Raises Unwritable if the
        draft can't be opened, or has no such room.
        """
        nonce = secrets.token_bytes(_NONCE_BYTES)
        sealing = Cipher(AES256(self._key), GCM(nonce)).encryptor()
        sealing.authenticate_additional_data(name.encode())  # no draft opens in another's place
        with ExitStack() as block:
            try:
                file = block.enter_context(
                    self.results.create(name, reserved, _patience(send_seconds))
                )
            except OSError as error:
                why = error.strerror or type(error).__name__
                raise Unwritable(f"results can't be written: {why}") from None
            file.write(nonce)
            yield _Sealing(file, sealing)
            file.write(sealing.finalize() + sealing.tag)

    def read(self, name: str) -> Iterator[bytes]:
        """Yield the content of a draft. Raises Changed if it is not what was written."""
        with self.results.draft(name) as file:
            nonce = file.read(_NONCE_BYTES)
            if len(nonce) < _NONCE_BYTES:  # of an attempt that was cut off as it began to write
                raise Changed("a draft is not what was written")
            opening = Cipher(AES256(self._key), GCM(nonce)).decryptor()
            opening.authenticate_additional_data(name.encode())
            left = b""
            while block := file.read(BLOCK_BYTES):
                left += block
                yield opening.update(left[:-_TAG_BYTES])
                left = left[-_TAG_BYTES:]
            try:
                yield opening.finalize_with_tag(left)
            except (InvalidTag, ValueError):
                raise Changed("a draft is not what was written") from None

    def size(self, output: Output) -> int:
        """Return the bytes of a draft."""
        with self.results.draft(output.draft) as file:
            return file.seek(0, os.SEEK_END)

    def digest(self, name: str) -> str:
        """Return the SHA-256 of a draft's content."""
        total = hashlib.sha256()
        for block in self.read(name):
            total.update(block)
        return total.hexdigest()

    def publish(self, name: str, sha256: str) -> None:
        """Put the content of a draft where everybody finds it; a COMMIT has named its SHA-256."""
        if not self.results.has(sha256):
            self.results.publish(sha256, lambda: self.read(name))


class _Sealing:
    def __init__(self, file: IO[bytes], sealing: Any) -> None:
        self._file, self._sealing = file, sealing

    def write(self, content: bytes) -> None:
        self._file.write(self._sealing.update(content))


def name_of(claim: Claim, part: str = "texts") -> str:
    """Return a draft's name for this attempt. `part` "all": all parts' texts."""
    return draft_name(claim.job_id, claim.token, part)


def write(file: Sink, documents: Iterable[dict[str, Any]]) -> str:
    """Stream JSON Lines to a draft and return their SHA-256, in bounded memory."""
    total = hashlib.sha256()
    for document in documents:
        line = json.dumps(document, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
        total.update(line)
        reached("worker.writes")
        file.write(line)
    return total.hexdigest()


def joined(drafts: Drafts, name: str, outputs: list[Output]) -> Output:
    """Return all parts' outputs joined in order in a draft; a single one as it is."""
    if len(outputs) == 1:
        return outputs[0]
    total = hashlib.sha256()
    with drafts.create(name, sum(map(drafts.size, outputs))) as file:
        for output in outputs:
            digest = hashlib.sha256()
            for block in drafts.read(output.draft):
                digest.update(block)
                total.update(block)
                file.write(block)
            if digest.hexdigest() != output.sha256:
                raise Changed("a draft is not what was written")
    return Output(name, total.hexdigest())


# --- what is left over --------------------------------------------------------------------------


def tidy(
    engine: Engine, results: Results, job_id: UUID | None = None, drafts: Drafts | None = None
) -> int:
    """Destroy the drafts of ended attempts of one job, or of all. Returns their number.

    Drafts of an attempt that still holds its lease stay, and so do those that wait for settlement.
    A draft that a COMMIT names and that is not published yet stays; with `drafts`, which have the
    key, it is published. Drafts are listed before the rows are read: each was claimed, so if nobody
    holds its token by then, its attempt has ended. Jobs that this database doesn't know are left
    alone.
    """
    found = [draft for draft in results.drafts() if job_id in (None, draft[1])]
    kept = leases.kept(engine, {job for _, job, _ in found})
    count = 0
    for name, job, token in found:
        if job not in kept.known or token in kept.tokens or name in kept.drafts:
            continue
        wanted = [sha256 for sha256 in kept.committed.get(job, ()) if not results.has(sha256)]
        if wanted:
            if drafts is None:
                continue
            try:
                sha256 = drafts.digest(name)
                if sha256 in wanted:
                    drafts.publish(name, sha256)
            except (Changed, FileNotFoundError):  # another key's, or another worker tidied first
                continue
        results.remove(name)
        count += 1
    return count
