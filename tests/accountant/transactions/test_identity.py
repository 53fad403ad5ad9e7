"""Dataset identity on a real PostgreSQL: a unit has one account, however and by whom it is
registered.
"""

import json
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from sqlalchemy import text

from accountant import settings
from accountant.catalogue import corpora, datasets, registration
from accountant.core.errors import Conflict, DataError, InvalidRequest, NotPermitted
from accountant.core.ledger.export_formats import read_document
from accountant.core.ledger.policy import Policy
from accountant.queries import audit_log, integrity
from accountant.queries import datasets as dataset_queries
from accountant.schema.base import documents
from accountant.transactions import job_requests, leases, policies, submission, unit_fingerprints
from accountant.transactions.unit_fingerprints import Fingerprint
from tests.support import Bench, claimed, found_right, person

PROOF = b"the key"


def units(*names: object, is_unit: bool = True) -> list[Fingerprint]:
    return [Fingerprint(uuid.uuid5(uuid.NAMESPACE_URL, str(name)).bytes, is_unit) for name in names]


class Registrar:
    """Registers datasets as a steward, and checks them as a worker does."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.engine = bench, bench.engine

    def waiting(self, **spec: object) -> tuple[str, uuid.UUID]:
        name = f"data-{uuid.uuid4().hex[:8]}"
        raw = datasets.read_dataset({"name": name, "uri": "/data/x.csv", **spec})
        return name, datasets.add_dataset(self.engine, raw, self.bench.steward)

    def checked(self, fingerprints: list[Fingerprint], **spec: object) -> str:
        name, version = self.waiting(**spec)
        claimed(self.engine, version, PROOF, fingerprints)
        return name

    def version(self, name: str, fingerprints: list[Fingerprint], **changes: object) -> dict:
        changes = {"uri": "/data/next.csv", **changes}
        added = datasets.add_version(self.engine, name, changes, self.bench.steward)
        claimed(self.engine, added, PROOF, fingerprints)
        return self.facts(name)["versions"][-1]

    def facts(self, name: str) -> dict:
        return dataset_queries.dataset(self.engine, name, self.bench.steward)


@pytest.fixture
def registrar(engine) -> Registrar:
    return Registrar(Bench(engine))


@pytest.fixture
def tag() -> str:
    return uuid.uuid4().hex


def test_data_that_shares_one_unit_is_refused_and_names_both_ways_out(registrar, tag):
    first = registrar.checked(units(*[f"{tag}{n}" for n in range(200)]))
    assert registrar.facts(first)["state"] == "ready"
    second = registrar.checked(units(f"{tag}7", *[f"new {tag}{n}" for n in range(199)]))
    version = registrar.facts(second)["versions"][0]
    assert version["state"] == "invalid"
    assert f"{first!r} (under 1 % of it)" in version["error"]
    assert f"exchequer dataset add-version {first}" in version["error"]
    assert "correct the data" in version["error"]


@pytest.mark.parametrize(
    ("shared", "words"), [(200, "all of it"), (86, "about 40 %"), (6, "about 3 %")]
)
def test_the_share_is_told_roughly(registrar, tag, shared, words):
    whole = [f"{tag}{n}" for n in range(200)]
    registrar.checked(units(*whole))
    name = registrar.checked(
        units(*whole[:shared], *[f"new {tag}{n}" for n in range(200 - shared)])
    )
    assert words in registrar.facts(name)["versions"][0]["error"]


def texts(weight: float, *names: object) -> list[Fingerprint]:
    return [replace(each, weight=weight) for each in units(*names, is_unit=False)]


def test_texts_are_evidence_by_their_sum(registrar, tag):
    """One of 1,000 may be a stranger's, ten are not; what says nothing counts for nothing."""
    whole = [f"{tag} text {n}" for n in range(1000)]
    new = [f"{tag} new {n}" for n in range(1000)]
    first = registrar.checked(texts(4, *whole) + texts(0, f"{tag} great"))
    assert registrar.facts(first)["state"] == "ready"
    assert (
        registrar.facts(registrar.checked(texts(4, *new, whole[0]) + texts(0, f"{tag} great")))[
            "state"
        ]
        == "ready"
    )
    refused = registrar.facts(
        registrar.checked(texts(4, *whole[:10], *[f"{tag} third {n}" for n in range(990)]))
    )
    assert refused["state"] == "invalid"
    assert "other people are not to join its account" in refused["versions"][0]["error"]
    again = registrar.facts(registrar.checked(texts(4, *whole)))["versions"][0]
    assert (again["state"], "If it is that data" in again["error"]) == ("invalid", True)


def test_a_form_that_many_records_are_is_no_evidence(registrar, tag):
    """In the data that is there, or in the new data; yet copies of everything hide nobody."""
    people = [f"{tag} person {n}" for n in range(200)]
    form = [f"{tag} form"]
    assert registrar.facts(registrar.checked(texts(12, *people, *form * 8)))["state"] == "ready"
    others = [f"{tag} other {n}" for n in range(200)]
    assert registrar.facts(registrar.checked(texts(12, *others, *form)))["state"] == "ready"
    third = [f"{tag} third {n}" for n in range(200)]
    assert registrar.facts(registrar.checked(texts(12, *third, *form * 20)))["state"] == "ready"
    assert registrar.facts(registrar.checked(texts(12, *people[:100] * 20)))["state"] == "invalid"
    doubled = [f"{tag} doubled {n}" for n in range(50)]
    registrar.checked(texts(12, *doubled * 4))
    assert registrar.facts(registrar.checked(texts(12, *doubled)))["state"] == "invalid"


def test_records_of_missing_units_are_units(registrar, tag):
    """Their people are named by no column, so their texts are compared."""
    both = {"unit_column": "who"}
    texts_of_one = texts(12, f"{tag} a", f"{tag} b")
    registrar.checked(units(f"{tag} ann") + texts_of_one, **both, missing_units="separate")
    assert (
        registrar.facts(registrar.checked(units(f"{tag} bob") + texts_of_one, **both))["state"]
        == "invalid"
    )


def test_one_long_text_is_enough_in_a_corpus(registrar, tag):
    private = registrar.checked(texts(12, *[f"{tag} {n}" for n in range(2000)]))
    public = [f"{tag} public {n}" for n in range(2000)]
    assert (
        compared(registrar, tag, texts(12, *public) + texts(3, f"{tag} 5"))[1]["state"] == "ready"
    )
    assert private in compared(registrar, tag, texts(12, *public[:1000], f"{tag} 7"))[1]["error"]
    name, _ = compared(registrar, tag, texts(12, *[f"{tag} {n} later" for n in range(2000)]))
    registrar.checked(texts(12, f"{tag} 9 later", *[f"{tag} yet {n}" for n in range(2000)]))
    assert corpora.show(registrar.engine, name, registrar.bench.steward)["state"] == "invalid"


def test_a_refused_version_claims_nothing(registrar, tag):
    """Nothing runs on it, so nobody's account is in it: who registers the rest next is free to."""
    registrar.checked(units(f"{tag}a", f"{tag}b"))
    refused = registrar.checked(units(f"{tag}b", f"{tag}c"))
    assert registrar.facts(refused)["state"] == "invalid"
    assert registrar.facts(registrar.checked(units(f"{tag}c")))["state"] == "ready"
    datasets.correct_dataset(
        registrar.engine, refused, {"uri": "/data/y.csv"}, registrar.bench.steward
    )
    assert registrar.facts(refused)["state"] == "checking"


def test_the_same_file_by_record_and_by_unit_column_meets(registrar, tag):
    """Records of units by column are compared with units that are records, and not with one
    another.
    """
    records = [f"{tag} text {n}" for n in range(3)]
    by_column = registrar.checked(
        units(f"{tag} ann", f"{tag} bob") + units(*records, is_unit=False), unit_column="who"
    )
    assert registrar.facts(by_column)["state"] == "ready"
    assert registrar.facts(registrar.checked(units(*records[1:])))["state"] == "invalid"
    # another person wrote the same words
    others = units(f"{tag} cid") + units(records[0], is_unit=False)
    assert registrar.facts(registrar.checked(others, unit_column="who"))["state"] == "ready"
    by_record = registrar.checked(units(f"{tag} alone"))
    late = registrar.checked(
        units(f"{tag} dan") + units(f"{tag} alone", is_unit=False), unit_column="who"
    )
    assert registrar.facts(late)["state"] == "invalid"
    assert by_record in registrar.facts(late)["versions"][0]["error"]


def test_a_version_overlaps_its_own_dataset_freely_and_no_other(registrar, tag):
    name = registrar.checked(units(*[f"{tag}{n}" for n in range(10)]))
    other = registrar.checked(units(f"{tag}other"))
    assert registrar.version(name, units(f"{tag}1", f"{tag}2", f"{tag}new"))["state"] == "ready"
    bad = registrar.version(name, units(f"{tag}1", f"{tag}other"))
    assert bad["state"] == "invalid"
    assert repr(other) in bad["error"]
    facts = registrar.facts(name)
    assert facts["state"] == "ready"
    assert [each["state"] for each in facts["versions"]] == ["ready", "ready", "invalid"]
    # Whoever was in an older version stays in this account: jobs ran on them.
    assert registrar.facts(registrar.checked(units(f"{tag}9")))["state"] == "invalid"


@pytest.mark.parametrize("repeat", range(3))
def test_two_workers_that_check_overlapping_data_at_once_make_one_ready(registrar, repeat):
    """Both have streamed everything before either compares: the lock lets one through at a time."""
    tag = uuid.uuid4().hex
    shared = [f"{tag}{n}" for n in range(2000)]
    sides = [[*shared, *[f"{tag} {side} {n}" for n in range(50)]] for side in "ab"]
    both_read = threading.Barrier(2)

    def stream(names: list[str]):
        yield from units(*names)
        both_read.wait(30)

    def check(names: list[str]) -> str:
        name, version = registrar.waiting()
        claimed(registrar.engine, version, PROOF, stream(names))
        return registrar.facts(name)["state"]

    with ThreadPoolExecutor(2) as pool:
        states = sorted(pool.map(check, sides))
    assert states == ["invalid", "ready"]


def test_a_race_between_units_and_records_of_units_has_one_winner(registrar, tag):
    """No unique index spans the two kinds: the lock alone decides."""
    both_read = threading.Barrier(2)

    def check(by_record: bool) -> str:
        name, version = registrar.waiting(**({} if by_record else {"unit_column": "who"}))

        def stream():
            yield from units(f"{tag} words", is_unit=by_record)
            if not by_record:
                yield from units(f"{tag} ann")
            both_read.wait(30)

        claimed(registrar.engine, version, PROOF, stream())
        return registrar.facts(name)["state"]

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(check, (True, False))) == ["invalid", "ready"]


def test_the_database_itself_gives_a_unit_one_account(registrar, tag):
    first, second = (registrar.checked(units(f"{tag}{n}")) for n in range(2))
    assert first != second
    steal = text(
        "INSERT INTO fingerprints SELECT f.fingerprint, d.id, true FROM fingerprints f, datasets d "
        "WHERE f.dataset_id <> d.id AND d.name = :name AND f.fingerprint = :unit"
    )
    from sqlalchemy.exc import IntegrityError

    with (
        pytest.raises(IntegrityError, match="uq_fingerprints_unit"),
        registrar.engine.begin() as connection,
    ):
        connection.execute(steal, {"name": second, "unit": units(f"{tag}0")[0].value})


@pytest.mark.parametrize("table", ["fingerprints", "fingerprint_key", "artifacts"])
@pytest.mark.parametrize("act", ["DELETE FROM {}", "TRUNCATE {}", "UPDATE {} SET {} = DEFAULT"])
def test_the_service_adds_to_them_and_changes_nothing(registrar, table, act):
    column = {"fingerprints": "dataset_id", "fingerprint_key": "proof", "artifacts": "sha256"}[
        table
    ]
    from sqlalchemy.exc import ProgrammingError

    with (
        pytest.raises(ProgrammingError, match="permission denied"),
        registrar.engine.begin() as connection,
    ):
        connection.execute(text(act.format(table, column)))


def test_what_goes_wrong_while_reading_leaves_no_trace(registrar, tag):
    name, version = registrar.waiting()

    def cut_short():
        yield from units(f"{tag}x")
        raise DataError("row 2: it is no JSON")

    with pytest.raises(DataError, match="row 2"):
        claimed(registrar.engine, version, PROOF, cut_short())
    assert registrar.facts(name)["state"] == "checking"
    assert registrar.facts(registrar.checked(units(f"{tag}x")))["state"] == "ready"


def test_fingerprints_of_another_key_are_refused(registrar, tag):
    """They would never meet those that are there, and every dataset would look new."""
    registrar.checked(units(f"{tag}x"))
    _, version = registrar.waiting()
    with pytest.raises(DataError, match="identity key"):
        claimed(registrar.engine, version, b"another key", units(f"{tag}x"))


def test_a_second_message_changes_nothing(registrar, tag):
    name, version = registrar.waiting()
    claimed(registrar.engine, version, PROOF, units(f"{tag}x"))
    claimed(registrar.engine, version, PROOF, units(f"{tag}y"))
    assert registrar.facts(registrar.checked(units(f"{tag}y")))["state"] == "ready"
    assert registrar.facts(name)["state"] == "ready"


def test_no_account_is_held_while_data_is_compared(registrar, tag):
    """A large file takes long: jobs on the dataset must not wait for it."""
    name, version = registrar.waiting()
    new = units(tag)
    ours = "d.name = :name"
    with ThreadPoolExecutor(1) as pool, registrar.engine.begin() as beside:
        add = f"INSERT INTO fingerprints SELECT :value, d.id, true FROM datasets d WHERE {ours}"
        # the comparison waits for this
        beside.execute(text(add), {"value": new[0].value, "name": name})
        checking = pool.submit(claimed, registrar.engine, version, PROOF, new)
        waits = (
            "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'INSERT INTO fingerprints%' "
        )
        with registrar.engine.connect() as looking:
            waiting = text(waits + "AND wait_event_type = 'Lock' AND datname = current_database()")
            while not looking.execute(waiting).scalar_one():
                assert not checking.done()
                looking.rollback()
                time.sleep(0.02)
        free = f"SELECT 1 FROM accounts a JOIN datasets d ON d.id = a.dataset_id WHERE {ours}"
        taken = beside.execute(text(free + " FOR UPDATE OF a NOWAIT"), {"name": name}).all()
        assert len(taken) == 1
        beside.rollback()
        checking.result(30)
    assert registrar.facts(name)["state"] == "ready"


def test_analysts_see_the_same_of_data_that_overlaps_and_of_data_that_is_broken(registrar, tag):
    """That somebody is in another dataset is a fact about people, so analysts don't see it."""
    registrar.checked(units(f"{tag}a"))
    overlapping = registrar.checked(units(f"{tag}a"))
    broken, version = registrar.waiting()
    datasets.dataset_refused(registrar.engine, version, "row 1: it is no JSON")
    seen = []
    for name in (overlapping, broken):
        catalogue = dataset_queries.datasets(registrar.engine, registrar.bench.analyst)
        facts = [
            dataset_queries.dataset(registrar.engine, name, registrar.bench.analyst),
            *[each for each in catalogue if each["name"] == name],
        ]
        request = job_requests.JobRequest(
            name, "private-prediction", registrar.bench.model, {}, "test"
        )
        with pytest.raises(InvalidRequest) as refused:
            submission.submit(registrar.engine, request, registrar.bench.analyst)
        seen.append(json.dumps([*documents(facts), str(refused.value)]).replace(name, "NAME"))
    assert seen[0] == seen[1]
    assert "versions" not in seen[0]


def test_analysts_see_the_same_of_a_dataset_whose_new_version_overlaps(registrar, tag):
    name, other = (registrar.checked(units(f"{tag}{n}")) for n in range(2))
    before = dataset_queries.dataset(registrar.engine, name, registrar.bench.analyst)
    assert registrar.version(name, units(f"{tag}1"))["state"] == "invalid"
    assert dataset_queries.dataset(registrar.engine, name, registrar.bench.analyst) == before
    assert other not in json.dumps(before.document())


# --- public corpora
# ---------------------------------------------------------------------------------


def compared(registrar, tag, texts, steward=None):
    """The row of a new corpus after a worker compared it, and what its steward is told."""
    steward = steward or registrar.bench.steward
    name = f"corpus-{uuid.uuid4().hex[:8]}"
    spec = corpora.CorpusSpec(name=name, uri="/nowhere.csv", statement="made up")
    corpus_id = corpora.add(registrar.engine, spec, steward)
    shares = unit_fingerprints.compare_corpus(registrar.engine, corpus_id, PROOF, texts)
    facts = None if shares else {"sha256": "0" * 64, "texts": 1, "labels": []}
    error = unit_fingerprints.REFUSED if shares else None
    registration.checked(registrar.engine, "corpus", corpus_id, facts, error, shares)
    return name, corpora.show(registrar.engine, name, steward)


def test_a_text_of_a_corpus_that_is_a_private_record_is_found(registrar, tag):
    """By record, and of units by column; what was refused locks nobody out."""
    by_record = registrar.checked(units(f"{tag} ann", f"{tag} both"))
    _, found = compared(registrar, tag, units(f"{tag} public", f"{tag} both"))
    assert (found["state"], found["facts"]) == ("invalid", None)
    assert f"dataset {by_record!r} (about 50 % of it)" in found["error"]
    people = units(f"{tag} bob") + units(f"{tag} said", is_unit=False)
    by_column = registrar.checked(people, unit_column="who")
    assert repr(by_column) in compared(registrar, tag, units(f"{tag} said"))[1]["error"]
    assert registrar.facts(registrar.checked(units(f"{tag} public")))["state"] == "ready"
    with pytest.raises(DataError, match="identity key"):
        unit_fingerprints.compare_corpus(
            registrar.engine, uuid.uuid4(), b"another", units(f"{tag} x")
        )


def test_new_data_makes_the_corpora_invalid_that_hold_records_of_it(registrar, tag):
    name, found = compared(registrar, tag, units(f"{tag} public", f"{tag} later"))
    assert found["state"] == "ready"
    registrar.checked(units(f"{tag} elsewhere"))
    assert corpora.show(registrar.engine, name, registrar.bench.steward)["state"] == "ready"
    private = registrar.checked(units(f"{tag} later"))
    told = corpora.show(registrar.engine, name, registrar.bench.steward)
    assert told["state"] == "invalid"
    assert repr(private) in told["error"]


def test_which_data_it_is_is_for_its_stewards_and_auditors(registrar, tag):
    """The attack: a steward registers a guessed text and reads whose record it is."""
    engine, steward, auditor = registrar.engine, registrar.bench.steward, registrar.bench.auditor
    private = registrar.checked(units(f"{tag} secret"))
    policy = Policy(stewards=(steward.name,), auditors=(auditor.name,))
    policies.set_policy(engine, private, policy, steward)
    curious = person(engine, "steward")
    name, found = compared(registrar, tag, units(f"{tag} secret"), curious)
    assert found["error"] == "it can't be registered here"
    assert private not in json.dumps(found)
    assert repr(private) in corpora.show(engine, name, steward)["error"]
    own = registrar.checked(units(f"{tag} secret"))
    assert private in registrar.facts(own)["versions"][0]["error"]  # it is the steward of both
    shown = dataset_queries.dataset(engine, own, curious).versions[0]
    assert shown.error == "it can't be registered here"
    wanted = audit_log.Wanted(dataset=private)
    listed = [
        each
        for each in audit_log.listing(engine, auditor, wanted)
        if each.action == "overlap found"
    ]
    assert {each.actor for each in listed} == {curious.name, steward.name}
    for outsider in (curious, person(engine, "auditor")):
        assert audit_log.listing(engine, outsider, wanted) == []


def test_questions_about_data_are_counted(registrar, tag, monkeypatch):
    few = settings.load().model_copy(update={"data_checks_per_day": 2})
    monkeypatch.setattr(settings, "load", lambda: few)
    curious = person(registrar.engine, "steward")
    for number in range(2):
        compared(registrar, tag, units(f"{tag} guess {number}"), curious)
    spec = corpora.CorpusSpec(name=f"more-{tag}", uri="/nowhere.csv", statement="made up")
    with pytest.raises(InvalidRequest, match="at most 2"):
        corpora.add(registrar.engine, spec, curious)
    raw = {"name": f"more-{tag}", "uri": "/nowhere.csv"}
    with pytest.raises(InvalidRequest, match="at most 2"):
        datasets.add_dataset(registrar.engine, datasets.read_dataset(raw), curious)


# --- versions -----------------------------------------------------------------------------------


def test_new_jobs_run_on_the_newest_ready_version_and_the_ledger_says_which(open_bench):
    bench = open_bench
    old = bench.submit(10)
    changes = {"uri": "/nowhere-2.csv", "text_template": "{title}. {body}"}
    version = datasets.add_version(bench.engine, bench.dataset, changes, bench.steward)
    meanwhile = bench.submit(11)
    found_right(bench.engine, version)
    new = bench.submit(12)
    claims = [leases.claim(bench.engine, job, 1, "w", 60) for job in (old, meanwhile, new)]
    layouts = [claim.order.register["layout"] for claim in claims]
    assert [layout["uri"] for layout in layouts] == [
        "/nowhere.csv",
        "/nowhere.csv",
        "/nowhere-2.csv",
    ]
    assert [layout["text_template"] for layout in layouts] == [
        "{text}",
        "{text}",
        "{title}. {body}",
    ]
    sources = []
    with bench.engine.connect() as connection:
        for job in (old, meanwhile, new):
            query = text("SELECT document FROM entries WHERE job_id = :job AND kind = 'RESERVE'")
            document = connection.execute(query, {"job": job}).scalar_one()
            sources.append(read_document(document)["body"]["source"])
    assert sources == [{"version": 1}, {"version": 1}, {"version": 2}]
    assert integrity.check(bench.engine, bench.dataset) == []


REFUSED = [
    ({"text_template": "{text}"}, "uri"),
    ({"uri": "/x.csv", "labels": ["a"]}, "labels"),
    ({"uri": "/x.csv", "max_records_per_unit": 3}, "max_records_per_unit"),
    ({"uri": "/x.csv", "neighbours": "replace-one"}, "neighbours"),
    ({"uri": "/x.csv", "unit_column": "who"}, "unit_column"),
    ({"uri": "/x.csv", "label_column": "kind"}, "label_column"),
    ({"uri": "/x.csv", "text_template": "nothing"}, "text_template"),
]


@pytest.mark.parametrize(("changes", "field"), REFUSED)
def test_what_prices_and_statements_rest_on_is_the_datasets(bench, changes, field):
    with pytest.raises(InvalidRequest) as caught:
        datasets.add_version(bench.engine, bench.dataset, changes, bench.steward)
    assert caught.value.problems[0].field == field


def test_every_version_has_the_unit_that_the_statements_name(registrar, tag):
    """Jobs on visits under a statement about patients would break it."""
    name = registrar.checked(units(tag), unit_column="patient")
    changes = {"uri": "/visits.csv", "unit_column": "visit"}
    with pytest.raises(InvalidRequest) as caught:
        datasets.add_version(registrar.engine, name, changes, registrar.bench.steward)
    (problem,) = caught.value.problems
    assert (problem.field, problem.problem) == (
        "unit_column",
        "is the dataset's, for every version",
    )
    assert problem.allowed == "group_column, label_column, secret_column, text_template, uri"
    added = registrar.version(name, units(f"{tag} more"))
    assert (added["state"], added["unit_column"]) == ("ready", "patient")


def test_versions_are_added_by_stewards_to_data_that_was_found_right(bench, registrar):
    with pytest.raises(NotPermitted):
        datasets.add_version(bench.engine, bench.dataset, {"uri": "/x.csv"}, bench.analyst)
    name, _ = registrar.waiting()
    with pytest.raises(Conflict, match="correct what was refused"):
        datasets.add_version(bench.engine, name, {"uri": "/x.csv"}, bench.steward)
    with pytest.raises(Conflict, match="in use"):
        datasets.correct_dataset(bench.engine, bench.dataset, {"uri": "/x.csv"}, bench.steward)
