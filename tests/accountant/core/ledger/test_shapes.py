"""Entries of a shape that was judged are judged as those before, whatever is changed in one of them.

One verifier judges every entry in full, the other takes shapes. Entry by entry both say the same, in the same
words, and hold the same state.
"""

import copy
import hashlib
import json
import re
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from accountant.core.errors import VerificationFailed
from accountant.core.ledger import shapes
from accountant.core.ledger.commitments import hidden
from accountant.core.ledger.entry_texts import check_time
from accountant.core.ledger.export_formats import add_columns, add_json_row, columns, json_row, verify_lines
from accountant.core.ledger.hash_chain import canonical, digest, read_time
from accountant.core.ledger.verifier import Verifier, read_object
from tests.accountant.core.ledger.test_foreign_values import NASTY, paths, put
from tests.accountant.core.ledger.test_forged_exports import FORGERIES
from tests.ledger_exports import Ledger, export, fewer, honest, two, written


def long(rules: bool = True) -> Ledger:
    """An honest ledger that goes on with jobs of a few shapes."""
    ledger = honest(rules)
    for turn in range(3):
        for tokens in (5, 7):
            event = ledger.reserve(f"{tokens}-{turn}", tokens_per_batch=tokens, batches_per_label=1)
            ledger.lines[-1].body["approval"] = {"by": "tom", "reason": f"reason {turn}"}
            ledger.commit(f"{tokens}-{turn}", fewer(event) if tokens == 7 else event)
        ledger.reserve(f"void-{turn}", "noisy-count", epsilon=0.2)
        ledger.void(f"void-{turn}")
        event = ledger.reserve(f"lost-{turn}", "noisy-count", epsilon=0.2)
        ledger.commit(f"lost-{turn}", event, "failed")
        ledger.commit(f"count-{turn}", ledger.reserve(f"count-{turn}", "noisy-count", epsilon=0.2))
    return ledger


def reference(checked: Verifier, line: str) -> None:
    """Judge a line in full."""
    document = read_object(line, checked.count + 1)
    recorded = document.pop("hash", None)
    checked.add(document, str(recorded))


def state(checked: Verifier) -> list[Any]:
    """Everything that a verifier holds."""
    replay, lineage, rules = checked.replay, checked.lineage, checked.rules
    return [
        *(checked.dataset, checked.head, checked.count, checked.hidden, checked._version, checked._at),
        *(bytes(checked._hashes), dict(checked._corrections), checked._neighbours, dict(checked._ends.live)),
        *(replay.books, replay.live(), replay.live_count, dict(replay._jobs)),
        {kind: list(jobs) for kind, jobs in replay._closers.items()},
        *(set(lineage._unread), set(lineage._outputs), dict(lineage._released), set(lineage._ex_post)),
        *(rules.terms, rules.policy, set(rules.versions), rules.unproved),
    ]


def compare(lines: list[str]) -> tuple[str | None, int]:
    """Both ways through the same lines: what was wrong, and how many entries were of known shapes."""
    full, quick, again = Verifier(), Verifier(), 0
    for line in lines[1:]:
        problems = []
        for checked, add in ((full, reference), (quick, add_json_row)):
            try:
                add(checked, line)
                problems.append(None)
            except VerificationFailed as error:
                problems.append((str(error), error.seq))
        assert problems[0] == problems[1]
        if problems[0] is not None:
            return problems[0][0], again
        if quick.by_shape != again:  # the state is looked at where it may differ
            again = quick.by_shape
            assert state(full) == state(quick)
    assert state(full) == state(quick)
    return None, again


LINES = {
    (rules, public): export(long(rules).lines, public) for rules in (True, False) for public in (False, True)
}
DOCUMENTS = written(long().lines)[0]
PLACES = [(number, path) for number, each in enumerate(DOCUMENTS) if number > 23 for path in paths(each)]


@pytest.mark.parametrize("kind", LINES, ids=str)
def test_an_honest_ledger_is_judged_alike_and_mostly_by_shape(kind):
    problem, again = compare(LINES[kind])
    assert problem is None
    assert again >= 20  # of the last 30 entries, the first of each shape is judged in full


@pytest.mark.parametrize("name", FORGERIES)
def test_the_forged_exports_are_refused_after_many_of_the_same_shape(name):
    """Each forgery is done to a long ledger, whose later entries are of known shapes."""
    ledger = long()
    FORGERIES[name][1](ledger)
    problem, _ = compare(export(ledger.lines))
    assert problem is not None
    assert FORGERIES[name][0] in problem


def rehashed(documents: list[dict[str, Any]], public: bool = False) -> list[str]:
    """An export of these documents, chained anew as far as they have hashes."""
    head, lines = "0" * 64, ["{}"]
    for each in documents:
        document = {**each, "previous": head} if "previous" in each else each
        try:
            shown = dict(hidden(document)) if public else document
            head = digest(document)
            lines.append(json_row(head, canonical(shown).decode()))
        except (ValueError, RecursionError, VerificationFailed, TypeError, AttributeError, KeyError):
            head = "0" * 64
            try:
                lines.append(json.dumps({**document, "hash": head}) + "\n")
            except (ValueError, RecursionError):
                break
    return lines


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(PLACES),
    st.sampled_from([*NASTY, "ana", "sam", "tom", "eve", "2026-01-01T00:00:00.000000Z"]),
)
@example((44, ("seq",)), 44)
@example((44, ("at",)), "2026-01-01T00:00:00.000000Z")
@example((44, ("at",)), "2026-13-01T00:00:00.000000Z")
@example((44, ("body", "costs", "renyi", "main")), "1")
@example((44, ("body", "approval", "value", "by")), "ana")
@example((44, ("body", "approval", "value", "reason")), " ")
@example((44, ("body", "approval", "value")), {"sha256": "0" * 64})
@example((49, ("body", "reason", "value")), {"sha256": "0" * 64})
@example((44, ("actor", "value")), "eve")
@example((44, ("job",)), DOCUMENTS[34]["job"])
@example((45, ("job",)), DOCUMENTS[34]["job"])
@example((45, ("actor", "value")), 5)
@example((45, ("body", "output_sha256")), "0" * 63 + "A")
@example((49, ("body", "outcome")), "succeeded")
def test_any_value_anywhere_is_judged_alike(place, value):
    number, path = place
    documents = copy.deepcopy(DOCUMENTS)
    put(documents[number], path, value)
    compare(rehashed(documents))


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_entries_that_are_moved_left_out_or_repeated_are_judged_alike(data):
    documents = copy.deepcopy(DOCUMENTS)
    first, second = (data.draw(st.integers(24, len(documents) - 1)) for _ in range(2))
    change = data.draw(st.sampled_from(["swap", "drop", "repeat", "job"]))
    if change == "swap":
        documents[first], documents[second] = documents[second], documents[first]
    elif change == "drop":
        del documents[first]
    elif change == "repeat":
        documents.insert(second, copy.deepcopy(documents[first]))
    else:
        documents[first]["job"] = documents[second]["job"]
    start = min(document["at"] for document in documents)
    for place, document in enumerate(documents):
        document["seq"] = place + 1
        document["at"] = start
    compare(rehashed(documents))


TEXTS = {
    "space": lambda line: line.replace(":", ": ", 1),
    "escaped": lambda line: line.replace('"tom"', '"\\u0074om"'),
    "float": lambda line: line.replace("0.000001", "1e-6"),
    "nul": lambda line: line.replace('"tom"', '"t\0om"'),
    "mark": lambda line: line.replace(line[9:67], "\0o", 1),
    "twice": lambda line: line.replace('"at":', '"at":"x","at":', 1),
    "twice within": lambda line: line.replace('"value":', '"value":1,"value":', 1),
    "salt": lambda line: line[:18] + line[18:50].upper() + line[50:],
    "other salt": lambda line: line[:18] + "0" * 32 + line[50:],
    "time": lambda line: line.replace("2026-03-01T", "2026-02-31T"),
    "week": lambda line: line.replace("2026-03-01T", "2026-W10-1T"),
    "hash": lambda line: line[:-67] + line[-67:].upper(),
    "cut": lambda line: line[: len(line) // 2],
    "end": lambda line: line.rstrip("\n") + "\r\n",
    "more": lambda line: line + " ",
    "zero": lambda line: line.replace('"seq":', '"seq":0'),
    "real": lambda line: line.replace(',"version":2', '.0,"version":2'),
}


@pytest.mark.parametrize("change", TEXTS)
def test_any_other_text_of_an_entry_is_judged_alike(change):
    lines = LINES[True, False]
    for number in (45, 46, 49, 50):  # RESERVE, COMMIT and VOID of known shapes
        altered = TEXTS[change](lines[number])
        compare([*lines[:number], altered, *lines[number + 1 :]])


GOOD = "2026-03-01T09:10:11.000012Z"
TIMES = [
    GOOD,
    "2026-02-29" + GOOD[10:],
    "2024-02-29" + GOOD[10:],
    "2026-W10-1" + GOOD[10:],
    "0000-01-01" + GOOD[10:],
]
TIMES += [GOOD[:place] + digit + GOOD[place + 1 :] for place in range(27) for digit in "0123679T:.Z-+ ٣"]
TIMES += [
    "",
    GOOD[:-1],
    GOOD + "Z",
    GOOD + "\n",
    GOOD[:10],
    "2026-03-01T24:00:00.000000Z",
    "2026-03-01T09:10:11.000012+",
]


def test_a_time_is_checked_as_it_is_read():
    for text in TIMES:
        found = []
        for check in (read_time, check_time):
            try:
                check(text)
                found.append(True)
            except ValueError:
                found.append(False)
        assert found[0] == found[1], text


OPENING = re.compile(r'\{"salt":"[0-9a-f]{32}","value":(?:"[^"]*"|\{[^}]*\})\}')


def with_own_hash(line: str) -> str:
    """The line with the hash that its text has as it stands, canonical or not."""

    def committed(found: re.Match[str]) -> str:
        return f'{{"sha256":"{hashlib.sha256(found[0].encode()).hexdigest()}"}}'

    text = line[:-76] + "}"
    return json_row(hashlib.sha256(OPENING.sub(committed, text).encode()).hexdigest(), text)


FORGED_TEXTS = {
    "value": lambda line: line.replace('"ana"', '"\\u0061na"'),
    "object": lambda line: line.replace('"value":{"by":"tom"', '"value":{"reason":"x","by":"tom"'),
    "mark": lambda line: re.sub(r'"approval":\{[^}]*\}\}', '"approval":\0o', line),
    "space": lambda line: line.replace('"costs":', '"costs": '),
    "previous": lambda line: re.sub('"previous":"[0-9a-f]{64}"', f'"previous":"{"0" * 64}"', line),
    "nothing": lambda line: line,
}


@pytest.mark.parametrize("change", FORGED_TEXTS)
def test_a_text_that_was_hashed_as_it_stands_is_judged_alike(change):
    """A hash is that of the canonical text: that of another text is wrong, though it fits what is written."""
    lines, number = LINES[True, False], 45
    altered = with_own_hash(FORGED_TEXTS[change](lines[number]))
    problem, _ = compare([*lines[:number], altered, *lines[number + 1 :]])
    assert (problem is None) is (change == "nothing")
    if change == "space":  # two of them, the first with its right hash: no shape may be learned from it
        early = [FORGED_TEXTS[change](line) if at == 25 else line for at, line in enumerate(lines)]
        assert compare([*early[:number], altered, *lines[number + 1 :]])[0] is not None


def test_columns_beside_a_text_of_a_known_shape_are_compared():
    checked = Verifier()
    for line in LINES[True, False][1:]:
        document = json.loads(line)
        hashed = document.pop("hash")
        row = list(columns(document, hashed, canonical(document).decode()))
        if checked.count == 45:
            for place in range(5):
                wrong = copy.deepcopy(checked)
                with pytest.raises(
                    VerificationFailed, match=f"its column {('seq', 'kind', 'at', 'actor', 'job')[place]}"
                ):
                    add_columns(wrong, [*row[:place], "x", *row[place + 1 :]])
        add_columns(checked, row)
    assert checked.by_shape >= 20


def test_a_commitment_in_an_opening_hides_nobody():
    """A full export could else leave its approvals unchecked, and not say that anything is hidden."""
    ledger = honest()
    (found,) = (
        each
        for each in ledger.lines
        if each.kind == "RESERVE" and each.body["approval"] and each.actor == "sam"
    )
    found.body["approval"] = {"sha256": "0" * 64}
    with pytest.raises(VerificationFailed, match="opened as a commitment"):
        verify_lines(export(ledger.lines))


def test_a_shape_is_forgotten_when_a_rule_changes():
    """The next job of it is judged by the new rule: here one that asks for approval of another mechanism."""
    ledger = long()
    ledger.policy(analysts=["ana", "sam"], mechanisms=["noisy-count"])
    ledger.reserve("again", tokens_per_batch=5, batches_per_label=1)
    problem, again = compare(export(ledger.lines))
    assert again
    assert problem is not None
    assert "the policy does not allow the mechanism 'private-prediction'" in problem


def test_few_shapes_are_kept(monkeypatch):
    monkeypatch.setattr(shapes, "SHAPES", 3)
    assert compare(LINES[True, False])[0] is None


def test_an_approver_who_is_no_owner_is_refused_by_shape_too():
    """The first job of a shape was approved by an owner of the dataset, the next one by somebody else."""
    ledger = long()
    ledger.policy(two(), analysts=["ana", "sam"], stewards=["sam", "tom"])
    for turn in ("first", "second"):
        event = ledger.reserve(turn, tokens_per_batch=5, batches_per_label=1)
        ledger.commit(turn, event)
    assert compare(export(ledger.lines))[0] is None
    ledger.lines[-2].body["approval"] = {"by": "eve", "reason": "why not"}
    problem, _ = compare(export(ledger.lines))
    assert problem is not None
    assert "'eve' approved it, who is not among the stewards" in problem
