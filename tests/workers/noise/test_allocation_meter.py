"""Rounds on the meter: counted, summed, charged whole, refused beyond those reserved."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accountant.core.errors import MeterExceeded
from accountant.core.privacy.events import (
    Allocated,
    Composed,
    Exponential,
    Laplace,
    SelfComposed,
    releases,
)
from workers.noise.meter import Meter, Turn

SCORES = np.array([0, 1], dtype=np.int64)
ROUND = Allocated(4, 3, 2, Exponential(0.1))


def draw(
    meter: Meter, number: int, part: str = "a", batch: int = 0, event: Allocated = ROUND
) -> None:
    meter.parallel(Turn(number, part, batch)).sample_token(SCORES, Fraction(1), event)


def test_one_token_of_one_batch_costs_the_whole_round():
    meter = Meter(SelfComposed(ROUND, 5))
    assert releases(meter.realized) == {}
    draw(meter, 0)
    assert meter.realized == ROUND, (
        "what a further token costs depends on what was seen, so nothing returns"
    )
    draw(meter, 0)
    draw(meter, 0, batch=2)
    draw(meter, 0, "b")
    assert meter.realized == ROUND, "all parts and batches of a round are one release"


def test_rounds_add_up_and_those_that_never_began_return():
    meter = Meter(SelfComposed(ROUND, 5))
    for number in range(3):
        draw(meter, number)
    assert meter.realized == SelfComposed(ROUND, 3)


def test_a_round_beyond_those_reserved_is_refused():
    meter = Meter(SelfComposed(ROUND, 2))
    for number in range(2):
        draw(meter, number)
    with pytest.raises(MeterExceeded):
        draw(meter, 2)
    assert meter.realized == SelfComposed(ROUND, 2)


def test_a_batch_writes_no_more_tokens_in_a_round_than_were_priced():
    meter = Meter(SelfComposed(ROUND, 2))
    draw(meter, 0)
    draw(meter, 0)
    with pytest.raises(MeterExceeded):
        draw(meter, 0)
    draw(meter, 1)


def test_a_batch_that_was_not_to_run_draws_nothing():
    meter = Meter(ROUND)
    with pytest.raises(MeterExceeded):
        draw(meter, 0, batch=3)
    assert releases(meter.realized) == {}


def test_a_part_may_have_more_batches_than_were_priced_where_all_are_run():
    event = Allocated(4, 4, 2, Exponential(0.1))
    meter = Meter(event)
    draw(meter, 0, batch=9, event=event)
    assert releases(meter.realized) == {event: 1}
    with pytest.raises(MeterExceeded):
        draw(meter, 0, batch=-1, event=event)


@pytest.mark.parametrize("number", [1, 2, -1])
def test_rounds_begin_in_their_order(number):
    with pytest.raises(ValueError, match="rounds have begun"):
        draw(Meter(SelfComposed(ROUND, 5)), number)


def test_an_earlier_round_is_over():
    """Two workers' counts of rounds are the same rounds then, and the larger is their number."""
    meter = Meter(SelfComposed(ROUND, 5))
    for number in range(3):
        draw(meter, number)
    with pytest.raises(ValueError, match="rounds have begun"):
        draw(meter, 1)


def test_another_event_and_a_part_without_a_round_are_refused():
    meter = Meter(ROUND)
    with pytest.raises(MeterExceeded):
        draw(meter, 0, event=Allocated(4, 3, 3, Exponential(0.1)))
    with pytest.raises(MeterExceeded):
        meter.parallel(("a", 0)).sample_token(SCORES, Fraction(1), ROUND.draw)
    for part in (("a", 0), None):
        with pytest.raises(ValueError, match="names its round"):
            meter.sample_token(SCORES, Fraction(1), ROUND, part)


def test_other_releases_of_the_job_are_counted_beside():
    meter = Meter(Composed((Laplace(1.0), SelfComposed(ROUND, 2))))
    meter.laplace(SCORES, 1, Laplace(1.0))
    draw(meter, 0)
    assert releases(meter.realized) == {Laplace(1.0): 1, ROUND: 1}


@settings(max_examples=100, deadline=None)
@given(
    st.integers(1, 4),
    st.lists(st.tuples(st.integers(-1, 5), st.sampled_from("ab"), st.integers(0, 4)), max_size=60),
)
def test_whatever_is_asked_no_more_is_drawn_than_was_reserved(rounds, asked):
    meter = Meter(SelfComposed(ROUND, rounds) if rounds > 1 else ROUND)
    drawn: dict[Turn, int] = {}
    for number, part, batch in asked:
        try:
            draw(meter, number, part, batch)
        except (MeterExceeded, ValueError):
            continue
        drawn[Turn(number, part, batch)] = drawn.get(Turn(number, part, batch), 0) + 1
    assert all(count <= ROUND.tokens for count in drawn.values())
    assert all(turn.batch < ROUND.run for turn in drawn)
    begun = {turn.round for turn in drawn}
    assert begun == set(range(len(begun)))
    assert releases(meter.realized)[ROUND] == len(begun) <= rounds


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from([None, "a", "b", "c"]), max_size=30), st.integers(1, 6))
def test_what_all_parts_made_is_counted_as_they_go(asked, covered):
    """The most of any part, kept as a running maximum, is that of looking at all of them at every
    draw.
    """
    event = Exponential(0.1)
    meter = Meter(SelfComposed(event, covered) if covered > 1 else event)
    made = dict.fromkeys([None, "a", "b", "c"], 0)
    for part in asked:
        most = max(made[each] for each in "abc")
        fits = made[None] + (most if part is None else made[part]) + 1 <= covered
        if fits:
            meter.sample_token(SCORES, Fraction(1), event, part)
            made[part] += 1
        else:
            with pytest.raises(MeterExceeded):
                meter.sample_token(SCORES, Fraction(1), event, part)
    spent = made[None] + max(made[each] for each in "abc")
    assert releases(meter.realized)[event] == spent
