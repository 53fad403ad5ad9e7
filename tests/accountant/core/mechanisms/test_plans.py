"""Proposals: never a stub, never beyond the share, never refused; and what outlooks say of a
request.
"""

import math
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from accountant.core import mechanisms
from accountant.core.ledger.accounts import Accounts, demand, with_largest
from accountant.core.ledger.admission import Account, FilterAccount, Refused
from accountant.core.mechanisms import group_means, group_plans, outlooks, planning
from accountant.core.mechanisms.aug_pe import evolution_shape
from accountant.core.mechanisms.epsvec import SWEPT
from accountant.core.mechanisms.outlooks import LEAST_TOKENS, outlook
from accountant.core.mechanisms.planning import PLANNED, propose
from accountant.core.mechanisms.proposals import NOTHING, Known
from accountant.core.privacy.events import (
    Allocated,
    AllocatedReplaced,
    Composed,
    Event,
    Exponential,
    Gaussian,
    Laplace,
    PoissonSampled,
    PoissonSwapped,
    SelfComposed,
    WorstOf,
    releases,
)
from accountant.core.privacy.filters import portfolio
from accountant.core.privacy.price import Neighbours, Price, Terms
from accountant.core.privacy.units import DELTA_UNITS, EPSILON_UNITS

pytestmark = pytest.mark.slow

LABELS = tuple(f"label {number}" for number in range(40))


def account(epsilon: float) -> Accounts:
    """A fresh account of this ε."""
    units = (int(epsilon * EPSILON_UNITS), int(1e-6 * DELTA_UNITS))
    filters = tuple(FilterAccount(each, each.limit(*units)) for each in portfolio(*units))
    return Accounts(Account(*units, filters))


def real(epsilon: float) -> Callable[[Price], bool]:
    """Whether a fresh account of this ε has room for a price."""
    accounts = account(epsilon)
    return lambda price: accounts.fits(demand(price))


def cheap(budget: float) -> Callable[[Price], bool]:
    """The same of an account that takes no work: sums of squares, a coin's by its batches."""

    def cost(event: Event) -> float:
        match event:
            case Allocated() | AllocatedReplaced():
                return event.tokens * cost(event.draw) / event.batches
            case SelfComposed():
                return event.count * cost(event.event)
            case Composed():
                return sum(map(cost, event.events))
            case WorstOf():
                return max(map(cost, event.events))
            case Exponential():
                return event.shift**2 / 2
            case Laplace() | Gaussian():
                return event.noise_multiplier**-2 / 2
            case PoissonSampled() | PoissonSwapped():
                return event.probability**2 * cost(event.event)
        raise AssertionError(event)

    return lambda price: price.dp is None or cost(price.dp) <= budget


def some_terms(chance: random.Random) -> Terms:
    return Terms(
        chance.choice(list(Neighbours)),
        public_size=None if chance.random() < 0.05 else int(10 ** chance.uniform(0, 6)),
        max_records_per_unit=chance.choice([1, 1, 1, 2, 5]),
        labels=LABELS[: chance.choice([0, 0, 2, 3, 5, 10, 40])],
        groups=LABELS[: chance.choice([0, 1, 4, 40])],
    )


def some_known(chance: random.Random, terms: Terms) -> Known:
    """Adapters that people trained, corpora that one could be trained on, and paid counts."""
    trained = {
        **{"corpus": "public", "public_texts": 200, "clip": 10 ** chance.uniform(-1, 2)},
        **{"centre": chance.random() < 0.5, "components": chance.choice([None, 3, 100])},
        **{"record_tokens": 16, "target_tokens": chance.choice([8, 16, 32]), "soft_tokens": 4},
    }
    trained = mechanisms.get("summary-adapter").parse(trained, Terms()).model_dump()
    corpora = chance.choice([(), ("public",), ("public", "news")])
    counts = {label: int(10 ** chance.uniform(0, 4)) for label in terms.labels}
    counts = counts if chance.random() < 0.5 else {}
    return Known({"7": trained} if chance.random() < 0.4 else {}, corpora, counts)


def check(
    goal: str,
    terms: Terms,
    affordable: Callable[[Price], bool],
    facts: dict,
    known: Known = NOTHING,
) -> str:
    """Whatever is proposed is whole, affordable, accepted, and described exactly."""
    found = propose(goal, terms, affordable, facts, known=known)
    assert (found.mechanism is None) == (found.outlook.verdict == "not enough")
    assert found.outlook.sentence()
    if found.mechanism is None:
        return found.outlook.verdict
    mechanism = mechanisms.get(found.mechanism)
    parsed = mechanism.parse(found.parameters, terms)
    assert affordable(mechanism.price(parsed, terms))
    assert mechanism.unfit(parsed, facts) is None
    if found.mechanism == "summary-adapter":
        check_adapter(found, parsed, terms, affordable, facts)
        return found.outlook.verdict
    assert found.makes == mechanism.yields(parsed, terms)
    assert found.outlook == outlook(mechanism, parsed, terms, facts)
    assert found.makes is not None
    if goal in ("texts", "summaries"):
        assert (found.makes.tokens or 0) >= LEAST_TOKENS
        context = facts.get("context_tokens")
        template = {"texts": planning.TEMPLATE_TOKENS, "summaries": group_plans.PROMPT_TOKENS}
        needed = mechanism.context_tokens(parsed, template[goal])
        assert context is None or needed <= context
    if goal == "summaries":
        adapter = known.adapters[parsed.adapter]
        assert mechanism.unfit_sources(parsed, {"adapter": adapter}) is None
        assert parsed.public_size * len(terms.groups) <= terms.public_size
        assert parsed.public_size >= outlooks.GOOD_GROUP
    if found.mechanism == "private-prediction":
        # whole texts: as many as are promised, with no stub behind
        assert parsed.tokens_per_batch % parsed.max_text_tokens == 0
        assert parsed.record_tokens >= LEAST_TOKENS
        for label, batches in parsed.batches_by_label(terms).items() if parsed.label_counts else ():
            held = known.label_counts[label] / batches
            assert parsed.batch_size / 2 <= held <= 1.5 * parsed.batch_size, (
                "no batch is near empty"
            )
        if parsed.label_counts:
            assert parsed.batches_run(terms) <= planning.ENOUGH_TEXTS
    return found.outlook.verdict


def check_adapter(found, parsed, terms, affordable, facts) -> None:
    """Once it is trained, the summaries that it is for are what was promised, at its noise."""
    needed = mechanisms.get(found.mechanism).context_tokens(parsed, group_plans.PROMPT_TOKENS)
    assert facts.get("context_tokens") is None or needed <= facts["context_tokens"]
    trained = Known({"8": parsed.model_dump()})
    then = propose("summaries", terms, affordable, facts, known=trained)
    assert check("summaries", terms, affordable, facts, trained) == found.outlook.verdict
    assert then.mechanism == "summary-oneshot"
    assert found.outlook.why.endswith(then.outlook.why)
    paid = mechanisms.get(then.mechanism).parse(then.parameters, terms)
    assert math.isclose(parsed.sigma, group_means.sigma(paid, terms), rel_tol=1e-3)


@pytest.mark.parametrize("count", [500, pytest.param(5_000, marks=pytest.mark.release)])
def test_no_proposal_is_a_stub_costs_more_than_its_share_or_is_refused(count):
    chance = random.Random(37)
    verdicts = {goal: set() for goal in PLANNED}
    for _ in range(count):
        goal = chance.choice(list(PLANNED))
        facts = {
            "context_tokens": chance.choice([None, 12, 30, 64, 88, 128, 256, 512, 8192]),
            "sha256": chance.choice(["unknown", *SWEPT]),
            "hidden_size": 576,
        }
        affordable = cheap(10 ** chance.uniform(-4, 1.5))
        terms = some_terms(chance)
        known = some_known(chance, terms)
        if facts["context_tokens"] in (12, 30):  # too short for what those adapters learned from
            known = replace(known, adapters={})
        verdicts[goal].add(check(goal, terms, affordable, facts, known))
    assert verdicts == {goal: {"good", "thin", "not enough"} for goal in PLANNED}


@pytest.mark.parametrize("size", [60, 500, 2_000, 40_000])
@pytest.mark.parametrize("epsilon", [0.3, 3.0])
def test_the_same_holds_on_real_accounts(size, epsilon):
    affordable = real(epsilon)
    for goal in PLANNED:
        check(goal, Terms(public_size=size, labels=LABELS[:2]), affordable, {})


def test_a_budget_that_buys_texts_is_told_what_it_buys():
    """2,000 records in 5 labels at ε 3: from secret batches, in rounds."""
    terms = Terms(public_size=2_000, labels=LABELS[:5], delta=1e-6)
    found = propose("texts", terms, real(3.0))
    assert found.outlook.verdict == "good"
    assert found.parameters["amplification"] == "allocation"
    assert found.parameters["rounds"] > 1
    assert found.makes is not None
    assert found.makes.number >= 40
    assert found.makes.tokens == planning.LENGTHS[0]


def test_without_a_public_size_nothing_is_claimed_but_counts():
    terms, affordable = Terms(labels=LABELS[:2]), real(3.0)
    for goal in ("texts", "phrases"):
        found = propose(goal, terms, affordable)
        assert found.mechanism is None
        assert "public size" in found.outlook.sentence()
    assert propose("counts", terms, affordable).outlook.verdict == "thin"


def test_what_is_not_enough_says_what_would_be():
    found = propose("texts", Terms(public_size=100, labels=LABELS[:5]), real(1.0))
    assert found.mechanism is None
    assert not found.parameters
    assert "Noisy counts are affordable" in found.outlook.sentence()
    nothing = propose("texts", Terms(public_size=100), lambda price: not releases(price.dp))
    assert "a larger part of what is left" in nothing.outlook.sentence()


def test_what_a_policy_does_not_admit_is_not_proposed():
    terms = Terms(public_size=2_000)
    found = propose("texts", terms, real(3.0), offered=["noisy-count"])
    assert found.mechanism is None
    assert "Noisy counts" in found.outlook.sentence()
    assert "Key phrases" not in found.outlook.sentence()


def judged(name: str, raw: dict, terms: Terms, **facts: object):
    mechanism = mechanisms.get(name)
    return outlook(mechanism, mechanism.parse(raw, terms), terms, facts)


@pytest.mark.parametrize(
    ("clip", "temperature", "top_k", "least", "verdict"),
    [
        (9.0, 1.5, 0, 0.23, "not enough"),  # the paper's: 77 % at most for the best token
        (6.0, 1.5, 0, 0.94, "not enough"),
        (8.0, 1.0, 0, 0.0055, "good"),
        (4.0, 1.0, 100, 0.032, "good"),
    ],
)
def test_the_floor_of_a_clip_is_told(clip, temperature, top_k, least, verdict):
    draw = {"clip": clip, "temperature": temperature, "top_k": top_k}
    text = {"tokens_per_batch": 4_800, "max_text_tokens": 48, "batches_per_label": 1}
    found = judged("private-prediction", draw | text, Terms(), vocabulary=49_152)
    assert found.verdict == verdict
    assert math.isclose(found.floor, least, rel_tol=0.05)


def test_a_batch_that_public_figures_call_half_empty_is_weaker():
    terms = Terms(public_size=1_280, labels=LABELS[:2])
    raw = {"tokens_per_batch": 4_800, "max_text_tokens": 48, "batches_per_label": 10}
    full = judged("private-prediction", raw | {"batch_size": 64, "clip": 4.0}, terms)
    half = judged("private-prediction", raw | {"batch_size": 128, "clip": 4.0}, terms)
    assert half.floor > 2 * full.floor


def test_stubs_and_drowned_votes_are_not_enough():
    terms = Terms(public_size=800, labels=LABELS[:2])
    stub = judged("private-prediction", {"tokens_per_batch": 6}, terms)
    assert stub.verdict == "not enough"
    assert judged("invisible-ink", {"max_tokens": 15}, terms).verdict == "not enough"
    votes = {"samples": 2_000, "variations": 7, "noise_multiplier": 26.9}
    assert judged("aug-pe", votes, terms).verdict == "not enough"
    fewer = {"samples": 3, "variations": 3, "noise_multiplier": 8.0}
    assert judged("aug-pe", fewer, terms).verdict == "thin"


def test_where_not_one_text_of_a_length_fits_a_shorter_one_is_found():
    terms = Terms(public_size=2_000, labels=LABELS[:5], delta=1e-6)
    refused = Refused("renyi", "0", "1", "-")
    told = with_largest(refused, mechanisms.get("invisible-ink"), {}, terms, account(3.0))
    assert told.size_field == "max_tokens"
    assert (told.largest or 0) >= LEAST_TOKENS


@pytest.mark.parametrize(("size", "epsilon"), [(2_000, 3.0), (2_000, 0.3), (90_000, 3.0)])
def test_votes_of_a_forms_defaults_stand_out_of_the_noise(size, epsilon):
    terms = Terms(public_size=size, labels=LABELS[:5])
    shape = evolution_shape(terms, epsilon)
    found = judged("aug-pe", {**shape, "epsilon": epsilon}, terms)
    assert found.noise <= 1 / 3 or shape["samples"] == 1
    more = judged("aug-pe", {**shape, "epsilon": epsilon, "samples": shape["samples"] + 1}, terms)
    assert more.noise > 1 / 3


def test_where_a_sweep_found_how_to_steer_texts_are_steered():
    (sha256,) = SWEPT
    facts = {"sha256": sha256, "hidden_size": 576, "context_tokens": 8192}
    terms = Terms(public_size=2_000, labels=LABELS[:5], delta=1e-6)
    found = propose("texts", terms, real(3.0), facts)
    assert found.mechanism == "epsvec"
    assert found.outlook.verdict == "good"
    assert found.makes is not None
    assert found.makes.number == planning.STEERED_TEXTS
    assert "{label}" in found.parameters["template"]
    # no topic is asked for where there is none
    unlabelled = propose("texts", Terms(public_size=2_000), real(3.0), facts)
    assert unlabelled.mechanism == "epsvec"
    assert "topic" not in unlabelled.parameters["template"]
    # nobody has tried those layers with another model, and too little budget is all noise
    other = judged("epsvec", dict(found.parameters), terms, sha256="other", hidden_size=576)
    assert other.verdict == "thin"
    poor = judged("epsvec", {**found.parameters, "epsilon": 0.1}, terms, **facts)
    assert poor.verdict == "not enough"
    own = propose("texts", terms, real(3.0), facts, only="private-prediction")
    assert own.mechanism == "private-prediction"


def test_the_smallest_share_that_is_good_is_proposed():
    """Of an account that each share of has a tenth, a quarter, half, and all."""
    (sha256,) = SWEPT
    facts = {"sha256": sha256, "hidden_size": 576, "context_tokens": 8192}
    terms = Terms(public_size=2_000, labels=LABELS[:5], delta=1e-6)
    tried = []

    def part(share: float) -> Callable[[Price], bool]:
        tried.append(share)
        return real(3.0 * share)

    found, share = planning.propose_least("texts", terms, part, facts)
    assert found.outlook.verdict == "good"
    assert share == tried[-1] == 0.5
    # a small model's texts are thin whatever is paid, and still no share of noise is taken
    small = facts | {"parameters": 134_515_008}
    thin, whole = planning.propose_least("texts", terms, part, small)
    assert (thin.outlook.verdict, whole) == ("thin", 1.0)
    assert (thin.outlook.noise or 0.0) <= outlooks.GOOD_NOISE
    # where none is good, the first that is as good as all
    least, poor = planning.propose_least("texts", terms, lambda _: real(0.3), facts)
    assert (least.outlook.verdict, poor) == ("thin", planning.SHARES[0])


def test_texts_of_a_small_model_are_never_called_good():
    (sha256,) = SWEPT
    facts = {"sha256": sha256, "hidden_size": 576, "context_tokens": 8192}
    terms = Terms(public_size=2_000, labels=LABELS[:5], delta=1e-6)
    for only in PLANNED["texts"]:
        large = propose("texts", terms, real(3.0), facts | {"parameters": 10**9}, only=only)
        assert large.outlook.verdict == "good"
        small = propose("texts", terms, real(3.0), facts | {"parameters": 134_515_008}, only=only)
        assert small.outlook.verdict == "thin"
        told = "a model of 135 million weights leaves about half of its texts unusable, or more"
        assert told in small.outlook.sentence()
    # a vote is on texts too, and a count is none
    counts = propose("counts", terms, real(3.0), {"parameters": 1})
    assert counts.outlook.verdict == "good"


GROUPS = ("north", "south", "west")
CORPORA = Known(corpora=("public-notes", "news"))


def test_summaries_begin_with_an_adapter_and_are_then_read_out_by_it():
    (sha256,) = SWEPT
    facts = {"sha256": sha256, "hidden_size": 576, "context_tokens": 8192}
    terms = Terms(public_size=1_500, groups=GROUPS, delta=1e-6)
    first = propose("summaries", terms, real(3.0), facts, known=CORPORA)
    assert first.mechanism == "summary-adapter"
    assert first.parameters["corpus"] == "public-notes"
    assert first.outlook.sentence().startswith("Good: first an adapter, free; then 12 summaries")
    assert "public-notes, news" in first.notes[-1]
    trained = mechanisms.get("summary-adapter").parse(first.parameters, terms).model_dump()
    found = propose("summaries", terms, real(3.0), facts, known=Known({"7": trained}, ("news",)))
    assert found.mechanism == "summary-oneshot"
    assert (found.parameters["adapter"], found.parameters["public_size"]) == ("7", 500)
    assert found.makes is not None
    assert (found.makes.number, found.makes.tokens) == (12, 48)
    assert found.outlook.noise is not None
    assert found.outlook.noise <= outlooks.GOOD_NOISE
    # an adapter that learned from stubs writes whole summaries
    stubs = Known({"7": {**trained, "target_tokens": 8}})
    longer = propose("summaries", terms, real(3.0), facts, known=stubs)
    assert longer.makes is not None
    assert longer.makes.tokens == LEAST_TOKENS
    short = propose("summaries", terms, real(3.0), {"context_tokens": 57}, known=stubs)
    assert short.mechanism == "summary-oneshot"
    short = propose("summaries", terms, real(3.0), {"context_tokens": 25}, known=stubs)
    assert short.mechanism is None, "soft tokens and a summary have no room"
    # nobody has tried a clip with another model
    other = propose("summaries", terms, real(3.0), {"sha256": "other"}, known=Known({"7": trained}))
    assert other.outlook.verdict == "thin"
    assert "nobody has tried" in other.outlook.sentence()


@pytest.mark.parametrize(
    ("groups", "size", "known", "why"),
    [
        ((), 1_500, CORPORA, "declares no groups"),
        (GROUPS, 299, CORPORA, "about 100 records in each group"),
        (GROUPS, 1_500, NOTHING, "no public corpus is here"),
        (GROUPS, None, CORPORA, "no public size"),
    ],
)
def test_where_no_summary_is_worth_it_counts_are_named(groups, size, known, why):
    terms = Terms(public_size=size, groups=groups, delta=1e-6)
    found = propose("summaries", terms, real(3.0), {}, known=known)
    assert found.mechanism is None
    assert why in found.outlook.sentence()
    assert "Noisy counts are affordable" in found.outlook.sentence()


def test_a_long_clip_or_a_small_group_is_never_called_good():
    (sha256,) = SWEPT
    facts = {"sha256": sha256, "hidden_size": 576}
    terms = Terms(public_size=1_500, groups=GROUPS, delta=1e-6)
    raw = {"epsilon": 3.0, "public_size": 500, "public_corpus": "c"}
    good = judged("summary-oneshot", raw | {"clip": 18.0}, terms, **facts)
    assert good.verdict == "good"
    long = judged("summary-oneshot", raw | {"clip": 180.0}, terms, **facts)
    assert math.isclose(long.noise, 10 * good.noise)
    rich = raw | {"clip": 18.0, "epsilon": 10.0}
    assert judged("summary-oneshot", rich, terms, **facts).verdict == "good"
    small = judged("summary-oneshot", rich | {"group_sizes": "west=99"}, terms, **facts)
    assert small.noise <= outlooks.GOOD_NOISE
    assert small.verdict == "thin"
    # each token of the other pays anew
    token = judged("summary-token", {"epsilon": 3.0, "public_size": 500}, terms, **facts)
    assert token.noise > good.noise * 7
    assert token.verdict == "thin"


def test_a_paid_count_sets_the_batches_of_labels_that_differ():
    terms = Terms(public_size=3_100, labels=LABELS[:3], delta=1e-6)
    unknown = propose("texts", terms, real(3.0))
    assert not unknown.parameters.get("label_counts")
    counts = dict(zip(terms.labels, (2_200, 600, 300), strict=True))
    found = propose("texts", terms, real(3.0), known=Known(label_counts=counts))
    assert found.parameters["label_counts"] == [2_200, 600, 300]
    assert found.outlook.verdict == "good"
    assert "labels" not in found.parameters
    # a label that is too small for any batch is named, and left out
    counts[terms.labels[2]] = 7
    rare = propose("texts", terms, real(3.0), known=Known(label_counts=counts))
    assert rare.parameters["labels"] == list(terms.labels[:2])
    assert "for 2 of 3 labels" in rare.outlook.sentence()
    assert rare.notes[-1] == f"left out, with too few records for a batch: {terms.labels[2]}"
    # alike, of other labels, or of units with several records: as if nobody had counted
    for others in (
        (terms, dict.fromkeys(terms.labels, 1_000)),
        (terms, {"another": 9, "label": 300}),
        (replace(terms, max_records_per_unit=2), counts),
    ):
        own = propose("texts", others[0], real(3.0), known=Known(label_counts=others[1]))
        assert own == propose("texts", others[0], real(3.0))
    # so many batches that all of them would take too long run by a part of them
    vast = Terms(public_size=400_000, labels=LABELS[:2], delta=1e-6)
    sizes = Known(label_counts={vast.labels[0]: 390_000, vast.labels[1]: 10_000})
    assert propose("texts", vast, real(3.0), known=sizes).parameters["batches_to_run"] == 100
    # what a count would do is said where texts are thin
    few = propose("texts", replace(terms, public_size=400), real(1.5))
    assert few.outlook.verdict == "thin"
    assert few.outlook.sentence().endswith("a paid count of them would buy more.")


def test_batches_are_secret_wherever_a_label_has_two():
    facts: dict = {}
    found = propose("texts", Terms(public_size=250, labels=()), real(6.0), facts)
    assert found.parameters["amplification"] == "allocation"
    small = propose("texts", Terms(public_size=15, labels=()), lambda price: True, facts)
    assert small.parameters["batches_per_label"] == 1
    assert "too few records" in small.notes[0]


def test_what_reads_no_record_has_no_outlook():
    terms = Terms(public_size=800)
    assert judged("dp-kps", {"from_job": "7"}, terms) is None
    assert judged("rehearsal:noisy-count", {"rehearsal_corpus": "c"}, terms) is None
