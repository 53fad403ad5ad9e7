"""A worker runs what the entries of the ledger say, whatever the rows of the database say."""

import contextlib
import json
import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from pydantic import create_model
from sqlalchemy import Engine, Row, Table, and_, delete, insert, select, text, update
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import DBAPIError

from accountant import settings as settings_module
from accountant import tables
from accountant.catalogue import corpora as catalogue_corpora
from accountant.catalogue import registration
from accountant.catalogue.corpora import CorpusSpec
from accountant.core import mechanisms
from accountant.core.errors import DataError, VerificationFailed
from accountant.core.ledger.allowances import Allowance
from accountant.core.ledger.export_formats import read_document, verify_lines
from accountant.core.ledger.hash_chain import EntryKind, canonical, digest
from accountant.core.mechanisms import private_prediction
from accountant.core.mechanisms.vocabulary import TERM_LIST
from accountant.database import connect, logging_to
from accountant.queries import entries, jobs
from accountant.rights import RIGHTS, stated
from accountant.settings import Settings
from accountant.transactions import allowances, kept_draws, leases, orders, submission
from accountant.transactions.job_requests import JobRequest
from accountant.transactions.ledger_log import writing
from accountant.transactions.locked_account import LockedAccount
from tests.conftest import as_process
from tests.object_stores import CEPH, ceph, s3
from tests.support import Bench, as_file, written, yes
from workers import models
from workers.data import corpora, manifest, records
from workers.interface import Artifact, Text
from workers.jobs import job_inputs, tasks

__all__ = ["ceph", "s3"]

PARAMETERS = {
    "aggregation": "median",
    "ex_post_cap": 2.5,
    "tokens_per_batch": 2,
    "batches_per_label": 3,
}
PEOPLE = 41
COPIES = 100


class Spy:
    """A runner that notes what it is given, and draws tokens at an ex-post cost."""

    def __init__(self) -> None:
        self.given: list[Any] = []

    def total(self, parameters, terms) -> int:
        return 12

    def make(self, parameters, terms, model, progress, public):
        """A list of terms, as a public job releases it."""
        texts = [text for text, _ in public.corpora["corpus"].texts()]
        yield Artifact.of_json("terms", TERM_LIST, texts)

    def run(self, parameters, terms, held, model, meter, progress, public):
        read = sorted(
            (each.unit, each.label or "", each.text, each.secret) for each in held.records
        )
        given = (parameters.model_dump_json(), terms, read, held.labels, held.groups, held.secrets)
        beside = {
            **{field: list(each.texts()) for field, each in public.corpora.items()},
            **{field: each["terms"].json() for field, each in public.sources.items()},
        }
        self.given.append((*given, held.share, model.sha256, beside))
        scores = np.array([0, -(2**40)], dtype=np.int64)
        for place in held.batches(parameters.batches_per_label):
            for _ in range(2):
                meter.parallel(place).ex_post_token(scores, Fraction(1), np.array([0.25, 0.125]))
                progress.advance()
            yield Text(str(place))


class Desk:
    """A dataset on disk with a model, whose jobs a worker takes in this process."""

    def __init__(self, engine: Engine, owner: Engine, folder: Path, data: str) -> None:
        self.engine, self.owner, self.data = engine, owner, data
        model = folder / "model"
        rows = [f"p{number},good,a text of {number},pin" for number in range(PEOPLE)]
        rows += ["p0,good,a text of 0,pin"] * COPIES
        self.content = "person,label,text,secret\n" + "\n".join(rows) + "\n"
        written(data, self.content.encode())
        model.mkdir()
        (model / "config.json").write_text("{}")
        self.bench = Bench(
            engine,
            uri=data,
            unit_column="person",
            label_column="label",
            labels=["good", "bad"],
            secret_column="secret",
            secret_terms=["pin"],
        )
        facts = {
            "sha256": models.digest(model),
            "context_tokens": 9,
            "end_tokens": [2],
            "layers": 2,
        }
        values = {"path": str(model), "facts": {**facts, "context_tokens": 100_000}}
        named = tables.models.c.name == self.bench.model
        with owner.begin() as connection:
            connection.execute(update(tables.models).where(named).values(values))
        self.bench.allow()
        allowed = Allowance(None, None, "a study", ex_post="1000")
        allowances.allow(engine, self.bench.dataset, allowed, self.bench.steward)
        self.bench.warm()

    def queued(self, mechanism: str = "private-prediction", **parameters: Any) -> UUID:
        """A job that a steward approved."""
        model = self.bench.model if mechanism in ("private-prediction", READER.id) else None
        request = JobRequest(self.bench.dataset, mechanism, model, parameters or PARAMETERS, "test")
        job_id = submission.submit(self.engine, request, self.bench.analyst)
        yes(self.engine, job_id, self.bench.steward, "it fits the study")
        return job_id

    def corpus(self) -> str:
        """A public corpus that a worker found right."""
        name = f"corpus-{uuid.uuid4().hex[:8]}"
        path = Path(settings_module.load().home) / f"{name}.csv"
        path.write_text(f"text,label\na public text of {name},good\nanother one,bad\n")
        spec = CorpusSpec(name=name, uri=str(path), statement="made up", label_column="label")
        made = catalogue_corpora.add(self.engine, spec, self.bench.steward)
        facts = corpora.inspect(*corpora.hold(str(path)), "{text}", "label")
        registration.checked(self.engine, "corpus", made, facts, None)
        return name

    def listed(self, bench: Bench, corpus: str) -> str:
        """The id of a public job that released a list of terms."""
        request = JobRequest(bench.dataset, "vocabulary", None, {"corpus": corpus}, "test")
        job_id = submission.submit(self.engine, request, self.bench.analyst)
        assert self.take(job_id) == "succeeded"
        return str(job_id)

    def take(self, job_id: UUID, part: int = 0, attempt: int = 1) -> str:
        """Hand a worker the message of a job; returns the job's state after it."""
        tasks._take(str(uuid.uuid4()), str(job_id), attempt, part)
        query = select(tables.jobs.c.state).where(tables.jobs.c.id == job_id)
        with self.owner.connect() as connection:
            return connection.execute(query).scalar_one()

    def refused(self, job_id: UUID) -> list[int]:
        """Parts of a job that no worker can take."""
        query = select(tables.refused_parts.c.number).filter_by(job_id=job_id)
        with self.owner.connect() as connection:
            return list(connection.execute(query).scalars())

    def settled(self, job_id: UUID) -> dict[str, Any] | None:
        """What was charged for a job and under which outcome; None: no COMMIT."""
        query = select(tables.entries.c.document).where(
            tables.entries.c.job_id == job_id, tables.entries.c.kind == "COMMIT"
        )
        with self.owner.connect() as connection:
            found = connection.execute(query).scalar_one_or_none()
        body = {} if found is None else read_document(found)["body"]
        charged = {
            name: body[name] for name in ("event", "costs", "outcome", "read") if name in body
        }
        return charged or None

    def text(self, job_id: UUID) -> str:
        sha256 = jobs.job(self.engine, job_id, self.bench.analyst)["output_sha256"]
        return (Path(settings_module.load().results) / sha256).read_text()


@pytest.fixture(scope="module")
def owning(owner_url) -> Iterator[Engine]:
    engine = connect(owner_url)
    yield engine
    engine.dispose()


@pytest.fixture(scope="module")
def logged(engine, tmp_path_factory) -> Engine:
    return logging_to(engine, tmp_path_factory.mktemp("log") / "log")


@pytest.fixture
def spy(monkeypatch) -> Spy:
    def load(folder: Path, sha256: str, *_: object) -> SimpleNamespace:
        if models.digest(folder) != sha256:
            raise models.ModelError("path: its files changed")
        return SimpleNamespace(sha256=sha256)

    made = Spy()
    monkeypatch.setattr("workers.mechanisms.runner", lambda _: made)
    monkeypatch.setattr(models, "load", load)
    return made


@pytest.fixture(params=["disk"])
def desk(request, logged, owning, tmp_path, monkeypatch) -> Desk:
    store = request.param
    root = str(tmp_path) if store == "disk" else f"memory://{uuid.uuid4().hex}"
    if store not in ("disk", "memory"):
        root = f"{request.getfixturevalue(store)}/{uuid.uuid4().hex}"
    made = Settings(home=tmp_path, data_roots=root, model_roots=str(tmp_path), lease_seconds=60)
    monkeypatch.setattr(settings_module, "load", lambda: made)
    monkeypatch.setattr(job_inputs, "engine", lambda: logged)
    return Desk(logged, owning, tmp_path, f"{root}/data.csv")


# --- rows without an entry ------------------------------------------------------------------------


def test_rows_of_a_job_that_no_entry_reserves_start_nothing(desk, spy, owner_url):
    """The web's role inserts a queued job, its part and its message: the worker reads nothing."""
    model = desk.queued()
    assert desk.take(model) == "succeeded"
    spy.given.clear()
    with desk.owner.connect() as connection:
        row = connection.execute(select(tables.jobs).where(tables.jobs.c.id == model)).one()
    forged = {**row._mapping, "id": uuid.uuid4(), "state": "queued", "finished_at": None}
    forged |= {"output_sha256": None, "reading_began_at": None, "started_at": None, "failure": None}
    web = connect(as_process(owner_url, "web"))
    with web.begin() as connection:
        connection.execute(insert(tables.jobs).values(forged))
        part = {"job_id": forged["id"], "number": 0, "state": "queued", "attempt": 1}
        connection.execute(insert(tables.parts).values(part))
        connection.execute(
            insert(tables.outbox).values(
                task="generate", subject=forged["id"], attempt=1, analyst_id=row.analyst_id
            )
        )
    web.dispose()
    assert desk.take(forged["id"]) == "queued"
    assert spy.given == []
    assert desk.settled(forged["id"]) is None
    assert desk.refused(forged["id"]) == [0]


def test_parts_that_no_entry_states_are_not_run(desk, spy, owner_url):
    """Two parts that each read all batches would pay for one of them."""
    job_id = desk.queued()
    web = connect(as_process(owner_url, "web"))
    with web.begin() as connection:
        part = {"job_id": job_id, "number": 1, "state": "queued", "attempt": 1}
        connection.execute(insert(tables.parts).values(part))
    web.dispose()
    desk.take(job_id, part=1)
    assert spy.given == []
    desk.take(job_id, part=7)  # by a message alone: there is no such part
    assert desk.refused(job_id) == [1]


def test_a_job_in_parts_says_so_in_its_entry(desk, spy, monkeypatch):
    shared = settings_module.load().model_copy(update={"fan_out": 3})
    monkeypatch.setattr(settings_module, "load", lambda: shared)
    job_id = desk.queued()
    for part in range(3):
        desk.take(job_id, part)
    assert [given[6] for given in spy.given] == [(0, 3), (1, 3), (2, 3)]
    assert jobs.job(desk.engine, job_id, desk.bench.analyst)["state"] == "succeeded"
    verify_lines(entries.export(desk.engine, desk.bench.dataset, desk.bench.steward, "jsonl"))


def test_a_bound_that_is_changed_after_the_approval_changes_no_count(desk):
    job_id = desk.queued("noisy-count", epsilon=8.0, per="dataset")
    with desk.owner.begin() as connection:
        wider = update(tables.datasets).where(tables.datasets.c.name == desk.bench.dataset)
        connection.execute(wider.values(max_records_per_unit=1000))
    assert desk.take(job_id) == "succeeded"
    released = json.loads(desk.text(job_id).splitlines()[0])
    count = next(value for value in released.values() if isinstance(value, int))
    assert abs(count - PEOPLE) < 20, "one record of each person, and not all 141"


# --- entries that the database's owner changed
# ------------------------------------------------------


def rewritten(desk: Desk, statement: str, **values: object) -> None:
    """Run a statement on entries as the database's owner, whose guards are off."""
    with desk.owner.begin() as connection:
        connection.execute(text("ALTER TABLE entries DISABLE TRIGGER USER"))
        assert connection.execute(text(statement), values).rowcount == 1
        connection.execute(text("ALTER TABLE entries ENABLE TRIGGER USER"))


@pytest.mark.parametrize("knows", [True, False], ids=["known before", "read anew"])
def test_a_job_that_an_entry_ended_is_not_run_again(desk, spy, knows):
    """The owner takes its COMMIT away and queues it again: the log outside has it."""
    job_id, later = desk.queued(), desk.queued()
    assert (desk.take(job_id), desk.take(later)) == ("succeeded", "succeeded")
    spy.given.clear()
    if not knows:
        orders._known.clear()
    rewritten(desk, "DELETE FROM entries WHERE job_id = :job AND kind = 'COMMIT'", job=job_id)
    where = tables.jobs.c.id == job_id
    again = {
        "state": "queued",
        "output_sha256": None,
        "reading_began_at": None,
        "finished_at": None,
    }
    with desk.owner.begin() as connection:
        connection.execute(text("ALTER TABLE jobs DISABLE TRIGGER USER"))
        connection.execute(update(tables.jobs).where(where).values(again))
        connection.execute(text("ALTER TABLE jobs ENABLE TRIGGER USER"))
        queued = update(tables.parts).where(tables.parts.c.job_id == job_id).values(state="queued")
        connection.execute(queued)
    assert desk.take(job_id) == "queued"
    assert spy.given == []


@pytest.mark.parametrize("kind", ["REGISTER", "POLICY", "RESERVE"])
def test_an_entry_that_was_rewritten_is_not_run_by(desk, spy, kind):
    """Its own hash made anew, too: the entries no longer end where the log does."""
    job_id = desk.queued()
    orders._known.clear()
    newest = (
        "SELECT e.document, e.seq FROM entries e JOIN jobs j ON j.dataset_id = e.dataset_id "
        "WHERE j.id = :job AND e.kind = :kind ORDER BY e.seq DESC LIMIT 1"
    )
    with desk.owner.connect() as connection:
        document, seq = connection.execute(text(newest), {"job": job_id, "kind": kind}).one()
    changed = read_document(document)
    changed["at"] = changed["at"].replace("20", "21", 1)
    rewritten(
        desk,
        "UPDATE entries SET document = :text, hash = :hash WHERE seq = :seq "
        "AND dataset_id = (SELECT dataset_id FROM jobs WHERE id = :job)",
        **{"text": canonical(changed).decode(), "hash": digest(changed), "seq": seq, "job": job_id},
    )
    assert desk.take(job_id) == "queued"
    assert spy.given == []


def test_a_reservation_that_ended_since_it_was_claimed_reads_nothing(desk, spy):
    job_id = desk.queued()
    claim = leases.claim(desk.engine, job_id, 1, "worker", 60)
    assert claim is not None
    with writing(desk.engine) as connection:
        locked = LockedAccount(connection, desk.bench.dataset)
        locked.append(
            EntryKind.VOID, "web", job_id, {"outcome": "cancelled", "reason": "x", "read": False}
        )
    with pytest.raises(VerificationFailed, match="ended"):
        leases.begin_reading(desk.engine, claim)


# --- data is what was registered
# --------------------------------------------------------------------

ROWS = "text\nfirst\nsecond\n"


@pytest.mark.parametrize("place", ["disk", "object store"])
@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.jsonl", "a.parquet"])
def test_bytes_are_checked_as_they_are_read(tmp_path, place, name):
    """Whatever lies there later, what is parsed are the bytes that were hashed."""
    root = str(tmp_path) if place == "disk" else f"memory://{uuid.uuid4().hex}"
    address = f"{root}/{name}"
    written(address, as_file(name, ["first", "second"]))
    registered = manifest.of(address)
    held = manifest.fetch(address, registered)
    written(address, as_file(name, ["other", "people"]))
    read = records.read(held, records.Layout("{text}"), b"k" * 32)
    assert sorted(each.text for each in read.records) == ["first", "second"]
    with pytest.raises(DataError, match="other bytes than when it was registered"):
        manifest.fetch(address, registered)


def test_no_more_bytes_are_held_than_were_registered(tmp_path, monkeypatch):
    path = tmp_path / "a.csv"
    path.write_text(ROWS)
    registered = manifest.of(str(path))
    path.write_text(ROWS * 1000)
    monkeypatch.setattr(manifest, "_BLOCK", 16)
    read = []
    monkeypatch.setattr(manifest.interruption, "check", lambda: read.append(16))
    with pytest.raises(DataError, match="other bytes"):
        manifest.fetch(str(path), registered)
    assert sum(read) <= registered["bytes"] + 16


@pytest.mark.parametrize("desk", ["disk", "memory", "s3", CEPH], indirect=True)
@pytest.mark.parametrize("when", ["before the claim", "as it is opened"])
def test_data_that_changed_ends_the_job_before_it_reads(desk, spy, monkeypatch, when):
    """As many bytes as before: wherever it lies, the job is void."""
    job_id = desk.queued()
    other = desk.content.replace("a text of 1", "a text of X").encode()
    fetch = manifest.fetch
    if when == "before the claim":
        written(desk.data, other)
    else:
        monkeypatch.setattr(
            manifest, "fetch", lambda *given: (written(desk.data, other), fetch(*given))[1]
        )
    assert desk.take(job_id) == "failed"
    assert spy.given == []
    assert voided(desk, job_id)
    told = jobs.job(desk.engine, job_id, desk.bench.analyst)["failure"]
    assert "other bytes than when it was registered" in told


# --- every column of every row that a worker can read
# ----------------------------------------------

#: A job that reads records, a model, a corpus, and what two public jobs released: one of its own
#: dataset, one of another.
READER = replace(
    private_prediction.MECHANISM,
    id="reader",
    parameters=create_model(
        "Reader", __base__=private_prediction.PrivatePrediction, own=(str, ...), other=(str, ...)
    ),
    sources=lambda _: {"own": TERM_LIST, "other": TERM_LIST},
)

#: Every table of which the database lets a worker read any column.
TABLES = [
    tables.metadata.tables[name]
    for name, rights in RIGHTS["worker"].items()
    if "SELECT" in {right for right, _ in stated(rights)}
]


#: Tables whose rows belong to the job alone: more values are tried in each column.
OWN = (tables.jobs, tables.parts, tables.datasets, tables.dataset_versions, tables.models)


class Shelf:
    """What a job of the mechanism `reader` reads, and all rows that belong to it."""

    def __init__(self, desk: Desk) -> None:
        mechanisms.MECHANISMS[READER.id] = READER
        self.desk, self.other = desk, Bench(desk.engine, policy={"auto_approve_epsilon": "10"})
        self.other.allow()
        self.corpora = [desk.corpus() for _ in range(3)]
        self.own = desk.listed(desk.bench, self.corpora[0])
        self.elsewhere = desk.listed(self.other, self.corpora[1])
        named = {"own": self.own, "other": self.elsewhere, "public_corpus": self.corpora[2]}
        self.parameters = {**PARAMETERS, **named}
        with desk.owner.begin() as connection:
            stopped = {"worker": f"worker-{uuid.uuid4()}", "why": "full", "at": datetime.now(UTC)}
            connection.execute(insert(tables.stopped_workers).values(stopped))
            self.stopped = stopped["worker"]
            live = {"worker": self.stopped, "classes": ["gpu"], "at": stopped["at"]}
            connection.execute(insert(tables.live_workers).values(live))
            key = {"name": self.stopped, "proof": bytes(range(32))}
            connection.execute(insert(tables.key_checks).values(key))

    def queued(self, table: Table) -> tuple[UUID, int]:
        """A job and its attempt: the second, where a table holds what the first left."""
        desk, units = self.desk, settings_module.load().secret("units")
        job_id = desk.queued(READER.id, **self.parameters)
        if table is tables.refused_parts:
            with desk.owner.begin() as connection:
                connection.execute(insert(table).values(job_id=job_id, number=0))
        if table not in (tables.job_keys, tables.kept_draws):
            return job_id, 1
        claim = leases.claim(desk.engine, job_id, 1, "worker", 60, units=units)
        assert claim is not None
        kept_draws.keep(desk.engine, claim, 0, b"drawn")
        leases.hand_back(desk.engine, claim, 3, True)
        return job_id, 2

    def rows(self, table: Table, job_id: UUID) -> list[Row[Any]]:
        """The rows of a table that belong to a job."""
        jobs_ = [job_id, UUID(self.own), UUID(self.elsewhere)]
        if table is tables.maintenance:
            maintenance_begins(self.desk)
        with self.desk.owner.connect() as connection:
            job = connection.execute(select(tables.jobs).where(tables.jobs.c.id == job_id)).one()
            own = {
                "jobs": tables.jobs.c.id.in_(jobs_),
                "parts": tables.parts.c.job_id == job_id,
                "job_keys": tables.job_keys.c.job_id == job_id,
                "kept_draws": tables.kept_draws.c.job_id == job_id,
                "artifacts": tables.artifacts.c.job_id.in_(jobs_),
                "outbox": tables.outbox.c.subject == job_id,
                "datasets": tables.datasets.c.name.in_(
                    [self.desk.bench.dataset, self.other.dataset]
                ),
                "dataset_versions": tables.dataset_versions.c.id == job.version_id,
                "models": tables.models.c.id == job.model_id,
                "corpora": tables.corpora.c.name.in_(self.corpora),
                "accounts": tables.accounts.c.dataset_id == job.dataset_id,
                "usage": tables.usage.c.dataset_id == job.dataset_id,
                "entries": tables.entries.c.job_id.in_(jobs_)
                & ((tables.entries.c.kind == "COMMIT") | (tables.entries.c.job_id == job_id)),
                "refused_parts": tables.refused_parts.c.job_id == job_id,
                "stopped_workers": tables.stopped_workers.c.worker == self.stopped,
                "live_workers": tables.live_workers.c.worker == self.stopped,
                "key_checks": tables.key_checks.c.name == self.stopped,
                "maintenance": tables.maintenance.c.one,
                "ledger_log_marks": tables.ledger_log_marks.c.n >= 0,
            }
            return list(connection.execute(select(table).where(own[table.name])))


def maintenance_begins(desk: Desk) -> None:
    with desk.owner.begin() as connection:
        row = postgresql.insert(tables.maintenance).values(reason="tried", by="somebody")
        connection.execute(row.on_conflict_do_nothing())


def maintenance_ends(desk: Desk) -> None:
    with desk.owner.begin() as connection:
        connection.execute(delete(tables.maintenance))


@pytest.fixture
def shelf(desk, spy) -> Iterator[Shelf]:
    yield Shelf(desk)
    del mechanisms.MECHANISMS[READER.id]


def key_of(table: Table, row: Row[Any]) -> Any:
    """The condition that names a row by its key."""
    return and_(*(column == row._mapping[column.name] for column in table.primary_key))


def changed(value: Any) -> Any:
    """Another value of the same shape."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value * 1000 + 1
        case str():
            return f"{value}x"
        case bytes():
            return bytes(len(value) or 1)
        case dict():
            return {name: changed(each) for name, each in value.items()}
        case list():
            return [changed(each) for each in value] or ["x"]
        case UUID():
            return uuid.uuid4()
        case datetime():
            return value.replace(year=value.year + 1)
    return value


def others(desk: Desk, table: Table, name: str, value: Any) -> list[Any]:
    """Values to try in a column: another of its shape, that of another row, NULL, other states."""
    column = table.c[name]
    with desk.owner.connect() as connection:
        found = list(connection.execute(select(column).where(column != value).limit(1)).scalars())
    tried = [changed(value), *found, None]
    if name == "state":
        tried += ["queued", "running", "settling", "succeeded", "ready", "checking", "stopped"]
    kept: list[Any] = []
    for each in tried:
        if each != value and each not in kept:
            kept.append(each)
    return kept


def set_column(desk: Desk, table: Table, where: Any, name: str, value: Any) -> bool:
    """Change a column as the database's owner, whose guards are off; False: a constraint refuses
    it.
    """
    try:
        with desk.owner.begin() as connection:
            connection.execute(text(f"ALTER TABLE {table.name} DISABLE TRIGGER USER"))
            connection.execute(update(table).where(where).values({name: value}))
            connection.execute(text(f"ALTER TABLE {table.name} ENABLE TRIGGER USER"))
    except DBAPIError:
        return False
    return True


def try_columns(shelf: Shelf, spy: Spy, table: Table, short: bool) -> None:
    """Change each column of a table between approval and claim: the run is the same, or refused.

    Args:
        short: one row, and the first value that the database takes.
    """
    desk = shelf.desk
    spy.given.clear()
    honest, attempt = shelf.queued(table)
    assert desk.take(honest, attempt=attempt) == "succeeded"
    (given,), charged = spy.given, desk.settled(honest)
    tried, (job_id, _) = 0, shelf.queued(table)
    for place in range(1 if short else len(shelf.rows(table, job_id))):
        for column in table.c:
            row = shelf.rows(table, job_id)[place]
            values = others(desk, table, column.name, getattr(row, column.name))
            for value in values if short or (place == 0 and table in OWN) else values[:1]:
                row = shelf.rows(table, job_id)[place]
                spy.given.clear()
                if not set_column(desk, table, key_of(table, row), column.name, value):
                    continue
                tried += 1
                named = f"{table.name}.{column.name} = {value!r:.200}"
                if table is tables.entries:  # else what this process made of them stands
                    orders._known.clear()
                with contextlib.suppress(Exception):  # refused, and the worker's log says why
                    desk.take(job_id, attempt=attempt)
                released = desk.settled(job_id)
                assert spy.given in ([], [given]), named
                if released is not None and released["outcome"] == "succeeded":
                    assert (spy.given, released) == ([given], charged), named
                changed_row = {**row._mapping, column.name: value}
                key = and_(*(each == changed_row[each.name] for each in table.primary_key))
                set_column(desk, table, key, column.name, getattr(row, column.name))
                if desk.settled(job_id) is not None or voided(desk, job_id):
                    job_id, _ = shelf.queued(table)
                if short:
                    break
    maintenance_ends(desk)
    assert tried >= len(table.c) // 3, f"{table.name}: many columns take another value"


def test_every_column_that_a_worker_may_read_is_tried(owner_url):
    """As the database says itself, so that nobody can forget one."""
    readable = text(
        "SELECT c.relname, a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid "
        "WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'v', 'm', 'p', 'f') "
        "AND a.attnum > 0 AND NOT a.attisdropped AND c.relname <> 'alembic_version' "
        "AND has_column_privilege(c.oid, a.attnum, 'SELECT')"
    )
    worker = connect(as_process(owner_url, "worker"))
    with worker.connect() as connection:
        found = {(table, column) for table, column in connection.execute(readable)}
    worker.dispose()
    assert found == {(table.name, column.name) for table in TABLES for column in table.c}


@pytest.mark.slow
def test_no_column_that_a_worker_may_read_changes_what_runs(shelf, spy):
    for table in TABLES:
        try_columns(shelf, spy, table, short=True)


@pytest.mark.release
@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_no_column_of_any_row_changes_what_runs(shelf, spy, table):
    """Other values of each column, and the rows of the jobs and corpora that a job reads."""
    try_columns(shelf, spy, table, short=False)


def voided(desk: Desk, job_id: UUID) -> bool:
    query = select(tables.entries.c.seq).where(
        tables.entries.c.job_id == job_id, tables.entries.c.kind == "VOID"
    )
    with desk.owner.connect() as connection:
        return connection.execute(query).first() is not None
