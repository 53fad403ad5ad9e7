"""A restored backup gives no spent budget back: the ledger beside its log outside the database."""

import os
import subprocess
import sys
import threading
import uuid
from pathlib import Path
from unittest import mock

import pytest
from sqlalchemy import text

from accountant import faults
from accountant.core.errors import LeaseLost, LedgerBehind, LogUnusable
from accountant.core.ledger.policy import Policy
from accountant.core.privacy.events import from_json
from accountant.database import connect, logging_to
from accountant.ledger_log import objects, signed
from accountant.ledger_log.homes import log_at
from accountant.ledger_log.log import entries as logged_entries
from accountant.ledger_log.objects import ObjectLog
from accountant.queries import exports, integrity, log_comparison
from accountant.queries import jobs as job_queries
from accountant.transactions import leases, ledger_log, settlement
from accountant.transactions.ledger_log import ensure, log_of
from accountant.transactions.locked_account import LockedAccount
from accountant.transactions.registrations import state_policy
from accountant.transactions.settlement import Output
from tests.accountant.ledger_log.test_files import fill, small_disk
from tests.object_stores import Prefix, answering_503, ceph_of_module, frozen, s3
from tests.restores import ground
from tests.support import Bench, put

pytestmark = pytest.mark.slow

__all__ = ["ceph_of_module", "s3", "small_disk"]

ROOT = Path(__file__).resolve().parents[3]


def place_of(request) -> Prefix | None:
    """A place of its own in a store, or None for a folder, as the fixture's parameter says."""
    if request.param == "folder":
        return None
    return Prefix(f"{request.getfixturevalue(request.param)}/{uuid.uuid4().hex}/log")


#: What a log is has tests on every home (tests/accountant/ledger_log), and what is written to it
#: in a store has those that are tried `in_a_store_too`; all that is done with it is tried in stores
#: before a release.
CEPH = pytest.param("ceph_of_module", marks=pytest.mark.release)
HOMES = ["folder", pytest.param("s3", marks=pytest.mark.release), CEPH]
in_a_store_too = pytest.mark.parametrize("shared", ["folder", "s3", CEPH], indirect=True)


@pytest.fixture(scope="module", params=HOMES)
def shared(servers, tmp_path_factory, request):
    with ground(servers, tmp_path_factory.mktemp("shared") / "log", place_of(request)) as made:
        yield made


@pytest.fixture
def site(shared):
    """A dataset of its own, on a database and a log that tests share and leave whole."""
    shared.renew()
    yield shared
    shared.heal()


@pytest.fixture(params=HOMES)
def alone(servers, tmp_path, request, monkeypatch):
    """A database and a log that may be ruined; what is published of it lies beside it."""
    monkeypatch.setattr(signed, "LOOK_SECONDS", 1e-6)
    with ground(servers, tmp_path / "log", place_of(request)) as made:
        yield made


#: Tests that change the files of a folder, or its disk.
in_a_folder = pytest.mark.parametrize("alone", ["folder"], indirect=True)


def state(site, job_id) -> str:
    return job_queries.job(site.engine, job_id, site.bench.steward)["state"]


def run(site, job_id, folder=None):
    """A job to its end, its output published: a file in `folder`, or one that is nowhere."""
    claim = leases.claim(site.engine, job_id, 1, "worker", 60)
    assert claim is not None
    leases.begin_reading(site.engine, claim)
    event = from_json(job_queries.job(site.engine, job_id, site.bench.steward)["event"])
    path, sha256 = None, "a" * 64
    if folder is not None:
        path, sha256 = put(folder, b'{"text":"released"}')
    settlement.publish(site.engine, claim, event, Output("draft", sha256), "worker")
    return path


def entries(site) -> list[tuple[int, str]]:
    query = text(
        "SELECT seq, hash FROM entries WHERE dataset_id = (SELECT id FROM datasets WHERE name = :n)"
    )
    with site.engine.connect() as connection:
        rows = connection.execute(query, {"n": site.bench.dataset}).all()
    return sorted((row.seq, row.hash) for row in rows)


def logged(site) -> list[tuple[int, str]]:
    log = log_at(site.folder)
    return [
        (each.seq, each.hash) for _, name, each in logged_entries(log) if name == site.bench.dataset
    ]


def dataset_id(site):
    with site.engine.connect() as connection:
        found = text("SELECT id FROM datasets WHERE name = :n").bindparams(n=site.bench.dataset)
        return connection.execute(found).scalar_one()


# --- what is in the log -------------------------------------------------------------------------


@in_a_store_too
def test_every_entry_is_in_the_log_before_its_writer_answers(site):
    assert logged(site) == entries(site)
    job_id = site.bench.submit(10)
    assert logged(site) == entries(site)
    run(site, job_id)
    assert logged(site) == entries(site)
    site.bench.allow("11")
    assert logged(site) == entries(site)
    settlement.cancel(site.engine, site.bench.submit(5), site.bench.analyst)
    assert logged(site) == entries(site)
    assert len(entries(site)) > 6


def counted(site, monkeypatch) -> list[object]:
    """What is asked of the disk or the store, call by call, where lines are written."""
    calls: list[object] = []
    system, name = (os, "fsync") if isinstance(site.folder, Path) else (ObjectLog, "_create")
    real = getattr(system, name)
    monkeypatch.setattr(system, name, lambda *values: calls.append(values) or real(*values))
    return calls


@in_a_store_too
def test_many_threads_are_admitted_with_few_syncs(site, monkeypatch):
    synced = counted(site, monkeypatch)
    before = len(entries(site))
    threads = [threading.Thread(target=site.bench.submit, args=(1,)) for _ in range(24)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert logged(site) == entries(site)
    assert len(entries(site)) == before + 24
    assert len(synced) < 24


@in_a_store_too
def test_entries_are_posted_in_a_transaction_that_appends_them_alone(site):
    with site.engine.begin() as connection:
        locked = LockedAccount(connection, site.bench.dataset)
        with pytest.raises(RuntimeError, match="of ledger_log"):
            state_policy(locked, Policy(), "x")


class Killed(BaseException):
    """What a process is that ends between its COMMIT and the log."""


def crash_before_the_log():
    return mock.patch.object(ledger_log, "_fill", side_effect=Killed)


@in_a_store_too
def test_what_a_crash_left_out_is_appended_by_whoever_comes_next(site):
    with crash_before_the_log(), pytest.raises(Killed):
        site.bench.submit(10, key="asked once")
    assert len(logged(site)) == len(entries(site)) - 1
    site.restart()
    again = site.bench.submit(10, key="asked once")  # its answer is the job of before
    assert logged(site) == entries(site)
    assert state(site, again) == "queued"
    with crash_before_the_log(), pytest.raises(Killed):
        site.bench.submit(11)
    site.bench.submit(12)  # its own entry follows the other
    assert logged(site) == entries(site)


def die(url: str, place: str, point: str) -> None:
    """Submit a job and end with SIGKILL at a point: what another process does."""
    engine = logging_to(connect(url), place)
    bench = Bench(engine, policy={"auto_approve_epsilon": "10"})
    bench.allow()
    bench.warm()
    print(bench.dataset, flush=True)
    faults.hook = lambda reached, _: os.kill(os.getpid(), 9) if reached == point else None
    bench.submit(10)


@pytest.mark.parametrize(("point", "lacks"), [("writing.committed", 1), ("log.written", 0)])
def test_what_a_killed_process_committed_is_in_the_log_once(site, point, lacks):
    url = site.engine.url.render_as_string(hide_password=False)
    command = f"import sys; from {die.__module__} import die; die(*sys.argv[1:])"
    words = [sys.executable, "-c", command, url, str(site.folder), point]
    killed = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert killed.returncode == -9, killed.stderr
    site.bench.dataset = killed.stdout.strip()
    assert len(logged(site)) == len(entries(site)) - lacks
    assert ledger_log.tend(site.engine) == []
    assert logged(site) == entries(site)


@pytest.mark.parametrize("shared", ["s3"], indirect=True)
@pytest.mark.parametrize("away", [answering_503, frozen])
def test_while_the_store_is_away_nothing_is_reserved(site, monkeypatch, away):
    monkeypatch.setattr(objects, "CALL_SECONDS", 0.5)
    before = entries(site)
    with away():
        for _ in range(2):
            with pytest.raises(LogUnusable, match=r"can't be (read|written) at s3://"):
                site.bench.submit(10, key="k")
            assert entries(site) == before
            log_of(site.engine)._try_again = 0.0
        assert "can't be" in log_comparison.write_problem(site.engine)
    monkeypatch.undo()
    log_of(site.engine)._try_again = 0.0
    assert log_comparison.write_problem(site.engine) is None
    site.bench.submit(10, key="k")
    assert logged(site) == entries(site)
    assert len(entries(site)) == len(before) + 1


def test_a_job_is_leased_only_when_the_log_holds_its_reservation(site):
    with crash_before_the_log(), pytest.raises(Killed):
        site.bench.submit(10, key="k")
    site.restart()
    with site.engine.connect() as connection:
        mine = text("SELECT id FROM jobs WHERE idempotency_key = 'k' AND analyst_id = :id")
        job_id = connection.execute(mine, {"id": site.bench.analyst.id}).scalar_one()
    with mock.patch.object(
        type(log_of(site.engine)), "append", side_effect=LogUnusable("the disk is full")
    ):
        with pytest.raises(LogUnusable):
            leases.claim(site.engine, job_id, 1, "worker", 60)
        with pytest.raises(LogUnusable):
            site.bench.submit(10, key="k")
    assert state(site, job_id) == "queued"
    assert leases.claim(site.engine, job_id, 1, "worker", 60) is not None
    assert logged(site) == entries(site)


@in_a_store_too
def test_a_log_that_can_not_be_written_answers_nobody_and_charges_once(site):
    system, name = (os, "fsync") if isinstance(site.folder, Path) else (ObjectLog, "_create")
    with mock.patch.object(system, name, side_effect=OSError(5, "Input/output error")):
        with pytest.raises(LogUnusable):
            site.bench.submit(10, key="k")
        before = entries(site)
        for key in ("k", "another"):
            with pytest.raises(LogUnusable):
                site.bench.submit(10, key=key)
        assert "rror" in log_comparison.write_problem(site.engine)
    assert entries(site) == before  # nothing was reserved for those who came later
    log_of(site.engine)._try_again = 0.0
    assert log_comparison.write_problem(site.engine) is None
    site.bench.submit(10, key="k")
    assert logged(site) == entries(site)
    with site.engine.connect() as connection:
        reserved = (
            "SELECT count(*) FROM entries JOIN jobs ON jobs.id = job_id WHERE analyst_id = :id"
        )
        reserved += " AND idempotency_key = 'k'"
        assert connection.execute(text(reserved), {"id": site.bench.analyst.id}).scalar_one() == 1


@in_a_folder
def test_on_a_full_disk_nothing_is_reserved_for_whoever_is_not_answered(alone, small_disk):
    alone.folder = small_disk / "log"
    alone.execute("DELETE FROM ledger_log_marks")
    alone.restart()
    alone.bench.submit(5)
    filler = fill(small_disk)
    answered = 0
    while log_comparison.write_problem(alone.engine) is None:
        alone.bench.submit(1)
        answered += 1
    before = entries(alone)
    with pytest.raises(LogUnusable, match="No space left"):
        alone.bench.submit(1)
    assert answered > 0
    assert entries(alone) == before == logged(alone)
    assert "No space left" in log_comparison.write_problem(alone.engine)
    filler.unlink()
    assert log_comparison.write_problem(alone.engine) is None
    alone.bench.submit(1)
    assert logged(alone) == entries(alone)


# --- a database that is not what was answered for -----------------------------------------------


@pytest.mark.parametrize("restarted", [True, False])
def test_after_an_older_backup_is_restored_nothing_is_admitted_run_or_handed_out(site, restarted):
    first, waiting = site.bench.submit(10), site.bench.submit(11)
    copy = site.backup()
    run(site, first)
    lost = site.bench.submit(300)
    claim = leases.claim(site.engine, waiting, 1, "worker", 60)
    leases.begin_reading(site.engine, claim)
    site.restore(copy)
    if restarted:
        site.restart()
    before = entries(site)
    acts = {
        "admitted": lambda: site.bench.submit(300),
        "run again": lambda: leases.claim(site.engine, first, 1, "worker", 60),
        "begun": lambda: leases.begin_reading(site.engine, claim),
        "cancelled": lambda: settlement.cancel(site.engine, waiting, site.bench.analyst),
        "allowed": lambda: site.bench.allow("20"),
        "looked at": lambda: ensure(site.engine, dataset_id(site)),
    }
    for act in acts.values():
        with pytest.raises(LedgerBehind) as found:
            act()
        assert (found.value.database, found.value.log) == (len(before), len(logged(site)))
    with pytest.raises((LedgerBehind, LeaseLost)):
        settlement.fail(site.engine, claim, "failed", "x", "worker")
    leases.expire(site.engine, 3)
    assert entries(site) == before
    with site.engine.connect() as connection:
        known = connection.execute(
            text("SELECT count(*) FROM jobs WHERE id = :id"), {"id": lost}
        ).scalar_one()
    assert known == 0


def test_a_job_that_was_leased_when_the_backup_was_made_publishes_nothing_after_it(site):
    job_id = site.bench.submit(10)
    claim = leases.claim(site.engine, job_id, 1, "worker", 3600)
    leases.begin_reading(site.engine, claim)
    copy = site.backup()
    event = from_json(job_queries.job(site.engine, job_id, site.bench.steward)["event"])
    settlement.publish(site.engine, claim, event, Output("/results/a", "a" * 64), "worker")
    site.restore(copy)
    with pytest.raises(LedgerBehind):
        settlement.publish(site.engine, claim, event, Output("/results/b", "b" * 64), "worker")
    assert state(site, job_id) == "running"


def test_a_database_that_went_on_without_the_service_is_refused(alone):
    copy = alone.backup()
    alone.bench.submit(10)
    alone.restore(copy)
    log = log_of(alone.engine)
    with mock.patch.object(ledger_log, "log_of", return_value=None):  # a process without the log
        for _ in range(3):
            alone.bench.submit(10)
    for act in (lambda: alone.bench.submit(10), lambda: ensure(alone.engine, dataset_id(alone))):
        with pytest.raises(LedgerBehind) as found:
            act()
        assert found.value.seq == log.head(alone.bench.dataset).seq


@pytest.mark.parametrize("others", [1, 2])
def test_two_databases_never_share_a_place_in_one_log(alone, others):
    """A copy of the database beside it, on the same log: whoever is second learns it before any
    answer.
    """
    copy = alone.backup()
    for _ in range(others):
        alone.bench.submit(10)
    alone.restore(copy)
    # Both committed an entry of that number before either looked at the log.
    with mock.patch.object(ledger_log, "compare"), pytest.raises(LedgerBehind):
        alone.bench.submit(11)


# --- a log that is not this database's ----------------------------------------------------------


def test_two_services_on_one_database_with_two_logs_are_noticed(site):
    site.bench.submit(10)
    another, third = (site.folder.with_name(name) for name in ("another", "third"))
    site.restart(another)  # an empty place where there was a log
    with pytest.raises(LogUnusable, match="holds none"):
        site.bench.submit(10)
    assert not another.exists()
    log_at(third).begin()
    site.restart(third)
    with pytest.raises(LogUnusable, match="place that was named holds"):
        site.bench.submit(10)
    site.restart()
    site.bench.submit(10)


def test_a_log_with_entries_is_not_taken_by_a_database_that_never_had_one(alone):
    alone.execute("DELETE FROM ledger_log_marks")
    alone.restart()
    with pytest.raises(LogUnusable, match="has no log"):
        alone.bench.submit(10)


def test_a_ledger_from_before_it_had_a_log_is_put_into_it(alone):
    with mock.patch.object(ledger_log, "_AT_ONCE", 3):
        alone.execute("DELETE FROM ledger_log_marks")
        alone.folder = alone.folder.with_name("new")
        alone.restart()
        alone.bench.submit(10)
    assert len(logged(alone)) > 4
    assert logged(alone) == entries(alone)


# --- a log that was changed ---------------------------------------------------------------------


@in_a_folder
def test_a_log_that_was_cut_below_its_mark_is_refused_at_the_next_start(alone):
    alone.bench.submit(10)
    assert ledger_log.mark(alone.engine, log_of(alone.engine), least=1)
    assert not ledger_log.mark(alone.engine, log_of(alone.engine), least=1)
    alone.bench.submit(10)
    alone.restart()
    alone.bench.submit(10)
    (path,) = log_of(alone.engine).segments()
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-3]))  # two of after the mark, and one of before
    with pytest.raises(LogUnusable, match="cut short"):  # who runs knows how long it was
        alone.bench.submit(10)
    alone.restart()
    with pytest.raises(LogUnusable, match="it was cut short: it held"):
        alone.bench.submit(10)
    path.write_bytes(b"".join(lines[:-2]))
    alone.restart()
    alone.bench.submit(10)  # what was cut after the mark is appended from the database
    assert logged(alone) == entries(alone)
    assert log_comparison.whole(alone.engine) == {}


@in_a_folder
def test_a_changed_line_is_found_by_the_check_of_the_whole_log(alone):
    alone.bench.submit(10)
    assert log_comparison.whole(alone.engine) == {}
    (path,) = log_of(alone.engine).segments()
    data = path.read_bytes()
    path.write_bytes(data.replace(b"REGISTER", b"REGISTEr", 1))
    (problem,) = log_comparison.whole(alone.engine)[""]
    assert "is not entry 1" in problem


def test_an_old_entry_that_was_changed_in_the_database_is_found_beside_the_log(alone):
    alone.bench.submit(10)
    for statement in (
        "ALTER TABLE entries DISABLE TRIGGER USER",
        "UPDATE entries SET hash = repeat('0', 64) WHERE seq = 2",
    ):
        alone.execute(statement)
    assert log_comparison.whole(alone.engine) == {
        alone.bench.dataset: ["entry 2 is another one in the database than in its log"]
    }


def test_outputs_and_exports_wait_for_the_log(site):
    job_id = site.bench.submit(10)
    run(site, job_id)
    analyst, seed = site.bench.analyst, b"s" * 32
    assert job_queries.output(site.engine, job_id, analyst).sha256 == "a" * 64
    own = dataset_id(site)
    later = site.backup()
    site.bench.submit(12)
    site.restore(later)
    acts = (
        lambda: job_queries.output(site.engine, job_id, analyst),
        lambda: next(exports.export(site.engine, own, "jsonl", public=False, seed=seed)),
        lambda: exports.checkpoint(site.engine, own, seed),
        lambda: exports.checkpoint_at(site.engine, own, 1, seed),
    )
    for act in acts:
        with pytest.raises(LedgerBehind):
            act()
    assert [each.dataset for each in ledger_log.behind(site.engine)[0]] == [site.bench.dataset]
    assert "ledger of" in integrity.check(site.engine, site.bench.dataset)[0]


def test_what_is_committed_while_an_export_begins_stands_in_the_log_before_it_leaves(site):
    """A writer commits and dies just before the account's row is read: that entry is in the
    export.
    """
    own, seed, real = dataset_id(site), b"s" * 32, exports.account_row

    def row_of(connection, dataset):
        with crash_before_the_log(), pytest.raises(Killed):
            site.bench.submit(1)
        return real(connection, dataset)

    for act in (
        lambda: next(exports.export(site.engine, own, "jsonl", public=False, seed=seed)),
        lambda: exports.checkpoint(site.engine, own, seed),
        lambda: exports.checkpoint_at(site.engine, own, len(entries(site)) + 1, seed),
    ):
        with mock.patch.object(exports, "account_row", row_of):
            act()
        assert logged(site) == entries(site)


def test_the_relay_mends_what_a_crash_left_out_and_says_what_is_behind(alone):
    with crash_before_the_log(), pytest.raises(Killed):
        alone.bench.submit(10)
    assert ledger_log.tend(alone.engine) == []
    assert logged(alone) == entries(alone)
    copy = alone.backup()
    alone.bench.submit(10)
    with mock.patch.object(ledger_log, "MARK_EVERY", 1):
        assert ledger_log.tend(alone.engine) == []
    alone.restore(copy)
    (told,) = ledger_log.tend(alone.engine)
    assert alone.bench.dataset in told


def test_a_glance_at_all_heads_is_followed_now_and_then_by_a_look_at_each(alone):
    """Two datasets that swapped their names: what the glance adds up to is the same."""
    swapped = {alone.bench.dataset}
    alone.renew()
    swapped.add(alone.bench.dataset)
    assert ledger_log.tend(alone.engine) == []
    one, other = swapped
    for name, becomes in ((one, "aside"), (other, one), ("aside", other)):
        alone.execute("UPDATE datasets SET name = :b WHERE name = :n", n=name, b=becomes)
    assert ledger_log.tend(alone.engine) == []
    told = ledger_log.tend(alone.engine, whole=True)
    assert {name for name in swapped if any(name in each for each in told)} == swapped
    with pytest.raises(LedgerBehind):  # whoever acts looks at its own
        alone.bench.submit(10)
