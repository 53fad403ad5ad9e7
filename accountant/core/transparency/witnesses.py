"""The signer of a log's heads, which signs no two that contradict, and how witnesses are asked.

    request of tlog-witness ──▶ a cosignature, or the size that the witness saw last

The newest head that was signed is kept in a file, replaced and synced before the signature is
given: a crash loses a signature, never the knowledge of one. A lock makes reading, checking and
replacing it one step. The next head must be proved to continue the kept one.
"""

import fcntl
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Protocol

from accountant.core.errors import VerificationFailed
from accountant.core.transparency.merkle import EMPTY, check_consistency
from accountant.core.transparency.notes import (
    Head,
    Key,
    key_of,
    note,
    sign,
    to_base64,
    verified,
)
from accountant.core.transparency.tiles import Tiles, write_synced

#: Posts a request of tlog-witness: (HTTP status, body) of the answer.
Ask = Callable[[str], tuple[int, str]]


class WitnessAhead(VerificationFailed):
    """A witness signed a head of more entries than the log has."""

    def __init__(self, size: int, logged: int) -> None:
        self.size = size
        super().__init__(
            f"a witness saw {size:,} entries, and the log has {logged:,}: some are missing"
        )


class Heads(Protocol):
    """The newest head of each log that somebody signed, where it can't be taken back."""

    def newest(self, origin: str) -> Head: ...
    def all(self) -> Iterator[tuple[Head, str | None]]: ...
    def locked(self, origin: str) -> AbstractContextManager[Head]: ...
    def advance(
        self, kept: Head, head: Head, proof: Sequence[bytes], leaf: str | None = None
    ) -> None: ...
    def witnessed(self, origin: str, size: int) -> None: ...


class KeptHeads:
    """The newest head of each log that somebody signed, on a folder that is theirs alone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def _file(self, origin: str) -> Path:
        return self.folder / f"{sha256(origin.encode()).hexdigest()}.json"

    def newest(self, origin: str) -> Head:
        """Return the newest head signed of a log; if none was signed, that of no leaves."""
        try:
            head = json.loads(self._file(origin).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return Head(origin, 0, EMPTY)
        return Head(head["origin"], head["size"], bytes.fromhex(head["root"]))

    def all(self) -> Iterator[tuple[Head, str | None]]:
        """Yield the newest head of each log, and the digest of its last leaf if that was kept."""
        for path in sorted(self.folder.glob("*.json")):
            head = json.loads(path.read_text(encoding="utf-8"))
            yield Head(head["origin"], head["size"], bytes.fromhex(head["root"])), head.get("leaf")

    @contextmanager
    def locked(self, origin: str) -> Iterator[Head]:
        """Return the newest head, which nobody else moves on meanwhile."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._file(origin).with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield self.newest(origin)

    def advance(
        self, kept: Head, head: Head, proof: Sequence[bytes], leaf: str | None = None
    ) -> None:
        """Keep a head that continues the one that is kept; call it under the lock.

        `leaf`: the digest of its last leaf, by which others find out whether they hold what was
        signed. Raises VerificationFailed, and keeps what is kept, if that is not proved.
        """
        if kept.origin != head.origin:
            raise VerificationFailed(f"the log is {head.origin!r:.60}, not {kept.origin!r:.60}")
        check_consistency(kept.size, head.size, kept.root, head.root, proof)
        if head != kept:
            stated = {"origin": head.origin, "size": head.size, "root": head.root.hex()}
            stated |= {} if leaf is None else {"leaf": leaf}
            write_synced(self._file(head.origin), json.dumps(stated).encode())

    def witnessed(self, origin: str, size: int) -> None:
        """Keep how many entries a witness saw, in a file of its own, which every process reads."""
        stated = {"origin": origin, "size": size, "root": ""}
        self.folder.mkdir(parents=True, exist_ok=True)
        write_synced(self.folder / "witnessed.json", json.dumps(stated).encode())


def leaf_digest(leaf: bytes) -> str:
    """Return SHA-256, in hex, of a leaf."""
    return sha256(leaf).hexdigest()


class LogSigner:
    """Signs the heads of one log. `kept` holds what it signed, and belongs to no backup."""

    def __init__(self, kept: Heads | Path, origin: str, seed: bytes) -> None:
        self._kept: Heads = KeptHeads(kept) if isinstance(kept, Path) else kept
        self._origin, self._seed = origin, seed

    @property
    def newest(self) -> Head:
        """The newest head that it signed."""
        return self._kept.newest(self._origin)

    def take_up(self, published: str, tiles: Tiles) -> None:
        """Keep the head of a published checkpoint where it is newer: an older copy of what is kept
        came back.

        Raises VerificationFailed if this key did not sign it, or it does not continue what is kept.
        """
        verified(published, [key_of(self._origin, self._seed)])
        with self._kept.locked(self._origin) as held_head:
            if tiles.size > held_head.size:
                self._keep(held_head, tiles)

    def heed(self, size: int) -> None:
        """Keep how many entries a witness saw: every process reads it."""
        self._kept.witnessed(self._origin, size)

    def _keep(self, kept: Head, tiles: Tiles) -> Head:
        head = Head(self._origin, tiles.size, tiles.root())
        leaf = leaf_digest(next(tiles.leaves(tiles.size - 1))) if tiles.size else None
        self._kept.advance(kept, head, tiles.consistency(kept.size), leaf)
        return head

    def sign(self, tiles: Tiles) -> str:
        """Return these tiles' checkpoint. Raises VerificationFailed unless they continue."""
        with self._kept.locked(self._origin) as held_head:
            if tiles.size < held_head.size:
                raise VerificationFailed(
                    f"the log has {tiles.size:,} entries, and {held_head.size:,} were signed: "
                    "some are missing"
                )
            head = self._keep(held_head, tiles)
        return note(str(head), [sign(str(head), self._origin, self._seed)])


# --- witnesses ----------------------------------------------------------------------------------


def request_text(old: int, proof: Sequence[bytes], checkpoint: str) -> str:
    """Return the request to cosign a checkpoint that continues the tree of `old` leaves."""
    lines = "".join(f"{to_base64(sibling)}\n" for sibling in proof)
    return f"old {old}\n{lines}\n{checkpoint}"


def cosigned(checkpoint: str, tiles: Tiles, witness: Key, ask: Ask, last: int = 0) -> str:
    """Return the checkpoint with the line of a witness added. `ask` posts a request; `last`: what
    it may have seen.

    Raises VerificationFailed if the witness refuses: it saw a tree that this one does not continue.
    """
    status, answer = ask(request_text(last, tiles.consistency(last), checkpoint))
    if status == 409 and answer.strip().isdigit() and last != int(answer) <= tiles.size:
        last = int(answer)
        status, answer = ask(request_text(last, tiles.consistency(last), checkpoint))
    if status == 409 and answer.strip().isdigit() and int(answer) > tiles.size:
        raise WitnessAhead(int(answer), tiles.size)
    if status != 200:
        raise VerificationFailed(f"the witness does not sign ({status}): {answer.strip()!r:.80}")
    verified(checkpoint + answer, [witness])
    return checkpoint + answer
