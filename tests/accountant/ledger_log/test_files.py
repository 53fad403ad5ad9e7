"""The files of the log: what is written is read, by whomever, and what was changed is noticed."""

import fcntl
import json
import multiprocessing
import os
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

from accountant.core.errors import LogUnusable
from accountant.core.ledger.canonical_json import canonical
from accountant.core.ledger.commitments import sealed
from accountant.core.ledger.hash_chain import GENESIS, digest
from accountant.ledger_log import files, lines
from accountant.ledger_log.files import FolderLog
from accountant.ledger_log.lines import Head, Logged
from accountant.ledger_log.log import entries as logged_entries

ROOT = Path(__file__).resolve().parents[3]


def chain(count: int, after: Head | None = None, mark: str = "", of: str = "a") -> list[Logged]:
    """Entries that follow one another; they are documents of no ledger, which the files don't
    mind.
    """
    head, made = Head() if after is None else after, []
    for seq in range(head.seq + 1, head.seq + 1 + count):
        body = {"text": f"größer \n {mark}", "seq": seq}
        document = {"version": 1, "dataset": of, "body": body, "previous": head.hash}
        entry = Logged(seq, head.hash, digest(document), canonical(document).decode())
        made.append(entry)
        head = Head(seq, entry.hash)
    return made


@pytest.fixture
def log(tmp_path):
    made = FolderLog(tmp_path / "log", segment_bytes=2_000)
    made.begin()
    return made


def write(log, dataset, entries):
    for each in entries:
        assert log.append([(dataset, [each])]) == [None]


def test_a_line_that_a_crash_cut_short_is_cut_off_by_the_next_writer(log):
    first = chain(2)
    write(log, "a", first[:1])
    with log.segments()[-1].open("ab") as file:
        file.write(b'{"dataset":"a","document":{"bo')
    for each in (log, FolderLog(log.folder)):
        assert each.head("a").seq == 1
    assert len(list(logged_entries(log))) == 1
    write(FolderLog(log.folder), "a", first[1:])
    assert log.head("a").seq == 2
    assert len(list(logged_entries(log))) == 2


def test_a_full_disk_answers_nobody_and_loses_nothing(log, monkeypatch):
    first, real = chain(3), os.write
    write(log, "a", first[:1])

    def full(handle, payload):
        if len(payload) < 40:
            raise OSError(28, "No space left on device")
        return real(handle, payload[: len(payload) // 2])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(LogUnusable, match="No space left"):
            log.append([("a", first[1:])])
    write(log, "a", first[1:])
    assert log.head("a") == FolderLog(log.folder).head("a") == Head(3, first[-1].hash)
    assert len(list(logged_entries(log))) == 3


def _broken(handle):
    raise OSError(5, "Input/output error")


def test_after_a_failed_sync_nobody_is_answered_until_the_lines_are_written_again(log, monkeypatch):
    first = chain(4)
    write(log, "a", first[:1])
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", _broken)
        with pytest.raises(LogUnusable, match="a sync failed"):
            log.append([("a", first[1:2])])
        for step in (lambda: log.append([("a", first[1:3])]), lambda: log.head("a"), log.sync):
            with pytest.raises(LogUnusable, match="a sync failed"):
                step()
        with pytest.raises(LogUnusable, match="Input/output error"):
            FolderLog(log.folder).require_writable()
    path = log.segments()[-1]
    before = path.stat().st_mtime_ns
    monkeypatch.setattr(files, "_MEND_SECONDS", 0.0)
    log._try_again = 0.0
    log.require_room()
    assert path.stat().st_mtime_ns > before  # another sync alone would succeed, and prove nothing
    write(log, "a", first[2:])
    assert FolderLog(log.folder).head("a") == log.head("a") == Head(4, first[-1].hash)


def test_a_sync_that_fails_once_is_mended_at_once(log, monkeypatch):
    real, calls = os.fsync, []

    def once(handle):
        calls.append(handle)
        return _broken(handle) if len(calls) == 1 else real(handle)

    monkeypatch.setattr(os, "fsync", once)
    write(log, "a", chain(2))
    assert len(list(logged_entries(log))) == 2


def test_lines_that_a_failed_sync_lost_are_not_made_up(log, monkeypatch):
    write(log, "a", chain(1))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", _broken)
        with pytest.raises(LogUnusable):
            log.append([("a", chain(2)[1:])])
    path, log._try_again = log.segments()[-1], 0.0
    data = path.read_bytes()
    with path.open("r+b") as file:  # what the disk held before
        file.seek(len(data) - 40)
        file.write(bytes(40))
    with pytest.raises(LogUnusable, match="lines were lost"):
        log.require_room()


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 8 MB; where this process may mount none, there is no such test."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "none", str(folder)], check=False
    ).returncode:
        pytest.skip("no disk can be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder):
    """The disk is full to the last block; returns what fills it."""
    filler = folder / "filler"
    with filler.open("wb") as file, suppress(OSError):
        while True:
            os.write(file.fileno(), bytes(4096))
    return filler


def test_what_is_begun_finds_room_on_a_full_disk_and_nothing_begins_until_there_is_more(small_disk):
    log, entries = FolderLog(small_disk / "log"), chain(4000)
    log.begin()
    log.require_room()
    filler = fill(small_disk)
    log.require_room()
    log.require_writable()
    assert log.append([("a", entries)]) == [None]
    for _ in range(2):
        with pytest.raises(LogUnusable, match="No space left"):
            log.require_room()
        with pytest.raises(LogUnusable, match="No space left"):
            FolderLog(log.folder).require_writable()
    assert not list(log.folder.glob("room.*"))
    filler.unlink()
    log.require_writable()
    assert log.append([("b", chain(1, of="b"))]) == [None]
    assert len(list(logged_entries(log))) == 4001


def test_what_others_wrote_is_synced_before_anybody_relies_on_it(log, monkeypatch):
    other, synced, real = FolderLog(log.folder), [], os.fsync
    write(other, "a", chain(1))
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(handle) or real(handle))
    assert log.head("a").seq == 1
    log.sync()
    log.sync()
    assert len(synced) == 1


def _cut(path):
    os.truncate(path, path.stat().st_size // 2)


def _exchange(path):
    path.with_name("copy").write_bytes(path.read_bytes())
    path.with_name("copy").rename(path)


def _write_over(path):
    """Another last line in the same file, as long as the one before."""
    data = path.read_bytes()
    path.write_bytes(data[:-10] + bytes([data[-10] ^ 1]) + data[-9:])


@pytest.mark.parametrize("change", [_cut, _exchange, _write_over])
def test_a_file_that_is_cut_or_exchanged_under_a_running_process_is_noticed(log, change):
    write(log, "a", chain(5))
    change(log.segments()[-1])
    with pytest.raises(LogUnusable):
        log.append([("a", chain(6)[5:])])


def test_every_change_of_a_byte_is_noticed_by_the_whole_look(log):
    write(log, "a", chain(18))
    paths = log.segments()
    assert len(paths) > 2
    for path in paths:
        data = path.read_bytes()
        for place in range(0, len(data), 41):
            changed = bytearray(data)
            changed[place] ^= 1
            path.write_bytes(changed)
            try:
                found = list(logged_entries(log))
            except LogUnusable:
                continue
            finally:
                path.write_bytes(data)
            assert path == paths[-1]
            assert len(found) < 18
    for lost in (paths[0], paths[1]):
        data = lost.read_bytes()
        lost.unlink()
        with pytest.raises(LogUnusable, match="missing"):
            list(logged_entries(log))
        lost.write_bytes(data)
    lines = paths[-1].read_bytes().splitlines(keepends=True)
    # one left out, two exchanged
    for others in (lines[:1] + lines[2:], [*lines[:-2], lines[-1], lines[-2]]):
        if others != lines and len(lines) > 2:
            paths[-1].write_bytes(b"".join(others))
            with pytest.raises(LogUnusable):
                list(logged_entries(log))


def test_a_line_with_private_values_is_another_or_unusable_whichever_byte_changes():
    """With every byte changed, bit by bit, and as no writer writes it: deep, or beyond a double."""
    body = {"parameters": {"prompt": "größer"}, "reason": "a reason", "ex_post": {"cap": 1.5}}
    for kind in ("RESERVE", "COMMIT"):
        document = {
            "version": 2,
            "kind": kind,
            "actor": "ada",
            "body": body,
            "dataset": "a",
            "previous": GENESIS,
        }
        document = sealed(document, b"x" * 32)
        entry = Logged(1, GENESIS, digest(document), canonical(document).decode())
        line = lines.append(lines.Position(0, GENESIS, {}), "a", entry)
        assert lines.follow(lines.Position(0, GENESIS, {}), line, thorough=True) == ("a", entry)
        strange = [
            line[:-1] + more + b"}"
            for more in (b',"x":' + b"[" * 9999 + b"]" * 9999, b',"n":1e999')
        ]
        strange += [
            line.replace(b'"dataset":"a"', b'"dataset":' + other, 1)
            for other in (b"[]", b"null", b"1e999")
        ]
        strange.append(
            line.replace(b'"cap":', b'"cap":{},"cop":') if kind == "RESERVE" else line[:-9]
        )
        changes = [(place, bit) for place in range(len(line)) for bit in (1, 2, 32, 128)]
        for changed in strange + [
            line[:place] + bytes([line[place] ^ bit]) + line[place + 1 :] for place, bit in changes
        ]:
            with pytest.raises(LogUnusable):
                lines.follow(lines.Position(0, GENESIS, {}), changed, thorough=True)


def test_lines_are_canonical_json(log):
    write(log, 'na"me', chain(1, of='na"me'))
    header, line = log.segments()[0].read_bytes().splitlines()
    for each in (header, line):
        assert canonical(json.loads(each)) == each
    assert json.loads(header)["prev"] == GENESIS


def test_a_child_that_was_forked_within_the_lock_does_not_keep_it(log, monkeypatch):
    children, real = [], lines.append

    def forking(*arguments):
        child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(30,))
        child.start()
        children.append(child)
        return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(lines, "append", forking)
        write(log, "a", chain(1))
    try:
        with (log.folder / "lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        for child in children:
            child.kill()
            child.join()
