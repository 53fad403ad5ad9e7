"""Prices of each mechanism under both relations, with several records in a unit, and in words."""

import json
import math
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accountant.core.errors import InvalidRequest
from accountant.core.mechanisms import MECHANISMS, aug_pe, dp_kps, epsvec, get, noisy_count
from accountant.core.mechanisms.base import quote
from accountant.core.privacy import divergences
from accountant.core.privacy.composition import epsilon_alone
from accountant.core.privacy.events import (
    FREE,
    Composed,
    Exponential,
    Gaussian,
    Laplace,
    PoissonSampled,
    PoissonSwapped,
    SampledWithoutReplacement,
    SelfComposed,
    WorstOf,
    from_json,
    releases,
    to_json,
)
from accountant.core.privacy.price import Neighbours, Terms

ADD, REPLACE = Neighbours.ADD_REMOVE, Neighbours.REPLACE_ONE

#: One request per shape of price.
SHAPES = {
    "mean": ("private-prediction", {}),
    "mean of clusters": ("private-prediction", {"batching": "clusters"}),
    "two of a slot": (
        "private-prediction",
        {"examples_per_context": 2, "context_partner": "exact-slot"},
    ),
    "two lowest": (
        "private-prediction",
        {"examples_per_context": 2, "context_partner": "lowest-hash"},
    ),
    "noisy-count": ("noisy-count", {}),
    "noisy-count gaussian": ("noisy-count", {"noise": "gaussian", "noise_multiplier": 5.0}),
    "invisible-ink": ("invisible-ink", {}),
    "epsvec": ("epsvec", {"epsilon": 3.0}),
    "epsvec joint": ("epsvec", {"epsilon": 3.0, "clipping": "joint", "shots": 0}),
    "epsvec all": (
        "epsvec",
        {"noise_multiplier": 2.0, "sampling_rate": 1.0, "shots_noise_multiplier": 9.0},
    ),
    "dp-kps": ("dp-kps", {}),
    "dp-kps linear": ("dp-kps", {"method": "linear"}),
    "dp-kps gaussian": ("dp-kps", {"method": "logarithmic", "noise": "gaussian"}),
    "aug-pe": ("aug-pe", {"epsilon": 2.0, "votes": 3}),
    "summary-token": ("summary-token", {"epsilon": 4.0}),
    "summary-oneshot": ("summary-oneshot", {"epsilon": 4.0, "releases": 3}),
}
TERMS = [
    Terms(neighbours, 1e-6, records, 20_000, labels)
    for neighbours in Neighbours
    for records in (1, 3)
    for labels in ((), ("a", "b"))
]


def priced(name: str, raw: dict, terms: Terms):
    parameters = get(name).parse(raw, terms)
    return get(name).price(parameters, terms), parameters


@pytest.mark.parametrize(
    ("shape", "terms"),
    [
        (shape, terms)
        for place, shape in enumerate(SHAPES)
        for terms in dict.fromkeys((TERMS[0], TERMS[place % len(TERMS)], TERMS[-1]))
    ],
    ids=str,
)
def test_a_price_is_positive_recomputable_and_readable(shape, terms):
    """Under every relation: positive on each filter, equal after a round trip through stored
    JSON.
    """
    name, raw = SHAPES[shape]
    price, parameters = priced(name, raw, terms)
    stored = json.loads(json.dumps(parameters.model_dump(mode="json")))
    again, reparsed = priced(name, stored, Terms.from_json(json.loads(json.dumps(terms.to_json()))))
    assert reparsed == parameters
    assert to_json(again.dp) == to_json(price.dp)
    assert from_json(json.loads(json.dumps(to_json(price.dp)))) == price.dp
    assert epsilon_alone(price.dp, terms.delta)[0] > 0
    assert divergences.renyi(price.dp, Fraction(3)) > 0
    assert divergences.gaussian_mu_squared(price.dp) > 0
    assert price.breakdown
    assert all(line == line.strip() for line in price.breakdown)
    assert quote(get(name), parameters, terms)["breakdown"] == list(price.breakdown)


def test_what_reads_only_released_artifacts_is_free_and_nothing_else_is():
    for name in ("epsvec", "dp-kps", "summary-oneshot"):
        price, parameters = priced(name, {"from_job": "job-7"}, Terms())
        assert price.dp == FREE
        assert priced(name, parameters.model_dump(mode="json"), Terms())[0].dp == FREE
    for name, raw in SHAPES.values():
        assert releases(priced(name, raw, Terms(public_size=1_000))[0].dp)


# --- private-prediction --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("partner", "factor"),
    [(None, 1), ("public", 1), ("shot", 1), ("exact-slot", 1), ("lowest-hash", 2)],
)
@pytest.mark.parametrize("records", [1, 4])
def test_a_token_moves_by_c_over_s_and_twice_that_where_a_context_changes(partner, factor, records):
    """Trap 4: the public batch size divides, and two private records that share a context double
    it.
    """
    raw = {"batch_size": 50, "clip": 8.0, "temperature": 2.0, "tokens_per_batch": 7}
    raw |= {"examples_per_context": 2, "context_partner": partner} if partner else {}
    shift = float(Fraction(factor * records * 8, 100))
    price, _ = priced("private-prediction", raw, Terms(ADD, max_records_per_unit=records))
    assert price.dp == SelfComposed(Exponential(shift), 7)
    price, _ = priced("private-prediction", raw, Terms(REPLACE, max_records_per_unit=records))
    stays, moves = price.dp.event.events
    assert stays == Exponential(2 * shift)
    assert moves == SelfComposed(Exponential(shift), 2)


def test_the_number_of_batches_and_of_records_in_them_does_not_move_the_price():
    """Batches are disjoint and their denominator public."""
    few, _ = priced("private-prediction", {"batches_per_label": 1}, Terms(public_size=100))
    many, _ = priced("private-prediction", {"batches_per_label": 900}, Terms(public_size=10**6))
    assert few.dp == many.dp


def test_clusters_cost_one_laplace_histogram_on_top():
    price, _ = priced(
        "private-prediction", {"batching": "clusters", "cluster_epsilon": 0.25}, Terms()
    )
    counts, tokens = price.dp.events
    assert counts == Laplace(4.0)
    assert tokens == priced("private-prediction", {}, Terms())[0].dp
    for terms, scale in ((Terms(REPLACE), "20"), (Terms(ADD, max_records_per_unit=3), "30")):
        text = priced("private-prediction", {"batching": "clusters"}, terms)[0].breakdown[0]
        assert f"scale {scale}, ε 0.10" in text


def test_the_median_costs_a_cap_and_dp_for_cluster_counts_only():
    raw = {"aggregation": "median", "ex_post_cap": 2.4}
    price, parameters = priced("private-prediction", raw, Terms())
    assert price.dp is None
    assert price.ex_post_cap == Fraction(2.4)
    assert parameters.clip == 6.0
    shown = quote(get("private-prediction"), parameters, Terms())
    assert shown["dp"] is None
    assert shown["ex_post"] == {"cap": 2.4}
    price, _ = priced("private-prediction", raw | {"batching": "clusters"}, Terms())
    assert price.dp == Laplace(10.0)
    assert price.ex_post_cap == Fraction(2.4)


SHIFTS = st.floats(1e-4, 20)


@given(SHIFTS, SHIFTS, st.floats(1.01, 200))
def test_the_cost_of_tokens_is_superadditive_in_the_shift_on_every_filter(a, b, order):
    """All records of a unit in one batch are the worst case, as private_prediction.py claims."""
    for cost, rounding in (
        (lambda event: divergences.quoted_renyi(event, Fraction(order)), Fraction(1, 10**9)),
        # 20 digits
        (lambda event: divergences.renyi(event, Fraction(order)), Fraction(1, 10**5)),
        (divergences.gaussian_mu_squared, Fraction(1, 10**9)),
        (divergences.pure_epsilon, Fraction(1, 10**9)),
    ):
        apart = cost(Exponential(a)) + cost(Exponential(b))
        assert cost(Exponential(a + b)) >= apart * (1 - rounding)


@given(st.floats(1e-300, 1))
def test_the_smallest_shift_has_a_price_on_every_filter(shift):
    """mu = -2 Phi^-1(1 / (1 + e^x)) is sqrt(pi/2) x near 0, where a quantile would give nothing."""
    squared = divergences.gaussian_mu_squared(Exponential(shift))
    assert squared > 0
    bound = Fraction(math.pi) / 2 * Fraction(shift) ** 2
    assert bound * Fraction(9, 10) <= squared <= bound * (1 + Fraction(1, 10**9))


# --- noisy-count ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("terms", "per", "moved"),
    [
        (Terms(ADD), "label", 1),
        (Terms(REPLACE), "label", 1),  # an unreadable unit may replace a readable one
        (Terms(ADD, labels=("a", "b", "c")), "label", 1),
        (Terms(REPLACE, labels=("a", "b", "c")), "label", 2),
        (Terms(ADD, max_records_per_unit=2, labels=("a", "b", "c")), "label", 2),
        (Terms(REPLACE, max_records_per_unit=2, labels=("a", "b", "c")), "label", 3),
        (Terms(ADD, max_records_per_unit=9, labels=("a", "b", "c")), "label", 3),
        (Terms(ADD, max_records_per_unit=9, labels=("a", "b", "c")), "dataset", 1),
        (Terms(REPLACE, max_records_per_unit=9, labels=("a", "b", "c")), "dataset", 1),
    ],
    ids=str,
)
def test_a_unit_moves_as_many_counts_as_it_may_have_labels(terms, per, moved):
    price, parameters = priced("noisy-count", {"per": per, "epsilon": 0.5}, terms)
    assert price.dp == Laplace(2.0)
    assert noisy_count.sensitivity(parameters, terms) == moved
    assert f"scale {2 * moved}" in price.breakdown[0]
    gaussian, parameters = priced(
        "noisy-count", {"per": per, "noise": "gaussian", "epsilon": 0.5}, terms
    )
    assert epsilon_alone(gaussian.dp, terms.delta)[0] == pytest.approx(0.5)
    assert Fraction(noisy_count.sensitivity(parameters, terms)) ** 2 >= moved
    assert noisy_count.sensitivity(parameters, terms) == pytest.approx(math.sqrt(moved))


# --- invisible-ink -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("private-prediction", {}),
        ("private-prediction", {"amplification": "allocation", "batches_per_label": 9}),
        ("private-prediction", {"aggregation": "median", "ex_post_cap": 3.0}),
        ("invisible-ink", {}),
        ("summary-token", {"epsilon": 2.0, "public_size": 100}),
    ],
)
@pytest.mark.parametrize("neighbours", [ADD, REPLACE])
def test_a_public_support_changes_no_price(name, raw, neighbours):
    if neighbours is REPLACE and "aggregation" in raw:
        return  # the median is refused there
    for top_k in (1, 100, 10**7):
        with_it, _ = priced(name, raw | {"top_k": top_k}, Terms(neighbours))
        without, _ = priced(name, raw | {"top_k": 0}, Terms(neighbours))
        assert replace(with_it, breakdown=()) == replace(without, breakdown=())
        assert len(with_it.breakdown) == len(without.breakdown) + 1


def test_invisible_ink_pays_for_the_tokens_of_one_batch_and_nothing_for_top_k():
    raw = {"batch_size": 8, "clip": 0.5, "max_tokens": 30, "texts_per_batch": 4}
    price, _ = priced("invisible-ink", raw, Terms())
    assert price.dp == SelfComposed(Exponential(0.5 / 8), 120)
    assert priced("invisible-ink", raw | {"top_k": 7}, Terms())[0].dp == price.dp
    replaced, _ = priced("invisible-ink", raw, Terms(REPLACE))
    assert isinstance(replaced.dp.event, WorstOf)


# --- epsvec --------------------------------------------------------------------------------------


def test_layers_of_one_draw_are_one_sample_of_a_composition():
    """Trap 5: Sampled(SelfComposed(...)), never the reverse, which would cost less than is
    spent.
    """
    raw = {"noise_multiplier": 2.0, "shots": 0, "sampling_rate": 0.05}
    whole = SelfComposed(Gaussian(2.0), 4)
    assert priced("epsvec", raw, Terms())[0].dp == PoissonSampled(0.05, whole)
    assert priced("epsvec", raw, Terms(REPLACE))[0].dp == PoissonSwapped(0.05, whole)
    fixed = {"noise_multiplier": 2.0, "shots": 0, "sampling": "without-replacement"}
    terms = Terms(REPLACE, public_size=10_000)
    assert priced("epsvec", fixed, terms)[0].dp == SampledWithoutReplacement(500, 10_000, whole)
    joint = raw | {"clipping": "joint"}
    assert priced("epsvec", joint, Terms())[0].dp == PoissonSampled(0.05, Gaussian(2.0))
    reverse = SelfComposed(PoissonSampled(0.05, Gaussian(2.0)), 4)
    order = Fraction(16)
    assert divergences.renyi(PoissonSampled(0.05, whole), order) > divergences.renyi(reverse, order)


def test_a_replaced_unit_is_priced_by_all_three_distances_however_the_noise_is_stated():
    terms = Terms(REPLACE)
    common = {"shots": 0, "sampling_rate": 0.05}
    price, parameters = priced("epsvec", {"epsilon": 3.0} | common, terms)
    assert isinstance(price.dp, PoissonSwapped)
    stated = {"noise_multiplier": parameters.noise_multiplier} | common
    assert priced("epsvec", stated, terms)[0].dp == price.dp
    whole = priced("epsvec", stated | {"sampling_rate": 1.0}, terms)[0].dp
    assert whole == price.dp.event  # nothing is left to chance


def test_labels_cost_as_one_and_share_the_public_size():
    terms = Terms(public_size=20_000, labels=("a", "b"))
    price, parameters = priced("epsvec", {"noise_multiplier": 2.0}, terms)
    assert parameters.sampling_rate == 0.05
    alone, _ = priced("epsvec", {"noise_multiplier": 2.0}, Terms(public_size=10_000))
    assert price.dp == alone.dp
    sizes = Terms(REPLACE, public_size=20_000, labels=("a", "b"), label_sizes=(12_000, 8_000))
    fixed = {"noise_multiplier": 2.0, "sampling": "without-replacement", "shots": 0}
    assert priced("epsvec", fixed, sizes)[0].dp.population == 8_000


def test_the_sensitivities_of_shots_and_vectors():
    parameters = get("epsvec").parse({"noise_multiplier": 2.0, "sampling_rate": 0.1}, Terms())
    for terms, counts, vector in (
        (Terms(ADD), 1.0, 5.5 / 500),
        (Terms(REPLACE), math.sqrt(2), 11 / 500),
        (Terms(ADD, max_records_per_unit=3), 3.0, 16.5 / 500),
        (Terms(REPLACE, max_records_per_unit=3), 3 * math.sqrt(2), 33 / 500),
    ):
        assert epsvec.shots_sensitivity(terms) == pytest.approx(counts)
        assert epsvec.vector_sensitivity(parameters, terms) == pytest.approx(vector)


# --- dp-kps --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "length", "count"),
    [
        ("independent", 10, 1),
        ("linear", 10, 10),
        ("linear", 1, 1),
        ("logarithmic", 10, 5),
        ("logarithmic", 8, 4),
        ("logarithmic", 2, 2),
        ("logarithmic", 1, 1),
    ],
)
@pytest.mark.parametrize("neighbours", Neighbours)
def test_sketches_share_their_epsilon_and_the_vocabulary_comes_on_top(
    method, length, count, neighbours
):
    raw = {"method": method, "sequence_length": length}
    price, _ = priced("dp-kps", raw, Terms(neighbours, labels=("a", "b")))
    vocabulary, sketches = price.dp.events
    assert vocabulary == Laplace(1.0)
    assert sketches == (SelfComposed(Laplace(count / 5), count) if count > 1 else Laplace(0.2))
    assert float(divergences.pure_epsilon(price.dp)) == pytest.approx(6)
    gaussian, _ = priced("dp-kps", raw | {"noise": "gaussian"}, Terms(neighbours))
    assert epsilon_alone(gaussian.dp.events[1], 1e-6)[0] == pytest.approx(5)


def test_the_sensitivities_of_vocabulary_and_sketches():
    fourier, histogram = {"features": 200, "sketch": "fourier"}, {"sketch": "histogram"}
    for neighbours, bound in ((ADD, 1), (REPLACE, 1), (REPLACE, 3)):
        terms, factor = (
            Terms(neighbours, max_records_per_unit=bound),
            bound * (1 + (neighbours is REPLACE)),
        )
        made = {
            (sketch["sketch"], noise): get("dp-kps").parse(sketch | {"noise": noise}, terms)
            for sketch in (fourier, histogram)
            for noise in ("laplace", "gaussian")
        }
        moved = {
            key: dp_kps.sketch_sensitivity(parameters, terms) for key, parameters in made.items()
        }
        assert dp_kps.vocabulary_sensitivity(made["fourier", "laplace"], terms) == 10 * factor
        assert moved["fourier", "laplace"] == pytest.approx(math.sqrt(2) * 200 * factor)
        assert moved["fourier", "gaussian"] == pytest.approx(20 * factor)
        assert moved["histogram", "laplace"] == factor
        assert moved["histogram", "gaussian"] == pytest.approx(
            bound * (2**0.5 if neighbours is REPLACE else 1)
        )
        for key, parameters in made.items():  # roots are rounded up
            shift, coordinates = dp_kps.shift(parameters, terms), 200 if key[0] == "fourier" else 1
            if key == ("histogram", "gaussian"):
                assert shift**2 >= bound**2 * (2 if neighbours is REPLACE else 1)
            elif key[1] == "gaussian":
                assert shift**2 >= factor**2 * coordinates
            else:
                assert shift == factor * coordinates


@pytest.mark.parametrize("method", ["independent", "linear", "logarithmic"])
@given(noise=st.floats(1e-3, 1e9), features=st.integers(1, 10_000), bound=st.integers(1, 50))
def test_the_grid_of_a_sketch_leaves_its_noise_within_what_samplers_draw(
    method, noise, features, bound
):
    raw = {"kde_noise_multiplier": noise, "features": features, "method": method}
    raw |= {"sketch": "fourier", "vocabulary_size": 100}
    terms = Terms(REPLACE, max_records_per_unit=bound)
    least = dp_kps.LEAST_FEATURE_STEPS * (
        dp_kps.WEIGHT_STEPS["fourier"] if method == "independent" else 1
    )
    if Fraction(noise) * 2 * bound * features * least > dp_kps.MOST_NOISE:
        with pytest.raises(InvalidRequest, match="kde_noise_multiplier"):
            get("dp-kps").parse(raw, terms)
        return
    parameters = get("dp-kps").parse(raw, terms)
    steps = dp_kps.feature_steps(parameters, terms)
    assert dp_kps.LEAST_FEATURE_STEPS <= steps <= dp_kps.MOST_FEATURE_STEPS
    scale = (
        Fraction(noise) * dp_kps.shift(parameters, terms) * dp_kps.weight_steps(parameters) * steps
    )
    assert scale <= dp_kps.MOST_NOISE
    assert steps == dp_kps.MOST_FEATURE_STEPS or 2 * scale > dp_kps.FAST_NOISE
    assert steps == dp_kps.LEAST_FEATURE_STEPS or scale <= dp_kps.FAST_NOISE


@given(SHIFTS, SHIFTS, st.floats(1.01, 200))
def test_one_moved_count_is_the_worst_of_all_moves_of_one_l1_norm(a, b, order):
    """A Laplace event needs the L1 norm only: two coordinates cost no more than one that moves as
    far.
    """
    one, first, second = Laplace(1 / (a + b)), Laplace(1 / a), Laplace(1 / b)
    for cost in (
        lambda event: divergences.renyi(event, Fraction(order)),
        divergences.gaussian_mu_squared,
    ):
        slack = Fraction(1, 10**9)
        assert cost(one) * (1 + slack) + slack >= cost(Composed((first, second)))


# --- aug-pe and summaries ------------------------------------------------------------------------


def test_votes_of_one_record_are_one_vector_per_epoch():
    price, parameters = priced("aug-pe", {"noise_multiplier": 12.0, "votes": 4}, Terms())
    assert price.dp == SelfComposed(Gaussian(12.0), 10)
    assert aug_pe.sensitivity(parameters, Terms(ADD)) == 2
    assert aug_pe.sensitivity(parameters, Terms(REPLACE)) == pytest.approx(math.sqrt(8))
    assert aug_pe.sensitivity(parameters, Terms(ADD, max_records_per_unit=3)) == 6


def test_one_gaussian_at_the_whole_budget_beats_k_at_a_share_each():
    """MECHANISMS, summary-oneshot: k releases at epsilon / k each need more noise than k
    together.
    """
    together = get("summary-oneshot").parse({"epsilon": 4.0, "releases": 4}, Terms(public_size=100))
    split = get("summary-oneshot").parse({"epsilon": 1.0}, Terms(public_size=100))
    assert together.noise_multiplier < split.noise_multiplier


def test_the_same_sigma_under_the_other_relation_is_twice_the_multiplier():
    """Trap 1: sigma 2 on sensitivity 1 is epsilon 2.0 where records come and go, 4.4 where they
    change.
    """
    from dp_accounting import GaussianDpEvent, NeighboringRelation
    from dp_accounting.pld import PLDAccountant

    for neighbours, multiplier in ((ADD, 2.0), (REPLACE, 1.0)):
        terms = Terms(neighbours, 1e-5)
        price, _ = priced(
            "aug-pe", {"noise_multiplier": multiplier, "epochs": 1, "votes": 1}, terms
        )
        assert price.dp.event.noise_multiplier == multiplier
        relation = NeighboringRelation.ADD_OR_REMOVE_ONE
        if neighbours is REPLACE:
            relation = NeighboringRelation.REPLACE_ONE
        accountant = PLDAccountant(relation, value_discretization_interval=1e-3)
        accountant.compose(GaussianDpEvent(2.0))
        assert epsilon_alone(price.dp, 1e-5)[0] == pytest.approx(
            accountant.get_epsilon(1e-5), abs=1e-3
        )


def test_the_registry_names_every_mechanism_by_its_own_id():
    for name, mechanism in MECHANISMS.items():
        assert mechanism.id == name
        assert mechanism.size_field in mechanism.fields
        schema = mechanism.parameters.model_json_schema()["properties"]
        for field, part in schema.items():
            assert part["description"], field
            for option in part.get("anyOf", [part]):
                if option.get("type") in ("integer", "number") and "enum" not in option:
                    assert "maximum" in option, (name, field)
                    assert "minimum" in option or "exclusiveMinimum" in option, (name, field)


@pytest.mark.parametrize(("layers", "there"), [("18-21", 22), ("18-21", 21), ("0", 1), ("5", 5)])
def test_layers_that_a_model_does_not_have_are_named(layers, there):
    """Asked of the model's public facts, before anything is reserved."""
    mechanism = get("epsvec")
    parameters = mechanism.parse({"layers": layers, "epsilon": 3.0}, Terms(public_size=10_000))
    problem = mechanism.unfit(parameters, {"layers": there})
    missing = int(layers.split("-")[-1]) >= there
    assert (problem is not None) == missing
    if problem is not None:
        assert (problem.field, problem.allowed) == ("layers", f"0 to {there - 1}")
