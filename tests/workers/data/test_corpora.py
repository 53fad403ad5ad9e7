"""Public corpora: what a worker finds in them, and that changed bytes are refused."""

import types
import uuid

import pytest

from accountant.catalogue import corpora, datasets
from accountant.core.errors import Conflict, DataError, InvalidRequest, NotPermitted
from accountant.queries import datasets as dataset_queries
from tests.support import as_file, other_people, person, written
from tests.workers.conftest import SAMPLE, wait_for
from workers.data.corpora import digest, hold, inspect, open_corpus

ROWS = "topic,text\nsport,a match\nworld,a treaty\nsport,a race\n"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "public.csv"
    path.write_text(ROWS)
    return path


def test_its_facts_are_its_texts_labels_and_hash(file):
    facts = inspect(*hold(str(file)), "{text}", "topic")
    assert facts == {
        "sha256": digest(hold(str(file))[1], "{text}", "topic"),
        "texts": 3,
        "labels": ["sport", "world"],
    }
    row = types.SimpleNamespace(
        name="news", uri=str(file), text_template="{text}", label_column="topic"
    )
    opened = open_corpus(row, [str(file.parent)], facts["sha256"])
    assert list(opened.texts()) == [
        ("a match", "sport"),
        ("a treaty", "world"),
        ("a race", "sport"),
    ]


def test_changed_bytes_are_refused(file):
    row = types.SimpleNamespace(
        name="news", uri=str(file), text_template="{text}", label_column=None
    )
    before = digest(hold(str(file))[1], "{text}", None)
    other = types.SimpleNamespace(**{**vars(row), "text_template": "{topic}"})
    with pytest.raises(DataError, match="are not those registered"):
        open_corpus(other, [str(file.parent)], before)
    file.write_text(ROWS.replace("race", "Race"))
    with pytest.raises(DataError, match="are not those registered"):
        open_corpus(row, [str(file.parent)], before)


@pytest.mark.parametrize("place", ["disk", "object store"])
@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.jsonl", "a.parquet"])
def test_what_is_read_are_the_bytes_that_were_hashed(tmp_path, place, name):
    """Whatever lies there later; and every reading begins anew, while others are under way."""
    root = str(tmp_path) if place == "disk" else f"memory://{uuid.uuid4().hex}"
    address = f"{root}/{name}"
    written(address, as_file(name, ["first", "second"]))
    row = types.SimpleNamespace(name="news", uri=address, text_template="{text}", label_column=None)
    opened = open_corpus(row, [root], digest(hold(address)[1], "{text}", None))
    written(address, as_file(name, ["other", "people"]))
    early = opened.texts()
    assert next(early)[0] == "first"
    assert [text for text, _ in opened.texts()] == ["first", "second"]
    assert [text for text, _ in early] == ["second"]


def test_it_lies_under_a_data_root(file, tmp_path):
    row = types.SimpleNamespace(
        name="news", uri=str(file), text_template="{text}", label_column=None
    )
    with pytest.raises(DataError, match="data root"):
        open_corpus(row, [str(tmp_path / "elsewhere")], "0" * 64)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("topic,body\nsport,a match\n", "there is no column text"),
        ("topic,text\n", "there is no text in it"),
        ('topic,text\nsport,"a match\n', "quoting is broken"),
    ],
)
def test_what_is_wrong_is_named(file, content, problem):
    file.write_text(content)
    with pytest.raises(DataError, match=problem):
        inspect(*hold(str(file)), "{text}", "topic")


def _spec(**changes) -> corpora.CorpusSpec:
    values = {"name": f"corpus-{uuid.uuid4().hex[:6]}", "uri": str(SAMPLE / "public_sample.csv")}
    return corpora.CorpusSpec(**{**values, "statement": "made for the demo", **changes})


def test_only_a_steward_registers_one_and_vouches_for_it(engine):
    with pytest.raises(NotPermitted):
        corpora.add(engine, _spec(), person(engine, "analyst"))
    steward = person(engine, "steward")
    with pytest.raises(InvalidRequest) as caught:
        corpora.add(engine, _spec(name="Not A Name", text_template="text", statement=" "), steward)
    assert [each.field for each in caught.value.problems] == ["name", "text_template", "statement"]
    spec = _spec()
    corpora.add(engine, spec, steward)
    with pytest.raises(Conflict):
        corpora.add(engine, spec, steward)


def test_its_address_is_for_stewards(engine):
    spec = _spec()
    corpora.add(engine, spec, person(engine, "steward"))
    found = {each["name"]: each for each in corpora.listing(engine, person(engine, "analyst"))}[
        spec.name
    ]
    assert found["state"] == "checking"
    assert not {"uri", "error", "text_template"} & set(found)


@pytest.mark.slow
def test_a_worker_reads_it_through(warm_engine):
    engine = warm_engine
    steward = person(engine, "steward")
    good, bad = _spec(), _spec(uri=str(SAMPLE / "nothing.csv"))
    for spec in (good, bad):
        corpora.add(engine, spec, steward)

    def look() -> dict:
        return {each["name"]: each for each in corpora.listing(engine, steward)}

    found = wait_for(
        look,
        lambda all_of: all(all_of[s.name]["state"] != "checking" for s in (good, bad)),
        seconds=60,
    )
    assert (found[good.name]["state"], found[bad.name]["state"]) == ("ready", "invalid")
    assert found[good.name]["facts"]["sha256"] == digest(
        hold(good.uri)[1], good.text_template, good.label_column
    )
    assert found[bad.name]["error"] == "there is no such file"


@pytest.mark.slow
def test_a_datasets_own_file_is_no_public_corpus(warm_engine, tmp_path):
    """Reading a public corpus is free, so it is refused. Only its steward learns whose data it
    is.
    """
    engine = warm_engine
    steward = person(engine, "steward")
    private = other_people(SAMPLE / "public_sample.csv", tmp_path / "private.csv")
    name = f"reviews-{uuid.uuid4().hex[:6]}"
    raw = datasets.read_dataset({"name": name, "uri": str(private)})
    datasets.add_dataset(engine, raw, steward)
    wait_for(
        lambda: dataset_queries.dataset(engine, name, steward)["state"],
        lambda state: state == "ready",
        seconds=60,
    )
    few = tmp_path / "few.csv"  # one private record among public ones, in another spelling
    row = private.read_text().splitlines()[1].upper()
    few.write_text((SAMPLE / "public_sample.csv").read_text() + row + "\n")
    whole, some = _spec(uri=str(private)), _spec(uri=str(few))
    for spec in (whole, some):
        corpora.add(engine, spec, steward)

    def look(who=steward) -> list[dict]:
        return [corpora.show(engine, spec.name, who) for spec in (whole, some)]

    found = wait_for(look, lambda both: all(each["state"] != "checking" for each in both))
    assert [(each["state"], each["facts"]) for each in found] == [("invalid", None)] * 2
    assert f"dataset {name!r} (all of it, or nearly)" in found[0]["error"]
    assert f"dataset {name!r} (under 1 % of it)" in found[1]["error"]
    assert name not in str(look(person(engine, "analyst")))
