"""What a verification knows at its last entry, as a file, so that the next one begins there.

    line 1     canonical JSON: books, rules, live jobs, sources, and the sizes of what follows
    then       the hashes of all entries; the jobs that ended and the outputs published, 16 bytes each, sorted
    last 32    SHA-256 of all that

Everything in it follows from the entries up to its head. It is as good as whoever kept it: a signed
checkpoint at the same entry vouches for head and balances, and not for rules or jobs, so an auditor keeps the
file, or its SHA-256, where nobody else writes.
"""

import hashlib
import json
import re
from typing import BinaryIO

from accountant.core.errors import UNREADABLE, VerificationFailed
from accountant.core.ledger.sorted_keys import WIDTH, SortedKeys
from accountant.core.ledger.verifier import Verifier

FORMAT = "exchequer-verified"
#: 2 since it holds what signed acts are based on: a state of 1 is refused, and the ledger verified anew.
VERSION = 2
_HASH = 32


def kept(verifier: Verifier) -> bytes:
    """The state of a verifier after its last entry, for `resumed`."""
    stated, hashes, jobs, outputs = verifier.state()
    runs = {"hashes": len(hashes) // _HASH, "jobs": jobs.runs, "outputs": outputs.runs}
    document = {"format": FORMAT, "version": VERSION, "sizes": runs, "state": stated}
    first = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    made = b"".join([first, b"\n", hashes, jobs.data, outputs.data])
    return made + hashlib.sha256(made).digest()


def fingerprint(data: bytes) -> str:
    """The SHA-256, in hex, by which a kept state is known: that of the whole file."""
    return hashlib.sha256(data).hexdigest()


def resumed(data: bytes) -> Verifier:
    """A verifier that goes on after what was kept. Raises VerificationFailed if the file is not whole."""
    made, digest = data[:-_HASH], data[-_HASH:]
    if hashlib.sha256(made).digest() != digest:
        raise VerificationFailed("the kept verification was changed, or is none")
    first, _, rest = made.partition(b"\n")
    try:
        document = json.loads(first)
        if document["format"] != FORMAT or document["version"] != VERSION:
            raise VerificationFailed("the kept verification is of another format")
        sizes = document["sizes"]
        ends = _HASH * sizes["hashes"], _HASH * sizes["hashes"] + WIDTH * sum(sizes["jobs"])
        hashes, jobs, outputs = rest[: ends[0]], rest[ends[0] : ends[1]], rest[ends[1] :]
        if len(outputs) != WIDTH * sum(sizes["outputs"]):
            raise VerificationFailed("the kept verification is cut off")
        keys = SortedKeys(jobs, sizes["jobs"]), SortedKeys(outputs, sizes["outputs"])
        return Verifier.restored(document["state"], hashes, *keys)
    except VerificationFailed:
        raise
    except UNREADABLE as error:
        raise VerificationFailed(f"the kept verification can't be read: {error}") from None


_SEQ = re.compile(rb'"seq":([0-9]{1,15}),"version":[12],"hash":"[0-9a-f]{64}"\}\r?\n$')


def line_after(file: BinaryIO, seq: int) -> int | None:
    """Where the line after entry `seq` begins in a JSON Lines export, in a few reads; None: not found so.

    Lines say their numbers, and these rise: what is found is entry `seq` + 1 if the export is right. Whoever
    reads it there finds out.
    """
    low, high = len(file.readline()), file.seek(0, 2)  # the line begins in this range
    if seq == 0:
        return low
    while low < high:
        middle = (low + high) // 2
        file.seek(middle - 1)
        file.readline()  # the rest of a line, or the end of the one before
        start = file.tell()
        line = file.readline()
        found = _SEQ.search(line)
        if found is None and start < high:
            return None
        if found is not None and int(found[1]) <= seq:
            low = start + len(line)
        else:
            high = middle
    return low
