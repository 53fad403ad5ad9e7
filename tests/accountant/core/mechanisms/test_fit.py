"""Fitting: the value of a field that spends as much of an epsilon as possible without passing
it.
"""

import pytest

from accountant.core.errors import InvalidRequest
from accountant.core.mechanisms import get
from accountant.core.mechanisms.fitting import fit
from accountant.core.privacy.composition import epsilon_alone
from accountant.core.privacy.filters import granted, portfolio
from accountant.core.privacy.price import Neighbours, Price, Terms

TERMS = Terms(public_size=20_000, labels=("a", "b"))
REPLACE = Terms(Neighbours.REPLACE_ONE, public_size=10_000)

#: (mechanism, the rest of the request, field, terms, whether the price rises with it)
FIELDS = [
    ("private-prediction", {}, "tokens_per_batch", TERMS, True),
    ("private-prediction", {}, "batch_size", TERMS, False),
    ("private-prediction", {}, "clip", TERMS, True),
    ("private-prediction", {}, "temperature", TERMS, False),
    (
        "private-prediction",
        {"batching": "clusters", "tokens_per_batch": 99},
        "cluster_epsilon",
        TERMS,
        True,
    ),
    ("private-prediction", {"max_text_tokens": 20}, "tokens_per_batch", TERMS, True),
    ("invisible-ink", {"max_tokens": 20}, "texts_per_batch", TERMS, True),
    ("invisible-ink", {}, "max_tokens", TERMS, True),
    ("invisible-ink", {}, "batch_size", TERMS, False),
    ("invisible-ink", {}, "clip", TERMS, True),
    ("invisible-ink", {}, "temperature", TERMS, False),
    ("epsvec", {}, "epsilon", TERMS, True),
    ("epsvec", {"noise_multiplier": 3.0}, "epsilon", TERMS, True),
    ("epsvec", {}, "noise_multiplier", TERMS, False),
    ("epsvec", {"noise_multiplier": 3.0}, "shots_epsilon", TERMS, True),
    ("epsvec", {"noise_multiplier": 3.0}, "shots_noise_multiplier", TERMS, False),
    ("epsvec", {"noise_multiplier": 1.0}, "samples_per_label", TERMS, True),
    ("epsvec", {"noise_multiplier": 1.0}, "sampling_rate", TERMS, True),
    (
        "epsvec",
        {"noise_multiplier": 1.0, "sampling": "without-replacement"},
        "samples_per_label",
        REPLACE,
        True,
    ),
    ("dp-kps", {}, "vocabulary_epsilon", TERMS, True),
    ("dp-kps", {}, "vocabulary_noise_multiplier", TERMS, False),
    ("dp-kps", {}, "kde_epsilon", TERMS, True),
    ("dp-kps", {"noise": "gaussian"}, "kde_epsilon", TERMS, True),
    ("dp-kps", {}, "kde_noise_multiplier", TERMS, False),
    ("dp-kps", {"kde_noise_multiplier": 9.0, "method": "linear"}, "sequence_length", TERMS, True),
    ("aug-pe", {"noise_multiplier": 5.0}, "epochs", TERMS, True),
    ("aug-pe", {}, "epsilon", TERMS, True),
    ("aug-pe", {}, "noise_multiplier", REPLACE, False),
    ("summary-token", {"noise_multiplier": 9.0}, "max_tokens", TERMS, True),
    ("summary-token", {}, "epsilon", TERMS, True),
    ("summary-token", {}, "noise_multiplier", TERMS, False),
    ("summary-oneshot", {"noise_multiplier": 9.0}, "releases", TERMS, True),
    ("summary-oneshot", {}, "epsilon", TERMS, True),
    ("summary-oneshot", {}, "noise_multiplier", TERMS, False),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "raw", "field", "terms", "rises"), FIELDS, ids=lambda value: str(value)[:40]
)
def test_every_field_that_moves_the_price_can_be_fitted(name, raw, field, terms, rises):
    """The value found is affordable; one step further towards the dearer end is not, or is not
    accepted.
    """
    mechanism, target = get(name), 7.0

    def spent(price: Price) -> float:
        return epsilon_alone(price.dp, terms.delta)[0]

    found = fit(mechanism, raw, terms, field, lambda price: spent(price) <= target)
    assert found is not None
    assert spent(mechanism.price(found.parameters, terms)) <= target
    step = found.value + (1 if rises else -1) if isinstance(found.value, int) else None
    if step is None:
        step = found.value * (1.001 if rises else 0.999)
    pair = {b if field == a else a: None for a, b in mechanism.parameters.either if field in (a, b)}
    try:
        further = mechanism.parse({**raw, **pair, field: step}, terms)
    except InvalidRequest:
        return  # the end of what is accepted
    assert spent(mechanism.price(further, terms)) > target


@pytest.mark.parametrize(
    ("field", "dearer"),
    [("tokens_per_batch", 1), ("batch_size", -1), ("clip", 1.001), ("temperature", 0.999)],
)
def test_on_a_dataset_a_field_is_fitted_to_what_the_filters_have_left(field, dearer):
    """Both directions: one step dearer, and no filter of the account admits it."""
    allowance = granted(4, 1e-6)
    filters = portfolio(*allowance)

    def admitted(price: Price) -> bool:
        return any(
            (cost := each.cost(price.dp)) and cost.fits(each.limit(*allowance)) for each in filters
        )

    mechanism = get("private-prediction")
    found = fit(mechanism, {}, TERMS, field, admitted)
    assert found is not None
    assert admitted(mechanism.price(found.parameters, TERMS))
    further = found.value + dearer if isinstance(found.value, int) else found.value * dearer
    assert not admitted(mechanism.price(mechanism.parse({field: further}, TERMS), TERMS))


def test_a_cap_of_the_median_is_fitted_like_any_price():
    raw = {"aggregation": "median", "ex_post_cap": 1.0}
    found = fit(
        get("private-prediction"), raw, Terms(), "ex_post_cap", lambda price: price.ex_post_cap <= 5
    )
    assert found is not None
    assert found.value == 5


def test_nothing_is_found_where_no_value_fits():
    found = fit(get("private-prediction"), {}, TERMS, "tokens_per_batch", lambda price: False)
    assert found is None


@pytest.mark.parametrize(
    ("name", "field", "why"),
    [
        ("private-prediction", "texts_per_batch", "no parameter"),
        ("private-prediction", "top_k", "does not move the price"),
        ("private-prediction", "template", "not a bounded number"),
        ("invisible-ink", "top_k", "does not move the price"),
        ("private-prediction", "clusters", "does not move the price"),
        ("dp-kps", "features", "does not move the price"),
    ],
)
def test_a_field_that_is_no_price_can_not_be_fitted(name, field, why):
    with pytest.raises(InvalidRequest, match=why):
        fit(get(name), {}, TERMS, field, lambda price: True)
