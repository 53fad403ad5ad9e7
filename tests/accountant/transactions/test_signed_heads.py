"""Copies of last night are put back, of the database, its log and the signer's volume, alone and
together.

What was published is the third place: every process compares it with the log before it does
anything.
"""

import pytest
from typer.testing import CliRunner

from accountant import settings
from accountant.core.errors import ExchequerError, LedgerBehind, LogUnusable, VerificationFailed
from accountant.core.transparency.notes import COSIGNATURE, key_of
from accountant.core.transparency.publication import publish
from accountant.core.transparency.tiles import Folder
from accountant.core.transparency.witnesses import LogSigner
from accountant.database import engine_for
from accountant.ledger_log.homes import log_at
from accountant.ledger_log.publication import entries_from
from accountant.ledger_log.published import files_at
from accountant.queries import integrity, log_comparison
from accountant.transactions import ledger_log, recovery
from tests.accountant.transactions.test_ledger_log import alone, entries, logged, run
from tests.object_stores import s3
from tests.witness import Witness
from web.cli import bootstrap
from web.cli.commands import app

pytestmark = pytest.mark.slow

__all__ = ["alone", "s3"]


NAME, SEED = "exchequer.example/log", b"p" * 32  # those of Ground.publish


class LastNight:
    """Copies of last night, of all that can be copied; today's work is published too."""

    def __init__(self, site) -> None:
        self.site = site
        site.bench.submit(10)
        site.publish()
        self.database = site.backup()
        self.folders = {
            each: site.copy_folder(each) for each in (site.folder, site.memory, site.public)
        }
        run(site, site.bench.submit(200))
        site.publish()

    def restore(self, *what: str) -> None:
        places = {"log": self.site.folder, "memory": self.site.memory, "public": self.site.public}
        for name, place in places.items():
            if name in what:
                self.site.restore_folder(place, self.folders[place])
        if "database" in what:
            self.site.restore(self.database)


def refused(site, kind: type[ExchequerError]) -> ExchequerError:
    """The first request is refused, and nothing is written."""
    before = entries(site)
    with pytest.raises(kind) as found:
        site.bench.submit(200)
    assert entries(site) == before
    assert log_comparison.standing(site.engine) != "ok"
    assert "exchequer ledger recover" in str(found.value)
    return found.value


RESTORED = [
    ("database", "log"),
    ("database", "log", "memory"),
    ("database", "log", "public"),
    ("log",),
    ("log", "memory"),
]


@pytest.mark.parametrize("what", RESTORED, ids="+".join)
def test_whatever_is_restored_together_is_found_at_the_first_request(alone, what):
    LastNight(alone).restore(*what)
    alone.restart()
    error = refused(alone, LogUnusable)
    assert "an older copy was put back" in str(error)


def test_an_older_database_alone_is_found_at_the_first_request(alone):
    LastNight(alone).restore("database")
    alone.restart()
    refused(alone, LedgerBehind)


def test_living_processes_find_it_too(alone):
    LastNight(alone).restore("database", "log")
    with pytest.raises(LogUnusable):
        alone.bench.submit(200)


def test_a_publication_is_compared_by_processes_that_run_already(alone):
    """Another log took the place of theirs, and one publication later they know."""
    night = LastNight(alone)
    public, memory = alone.copy_folder(alone.public), alone.copy_folder(alone.memory)
    night.restore("database", "log", "memory", "public")
    alone.restart()
    alone.bench.submit(5)  # nothing remembers today
    alone.restore_folder(alone.public, public)
    refused(alone, LogUnusable)
    alone.restore_folder(alone.public, night.folders[alone.public])
    alone.bench.submit(5)
    alone.restore_folder(alone.memory, memory)
    refused(alone, LogUnusable)


@pytest.mark.parametrize("place", ["public", "memory"])
def test_a_log_that_went_on_by_itself_is_another_one_than_was_signed(alone, place):
    night = LastNight(alone)
    night.restore("database", "log")
    places, nowhere = (
        {"public": alone.public, "memory": alone.memory},
        alone.memory.with_name("nowhere"),
    )
    alone.public = alone.memory = nowhere  # a service that was told of neither
    alone.restart()
    for _ in range(5):
        alone.bench.submit(5)
    setattr(alone, place, places[place])
    alone.restart()
    assert "is another one than was signed" in str(refused(alone, LogUnusable))


def test_a_witness_tells_where_all_of_it_was_restored_together(alone, tmp_path):
    signer, keys = LogSigner(alone.memory, NAME, SEED), {NAME: key_of(NAME, SEED)}
    witness = Witness(tmp_path / "witness", "witness.example/one", b"w" * 32, keys)
    asked = [(key_of("witness.example/one", b"w" * 32, COSIGNATURE), witness.add_checkpoint)]

    def publish_witnessed() -> None:
        log = log_at(alone.folder)
        last = log.position().n
        publish(files_at(alone.public), lambda count: entries_from(log, count, last), signer, asked)

    night, today = LastNight(alone), alone.copy_folder(alone.folder)
    publish_witnessed()
    night.restore("database", "log", "memory", "public")
    alone.restart()
    with pytest.raises(VerificationFailed, match="a witness saw"):
        publish_witnessed()
    refused(alone, LogUnusable)  # and every other process knows it from the signer
    alone.restore_folder(alone.folder, today)
    alone.restart()
    for plan in recovery.plan(alone.engine):
        recovery.recover(alone.engine, plan, lambda *_: None)
    alone.bench.submit(5)
    publish_witnessed()


def test_what_can_not_be_read_of_it_stops_everything(alone):
    alone.bench.submit(5)
    alone.publish()
    (memory,) = alone.memory.glob("*.json")
    for files, name in (
        (files_at(alone.public), "checkpoint"),
        (Folder(memory.parent), memory.name),
    ):
        kept = files.read(name)
        assert kept is not None
        files.replace(name, b"[]")
        alone.restart()
        with pytest.raises(LogUnusable, match="what was signed of it can't be read"):
            alone.bench.submit(5)
        files.replace(name, kept)
        alone.bench.submit(5)
    assert integrity.check(alone.engine, alone.bench.dataset) == []


# --- the command that mends it --------------------------------------------------------------------


@pytest.fixture
def command(alone, tmp_path, monkeypatch):
    """`exchequer ledger …` on the database, as its owner."""

    def invoke(*words: str, typed: str | None = None):
        variables = {
            "DATABASE_URL": alone.owner_url,
            "EXCHEQUER_HOME": alone.memory.parent,
            "EXCHEQUER_LEDGER_LOG": alone.folder,
            "EXCHEQUER_PUBLIC_LOG": alone.public,
        }
        for name, value in variables.items():
            monkeypatch.setenv(name, str(value))
        # not those that the process remembers
        monkeypatch.setattr(bootstrap, "load", settings.Settings)
        engine_for.cache_clear()
        done = CliRunner().invoke(app, ["ledger", *words], input=typed)
        return done.exit_code, " ".join((done.output + str(done.exception or "")).split())

    yield invoke
    engine_for.cache_clear()


#: What else is restored with these changes nothing of what the command says.
COMMANDED = [("database",), ("database", "log"), ("log",)]


@pytest.mark.parametrize(
    "what",
    [
        *COMMANDED,
        *(
            pytest.param(each, marks=pytest.mark.release)
            for each in RESTORED
            if each not in COMMANDED
        ),
    ],
    ids="+".join,
)
def test_the_command_says_what_comes_next_and_that_mends_it(alone, command, what):
    night = LastNight(alone)
    today = alone.copy_folder(alone.folder)
    before = entries(alone)
    night.restore(*what)
    alone.stop()
    problems = command("check", "--all", "--database")
    assert problems[0] == 1
    code, told = command("recover", "--yes")
    if what == ("database",):
        assert (code, "recovered: 1, left: 0" in told) == (0, True)
    elif "database" in what:
        assert code != 0
        assert "Put back the newest copy of the log's folder" in told
        alone.restore_folder(alone.folder, today)
        code, told = command("recover", "--yes")
        assert (code, "recovered: 1, left: 0" in told) == (0, True)
    else:
        assert code != 0
        assert (
            "Move what is in the log's folder to another place, then `exchequer ledger new-log`"
            in told
        )
        alone.folder.rename(alone.folder.with_name("older"))
        assert command("new-log", "--yes")[0] == 0
    assert command("check", "--all", "--database")[0] == 0
    alone.restart()
    assert entries(alone) == logged(alone)
    assert entries(alone)[: len(before)] == before
    alone.bench.submit(5)
    alone.publish()
    assert log_comparison.standing(alone.engine) == "ok"


def test_a_log_that_is_older_than_its_mark_has_the_same_command(alone, command):
    """Where nothing is published, the database's marks tell of the log."""
    alone.bench.submit(5)
    older = alone.copy_folder(alone.folder)
    alone.bench.submit(5)
    ledger_log.mark(alone.engine, ledger_log.log_of(alone.engine), least=1)
    alone.restore_folder(alone.folder, older)
    alone.restart()
    assert "it was cut short" in str(refused(alone, LogUnusable))
    alone.stop()
    code, told = command("recover", "--yes")
    assert (code != 0, "then `exchequer ledger new-log`" in told) == (True, True)
    alone.folder.rename(alone.folder.with_name("older"))
    assert command("new-log", "--yes")[0] == 0
    alone.restart()
    alone.bench.submit(5)
    assert entries(alone) == logged(alone)
