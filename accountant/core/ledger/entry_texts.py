"""An entry's canonical text taken apart: its shape, and what differs between entries of one shape.

    shape   the text with a mark in place of time, job, number, hashes, salts, and who acted and why
    slots   what stood there, each checked to be of its kind

A ledger of a million jobs has few shapes, so a verifier judges each once and looks at the slots of the rest.
A text that can't be taken apart is no error: a verifier reads it as JSON, and says what is wrong with it.
"""

import hashlib
import re
import secrets
from collections.abc import Callable, Mapping
from functools import lru_cache
from json import JSONDecoder
from json.encoder import encode_basestring
from typing import Any, NamedTuple

from accountant.core.ledger import commitments
from accountant.core.ledger.canonical_json import canonical
from accountant.core.ledger.hash_chain import read_time

#: Marks begin with a character that stands in no JSON text.
_MARK = "\0"

_UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_TAIL = re.compile(
    rf'"job":"({_UUID})","kind":"(RESERVE|COMMIT|VOID)","previous":"([0-9a-f]{{64}})",'
    r'"seq":([1-9][0-9]{0,14}),"version":2\}'
)
_LONGEST_TAIL = 220
_PRIVATE = re.compile(r'\{"s(?:alt":"[0-9a-f]{32}","value":|ha256":"[0-9a-f]{64}"\})')
_TIME = re.compile(r"T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]\.[0-9]{6}Z")
_OUTPUT = re.compile(r'"output_sha256":"([0-9a-f]{64})"')
_scan: Callable[[str, int], tuple[Any, int]] = JSONDecoder().scan_once  # type: ignore[attr-defined]
#: Private values that no price follows from, by the text before them. Prompts are part of a shape: mechanisms
#: refuse some.
_FREE = {'{"actor":': "actor", '"approval":': "approval", '"reason":': "reason"}
_LONGEST_NAME = max(map(len, _FREE))


class EntryText(NamedTuple):
    """A RESERVE, COMMIT or VOID taken apart. `actor` is "" and `approval` None where they are hidden."""

    shape: str
    kind: str
    #: SHA-256 in hex of what the text publishes.
    hash: str
    previous: str
    seq: int
    at: str
    job: str
    actor: Any
    approval: Any
    output: str | None
    hidden: int


def read(text: str) -> EntryText | None:
    """The canonical text of an entry taken apart; None if it can't be, right or wrong."""
    try:
        return _read(text)
    except (StopIteration, IndexError, ValueError, RecursionError):
        return None


def _read(text: str) -> EntryText | None:
    tail = _TAIL.search(text, max(0, len(text) - _LONGEST_TAIL))
    if tail is None or tail.end() != len(text) or _MARK in text:
        return None
    shape: list[str] = []
    public: list[str] = []
    values: dict[str, Any] = {}
    at, place, hidden = "", 0, 0
    while (found := _PRIVATE.search(text, place, tail.start())) is not None:
        start, stop = found.span()
        before = text[place:start]
        if text[stop - 1] == "}":
            hidden, mark, shown = hidden + 1, _MARK + "h", text[start:stop]
        else:
            value, end = _scan(text, stop)
            stated = text[stop:end]
            written = encode_basestring(value) if type(value) is str else canonical_value(value)
            if text[end] != "}" or stated != written or commitments.is_hidden(value):
                return None
            name = _named(before)
            mark = f'{{"salt":{_MARK}s,"value":{stated}}}' if name is None else _MARK + "o"
            if name is not None:
                values[name] = value
            stop = end + 1
            shown = f'{{"sha256":"{hashlib.sha256(text[start:stop].encode()).hexdigest()}"}}'
        public += before, shown
        if place == 0:  # the actor, whom the time follows
            at = text[stop + 7 : stop + 34]
            if text[stop : stop + 7] != ',"at":"' or text[stop + 34 : stop + 43] != '","body":':
                return None
            check_time(at)
            shape += before, mark, ',"at":\0a,"body":'
            public.append(text[stop : stop + 43])
            place = stop + 43
        else:
            shape += before, mark
            place = stop
    if not at:
        return None
    public.append(text[place:])
    output = _OUTPUT.search(text, place, tail.start())
    if output is not None:
        shape += text[place : output.start()], '"output_sha256":\0r'
        place = output.end()
    job, kind, previous, seq = tail.groups()
    shape += text[place : tail.start()], kind
    return EntryText(
        "".join(shape),
        kind,
        hashlib.sha256("".join(public).encode()).hexdigest(),
        previous,
        int(seq),
        at,
        job,
        values.get("actor", ""),
        values.get("approval"),
        None if output is None else output[1],
        hidden,
    )


def check_time(at: str) -> None:
    """As `read_time`, for what it raises: many entries are of one day. Raises ValueError."""
    if _TIME.fullmatch(at, 10) is None:
        raise ValueError(f"{at!r:.40} is no time")
    _check_day(at[:10])


@lru_cache(maxsize=64)
def _check_day(day: str) -> None:
    read_time(f"{day}T00:00:00.000000Z")


def canonical_value(value: Any) -> str:
    """The canonical text of any JSON value. Raises ValueError."""
    return canonical({"": value}).decode()[4:-1]


def _named(before: str) -> str | None:
    end = before[-_LONGEST_NAME:]
    for text, name in _FREE.items():
        if end.endswith(text):
            return name
    return None


# --- what a shape stands for --------------------------------------------------------------------


def is_shape_of(text: EntryText, document: Mapping[str, Any]) -> bool:
    """Whether the marks of a shape stand exactly where its entry, read as JSON, has those values.

    Then any text of this shape is the canonical text of the same document with other values in these places.
    """
    token = secrets.token_hex(16)  # it stands in no text

    def marked(place: tuple[str, ...], value: Any) -> Any:
        if commitments.is_hidden(value):
            return token + "h"
        if place in (("actor",), ("body", "approval"), ("body", "reason")):
            return token + "o"
        return {"salt": token + "s", "value": value["value"]}

    changed = commitments.mapped(document, marked)
    changed |= {"at": token + "a", "job": token, "previous": token, "seq": token}
    if text.output is not None:
        changed["body"] = {**changed["body"], "output_sha256": token + "r"}
    written = canonical(changed).decode()
    tail = f'"job":"{token}","kind":"{text.kind}","previous":"{token}","seq":"{token}","version":2}}'
    if not written.endswith(tail):
        return False
    shape = re.sub(f'"{token}([a-z])"', _MARK + r"\1", written[: -len(tail)]) + text.kind
    return shape == text.shape
