"""An export verified in blocks, by one process or several, is judged as one that is read line by line.

Blocks here hold few lines or none, so that borders fall on, before and within every line.
"""

import copy
import io
import multiprocessing
import os
import re
import signal
from datetime import UTC, datetime
from pathlib import Path

import pytest

from accountant.core.errors import HelperLost, VerificationFailed
from accountant.core.ledger import export_blocks
from accountant.core.ledger.checkpoints import Checkpoint, introduction, public_key, read_checkpoint, sign
from accountant.core.ledger.export_blocks import Blocks, in_order, processors, verify
from accountant.core.ledger.export_formats import add_json_row, summary, verify_lines
from accountant.core.ledger.verified_state import kept, resumed
from accountant.core.ledger.verifier import Verifier
from tests.accountant.core.ledger.test_forged_exports import FORGERIES
from tests.accountant.core.ledger.test_shapes import DOCUMENTS, FORGED_TEXTS, LINES, TEXTS, long, rehashed
from tests.ledger_exports import export

HONEST = LINES[True, False]
#: (processes, bytes of a block); a line has 450 to 1,900, an export about 75,000.
WAYS = [(1, 400), (1, 2_500), (2, 2_500), (3, 400), (2, 20_000)]


def by_lines(lines: list[str], verifier: Verifier | None = None, checkpoints: tuple = ()) -> list:
    """What is found line by line: what the verifier holds then, or what is wrong."""
    checked = verifier or Verifier()
    try:
        found = verify_lines(lines, checkpoints, verifier=checked)
    except VerificationFailed as error:
        return [str(error), error.seq]
    return [kept(checked), found.head, found.checkpoints, found.unproved]


@pytest.fixture
def in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """As `by_lines`, in blocks of so many bytes and by so many processes."""

    def found(lines, processes, size, verifier=None, checkpoints=()):
        path = tmp_path / "ledger.jsonl"
        path.write_bytes(lines if isinstance(lines, bytes) else "".join(lines).encode())
        monkeypatch.setattr(export_blocks, "BLOCK", size)
        checked = verifier or Verifier()
        try:
            found = verify(str(path), checkpoints, None, checked, processes)
        except VerificationFailed as error:
            return [str(error), error.seq]
        assert found is not None
        assert multiprocessing.active_children() == []
        return [kept(checked), found.head, found.checkpoints, found.unproved]

    return found


# --- blocks -------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", ["one\ntwo\r\n\nfour", "a\rb\nc\n", "\n\n", "", "é\u2028x\x85\n\x0by\n"])
def test_each_line_is_in_one_block(tmp_path, monkeypatch, content):
    path = tmp_path / "lines"
    path.write_bytes(b"head\n" + content.encode())
    with path.open(encoding="utf-8", newline="") as lines:
        wanted = list(lines)[1:]
    for size in range(1, 20):
        monkeypatch.setattr(export_blocks, "BLOCK", size)
        with path.open("rb") as file:
            blocks = Blocks(file.fileno(), 5)
            assert [each for number in range(blocks.count) for each in blocks.lines(number)] == wanted
            assert sum(block.lines for block in in_order(blocks, 1)) == len(wanted)


def test_a_long_line_is_read_once(tmp_path, monkeypatch):
    """Blocks within a line hold nothing, and are not searched beyond their end."""
    path = tmp_path / "lines"
    path.write_bytes(b"x" * 100_000 + b"\nlast")
    monkeypatch.setattr(export_blocks, "BLOCK", 100)
    read = []
    monkeypatch.setattr(os, "pread", lambda *given, own=os.pread: read.append(given[1]) or own(*given))
    with path.open("rb") as file:
        blocks = Blocks(file.fileno(), 0)
        found = [len(blocks.lines(number)) for number in range(blocks.count)]
    assert (found[0], sum(found), len(found)) == (1, 2, 1_001)
    assert sum(read) < 3 * 100_000


# --- the same is found --------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("kind", LINES, ids=str)
def test_honest_exports(in_blocks, kind, way):
    assert in_blocks(LINES[kind], *way) == by_lines(LINES[kind])


@pytest.mark.parametrize("way", [(2, 2_500), (3, 400)], ids=str)
@pytest.mark.parametrize("name", FORGERIES)
def test_forged_exports_are_refused_by_the_same_entry_and_rule(in_blocks, name, way):
    ledger = long()
    FORGERIES[name][1](ledger)
    lines = export(ledger.lines)
    told = by_lines(lines)
    assert FORGERIES[name][0] in told[0]
    assert in_blocks(lines, *way) == told


def other(digit: str) -> str:
    """Another hexadecimal digit."""
    return "0" if digit != "0" else "1"


DAMAGES = {
    **TEXTS,
    **{f"hashed {name}": change for name, change in FORGED_TEXTS.items() if name != "nothing"},
    "job": lambda line: re.sub('"job":"(.)', lambda found: f'"job":"{other(found[1])}', line),
    "stated hash": lambda line: line[:-4] + other(line[-4]) + line[-3:],
    "no end": lambda line: line.rstrip("\n"),
    "two lines": lambda line: line.replace(',"body"', ',\n"body"'),
    "return": lambda line: line.replace(',"body"', ',\r"body"'),
    "gone": lambda line: "",
    "twice there": lambda line: line * 2,
    "empty line": lambda line: "\n" + line,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_line_that_is_damaged_at_a_border(in_blocks, damage):
    """A border lies where it begins, a byte before and after that, and where it ends."""
    for number in (45, 46, 50, len(HONEST) - 1):  # RESERVE, COMMIT and VOID of known shapes, and the last
        altered = DAMAGES[damage](HONEST[number])
        lines = [*HONEST[:number], altered, *HONEST[number + 1 :]]
        told = by_lines(list(io.StringIO("".join(lines), newline="")))
        if damage in ("job", "stated hash"):
            assert told == [f"entry {number}: its content does not match its hash", number]
        begin = len("".join(HONEST[1:number]).encode())
        for way in ((1, begin), (2, begin - 1), (2, begin + 1), (2, begin + len(altered.encode()))):
            assert in_blocks(lines, *way) == told, (number, way)


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_entries_that_change_places_across_a_border(in_blocks, way):
    for first in (43, 45, 48):
        for second in (first + 1, first + 2):
            lines = list(HONEST)
            lines[first], lines[second] = lines[second], lines[first]
            told = by_lines(lines)
            assert told[1] == first
            assert in_blocks(lines, *way) == told


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_time_that_goes_back(in_blocks, way):
    """All hashes are made anew: nothing else is wrong."""
    for number in (44, 45, 49):
        documents = copy.deepcopy(DOCUMENTS)
        documents[number]["at"] = documents[number - 2]["at"]
        lines = [HONEST[0], *rehashed(documents)[1:]]
        seq = number + 1
        assert in_blocks(lines, *way) == [f"entry {seq}: its time is before that of the entry before it", seq]


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_what_is_no_text_is_told_after_the_entries_before_it(in_blocks, way):
    for wrong in (None, 44, 47):
        lines = [line.encode() for line in HONEST]
        lines[46] = lines[46].replace(b'"salt":"', b'"salt":"\xff', 1)
        if wrong is not None:
            lines[wrong] = lines[wrong].replace(b'"seq":', b'"seq":7', 1)
        problem, seq = in_blocks(b"".join(lines), *way)
        if wrong == 44:
            assert seq == 44
        else:
            assert (problem, seq) == ("the file is not UTF-8 text", None)


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_it_goes_on_where_another_was_kept(in_blocks, way):
    for place in (1, 4, 22, 31, 44, len(HONEST) - 2, len(HONEST) - 1):
        checked = Verifier()
        for line in HONEST[1 : place + 1]:
            add_json_row(checked, line)
        data = kept(checked)
        told = by_lines(HONEST, resumed(data))
        assert in_blocks(HONEST, *way, resumed(data)) == told
        if place < 46:
            lines = [*HONEST[:46], HONEST[46].replace('"seq":', '"seq":7'), *HONEST[47:]]
            told = by_lines(lines, resumed(data))
            assert told[1] == 46
            assert in_blocks(lines, *way, resumed(data)) == told


def signed_at(seq: int, *, balances_of: int | None = None) -> Checkpoint:
    """A checkpoint of the honest export at an entry; `balances_of`: with those at another."""
    checked, seed, now = Verifier(), b"a" * 32, datetime(2026, 11, 21, tzinfo=UTC)
    for line in HONEST[1 : seq + 1]:
        add_json_row(checked, line)
    found = checked.result()
    other = Verifier()
    for line in HONEST[1 : (balances_of or seq) + 1]:
        add_json_row(other, line)
    balances = summary(other.result().books, other.result().live, public=True)
    keys = [introduction(public_key(seed), now, None)]
    return read_checkpoint(sign(found.dataset, seq, found.head, balances, now, seed, keys), None)


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_checkpoints_within_runs_are_compared(in_blocks, way):
    right = tuple(signed_at(seq) for seq in (25, 44, 46, 47, len(HONEST) - 1))
    found = in_blocks(HONEST, *way, None, right)
    assert found == by_lines(HONEST, None, right)
    assert found[2] == right
    wrong = (signed_at(46, balances_of=45),)
    told = ["the balances at entry 46 are not those that a checkpoint was signed for", None]
    assert in_blocks(HONEST, *way, None, wrong) == told == by_lines(HONEST, None, wrong)


# --- processes ----------------------------------------------------------------------------------


@pytest.fixture
def blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "ledger.jsonl"
    path.write_text("".join(HONEST))
    monkeypatch.setattr(export_blocks, "BLOCK", 1_000)
    with path.open("rb") as file:
        yield Blocks(file.fileno(), len(HONEST[0].encode()))


def test_helpers_read_what_this_process_would(blocks):
    """Each of the helpers is asked at once, before this process reads a block itself."""
    for processes in (2, 3):
        assert list(in_order(blocks, processes)) == list(in_order(blocks, 1))


def test_helpers_take_part(blocks, monkeypatch):
    """This process is not able to read a block by itself, and waits for every one."""
    monkeypatch.setattr(export_blocks, "AHEAD", export_blocks.ASKED)
    wanted, own = list(in_order(blocks, 1)), os.getpid()
    read = Blocks.block

    def elsewhere(self, number):
        assert os.getpid() != own
        return read(self, number)

    monkeypatch.setattr(Blocks, "block", elsewhere)
    assert list(in_order(blocks, 2)) == wanted


def test_a_helper_that_is_killed_is_an_error(blocks):
    found = in_order(blocks, 2)
    next(found)
    (helper,) = multiprocessing.active_children()
    assert helper.pid is not None
    os.kill(helper.pid, signal.SIGKILL)
    helper.join()
    with pytest.raises(HelperLost):
        list(found)
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize("after", [0, 1, 3])
def test_a_helper_that_fails_is_an_error_whatever_it_handed_over(blocks, monkeypatch, after, capfd):
    own, read, done = os.getpid(), Blocks.block, []

    def failing(self, number):
        done.append(number)
        if os.getpid() != own and len(done) > after:
            os._exit(0)
        return read(self, number)

    monkeypatch.setattr(Blocks, "block", failing)
    with pytest.raises(HelperLost):
        list(in_order(blocks, 2))


def test_small_files_take_one_process(in_blocks, monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(
        export_blocks,
        "in_order",
        lambda blocks, processes, own=in_order: asked.append(processes) or own(blocks, processes),
    )
    monkeypatch.setattr(export_blocks, "processors", lambda: 3)
    in_blocks(HONEST, None, 2_500)
    monkeypatch.setattr(export_blocks, "SMALL", 20_000)
    in_blocks(HONEST, None, 2_500)
    monkeypatch.setattr(export_blocks, "processors", lambda: 64)
    in_blocks(HONEST, None, 2_500)
    assert asked == [1, 3, 4]
    assert processors() >= 1


def test_other_files_are_left_to_others(tmp_path):
    for content in ("", "\n", "seq,kind\n", " {}", "PAR1"):
        path = tmp_path / "other"
        path.write_text(content)
        assert verify(str(path)) is None
    path.write_text('{"format": "other"}\n')
    with pytest.raises(VerificationFailed, match="no ledger export"):
        verify(str(path))
