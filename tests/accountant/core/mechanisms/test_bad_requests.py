"""Every impossible request is an error that names the field and what is allowed, before anything is
read.
"""

import json

import pytest

from accountant.core.errors import InvalidRequest
from accountant.core.mechanisms import MECHANISMS, get
from accountant.core.privacy.composition import epsilon_alone
from accountant.core.privacy.price import Neighbours, Terms

ADD = Terms(public_size=10_000)
REPLACE = Terms(Neighbours.REPLACE_ONE, public_size=10_000)
LABELS = Terms(Neighbours.REPLACE_ONE, public_size=10_000, labels=("a", "b"))
MANY = Terms(public_size=10_000, max_records_per_unit=2)
MEDIAN = {"aggregation": "median", "ex_post_cap": 2.0}
TWO = {"examples_per_context": 2}
GROUPS = Terms(public_size=10_000, groups=("north", "south"))
SIZED = {"epsilon": 1.0, "public_size": 100}
CORPUS = {"public_corpus": "c"}
VECTORS = {"noise_multiplier": 2.0}
FIXED = VECTORS | {"sampling": "without-replacement"}

REFUSED = [
    ("private-prediction", {"batch_size": 0}, ADD, "batch_size"),
    ("private-prediction", {"batch_size": 2.5}, ADD, "batch_size"),
    ("private-prediction", {"batch_size": True}, ADD, "batch_size"),
    ("private-prediction", {"clip": "9"}, ADD, "clip"),
    ("private-prediction", {"temperature": 0}, ADD, "temperature"),
    ("private-prediction", {"temperatur": 1.0}, ADD, "temperatur"),
    ("private-prediction", {"aggregation": "mode"}, ADD, "aggregation"),
    ("private-prediction", {"examples_per_context": 3}, ADD, "examples_per_context"),
    ("private-prediction", {"context_partner": "public"}, ADD, "context_partner"),
    ("private-prediction", {"template": "no slot"}, ADD, "template"),
    ("private-prediction", {"batching": "clusters", "clusters": 1001}, ADD, "clusters"),
    ("private-prediction", {"batching": "clusters", "cluster_epsilon": 0}, ADD, "cluster_epsilon"),
    ("private-prediction", {"aggregation": "median"}, ADD, "ex_post_cap"),
    ("private-prediction", {"ex_post_cap": 2.0}, ADD, "ex_post_cap"),
    ("private-prediction", MEDIAN, REPLACE, "aggregation"),
    ("private-prediction", MEDIAN, MANY, "aggregation"),
    ("private-prediction", MEDIAN | {"public_contexts": 1}, ADD, "public_contexts"),
    (
        "private-prediction",
        MEDIAN | {"examples_per_context": 2, "context_partner": "lowest-hash"},
        ADD,
        "context_partner",
    ),
    ("private-prediction", {"batching": "clusters", "clusters": 1}, LABELS, "clusters"),
    (
        "private-prediction",
        {"batching": "clusters", "batches_per_label": 29},
        LABELS,
        "batches_per_label",
    ),
    ("private-prediction", {"public_corpus": "wiki"}, ADD, "public_corpus"),
    ("private-prediction", {"embedding": "minilm"}, ADD, "embedding"),
    ("private-prediction", {"shots": "a text"}, ADD, "shots"),
    (
        "private-prediction",
        TWO | {"context_partner": "shot", "shots": "1\n---\n2\n---\n3"},
        LABELS,
        "shots",
    ),
    ("private-prediction", TWO | {"template": "{record} and"}, ADD, "template"),
    ("private-prediction", {"template": "{record} {partner}"}, ADD, "template"),
    ("private-prediction", {"template": "{user}{record}"}, ADD, "template"),
    ("private-prediction", {"template": "Hello {user}{record}{assistant}"}, ADD, "template"),
    ("private-prediction", {"template": "{user}{record}{assistant}{user}"}, ADD, "template"),
    ("invisible-ink", {"top_k": -1}, ADD, "top_k"),
    ("private-prediction", {"top_k": 1.5}, ADD, "top_k"),
    ("summary-token", {"epsilon": 1.0, "public_size": 9, "top_k": -1}, ADD, "top_k"),
    ("invisible-ink", {"public_template": "{record}"}, ADD, "public_template"),
    ("invisible-ink", {"public_template": "Hello {user}{assistant}"}, ADD, "public_template"),
    ("invisible-ink", {"template": "{user}{record}"}, ADD, "template"),
    ("epsvec", VECTORS | {"sampling_rate": 1.5}, ADD, "sampling_rate"),
    ("epsvec", VECTORS | {"samples_per_label": 10_001}, ADD, "samples_per_label"),
    ("epsvec", VECTORS, Terms(), "sampling_rate"),
    ("epsvec", FIXED, ADD, "sampling"),
    ("epsvec", FIXED, LABELS, "sampling"),
    ("epsvec", FIXED, Terms(Neighbours.REPLACE_ONE), "sampling"),
    ("epsvec", FIXED | {"samples_per_label": 10_001}, REPLACE, "samples_per_label"),
    ("epsvec", FIXED | {"sampling_rate": 0.5}, REPLACE, "sampling_rate"),
    ("epsvec", VECTORS | {"layers": "21-18"}, ADD, "layers"),
    ("epsvec", VECTORS | {"layers": "18-1000"}, ADD, "layers"),
    ("epsvec", VECTORS | {"layers": "last"}, ADD, "layers"),
    ("epsvec", VECTORS | {"shots": 3, "candidates": 2}, ADD, "shots"),
    ("epsvec", {"epsilon": 0.0}, ADD, "epsilon"),
    ("epsvec", {"epsilon": -1.0}, ADD, "epsilon"),
    ("epsvec", {"from_job": "job-1", "epsilon": 1.0}, ADD, "epsilon"),
    ("dp-kps", {"method": "quadratic"}, ADD, "method"),
    ("dp-kps", {"noise": "discrete"}, ADD, "noise"),
    ("dp-kps", {"method": "linear", "sequence_length": 11}, ADD, "sequence_length"),
    ("dp-kps", {"prompt": "no slot"}, ADD, "prompt"),
    ("dp-kps", {"prompt": "{phrases} {record}"}, ADD, "prompt"),
    ("dp-kps", {"sketch": "histogram", "method": "linear"}, ADD, "sketch"),
    ("dp-kps", {"output": "phrases", "writer": "large"}, ADD, "writer"),
    ("dp-kps", {"output": "phrases", "examples": "corpus"}, ADD, "examples"),
    (
        "dp-kps",
        {"sketch": "fourier", "vocabulary_size": 100_000, "features": 100_000},
        ADD,
        "features",
    ),
    ("dp-kps", {"kde_noise_multiplier": 1e9, "method": "linear"}, ADD, "kde_noise_multiplier"),
    ("dp-kps", {"kde_epsilon": 1e-6, "method": "linear", "features": 10_000}, ADD, "kde_epsilon"),
    (
        "dp-kps",
        {"vocabulary_noise_multiplier": 1e9, "terms_per_record": 1_000},
        ADD,
        "vocabulary_noise_multiplier",
    ),
    ("dp-kps", {"vocabulary_size": 0}, ADD, "vocabulary_size"),
    ("dp-kps", {"bandwidth": 0.0}, ADD, "bandwidth"),
    ("dp-kps", {"from_job": "job-1", "kde_epsilon": 1.0}, ADD, "kde_epsilon"),
    ("noisy-count", {"noise": "uniform"}, ADD, "noise"),
    ("noisy-count", {"per": "record"}, ADD, "per"),
    ("noisy-count", {"epsilon": 1.0, "noise_multiplier": 1.0}, ADD, "noise_multiplier"),
    ("aug-pe", {"epsilon": 1.0, "votes": 6, "samples": 5}, ADD, "votes"),
    ("aug-pe", {"epsilon": 1.0, "epochs": 0}, ADD, "epochs"),
    ("aug-pe", {"epsilon": 1.0, "rewriting": "{label}"}, ADD, "rewriting"),
    ("summary-token", {"epsilon": 1.0}, Terms(), "public_size"),
    ("summary-token", {"epsilon": 1.0}, GROUPS, "public_size"),
    ("summary-token", {"epsilon": 1.0, "public_size": 19}, GROUPS, "public_size"),
    ("summary-token", {"epsilon": 1.0, "group_sizes": "north=200"}, GROUPS, "public_size"),
    ("summary-token", SIZED | {"group_sizes": "north=19"}, GROUPS, "group_sizes"),
    ("summary-token", SIZED | {"group_sizes": "north"}, GROUPS, "group_sizes"),
    ("summary-token", SIZED | {"group_sizes": "north=0"}, GROUPS, "group_sizes"),
    ("summary-token", SIZED | {"group_sizes": "east=200"}, GROUPS, "group_sizes"),
    ("summary-token", SIZED | {"group_sizes": "north=200,north=300"}, GROUPS, "group_sizes"),
    ("summary-token", SIZED | {"group_sizes": "north=200"}, ADD, "group_sizes"),
    ("summary-token", SIZED | {"template": "Review:"}, ADD, "template"),
    ("summary-token", {"noise_multiplier": 5e6}, ADD, "noise_multiplier"),
    ("summary-oneshot", {"epsilon": 1.0, "public_size": 0}, ADD, "public_size"),
    ("summary-oneshot", {"epsilon": 1.0}, Terms(), "public_size"),
    ("summary-oneshot", SIZED | {"components": 8}, ADD, "components"),
    ("summary-oneshot", SIZED | CORPUS | {"components": 8, "public_texts": 7}, ADD, "components"),
    ("summary-oneshot", SIZED | CORPUS | {"centre": False}, ADD, "public_corpus"),
    ("summary-oneshot", {"from_job": "job-1", "epsilon": 1.0}, ADD, "epsilon"),
    ("summary-oneshot", {"releases": 2, "noise_multiplier": 5e6}, ADD, "noise_multiplier"),
    ("summary-adapter", {}, ADD, "corpus"),
    ("summary-adapter", {"corpus": "c", "components": 8, "public_texts": 7}, ADD, "components"),
    ("summary-adapter", {"corpus": "c", "template": "Review:"}, ADD, "template"),
]


@pytest.mark.parametrize(
    ("name", "raw", "terms", "field"), REFUSED, ids=lambda value: str(value)[:60]
)
def test_an_impossible_request_names_the_field_and_what_is_allowed(name, raw, terms, field):
    with pytest.raises(InvalidRequest) as refused:
        get(name).parse(raw, terms)
    (problem,) = refused.value.problems
    assert problem.field == field
    assert problem.problem
    assert problem.allowed


NUMBERS = [
    (name, field)
    for name, mechanism in MECHANISMS.items()
    for field, part in mechanism.parameters.model_json_schema()["properties"].items()
    if any(option.get("type") in ("integer", "number") for option in part.get("anyOf", [part]))
    and "enum" not in part
]


@pytest.mark.parametrize(("name", "field"), NUMBERS)
def test_no_number_is_read_from_text_or_infinite_or_past_its_bounds(name, field):
    bad = ["7", True, [7], float("nan"), float("inf"), 10**400, -(10**400), -1, json.loads("1e400")]
    for value in bad:
        with pytest.raises(InvalidRequest) as refused:
            get(name).parse({field: value}, ADD)
        assert field in [problem.field for problem in refused.value.problems]
        assert all(problem.allowed for problem in refused.value.problems)


@pytest.mark.parametrize("name", MECHANISMS)
def test_an_unknown_field_is_refused_with_the_known_ones(name):
    with pytest.raises(InvalidRequest) as refused:
        get(name).parse({"epsilom": 1.0}, ADD)
    (problem,) = (each for each in refused.value.problems if each.problem == "unknown parameter")
    assert problem.field == "epsilom"
    assert problem.allowed == ", ".join(MECHANISMS[name].fields)


@pytest.mark.parametrize("name", ["dp-finetuning", None, 3, ["epsvec"]])
def test_an_unknown_mechanism_is_refused_with_the_known_ones(name):
    with pytest.raises(InvalidRequest, match="private-prediction"):
        get(name)


@pytest.mark.parametrize("delta", [1.0, 2.0, 0.0, -1e-6])
def test_no_price_is_quoted_at_a_delta_outside_0_to_1(delta):
    terms = Terms(delta=delta, public_size=10_000)
    with pytest.raises(InvalidRequest, match="delta"):
        get("aug-pe").parse({"epsilon": 1.0}, terms)
    price = get("invisible-ink").price(get("invisible-ink").parse({}, terms), terms)
    with pytest.raises(InvalidRequest, match="delta"):
        epsilon_alone(price.dp, delta)


def test_several_problems_are_told_at_once():
    with pytest.raises(InvalidRequest) as refused:
        get("aug-pe").parse({"epochs": 0, "votes": "1", "colour": 3}, ADD)
    assert [problem.field for problem in refused.value.problems] == ["epochs", "votes", "colour"]
