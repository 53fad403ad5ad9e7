"""Foreign ledgers with any value anywhere: an error with a name, never a traceback or a lost
spend.
"""

import contextlib
import copy
import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from accountant.core.errors import InvalidRequest, VerificationFailed
from accountant.core.ledger import reservations
from accountant.core.ledger.export_formats import verify_lines
from accountant.core.ledger.hash_chain import (
    GENESIS,
    Entry,
    EntryKind,
    digest,
    read_entry,
    read_time,
)
from accountant.core.ledger.repricing import reprice
from accountant.core.ledger.verifier import Verifier
from accountant.core.privacy import composition, divergences
from accountant.core.privacy.events import LOSSES, MULTIPLIERS, from_json, to_json
from accountant.core.privacy.filters import granted, portfolio, price_on
from accountant.core.privacy.units import exact, read_fraction
from tests.accountant.core.ledger.test_forged_ledgers import AT, Forger
from tests.ledger_exports import export, honest

NASTY: tuple[Any, ...] = (
    *(
        "1/0",
        "0/0",
        "1e400",
        "1e999999999",
        "-1/2",
        "nan",
        "inf",
        "-0.0",
        "",
        "9" * 5000,
        "1/3/5",
        "²",
        " 1",
        "٣",
    ),
    *(
        -0.0,
        5e-324,
        2.2e-308,
        1e308,
        1e400,
        float("nan"),
        2**53,
        2**53 + 1,
        10**400,
        -1,
        0,
        0.5,
        True,
    ),
    *(None, [], {}, [[]], {"type": "composed", "events": []}),
)


class Recorder(Forger):
    """An honest ledger, with its documents."""

    def __init__(self) -> None:
        self.documents: list[dict[str, Any]] = []
        super().__init__()

    def add(self, kind: EntryKind, job: str | None, body: dict[str, Any]) -> None:
        seq = self.verifier.count + 1
        entry = Entry("data", seq, kind, AT, "somebody", job, body, self.head)
        self.documents.append(json.loads(json.dumps(entry.document())))
        super().add(kind, job, body)


def ledger() -> list[dict[str, Any]]:
    recorder = Recorder()
    event = recorder.reserve("one")
    recorder.commit("one", event)
    recorder.reserve("two", tokens_per_batch=9, batches_per_label=50)
    return recorder.documents


#: REGISTER twice, POLICY, ALLOW, RESERVE, COMMIT, RESERVE.
LEDGER = ledger()


def paths(value: Any, before: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a document."""
    if isinstance(value, dict):
        inner = value.items()
    elif isinstance(value, list):
        inner = enumerate(value)
    else:
        inner = ()
    return [before] * bool(before) + [
        found for key, each in inner for found in paths(each, (*before, key))
    ]


PLACES = [(number, path) for number, each in enumerate(LEDGER) for path in paths(each)]


def put(document: dict[str, Any], path: tuple[Any, ...], value: Any) -> None:
    at: Any = document
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value


def charged(verifier: Verifier) -> list[tuple[Any, ...]]:
    account = verifier.replay.books.account
    return (
        []
        if account is None
        else [(each.spent, each.reserved, each.closed) for each in account.filters]
    )


def verified(documents: list[dict[str, Any]]) -> Verifier:
    """What a verifier makes of these documents, whose hashes follow from them as far as they
    can.
    """
    verifier, head = Verifier(), GENESIS
    for each in documents:
        document = {**each, "previous": head} if "previous" in each else each
        try:
            head = digest(document)
        except (ValueError, RecursionError):  # it has no canonical form, so no hash either
            head = "0" * 64
        verifier.add(document, head)
    return verifier


WHOLE = charged(verified(LEDGER))


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(st.sampled_from(PLACES), st.sampled_from(NASTY))
@example((3, ("body", "filters", 0, "share")), "1/0")
@example((3, ("body", "filters", 0, "order")), "1e400")
@example((3, ("body", "filters", 0, "order")), "1/0")
@example((4, ("body", "parameters")), [])
@example((4, ("body", "terms", "delta")), 5e-324)
@example((4, ("body", "terms", "delta")), 10**400)
def test_any_value_anywhere_is_refused_by_name_or_changes_no_charge(place, value):
    number, path = place
    documents = copy.deepcopy(LEDGER)
    put(documents[number], path, value)
    try:
        found = verified(documents)
    except VerificationFailed:
        pass
    else:
        assert charged(found) == WHOLE
    body = documents[number].get("body")
    if number < 4 or not isinstance(body, dict):
        return
    try:
        accounts = verified(LEDGER[:4]).replay.books.accounts
        kind = read_entry(documents[number], number + 1).kind
    except VerificationFailed:
        return
    reprice(kind, body, accounts, LEDGER[4]["body"])  # says what it could not compute


EXPORT = [json.loads(each) for each in export(honest().lines)]
IN_EXPORT = [(number, path) for number, each in enumerate(EXPORT) for path in paths(each)]


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(IN_EXPORT), st.sampled_from(NASTY))
def test_any_value_anywhere_in_a_file_is_an_error_with_a_name_or_harmless(place, value):
    """All kinds of entries, rules among them, and the totals; hashes follow as far as they can."""
    number, path = place
    documents = copy.deepcopy(EXPORT)
    put(documents[number], path, value)
    for place, (before, each) in enumerate(pairwise(documents[1:]), start=1):
        if 0 < number <= place and path != ("hash",):
            before["hash"] = each["previous"] = rehashed(before)
    with contextlib.suppress(VerificationFailed):
        verify_lines(json.dumps(each) + "\n" for each in documents)


def rehashed(document: dict[str, Any]) -> str:
    try:
        return digest({name: value for name, value in document.items() if name != "hash"})
    except (ValueError, RecursionError, VerificationFailed, AttributeError, TypeError):
        return "0" * 64


def test_the_honest_ledger_stands():
    assert any(spent.main for spent, _, _ in WHOLE)
    assert all(reserved.main for _, reserved, _ in WHOLE)


NUMBERS = st.one_of(
    st.sampled_from([each for each in NASTY if not isinstance(each, list | dict)]),
    st.floats(),
    st.integers(-(2**60), 2**60),
)
FILTERS = portfolio(*granted(3, "1e-6"))


def leaf(kind: str, *names: str) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries({"type": st.just(kind), **dict.fromkeys(names, NUMBERS)})


LEAVES = st.one_of(
    leaf("gaussian", "noise_multiplier"),
    leaf("laplace", "noise_multiplier"),
    leaf("exponential", "shift"),
    leaf("zcdp", "rho"),
    leaf("epsilon_delta", "epsilon", "delta"),
)


def around(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    one = {"event": inner}
    coins = dict.fromkeys(("batches", "run", "tokens"), NUMBERS)
    return st.one_of(
        st.fixed_dictionaries({"type": st.just("self_composed"), "count": NUMBERS, **one}),
        st.fixed_dictionaries({"type": st.just("poisson_sampled"), "probability": NUMBERS, **one}),
        st.fixed_dictionaries({"type": st.just("composed"), "events": st.lists(inner, max_size=2)}),
        *(
            st.fixed_dictionaries({"type": st.just(kind), "draw": inner, **coins})
            for kind in ("allocated", "allocated_replaced")
        ),
    )


@settings(max_examples=300, deadline=None)
@given(st.recursive(LEAVES, around, max_leaves=3))
def test_any_event_is_refused_by_name_or_priced_everywhere(stored):
    try:
        event = from_json(stored)
    except InvalidRequest:
        return
    assert from_json(json.loads(json.dumps(to_json(event)))) == event
    for cost in price_on(FILTERS, event).values():
        assert cost is None or cost.main >= 0
    divergences.pure_epsilon(event)
    try:
        epsilon, _ = composition.epsilon_alone(event, 1e-6)
    except InvalidRequest:
        return  # no accountant prices it
    assert epsilon >= 0


@pytest.mark.parametrize("edge", [0, 1])
@pytest.mark.parametrize("kind", ["gaussian", "laplace", "exponential", "zcdp", "epsilon_delta"])
def test_the_ends_of_the_range_have_prices(kind, edge):
    name = {"exponential": "shift", "zcdp": "rho", "epsilon_delta": "epsilon"}.get(
        kind, "noise_multiplier"
    )
    ends = MULTIPLIERS if name == "noise_multiplier" else LOSSES
    stored = {"type": kind, name: ends[edge]} | ({"delta": 0.0} if kind == "epsilon_delta" else {})
    event = from_json({"type": "self_composed", "event": stored, "count": 10**12})
    assert price_on(FILTERS, event)
    assert composition.epsilon_alone(event, 1e-6)[0] >= 0


@given(st.one_of(st.text(max_size=60), st.sampled_from(NASTY)))
def test_a_stored_fraction_is_short_digits_or_an_error(value):
    with contextlib.suppress(InvalidRequest):
        assert abs(read_fraction(value, "share")) < 10**40


@given(st.one_of(NUMBERS, st.text(max_size=40)))
def test_an_amount_is_a_number_or_an_error(value):
    with contextlib.suppress(InvalidRequest):
        assert exact(value) >= 0


#: Pairs that Python holds for equal, or writes alike, and JSON does not.
ALIKE: list[tuple[Any, Any]] = [
    (1, True),
    (1, 1.0),
    (0.0, -0.0),
    ("1", 1),
    ([1], [True]),
    ({"count": 1}, {"count": 1.0}),
]


@pytest.mark.parametrize(("one", "other"), ALIKE)
def test_what_is_kept_of_a_value_is_not_given_for_one_that_json_writes_differently(one, other):
    kept = reservations.by_value(repr)
    assert [kept(one), kept(other), kept(one)] == [repr(one), repr(other), repr(one)]


def test_no_more_shapes_are_kept_than_memory_is_meant_for(monkeypatch):
    monkeypatch.setattr(reservations, "SHAPES", 2)
    asked: list[int] = []
    kept = reservations.by_value(asked.append)
    for shape in (1, 2, 2, 3, 1):
        kept(shape)
    assert asked == [1, 2, 3, 1]


@pytest.mark.parametrize(
    "text",
    [
        "2026-W01-1T00:00:00.000000Z",
        "2026-01-01 00:00:00.000000Z",
        "2026-01-01T00:00:00.000000+",
        "2026-01-01T24:00:00.000000Z",
        "2026-02-30T00:00:00.000000Z",
        "2026-01-01T00:00:00,000000Z",
        "२०२६-01-01T00:00:00.000000Z",
        "2026-01-01T00:00:00.000000Z\n",
    ],
)
def test_a_time_has_one_form(text):
    with pytest.raises(ValueError, match=r"is no time|out of range"):
        read_time(text)
