"""Paper 001, Table 10: the twelve token counts that an epsilon allows, by `fit` alone and on an
account.
"""

from fractions import Fraction

import pytest

from accountant.core.mechanisms import get
from accountant.core.mechanisms.fitting import fit
from accountant.core.privacy.composition import epsilon_alone
from accountant.core.privacy.events import releases
from accountant.core.privacy.filters import ZERO, granted, portfolio
from accountant.core.privacy.price import Price, Terms

MECHANISM = get("private-prediction")
SIZES = {"AG News": 108_000, "Yelp": 504_000, "NYT Topics": 230_400}
TABLE = [
    (10.0, 64, {"AG News": 373, "Yelp": 337, "NYT Topics": 355}),
    (9.9, 64, {"AG News": 367, "Yelp": 331, "NYT Topics": 349}),
    (3.0, 256, {"AG News": 733, "Yelp": 642, "NYT Topics": 686}),
    (2.9, 256, {"AG News": 689, "Yelp": 604, "NYT Topics": 645}),
]


@pytest.mark.parametrize(
    ("epsilon", "batch_size", "dataset", "tokens"),
    [(epsilon, size, name, count) for epsilon, size, row in TABLE for name, count in row.items()],
)
def test_the_most_tokens_that_an_epsilon_allows_are_those_of_the_paper(
    epsilon, batch_size, dataset, tokens
):
    terms = Terms(delta=SIZES[dataset] ** -1.1)

    def affordable(price: Price) -> bool:
        return epsilon_alone(price.dp, terms.delta)[0] <= epsilon

    found = fit(MECHANISM, {"batch_size": batch_size}, terms, "tokens_per_batch", affordable)
    assert found is not None
    assert found.value == tokens


def test_on_a_dataset_the_filters_give_fewer_tokens_than_alone():
    """An account of (10, delta) admits 359 and not 373: the filter that serves holds half of
    delta.
    """
    delta = 108_000**-1.1
    allowance = granted(10, delta)
    filters = portfolio(*allowance)

    def affordable(price: Price) -> bool:
        return any(
            (cost := each.cost(price.dp)) and cost.fits(each.limit(*allowance)) for each in filters
        )

    found = fit(MECHANISM, {}, Terms(delta=delta), "tokens_per_batch", affordable)
    assert found is not None
    assert found.value == 359


def test_two_private_records_in_a_context_cost_what_the_paper_does_not_charge():
    """MECHANISMS: at sensitivity 2c/s the paper's T = 373 is epsilon 23.7."""
    terms = Terms(delta=108_000**-1.1)
    raw = {"examples_per_context": 2, "context_partner": "lowest-hash"}
    parameters = MECHANISM.parse(raw, terms)
    assert epsilon_alone(MECHANISM.price(parameters, terms).dp, terms.delta)[0] == pytest.approx(
        23.7, abs=0.05
    )


def test_the_cluster_counts_read_as_the_design_says():
    terms = Terms(delta=1e-6)
    parameters = MECHANISM.parse({"batching": "clusters"}, terms)
    price = MECHANISM.price(parameters, terms)
    assert price.breakdown[0] == "1,000 cluster counts: Laplace, scale 10, ε 0.10"
    assert "373 tokens of one batch: zCDP 1.64;" in price.breakdown[-2]
    assert len(releases(price.dp)) == 2
    assert ZERO.fits(portfolio(*granted(1, 1e-6))[0].limit(*granted(1, 1e-6)))
    assert Fraction(price.dp.events[0].noise_multiplier) == 10
