"""Nobody signs two heads that contradict each other: neither the service nor a foreign witness."""

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from accountant.core.errors import VerificationFailed
from accountant.core.transparency.merkle import consistency_proof, leaf_hash, root_of
from accountant.core.transparency.notes import COSIGNATURE, Head, Key, key_of, note, sign
from accountant.core.transparency.proofs import (
    check_head,
    check_logged,
    check_only_history,
    leaf,
    proof_text,
)
from accountant.core.transparency.tiles import Tiles, extend
from accountant.core.transparency.witnesses import (
    LogSigner,
    cosigned,
    request_text,
)
from tests.witness import Witness, read_request

ORIGIN, NAME = "exchequer.example/log", "witness.example/one"
SEED, WITNESS_SEED = b"s" * 32, b"w" * 32
LOG = key_of(ORIGIN, SEED)
WITNESS = key_of(NAME, WITNESS_SEED, COSIGNATURE)

#: The witness as a process of its own: its key and its state are its own, and it sees requests
#: alone.
PROGRAM = """
import json, sys
from pathlib import Path
from accountant.core.transparency.notes import read_key
from tests.witness import Witness
folder, name, seed, origin, log = sys.argv[1:]
for line in sys.stdin:
    witness = Witness(Path(folder), name, bytes.fromhex(seed), {origin: read_key(log)})
    print(json.dumps(witness.add_checkpoint(json.loads(line))), flush=True)
"""


class Foreign:
    """A witness that is asked over a pipe."""

    def __init__(self, folder: Path) -> None:
        command = [
            sys.executable,
            "-c",
            PROGRAM,
            str(folder),
            NAME,
            WITNESS_SEED.hex(),
            ORIGIN,
            str(LOG),
        ]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, request: str) -> tuple[int, str]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        status, body = json.loads(self.process.stdout.readline())
        return status, body


@pytest.fixture
def foreign(tmp_path) -> Iterator[Foreign]:
    found = Foreign(tmp_path / "witness")
    yield found
    assert found.process.stdin is not None
    found.process.stdin.close()
    found.process.wait(10)


def entries(count: int, dataset: str = "notes") -> list[bytes]:
    return [leaf(dataset, seq, f"{seq:064x}") for seq in range(1, count + 1)]


def test_a_growing_log_is_signed_and_its_entries_are_proved(tmp_path, foreign):
    signer, size = LogSigner(tmp_path / "signer", ORIGIN, SEED), 0
    given = entries(300)
    for wanted in (1, 5, 256, 300):
        size = extend(tmp_path / "log", size, given[size:wanted])
        tiles = Tiles(tmp_path / "log", size)
        checkpoint = cosigned(signer.sign(tiles), tiles, WITNESS, foreign.ask)
        head, signed = check_head(checkpoint, LOG, [WITNESS])
        assert (head.size, head.root) == (wanted, root_of(list(map(leaf_hash, given[:wanted]))))
        assert signed[WITNESS] is not None
    assert signer.sign(tiles) == signer.sign(tiles)  # the same head again is no second one
    proof = proof_text(tiles, 259, checkpoint)
    assert check_logged(proof, given[259], LOG, [WITNESS]).index == 259
    with pytest.raises(VerificationFailed, match="not proved to stand"):
        check_logged(proof, given[258], LOG, [WITNESS])
    with pytest.raises(VerificationFailed, match="not signed by other"):
        check_logged(proof, given[259], LOG, [WITNESS, Key("other", COSIGNATURE, bytes(32))])
    assert check_only_history(tiles, head, "notes", [f"{seq:064x}" for seq in range(1, 299)]) == 300


# --- split views --------------------------------------------------------------------------------


class Forest:
    """Trees that agree up to a leaf and differ from it on, in memory: an owner can make any."""

    def __init__(self) -> None:
        self.honest = [leaf_hash(each) for each in entries(200)]

    def forked(self, at: int, size: int) -> list[bytes]:
        made = [
            leaf_hash(leaf("notes", seq, f"{seq + 10**6:064x}")) for seq in range(at + 1, size + 1)
        ]
        return self.honest[:at] + made


def subtree_of(hashes: list[bytes]):
    return lambda start, end: root_of(hashes[start:end])


@pytest.mark.slow
def test_of_a_thousand_split_views_none_is_cosigned(foreign, tmp_path):
    """The attacker has the service's key, may write any tree, and has kept every answer of the
    witness.
    """
    drawn, forest = random.Random(5), Forest()
    size, kept = 0, []
    for attempt in range(1_000):
        if attempt % 20 == 0 and size < 190:  # the honest log goes on
            grown = size + drawn.randint(1, 4)
            head = Head(ORIGIN, grown, root_of(forest.honest[:grown]))
            proof = consistency_proof(subtree_of(forest.honest), size, grown)
            made = note(str(head), [sign(str(head), ORIGIN, SEED)])
            status, line = foreign.ask(request_text(size, proof, made))
            assert status == 200
            kept.append(line)
            size = grown
            check_head(made + line, LOG, [WITNESS])
        fork = drawn.randrange(size)
        other = forest.forked(fork, drawn.randint(fork + 1, 200))
        head = Head(ORIGIN, len(other), root_of(other))
        made = note(str(head), [sign(str(head), ORIGIN, SEED)])  # with the service's own key
        way = drawn.choice(["ask", "ask", "older", "zero", "random", "moved"])
        old = {"zero": 0, "older": drawn.randrange(size + 1)}.get(way, size)
        first = min(old, len(other))
        proof = consistency_proof(subtree_of(other), first, len(other))
        if way == "random":
            proof = [drawn.randbytes(32) for _ in range(drawn.randrange(9))]
        elif way == "ask" and drawn.random() < 0.5:  # the proof that the honest tree had
            proof = consistency_proof(subtree_of(forest.honest), first, len(other))
        status, line = foreign.ask(request_text(old, proof, made))
        assert status != 200
        lines = [line] if way != "moved" else [drawn.choice(kept)]  # a signature of another head
        for each in lines:
            with pytest.raises(VerificationFailed):
                check_head(made + each, LOG, [WITNESS])
    assert len(kept) > 30


def test_a_dataset_with_two_histories_in_one_log_is_found(tmp_path):
    """The witness can't see it: the log only grows. Whoever reads its leaves does."""
    other = [leaf("notes", seq, f"{seq + 7:064x}") for seq in (2, 3)]
    size = extend(tmp_path, 0, [*entries(3), *entries(2, "letters"), *other])
    tiles = Tiles(tmp_path, size)
    head = Head(ORIGIN, size, tiles.root())
    assert check_only_history(tiles, head, "letters") == 2
    with pytest.raises(VerificationFailed, match="two histories of it, or a gap"):
        check_only_history(tiles, head, "notes")
    with pytest.raises(VerificationFailed, match="not those of its checkpoint"):
        check_only_history(tiles, Head(ORIGIN, size, bytes(32)), "letters")
    with pytest.raises(VerificationFailed, match="has another entry 2"):
        check_only_history(tiles, head, "letters", [f"{1:064x}", f"{9:064x}"])
    with pytest.raises(VerificationFailed, match="has 2 entries of 'letters', the ledger 3"):
        check_only_history(tiles, head, "letters", [f"{seq:064x}" for seq in (1, 2, 3)])


# --- the log's own signature --------------------------------------------------------------------


def test_the_service_signs_no_second_head(tmp_path):
    """Not even started anew, on a log that lost entries or that another took the place of."""
    extend(tmp_path / "log", 0, entries(10))
    signer = LogSigner(tmp_path / "signer", ORIGIN, SEED)
    signer.sign(Tiles(tmp_path / "log", 10))
    extend(tmp_path / "other", 0, [b"other", *entries(10)[1:]])
    extend(tmp_path / "other", 10, entries(11)[10:])
    again = LogSigner(tmp_path / "signer", ORIGIN, SEED)
    assert again.newest.size == 10
    for size, folder, problem in (
        (9, "log", "10 were signed: some are missing"),
        (10, "other", "not proved to continue"),
        (11, "other", "not proved to continue"),
    ):
        with pytest.raises(VerificationFailed, match=problem):
            again.sign(Tiles(tmp_path / folder, size))
    assert again.newest.size == 10


def test_what_is_signed_is_kept_before(tmp_path, monkeypatch):
    """A crash between the two loses the signature, not the knowledge of it."""
    from accountant.core.transparency import witnesses

    extend(tmp_path / "log", 0, entries(10))
    extend(tmp_path / "other", 0, [b"other", *entries(10)[1:]])
    signer = LogSigner(tmp_path / "signer", ORIGIN, SEED)

    def crash(*_: object) -> str:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(witnesses, "sign", crash)
        with pytest.raises(KeyboardInterrupt):
            signer.sign(Tiles(tmp_path / "log", 10))
    with pytest.raises(VerificationFailed):
        signer.sign(Tiles(tmp_path / "other", 10))
    assert check_head(signer.sign(Tiles(tmp_path / "log", 10)), LOG)[0].size == 10


# --- the protocol of witnesses ------------------------------------------------------------------


def test_a_witness_answers_as_the_protocol_says(tmp_path):
    extend(tmp_path / "log", 0, entries(20))
    witness = Witness(
        tmp_path / "witness", NAME, WITNESS_SEED, {ORIGIN: LOG}, lambda: 1_700_000_000.5
    )
    five, twenty = (Tiles(tmp_path / "log", size) for size in (5, 20))
    extend(tmp_path / "log", 0, entries(5))  # the partial tile of 5

    def signed(tiles: Tiles, origin: str = ORIGIN, seed: bytes = SEED) -> str:
        head = Head(origin, tiles.size, tiles.root())
        return note(str(head), [sign(str(head), origin, seed)])

    def asked(old: int, proof: list[bytes], checkpoint: str) -> int:
        return witness.add_checkpoint(request_text(old, proof, checkpoint))[0]

    assert asked(0, [], signed(five, "elsewhere.example")) == 404
    assert asked(0, [], signed(five, seed=b"x" * 32)) == 403
    assert asked(6, [], signed(five)) == 400
    assert witness.add_checkpoint("old 0\n\nnothing")[0] == 400
    assert asked(0, [bytes(32)], signed(five)) == 422
    status, line = witness.add_checkpoint(request_text(0, [], signed(five)))
    assert (status, check_head(signed(five) + line, LOG, [WITNESS])[1][WITNESS]) == (
        200,
        1_700_000_000,
    )
    assert witness.add_checkpoint(request_text(0, [], signed(twenty))) == (409, "5\n")
    assert asked(5, [], signed(twenty)) == 422
    assert asked(5, [], signed(five)) == 200  # the same head again
    extend(tmp_path / "other", 0, [b"other", *entries(5)[1:]])
    assert asked(5, [], signed(Tiles(tmp_path / "other", 5))) == 409  # another one of the same size
    assert asked(5, twenty.consistency(5), signed(twenty)) == 200
    assert asked(5, twenty.consistency(5), signed(twenty)) == 409


@pytest.mark.parametrize(
    "text", ["old 1", "old 01\n\nx", "old -1\n\nx", "1\n\nx", "old 1\nA\n\nx", "old ²\n\nx"]
)
def test_what_is_no_request_is_refused(text):
    with pytest.raises(VerificationFailed):
        read_request(text)
    with pytest.raises(VerificationFailed, match="more than 63"):
        read_request("old 1\n" + "AAAA\n" * 64 + "\nx")
