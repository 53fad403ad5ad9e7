"""What is left in one sentence, a part of what is left, and the largest request that fits."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from accountant.core import mechanisms
from accountant.core.errors import InvalidRequest
from accountant.core.ledger.accounts import (
    Accounts,
    Demand,
    ExPostAccount,
    demand,
    with_largest,
)
from accountant.core.ledger.admission import Account, FilterAccount, Refused
from accountant.core.ledger.caps import NO_USAGE, Usage, beyond_caps
from accountant.core.ledger.policy import Policy
from accountant.core.privacy.events import EpsilonDelta, Gaussian, ZCDp
from accountant.core.privacy.filters import Amount, granted, portfolio
from accountant.core.privacy.price import Neighbours, Terms
from accountant.queries.standing import Shape, Standing, count_shape

POLICY = Policy()


def account(epsilon: str = "3", delta: str = "0.000001") -> Account:
    eps, dlt = granted(epsilon, delta)
    return Account(
        eps, dlt, tuple(FilterAccount(each, each.limit(eps, dlt)) for each in portfolio(eps, dlt))
    )


@st.composite
def accounts(draw: st.DrawFn) -> Accounts:
    """Accounts of every size, with filters that are untouched, nearly full, full, passed and
    closed.
    """
    epsilon = draw(st.sampled_from(["0.05", "0.5", "3", "10", "50"]))
    made = account(epsilon, draw(st.sampled_from(["0.000000001", "0.000001", "0.0001"])))
    shares = st.sampled_from(
        [Fraction(0), Fraction(3, 10), Fraction(999, 1000), Fraction(1), Fraction(3, 2)]
    )

    def used(each: FilterAccount) -> FilterAccount:
        share = draw(shares)
        spent = Amount(int(each.limit.main * share), int(each.limit.delta * share))
        return each._replace(spent=spent, closed=draw(st.sampled_from([0, 0, 0, 1])))

    return Accounts(
        replace(made, filters=tuple(map(used, made.filters))), ExPostAccount(limit=10**9)
    )


def job(tokens: int = 100) -> Shape:
    """A job of private prediction, with its ε by itself."""
    mechanism, terms = mechanisms.get("private-prediction"), Terms(public_size=10_000)
    price = mechanism.price(mechanism.parse({"tokens_per_batch": tokens}, terms), terms)
    assert price.dp is not None
    return Shape.of(price, terms.delta)


# --- the sentence -------------------------------------------------------------------------------


@settings(deadline=None, max_examples=60)
@given(accounts(), st.integers(1, 400))
def test_what_a_sentence_promises_is_admitted_and_no_more(standing, tokens):
    """So many jobs fit one after the other, and then none: by reserving them, not by the same
    division.
    """
    like, terms = job(tokens), Terms(public_size=10_000)
    whole = left = Standing(standing, NO_USAGE, POLICY)
    told, fitted = whole.remaining(terms, like), 0
    assert told is not None and told.jobs is not None  # noqa: PT018
    while fitted <= min(told.jobs, 30) and left.accounts.fits(like.asked):
        left = left.after(like)
        fitted += 1
    assert fitted == told.jobs or told.jobs > 30
    if told.jobs:
        assert whole.share_left() > 0
        assert whole.after(like).share_left() <= whole.share_left()


SENTENCES = [
    ({}, "100 % left: 3 more jobs like this, or 40 counts."),
    ({"mechanisms": ("private-prediction",)}, "100 % left: 3 more jobs like this."),
    ({"analyst_epsilon": "0.45"}, "100 % left: no other job like this, but 4 counts."),
    ({"analyst_epsilon": "0.01"}, "100 % left, not enough for another job like this or a count."),
]


@pytest.mark.parametrize(("policy", "sentence"), SENTENCES)
def test_sentences(policy, sentence):
    """Pure jobs of ε 1 and counts of ε 0.1 on an allowance of ε 3."""
    mechanism, terms = mechanisms.get("noisy-count"), Terms()
    price = mechanism.price(mechanism.parse({"epsilon": 1.0}, terms), terms)
    standing = Standing(Accounts(account()), NO_USAGE, Policy(**policy))
    told = standing.remaining(terms, Shape(demand(price), 1.0))
    assert told is not None
    assert told.sentence == sentence


def test_an_overdrawn_account_says_so_and_one_without_allowance_nothing():
    like, terms = job(), Terms(public_size=10_000)
    made = account()
    passed = tuple(each._replace(spent=each.limit + Amount(1, 0)) for each in made.filters)
    standing = Standing(Accounts(replace(made, filters=passed)), NO_USAGE, POLICY)
    told = standing.remaining(terms, like)
    assert told is not None
    assert (told.share, told.sentence.split()[0]) == (0, "Overdrawn:")
    assert Standing(Accounts(), NO_USAGE, POLICY).remaining(terms, like) is None


# --- a part of what is left ---------------------------------------------------------------------


@settings(deadline=None, max_examples=60)
@given(accounts(), st.fractions(Fraction(1, 1000), 1), st.integers(1, 400))
def test_what_fits_a_part_takes_no_more_of_any_filter_that_admits_it(standing, share, tokens):
    asked = job(tokens).asked
    part = Standing(standing, NO_USAGE, POLICY).part(share).accounts
    assert standing.dp is not None and part.dp is not None  # noqa: PT018
    if not part.fits(asked):
        return
    assert standing.fits(asked)
    costs = standing.dp.costs(asked.dp)
    within = [
        cost.main <= share * each.left.main and cost.delta <= share * each.left.delta
        for each in standing.dp.filters
        if each.closed == 0 and (cost := costs[each.filter.kind]) is not None
    ]
    assert any(within)


def test_a_part_of_the_caps_is_a_part_of_what_they_leave():
    policy = Policy(analyst_epsilon="1")
    part = Standing(Accounts(), Usage(analyst=5 * 10**8), policy).part(Fraction(1, 10)).used
    assert beyond_caps(part, policy, 0.0499999) is None
    assert beyond_caps(part, policy, 0.0500001) is not None


# --- the largest request ------------------------------------------------------------------------

ROUNDS = {"amplification": "allocation", "batches_per_label": 40}
#: Requests as a form states them: with the fields that stand beside the size.
SHAPES: list[tuple[str, dict[str, Any], tuple[Any, ...]]] = [
    (
        "private-prediction",
        {"tokens_per_batch": 5000, "max_text_tokens": 128},
        (1, 2, 5, 20, 40, 128),
    ),
    (
        "private-prediction",
        {"tokens_per_batch": 50, "amplification": "allocation", "rounds": 900},
        (1, 3, 40),
    ),
    (
        "private-prediction",
        {"tokens_per_batch": 900, "max_text_tokens": 900, "clip": 90.0},
        (1, 2, 3),
    ),
    ("invisible-ink", {"texts_per_batch": 50, "max_tokens": 40}, (1, 2, 10)),
    ("noisy-count", {"epsilon": 60.0}, (1e-6, 1e-4, 0.01, 0.1, 1.0)),
    ("epsvec", {"epsilon": 60.0, "samples_per_label": 50}, (0.001, 0.01, 0.1, 1.0)),
    ("aug-pe", {"epsilon": 60.0}, (0.001, 0.01, 0.1, 1.0)),
    ("dp-kps", {"kde_epsilon": 60.0, "vocabulary": "job"}, (0.001, 0.01, 0.1, 1.0)),
    ("summary-token", {"epsilon": 60.0, "public_size": 500}, (0.001, 0.01, 0.1, 1.0)),
]


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(accounts(), st.sampled_from(SHAPES), st.sampled_from(list(Neighbours)))
# 40 tokens fit, and texts of 128 do not
@example(Accounts(account()), SHAPES[0], Neighbours.ADD_REMOVE)
def test_the_largest_request_is_found_whenever_one_exists(standing, shape, neighbours):
    name, raw, sizes = shape
    mechanism = mechanisms.get(name)
    terms = Terms(neighbours=neighbours, public_size=10_000, labels=("a", "b"))

    def fits(changes: dict[str, Any]) -> bool:
        try:
            price = mechanism.price(mechanism.parse(raw | changes, terms), terms)
        except InvalidRequest:
            return False
        return standing.fits(demand(price))

    if fits({}):
        return
    told = with_largest(Refused("renyi", "0", "1", "-"), mechanism, raw, terms, standing)
    assert told.size_field is not None
    for size in {told.size_field, mechanism.size_field}:
        some = [value for value in sizes if fits({size: value})]
        if some and size == told.size_field:
            assert told.largest is not None
            assert told.largest >= max(some)
        assert told.largest is not None or not some, (size, some)
    if told.largest is not None:
        assert fits({told.size_field: told.largest})


def test_counts_are_those_that_the_policy_admits():
    assert count_shape(Terms(), Policy(mechanisms=("epsvec",))) is None
    price = count_shape(Terms(labels=("a", "b")), POLICY)
    assert price is not None
    assert price.epsilon_alone == pytest.approx(0.1, rel=1e-3)


def test_a_limit_of_texts_hides_no_smaller_request():
    """40 tokens fit here and 128 do not: that texts may have 128 is no reason to find none."""
    mechanism, terms, standing = (
        mechanisms.get("private-prediction"),
        Terms(public_size=10_000),
        account(),
    )
    asked = {"tokens_per_batch": 5000, "max_text_tokens": 128}
    told = with_largest(
        Refused("renyi", "0", "1", "-"), mechanism, asked, terms, Accounts(standing)
    )
    assert told.largest is not None
    assert 20 < told.largest < 128


# --- what a job closes --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "closing"),
    [
        (EpsilonDelta(0.5, 1e-8), ""),
        (Gaussian(10.0), ""),
        (
            ZCDp(0.001),
            "It closes the filter Gaussian for good: later jobs count on the filters Rényi, Rényi, "
            "low order and Basic alone.",
        ),
        (
            EpsilonDelta(0.5, 5e-7),
            "It closes the filters Rényi, Gaussian and Rényi, low order for good: later jobs count "
            "on the filter Basic alone, where the ε of every job adds up.",
        ),
    ],
)
def test_what_a_job_closes_is_said_before_it_is_sent(event, closing):
    standing = Standing(Accounts(account()), NO_USAGE, POLICY)
    effect = standing.effect(Shape(Demand(event), 0.5), terms=Terms())
    assert effect.remaining_after is not None
    assert effect.remaining_after.sentence.endswith(closing)
    assert ("closes" in effect.remaining_after.sentence) == bool(closing)
    assert effect.closes == (closing or None)
