"""A new log after a lost disk: whole, in the published order, and refused where anything remembers
more.
"""

import json
from contextlib import contextmanager

import pytest
from sqlalchemy import text
from sqlalchemy.exc import ProgrammingError
from typer.testing import CliRunner

from accountant import settings
from accountant.core.errors import Conflict, LogUnusable
from accountant.core.transparency.witnesses import LogSigner
from accountant.database import connect, logging_to
from accountant.ledger_log.homes import log_at
from accountant.ledger_log.publication import publish_log
from accountant.ledger_log.signed import SignedPlaces
from accountant.queries import exports, log_comparison
from accountant.transactions import ledger_log, new_log, recovery
from accountant.transactions.ledger_log import log_of
from tests.accountant.transactions.test_ledger_log import alone, dataset_id, entries, logged
from tests.faults.restores import added, found_right
from tests.object_stores import s3
from tests.restores import removed
from tests.support import Bench
from web.cli.commands import app

pytestmark = pytest.mark.slow

__all__ = ["alone", "s3"]

IDENTITY, PROOF, SEED = b"i" * 32, b"the key", b"s" * 32


@contextmanager
def owner(site):
    """The database as the owner of its tables, with the folder of the log."""
    site.stop()
    engine = logging_to(connect(site.owner_url), site.folder)
    try:
        yield engine
    finally:
        engine.dispose()
        site.restart()


def lose(site) -> None:
    """The disk with the log is gone; another one stands in its place, empty."""
    site.stop()
    removed(site.folder)
    site.restart()


def begun(site, published=None) -> new_log.Plan:
    with owner(site) as engine:
        planned = new_log.plan(engine, SignedPlaces(published))
        new_log.begin(engine, planned, published, IDENTITY, PROOF)
    return planned


def problems(site, published=None, kept=None) -> list[str]:
    with owner(site) as engine:
        return new_log.plan(engine, SignedPlaces(published, kept)).problems


def test_all_entries_stand_in_the_new_log_and_the_service_goes_on(alone):
    another = Bench(alone.engine, policy={"auto_approve_epsilon": "10"})
    another.allow()
    alone.bench.submit(10)
    ledger_log.mark(alone.engine, log_of(alone.engine), least=1)
    lost = log_of(alone.engine).identity
    lose(alone)
    with pytest.raises(LogUnusable, match="holds none"):
        alone.bench.submit(10)
    planned = begun(alone)
    assert (planned.lost, planned.problems, planned.moved) == (lost, [], False)
    assert planned.marked == planned.entries > len(entries(alone))
    assert logged(alone) == entries(alone)
    assert log_of(alone.engine).identity not in (None, lost)
    assert log_comparison.whole(alone.engine) == {}
    alone.bench.submit(10)
    assert logged(alone) == entries(alone)
    query = text(
        "SELECT actor_name, object_id, detail FROM activity WHERE action = 'ledger log begun anew'"
    )
    with alone.engine.connect() as connection:
        (told,) = connection.execute(query).all()
    assert (told.actor_name, told.object_id) == ("operator", log_of(alone.engine).identity)
    assert told.detail == {
        "lost": lost,
        "entries": planned.entries,
        "held_at_least": planned.entries,
        "published": 0,
        "another_timeline": False,
    }


def test_the_public_log_goes_on(alone, tmp_path):
    """Its leaves are in the order of the lost log, which was not that of datasets."""
    public, signer = (
        tmp_path / "public",
        LogSigner(tmp_path / "memory", "exchequer.example/log", SEED),
    )
    another = Bench(alone.engine, policy={"auto_approve_epsilon": "10"})
    another.allow()
    for bench in (alone.bench, another, alone.bench, another):
        bench.submit(5)
    before = publish_log(log_of(alone.engine), public, signer, {})
    alone.bench.submit(5)  # in no publication
    lose(alone)
    planned = begun(alone, public)
    assert (planned.published, planned.entries) == (before.size, before.size + 1)
    alone.bench.submit(5)
    assert publish_log(log_of(alone.engine), public, signer, {}).size == before.size + 2


def test_what_is_known_of_data_is_kept_beside_the_new_log(alone):
    """A backup from before the data, restored after the log was lost and begun anew, is recovered
    whole.
    """
    copy = alone.backup()
    found_right(alone, added(alone, "later"), "somebody")
    lose(alone)
    planned = begun(alone)
    assert ("later", 1) in planned.versions
    with alone.engine.connect() as connection:
        mark = connection.execute(text("SELECT log FROM ledger_log_marks WHERE n = 0")).scalar_one()
    alone.restore(copy)
    # the backup knows the lost log alone
    alone.execute("UPDATE ledger_log_marks SET log = :log", log=mark)
    alone.execute("DELETE FROM ledger_log_marks WHERE n > 0")
    alone.restart()
    for each in recovery.plan(alone.engine):
        recovery.recover(alone.engine, each, lambda *_: None, IDENTITY)
    with alone.engine.connect() as connection:
        query = text(
            "SELECT count(*) FROM fingerprints f JOIN datasets d ON d.id = f.dataset_id WHERE name "
            "= 'later'"
        )
        assert connection.execute(query).scalar_one() == 1


def test_nothing_is_begun_beside_another_log(alone):
    alone.bench.submit(10)
    with owner(alone) as engine, pytest.raises(LogUnusable, match="is not empty"):
        new_log.plan(engine, SignedPlaces())


def test_a_database_that_is_behind_what_others_remember_is_refused(alone, tmp_path):
    public, signer = (
        tmp_path / "public",
        LogSigner(tmp_path / "memory", "exchequer.example/log", SEED),
    )
    copy = alone.backup()
    alone.bench.submit(10)
    publish_log(log_of(alone.engine), public, signer, {})
    alone.restore(copy)
    lose(alone)
    (problem,) = problems(alone, public)
    assert "was published, and is another one or missing here" in problem
    (public / "checkpoint").write_text("nothing")
    (problem,) = problems(alone, public)
    assert "can't be compared" in problem
    (problem,) = problems(alone, kept=tmp_path / "memory")  # what the signer keeps of each turn
    assert "entries were signed, and the database holds" in problem
    # nobody else remembers: the warning of the command is all there is
    assert problems(alone) == []


def test_services_that_were_not_stopped_are_seen(alone):
    url = alone.engine.url
    lose(alone)
    with owner(alone) as engine:
        another = connect(url.render_as_string(hide_password=False))
        with another.connect() as service:
            service.execute(text("SELECT 1"))
            assert new_log.plan(engine, SignedPlaces()).connected >= 1
        another.dispose()


def test_marks_and_signed_checkpoints_are_compared(alone):
    alone.bench.submit(10)
    exports.checkpoint(alone.engine, dataset_id(alone), SEED)
    lose(alone)
    alone.execute("UPDATE ledger_log_marks SET n = 1000000, line = 'x', timeline = 77")
    with owner(alone) as engine:
        planned = new_log.plan(engine, SignedPlaces())
    assert planned.moved
    assert "the lost log held 1,000,000 entries" in planned.problems[0]
    alone.execute("UPDATE ledger_log_marks SET n = 0")
    query = (
        'UPDATE checkpoints SET document = replace(document::text, \'"head": "\', \'"head": "00\')'
    )
    alone.execute("ALTER TABLE checkpoints DISABLE TRIGGER USER")
    with alone.engine.connect() as connection:
        kept = connection.execute(
            text("SELECT pg_typeof(document)::text FROM checkpoints")
        ).scalar_one()
    alone.execute(query if kept == "text" else f"{query}::{kept}")
    (problem,) = problems(alone)
    assert "is not the one that a checkpoint was signed for" in problem


def test_a_ledger_that_does_not_verify_begins_no_log(alone):
    alone.bench.submit(10)
    lose(alone)
    alone.execute("ALTER TABLE entries DISABLE TRIGGER USER")
    alone.execute("UPDATE entries SET hash = repeat('0', 64) WHERE seq = 2")
    (problem,) = problems(alone)
    assert problem.startswith(f"{alone.bench.dataset}: entry 2")
    with pytest.raises(Conflict):
        begun(alone)
    assert not alone.folder.exists()


def test_a_writer_meanwhile_or_another_key_or_role_stops_it(alone):
    version = _with_people(alone)
    lose(alone)
    with owner(alone) as engine:
        planned = new_log.plan(engine, SignedPlaces())
        assert version in planned.versions
        with pytest.raises(Conflict, match="not the one that fingerprints were made with"):
            new_log.begin(engine, planned, None, IDENTITY, b"another")
        stale = new_log.Plan(heads={**planned.heads, "gone": planned.heads[alone.bench.dataset]})
        with pytest.raises(Conflict, match="changed since"):
            new_log.begin(engine, stale, None, IDENTITY, PROOF)
    assert not alone.folder.exists()
    with pytest.raises(ProgrammingError):  # marks go with the rights of their owner alone
        new_log.begin(
            alone.engine, new_log.plan(alone.engine, SignedPlaces()), None, IDENTITY, PROOF
        )
    with pytest.raises(LogUnusable, match="this database's log is"):
        alone.bench.submit(10)


def _with_people(site) -> tuple[str, int]:
    found_right(site, added(site, "people"), "somebody")
    return "people", 1


def test_the_command_says_what_can_not_be_known(alone, tmp_path, monkeypatch):
    alone.bench.submit(10)
    lose(alone)
    alone.stop()
    for name, value in {
        "DATABASE_URL": alone.owner_url,
        "EXCHEQUER_LEDGER_LOG": alone.folder,
        "EXCHEQUER_HOME": tmp_path / "home",
    }.items():
        monkeypatch.setenv(name, str(value))
    settings.load.cache_clear()
    run = CliRunner().invoke
    asked = run(app, ["ledger", "new-log"], input="n\n")
    assert asked.exit_code == 1
    assert "can't be known any more" in asked.output
    assert not alone.folder.exists()
    done = run(app, ["ledger", "new-log", "--yes", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["log"] == log_at(alone.folder).identity
    again = run(app, ["ledger", "new-log", "--yes"])
    assert again.exit_code != 0
    assert "is not empty" in again.output
    settings.load.cache_clear()
    alone.restart()
    alone.bench.submit(10)
    assert logged(alone) == entries(alone)
