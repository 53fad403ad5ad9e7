"""10,000 forged exports, each a true one with something changed: none verifies that states
something false. Each change runs 1,000 of them, a release all.

A third change the text and leave its hashes. The others are what the owner of a database can do: an
entry is changed, every hash after it made anew, and the totals are those that the entries add up
to.

    form    the same value in another form, a field that no reader knows, a value hidden, a person
            respelled: refused, whoever signed it
    value   other values, entries and fields moved, swapped or left out: refused by the key that an
            auditor knows; without a key they verify only if nothing that was spent is another
"""

import copy
import json
import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from accountant.core.errors import ExchequerError, VerificationFailed
from accountant.core.ledger import commitments, export_formats
from accountant.core.ledger.checkpoints import public_key
from accountant.core.ledger.export_formats import json_header, json_row, summary, verify_lines
from accountant.core.ledger.hash_chain import GENESIS, EntryKind, canonical, digest
from accountant.core.ledger.replay import Replay
from accountant.core.ledger.verifier import Verified
from tests.accountant.core.ledger.test_forged_claims import SEED, signed_lines, with_ex_post
from tests.ledger_exports import DATASET
from tests.passkeys import signed_ledger

Document = dict[str, Any]
TURNS, FEW, EACH = 20, 1, 500


class Truth(NamedTuple):
    """A true export, its documents and the balances that it states."""

    lines: list[str]
    documents: list[Document]
    charged: list[Any]


def truth_of(lines: list[str]) -> Truth:
    found = verify_lines(lines, pinned=public_key(SEED))
    documents = [json.loads(line) for line in lines[1:]]
    for document in documents:
        del document["hash"]
    return Truth(lines, documents, charged(found))


def charged(found: Verified) -> list[Any]:
    """What is spent and reserved in each filter and currency, and how many jobs there were."""
    stated = summary(found.books, found.live)
    filters = [(each["spent"], each["reserved"], each["closed"]) for each in stated["filters"]]
    return [
        filters,
        stated.get("ex_post", [])[1:],
        stated["live_reservations"],
        found.books.history.jobs,
    ]


TRUTHS = [truth_of(signed_lines(made())) for made in (with_ex_post, signed_ledger)]


# --- changes of the text --------------------------------------------------------------------------


def other_character(line: str, dice: random.Random) -> str:
    place = dice.randrange(len(line) - 1)
    return line[:place] + dice.choice('0123456789abcdefAZ{}[]",: \\é\u200b') + line[place + 1 :]


def missing_character(line: str, dice: random.Random) -> str:
    place = dice.randrange(len(line) - 1)
    return line[:place] + line[place + 1 :]


def blank(line: str, dice: random.Random) -> str:
    places = [place for place, each in enumerate(line) if each in ",:{}[]"]
    place = dice.choice(places)
    return line[:place] + dice.choice([" ", "\t", "\r", "\n", "\u00a0"]) + line[place:]


def escaped(line: str, dice: random.Random) -> str:
    place = dice.choice([place for place, each in enumerate(line) if each.isalnum()])
    return f"{line[:place]}\\u{ord(line[place]):04x}{line[place + 1 :]}"


def named_twice(line: str, dice: random.Random) -> str:
    """A name of an object once more, with its own value or another's, before it or at the end."""
    name, value = dice.choice(list(json.loads(line).items()))
    stated = json.dumps(dice.choice([value, None, "", 1, GENESIS]), separators=(",", ":"))
    pair = f'"{name}":{stated}'
    return f"{{{pair},{line[1:]}" if dice.random() < 0.5 else f"{line[:-2]},{pair}}}\n"


def respelled_number(line: str, dice: random.Random) -> str:
    places = [
        place for place, each in enumerate(line[:-1]) if each == ":" and line[place + 1].isdigit()
    ]
    if not places:
        return missing_character(line, dice)
    place = dice.choice(places) + 1
    end = next(at for at in range(place, len(line)) if line[at] in ",}]")
    number = line[place:end]
    forms = [
        f"{number}.0",
        f"{number}e0",
        f"0{number}",
        f"+{number}",
        f'"{number}"',
        f"{number}.0e+0",
    ]
    return line[:place] + dice.choice(forms) + line[end:]


def reordered(line: str, dice: random.Random) -> str:
    pairs = list(json.loads(line).items())
    dice.shuffle(pairs)
    return json.dumps(dict(pairs), separators=(",", ":"), ensure_ascii=False) + "\n"


def uppercase(line: str, dice: random.Random) -> str:
    """A hash or salt in capitals."""
    texts = [text for text in line.split('"') if len(text) in (32, 64) and text != text.upper()]
    return line.replace(text := dice.choice(texts), text.upper(), 1) if texts else line.upper()


IN_LINE = (
    other_character,
    missing_character,
    blank,
    escaped,
    named_twice,
    respelled_number,
    reordered,
    uppercase,
)


def changed_text(truth: Truth, dice: random.Random) -> list[str]:
    lines = list(truth.lines)
    row, other = dice.randrange(len(lines)), dice.randrange(len(lines))
    match dice.randrange(8):
        case 0:
            del lines[row]
        case 1:
            lines.insert(other, lines[row])
        case 2:
            lines[row], lines[other] = lines[other], lines[row]
        case 3:
            lines[0] = json_header(changed_claim(json.loads(lines[0]), dice))
        case _:
            lines[row] = dice.choice(IN_LINE)(lines[row], dice)
    return lines


def changed_claim(claimed: Document, dice: random.Random) -> Document:
    name = dice.choice(list(claimed))
    value = claimed.pop(name)
    if dice.random() < 0.3:
        # without its checkpoint it says nothing false, and the key that is known misses it
        return claimed
    if isinstance(value, dict):
        place, holder, own = dice.choice(list(leaves(value)))
        holder[own] = other_value(place, dice)
        return {**claimed, name: value}
    return {**claimed, name: other_value(value, dice), dice.choice(["public", "note", name]): True}


# --- changes of the entries -----------------------------------------------------------------------


def leaves(value: Any) -> Iterator[tuple[Any, Any, Any]]:
    """(value, object or list that holds it, its name there) of each value without parts."""
    for name, part in list(value.items() if isinstance(value, dict) else enumerate(value)):
        if isinstance(part, dict | list) and part:
            yield from leaves(part)
        else:
            yield part, value, name


def objects(value: Any) -> Iterator[Document]:
    if isinstance(value, dict):
        yield value
    for part in (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    ):
        yield from objects(part)


def other_value(value: Any, dice: random.Random) -> Any:
    """Another value of the same kind."""
    match value:
        case bool():
            return not value
        case int():
            return value + dice.choice([-1, 1, 7])
        case float():
            return value * 2
        case str() if value:
            place = dice.randrange(len(value))
            digit = dice.choice([each for each in "0123456789" if each != value[place]])
            return value[:place] + digit + value[place + 1 :]
        case _:
            return dice.choice([0, "x", True, ["x"]])


def in_another_form(value: Any, dice: random.Random) -> Any:
    """A value as another type, which a careless reader takes for the same."""
    match value:
        case bool():
            return dice.choice([int(value), str(value).lower(), [value]])
        case int() | float():
            return dice.choice(
                [str(value), [value], {"value": value}, bool(value) if value in (0, 1) else None]
            )
        case str() if value.isdigit() and len(value) < 16:
            return dice.choice([int(value), f"0{value}", f"+{value}", f"{value}.0", f" {value}"])
        case str():
            return dice.choice([[value], {"value": value}, {value: None}])
        case None:
            return dice.choice(["", 0, False, [], {}])
        case _:
            return dice.choice([None, "", {"": ""}, [None]])


def form_of_a_value(documents: list[Document], dice: random.Random) -> None:
    value, holder, name = dice.choice(list(leaves(dice.choice(documents))))
    holder[name] = in_another_form(value, dice)


def a_field_that_nobody_knows(documents: list[Document], dice: random.Random) -> None:
    holder = dice.choice(list(objects(dice.choice(documents))))
    holder[dice.choice(["note", "sha256 ", "", "approved", "Reason"])] = dice.choice(
        ["yes", True, 0, {}]
    )


def a_hidden_value(documents: list[Document], dice: random.Random) -> None:
    openings = [
        each
        for document in documents
        for each in objects(document)
        if set(each) == {"salt", "value"}
    ]
    opening = dice.choice(openings)
    hashed = commitments.commitment(opening)
    opening.clear()
    opening["sha256"] = dice.choice([hashed, "0" * 64])


def a_person_respelled(documents: list[Document], dice: random.Random) -> None:
    ways: list[Callable[[str], str]] = [
        str.upper,
        lambda name: name.replace("a", "\u0430"),
        lambda name: name + "\u200b",
        lambda name: f" {name}",
        lambda _: "",
    ]
    people = [
        (holder, name)
        for document in documents
        if document["kind"] in ("ALLOW", "RESERVE", "POLICY", "REVERSAL")
        for value, holder, name in leaves(document)
        if value in ("sam", "tom", "ana")
    ]
    holder, name = dice.choice(people)
    holder[name] = dice.choice(ways)(holder[name])


def value_of_a_field(documents: list[Document], dice: random.Random) -> None:
    value, holder, name = dice.choice(list(leaves(dice.choice(documents))))
    holder[name] = other_value(value, dice)


def value_of_another_entry(documents: list[Document], dice: random.Random) -> None:
    """A value from where another entry has one of the same name: amounts, names, hashes, jobs,
    times.
    """
    _, holder, name = dice.choice(list(leaves(dice.choice(documents))))
    others = [value for each in documents for value, _, own in leaves(each) if own == name]
    holder[name] = dice.choice(others)


def no_field(documents: list[Document], dice: random.Random) -> None:
    holder = dice.choice([each for each in objects(dice.choice(documents)) if each])
    del holder[dice.choice(list(holder))]


def no_entry(documents: list[Document], dice: random.Random) -> None:
    del documents[dice.randrange(len(documents))]


def an_entry_twice(documents: list[Document], dice: random.Random) -> None:
    documents.insert(dice.randrange(len(documents)), copy.deepcopy(dice.choice(documents)))


def entries_swapped(documents: list[Document], dice: random.Random) -> None:
    one, other = dice.sample(range(len(documents)), 2)
    documents[one], documents[other] = documents[other], documents[one]


def bodies_swapped(documents: list[Document], dice: random.Random) -> None:
    one = dice.choice(documents)
    other = dice.choice([each for each in documents if each["kind"] == one["kind"]])
    one["body"], other["body"] = other["body"], one["body"]


FORM = (form_of_a_value, a_field_that_nobody_knows, a_hidden_value, a_person_respelled)
VALUE = (
    value_of_a_field,
    value_of_another_entry,
    no_field,
    no_entry,
    an_entry_twice,
    entries_swapped,
    bodies_swapped,
)


def rewritten(truth: Truth, documents: list[Document], whole: bool) -> list[str]:
    """An export of documents: hashes anew, and numbers and times too if entries were moved
    (`whole`).
    """
    head, rows, replay = GENESIS, [], Replay()
    times = sorted(each["at"] for each in truth.documents)
    for place, document in enumerate(documents):
        if whole:
            document |= {"seq": place + 1, "at": times[min(place, len(times) - 1)]}
        if "previous" in document:
            document["previous"] = head
        try:
            head = digest(document)
            rows.append(json_row(head, canonical(document).decode()))
        except (ExchequerError, ValueError, TypeError, AttributeError, KeyError):
            head = "f" * 64
            rows.append(json.dumps({**document, "hash": head}) + "\n")
    for document in documents:
        try:
            plain = commitments.opened(document)
            replay.apply(EntryKind(plain["kind"]), plain["job"], plain["body"])
        except (ExchequerError, ValueError, TypeError, AttributeError, KeyError, ArithmeticError):
            break
    claimed = export_formats.header(DATASET, len(documents), head, replay.books, replay.live_count)
    return [json_header(claimed), *rows]


# --- the test
# ---------------------------------------------------------------------------------------


def refused(lines: list[str], key: bytes | None = None) -> bool:
    try:
        verify_lines(lines, pinned=key)
    except VerificationFailed:
        return True
    return False


def test_the_true_exports_stand():
    for truth in TRUTHS:
        assert not refused(truth.lines, public_key(SEED))


@pytest.mark.slow
@pytest.mark.parametrize(
    "turn",
    [pytest.param(turn, marks=[] if turn < FEW else pytest.mark.release) for turn in range(TURNS)],
)
def test_none_verifies_that_states_something_false(turn):
    dice, made = random.Random(turn), 0
    while made < EACH:
        truth = dice.choice(TRUTHS)
        if made % 3 == 0:
            lines = changed_text(truth, dice)
            if lines == truth.lines:
                continue
            made += 1
            assert refused(lines, public_key(SEED)), lines
            continue
        documents = copy.deepcopy(truth.documents)
        change = dice.choice(FORM if made % 3 == 1 else VALUE)
        change(documents, dice)
        lines = rewritten(truth, documents, change in (no_entry, an_entry_twice, entries_swapped))
        if lines[1:] == truth.lines[1:]:
            continue  # it changed nothing, or what is written anew
        made += 1
        if refused(lines):
            continue
        told = (
            f"turn {turn}, forgery {made}, {change.__name__}: "
            f"{difference(truth.documents, documents)}"
        )
        assert change not in FORM, told
        found = verify_lines(lines)
        assert charged(found) == truth.charged or cut(truth, documents), told
        signed = {**json.loads(lines[0]), "checkpoint": json.loads(truth.lines[0])["checkpoint"]}
        for header in (lines[0], json_header(signed)):
            assert refused([header, *lines[1:]], public_key(SEED)), told


def as_text(documents: list[Document]) -> str:
    return json.dumps(documents, sort_keys=True)


def cut(truth: Truth, documents: list[Document]) -> bool:
    """Whether the end is missing, which only a checkpoint shows."""
    return len(documents) < len(truth.documents)


def difference(before: list[Document], after: list[Document]) -> str:
    """Where documents differ, for whoever reads a failure."""
    if len(before) != len(after):
        return f"{len(after)} entries"
    for one, other in zip(before, after, strict=True):
        for name in one.keys() | other.keys():
            own = [as_text([dict(leaf_texts(each.get(name)))]) for each in (one, other)]
            if own[0] != own[1] and name != "previous":
                parts = [set(leaf_texts(each.get(name))) for each in (one, other)]
                return (
                    f"entry {one['seq']}, {name}: {parts[0] - parts[1]} became "
                    f"{parts[1] - parts[0]}"
                )
    return "nothing"


def leaf_texts(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """The path and JSON of each value without parts."""
    if isinstance(value, dict | list) and value:
        for name, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaf_texts(part, f"{path}.{name}")
    else:
        yield path, json.dumps(value)
