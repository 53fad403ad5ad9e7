"""Random terms, records, neighbours and parameters: small, and odd where it is allowed."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from accountant.core.mechanisms.base import Mechanism
from accountant.core.privacy.blowup import GroupSampling, Without
from accountant.core.privacy.price import Neighbours, Terms
from accountant.core.secret_patterns import TAG, Secrets
from workers.data.records import Record, Records

LABELS = ("a", "b")
WORDS = (
    "soup",
    "cold",
    "a quiet room",
    "7",
    "ünïcode",
    "👍",
    "\n",
    "The lift was slow and I left.",
)

#: A public thing by this name is there for every field that names one.
TOY = "toy"


@dataclass(frozen=True)
class Pair:
    """Records of two neighbours: with a unit, and without it or with another in its place."""

    terms: Terms
    one: Records
    two: Records


def terms(random: Random) -> Terms:
    """Terms of a dataset of up to eight units."""
    neighbours, bound = random.choice(list(Neighbours)), random.choice([1, 1, 2, 3])
    labels = random.choice([(), LABELS])
    exact = (
        bool(labels)
        and bound == 1
        and neighbours is Neighbours.REPLACE_ONE
        and random.random() < 0.5
    )
    return Terms(
        neighbours,
        random.choice([1e-6, 1e-3]),
        bound,
        8,
        labels,
        (4, 4) if exact else (),
    )


def pair(random: Random, known: Terms, in_order: bool) -> Pair:
    """Neighbouring records under random keys; `in_order`: the unit that differs is the last."""
    labels = known.labels or (None,)
    units = [
        _unit(random, f"u{n}", labels, known.max_records_per_unit)
        for n in range(random.randrange(6))
    ]
    changed = _unit(random, "x", labels, known.max_records_per_unit) or [
        Record("x", labels[0], "soup")
    ]
    other: list[Record] = []
    if known.neighbours is Neighbours.REPLACE_ONE:
        other = _unit(random, "y", labels, known.max_records_per_unit)
        if known.label_sizes:  # exact sizes: a replaced unit keeps its label
            other = [Record(each.unit, changed[0].label, each.text) for each in other]
    if known.label_sizes:
        units = [unit for unit in units if not unit or unit[0].label != changed[0].label][:4]
    place = len(units) if in_order else random.randrange(len(units) + 1)
    key = random.randbytes(32)

    def of(unit: list[Record]) -> Records:
        every = [*units[:place], unit, *units[place:]]
        return Records(labels, tuple(record for each in every for record in each), key)

    return Pair(known, of(changed), of(other))


def secret_pair(random: Random, known: Terms, group: GroupSampling) -> tuple[Records, Records, int]:
    """(records, those without the secret, in how many it was): one record a unit, under random
    keys.

    "Without" is as the group says: the records are gone, or a tag stands in place of the secret.
    """
    labels = known.labels or (None,)
    secrets = Secrets(patterns=(r"\b4[0-9]{3}\b",), terms=("zanzibar",))
    plain = [
        record for n in range(random.randrange(6)) for record in _unit(random, f"u{n}", labels, 1)
    ]
    differ = random.randint(1, min(4, group.records))
    carrying = [
        Record(
            f"s{n}",
            random.choice(labels),
            " ".join([*random.choices(WORDS, k=random.randrange(4)), word]),
        )
        for n, word in enumerate(random.choices(["4711", "Zanzibar."], k=differ))
    ]
    without = [
        Record(each.unit, each.label, re.sub("4711|Zanzibar", TAG, each.text))
        for each in carrying
        if group.without is Without.REDACTED
    ]
    key, place = random.randbytes(32), random.randrange(len(plain) + 1)

    def of(own: list[Record]) -> Records:
        return Records(labels, (*plain[:place], *own, *plain[place:]), key, secrets=secrets)

    return of(carrying), of(without), differ


def _unit(random: Random, name: str, labels: tuple[str | None, ...], bound: int) -> list[Record]:
    """At most `bound` records of one unit; none where they could not be read."""
    count = random.choice([0, *range(1, bound + 1), bound])
    return [
        Record(name, random.choice(labels), " ".join(random.choices(WORDS, k=random.randrange(5))))
        for _ in range(count)
    ]


def parameters(mechanism: Mechanism[Any], random: Random) -> dict[str, Any]:
    """Parameters of a small run, around the mechanism's example; a good part of them will be
    refused.
    """
    found = dict(mechanism.example)
    found.pop("from_job", None) if not mechanism.reads_output else None
    for name, part in mechanism.schema["properties"].items():
        if name == "from_job" or (name in found and random.random() < 0.7):
            continue
        options = [each for each in part.get("anyOf", [part]) if each.get("type") != "null"]
        if (
            len(options) < len(part.get("anyOf", [part]))
            and name != "seed"
            and random.random() < 0.6
        ):
            found.pop(name, None)
            continue
        value = _value(options[0], random, nullable="anyOf" in part)
        if value is not None:
            found[name] = value
    for pair in mechanism.parameters.either:
        if all(found.get(name) is not None for name in pair):
            del found[random.choice(pair)]
    return found


def _value(part: Mapping[str, Any], random: Random, nullable: bool) -> Any:
    """A small value of one field; None where the default or the example's will do."""
    if "enum" in part or "const" in part:
        return random.choice(part.get("enum", [part.get("const")]))
    low, high = part.get("minimum", part.get("exclusiveMinimum", 0)), part.get("maximum", math.inf)
    match part.get("type"):
        case "boolean":
            return random.random() < 0.5
        case "integer":
            first = low + 1 if "exclusiveMinimum" in part else low
            return int(min(high, first + random.randrange(4)))
        case "number":
            least, most = max(low, min(0.05, high)), min(high, max(20.0, low))
            return float(least * (most / least) ** random.random()) if least > 0 else 0.0
        case "string" if nullable:
            return random.choice([TOY, TOY, TOY, LABELS[0]])
    return None


def choices(mechanism: Mechanism[Any]) -> list[dict[str, Any]]:
    """Every value of every field that has few: each is tried in turn, however rarely it would come
    up.
    """
    found: list[dict[str, Any]] = [{}]
    for name, part in mechanism.schema["properties"].items():
        for each in part.get("anyOf", [part]):
            values = (False, True) if each.get("type") == "boolean" else each.get("enum", ())
            found += [{name: value} for value in values]
    return found


def wild(mechanism: Mechanism[Any], random: Random) -> dict[str, Any]:
    """Parameters that nobody should send: extremes of every bound, and values of other kinds."""
    found = dict(mechanism.example)
    for name, part in mechanism.schema["properties"].items():
        if random.random() < 0.6:
            continue
        edges = [
            each[bound]
            for each in part.get("anyOf", [part])
            for bound in ("minimum", "maximum", "exclusiveMinimum")
            if bound in each
        ]
        odd: list[Any] = [
            None,
            "",
            "x",
            -1,
            0,
            1,
            2**63,
            5e-324,
            1e308,
            math.nan,
            -math.inf,
            True,
            [],
            {},
            "{",
            "\0",
        ]
        found[name] = random.choice([*edges, *edges, *edges, random.choice(odd)])
    return found
