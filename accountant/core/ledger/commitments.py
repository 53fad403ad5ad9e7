"""Private fields of an entry, hashed as salted commitments (DESIGN, trap 13).

In place of each private value, an entry's hash covers {"sha256": H}, where H is the SHA-256 of the
canonical {"salt": ..., "value": ...}. A full export carries the opening (salt and value); a public
one carries H alone. Both have the same hash, so one chain serves both. Each value has its own salt
of 128 random bits: H reveals nothing even of a value with few possibilities (hiding: SHA-256 as a
random function), and no second opening can be found (binding: collision resistance).

Private are: the actor, the reason, the approver, signatures, the people whom a POLICY names, the
free texts among a job's parameters (none affects its price), the realized ex-post epsilon of a
COMMIT, which depends on the data, and of a REGISTER the files of data, where they lie and how they
are read.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from accountant.core.errors import VerificationFailed
from accountant.core.ledger.canonical_json import value_text
from accountant.core.ledger.policy import PRIVATE

#: Private wherever they occur: whole values at these places. New bodies that name people add
#: theirs.
PLACES: tuple[tuple[str, ...], ...] = (
    ("actor",),
    ("body", "reason"),
    ("body", "approval"),
    ("body", "proposed_by"),
    ("body", "confirmed_by"),
    ("body", "confirmation"),
    ("body", "signature"),
    ("body", "confirmation_signature"),
)
#: Of a COMMIT, whatever the dataset settles: the reserved cap stands in the RESERVE for everybody.
COMMIT_PLACES: tuple[tuple[str, ...], ...] = (*PLACES, ("body", "ex_post", "cap"))
#: Texts that an analyst writes. No mechanism's price depends on one: a test tries each.
TEXTS = ("prompt", "public_template", "rewriting", "stop", "template")
#: Of a REVERSAL of a job with an ex-post part: the figures that say or bound what it really cost.
EX_POST_PLACES: tuple[tuple[str, ...], ...] = (*PLACES, ("body", "cap"), ("body", "ex_post"))
#: Documents that a REVERSAL quotes, private values and all.
QUOTED = ("reserve", "corrects")
RESERVE_PLACES: tuple[tuple[str, ...], ...] = (
    *PLACES,
    *(("body", "parameters", name) for name in TEXTS),
    *(("body", "overdraft", name) for name in ("reason", "signature")),
)

#: Of a POLICY: the people who may ask, the owners, and whose passkeys sign.
POLICY_PLACES: tuple[tuple[str, ...], ...] = (
    *PLACES,
    *(("body", "policy", name) for name in PRIVATE),
)
#: Of a REGISTER: the files of the data, whose sizes tell how much there is, and how they are read.
REGISTER_PLACES: tuple[tuple[str, ...], ...] = (*PLACES, ("body", "data"), ("body", "layout"))
#: Of a LOSS: all that was left of ex-post caps, which realized costs may tell.
LOSS_PLACES: tuple[tuple[str, ...], ...] = (*PLACES, ("body", "ex_post"))
_PLACES = {
    "RESERVE": RESERVE_PLACES,
    "COMMIT": COMMIT_PLACES,
    "POLICY": POLICY_PLACES,
    "REGISTER": REGISTER_PLACES,
    "LOSS": LOSS_PLACES,
}

_HEX = re.compile(r"[0-9a-f]+")
_COMMITMENT = re.compile(r'\{"sha256":"[0-9a-f]{64}"\}')


def places_by_kind() -> dict[str, tuple[tuple[str, ...], ...]]:
    """Return the places of private values by kind of entry, ex-post REVERSALs apart."""
    kinds = ("ALLOW", "RESERVE", "COMMIT", "VOID", "REVERSAL", "REGISTER", "POLICY", "LOSS")
    return {
        **{kind: _PLACES.get(kind, PLACES) for kind in kinds},
        "REVERSAL EX-POST": EX_POST_PLACES,
    }


def _places(document: Mapping[str, Any]) -> "_Holders":
    """Return the names of an entry's private values, by the object that holds them."""
    kind = document.get("kind")
    if kind == "REVERSAL":
        body = document.get("body")
        held = body.get("reserve") if isinstance(body, dict) else None
        asked = held.get("body") if isinstance(held, dict) else None
        if isinstance(asked, dict) and "ex_post" in asked:
            kind = "REVERSAL EX-POST"
    return _HOLDERS.get(kind, _ELSE) if isinstance(kind, str) else _ELSE


def sealed(document: Mapping[str, Any], secret: bytes) -> dict[str, Any]:
    """Return the document with an opening in every private place. `secret`: 32 random bytes for
    this entry only.

    Salts are derived from it, so sealing the same entry again gives the same document.
    """

    def opening(place: tuple[str, ...], value: Any) -> Any:
        salt = hashlib.sha256(secret + "/".join(place).encode()).hexdigest()[:32]
        return {"salt": salt, "value": value}

    return mapped(document, opening)


def hidden(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document as hashed and published: commitments in private places. Raises
    VerificationFailed.

    Entries quoted by a REVERSAL are hidden in the same way, so their hashes remain those of the
    chain.
    """
    changed = mapped(
        document, lambda _, value: value if is_hidden(value) else {"sha256": commitment(value)}
    )
    quoted = {name: hidden(value) for name, value in _quoted(document)}
    return {**changed, "body": {**changed["body"], **quoted}} if quoted else changed


def published_text(document: Mapping[str, Any], text: str) -> str:
    """Return the canonical text of `hidden(document)`, given that of the document itself.

    An opening whose text occurs once is replaced where it stands, which spares writing the rest
    again. Raises VerificationFailed.
    """
    published = text
    for _, holder, name in _found(document):
        if is_hidden(holder[name]):
            continue
        opening = opening_text(holder[name])
        if published.count(opening) != 1 or _quoted(document):
            return value_text(hidden(document))
        stated = f'{{"sha256":"{hashlib.sha256(opening.encode()).hexdigest()}"}}'
        published = published.replace(opening, stated)
    return published


def opened(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document with plain values in private places; a value that is hidden stays a
    commitment.

    Documents quoted by a REVERSAL are left as stored, because their hash is checked.
    """

    def plain(_: tuple[str, ...], value: Any) -> Any:
        if is_hidden(value):
            return value
        # else it would pass for a value that is not shown, and go unchecked
        if is_hidden(value["value"]):
            raise VerificationFailed("a private value is opened as a commitment")
        return value["value"]

    return mapped(document, plain)


def private_counts(document: Mapping[str, Any]) -> tuple[int, int]:
    """Return the number of private values, and of those that are not shown."""
    values = [is_hidden(holder[name]) for _, holder, name in _found(document)]
    counts = [
        (len(values), sum(values)),
        *(private_counts(value) for _, value in _quoted(document)),
    ]
    private, unseen = map(sum, zip(*counts, strict=True))
    return private, unseen


def commitment_count(published: str) -> int:
    """Return the number of commitments in the canonical text of a published document."""
    return len(_COMMITMENT.findall(published))


def commitment(opening: Any) -> str:
    """Return the SHA-256, in hex, of an opening. Raises VerificationFailed if it is not one."""
    return hashlib.sha256(opening_text(opening).encode()).hexdigest()


def opening_text(opening: Any) -> str:
    """Return the canonical text of an opening. Raises VerificationFailed if it is not one."""
    if (
        not isinstance(opening, dict)
        or set(opening) != {"salt", "value"}
        or not _hex(opening["salt"], 32)
    ):
        raise VerificationFailed("a private value is neither opened nor committed to")
    return f'{{"salt":"{opening["salt"]}","value":{value_text(opening["value"])}}}'


def is_hidden(value: object) -> bool:
    """Return True if the value is a commitment without its opening."""
    return isinstance(value, dict) and len(value) == 1 and _hex(value.get("sha256"), 64)


def _hex(text: object, digits: int) -> bool:
    return isinstance(text, str) and len(text) == digits and _HEX.fullmatch(text) is not None


def _quoted(document: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return the documents that a REVERSAL quotes, by their key in its body."""
    body = document.get("body")
    if document.get("kind") != "REVERSAL" or not isinstance(body, dict):
        return []
    return [(name, body[name]) for name in QUOTED if isinstance(body.get(name), dict)]


def _found(document: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any], str]]:
    """(place, object that holds it, its key) for every private value; null is not a value."""
    for path, named in _places(document):
        holder: Any = document
        for step in path:
            holder = holder.get(step) if isinstance(holder, dict) else None
        if not isinstance(holder, dict):
            continue
        for name in named:
            if holder.get(name) is not None:
                yield (*path, name), holder, name


def mapped(document: Mapping[str, Any], change: Any) -> dict[str, Any]:
    """Return a copy with every private value changed; the rest is shared."""
    changed = dict(document)
    for place, holder, name in _found(document):
        copy = changed
        for step in place[:-1]:
            copy[step] = dict(copy[step])
            copy = copy[step]
        copy[name] = change(place, holder[name])
    return changed


#: The path of an object in a document, and the names of the private values that it holds.
_Holders = list[tuple[tuple[str, ...], list[str]]]


def _by_holder(places: tuple[tuple[str, ...], ...]) -> "_Holders":
    """Return the names of private values by the path of the object that holds them."""
    names: dict[tuple[str, ...], list[str]] = {}
    for *path, name in places:
        names.setdefault(tuple(path), []).append(name)
    return list(names.items())


_HOLDERS = {kind: _by_holder(places) for kind, places in places_by_kind().items()}
_ELSE = _by_holder(PLACES)
