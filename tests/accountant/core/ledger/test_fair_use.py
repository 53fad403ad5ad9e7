"""Fair use, as arithmetic: what is released, who may have it, and who goes first."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accountant.core.errors import InvalidRequest
from accountant.core.ledger.fair_use import Request, Shared, Sharing, next_of
from accountant.core.ledger.policy import Policy, weakened

START = 12 * 2027
NAMES = ("ada", "grace", "alan", "nobody")
SHARINGS = st.builds(
    Sharing,
    st.integers(0, 10**6),
    st.just(START),
    st.integers(1, 14),
    st.dictionaries(st.sampled_from(NAMES[:3]), st.integers(1, 9)),
)
#: Who asks for how much in which month from the one before the first.
ASKED = st.lists(st.tuples(st.integers(0, 17), st.sampled_from(NAMES), st.integers(1, 10**6)))


def year(**values: object) -> Policy:
    return Policy(
        **{"shared_epsilon": "12", "release_start": "2027-01", "release_months": 12, **values}
    )


def begun(shared: Shared, month: int) -> Shared:
    """The state of a later month, in which nobody used anything yet."""
    earlier = {name: shared.used(name) for name in (*shared.earlier, *shared.now)}
    return Shared(shared.sharing, month, earlier, {})


@given(SHARINGS, ASKED)
def test_what_is_used_is_never_more_than_what_is_released(sharing, asked):
    shared, used = Shared(sharing, START - 1, {}, {}), 0
    for after, holder, amount in sorted(asked, key=lambda each: each[0]):
        if START - 1 + after > shared.month:
            shared = begun(shared, START - 1 + after)
        fitting = min(amount, shared.room(holder))
        shared, used = shared.after(holder, fitting), used + fitting
        assert used <= sharing.released(shared.month) <= sharing.total
        assert shared.left == sharing.total - used
        for other in sharing.weights:  # nobody takes what is another's this month
            own = sharing.share(other, shared.month) - shared.now.get(other, 0)
            assert shared.room(other) >= own


@given(SHARINGS, st.integers(-1, 16))
def test_shares_of_a_month_never_add_up_to_more_than_its_release(sharing, after):
    month = START + after
    shares = sum(sharing.share(name, month) for name in NAMES)
    assert shares <= sharing.released(month) - sharing.released(month - 1)
    assert sum(sharing.share(NAMES[0], START + each) for each in range(-1, 16)) <= sharing.total


@given(SHARINGS, st.dictionaries(st.sampled_from(NAMES), st.integers(0, 10**5)), st.integers(0, 14))
def test_what_a_month_leaves_is_everybodys_afterwards(sharing, used, after):
    shared = begun(Shared(sharing, START, used, {}), START + after)
    rest = sharing.released(shared.month - 1) - sum(used.values())
    for holder in NAMES:
        assert shared.room(holder) >= rest
    if shared.month >= sharing.end:
        assert {shared.room(holder) for holder in NAMES} == {max(shared.left, 0)}


@given(SHARINGS, ASKED, st.integers(1, 10**6))
def test_a_request_fits_from_the_month_that_is_told_and_in_none_before(sharing, asked, amount):
    shared = Shared(sharing, START + 2, {}, {})
    for _, holder, used in asked:
        shared = shared.after(holder, min(used, shared.room(holder)))
    told = shared.fits_from("ada", amount)
    last = max(sharing.end, shared.month + 1)
    fits = [
        month
        for month in range(shared.month + 1, last + 1)
        if begun(shared, month).room("ada") >= amount
    ]
    assert told == (fits[0] if fits else None)
    if told is None:
        assert amount > shared.left


@given(
    SHARINGS,
    st.lists(st.tuples(st.sampled_from(NAMES), st.integers(1, 10**5)), max_size=6),
    st.dictionaries(st.sampled_from(NAMES), st.integers(0, 10**5)),
)
def test_the_smallest_share_that_fits_goes_first(sharing, asked, used):
    shared = Shared(sharing, START + 1, used, {})
    waiting = [Request(uuid.uuid4(), holder, amount) for holder, amount in asked]
    first = next_of(waiting, shared)
    due = [
        each
        for each in waiting
        if each.asked <= shared.room(each.holder) or each.asked > shared.left
    ]
    if first is None:
        assert due == []
        return
    assert first in due
    for each in due:
        mine, other = (shared.dominant_share(one.holder, one.asked) for one in (first, each))
        assert mine < other or (mine == other and waiting.index(first) <= waiting.index(each))


def test_a_weight_of_two_counts_half_and_a_name_without_one_comes_last():
    sharing = Sharing(1000, START, 1, {"ada": 2, "grace": 1})
    shared = Shared(sharing, START + 1, {"ada": 30, "grace": 20, "alan": 0}, {})
    waiting = [Request(uuid.uuid4(), name, 10) for name in ("alan", "grace", "ada")]
    order = []
    while (request := next_of(waiting, shared)) is not None:
        order.append(request.holder)
        waiting.remove(request)
    assert order == ["ada", "grace", "alan"]


def test_a_sentence_says_what_is_released_and_when_the_rest_comes():
    sharing = Sharing.of(year())
    assert sharing is not None
    shared = Shared(sharing, START + 7, {}, {"ada": 8 * 10**9})
    until = shared.fits_from("ada", 10**9)
    assert until is not None
    assert (
        shared.sentence(until) == "ε 8 of 12 is released now; the rest waits until 1 September 2027"
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("release_start", None),
        ("release_start", "2027-13"),
        ("release_start", "2027-1"),
        ("release_months", None),
        ("shared_epsilon", "NaN"),
        ("shares", ("ada",)),
        ("shares", ("ada 0",)),
        ("shares", ("ada 1.5",)),
        ("shares", ("ada 1", "ada 2")),
    ],
)
def test_a_sharing_that_can_not_be_right_is_an_error_that_names_its_field(field, value):
    with pytest.raises(InvalidRequest, match=field):
        year(**{field: value}).check()


@pytest.mark.parametrize(
    ("field", "value", "weaker"),
    [
        ("shared_epsilon", "13", ("shared_epsilon",)),
        ("shared_epsilon", None, ("shared_epsilon",)),
        ("shared_epsilon", "11", ()),
        ("release_start", "2026-12", ("release_start",)),
        ("release_start", "2027-02", ()),
        ("release_months", 11, ("release_months",)),
        ("release_months", 13, ()),
        ("shares", ("ada 2", "grace 1"), ("shares",)),
        ("share_by_project", True, ("share_by_project",)),
        ("wait_for_release", True, ()),
    ],
)
def test_what_releases_more_or_otherwise_weakens_a_policy(field, value, weaker):
    before = year(shares=("ada 1",))
    assert weakened(before, before.model_copy(update={field: value})) == weaker
    assert weakened(Policy(), before) == ()
