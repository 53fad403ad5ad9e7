"""Fixtures that tests share: people, a dataset ready for jobs, and the folders of real corpora."""

import csv
import gzip
import hashlib
import io
import json
import os
import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import fsspec
import pyarrow
import pytest
from pyarrow import parquet
from sqlalchemy import Connection, Engine, text, update

from accountant import tables
from accountant.catalogue import corpora, datasets, models, registration
from accountant.core.ledger.allowances import Allowance
from accountant.core.ledger.hash_chain import Entry, EntryKind
from accountant.core.ledger.reservations import read_reservation
from accountant.core.ledger.rules import Rules, register_body
from accountant.identities import credentials
from accountant.identities.actor import Actor
from accountant.queries import decisions, entries
from accountant.schema.jobs import JobInList
from accountant.transactions import (
    allowances,
    answers,
    approval,
    job_requests,
    registrations,
    settlement,
    submission,
    unit_fingerprints,
)
from accountant.transactions.ledger_log import writing
from workers.data import manifest

SHARED = Path(os.environ.get("EXCHEQUER_SHARED", Path(__file__).resolve().parents[2] / "shared"))
needs_shared = pytest.mark.skipif(
    not (SHARED / "data").is_dir(), reason="../shared/data is not here"
)


def person(engine: Engine, role: str, name: str | None = None) -> Actor:
    """A new person with one role."""
    user_id = credentials.add_user(engine, name or f"{role}-{uuid.uuid4().hex[:8]}", None, [role])
    user = credentials.find_user(engine, user_id=user_id)
    assert user is not None
    return credentials.actor_of(user)


def somebody(engine: Engine, name: str, role: str = "analyst") -> str:
    """The name of an account that there is, made where nobody made it yet: policies name no
    others.
    """
    if credentials.find_user(engine, name=name) is None:
        person(engine, role, name)
    return name


def other_people(
    source: Path, target: Path, labels: Collection[str] | None = None, most: int | None = None
) -> Path:
    """Copy a CSV file whose texts are nobody's else: each ends with a word of this copy alone.

    `labels`: the rows of these labels alone; `most`: so many of each label.
    """
    word = uuid.uuid4().hex[:8]
    with source.open(newline="") as old, target.open("w", newline="") as new:
        rows = csv.DictReader(old)
        writer = csv.DictWriter(new, rows.fieldnames or ())
        writer.writeheader()
        seen: Counter[str] = Counter()
        for row in rows:
            seen[row["label"]] += 1
            if most is not None and seen[row["label"]] > most:
                continue
            if labels is None or row["label"] in labels:
                writer.writerow({**row, "text": f"{row['text']} {word}"})
    return target


def written(address: str, content: bytes) -> None:
    with fsspec.open(address, "wb", auto_mkdir=True) as file:
        file.write(content)


def as_file(name: str, texts: list[str]) -> bytes:
    """A file of these texts in the format that its name tells."""
    if name.endswith(".parquet"):
        sink = io.BytesIO()
        parquet.write_table(pyarrow.table({"text": texts}), sink)
        return sink.getvalue()
    if ".jsonl" in name:
        content = "".join(json.dumps({"text": each}) + "\n" for each in texts).encode()
    else:
        content = "\n".join(["text", *texts, ""]).encode()
    return gzip.compress(content, mtime=0) if name.endswith(".gz") else content


def put(results: Path | str, content: bytes) -> tuple[Path, str]:
    """Publish a file in a results folder, as a worker does after its COMMIT: its path and its
    SHA-256.
    """
    sha256 = hashlib.sha256(content).hexdigest()
    path = Path(results) / sha256
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path, sha256


#: Of a version with nothing at its address.
NO_FILES = {"files": 1, "bytes": 0, "sha256": "0" * 64, "list": []}


def found_right(
    engine: Engine, version_id: uuid.UUID, data: Mapping[str, object] | None = None
) -> None:
    """Make a version ready without a worker: no units are claimed. Mostly nothing lies at its
    address.
    """
    versions = tables.dataset_versions
    found = datasets.version_to_check(engine, version_id)
    assert found is not None
    version, dataset = found
    data = data or (manifest.of(version.uri) if Path(version.uri).exists() else NO_FILES)
    with writing(engine) as connection:
        ready = update(versions).where(versions.c.id == version_id).values(state="ready", data=data)
        connection.execute(ready)
        checked = {**register_body(dataset, version), "data": data}
        registrations.found_right(connection, version_id, checked)


def claimed(
    engine: Engine,
    version_id: uuid.UUID,
    proof: bytes,
    units: Iterable[unit_fingerprints.Fingerprint],
    key: bytes | None = None,
) -> None:
    """Claim the units of a version as the worker does that read it; its files are none."""
    found = datasets.version_to_check(engine, version_id)
    checked = {} if found is None else {**register_body(found[1], found[0]), "data": NO_FILES}
    unit_fingerprints.claim(engine, version_id, proof, units, checked, key)


@contextmanager
def unjudged() -> Iterator[None]:
    """A process that was taken over: it posts entries without asking whether they may stand."""

    def reservation(
        connection: Connection, _: object, __: object, entry: Entry, ___: object
    ) -> object:
        if entry.kind not in (EntryKind.COMMIT, EntryKind.VOID):
            return None
        query = "SELECT document FROM entries WHERE job_id = :job AND kind = 'RESERVE'"
        found = connection.execute(text(query), {"job": entry.job}).scalar_one()
        return read_reservation(json.loads(found)["body"])

    nothing = {"judge": reservation, "rules_of": lambda *_: Rules()}
    with mock.patch.multiple("accountant.transactions.locked_account", **nothing):
        yield


def kinds(bench: "Bench") -> list[str]:
    """The kinds of a ledger's entries, newest first, without the rules."""
    found = entries.entries(bench.engine, bench.dataset, bench.auditor, limit=500)
    return [each["kind"] for each in found if each["kind"] not in ("REGISTER", "POLICY")]


def yes(
    engine: Engine,
    decision_id: uuid.UUID,
    actor: Actor,
    reason: str = "",
    signature: Mapping[str, object] | None = None,
) -> int | uuid.UUID | None:
    """Accept a decision, and return the entry, the job or the further decision that it made."""
    made = answers.answer(engine, decision_id, actor, True, reason, signature)
    return made.entry or made.job or made.decision


def no(engine: Engine, decision_id: uuid.UUID, actor: Actor, reason: str = "") -> None:
    """Refuse or withdraw a decision."""
    answers.answer(engine, decision_id, actor, False, reason)


def awaiting(engine: Engine, viewer: Actor, dataset: str) -> list[JobInList]:
    """Return the jobs on a dataset that await approval, as the list of decisions has them."""
    wanted = decisions.Wanted(kind="approval", dataset=dataset)
    found = decisions.listing(engine, viewer, wanted, limit=500)
    return [decision.request for decision in found if decision.request is not None]


class Bench:
    """A dataset ready for jobs, its people and its model, on a real database; no worker runs."""

    def __init__(self, engine: Engine, tag: str | None = None, **spec: object) -> None:
        self.engine = engine
        tag = tag or uuid.uuid4().hex[:8]
        self.steward = person(engine, "steward", f"steward-{tag}")
        self.analyst = person(engine, "analyst", f"analyst-{tag}")
        self.auditor = person(engine, "auditor", f"auditor-{tag}")
        self.model, self.dataset = f"model-{tag}", f"data-{tag}"
        model_id = models.add_model(engine, self.model, "/nowhere", "public text", self.steward)
        facts = {
            "sha256": uuid.uuid4().hex * 2,
            "context_tokens": 100_000,
            "end_tokens": [2],
            "layers": 12,
        }
        registration.checked(engine, "model", model_id, facts, None)
        raw = {"name": self.dataset, "uri": "/nowhere.csv", "public_size": 1000, **spec}
        version = datasets.add_dataset(engine, datasets.read_dataset(raw), self.steward)
        if raw["uri"] is not None:
            found_right(engine, version)

    def allow(
        self, epsilon: object = "10", delta: object = "0.0000029053", reason: str = "test"
    ) -> None:
        allowances.allow(self.engine, self.dataset, Allowance(epsilon, delta, reason), self.steward)

    def request(self, tokens: int = 10, **parameters: object) -> job_requests.JobRequest:
        values = {"tokens_per_batch": tokens, **parameters}
        return job_requests.JobRequest(
            self.dataset, "private-prediction", self.model, values, "test"
        )

    def submit(self, tokens: int = 10, key: str | None = None, **parameters: object) -> uuid.UUID:
        return submission.submit(self.engine, self.request(tokens, **parameters), self.analyst, key)

    def probe(self, job_id: uuid.UUID, tokens: int = 20) -> None:
        """Store a worker's findings about model and template, so that later jobs are decided at
        once.
        """
        approval.probed(self.engine, job_id, {"template_tokens": tokens}, None)

    def warm(self) -> None:
        """Probe the default template, with a job that is then cancelled."""
        job_id = self.submit(1)
        self.probe(job_id)
        settlement.cancel(self.engine, job_id, self.analyst)


def public_things(engine: Engine, steward: Actor, texts: int, labels: list[str]) -> dict[str, str]:
    """A registered corpus with these facts and an embedding model, as parameters; no worker
    looks.
    """
    corpus, embedding = f"corpus-{uuid.uuid4().hex[:8]}", f"embedding-{uuid.uuid4().hex[:8]}"
    spec = {"name": corpus, "uri": "/nowhere.csv", "statement": "made up"}
    corpus_id = corpora.add(engine, corpora.CorpusSpec.model_validate(spec), steward)
    facts = {"sha256": uuid.uuid4().hex * 2, "texts": texts, "labels": labels}
    registration.checked(engine, "corpus", corpus_id, facts, None)
    model_id = models.add_model(
        engine, embedding, "/nowhere", "public text", steward, kind="embedding"
    )
    registration.checked(
        engine, "model", model_id, {"sha256": uuid.uuid4().hex * 2, "dimensions": 8}, None
    )
    return {"public_corpus": corpus, "embedding": embedding}
