"""Merkle trees over a sequence of leaves, and proofs about them (RFC 6962, section 2.1).

    inclusion     a leaf stands at a place of the tree with a root
    consistency   the tree of a size is the beginning of the tree of a larger size

Proofs are lists of 32-byte hashes. They are made from the hashes of subtrees, wherever those are
kept, and checked without them (RFC 9162, sections 2.1.3.2 and 2.1.4.2).
"""

import hashlib
from collections.abc import Callable, Sequence

from accountant.core.errors import VerificationFailed

#: The root of the leaves from a number up to (not with) another.
Subtree = Callable[[int, int], bytes]

#: The root of no leaves.
EMPTY = hashlib.sha256(b"").digest()


def leaf_hash(leaf: bytes) -> bytes:
    """Return the hash of a leaf: it can't be taken for that of a node."""
    return hashlib.sha256(b"\0" + leaf).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of an inner node."""
    return hashlib.sha256(b"\1" + left + right).digest()


def root_of(hashes: Sequence[bytes]) -> bytes:
    """Return the root of leaves with these hashes; of a full subtree's nodes, the subtree's."""
    if not hashes:
        return EMPTY
    level = list(hashes)
    while len(level) > 1:  # pairing from the left is the split at the largest power of two
        paired = [node_hash(*level[at : at + 2]) for at in range(0, len(level) - 1, 2)]
        level = paired + level[len(level) & ~1 :]
    return level[0]


def split(size: int) -> int:
    """Return the largest power of two below `size` (2 or more): leaves left of the root."""
    return 1 << (size - 1).bit_length() - 1


# --- proofs -------------------------------------------------------------------------------------


def inclusion_proof(subtree: Subtree, index: int, size: int) -> list[bytes]:
    """Return the proof that leaf `index` stands in the tree of the first `size` leaves."""
    if not 0 <= index < size:
        raise ValueError(f"no leaf {index} in a tree of {size}")
    proof: list[bytes] = []
    start, end = 0, size
    while end - start > 1:
        middle = start + split(end - start)
        if index < middle:
            proof.append(subtree(middle, end))
            end = middle
        else:
            proof.append(subtree(start, middle))
            start = middle
    return proof[::-1]


def consistency_proof(subtree: Subtree, first: int, second: int) -> list[bytes]:
    """Return the proof that the tree of `first` leaves is the beginning of that of `second`."""
    if not 0 <= first <= second:
        raise ValueError(f"a tree of {second} does not continue one of {first}")
    if first in (0, second):
        return []
    proof: list[bytes] = []
    start, end, whole = 0, second, True
    while end != first:
        middle = start + split(end - start)
        if first <= middle:
            proof.append(subtree(middle, end))
            end = middle
        else:
            proof.append(subtree(start, middle))
            start, whole = middle, False
    if not whole:  # else whoever checks it knows it: it is the first root
        proof.append(subtree(start, end))
    return proof[::-1]


# --- checks -------------------------------------------------------------------------------------


def check_inclusion(
    leaf: bytes, index: int, size: int, root: bytes, proof: Sequence[bytes]
) -> None:
    """Raise VerificationFailed unless this leaf stands at `index` of the tree of this root."""
    if not 0 <= index < size:
        raise VerificationFailed(f"no leaf {index} in a tree of {size}")
    at, last, running = index, size - 1, leaf
    for sibling in proof:
        if last == 0:
            raise VerificationFailed("the proof of inclusion is too long")
        if at & 1 or at == last:
            running = node_hash(sibling, running)
            while at and not at & 1:
                at, last = at >> 1, last >> 1
        else:
            running = node_hash(running, sibling)
        at, last = at >> 1, last >> 1
    if last or running != root:  # a proof that is too short gives no root, unless hashes collide
        raise VerificationFailed(f"leaf {index} is not proved to stand in the tree of {size}")


def check_consistency(
    first: int, second: int, first_root: bytes, second_root: bytes, proof: Sequence[bytes]
) -> None:
    """Raise VerificationFailed unless the first tree begins the second, by this proof."""
    problem = f"the tree of {second} is not proved to continue that of {first}"
    if not 0 <= first <= second:
        raise VerificationFailed(problem)
    if first in (0, second):
        start = EMPTY if first == 0 else second_root
        if proof or first_root != start:
            raise VerificationFailed(problem)
        return
    path = list(proof)
    if not first & (first - 1):
        path.insert(0, first_root)
    if not path:
        raise VerificationFailed(problem)
    at, last = first - 1, second - 1
    while at & 1:
        at, last = at >> 1, last >> 1
    old = new = path[0]
    for sibling in path[1:]:
        if last == 0:
            raise VerificationFailed(problem)
        if at & 1 or at == last:
            old, new = node_hash(sibling, old), node_hash(sibling, new)
            while at and not at & 1:
                at, last = at >> 1, last >> 1
        else:
            new = node_hash(new, sibling)
        at, last = at >> 1, last >> 1
    if last or old != first_root or new != second_root:
        raise VerificationFailed(problem)
