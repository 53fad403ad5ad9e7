"""`secpe`: what is released of records, what a secret moves, and that the rest reads releases
only.
"""

import re
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accountant.core.errors import DataError, InvalidRequest
from accountant.core.mechanisms import secpe
from accountant.core.privacy.blowup import Without
from accountant.core.privacy.events import FREE
from accountant.core.privacy.price import Terms
from accountant.core.privacy.secrets import SecretRelease, SecretTerms
from accountant.core.secret_patterns import TAG, Secrets
from tests.workers.conformance import samples
from tests.workers.conformance.noting import Noting, compare_secret
from tests.workers.evolution.writers import Places, Words, public, vector
from workers.data.records import Record, Records
from workers.embedding.neighbours import nearest, unit
from workers.evolution.places import Space
from workers.generation.writer import WriterError
from workers.interface import Artifact, Progress, Public, Released, Text
from workers.mechanisms.secpe import Runner, votes
from workers.mechanisms.secpe.cells import Cells, public_texts
from workers.mechanisms.secpe.releases import Members, Noisy, carries, on_grid, release, steps_to
from workers.noise import coins
from workers.noise.meter import Meter

pytestmark = pytest.mark.slow

PRICE = secpe.MECHANISM
LABELS = ("a", "b")
KEY = b"k" * 32
SECRETS = Secrets(patterns=(r"\b4\d{3}\b",), terms=("zanzibar",))
DECLARED = {"prior": 1e-4, "records_per_secret": 3, "sampling_rate": 0.5, "neighbour": "removed"}
NAMED = {"embedding": "places", "writer": "words", "prompting": "plain", "public_corpus": "toy"}


class Corpus:
    """`count` public texts, of the labels in turn."""

    def __init__(self, count: int = 40, labels=(None,), empty: int = 0) -> None:
        self.rows = [("", labels[0])] * empty
        self.rows += [(f"public text {n}", labels[n % len(labels)]) for n in range(count)]

    def texts(self):
        return iter(self.rows)


def parse(terms=None, **raw):
    return PRICE.parse(
        {**DECLARED, **NAMED, "noise_multiplier": 2.0, "seed": 1, **raw}, terms or Terms()
    )


def data(*texts: str, labels=(None,), secrets=SECRETS) -> Records:
    rows = [Record(f"u{n}", labels[n % len(labels)], text) for n, text in enumerate(texts)]
    return Records(labels, tuple(rows), KEY, secrets=secrets)


def meter_of(parameters, terms=None) -> Meter:
    stated = PRICE.price(parameters, terms or Terms()).secret["release"]
    return Meter(FREE, secret=SecretRelease.from_json(stated))


def run(parameters, records, meter=None, things=None, terms=None):
    """(texts, artifacts by name, progress) of a run."""
    terms = terms or Terms()
    progress = Progress(Runner().total(parameters, terms))
    things = things or public(public_corpus=Corpus())
    made = list(
        Runner().run(
            parameters, terms, records, None, meter or meter_of(parameters), progress, things
        )
    )
    artifacts = {each.name: each for each in made if isinstance(each, Artifact)}
    return [each for each in made if isinstance(each, Text)], artifacts, progress


def reuse(artifacts, writer=None, things=None, terms=None, **changes):
    raw = {**NAMED, "from_job": "j", "seed": 3, "samples": 4, "variations": 2, **changes}
    parameters = PRICE.parse(raw, terms or Terms())
    progress = Progress(Runner().total(parameters, terms or Terms()))
    released = {name: Released(each.name, each.content) for name, each in artifacts.items()}
    made = list(
        Runner().reuse(
            parameters, terms or Terms(), released, None, progress, things or public(writer)
        )
    )
    assert progress.done == progress.total
    return [each for each in made if isinstance(each, Text)], {
        each.name: each for each in made if isinstance(each, Artifact)
    }


@pytest.fixture
def no_noise(monkeypatch):
    """Releases as they would be with noise 0."""
    monkeypatch.setattr("workers.noise.meter.gaussian_on_grid", lambda values, _: values)


# --- price and movement -------------------------------------------------------------------------

SETTINGS = st.fixed_dictionaries(
    {
        "clusters": st.integers(1, 6),
        "iterations": st.integers(1, 3),
        "recluster": st.booleans(),
        "radius": st.sampled_from([0.2, 1.0, 7.0]),
        "samples": st.integers(1, 4),
        "variations": st.integers(0, 2),
        "select": st.sampled_from(["rank", "draw"]),
        "noise_multiplier": st.sampled_from([0.01, 3.0, 1e8]),
        "records_per_secret": st.integers(1, 4),
        "neighbour": st.sampled_from(["removed", "redacted"]),
        "public_texts": st.sampled_from([6, 100]),
    }
)


@settings(max_examples=80, deadline=None)
@given(SETTINGS, st.integers(0, 30), st.booleans(), st.randoms(use_true_random=False))
def test_the_meter_records_the_price_and_a_secret_moves_no_more_than_is_declared(
    raw, texts, labelled, random
):
    """On the running code, in whole numbers: everybody takes part, with the secret and without
    it.
    """
    terms = Terms(labels=LABELS if labelled else ())
    parameters = parse(terms, **raw)
    price = PRICE.price(parameters, terms)
    stated = SecretRelease.from_json(price.secret["release"])
    with_it, without, differ = samples.secret_pair(random, terms, stated.group)
    things = public(public_corpus=Corpus(texts, LABELS, empty=1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coins, "heads", lambda _: True)
        one = Noting(price)
        _, _, progress = run(parameters, with_it, one, things, terms)
        two = Noting(price, one)
        _, _, again = run(parameters, without, two, things, terms)
    assert one.secret_rounds == two.secret_rounds == stated.rounds
    assert stated.rounds == (raw["iterations"] if raw["recluster"] else 1)
    assert price.dp is None
    compare_secret(one, two, stated.group, differ)
    assert progress.done == progress.total == again.done


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32), st.floats(1e-3, 1e3), st.floats(1e-2, 1e8), st.integers(1, 40))
def test_vectors_on_the_grid_are_never_longer_than_the_radius_and_noise_fits(
    seed, radius, sigma, width
):
    random = np.random.default_rng(seed)
    steps = steps_to(width, sigma)
    vectors = random.normal(size=(9, width)) * 10.0 ** random.integers(-5, 6, (9, 1))
    squares = (on_grid(vectors, radius, steps).astype(object) ** 2).sum(axis=1)
    assert max(squares) <= steps**2
    assert Fraction(sigma) * (2 * steps + width) <= 2**41
    short = unit(vectors) * np.float32(radius / 2)
    back = on_grid(short, radius, steps) * (radius / steps)
    assert np.abs(back - short).max() <= 2 * radius / steps + 1e-6 * radius


# --- the release --------------------------------------------------------------------------------


def prepared(parameters, records, corpus=None, labels=(None,)):
    where = Space(Places(), 100, np.zeros(Places.dimensions, np.float32))
    texts = public_texts(corpus or Corpus(40, labels), records.labels, parameters.public_texts)
    cells = Cells.of([where.all(own) for own in texts], parameters.clusters, parameters.radius)
    return cells, Members(parameters, records, where, cells, lambda: None)


@pytest.mark.parametrize("radius", [0.3, 1.0])
@pytest.mark.parametrize("recluster", [False, True])
def test_without_noise_it_is_equation_7(no_noise, monkeypatch, radius, recluster):
    """Against a recount in floating point, record by record."""
    monkeypatch.setattr(coins, "heads", lambda _: True)
    texts = [f"record {n}" for n in range(60)] + ["", " "]
    records = data(*texts, labels=LABELS)
    parameters = parse(Terms(labels=LABELS), clusters=4, radius=radius, recluster=recluster)
    cells, members = prepared(parameters, records, labels=LABELS)
    assert cells.sizes.sum() == 40
    meter = meter_of(parameters, Terms(labels=LABELS))
    for _ in range(2 if recluster else 1):
        counts, centres = release(parameters, members, meter)
        expected = {row: [] for row in range(len(cells.sizes))}
        for record in records.records:
            if not record.text.strip():
                continue
            own = np.flatnonzero(cells.owners == LABELS.index(record.label))
            place = unit(vector(record.text)[None])[0]
            cosines = [
                cells.centres[row] @ place / np.linalg.norm(cells.centres[row]) for row in own
            ]
            expected[own[int(np.argmax(cosines))]].append(place * min(1, radius))
        for row, size in enumerate(cells.sizes):
            joined = expected[row]
            assert counts[row] == size + len(joined)
            mean = (size * cells.centres[row] + np.sum(joined, axis=0)) / (size + len(joined))
            assert centres[row] == pytest.approx(mean, abs=1e-6)


def test_public_clusters_are_means_of_their_labels_own_texts():
    cells, _ = prepared(
        parse(Terms(labels=LABELS), clusters=1), data(labels=LABELS), Corpus(10, LABELS)
    )
    own = [
        unit(np.array([vector(f"public text {n}") for n in range(10) if n % 2 == k]))
        for k in (0, 1)
    ]
    assert cells.sizes.tolist() == [5, 5]
    assert cells.centres == pytest.approx(np.array([each.mean(axis=0) for each in own]), abs=1e-6)
    shared, _ = prepared(parse(Terms(labels=LABELS), clusters=1), data(labels=LABELS), Corpus(10))
    assert shared.sizes.tolist() == [10, 10]


@pytest.mark.parametrize("corpus", [Corpus(2), Corpus(0, empty=3), Corpus(1)])
def test_a_corpus_whose_texts_can_not_be_embedded_still_makes_the_release(corpus):
    """How many can is public: fewer clusters, down to none, and nothing fails after records were
    read.
    """
    parameters = parse(clusters=3, samples=2, variations=1)
    meter = meter_of(parameters)
    texts, artifacts, _ = run(parameters, data("soup", "4711"), meter, public(public_corpus=corpus))
    assert meter.secret_rounds == 1
    assert len(artifacts["clusters"].tensors()["sizes"]) <= 2
    assert texts


def test_the_release_is_made_when_no_record_takes_part_or_there_is_none():
    for records in (data(), data("4711", "4712")):
        parameters = parse(clusters=2, sampling_rate=1e-6, noise_multiplier=50.0)
        meter = meter_of(parameters)
        cells, members = prepared(parameters, records)
        counts, centres = release(parameters, members, meter)
        assert meter.secret_rounds == 1
        assert (counts != cells.sizes).any()  # noise on it all the same
        assert np.abs(centres - cells.centres).max() > 1e-3


def test_noise_of_a_centre_is_that_of_its_public_number(monkeypatch):
    """2R / n_k with the public n_k, whatever joined; and what rounding down may add."""
    monkeypatch.setattr(coins, "heads", lambda _: True)
    drawn = []
    monkeypatch.setattr(
        "workers.noise.meter.gaussian_on_grid", lambda values, sigma: drawn.append(sigma) or values
    )
    parameters = parse(clusters=3, noise_multiplier=4.0)
    cells, members = prepared(parameters, data(*(f"record {n}" for n in range(500))))
    release(parameters, members, meter_of(parameters))
    *rows, counts = drawn
    assert counts == 4
    steps = steps_to(Places.dimensions, 4.0)
    for sigma, size in zip(rows, cells.sizes.tolist(), strict=True):
        assert Fraction(sigma) >= Fraction(4) * Fraction(2 * steps, size)
        assert Fraction(sigma) <= Fraction(4) * (Fraction(2 * steps, size) + 3)


# --- coins --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "own", "carrying"),
    [
        ("my pin is 4711", "", True),
        ("Zanzibar!", "", True),
        ("I met Mrs Novak", "novak", True),
        ("a quiet room", "", False),
        (f"my pin is {TAG}", "", True),
        ("word " * 3_000 + "4711", "", True),
        ("word " * 3_000 + TAG, "", True),
    ],
)
def test_who_carries_a_secret(text, own, carrying):
    """The tag of a redacted one counts, and so does one that is cut away: the twin tosses the same
    coin.
    """
    assert carries(SECRETS, Record("u", None, text, secret=own)) is carrying
    redacted = Record("u", None, re.sub("4711|Zanzibar|Novak", TAG, text))
    assert carries(SECRETS, redacted) is carrying


def test_coins_are_of_carriers_alone_at_the_declared_rate_and_fresh_in_each_round(monkeypatch):
    tossed: list[float] = []
    monkeypatch.setattr(coins, "heads", lambda rate: tossed.append(rate) or len(tossed) % 2 == 0)
    records = data("4711", "plain", "4712", "zanzibar", "other", f"a {TAG}")
    parameters = parse(recluster=True, iterations=3, sampling_rate=0.25, clusters=2, samples=2)
    run(parameters, records)
    assert tossed == [0.25] * 4 * 3


def test_half_of_those_with_a_secret_take_part_and_all_without(no_noise):
    records = data(*["pin 4711"] * 400, *["plain text"] * 50)
    parameters = parse(clusters=1)
    cells, members = prepared(parameters, records)
    joined = [
        release(parameters, members, meter_of(parameters))[0][0] - cells.sizes[0] for _ in range(5)
    ]
    assert all(50 + 140 < each < 50 + 260 for each in joined)
    assert len(set(joined)) > 1


# --- evolution ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def earlier():
    """The artifacts of a job of three rounds."""
    parameters = parse(clusters=5, iterations=3, samples=4, variations=2)
    return run(parameters, data(*(f"record {n}" for n in range(30))))[1]


def test_rounds_read_releases_only_and_one_shot_reads_records_once():
    things = public(public_corpus=Corpus())
    parameters = parse(clusters=4, iterations=5, samples=3, variations=2)
    meter = meter_of(parameters)
    _, artifacts, _ = run(parameters, data(*(f"private {n}" for n in range(9))), meter, things)
    seen = [text for text in things.embedder("embedding").seen if text.startswith("private")]
    assert sorted(seen) == sorted(f"private {n}" for n in range(9))
    assert meter.secret_rounds == 1
    for artifact in artifacts.values():
        assert b"private" not in artifact.content
    assert not any("private" in str(each.text) for each in things.endpoints["writer"].asked)
    often = parse(clusters=4, iterations=5, samples=3, variations=2, recluster=True)
    things = public(public_corpus=Corpus())
    run(often, data("private 1"), meter := meter_of(often), things)
    assert meter.secret_rounds == 5
    assert things.embedder("embedding").seen.count("private 1") == 1


@pytest.mark.parametrize("counted", ["private", "all"])
def test_the_papers_votes_are_counts_clipped_at_0_for_the_nearest_sample(earlier, counted):
    noisy = Noisy(**earlier["clusters"].tensors())
    _, artifacts = reuse(earlier, voting="nearest", counted=counted)
    (family,) = artifacts["evolution"].json()["labels"]
    counts, centres = noisy.mean()
    counts = counts - (noisy.sizes if counted == "private" else 0)
    for epoch in family["epochs"]:
        texts = [family["samples"][place]["text"] for place in epoch["candidates"]]
        places = unit(np.array([vector(text) for text in texts]))
        expected = np.zeros(len(texts), np.int64)
        # Places are rounded to 1/4096, which moves a cosine in 6 dimensions by less than 0.001: of
        # samples that are as near as that, either may have the vote, and no noise fails this.
        chosen = nearest(centres, places)[:, 0]
        cosines = unit(centres) @ places.T
        assert (cosines[np.arange(len(chosen)), chosen] > cosines.max(axis=1) - 0.002).all()
        for count, place in zip(counts, chosen, strict=True):
            expected[place] += max(0, int(1_000 * count))
        assert epoch["noisy_counts"] == expected.tolist()


def test_centres_share_the_places_of_all_survivors(no_noise):
    """The paper's votes are for as many samples as there are clusters; lots decide about the
    others.
    """
    parameters = parse(clusters=2, iterations=1, samples=6, variations=3)
    _, artifacts, _ = run(parameters, data(*(["soup"] * 20)))
    (family,) = artifacts["evolution"].json()["labels"]
    (epoch,) = family["epochs"]
    counts = dict(zip(epoch["candidates"], epoch["noisy_counts"], strict=True))
    assert min(counts[place] for place in epoch["survivors"]) > 0
    texts = [family["samples"][place]["text"] for place in epoch["candidates"]]
    noisy = Noisy(**artifacts["clusters"].tensors())
    (private,) = np.flatnonzero(noisy.counts[0] > noisy.sizes)  # all records joined one cluster
    near = unit(np.array([vector(text) for text in texts])) @ noisy.centres[0, private]
    best = [epoch["candidates"][place] for place in np.argsort(-near)[:6]]
    assert sorted(epoch["survivors"]) == sorted(best)


def test_several_releases_are_averaged():
    parameters = parse(clusters=3, recluster=True, iterations=4, samples=2, variations=1)
    _, artifacts, _ = run(parameters, data("soup", "tea"))
    noisy = Noisy(**artifacts["clusters"].tensors())
    assert noisy.counts.shape[0] == noisy.centres.shape[0] == 4
    counts, centres = noisy.mean()
    assert counts == pytest.approx(noisy.counts.mean(axis=0))
    assert centres == pytest.approx(noisy.centres.mean(axis=0), abs=1e-6)


def test_a_later_job_evolves_for_nothing_without_records_meter_or_corpus(earlier):
    parameters = PRICE.parse({**NAMED, "from_job": "j"}, Terms())
    assert PRICE.price(parameters, Terms()).dp == FREE
    assert PRICE.price(parameters, Terms()).secret is None
    assert "public_corpus" not in PRICE.resources(parameters)
    texts, artifacts = reuse(earlier, iterations=4, samples=6)
    assert len(texts) == 6
    assert artifacts["clusters"].content == earlier["clusters"].content
    further, _ = reuse(artifacts, iterations=2)
    assert further


def test_a_later_job_goes_on_with_the_samples_or_selects_among_them_anew(earlier):
    before = {each["text"] for each in earlier["evolution"].json()["labels"][0]["samples"]}
    writer = Words()
    texts, _ = reuse(earlier, writer, start="samples", iterations=1, samples=2)
    assert not writer.asked
    assert len(texts) == 2
    assert {each.text for each in texts} <= before
    texts, artifacts = reuse(earlier, writer, start="samples", iterations=3)
    assert writer.asked
    assert len(artifacts["evolution"].json()["labels"][0]["epochs"]) == 3 + 3
    anew, _ = reuse(earlier, iterations=1)
    assert not {each.text for each in anew} <= before


def test_another_embedding_model_or_other_labels_are_named(earlier):
    class Other(Places):
        def embed(self, texts, tokens=None):
            for text in texts:
                yield unit(vector(text[::-1])[None])

    class Wider(Places):
        dimensions = 9

    for embedder in (Other(), Wider()):
        things = Public(embedders={"embedding": embedder}, endpoints={"writer": Words()})
        with pytest.raises(DataError, match="embedding: it is not the one"):
            reuse(earlier, things=things)
    parameters = parse(Terms(labels=LABELS), clusters=2, samples=2, variations=1)
    records = data("soup", "tea", labels=LABELS)
    _, labelled, _ = run(parameters, records, meter_of(parameters), None, Terms(labels=LABELS))
    with pytest.raises(DataError, match="from_job: its clusters are of other labels"):
        reuse(labelled)


def test_an_endpoint_that_dies_in_the_third_round_is_named_and_the_job_can_be_asked_again(earlier):
    first, each = 4 * 3, 4 * 2
    whole, _ = reuse(earlier, Words(), iterations=5)
    with pytest.raises(WriterError, match="the endpoint 'words' answered 503"):
        reuse(earlier, Words(dies=first + each + 3), iterations=5)
    again, _ = reuse(earlier, Words(), iterations=5)
    assert [each.text for each in again] == [each.text for each in whole]


def test_a_model_that_writes_nothing_usable_fails_nothing():
    parameters = parse(samples=2, variations=1)
    texts, _, progress = run(
        parameters, data("soup"), None, public(Words(words=("",)), public_corpus=Corpus())
    )
    assert not texts
    assert progress.done == progress.total


def test_a_round_of_votes_knows_clusters_and_samples_only(earlier):
    """Its arguments hold nothing that grows with the records: that is why its time does not."""
    few, many = (
        run(
            parse(clusters=4, samples=3, variations=1), data(*(f"record {n}" for n in range(count)))
        )[1]
        for count in (3, 3_000)
    )
    shapes = [
        {name: each.shape for name, each in one["clusters"].tensors().items()}
        for one in (few, many)
    ]
    assert shapes[0] == shapes[1]
    assert votes.__code__.co_varnames[: votes.__code__.co_argcount] == (
        "evolution",
        "where",
        "noisy",
    )


# --- bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        ({"clusters": 30, "public_texts": 20}, "clusters"),
        ({"start": "samples"}, "start"),
        ({"varying": "continue", "rewriting": "{text}"}, "rewriting"),
        ({"from_job": "j"}, "noise_multiplier"),
    ],
)
def test_bad_input_names_its_field(raw, field):
    with pytest.raises(InvalidRequest) as error:
        parse(**raw)
    assert field in [each.field for each in error.value.problems]


def test_a_corpus_smaller_than_the_clusters_and_none_at_all_are_named_before_anything_is_read():
    parameters = parse(clusters=50)
    problem = PRICE.unfit_public(
        parameters, Terms(), {"public_corpus": {"texts": 49, "labels": []}}
    )
    assert (problem.field, problem.allowed) == ("clusters", "1 to 49")
    assert "the corpus has 49 texts" in problem.problem
    assert (
        PRICE.unfit_public(parameters, Terms(), {"public_corpus": {"texts": 50, "labels": []}})
        is None
    )
    assert PRICE.missing(parse(public_corpus=None)).field == "public_corpus"
    assert PRICE.missing(PRICE.parse({"from_job": "j"}, Terms())) is None


def test_a_label_with_fewer_public_texts_than_clusters_is_named_before_records_are_opened():
    terms = Terms(labels=LABELS)
    corpus = Corpus(0)
    corpus.rows = [("one", "a"), ("two", "a"), ("three", "a"), ("four", "b")]
    things = public(public_corpus=corpus)
    with pytest.raises(
        DataError, match="clusters: 2 are asked for, the corpus has 1 texts of the label 'b'"
    ):
        Runner().check(parse(terms, clusters=2), terms, things)
    Runner().check(parse(terms, clusters=1), terms, things)
    Runner().check(PRICE.parse({"from_job": "j"}, terms), terms, Public())


def test_resolved_parameters_stay_what_they_are():
    declared = Terms(secret=SecretTerms(1e-4, 1e-2, 3, 0.5, Without.REMOVED))
    for raw in (
        {},
        {"recluster": True, "varying": "blanks"},
        {"from_job": "j", "start": "samples"},
    ):
        once = PRICE.parse({**raw, "public_corpus": "toy"}, declared)
        assert PRICE.parse(once.model_dump(), declared) == once
