"""Requests with amplification: which events they make, what they refuse, and what `fit` finds for
rounds.
"""

from fractions import Fraction

import pytest

from accountant.core import mechanisms
from accountant.core.errors import InvalidRequest
from accountant.core.ledger.accounts import Accounts, decide_job, demand, with_largest
from accountant.core.ledger.admission import Refused
from accountant.core.ledger.policy import Policy
from accountant.core.mechanisms.base import quote
from accountant.core.mechanisms.fitting import fit
from accountant.core.privacy.composition import epsilon_alone
from accountant.core.privacy.divergences import renyi
from accountant.core.privacy.events import Allocated, AllocatedReplaced, Exponential, SelfComposed
from accountant.core.privacy.price import Neighbours, Terms
from accountant.core.privacy.units import float_up
from tests.accountant.core.privacy.test_filters import account

PREDICTION, INK = mechanisms.get("private-prediction"), mechanisms.get("invisible-ink")
BOTH = [PREDICTION, INK]
TERMS = Terms(public_size=120_000, labels=("a", "b", "c", "d"), delta=2.9e-6)
SECRET = {"amplification": "allocation"}
MEDIAN = {"aggregation": "median", "ex_post_cap": 1.0}


def priced(mechanism, raw: dict, terms: Terms = TERMS):
    return mechanism.price(mechanism.parse(raw, terms), terms)


@pytest.mark.parametrize("mechanism", BOTH, ids=lambda each: each.id)
def test_a_request_without_amplification_means_what_it_meant(mechanism):
    plain = priced(mechanism, {})
    assert isinstance(plain.dp, SelfComposed)
    assert isinstance(plain.dp.event, Exponential)
    assert priced(mechanism, {"amplification": "none", "rounds": 1}) == plain


def test_the_event_of_one_coin_and_of_rounds():
    shift = Exponential(float_up(Fraction(9) / 64 / Fraction(1.5)))
    assert priced(PREDICTION, SECRET).dp == Allocated(468, 468, 373, shift)
    rounds = {**SECRET, "tokens_per_batch": 50, "rounds": 341}
    assert priced(PREDICTION, rounds).dp == SelfComposed(Allocated(468, 468, 50, shift), 341)
    some = {**rounds, "batches_to_run": 100}
    assert priced(PREDICTION, some).dp == SelfComposed(Allocated(468, 100, 50, shift), 341)


def test_the_event_of_invisible_ink_holds_the_longest_texts():
    raw = {**SECRET, "texts_per_batch": 2, "max_tokens": 30, "batches_per_label": 7, "rounds": 3}
    assert priced(INK, raw).dp == SelfComposed(Allocated(7, 7, 60, Exponential(0.125)), 3)


@pytest.mark.parametrize("mechanism", BOTH, ids=lambda each: each.id)
def test_where_a_unit_is_replaced_the_event_is_that_of_two_coins(mechanism):
    terms = Terms(Neighbours.REPLACE_ONE, public_size=120_000, labels=("a", "b", "c", "d"))
    event = priced(mechanism, SECRET, terms).dp
    assert isinstance(event, AllocatedReplaced)
    added = priced(mechanism, SECRET)
    assert event.draw == added.dp.draw, (
        "how far a batch with one unit lies from the batch with neither"
    )


@pytest.mark.parametrize("mechanism", BOTH, ids=lambda each: each.id)
@pytest.mark.parametrize("order", [Fraction(2), Fraction(4), Fraction(10)])
def test_a_secret_batch_never_costs_more_than_a_known_one_and_fewer_batches_cost_less(
    mechanism, order
):
    terms = Terms(public_size=5_000, labels=("a", "b"))
    for neighbours in Neighbours:
        own = Terms(neighbours, public_size=5_000, labels=terms.labels)
        costs = [
            renyi(priced(mechanism, raw, own).dp, order)
            for raw in (
                {},
                SECRET,
                {**SECRET, "batches_to_run": 5},
                {**SECRET, "batches_to_run": 1},
            )
        ]
        assert costs == sorted(costs, reverse=True), costs


BAD = [
    (PREDICTION, {"rounds": 2}, "rounds"),
    (INK, {"rounds": 2}, "rounds"),
    (PREDICTION, {"batches_to_run": 2}, "batches_to_run"),
    (PREDICTION, {**SECRET, "batches_per_label": 5, "batches_to_run": 6}, "batches_to_run"),
    (INK, {**SECRET, "batches_per_label": 5, "batches_to_run": 6}, "batches_to_run"),
    (PREDICTION, {**SECRET, "rounds": 0}, "rounds"),
    (PREDICTION, {**SECRET, **MEDIAN}, "amplification"),
    (PREDICTION, {**SECRET, "batching": "clusters"}, "amplification"),
    (PREDICTION, {"amplification": "shuffling"}, "amplification"),
]


@pytest.mark.parametrize(("mechanism", "raw", "field"), BAD, ids=lambda each: str(each)[:40])
def test_what_has_no_such_price_is_refused_by_its_field(mechanism, raw, field):
    with pytest.raises(InvalidRequest) as caught:
        mechanism.parse(raw, TERMS)
    assert {each.field for each in caught.value.problems} == {field}
    assert all(each.allowed for each in caught.value.problems)


@pytest.mark.parametrize("mechanism", BOTH, ids=lambda each: each.id)
def test_without_a_number_of_batches_a_secret_one_has_no_price(mechanism):
    with pytest.raises(InvalidRequest, match="batches_per_label"):
        mechanism.parse(SECRET, Terms())
    mechanism.parse({}, Terms())


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1.0, 3.0])
def test_fit_finds_the_most_rounds(epsilon):
    raw = {**SECRET, "tokens_per_batch": 50}

    def affordable(price) -> bool:
        return epsilon_alone(price.dp, TERMS.delta)[0] <= epsilon

    found = fit(PREDICTION, raw, TERMS, "rounds", affordable)
    assert found is not None
    assert affordable(priced(PREDICTION, {**raw, "rounds": found.value}))
    assert not affordable(priced(PREDICTION, {**raw, "rounds": found.value + 1}))
    least = {1.0: 2_200, 3.0: 16_900}  # tokens a batch, by Rényi divergence alone
    assert found.value * 50 >= least[epsilon]


@pytest.mark.slow
def test_a_refusal_names_the_most_rounds_or_else_the_longest_that_fit():
    accounts = Accounts(account("3", "0.0000029"))
    for raw, field in (
        ({**SECRET, "tokens_per_batch": 50, "rounds": 10_000}, "rounds"),
        ({**SECRET, "tokens_per_batch": 100_000, "rounds": 2}, "tokens_per_batch"),
        ({"tokens_per_batch": 10_000}, "tokens_per_batch"),
    ):
        asked = demand(priced(PREDICTION, raw))
        refused = decide_job(accounts, asked, 1.0, Policy(auto_approve_epsilon="1000"), True)
        assert isinstance(refused, Refused)
        told = with_largest(refused, PREDICTION, raw, TERMS, accounts)
        assert told.size_field == field
        assert accounts.fits(demand(priced(PREDICTION, {**raw, field: told.largest})))
        assert not accounts.fits(demand(priced(PREDICTION, {**raw, field: told.largest + 1})))


def test_fitting_rounds_without_amplification_says_what_is_missing():
    with pytest.raises(InvalidRequest, match="amplification"):
        fit(PREDICTION, {}, TERMS, "rounds", lambda _: True)


def test_the_quote_says_what_is_charged_whom_it_holds_for_and_where_the_cliff_is():
    parsed = PREDICTION.parse(
        {**SECRET, "tokens_per_batch": 50, "rounds": 341, "batches_to_run": 100}, TERMS
    )
    told = " ".join(quote(PREDICTION, parsed, TERMS)["breakdown"])
    assert "468 batches, of which 100 are run," in told
    assert "341 rounds of 50 tokens, each charged whole once a token of it is drawn" in told
    assert "for whoever holds the key it costs 17,050 tokens of one batch: zCDP 74.93" in told
    assert "so all cost as one" not in told
    assert "are read anew: at most 8,729,600 in all" in told, "341 rounds, 400 batches of 64"
    assert "245 at order 4, 98 at order 10" in told, "1.4 ln 468 / (order * 0.09375^2)"
