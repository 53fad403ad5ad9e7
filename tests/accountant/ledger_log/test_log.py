"""The log wherever it lies: what one process writes, all read, in one order."""

import os
import subprocess
import sys
import uuid
from contextlib import suppress
from pathlib import Path

import pytest

from accountant.core.errors import LedgerBehind, LogUnusable
from accountant.ledger_log import lines
from accountant.ledger_log.files import FolderLog
from accountant.ledger_log.homes import log_at
from accountant.ledger_log.lines import Head
from accountant.ledger_log.log import Gap, LedgerLog
from accountant.ledger_log.log import entries as logged_entries
from accountant.ledger_log.objects import ObjectLog
from accountant.ledger_log.publication import entries_from
from accountant.settings import Settings
from tests.accountant.ledger_log.test_files import chain, write
from tests.object_stores import CEPH, ceph, s3

ROOT = Path(__file__).resolve().parents[3]
__all__ = ["ceph", "s3"]


def opened(place: str) -> LedgerLog:
    """The log at a place, as a new process sees it, in short segments."""
    if "://" in place:
        return ObjectLog(place, together=8)
    return FolderLog(Path(place), segment_bytes=2_000)


def another(log: LedgerLog) -> LedgerLog:
    return opened(log.place)


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.slow), CEPH])
def log(request, tmp_path):
    if request.param == "folder":
        made = opened(str(tmp_path / "log"))
    else:
        made = opened(f"{request.getfixturevalue(request.param)}/{uuid.uuid4().hex}")
    made.begin()
    return made


def test_entries_are_read_by_who_wrote_them_by_others_and_by_who_starts_later(log):
    other = another(log)
    first, second = chain(30), chain(25, of="b")
    assert other.head("a") == Head()
    for a, b in zip(first[:25], second, strict=True):  # two processes in turn, over several files
        assert log.append([("a", [a])]) == [None]
        assert other.append([("b", [b])]) == [None]
    assert other.append([("a", first[20:])]) == [None]  # what is there already is passed over
    later = another(log)
    for each in (log, other, later):
        assert each.head("a") == Head(30, first[-1].hash)
        assert each.head("b") == Head(25, second[-1].hash)
        assert each.position() == log.position()
        assert each.identity == log.identity
    assert len(log.ordered_segments()) > 3
    found = list(logged_entries(log))
    assert [number for number, _, _ in found] == list(range(1, 56))
    assert [entry for _, dataset, entry in found if dataset == "a"] == first


def test_a_group_of_datasets_is_one_write_and_each_gets_its_answer(log):
    first, other = chain(3), chain(3, of="c")
    write(log, "a", first[:1])
    outcomes = log.append([("a", first[1:]), ("b", other[1:]), ("c", other), ("a", other[:1])])
    assert outcomes[0] is None
    assert outcomes[2] is None
    assert isinstance(outcomes[1], Gap)
    assert outcomes[1].after == 0
    assert log.append([("b", chain(1, of="b"))]) == [None]
    (differs,) = log.append([("a", chain(3, mark="another"))])
    assert isinstance(differs, LedgerBehind)
    assert differs.seq == 3
    (forked,) = log.append([("a", chain(1, Head(3, "f" * 64)))])
    assert isinstance(forked, LedgerBehind)
    assert [dataset for _, dataset, _ in logged_entries(log)] == ["a", "a", "a", "c", "c", "c", "b"]


def race(folder: str, name: str) -> None:
    """Write when all are ready: what each of three processes does."""
    log, entries = opened(folder), chain(25, of=name)
    print("ready", flush=True)
    sys.stdin.read()
    for each in entries:
        log.append([(name, [each]), ("shared", chain(each.seq, of="shared"))])


@pytest.mark.slow
def test_processes_that_write_at_once_leave_one_log(log):
    # not forked: a fork of a process with threads may stand still at a lock of theirs
    command = f"import sys; from {race.__module__} import race; race(*sys.argv[1:])"
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", command, log.place, f"d{number}"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for number in range(3)
    ]
    assert [each.stdout.readline() for each in racers] == [b"ready\n"] * 3
    for each in racers:
        each.stdin.close()
    assert [each.wait(60) for each in racers] == [0] * 3
    found = list(logged_entries(log))
    assert len(found) == 4 * 25
    assert log.head("shared") == Head(25, chain(25, of="shared")[-1].hash)


def fork(place: str) -> None:
    """Write an entry, and another one in a forked process."""
    log = opened(place)
    log.append([("a", chain(1))])
    child = os.fork()
    if not child:
        os._exit(log.append([("a", chain(2)[1:])]) != [None])
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def test_a_forked_process_writes_too(log):
    command = f"import sys; from {fork.__module__} import fork; fork(sys.argv[1])"
    forked = [sys.executable, "-c", command, log.place]
    assert subprocess.run(forked, cwd=ROOT, check=False).returncode == 0
    assert log.head("a").seq == 2


def test_an_append_copies_no_heads_of_other_datasets(log, monkeypatch):
    """Its time does not grow with the number of datasets."""
    write(log, "a", chain(1))
    monkeypatch.setattr(lines.Position, "copy", lambda _: pytest.fail("it copies all heads"))
    write(log, "b", chain(1, of="b"))
    assert log.head("a").seq == log.head("b").seq == 1


def test_entries_are_read_from_any_number_on(log):
    write(log, "a", chain(20))
    write(log, "b", chain(15, of="b"))
    whole = [(dataset, each.seq, each.hash) for _, dataset, each in logged_entries(log)]
    assert len(log.ordered_segments()) > 3
    for count in range(0, 36, 5):
        assert list(entries_from(log, count, 35)) == whole[count:]
        assert list(entries_from(log, 0, count)) == whole[:count]
    for n in range(1, 36, 3):
        assert another(log).entry_at(n)[1:] == whole[n - 1]
    assert log.entry_at(36) is None


def test_what_is_kept_beside_it_is_whole_or_not_there(log):
    assert not log.is_kept("sources/a/1")
    for content in (b"first", b"second"):
        with log.keep("sources/a/1") as file:
            file.write(content)
        assert another(log).open_kept("sources/a/1").read() == content
    with suppress(KeyError), log.keep("sources/a/1") as file:
        file.write(b"third")
        raise KeyError
    assert log.open_kept("sources/a/1").read() == b"second"
    assert log.is_kept("sources/a/1")


def test_a_place_is_empty_until_a_log_begins_there(log):
    assert not log.is_empty()
    elsewhere = opened(f"{log.place}-elsewhere")
    assert elsewhere.is_empty()
    assert elsewhere.identity is None
    with pytest.raises(LogUnusable):
        elsewhere.append([("a", chain(1))])
    elsewhere.require_writable()
    assert elsewhere.is_empty()


def test_the_setting_names_a_folder_or_an_address(tmp_path, monkeypatch):
    for place, home in (("s3://bucket/log", ObjectLog), (str(tmp_path / "log"), FolderLog)):
        monkeypatch.setenv("EXCHEQUER_LEDGER_LOG", place)
        named = Settings(home=tmp_path).ledger_log
        assert named is not None
        made = log_at(named)
        assert (type(made), made.place) == (home, place)
