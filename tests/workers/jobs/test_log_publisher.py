"""The signer publishes the log by itself: the real process, on a schedule, with disks that are
full.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from accountant.core.errors import VerificationFailed
from accountant.core.transparency.notes import key_of
from accountant.core.transparency.proofs import check_head
from accountant.core.transparency.publication import checkpoint
from accountant.core.transparency.witnesses import LogSigner
from accountant.ledger_log.homes import log_at
from accountant.ledger_log.log import entries as logged_entries
from accountant.ledger_log.publication import publish_log
from accountant.ledger_log.published import files_at
from tests import object_stores
from tests.accountant.ledger_log.test_files import chain, write
from tests.accountant.transactions.test_ledger_log import place_of
from tests.conftest import as_process
from tests.object_stores import CEPH, Prefix, ceph, s3
from tests.restores import ground

SEED, NAME = b"p" * 32, "exchequer.example/log"
__all__ = ["ceph", "s3"]
KEY = key_of(NAME, SEED)
#: A state of the process is waited for; a machine that is many times slower loses nothing by it.
PATIENCE_SECONDS = 180


def wait_for(state: Callable[[], Any]) -> None:
    ends = time.monotonic() + PATIENCE_SECONDS
    while not state():
        assert time.monotonic() < ends
        time.sleep(0.05)


class Site:
    """A database with its log, the place that is served, and what the signer says."""

    def __init__(self, at: Any, folder: Path) -> None:
        self.at, self.folder = at, folder
        self.told = folder / "told"
        self.public: Path | Prefix = at.folder.with_name("public")
        self.memory = folder / "home" / "signed-logs"
        self.url = as_process(at.owner_url, "signer")

    def environment(self) -> dict[str, str]:
        named = {
            "home": self.folder / "home",
            "runs_as": "signer",
            "ledger_log": self.at.folder,
            "public_log": self.public,
            "public_log_name": NAME,
            "public_log_seconds": 0.2,
            "key_public_log": SEED.hex(),
        }
        settings = {f"EXCHEQUER_{name.upper()}": str(value) for name, value in named.items()}
        return {**os.environ, **settings, "DATABASE_URL": self.url}

    @contextmanager
    def signer(self, **others: str):
        """The process as it is started in production."""
        with self.told.open("a") as told:
            command = [sys.executable, "-m", "workers.jobs.signer"]
            process = subprocess.Popen(
                command, env={**self.environment(), **others}, stdout=told, stderr=told
            )
        try:
            yield process
        finally:
            process.terminate()
            # By itself, or by the signal where it had not come to hear it yet.
            assert process.wait(PATIENCE_SECONDS) in (0, -signal.SIGTERM)

    def published(self) -> int:
        """How many entries the published head has, which the key signed and the tiles prove; 0: no
        head.
        """
        if files_at(self.public).read("checkpoint") is None:
            return 0
        given, tiles = checkpoint(files_at(self.public))
        head, _ = check_head(given, KEY)
        assert (head.size, head.root) == (tiles.size, tiles.root())
        return head.size

    def refusals(self) -> int:
        """How often the signer said that there is no room."""
        return sum(self.told.read_text().count(each) for each in NO_ROOM)

    def logged(self) -> int:
        return sum(1 for _ in logged_entries(log_at(self.at.folder)))


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.slow), CEPH])
def site(servers, tmp_path, request):
    with ground(servers, tmp_path / "log", place_of(request)) as at:
        yield Site(at, tmp_path)


#: A store has no lock, and a folder a disk that is full: each is tried in the other for a release.
IN_A_STORE, ON_A_DISK = (
    pytest.mark.parametrize(
        "site", [tried, pytest.param(other, marks=pytest.mark.release), CEPH], indirect=True
    )
    for tried, other in (("s3", "folder"), ("folder", "s3"))
)
NO_ROOM = ("No space left on device", "published of it can't be written")


@contextmanager
def full(place: Path | Prefix, name: str):
    """The file that replaces this one can't be written: the disk or the store has no room."""
    if isinstance(place, Prefix):
        with object_stores.full(place):
            yield
        return
    draft = place / f"{name}.new"
    draft.symlink_to("/dev/full")
    yield
    draft.unlink()


@pytest.mark.slow
@ON_A_DISK
def test_the_signer_publishes_what_is_new_and_outlives_a_full_disk(site):
    with site.signer() as process:
        wait_for(lambda: site.published() == site.logged())
        site.at.bench.submit(10)
        wait_for(lambda: site.published() == site.logged())
        before = site.published()
        (memory,) = site.memory.glob("*.json")
        for place, name in ((site.public, "checkpoint"), (site.memory, memory.name)):
            problems = site.refusals()
            with full(place, name):
                site.at.bench.submit(10)
                wait_for(lambda n=problems: site.refusals() >= n + 2)
                assert process.poll() is None  # it goes on, and says so at each turn
                assert site.published() == before  # the head from before is served
            wait_for(lambda: site.published() == site.logged())
            before = site.published()
        # said once the head is served
        wait_for(lambda: f'"entries": {before}' in site.told.read_text())
    assert "the log is not published" in site.told.read_text()


@pytest.mark.slow
@IN_A_STORE
def test_two_signers_at_once_sign_one_history(site):
    with site.signer(), site.signer():
        wait_for(lambda: site.told.read_text().count("log published") >= 2)  # each has taken a turn
        for _ in range(6):
            site.at.bench.submit(10)
        wait_for(lambda: site.published() == site.logged())
    checkpoint(files_at(site.public))[1].check()
    problems = [line for line in site.told.read_text().splitlines() if "is not published" in line]
    # On a busy machine a call of the store may take too long: the next turn publishes. A store has
    # no lock: the slower signer says why it does not sign.
    known = ('"error": "LogUnusable"', "another signer signed this log meanwhile")
    assert [line for line in problems if not any(each in line for each in known)] == []


@pytest.mark.slow
@ON_A_DISK
def test_a_log_that_is_not_the_databases_own_is_not_published(site, tmp_path):
    site.at.bench.submit(10)
    another = log_at(tmp_path / "another")
    another.begin()
    write(another, "a", chain(3))
    with site.signer(EXCHEQUER_LEDGER_LOG=str(another.folder)):
        wait_for(lambda: "this database's log is" in site.told.read_text())
    assert not site.public.exists()


@pytest.fixture
def log(tmp_path):
    made = log_at(tmp_path / "log")
    made.begin()
    write(made, "a", chain(300))
    return made


def test_a_signer_that_forgot_what_it_signed_goes_on_from_what_is_published(log, tmp_path):
    public = tmp_path / "public"
    publish_log(log, public, LogSigner(tmp_path / "memory", NAME, SEED), {})
    kept = (public / "checkpoint").read_bytes()
    stranger = LogSigner(tmp_path / "stranger", NAME, b"x" * 32)
    with pytest.raises(VerificationFailed, match="signed by none of the keys"):
        publish_log(log, public, stranger, {})
    assert stranger.newest.size == 0
    shorter = log_at(tmp_path / "shorter")
    shorter.begin()
    write(shorter, "a", chain(200))
    forgetful = LogSigner(tmp_path / "restored", NAME, SEED)
    with pytest.raises(VerificationFailed):
        publish_log(shorter, public, forgetful, {})
    assert (public / "checkpoint").read_bytes() == kept
    assert publish_log(log, public, forgetful, {}).size == forgetful.newest.size == 300


def test_a_folder_that_was_lost_is_made_anew_and_continues_what_was_signed(log, tmp_path):
    signer = LogSigner(tmp_path / "memory", NAME, SEED)
    publish_log(log, tmp_path / "public", signer, {})
    write(log, "a", chain(5, log.head("a")))
    head = publish_log(log, tmp_path / "again", signer, {})
    assert head.size == 305
    checkpoint(tmp_path / "again")[1].check()
    other = log_at(tmp_path / "other")
    other.begin()
    write(other, "a", chain(400, mark="another history"))
    with pytest.raises(VerificationFailed):
        publish_log(other, tmp_path / "third", signer, {})
    assert not (tmp_path / "third" / "checkpoint").exists()
