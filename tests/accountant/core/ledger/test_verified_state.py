"""A verification that goes on where another one was kept is the same as one from the beginning."""

import io
import json
import random

import pytest

from accountant.core.errors import VerificationFailed
from accountant.core.ledger.export_formats import CSV_HEADER, add_json_row, csv_row, csv_totals, verify_lines
from accountant.core.ledger.hash_chain import canonical
from accountant.core.ledger.sorted_keys import SortedKeys
from accountant.core.ledger.verified_state import fingerprint, kept, line_after, resumed
from accountant.core.ledger.verifier import Verifier
from tests.accountant.core.ledger.test_forged_exports import FORGERIES
from tests.accountant.core.ledger.test_shapes import LINES, long
from tests.ledger_exports import export


def seen(lines: list[str], count: int) -> Verifier:
    """A verifier after the first entries of an export."""
    checked = Verifier()
    for line in lines[1 : count + 1]:
        add_json_row(checked, line)
    return checked


def described(found) -> list:
    return [found.dataset, found.entries, found.head, found.books, found.live, found.hidden, found.unproved]


@pytest.mark.parametrize("kind", LINES, ids=str)
def test_it_goes_on_from_any_entry(kind):
    lines = LINES[kind]
    whole = described(verify_lines(lines))
    places = (0, 1, 4, 7, 12, 20, 22, 31, len(lines) - 2, len(lines) - 1)
    checked = Verifier()
    for place in places:  # each kept by one that went on itself
        for line in lines[checked.count + 1 : place + 1]:
            add_json_row(checked, line)
        data = kept(checked)
        checked = resumed(data)
        assert kept(checked) == data
        assert described(verify_lines(lines, verifier=resumed(data))) == whole


@pytest.mark.parametrize("name", list(FORGERIES)[::3])
def test_what_is_forged_after_it_is_refused_as_ever(name):
    """The forged entry, and at times the two before it, come after what was kept."""
    problem, change = FORGERIES[name]
    ledger = long()
    change(ledger)
    lines = export(ledger.lines)
    with pytest.raises(VerificationFailed) as told:
        verify_lines(lines)
    for before in (1, 3):
        place = max(0, (told.value.seq or 1) - before)
        with pytest.raises(VerificationFailed) as again:
            verify_lines(lines, verifier=resumed(kept(seen(lines, place))))
        assert (str(again.value), again.value.seq) == (str(told.value), told.value.seq)
        assert problem in str(again.value)


def test_another_ledger_or_a_shorter_one_is_refused():
    lines = LINES[True, False]
    data = kept(seen(lines, 30))
    with pytest.raises(VerificationFailed, match="states entries 24"):
        verify_lines(export(long().lines[:24]), verifier=resumed(data))
    other = long()
    other.lines[5].body["attempt"] = 2
    with pytest.raises(VerificationFailed, match="entry 31: it does not follow the entry before it"):
        verify_lines(export(other.lines), verifier=resumed(data))


def test_what_was_changed_is_noticed():
    data = kept(seen(LINES[True, False], 30))
    for changed in (
        b"",
        data[:-1],
        data.replace(b'"entries":30', b'"entries":31'),
        data[:900] + b"~" + data[901:],
    ):
        with pytest.raises(VerificationFailed, match="changed, or is none"):
            resumed(changed)
    assert len(fingerprint(data)) == 64


def test_the_line_after_an_entry_is_found():
    for kind in ((True, False), (True, True), (False, False)):
        lines = LINES[kind]
        data = "".join(lines).encode()
        for seq in range(len(lines)):
            place = line_after(io.BytesIO(data), seq)
            assert data[place:].decode() == "".join(lines[seq + 1 :])
    assert line_after(io.BytesIO(data.replace(b"version", b"Version")), 5) is None


def test_csv_goes_on_too():
    lines = LINES[True, False]
    rows = [CSV_HEADER]
    for line in lines[1:]:
        document = json.loads(line)
        recorded = document.pop("hash")
        rows.append(csv_row(document, recorded, canonical(document).decode()))
    rows.append(csv_totals(json.loads(lines[0])))
    going = resumed(kept(seen(lines, 30)))
    assert described(verify_lines(rows, verifier=going)) == described(verify_lines(lines))


def test_sorted_keys_are_a_set():
    drawn = random.Random(3)
    keys = [drawn.randbytes(16) for _ in range(300)]
    found = SortedKeys().with_more(keys[:100]).with_more([]).with_more(keys[100:200])
    assert found.runs == (100, 100)
    assert [key in found for key in keys] == [True] * 200 + [False] * 100
    assert "text" not in found
