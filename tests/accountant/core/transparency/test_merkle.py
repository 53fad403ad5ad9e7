"""Roots and proofs of the tree, compared with RFC 6962's definitions written as they stand
there.
"""

import hashlib
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accountant.core.errors import VerificationFailed
from accountant.core.transparency.merkle import (
    EMPTY,
    check_consistency,
    check_inclusion,
    consistency_proof,
    inclusion_proof,
    leaf_hash,
    root_of,
)

LEAVES = [f"leaf {number}".encode() for number in range(70)]
HASHES = [leaf_hash(each) for each in LEAVES]


def sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def below(size: int) -> int:
    """The largest power of two below a size."""
    found = 1
    while found * 2 < size:
        found *= 2
    return found


def mth(leaves: list[bytes]) -> bytes:
    """MTH of section 2.1."""
    if not leaves:
        return sha256(b"")
    if len(leaves) == 1:
        return sha256(b"\x00" + leaves[0])
    k = below(len(leaves))
    return sha256(b"\x01" + mth(leaves[:k]) + mth(leaves[k:]))


def path(m: int, leaves: list[bytes]) -> list[bytes]:
    """PATH of section 2.1.1."""
    if len(leaves) == 1:
        return []
    k = below(len(leaves))
    if m < k:
        return [*path(m, leaves[:k]), mth(leaves[k:])]
    return [*path(m - k, leaves[k:]), mth(leaves[:k])]


def subproof(m: int, leaves: list[bytes], whole: bool) -> list[bytes]:
    """SUBPROOF of section 2.1.2."""
    if m == len(leaves):
        return [] if whole else [mth(leaves)]
    k = below(len(leaves))
    if m <= k:
        return [*subproof(m, leaves[:k], whole), mth(leaves[k:])]
    return [*subproof(m - k, leaves[k:], False), mth(leaves[:k])]


def subtree(start: int, end: int) -> bytes:
    return root_of(HASHES[start:end])


def test_roots_are_those_of_the_rfc():
    assert [root_of(HASHES[:size]) for size in range(71)] == [
        mth(LEAVES[:size]) for size in range(71)
    ]


def test_every_leaf_of_every_tree_is_proved():
    for size in range(1, 71, 3):
        root = root_of(HASHES[:size])
        for index in range(size):
            proof = inclusion_proof(subtree, index, size)
            assert proof == path(index, LEAVES[:size])
            check_inclusion(HASHES[index], index, size, root, proof)


def test_every_tree_is_proved_to_continue_every_smaller_one():
    for second in range(0, 71, 3):
        for first in range(second + 1):
            proof = consistency_proof(subtree, first, second)
            assert proof == (subproof(first, LEAVES[:second], True) if first else [])
            check_consistency(
                first, second, root_of(HASHES[:first]), root_of(HASHES[:second]), proof
            )


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_other_proof_is_accepted(data):
    """Another leaf, place, size, root, or a hash changed, left out or added."""
    second = data.draw(st.integers(2, 70))
    first = data.draw(st.integers(1, second - 1))
    inclusion = inclusion_proof(subtree, first, second)
    consistency = consistency_proof(subtree, first, second)
    roots = root_of(HASHES[:first]), root_of(HASHES[:second])
    proofs = inclusion, consistency
    by_inclusion = partial(check_inclusion, HASHES[first], first, second, roots[1])
    by_consistency = partial(check_consistency, first, second, *roots)
    for which, proof in enumerate(proofs):
        changed = list(proof)
        place = data.draw(st.integers(0, len(proof)))
        change = data.draw(st.sampled_from(["flip", "drop", "add"]))
        if change == "add" or place == len(proof):
            changed.insert(place, data.draw(st.sampled_from([*HASHES[:5], *proof, *roots])))
        elif change == "drop":
            del changed[place]
        else:
            changed[place] = bytes([changed[place][0] ^ 1, *changed[place][1:]])
        with pytest.raises(VerificationFailed):
            (by_consistency if which else by_inclusion)(changed)
    with pytest.raises(VerificationFailed):
        check_inclusion(HASHES[first - 1], first, second, roots[1], inclusion)
    with pytest.raises(VerificationFailed):
        check_inclusion(HASHES[first], second, second, roots[1], inclusion)
    with pytest.raises(VerificationFailed):
        check_consistency(first, second, roots[0], roots[0], consistency)
    with pytest.raises(VerificationFailed):
        check_consistency(first, second, roots[1], roots[1], consistency)
    with pytest.raises(VerificationFailed):
        check_consistency(second, first, roots[1], roots[0], consistency)


def test_the_tree_of_no_leaves_begins_every_other():
    check_consistency(0, 5, EMPTY, root_of(HASHES[:5]), [])
    with pytest.raises(VerificationFailed):
        check_consistency(0, 5, root_of(HASHES[:1]), root_of(HASHES[:5]), [])
    with pytest.raises(VerificationFailed):
        check_consistency(5, 5, root_of(HASHES[:5]), root_of(HASHES[1:6]), [])
