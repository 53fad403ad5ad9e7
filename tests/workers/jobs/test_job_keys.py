"""The key of a job's coins: one for all its parts and attempts, nobody else's, and gone when the
job ends.
"""

import base64
import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from uuid import UUID

import numpy as np
import pytest
import torch
from billiard.exceptions import SoftTimeLimitExceeded
from sqlalchemy import func, select, text

from accountant import settings as settings_module
from accountant import tables
from accountant.core.errors import DataError, KeyMismatch
from accountant.core.ledger.export_formats import verify_lines
from accountant.core.mechanisms.private_prediction import token_event
from accountant.core.privacy.events import Allocated, from_json
from accountant.queries import entries, integrity, jobs
from accountant.settings import Settings
from accountant.transactions import leases, settlement
from tests.support import Bench
from tests.workers.jobs.test_attempts import expire
from workers.data import addresses
from workers.engine.decoder import PassTooLarge
from workers.interface import Text
from workers.jobs import child_watch, job_inputs, tasks
from workers.models import ModelError
from workers.noise.meter import Turn

pytestmark = pytest.mark.slow

PARTS, BATCHES, TOKENS = 2, 4, 3


class Runner:
    """Writes its tokens, and keeps what a runner sees: the key."""

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self.before: Callable[[], None] = lambda: None
        self.turns = False

    def total(self, parameters, terms) -> int:
        return BATCHES * TOKENS

    def run(self, parameters, terms, records, model, meter, progress, public):
        self.keys.append(records.key)
        self.before()
        scores = np.array([0, -(2**40)], dtype=np.int64)
        for place in records.batches(parameters.batches_per_label):
            part = Turn(0, *place) if self.turns else place
            for _ in range(TOKENS):
                meter.parallel(part).sample_token(
                    scores, Fraction(1), token_event(parameters, terms)
                )
                progress.advance()
            yield Text("written")


@pytest.fixture
def runner(monkeypatch) -> Runner:
    made = Runner()
    monkeypatch.setattr("workers.mechanisms.runner", lambda _: made)
    monkeypatch.setattr(job_inputs, "language_model", lambda *_: None)
    return made


@pytest.fixture
def configured(tmp_path, monkeypatch, database_url) -> Settings:
    made = Settings(home=tmp_path, data_roots=str(tmp_path), fan_out=PARTS, lease_seconds=30)
    made = made.model_copy(update={"database_url": database_url})
    monkeypatch.setattr(settings_module, "load", lambda: made)
    return made


@pytest.fixture
def bench(engine, tmp_path, configured) -> Bench:
    data = tmp_path / "data.csv"
    data.write_text("text\n" + "".join(f"record {number}\n" for number in range(50)))
    made = Bench(engine, uri=str(data), policy={"auto_approve_epsilon": "10"})
    made.allow()
    made.warm()
    return made


def queued(bench: Bench) -> UUID:
    return bench.submit(TOKENS, batches_per_label=BATCHES)


def attempt(bench: Bench, job_id: UUID, part: int, configured: Settings, number: int = 1) -> None:
    units = configured.secret("units")
    claim = leases.claim(bench.engine, job_id, number, "worker", 30, part, units)
    assert claim is not None
    tasks.run(bench.engine, claim, configured)


def state(bench: Bench, job_id: UUID) -> str:
    return str(jobs.job(bench.engine, job_id, bench.analyst)["state"])


def kept(bench: Bench, job_id: UUID) -> int:
    query = (
        select(func.count()).select_from(tables.job_keys).where(tables.job_keys.c.job_id == job_id)
    )
    with bench.engine.connect() as connection:
        return int(connection.execute(query).scalar_one())


def test_all_parts_and_attempts_have_one_key_and_no_other_job_has_it(bench, configured, runner):
    first, second = queued(bench), queued(bench)
    assert kept(bench, first) == 0, "no key before somebody needs it"
    attempt(bench, first, 0, configured)
    runner.before = lambda: expire(bench, first, 1)
    attempt(bench, first, 1, configured)
    assert state(bench, first) == "running"
    runner.before = lambda: None
    assert kept(bench, first) == 1
    attempt(bench, first, 1, configured, number=2)
    for part in range(PARTS):
        attempt(bench, second, part, configured)
    assert (state(bench, first), state(bench, second)) == ("succeeded", "succeeded")
    one, two = runner.keys[:3], runner.keys[3:]
    assert len(set(one)) == 1 == len(set(two))
    assert one[0] != two[0]
    assert [len(key) for key in (one[0], two[0])] == [32, 32]


def ends_well(bench: Bench, job_id: UUID, configured: Settings, runner: Runner) -> None:
    attempt(bench, job_id, 1, configured)


def fails(bench: Bench, job_id: UUID, configured: Settings, runner: Runner) -> None:
    def broken() -> None:
        raise RuntimeError("the data did it")

    runner.before = broken
    attempt(bench, job_id, 1, configured)


def is_cancelled(bench: Bench, job_id: UUID, configured: Settings, runner: Runner) -> None:
    settlement.cancel(bench.engine, job_id, bench.analyst)


def dies(bench: Bench, job_id: UUID, configured: Settings, runner: Runner) -> None:
    """As the worker's main process sees it: a child killed at its hard limit, or for memory."""
    leases.claim(bench.engine, job_id, 1, "it", 30, 1, configured.secret("units"))
    child_watch.end_dead("it", str(job_id), 1, 1)


def is_lost_too_often(bench: Bench, job_id: UUID, configured: Settings, runner: Runner) -> None:
    runner.before = lambda: expire(bench, job_id, 1)
    for number in (1, 2, 3):
        attempt(bench, job_id, 1, configured, number)


@pytest.mark.parametrize("end", [ends_well, fails, is_cancelled, dies, is_lost_too_often])
def test_the_key_is_gone_however_the_job_ends(bench, configured, runner, end):
    job_id = queued(bench)
    attempt(bench, job_id, 0, configured)
    assert kept(bench, job_id) == 1
    end(bench, job_id, configured, runner)
    assert state(bench, job_id) in ("succeeded", "failed", "cancelled")
    assert kept(bench, job_id) == 0
    assert integrity.check(bench.engine, bench.dataset) == []


def test_a_key_that_outlives_its_job_is_found(bench, configured, runner):
    job_id = queued(bench)
    for part in range(PARTS):
        attempt(bench, job_id, part, configured)
    assert integrity.check(bench.engine, bench.dataset) == []
    with bench.engine.begin() as connection:
        connection.execute(tables.job_keys.insert().values(job_id=job_id, sealed=b"left"))
    assert integrity.check(bench.engine, bench.dataset) == [f"the key of job {job_id} outlives it"]


def test_a_second_home_takes_no_part_of_a_job(
    bench, configured, runner, tmp_path, monkeypatch, capsys
):
    """Two keys would put a quarter of the units into two batches: then not even the plain price
    holds.
    """
    job_id = queued(bench)
    attempt(bench, job_id, 0, configured)
    stranger = configured.model_copy(update={"home": tmp_path / "another"})
    assert stranger.secret("units") != configured.secret("units")
    with pytest.raises(KeyMismatch, match="home/keys/units"):
        leases.claim(bench.engine, job_id, 1, "stranger", 30, 1, stranger.secret("units"))
    monkeypatch.setattr(settings_module, "load", lambda: stranger)
    monkeypatch.setattr(job_inputs, "engine", lambda: bench.engine)
    tasks.generate.run(str(job_id), 1, 1)
    assert "job not taken" in capsys.readouterr().out
    assert len(runner.keys) == 1
    attempt(bench, job_id, 1, configured)
    assert len(set(runner.keys)) == 1
    assert state(bench, job_id) == "succeeded"


MOVED = text(
    "UPDATE job_keys SET sealed = (SELECT sealed FROM job_keys WHERE job_id = :one) WHERE job_id = "
    ":two"
)


def test_one_jobs_key_in_the_place_of_anothers_opens_nothing(bench, configured, runner, owner):
    """A second job under the first one's coins would have to pay for both as one."""
    first, second = queued(bench), queued(bench)
    for job_id in (first, second):
        attempt(bench, job_id, 0, configured)
    with bench.engine.connect() as connection, pytest.raises(Exception, match="permission denied"):
        connection.execute(MOVED, {"one": first, "two": second})
    with owner.begin() as connection:
        connection.execute(MOVED, {"one": first, "two": second})
    with pytest.raises(KeyMismatch):
        attempt(bench, second, 1, configured)


def test_where_batches_are_secret_no_progress_is_told(bench, configured, runner, monkeypatch):
    told = []
    real = leases.renew

    def renew(engine, claim, seconds, done, total):
        told.append((done, total))
        return real(engine, claim, seconds, done, total)

    monkeypatch.setattr(leases, "renew", renew)
    rounds = {"amplification": "allocation", "rounds": 2}
    for more, shown in ((rounds, 0), ({}, BATCHES * TOKENS // 2)):
        told.clear()
        runner.turns = bool(more)
        job_id = bench.submit(TOKENS, batches_per_label=BATCHES, **more)
        attempt(bench, job_id, 0, configured)
        assert told[-1] == (shown, BATCHES * TOKENS)
        assert {done for done, _ in told} <= {0, shown}
        attempt(bench, job_id, 1, configured)
        assert state(bench, job_id) == "succeeded"
        assert jobs.job(bench.engine, job_id, bench.analyst)["progress"]["done"] == BATCHES * TOKENS
    assert integrity.check(bench.engine, bench.dataset) == []


def test_rounds_that_never_began_return_and_those_that_began_are_charged(bench, configured, runner):
    """The runner stops after one of four rounds: two workers count it as one."""
    runner.turns = True
    job_id = bench.submit(TOKENS, batches_per_label=BATCHES, amplification="allocation", rounds=4)
    for part in range(PARTS):
        attempt(bench, job_id, part, configured)
    found = jobs.job(bench.engine, job_id, bench.analyst)
    reserved, charged = (each["costs"]["renyi"] for each in found["entries"])
    assert int(reserved["main"]) == pytest.approx(4 * int(charged["main"]), abs=4)
    event = from_json(
        entries.entries(bench.engine, bench.dataset, bench.steward, limit=1)[0]["body"]["event"]
    )
    assert isinstance(event, Allocated)
    assert integrity.check(bench.engine, bench.dataset) == []
    verify_lines(entries.export(bench.engine, bench.dataset, bench.steward, "jsonl"))


@pytest.mark.parametrize("where", ["before", "while"])
def test_a_failed_job_of_secret_batches_says_what_may_be_meant(bench, configured, runner, where):
    """Before it reads, the reason; after, one sentence for all causes, by its public event
    alone.
    """

    def broken(*_: object) -> None:
        raise PassTooLarge(96)

    if where == "before":
        runner.prepare = broken
    else:
        runner.before = broken
    job_id = bench.submit(TOKENS, batches_per_label=BATCHES, amplification="allocation")
    attempt(bench, job_id, 0, configured)
    found = jobs.job(bench.engine, job_id, bench.analyst)
    last = {"before": "VOID", "while": "COMMIT"}
    assert (found["state"], found["entries"][-1]["kind"]) == ("failed", last[where])
    assert "EXCHEQUER_DECODING_GIB" in found["failure"]
    assert ("96 contexts" in found["failure"]) == (where == "before")
    assert found["failure"].startswith(settlement.UNSAID) == (where == "while")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (
            ModelError("the model 'tiny': its files are not those"),
            "the model 'tiny': its files are not those",
        ),
        (DataError("there is no such file"), "there is no such file"),
        (MemoryError(), "the worker's memory is too small"),
        (
            torch.OutOfMemoryError("CUDA out of memory: 2 of /srv"),
            "the worker's memory is too small",
        ),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes"),
            "the worker's memory is too small",
        ),
        (
            FileNotFoundError(2, "No such file", "/srv/secret/path"),
            "can't be read (FileNotFoundError)",
        ),
        (PermissionError(13, "denied", "/srv/secret/path"), "can't be read (PermissionError)"),
        (ConnectionResetError("s3://bucket/secret/path"), "can't be read (ConnectionResetError)"),
        (KeyError("/srv/secret/path"), "it failed (KeyError), before any data was read"),
        (SoftTimeLimitExceeded(), "it passed its time limit before any data was read"),
    ],
)
def test_a_job_that_is_void_says_why_and_names_no_path(bench, configured, runner, error, reason):
    def broken(*_: object) -> None:
        raise error

    runner.prepare = broken
    job_id = bench.submit(TOKENS, batches_per_label=BATCHES)
    attempt(bench, job_id, 0, configured)
    found = jobs.job(bench.engine, job_id, bench.analyst)
    assert (found["state"], found["entries"][-1]["kind"]) == ("failed", "VOID")
    assert reason in found["failure"]
    assert "secret/path" not in json.dumps(found.document())


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        ("gone", "no such file"),
        ("unreadable", "may not read"),
        ("down", "can't be reached (ConnectionRefused"),
    ],
)
def test_data_out_of_reach_is_found_before_it_counts_as_read(
    bench, configured, runner, monkeypatch, tmp_path, spoil, why
):
    up = addresses.fsspec.core.url_to_fs

    def down(address: str, **options: object) -> object:
        if address.endswith("data.csv"):
            raise ConnectionRefusedError("s3://bucket/secret/path")
        return up(address, **options)  # the store of results

    runner.before = lambda *_: pytest.fail("data was opened")
    job_id = bench.submit(TOKENS, batches_per_label=BATCHES)
    if spoil == "gone":
        (tmp_path / "data.csv").unlink()
    elif spoil == "unreadable":  # the tests may run as root, who may read anything
        monkeypatch.setattr(addresses.os, "access", lambda *_: False)
    else:
        monkeypatch.setattr(addresses.fsspec.core, "url_to_fs", down)
    attempt(bench, job_id, 0, configured)
    found = jobs.job(bench.engine, job_id, bench.analyst)
    assert (found["state"], found["entries"][-1]["kind"]) == ("failed", "VOID")
    assert why in found["failure"]


def test_without_its_key_a_job_that_read_something_goes_no_further(bench, configured, runner):
    job_id = queued(bench)
    attempt(bench, job_id, 0, configured)
    with bench.engine.begin() as connection:
        connection.execute(tables.job_keys.delete().where(tables.job_keys.c.job_id == job_id))
    attempt(bench, job_id, 1, configured)
    found = jobs.job(bench.engine, job_id, bench.analyst)
    assert (found["state"], found["failure"]) == ("failed", settlement.UNSAID)
    assert len(runner.keys) == 1, "nothing was read under a second key"
    assert found["entries"][1]["costs"] == found["entries"][0]["costs"]


def test_a_key_is_nowhere_but_in_its_row_and_there_it_is_sealed(
    bench, configured, runner, capfd, tmp_path
):
    """Not in the ledger, exports, results, logs or any table, while the job runs and after."""
    job_id = queued(bench)
    attempt(bench, job_id, 0, configured)
    seen = [everything(bench, tmp_path)]
    attempt(bench, job_id, 1, configured)
    seen.append(everything(bench, tmp_path))
    key = runner.keys[0]
    printed = capfd.readouterr()
    said = "\n".join([*seen, printed.out, printed.err])
    for shown in (key.hex(), base64.b64encode(key).decode(), repr(key)):
        assert shown not in said
    assert str(job_id) in said


def everything(bench: Bench, folder: Path) -> str:
    """Every row of every table, the export, and every file that the service wrote."""
    with bench.engine.connect() as connection:
        rows = [
            str(row[0])
            for table in tables.metadata.sorted_tables
            # names alone, for the owner's triggers
            if table.name not in ("private_places", "process_roles")
            for row in connection.execute(text(f"SELECT t::text FROM {table.name} t"))
        ]
    exported = "\n".join(entries.export(bench.engine, bench.dataset, bench.steward, "jsonl"))
    files = [path.read_bytes().decode("latin-1") for path in folder.rglob("*") if path.is_file()]
    return "\n".join([*rows, exported, *files])
