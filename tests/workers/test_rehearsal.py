"""Rehearsals: free, public, with the noise of the job itself; on real workers."""

import pytest

from accountant.core import mechanisms
from accountant.core.errors import DataError, InvalidRequest
from accountant.core.mechanisms import rehearsal
from accountant.core.privacy.price import Terms
from workers.data.corpora import Corpus
from workers.interface import Progress, Public
from workers.rehearsal import Runner

TERMS = Terms(labels=("up", "down"), groups=("x", "y"), public_size=1_000)
REHEARSABLE = [each for each in mechanisms.MECHANISMS.values() if rehearsal.of(each) is not None]


def counted(**parameters: object):
    found = mechanisms.get("rehearsal:noisy-count")
    return found.parse({"per": "label", "rehearsal_corpus": "c", **parameters}, TERMS)


@pytest.fixture
def corpus(tmp_path) -> Corpus:
    path = tmp_path / "public.csv"
    rows = [
        f'{"up" if n % 4 else "down"},"the lift number {n} was out of order"' for n in range(200)
    ]
    path.write_text("label,text\n" + "\n".join(rows) + "\n")
    return Corpus("c", str(path), "{text}", "label")


# --- the price ----------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", REHEARSABLE, ids=lambda each: each.id)
def test_every_mechanism_that_reads_records_is_rehearsed_with_its_parameters_for_nothing(mechanism):
    found = rehearsal.of(mechanism)
    given = {**mechanism.example, "rehearsal_corpus": "c"}
    if "public_size" in mechanism.fields:
        given.setdefault("public_size", 100)
    parameters = found.parse(given, TERMS)
    plain = {name: value for name, value in given.items() if name not in rehearsal.FIELDS}
    own = mechanism.parse(plain, TERMS)
    assert rehearsal.rehearsed(found.recorded(parameters)) == mechanism.recorded(own)
    assert (found.public, found.admitted_as) == (True, mechanism.id)
    assert mechanisms.get(found.id) is found
    if mechanism.price(own, TERMS).secret is not None:
        with pytest.raises(InvalidRequest, match="protects secrets"):
            found.price(parameters, TERMS)
        return
    price = found.price(parameters, TERMS)
    assert (price.dp.to_json() if hasattr(price.dp, "to_json") else price.dp) is not None
    assert (price.ex_post_cap, price.secret) == (None, None)


def test_what_reads_no_records_has_no_rehearsal():
    for name in ("vocabulary", "evaluation", "rehearsal:noisy-count", "nothing"):
        with pytest.raises(InvalidRequest, match="unknown mechanism"):
            mechanisms.get(f"rehearsal:{name}")


def test_a_rehearsal_starts_from_no_job():
    with pytest.raises(InvalidRequest, match="from_job"):
        mechanisms.get("rehearsal:epsvec").parse(
            {"from_job": "x" * 36, "rehearsal_corpus": "c"}, TERMS
        )


# --- the run ------------------------------------------------------------------------------------


def made(corpus: Corpus, parameters, terms=TERMS):
    public = Public(corpora={rehearsal.CORPUS: corpus})
    found = list(Runner().make(parameters, terms, None, Progress(1), public))
    return found[:-1], found[-1].json()


def test_counts_of_a_corpus_come_with_the_noise_of_the_job_and_how_far_they_are_off(corpus):
    _, loud = made(corpus, counted(epsilon=0.001))
    counts, quiet = made(corpus, counted(epsilon=50.0))
    assert [each.label for each in counts] == ["up", "down"]
    assert (quiet["labels"], quiet["texts_read"], quiet["what"]) == ("by name", 160, "counts")
    assert quiet["error"]["mean"] <= 1 < loud["error"]["mean"]
    assert abs(sum(each.count for each in counts) - 160) <= 4


def test_labels_that_the_corpus_lacks_are_given_by_chance(corpus):
    counts, report = made(corpus, counted(epsilon=50.0), Terms(labels=("a", "b")))
    assert report["labels"] == "by chance"
    assert all(40 < each.count < 120 for each in counts)


def test_no_more_texts_are_read_than_the_dataset_says_it_has(corpus):
    assert (
        made(corpus, counted(), Terms(labels=("up", "down"), public_size=30))[1]["texts_read"] == 30
    )
    assert made(corpus, counted(rehearsal_texts=20))[1]["texts_read"] == 20


@pytest.mark.parametrize("raw", [{}, {"amplification": "allocation"}], ids=["known", "allocation"])
def test_batches_are_as_full_as_those_of_the_job_and_fewer(raw):
    mechanism = mechanisms.get("private-prediction")
    terms = Terms(labels=("up", "down"), public_size=10_000)
    job = mechanism.parse({"batch_size": 50, "tokens_per_batch": 60, **raw}, terms)
    filled = rehearsal.filled(job, terms, 420)
    assert (job.batches_per_label, filled.batches_per_label) == (100, 4)
    same = {name for name in mechanism.fields if name != "batches_per_label"}
    assert all(getattr(filled, name) == getattr(job, name) for name in same)
    assert rehearsal.filled(job, terms, 20_000) == job
    counted = mechanism.parse({"batch_size": 50, "label_counts": [9_000, 1_000]}, terms)
    assert rehearsal.filled(counted, terms, 1_000).batches_by_label(terms) == {"up": 18, "down": 2}


def test_a_sample_is_as_large_as_that_of_the_job_and_its_noise_the_same():
    mechanism = mechanisms.get("epsvec")
    terms = Terms(labels=("up", "down"), public_size=10_000)
    job = mechanism.parse({"samples_per_label": 500, "epsilon": 3.0}, terms)
    filled = rehearsal.filled(job, terms, 2_000)
    assert (job.sampling_rate, filled.sampling_rate) == (0.1, 0.5)
    assert filled.noise_multiplier == job.noise_multiplier


def test_a_corpus_of_a_few_texts_is_refused_by_its_field(tmp_path):
    path = tmp_path / "few.csv"
    path.write_text("text\none\ntwo\n")
    with pytest.raises(DataError, match="rehearsal_corpus: it has 2 texts"):
        made(Corpus("c", str(path), "{text}"), counted())
