"""`aug-pe`: what a unit moves, what is recorded, what is released, and what is free afterwards."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.neighbors import NearestNeighbors

from accountant.core.errors import DataError, InvalidRequest
from accountant.core.mechanisms import aug_pe
from accountant.core.mechanisms.base import quote
from accountant.core.mechanisms.evolution_fields import root_up
from accountant.core.privacy.events import FREE, Gaussian, SelfComposed, releases
from accountant.core.privacy.price import Neighbours, Terms
from tests.workers.conformance.metadata import Refused
from tests.workers.conformance.noting import Noting, compare
from tests.workers.evolution.writers import WORDS, Places, Words, public, vector
from workers.data.records import Record, Records
from workers.embedding.neighbours import unit
from workers.interface import Artifact, Progress, Released, Text
from workers.mechanisms.aug_pe import Runner, count
from workers.noise.meter import Meter

pytestmark = pytest.mark.slow

PRICE = aug_pe.MECHANISM
LABELS = ("a", "b")
KEY = b"k" * 32
NAMED = {"embedding": "places", "writer": "words", "prompting": "plain"}

UNIT = st.lists(
    st.tuples(st.sampled_from(LABELS), st.sampled_from([*WORDS, "", "a b c"])),
    min_size=1,
    max_size=3,
)


def dataset(units: dict[str, list[tuple[str, str]]], bound: int, labels=LABELS) -> Records:
    rows = [
        Record(name, label if None not in labels else None, text)
        for name, own in units.items()
        for label, text in own[:bound]
    ]
    return Records(labels, tuple(rows), KEY)


def run(parameters, terms, data, meter, things=None):
    """(texts, the artifact, progress) of a run."""
    runner = Runner()
    progress = Progress(runner.total(parameters, terms))
    things = things or public(Words(words=WORDS[:4]))
    made = list(runner.run(parameters, terms, data, None, meter, progress, things))
    (artifact,) = (each for each in made if isinstance(each, Artifact))
    return [each for each in made if isinstance(each, Text)], artifact, progress


def reuse(artifact, terms=None, writer=None, **changes):
    terms = terms or Terms(labels=LABELS)
    parameters = PRICE.parse({**NAMED, "from_job": "j", "seed": 3, **changes}, terms)
    progress = Progress(Runner().total(parameters, terms))
    released = {"evolution": Released(artifact.name, artifact.content)}
    made = list(Runner().reuse(parameters, terms, released, None, progress, public(writer)))
    assert progress.done == progress.total
    return [each for each in made if isinstance(each, Text)], made[-1]


SETTINGS = st.fixed_dictionaries(
    {
        "epochs": st.integers(1, 3),
        "samples": st.integers(1, 4),
        "variations": st.integers(0, 3),
        "votes": st.integers(1, 4),
        "lookahead": st.integers(0, 2),
        "threshold": st.sampled_from([0.0, 0.5, 2.0]),
        "select": st.sampled_from(["rank", "draw"]),
        "varying": st.sampled_from(["rewrite", "continue", "blanks"]),
        "noise_multiplier": st.sampled_from([0.01, 1.0, 30.0]),
        "max_tokens": st.sampled_from([1, 5]),
        "seed": st.integers(0, 9),
    }
)


@settings(max_examples=200, deadline=None)
@given(
    SETTINGS,
    st.sampled_from(Neighbours),
    st.integers(1, 3),
    st.booleans(),
    st.lists(UNIT, max_size=5),
    UNIT,
    UNIT,
)
def test_the_meter_records_the_price_and_a_unit_moves_no_more_than_is_declared(
    raw, relation, bound, labelled, others, old, new
):
    """On the running code, in whole numbers: with a unit, and without it or with another in its
    place.
    """
    raw["votes"] = min(raw["votes"], raw["samples"])
    labels = LABELS if labelled else (None,)
    terms = Terms(relation, 1e-6, bound, None, LABELS if labelled else ())
    parameters = PRICE.parse({**NAMED, **raw}, terms)
    price = PRICE.price(parameters, terms)
    rest = {f"u{n}": each for n, each in enumerate(others)}
    replaced = {"y": new} if relation is Neighbours.REPLACE_ONE else {}
    one, two = Noting(price), None
    _, artifact, progress = run(parameters, terms, dataset(rest | {"x": old}, bound, labels), one)
    two = Noting(price, one)
    _, _, again = run(parameters, terms, dataset(rest | replaced, bound, labels), two)
    compare(one, two)
    assert (
        releases(one.realized)
        == releases(price.dp)
        == {Gaussian(raw["noise_multiplier"]): raw["epochs"]}
    )
    assert progress.done == progress.total == again.done
    rounds = [label["epochs"] for label in artifact.json()["labels"]]
    assert [len(each) for each in rounds] == [raw["epochs"]] * len(labels)


@pytest.mark.parametrize("relation", list(Neighbours))
@given(st.integers(1, 60))
def test_the_declared_sensitivity_is_the_root_rounded_up(relation, square):
    root = root_up(square)
    assert root**2 >= square
    assert (root - Fraction(1, 2**59)) ** 2 < square
    parameters = PRICE.parse(
        {"noise_multiplier": 1.0, "votes": square, "samples": 60}, Terms(relation)
    )
    twice = 2 if relation is Neighbours.REPLACE_ONE else 1
    assert aug_pe.sensitivity(parameters, Terms(relation, max_records_per_unit=3)) == 3 * root_up(
        twice * square
    )


def test_too_little_noise_for_k_votes_is_caught():
    """The guard of the test above: declaring sqrt(k) where sqrt(2k) is due fails."""
    terms = Terms(Neighbours.REPLACE_ONE)
    parameters = PRICE.parse(
        {**NAMED, "noise_multiplier": 1.0, "epochs": 1, "samples": 6, "seed": 1}, terms
    )
    price = PRICE.price(parameters, terms)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("workers.mechanisms.aug_pe.sensitivity", lambda *_: Fraction(1))
        one = Noting(price)
        run(parameters, terms, dataset({"x": [("a", "soup")]}, 1, (None,)), one)
        moved = 0
        for word in WORDS:
            two = Noting(price, one)
            run(parameters, terms, dataset({"y": [("a", word)]}, 1, (None,)), two)
            values = one.calls[None][0].values, two.calls[None][0].values
            if (values[0] != values[1]).any():
                with pytest.raises(Refused, match=r"gaussian: one unit moves 1\.41"):
                    compare(one, two)
                moved += 1
    assert moved


# --- counts -------------------------------------------------------------------------------------


def released_without_noise(parameters, terms, data, monkeypatch):
    monkeypatch.setattr("workers.noise.meter.gaussian_on_grid", lambda values, _: values)
    return run(parameters, terms, data, Meter(PRICE.price(parameters, terms).dp))


@pytest.mark.parametrize("votes", [1, 3])
def test_counts_without_noise_equal_a_recount_by_scikit_learn(votes):
    """1,500 records, 60 candidates; records whose k-th and next candidate are nearly equal are left
    out.
    """
    random = np.random.default_rng(5)
    points, samples = unit(random.normal(size=(1_700, 24))), unit(random.normal(size=(60, 24)))
    cosines = np.sort(points @ samples.T, axis=1)[:, ::-1]
    points = points[cosines[:, votes - 1] - cosines[:, votes] > 1e-3][:1_500]
    assert len(points) == 1_500
    near = NearestNeighbors(n_neighbors=votes, algorithm="brute", metric="cosine").fit(samples)
    expected = np.bincount(near.kneighbors(points, return_distance=False).ravel(), minlength=60)
    for pieces in ([points], np.array_split(points, 7), [points[:1], points[1:]]):
        assert (count(list(pieces), samples, votes) == expected).all()


def test_each_epochs_released_counts_are_the_votes_of_the_labels_own_records(monkeypatch):
    terms = Terms(labels=LABELS)
    raw = {**NAMED, "noise_multiplier": 1.0, "epochs": 3, "samples": 4, "variations": 2, "seed": 2}
    parameters = PRICE.parse(raw, terms)
    rows = {f"u{n}": [(LABELS[n % 3 == 0], f"text {n}")] for n in range(60)} | {"e": [("a", "")]}
    data = dataset(rows, 1)
    _, artifact, _ = released_without_noise(parameters, terms, data, monkeypatch)
    for each in artifact.json()["labels"]:
        own = [
            record.text for record in data.records if record.label == each["label"] and record.text
        ]
        for epoch in each["epochs"]:
            texts = [each["samples"][place]["text"] for place in epoch["candidates"]]
            assert len(texts) == len(set(texts))
            near = unit([vector(text) for text in own]) @ unit([vector(text) for text in texts]).T
            expected = np.bincount(near.argmax(axis=1), minlength=len(texts))
            assert epoch["noisy_counts"] == expected.tolist()
            assert sum(epoch["noisy_counts"]) == len(own)


def test_a_candidate_without_a_vote_gets_noise_too():
    """No record at all: every released count is noise, and none is left as 0 by design."""
    terms = Terms()
    raw = {
        **NAMED,
        "noise_multiplier": 1000.0,
        "epochs": 1,
        "samples": 40,
        "variations": 1,
        "seed": 2,
    }
    parameters = PRICE.parse(raw, terms)
    writer = Words()
    meter = Meter(PRICE.price(parameters, terms).dp)
    _, artifact, _ = run(parameters, terms, dataset({}, 1, (None,)), meter, public(writer))
    (epoch,) = artifact.json()["labels"][0]["epochs"]
    counts = np.array(epoch["noisy_counts"])
    assert len(counts) > 40
    assert (counts == 0).sum() <= 5  # each with a chance of 0.0004
    assert 500 < counts.std() < 1600


def test_identical_texts_are_one_candidate():
    """A writer with two things to say: two candidates, which share no votes."""
    terms = Terms()
    raw = {**NAMED, "noise_multiplier": 0.01, "epochs": 2, "samples": 9, "max_tokens": 1, "seed": 2}
    parameters = PRICE.parse(raw, terms)
    meter = Meter(PRICE.price(parameters, terms).dp)
    data = dataset({f"u{n}": [("a", "tea")] for n in range(50)}, 1, (None,))
    texts, artifact, _ = run(parameters, terms, data, meter, public(Words(words=("tea", "cat"))))
    (family,) = artifact.json()["labels"]
    assert {each["text"] for each in family["samples"]} == {"tea", "cat"}
    for epoch in family["epochs"]:
        assert sorted(epoch["noisy_counts"])[-1] in range(48, 53)  # all fifty votes on one
    assert sorted(each.text for each in texts) == ["cat", "tea"]


@pytest.mark.parametrize("words", [("",), ("I'm sorry, I can't",)])
def test_a_model_that_writes_nothing_usable_still_makes_every_release(words):
    """What there is to vote for is public, so nothing fails after records were read."""
    terms = Terms(labels=LABELS)
    parameters = PRICE.parse({**NAMED, "noise_multiplier": 1.0, "epochs": 2, "samples": 3}, terms)
    price = PRICE.price(parameters, terms)
    meter = Meter(price.dp)
    data = dataset({"x": [("a", "soup")]}, 1)
    texts, _, progress = run(parameters, terms, data, meter, public(Words(words=words)))
    assert (texts, meter.realized) == ([], price.dp)
    assert progress.done == progress.total


def test_records_are_embedded_once_however_many_epochs():
    terms = Terms()
    raw = {**NAMED, "noise_multiplier": 1.0, "epochs": 4, "samples": 3, "seed": 1}
    things = public()
    parameters = PRICE.parse(raw, terms)
    meter = Meter(PRICE.price(parameters, terms).dp)
    data = dataset({f"u{n}": [("a", f"private {n}")] for n in range(7)}, 1, (None,))
    _, artifact, _ = run(parameters, terms, data, meter, things)
    seen = [text for text in things.embedder("embedding").seen if text.startswith("private")]
    assert sorted(seen) == [f"private {n}" for n in range(7)]
    assert "private" not in artifact.content.decode()
    assert not any("private" in str(each.text) for each in things.endpoints["writer"].asked)


def test_samples_come_nearer_to_the_records_with_every_epoch():
    """A writer of random words, records about one thing: the share of its words rises."""
    terms = Terms()
    raw = {
        **{**NAMED, "noise_multiplier": 0.5, "samples": 4, "variations": 9, "varying": "continue"},
        **{"epochs": 8, "seed": 4, "max_tokens": 6},
    }

    class Bags(Places):
        dimensions = len(WORDS)

        def embed(self, texts, tokens=None):
            for text in texts:
                yield unit(np.array([[text.split().count(word) for word in WORDS]], np.float32))

    parameters = PRICE.parse(raw, terms)
    things = public()
    things = type(things)(embedders={"embedding": Bags()}, endpoints=things.endpoints)
    draws = np.random.default_rng(8)
    about = [" ".join(draws.choice(["tea", "cat", "warm"], 5)) for _ in range(60)]
    data = dataset({f"u{n}": [("a", text)] for n, text in enumerate(about)}, 1, (None,))
    meter = Meter(PRICE.price(parameters, terms).dp)
    texts, artifact, _ = run(parameters, terms, data, meter, things)
    (family,) = artifact.json()["labels"]
    first = [family["samples"][place]["text"] for place in family["epochs"][0]["candidates"]]

    def share(found):
        words = [word for text in found for word in text.split()]
        return sum(word in ("tea", "cat", "warm") for word in words) / len(words)

    assert share([each.text for each in texts]) > 2 * share(first)


# --- afterwards ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def earlier():
    """The artifact of a job of three epochs."""
    terms = Terms(labels=LABELS)
    raw = {**NAMED, "noise_multiplier": 1.0, "epochs": 3, "samples": 6, "variations": 3, "seed": 2}
    parameters = PRICE.parse(raw, terms)
    meter = Meter(PRICE.price(parameters, terms).dp)
    data = dataset({f"u{n}": [(LABELS[n % 2], f"text {n}")] for n in range(40)}, 1)
    return run(parameters, terms, data, meter, public())[1]


def test_a_later_job_is_free_and_has_neither_records_nor_meter(earlier):
    terms = Terms(labels=LABELS)
    parameters = PRICE.parse({**NAMED, "from_job": "j"}, terms)
    assert PRICE.price(parameters, terms).dp == FREE
    assert quote(PRICE, parameters, terms)["dp"]["epsilon"] == 0
    texts, _ = reuse(earlier, samples=4, variations=0)
    assert len(texts) == 8
    released = {each["text"] for label in earlier.json()["labels"] for each in label["samples"]}
    assert {each.text for each in texts} <= released


def test_a_later_job_selects_another_number_by_the_same_counts(earlier):
    for select in ("rank", "draw"):
        for samples in (1, 3, 1_000):
            texts, artifact = reuse(earlier, samples=samples, variations=0, select=select)
            for before, after in zip(
                earlier.json()["labels"], artifact.json()["labels"], strict=True
            ):
                last, own = before["epochs"][-1], after["epochs"][-1]
                assert own["noisy_counts"] == last["noisy_counts"]
                if select == "rank":
                    best = sorted(last["noisy_counts"], reverse=True)[:samples]
                    counts = dict(zip(own["candidates"], own["noisy_counts"], strict=True))
                    assert [max(counts[place], 0) for place in own["survivors"]] == [
                        max(each, 0) for each in best
                    ]
            if select == "draw":
                assert len(texts) == 2 * samples


def test_a_later_job_varies_what_it_selects(earlier):
    writer = Words()
    texts, artifact = reuse(earlier, writer=writer, samples=5, variations=4, varying="rewrite")
    assert len(writer.asked) >= 2 * 5 * 4
    assert 2 * 5 < len(texts) <= 2 * 5 * (1 + 4)
    assert len({(each.label, each.text) for each in texts}) == len(texts)
    again, _ = reuse(artifact, samples=5, variations=0)
    assert len(again) == 10


def test_an_earlier_epoch_can_be_selected_from(earlier):
    texts, artifact = reuse(earlier, samples=4, variations=0, from_epoch=1)
    for before, after in zip(earlier.json()["labels"], artifact.json()["labels"], strict=True):
        assert after["epochs"][-1]["candidates"] == before["epochs"][0]["candidates"]
    with pytest.raises(DataError, match="from_epoch: 4 is asked for, the job in from_job had 3"):
        reuse(earlier, from_epoch=4)
    assert texts


def test_a_label_that_was_not_released_is_named(earlier):
    with pytest.raises(DataError, match="from_job: it released no samples for 'c'"):
        reuse(earlier, terms=Terms(labels=("a", "c")))


def goes_on(earlier, terms=None, data=None, writer=None, **changes):
    """(parameters, texts, the artifact, meter) of a job that pays for epochs after `earlier`."""
    terms = terms or Terms(labels=LABELS)
    raw = {**NAMED, "population": "j", "noise_multiplier": 1.0, "epochs": 2, "seed": 5, **changes}
    parameters = PRICE.parse(raw, terms)
    meter = Meter(PRICE.price(parameters, terms).dp)
    released = {"evolution": Released(earlier.name, earlier.content)}
    things = replace(public(writer), sources={"population": released})
    Runner().check(parameters, terms, things)
    data = data or dataset({f"u{n}": [(LABELS[n % 2], f"text {n}")] for n in range(40)}, 1)
    texts, artifact, progress = run(parameters, terms, data, meter, things)
    assert progress.done == progress.total
    return parameters, texts, artifact, meter


@pytest.mark.parametrize("samples", [1, 4, 10])
def test_a_paid_job_begins_with_what_an_earlier_one_released(earlier, samples):
    parameters, texts, artifact, meter = goes_on(earlier, samples=samples, variations=2)
    assert PRICE.sources(parameters) == {"population": "evolution"}
    assert meter.realized == PRICE.price(parameters, Terms(labels=LABELS)).dp
    assert len(texts) == 2 * samples
    for before, after in zip(earlier.json()["labels"], artifact.json()["labels"], strict=True):
        survived = [before["samples"][place]["text"] for place in before["epochs"][-1]["survivors"]]
        first = [after["samples"][place] for place in after["epochs"][0]["candidates"]]
        begun = [each["text"] for each in first if each["origin"] is None]
        assert begun == list(dict.fromkeys(survived))[:samples]
        assert len(after["epochs"]) == 2
        assert {each["origin"] for each in first} <= {None, *range(len(begun))}


def test_a_survivor_that_was_left_out_may_be_written_again(earlier):
    """It is a variation then, and nothing that the job began with."""
    made = earlier.json()
    for each in made["labels"]:
        kept, left_out = each["epochs"][-1]["survivors"][:2]
        each["samples"][left_out]["text"] = "again"
        each["epochs"][-1]["survivors"] = [kept, left_out]
    changed = Artifact.of_json("evolution", "evolution", made)
    _, _, artifact, _ = goes_on(
        changed, writer=Words(words=["again"]), samples=1, variations=1, max_tokens=1, threshold=0.0
    )
    for each in artifact.json()["labels"]:
        origins = {sample["text"]: sample["origin"] for sample in each["samples"]}
        assert origins["again"] == 0


def test_a_population_costs_what_the_same_epochs_cost_anew(earlier):
    parameters, *_ = goes_on(earlier)
    anew = parameters.model_copy(update={"population": None})
    assert PRICE.price(parameters, Terms()) == PRICE.price(anew, Terms())
    free = PRICE.parse({**NAMED, "from_job": "j", "population": "k"}, Terms())
    assert (free.population, PRICE.price(free, Terms()).dp, PRICE.sources(free)) == (None, FREE, {})


def test_a_population_without_a_label_is_named_before_records_are_opened(earlier):
    with pytest.raises(DataError, match="population: it released no samples for 'c'"):
        goes_on(earlier, terms=Terms(labels=("a", "c")), data="never opened")


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        ({"noise_multiplier": 1.0, "from_epoch": 2}, "from_epoch"),
        ({"from_job": "j", "epsilon": 1.0}, "epsilon"),
        ({"epsilon": 1.0, "varying": "continue", "rewriting": "{text}"}, "rewriting"),
        ({"epsilon": 1.0, "varying": "blanks", "rewriting": "fill in"}, "rewriting"),
        ({"epsilon": 1.0, "prompt": "{text}"}, "prompt"),
        ({"noise_multiplier": 1e9, "votes": 1000}, "noise_multiplier"),
        ({"epsilon": 1.0, "kept": 1.0}, "kept"),
        ({"epsilon": 1.0, "varying": "translate"}, "varying"),
    ],
)
def test_bad_input_names_its_field(raw, field):
    with pytest.raises(InvalidRequest) as error:
        PRICE.parse(raw, Terms(max_records_per_unit=1000))
    assert field in [each.field for each in error.value.problems]


def test_resolved_parameters_stay_what_they_are():
    """What is stored with the job is parsed again by worker and verifier."""
    for varying in ("rewrite", "continue", "blanks"):
        once = PRICE.parse({"epsilon": 1.0, "varying": varying}, Terms())
        assert PRICE.parse(once.model_dump(), Terms()) == once
    assert PRICE.price(once, Terms()).dp == SelfComposed(Gaussian(once.noise_multiplier), 10)
