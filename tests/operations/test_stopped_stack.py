"""The local stack after a restore: `up` and `status` name the command, and it works with all
stopped.
"""

import subprocess

import pytest
from typer.testing import CliRunner

from accountant import settings
from accountant.core.transparency.witnesses import LogSigner
from accountant.database import connect, engine_for, logging_to, migrate
from accountant.ledger_log.homes import log_at
from accountant.ledger_log.publication import publish_log
from tests.support import Bench
from tests.web.stack.test_local import PROGRAMS
from web import local
from web.cli import bootstrap, stack
from web.cli.commands import app
from web.stack.addresses import ROLES, database_url

pytestmark = pytest.mark.slow

PLACES = {"log": "ledger-log", "database": "postgres"}


class Stack:
    """A home with a dataset; its servers run only where a block says so."""

    def __init__(self, home) -> None:
        self.home = home
        with local.Servers(home, valkey=False) as servers:
            roles = {process: database_url(home, role) for process, role in ROLES.items()}
            migrate(servers.owner_url, servers.database_url, roles)
            self.engine = logging_to(connect(servers.database_url), home / "ledger-log")
            self.bench = Bench(self.engine, policy={"auto_approve_epsilon": "10"})
            self.bench.allow()
            self.bench.warm()
            self.publish()
            self.engine.dispose()
        for place in PLACES.values():
            subprocess.run(["cp", "-a", home / place, home / f"old-{place}"], check=True)
        with local.Servers(home, valkey=False):
            self.bench.submit(50)
            self.publish()
            self.engine.dispose()

    def publish(self) -> None:
        signer = LogSigner(self.home / "signed-logs", "exchequer", b"p" * 32)
        publish_log(log_at(self.home / "ledger-log"), self.home / "public-log", signer, {})

    def restore(self, place: str) -> None:
        subprocess.run(["rm", "-r", self.home / place], check=True)
        subprocess.run(["cp", "-a", self.home / f"old-{place}", self.home / place], check=True)


@pytest.fixture
def home(tmp_path, monkeypatch):
    for name in ("DATABASE_URL", "BROKER_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("EXCHEQUER_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(bootstrap, "load", settings.Settings)
    for name in ("first_account", "sign_in_here"):  # nobody signs in to stand-ins
        monkeypatch.setattr(bootstrap if name == "first_account" else stack, name, lambda *_: None)
    monkeypatch.setattr(local.up, "__kwdefaults__", {"programs": PROGRAMS})
    engine_for.cache_clear()
    yield tmp_path / "home"
    local.down(settings.Settings(), on_progress=print)
    engine_for.cache_clear()


def run(*words: str) -> tuple[int, str]:
    engine_for.cache_clear()  # each command is a process of its own
    done = CliRunner().invoke(app, words)
    return done.exit_code, " ".join(f"{done.output} {done.exception or ''}".split())


# Of an older log the same is said; what comes next is test_signed_heads'.
@pytest.mark.parametrize("what", ["database", pytest.param("log", marks=pytest.mark.release)])
def test_up_and_status_name_the_command_and_it_works_with_everything_stopped(home, what):
    Stack(home).restore(PLACES[what])
    for command in ("up", "status"):
        code, told = run(command)
        assert code == 0, told
        assert "stop all services, then `exchequer ledger recover`" in told
    assert run("down")[0] == 0
    code, told = run("ledger", "recover", "--restored", "--yes")
    if what == "log":
        assert "then `exchequer ledger new-log`" in told
        (home / "ledger-log").rename(home / "ledger-log.older")
        assert run("ledger", "new-log", "--yes")[0] == 0
    else:
        assert (code, "recovered: 1, left: 0" in told) == (0, True), told
    assert run("ledger", "check", "--all", "--database")[0] == 0
    for command in ("up", "status"):
        code, told = run(command)
        assert (code, "exchequer ledger recover" in told) == (0, False), told
