"""Prices of the summaries: the noise is an independent root of paper 004's Equations 3 and 4."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import norm

from accountant.core.mechanisms import get, group_means
from accountant.core.privacy.composition import epsilon_alone
from accountant.core.privacy.events import FREE, Gaussian, SelfComposed
from accountant.core.privacy.price import Neighbours, Terms

ADD, REPLACE = Neighbours
GROUPS = ("north", "south", "east")


def sigma_of_the_paper(epsilon, delta, clip, size, tokens, doubled):
    """Equation 3 solved for mu_total, and Equation 4, by another root finder on another form."""

    def short(mu):  # ln of the two terms: their difference in Equation 3 cancels most digits
        one = norm.logcdf(-epsilon / mu + mu / 2)
        two = epsilon + norm.logcdf(-epsilon / mu - mu / 2)
        return one + math.log(-math.expm1(min(two - one, -1e-300))) - math.log(delta)

    mu = brentq(short, 1e-4, 100, xtol=1e-15, rtol=4 * 2.3e-16)
    return doubled * clip * math.sqrt(tokens) / (size * mu)


@pytest.mark.parametrize("neighbours", Neighbours)
@pytest.mark.parametrize("epsilon", [0.5, 1, 2, 10, 50])
@pytest.mark.parametrize(
    ("tokens", "size", "clip"), [(1, 100, 1.0), (50, 100, 10.0), (50, 500, 7.5)]
)
def test_sigma_is_the_root_of_equations_3_and_4(neighbours, epsilon, tokens, size, clip):
    terms, doubled = Terms(neighbours), 2 if neighbours is REPLACE else 1
    raw = {"epsilon": float(epsilon), "clip": clip, "public_size": size}
    wanted = sigma_of_the_paper(epsilon, terms.delta, clip, size, tokens, doubled)
    token = get("summary-token").parse(raw | {"max_tokens": tokens}, terms)
    oneshot = get("summary-oneshot").parse(raw | {"releases": tokens}, terms)
    for found in (token, oneshot):
        assert group_means.sigma(found, terms) == pytest.approx(wanted, rel=1e-9)


@given(st.integers(1, 400), st.floats(0.1, 100), st.integers(1, 5), st.sampled_from(Neighbours))
def test_the_price_of_a_job_is_its_gaussians_and_no_more_than_was_asked(
    count, epsilon, bound, neighbours
):
    terms = Terms(neighbours, max_records_per_unit=bound, public_size=300, groups=GROUPS)
    raw = {"epsilon": epsilon, "public_size": 300, "group_sizes": "east=40, north=1000"}
    for name, field in (("summary-token", "max_tokens"), ("summary-oneshot", "releases")):
        mechanism = get(name)
        parameters = mechanism.parse(raw | {field: count}, terms)
        price = mechanism.price(parameters, terms)
        gaussian = Gaussian(parameters.noise_multiplier)
        single = (
            gaussian if count == 1 and name == "summary-oneshot" else SelfComposed(gaussian, count)
        )
        assert price.dp == single
        assert epsilon_alone(price.dp, terms.delta)[0] <= epsilon * (1 + 1e-9)
        assert "groups are disjoint" in price.breakdown[1]
        assert "n 40" in price.breakdown[0]  # the noise is told where it is largest
        factor = (2 if neighbours is REPLACE else 1) * bound
        assert group_means.sensitivity(parameters, terms) == pytest.approx(
            factor * parameters.clip / 40
        )


def test_a_public_size_is_of_each_group_and_no_real_one_is_needed():
    terms = Terms(public_size=10_000, groups=GROUPS)
    parameters = get("summary-token").parse(
        {"epsilon": 2.0, "public_size": 200, "group_sizes": "south=350"}, terms
    )
    assert group_means.sizes(parameters, terms) == {"north": 200, "south": 350, "east": 200}
    small = get("summary-token").parse({"epsilon": 2.0, "public_size": 8, "min_group": 8}, terms)
    assert group_means.sizes(small, terms)["north"] == 8
    whole = get("summary-oneshot").parse({"epsilon": 2.0}, Terms(public_size=12))
    assert group_means.sizes(whole, Terms(public_size=12)) == {None: 12}


@pytest.mark.parametrize(
    "option",
    [{}, {"public_corpus": "c"}, {"public_corpus": "c", "components": 64}, {"decodings": 1000}],
)
def test_centre_components_and_decodings_change_no_price(option):
    terms = Terms(public_size=500)
    plain = get("summary-oneshot").parse({"epsilon": 2.0}, terms)
    with_option = get("summary-oneshot").parse({"epsilon": 2.0, **option}, terms)
    assert (
        get("summary-oneshot").price(with_option, terms).dp
        == get("summary-oneshot").price(plain, terms).dp
    )


def test_means_are_decoded_again_for_nothing_and_only_with_an_adapter():
    mechanism, terms = get("summary-oneshot"), Terms(groups=GROUPS)
    free = mechanism.parse({"from_job": "job-1", "adapter": "job-2", "public_corpus": "c"}, terms)
    assert mechanism.price(free, terms).dp == FREE
    assert mechanism.missing(free) is None
    assert mechanism.resources(free) == {}  # what the means were made with is not read again
    assert mechanism.sources(free) == {"adapter": "soft-prompt-adapter"}
    undecoded = mechanism.parse({"from_job": "job-1"}, terms)
    assert mechanism.missing(undecoded).field == "adapter"


@pytest.mark.parametrize(
    ("name", "raw", "field"),
    [
        ("summary-token", {"max_tokens": 500}, "max_tokens"),
        ("summary-oneshot", {"max_tokens": 503}, "max_tokens"),
        ("summary-oneshot", {"public_corpus": "c", "components": 161}, "components"),
        ("summary-adapter", {"corpus": "c", "components": 161}, "components"),
        ("summary-adapter", {"corpus": "c", "target_tokens": 502}, "target_tokens"),
    ],
)
def test_what_a_model_has_no_room_for_is_told_by_field_before_anything_is_reserved(
    name, raw, field
):
    mechanism, terms = get(name), Terms(public_size=500)
    noise = {} if mechanism.public else {"epsilon": 1.0}
    parameters = mechanism.parse(noise | raw, terms)
    facts = {"context_tokens": 512, "hidden_size": 160}
    problem = mechanism.unfit(parameters, facts)
    assert problem is not None
    assert problem.field == field
    assert problem.allowed
    fitting = mechanism.parse(noise | {"corpus": "c"} if mechanism.public else noise, terms)
    assert mechanism.unfit(fitting, facts) is None


ADAPTER = {
    **{"template": "Review: {record}", "record_tokens": 256, "clip": 10.0, "centre": True},
    **{"components": None, "soft_tokens": 10, "corpus": "c"},
}


@pytest.mark.parametrize(
    ("own", "earlier", "field"),
    [
        ({"public_corpus": "c"}, None, None),
        ({"public_corpus": "c", "soft_tokens": 9}, None, "soft_tokens"),
        ({"public_corpus": "c", "template": "A {record}"}, None, "template"),
        ({"public_corpus": "c", "record_tokens": 64}, None, "record_tokens"),
        ({"public_corpus": "c", "clip": 9.0}, None, "clip"),
        ({"public_corpus": "c", "components": 4}, None, "components"),
        ({"public_corpus": "d"}, None, "public_corpus"),
        ({}, None, "centre"),
        ({}, {"public_corpus": "c"}, None),
        ({"clip": 3.0}, {"public_corpus": "c"}, None),  # the means were clipped by the earlier job
        ({}, {"public_corpus": "c", "clip": 3.0}, "adapter"),
        ({"soft_tokens": 4}, {"public_corpus": "c"}, "soft_tokens"),
    ],
)
def test_an_adapter_reads_means_as_it_learned_from(own, earlier, field):
    mechanism, terms = get("summary-oneshot"), Terms(public_size=500)
    sources = {"adapter": ADAPTER}
    if earlier is not None:
        released = mechanism.parse({"epsilon": 1.0, **earlier}, terms)
        sources["from_job"] = released.model_dump(mode="json")
        parameters = mechanism.parse({"from_job": "j", "adapter": "a", **own}, terms)
    else:
        parameters = mechanism.parse({"epsilon": 1.0, "adapter": "a", **own}, terms)
    problem = mechanism.unfit_sources(parameters, sources)
    assert (None if problem is None else problem.field) == field
