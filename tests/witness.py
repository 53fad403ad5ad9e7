"""A witness of logs, as one elsewhere would be: it cosigns no two heads that contradict."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from accountant.core.errors import VerificationFailed
from accountant.core.transparency.notes import Key, cosign, from_base64, parse, read_head, verified
from accountant.core.transparency.witnesses import KeptHeads

#: Of a proof.
MOST_HASHES = 63


class Witness:
    """A witness of logs, by origin and key: it cosigns heads that continue the last it saw."""

    def __init__(
        self,
        folder: Path,
        name: str,
        seed: bytes,
        logs: Mapping[str, Key],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._kept, self._name, self._seed = KeptHeads(folder), name, seed
        self._logs, self._clock = dict(logs), clock

    def add_checkpoint(self, request: str) -> tuple[int, str]:
        """(HTTP status, body) of the answer to a request of tlog-witness (`request_text`)."""
        try:
            old, proof, note = read_request(request)
            text, _ = parse(note)
            head = read_head(text)
        except VerificationFailed as error:
            return 400, f"{error}\n"
        key = self._logs.get(head.origin)
        if key is None:
            return 404, "unknown log\n"
        try:
            verified(note, [key])
        except VerificationFailed:
            return 403, "not signed by the log\n"
        if old > head.size:
            return 400, "the old size is above the new\n"
        with self._kept.locked(head.origin) as held_head:
            if old != held_head.size:
                return 409, f"{held_head.size}\n"
            if old == head.size and head.root != held_head.root:
                return 409, f"{held_head.size}\n"
            try:
                self._kept.advance(held_head, head, proof)
            except VerificationFailed:
                return 422, "not proved to continue what was signed\n"
            return 200, cosign(text, self._name, self._seed, int(self._clock()))


def read_request(text: str) -> tuple[int, list[bytes], str]:
    """(old size, proof, checkpoint) of a request. Raises VerificationFailed."""
    stated, empty, checkpoint = text.partition("\n\n")
    first, *hashes = stated.split("\n")
    old = first.removeprefix("old ")
    if (
        not empty
        or first == old
        or not (old.isascii() and old.isdigit())
        or str(int(old[:20])) != old
    ):
        raise VerificationFailed("the request states no old size")
    if len(hashes) > MOST_HASHES:
        raise VerificationFailed(f"a proof of more than {MOST_HASHES} hashes")
    try:
        proof = [from_base64(hash_) for hash_ in hashes]
    except ValueError:
        raise VerificationFailed("the proof is no base64") from None
    return int(old), proof, checkpoint
