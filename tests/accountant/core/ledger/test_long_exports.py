"""Long exports, whose later entries are like earlier ones: what is wrong in one of them is found
too.
"""

import copy
import hashlib
import json
import re
from datetime import UTC, datetime
from typing import Any

import pytest

from accountant.core.errors import VerificationFailed
from accountant.core.ledger.checkpoints import (
    Checkpoint,
    introduction,
    public_key,
    read_checkpoint,
    sign,
)
from accountant.core.ledger.commitments import hidden
from accountant.core.ledger.export_formats import json_row, summary, verify_lines
from accountant.core.ledger.hash_chain import canonical, digest, read_time
from accountant.core.ledger.verifier import Verifier, read_document
from tests.accountant.core.ledger.test_forged_exports import FORGERIES
from tests.ledger_exports import Ledger, export, fewer, honest, two, written
from web.cli.verify import verified


def long() -> Ledger:
    """An honest ledger that goes on with jobs of a few shapes."""
    ledger = honest()
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


def add_line(checked: Verifier, line: str) -> None:
    """Check one line of an export."""
    document = read_document(line)
    recorded = document.pop("hash", None)
    checked.add(document, str(recorded))


def problem_of(lines: list[str]) -> tuple[str, int | None] | None:
    """What is wrong with an export's entries, and where."""
    checked = Verifier()
    try:
        for line in lines[1:]:
            add_line(checked, line)
    except VerificationFailed as error:
        return str(error), error.seq
    return None


LINES = {public: export(long().lines, public) for public in (False, True)}
HONEST = LINES[False]
DOCUMENTS = written(long().lines)[0]


@pytest.mark.parametrize("kind", LINES, ids=str)
def test_an_honest_ledger_stands(kind):
    assert verify_lines(LINES[kind]).entries == len(LINES[kind]) - 1


@pytest.mark.slow
@pytest.mark.parametrize("name", list(FORGERIES)[::5])
def test_the_forged_exports_are_refused_after_many_of_the_same_shape(name):
    ledger = long()
    FORGERIES[name][1](ledger)
    with pytest.raises(VerificationFailed, match=re.escape(FORGERIES[name][0])):
        verify_lines(export(ledger.lines))


def rehashed(documents: list[dict[str, Any]], public: bool = False) -> list[str]:
    """An export of these documents, chained anew as far as they have hashes."""
    head, lines = "0" * 64, ["{}"]
    for each in documents:
        document = {**each, "previous": head} if "previous" in each else each
        try:
            shown = dict(hidden(document)) if public else document
            head = digest(document)
            lines.append(json_row(head, canonical(shown).decode()))
        except (
            ValueError,
            RecursionError,
            VerificationFailed,
            TypeError,
            AttributeError,
            KeyError,
        ):
            head = "0" * 64
            try:
                lines.append(json.dumps({**document, "hash": head}) + "\n")
            except (ValueError, RecursionError):
                break
    return lines


def other(digit: str) -> str:
    """Another hexadecimal digit."""
    return "0" if digit != "0" else "1"


DAMAGES = {
    # Other texts of the same entry, of which one alone is canonical.
    "space": lambda line: line.replace(":", ": ", 1),
    "blank at the end": lambda line: line.rstrip("\n") + " \n",
    "escaped": lambda line: line.replace('"dataset"', '"\\u0064ataset"'),
    "another order": lambda line: line.replace(',"version":2', "").replace("{", '{"version":2,', 1),
    "twice said": lambda line: line.replace('"seq":', '"seq":1,"seq":'),
    "exponent": lambda line: line.replace(',"version":2', 'e0,"version":2'),
    "Windows": lambda line: line.rstrip("\n") + "\r\n",
    "nul": lambda line: line.replace('"actor":', '"act\0or":'),
    "salt": lambda line: line[:18] + line[18:50].upper() + line[50:],
    "other salt": lambda line: line[:18] + "0" * 32 + line[50:],
    "time": lambda line: line.replace("2026-03-01T", "2026-02-31T"),
    "week": lambda line: line.replace("2026-03-01T", "2026-W10-1T"),
    "hash": lambda line: line[:-67] + line[-67:].upper(),
    "cut": lambda line: line[: len(line) // 2],
    "zero": lambda line: line.replace('"seq":', '"seq":0'),
    "real": lambda line: line.replace(',"version":2', '.0,"version":2'),
    "job": lambda line: re.sub('"job":"(.)', lambda found: f'"job":"{other(found[1])}', line),
    "stated hash": lambda line: line[:-4] + other(line[-4]) + line[-3:],
    "two lines": lambda line: line.replace(',"body"', ',\n"body"'),
    "return": lambda line: line.replace(',"body"', ',\r"body"'),
    "gone": lambda line: "",
    "twice there": lambda line: line * 2,
    "empty line": lambda line: "\n" + line,
    "no text": lambda line: line.replace('"salt":"', '"salt":"\udcff', 1),
}
NUMBERS = (45, len(HONEST) - 1)  # a RESERVE like those before it, and the last


def of_file(path, lines: list[str]):
    path.write_bytes("".join(lines).encode(errors="surrogateescape"))
    return verified(str(path))


def test_the_last_line_may_lack_its_end(tmp_path):
    assert (
        of_file(tmp_path / "ledger.jsonl", [*HONEST[:-1], HONEST[-1][:-1]]).entries
        == len(HONEST) - 1
    )


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_line_that_is_damaged(tmp_path, damage):
    for number in NUMBERS:
        lines = [*HONEST[:number], DAMAGES[damage](HONEST[number]), *HONEST[number + 1 :]]
        with pytest.raises(VerificationFailed) as told:
            of_file(tmp_path / "ledger.jsonl", lines)
        if damage in ("job", "stated hash", "other salt"):
            assert str(told.value) == f"entry {number}: its content does not match its hash"


def test_entries_that_change_places():
    for first in (43, 45, 48):
        for second in (first + 1, first + 2):
            lines = list(HONEST)
            lines[first], lines[second] = lines[second], lines[first]
            problem = problem_of(lines)
            assert problem is not None
            assert problem[1] == first


def test_a_time_that_goes_back():
    """All hashes are made anew: nothing else is wrong."""
    for number in (44, 45, 49):
        documents = copy.deepcopy(DOCUMENTS)
        documents[number]["at"] = documents[number - 2]["at"]
        seq = number + 1
        told = f"entry {seq}: its time is before that of the entry before it", seq
        assert problem_of(rehashed(documents)) == told


def test_what_is_no_text_is_told_after_the_entries_before_it(tmp_path):
    lines = [*HONEST[:46], DAMAGES["no text"](HONEST[46]), *HONEST[47:]]
    with pytest.raises(VerificationFailed, match="the file is not UTF-8 text"):
        of_file(tmp_path / "ledger.jsonl", lines)


def signed_at(seq: int, *, balances_of: int | None = None) -> Checkpoint:
    """A checkpoint of the honest export at an entry; `balances_of`: with those at another."""
    checked, seed, now = Verifier(), b"a" * 32, datetime(2026, 11, 21, tzinfo=UTC)
    for line in HONEST[1 : seq + 1]:
        add_line(checked, line)
    found = checked.result()
    other = Verifier()
    for line in HONEST[1 : (balances_of or seq) + 1]:
        add_line(other, line)
    balances = summary(other.result().books, other.result().live, public=True)
    keys = [introduction(public_key(seed), now, None)]
    return read_checkpoint(sign(found.dataset, seq, found.head, balances, now, seed, keys), None)


def test_checkpoints_within_the_ledger_are_compared():
    right = tuple(signed_at(seq) for seq in (25, 44, 46, 47, len(HONEST) - 1))
    assert verify_lines(HONEST, right).checkpoints == right
    told = "the balances at entry 46 are not those that a checkpoint was signed for"
    with pytest.raises(VerificationFailed, match=told):
        verify_lines(HONEST, (signed_at(46, balances_of=45),))


GOOD = "2026-03-01T09:10:11.000012Z"
WRONG_TIMES = [
    "2026-02-29" + GOOD[10:],
    "2026-W10-1" + GOOD[10:],
    "0000-01-01" + GOOD[10:],
]
SPELLED = [
    GOOD[:place] + digit + GOOD[place + 1 :] for place in range(27) for digit in "0123679T:.Z-+ ٣"
]
WRONG_TIMES += [
    "",
    GOOD[:-1],
    GOOD + "Z",
    GOOD + "\n",
    GOOD[:10],
    "2026-03-01T24:00:00.000000Z",
    "2026-03-01T09:10:11.000012+",
]


def test_a_time_has_one_spelling():
    for text in (GOOD, "2024-02-29" + GOOD[10:]):
        assert read_time(text).isoformat()[:26] == text[:26]
    for text in WRONG_TIMES:
        with pytest.raises(ValueError):  # noqa: PT011
            read_time(text)
    for text in SPELLED:  # any time that is read is written the same again
        try:
            found = read_time(text)
        except ValueError:
            continue
        assert found.isoformat(timespec="microseconds")[:26] + "Z" == text


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
def test_a_text_that_was_hashed_as_it_stands_is_refused(change):
    """A hash is that of the canonical text: that of another text is wrong, though it fits what is
    written.
    """
    number = 45
    altered = with_own_hash(FORGED_TEXTS[change](HONEST[number]))
    problem = problem_of([*HONEST[:number], altered, *HONEST[number + 1 :]])
    assert (problem is None) is (change == "nothing")


def test_a_commitment_in_an_opening_hides_nobody():
    """A full export could else leave its approvals unchecked, and not say that anything is
    hidden.
    """
    ledger = honest()
    (found,) = (
        each
        for each in ledger.lines
        if each.kind == "RESERVE" and each.body["approval"] and each.actor == "sam"
    )
    found.body["approval"] = {"sha256": "0" * 64}
    with pytest.raises(VerificationFailed, match="opened as a commitment"):
        verify_lines(export(ledger.lines))


def test_a_job_is_judged_by_the_policy_in_force():
    """The next job of a shape is judged by the new policy: here one that allows another
    mechanism.
    """
    ledger = long()
    ledger.policy(analysts=["ana", "sam"], mechanisms=["noisy-count"])
    ledger.reserve("again", tokens_per_batch=5, batches_per_label=1)
    with pytest.raises(
        VerificationFailed, match="does not allow the mechanism 'private-prediction'"
    ):
        verify_lines(export(ledger.lines))


def test_an_approver_who_is_no_owner_is_refused_after_one_who_is():
    """The first job of a shape was approved by an owner of the dataset, the next one by somebody
    else.
    """
    ledger = long()
    ledger.policy(two(), analysts=["ana", "sam"], stewards=["sam", "tom"])
    for turn in ("first", "second"):
        event = ledger.reserve(turn, tokens_per_batch=5, batches_per_label=1)
        ledger.commit(turn, event)
    assert problem_of(export(ledger.lines)) is None
    ledger.lines[-2].body["approval"] = {"by": "eve", "reason": "why not"}
    with pytest.raises(
        VerificationFailed, match="'eve' approved it, who is not among the stewards"
    ):
        verify_lines(export(ledger.lines))
