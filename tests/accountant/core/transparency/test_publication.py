"""A log published from ledgers, and exports that prove their place in it: as an auditor sees
them.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from accountant.core.errors import InvalidRequest, VerificationFailed
from accountant.core.ledger.export_formats import json_header, verify_lines
from accountant.core.transparency.notes import COSIGNATURE, key_of
from accountant.core.transparency.proofs import Demands, check_export
from accountant.core.transparency.publication import checkpoint, proof_of, publish
from accountant.core.transparency.witnesses import LogSigner
from tests.ledger_exports import DATASET, export, honest
from tests.witness import Witness
from web.cli.verify import _demands

ORIGIN, NAME = "exchequer.example/log", "witness.example/one"
SEED, WITNESS_SEED = b"s" * 32, b"w" * 32
LOG, WITNESS = key_of(ORIGIN, SEED), key_of(NAME, WITNESS_SEED, COSIGNATURE)
LINES = export(honest().lines)
HASHES = [json.loads(line)["hash"] for line in LINES[1:]]
Entry = tuple[str, int, str]

#: Two datasets in turn.
ENTRIES: list[Entry] = [
    each
    for seq, hashed in enumerate(HASHES, 1)
    for each in ((DATASET, seq, hashed), ("other", seq, f"{seq:064x}"))
]


class Desk:
    """A service's side: its ledgers' entries, its signer, and one witness."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "log"
        self.signer = LogSigner(folder / "signer", ORIGIN, SEED)
        self.witness = Witness(folder / "witness", NAME, WITNESS_SEED, {ORIGIN: LOG})
        self.entries = list(ENTRIES)

    def since(self, count: int) -> Iterator[Entry]:
        return iter(self.entries[count:])

    def publish(self, upto: int | None = None, folder: Path | None = None) -> int:
        self.entries = list(ENTRIES[:upto])
        asked = [(WITNESS, self.witness.add_checkpoint)]
        return publish(folder or self.folder, self.since, self.signer, asked).size


@pytest.fixture
def desk(tmp_path):
    return Desk(tmp_path)


def exported(desk: Desk, lines: list[str] = LINES) -> list[str]:
    """The export with the proof that the service has for it."""
    found = proof_of(desk.folder, DATASET, len(lines) - 1)
    assert found is not None
    header = json.loads(lines[0]) | {"log_proof": {"seq": found[0], "proof": found[1]}}
    return [json_header(header), *lines[1:]]


def checked(lines: list[str], asked: Demands) -> tuple[int, int]:
    found = verify_lines(lines)
    seq, logged = check_export(found.dataset, found.hashes, found.log_proof, asked)
    return seq, logged.index


def test_an_export_proves_its_place_in_the_log(desk):
    assert desk.publish(21) == 21
    assert checked(exported(desk), Demands(LOG, [WITNESS])) == (11, 20)
    early, _ = checkpoint(desk.folder)
    assert desk.publish() == 48
    assert desk.publish() == 48
    lines = exported(desk)
    assert checked(lines, Demands(LOG, [WITNESS], folder=desk.folder)) == (24, 46)
    assert checked(lines, Demands(LOG, [WITNESS], early, desk.folder)) == (24, 46)
    with pytest.raises(VerificationFailed, match="only the log's files prove"):
        checked(lines, Demands(LOG, [WITNESS], early))
    with pytest.raises(VerificationFailed, match=r"not signed by witness\.example/two"):
        checked(lines, Demands(LOG, [key_of("witness.example/two", SEED, COSIGNATURE)]))
    with pytest.raises(VerificationFailed, match="has no proof of a log"):
        checked(LINES, Demands(LOG))


def test_another_export_has_no_place_in_the_log(desk):
    """The owner of everything rewrites the ledger: the hash of its last entry is another."""
    desk.publish()
    ledger = honest()
    ledger.lines[-1].body["approval"]["reason"] = "another"
    with pytest.raises(
        VerificationFailed, match="leaf 46 is not proved to stand in the tree of 48"
    ):
        checked(exported(desk, export(ledger.lines)), Demands(LOG, [WITNESS]))


def test_two_trees_of_one_size_are_told_apart(desk, tmp_path):
    desk.publish()
    other = Desk(tmp_path / "other")  # everything of the service's but the witness
    with pytest.raises(StopIteration):
        next(other.since(48))
    ENTRIES_SWAPPED = [*ENTRIES[:-1], ("other", 24, "f" * 64)]
    other.entries = ENTRIES_SWAPPED
    publish(
        other.folder,
        lambda count: iter(ENTRIES_SWAPPED[count:]),
        other.signer,
        [(WITNESS, other.witness.add_checkpoint)],
    )
    theirs, _ = checkpoint(other.folder)
    with pytest.raises(VerificationFailed, match="the log shows two trees of 48 entries"):
        checked(exported(desk), Demands(LOG, [WITNESS], theirs))
    # the true one doesn't
    with pytest.raises(VerificationFailed, match="the witness does not sign"):
        publish(
            tmp_path / "third",
            lambda count: iter(ENTRIES_SWAPPED[count:]),
            LogSigner(tmp_path / "third signer", ORIGIN, SEED),
            [(WITNESS, desk.witness.add_checkpoint)],
        )
    assert not (tmp_path / "third/checkpoint").exists()


def test_ledgers_that_do_not_continue_what_was_signed_are_not_published(desk):
    desk.publish(21)
    kept = (desk.folder / "checkpoint").read_bytes()
    for entries in ([*ENTRIES[:20], ("other", 10, "f" * 64), *ENTRIES[21:]], ENTRIES[:20]):
        with pytest.raises(
            VerificationFailed, match="entry 20 of the log is not that of the ledgers"
        ):
            publish(desk.folder, lambda count, entries=entries: iter(entries[count:]), desk.signer)
    assert (desk.folder / "checkpoint").read_bytes() == kept


def test_a_crash_after_the_tiles_changes_nothing(desk, monkeypatch):
    from accountant.core.transparency import publication

    desk.publish(21)
    with monkeypatch.context() as patch:
        patch.setattr(LogSigner, "sign", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            desk.publish(40)
    assert publication.checkpoint(desk.folder)[1].size == 21
    assert proof_of(desk.folder, DATASET, 24)[0] == 11  # what is not signed is not proved
    assert desk.publish() == 48
    assert checked(exported(desk), Demands(LOG, [WITNESS], folder=desk.folder)) == (24, 46)


def test_a_witness_that_was_away_is_asked_from_where_it_stopped(desk):
    publish(
        desk.folder,
        lambda count: iter(ENTRIES[count:5]),
        desk.signer,
        [(WITNESS, desk.witness.add_checkpoint)],
    )
    publish(desk.folder, lambda count: iter(ENTRIES[count:9]), desk.signer)
    assert desk.publish() == 48
    assert checked(exported(desk), Demands(LOG, [WITNESS])) == (24, 46)


def test_what_is_stated_of_the_log_may_be_anything(desk):
    desk.publish()
    found = verify_lines(exported(desk))
    proof = found.log_proof["proof"]
    for stated in (
        None,
        5,
        {},
        {"seq": True, "proof": proof},
        {"seq": 25, "proof": proof},
        {"seq": 0, "proof": proof},
    ):
        with pytest.raises(VerificationFailed):
            check_export(found.dataset, found.hashes, stated, Demands(LOG))
    for text in (
        None,
        "",
        "c2sp.org/tlog-proof@v1\nindex x\n\n",
        proof[:-1],
        proof.replace("index 46", "index 45"),
        "\n\n",
    ):
        with pytest.raises(VerificationFailed):
            check_export(found.dataset, found.hashes, {"seq": 24, "proof": text}, Demands(LOG))


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ((None, [str(WITNESS)], None, None), "--log-key"),
        (("nonsense", [], None, None), "--log-key"),
        ((str(LOG), ["nonsense"], None, None), "--witness-key"),
        ((str(LOG), [], "absent", None), "--log-checkpoint"),
    ],
)
def test_options_are_checked_before_anything_is_read(given, field):
    with pytest.raises(InvalidRequest, match=field):
        _demands(*given)
