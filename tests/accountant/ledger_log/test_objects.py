"""The log in an object store: two never write one number, and what a store may do is borne."""

import importlib.util
import uuid
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from unittest import mock

import pytest

from accountant.core.errors import LedgerBehind, LogUnusable
from accountant.ledger_log import objects
from accountant.ledger_log.homes import log_at
from accountant.ledger_log.lines import Head
from accountant.ledger_log.log import entries as logged_entries
from accountant.ledger_log.objects import ObjectLog
from accountant.results import place_at
from tests.accountant.ledger_log.test_files import chain, write
from tests.object_stores import CEPH, Prefix, answering_503, bucket, ceph, frozen, s3

pytestmark = pytest.mark.slow

__all__ = ["bucket", "ceph", "s3"]


@pytest.fixture
def place(bucket) -> Prefix:
    return Prefix(f"{bucket}/{uuid.uuid4().hex}")


@pytest.fixture
def log(place) -> ObjectLog:
    made = ObjectLog(place, together=8)
    made.begin()
    return made


#: For tests that stop the store's server.
moto_alone = pytest.mark.parametrize("bucket", ["s3"], indirect=True)


def another(log) -> ObjectLog:
    return ObjectLog(log.place, together=8)


def name(first: int) -> str:
    return f"entries/{first // 8:016}/{first:020}.jsonl"


def whole(log) -> list[tuple[str, int]]:
    return [(dataset, entry.seq) for _, dataset, entry in logged_entries(another(log))]


def test_of_two_writers_of_one_number_one_creates_it_and_the_other_goes_on_after_it(log):
    other = another(log)
    write(log, "a", chain(2))
    assert other.head("a").seq == 2
    write(log, "a", chain(3)[2:])  # the other one stands at 2, and takes the same number
    assert other.append([("b", chain(1, of="b"))]) == [None]
    assert whole(log) == [("a", 1), ("a", 2), ("a", 3), ("b", 1)]
    write(log, "b", chain(2, of="b")[1:])
    (outcome,) = other.append([("b", chain(1, Head(1, chain(1, of="b")[-1].hash), "x", "b"))])
    assert isinstance(outcome, LedgerBehind)
    assert whole(log)[4:] == [("b", 2)]


def test_of_two_who_begin_a_log_one_does(place):
    first, second = ObjectLog(place), ObjectLog(place)
    with mock.patch.object(ObjectLog, "_read_lines"), pytest.raises(LogUnusable):
        second.begin()  # it wrote the header, and has not read it
    second._try_again = 0.0
    assert first.begin() == second.begin() == ObjectLog(place).identity


@pytest.mark.parametrize("bucket", [CEPH], indirect=True)
def test_of_many_who_create_one_name_at_once_one_does(place):
    """Each writer has connections of its own. (moto's order is that of a lock in tests.)"""
    writers = [ObjectLog(place) for _ in range(8)]
    for each in writers:
        each._store = opened_apart(each)
        assert each._get("race") is None  # it is connected
    with ThreadPoolExecutor(len(writers)) as threads:
        for number in range(25):
            name, start = f"race/{number}", Barrier(len(writers))

            def create(mark, name=name, start=start):
                start.wait(30)
                return writers[mark]._create(name, b"%d" % mark)

            created = list(threads.map(create, range(len(writers))))
            assert sum(created) == 1
            assert writers[0]._get(name) == b"%d" % created.index(True)


def opened_apart(log):
    system, root = place_at(log.place, use_listings_cache=False, skip_instance_cache=True)
    return lambda: (system, root)


def test_an_append_is_one_put_however_many_datasets_there_are(place):
    log = ObjectLog(place)
    log.begin()
    groups = [(f"d{number}", chain(1, of=f"d{number}")) for number in range(900)]
    assert set(log.append(groups)) == {None}
    calls: list[str] = []
    system, _ = log._store()
    real = system._call_s3

    async def counted(method, *args, **values):
        calls.append(method)
        return await real(method, *args, **values)

    system._call_s3 = counted
    try:
        write(log, "a", chain(1))
        assert calls == ["put_object"]
        calls.clear()
        assert log.head("a").seq == 1
        assert calls == ["get_object"]
    finally:
        system._call_s3 = real


# --- a store that is away -------------------------------------------------------------------------


@moto_alone
@pytest.mark.parametrize(
    ("away", "error"), [(answering_503, "OSError"), (frozen, "FSTimeoutError")]
)
def test_each_call_ends_where_the_store_does_not_answer(log, monkeypatch, away, error):
    monkeypatch.setattr(objects, "CALL_SECONDS", 0.5)  # before any limit of the library
    write(log, "a", chain(1))
    with away():
        for step in (
            lambda: log.head("a"),
            log.require_room,
            lambda: log.append([("a", chain(2)[1:])]),
            log.require_writable,
            lambda: whole(log),
            another(log).begin,
            lambda: log.entry_at(1),
            log.is_empty,
        ):
            log._try_again = 0.0
            with pytest.raises(LogUnusable, match=rf"can't be (read|written) at s3://.*: {error}"):
                step()
    monkeypatch.undo()
    log._try_again = 0.0
    log.require_room()  # writes the entry that nobody was answered for
    assert whole(log) == [("a", 1), ("a", 2)]


def test_a_library_that_is_missing_is_named():
    if importlib.util.find_spec("gcsfs") is not None:
        pytest.skip("it is installed")
    with pytest.raises(LogUnusable, match="gcsfs"):
        log_at("gs://bucket/log").head("a")


def test_after_a_call_that_failed_nobody_waits_for_the_next(log):
    write(log, "a", chain(1))
    away = mock.patch.object(ObjectLog, "_get", side_effect=OSError(5, "away"))
    with away, pytest.raises(LogUnusable):
        log.head("a")
    with mock.patch.object(ObjectLog, "_get") as asked, pytest.raises(LogUnusable):
        log.head("a")
    assert not asked.called


def test_a_write_without_an_answer_stands_once(log):
    """It was written, is written later, or never: whoever comes next finds out."""
    real = ObjectLog._create
    late = []

    def lost(self, name, content):
        late.append((name, content))
        raise TimeoutError

    def unheard(self, name, content):
        real(self, name, content)
        raise TimeoutError

    for seq, create in enumerate([unheard, lost], 1):
        with mock.patch.object(ObjectLog, "_create", create), pytest.raises(LogUnusable):
            log.append([("a", chain(seq)[seq - 1 :])])
        log._try_again = 0.0
        write(log, "a", chain(seq)[seq - 1 :])
        assert [real(log, *each) for each in late] == [False] * len(late)
    assert whole(log) == [("a", 1), ("a", 2)]
    with mock.patch.object(ObjectLog, "_create", lost), pytest.raises(LogUnusable):
        log.append([("a", chain(3)[2:])])
    write(another(log), "b", chain(1, of="b"))  # in its place
    log._try_again = 0.0
    log.require_room()
    assert whole(log) == [("a", 1), ("a", 2), ("b", 1)]


def test_a_store_that_replaces_objects_is_not_written_to(place, log):
    write(log, "a", chain(1))
    system, _ = log._store()

    def replacing(name, content, mode, timeout):
        type(system).pipe_file(system, name, content)

    with mock.patch.object(system, "pipe_file", replacing):
        for step in (
            ObjectLog(f"{place}-new").begin,
            log.require_writable,
            lambda: another(log).append([("a", chain(2)[1:])]),
        ):
            with pytest.raises(LogUnusable, match="knows no If-None-Match"):
                step()
    assert whole(log) == [("a", 1)]


# --- what listings and objects say ----------------------------------------------------------------


@pytest.mark.parametrize("left", [0, 1, 3])
def test_a_listing_that_leaves_out_objects_hides_no_entry(log, left):
    entries = chain(40)
    write(log, "a", entries)
    real = ObjectLog._numbers
    partial = mock.patch.object(
        ObjectLog, "_numbers", lambda self, folder: real(self, folder)[:left]
    )
    with partial:
        assert another(log).head("a") == Head(40, entries[-1].hash)
        assert len(whole(log)) == 40
        assert [log.entry_at(n)[2] for n in (1, 8, 9, 40)] == [1, 8, 9, 40]
        write(another(log), "b", chain(1, of="b"))
    assert log.head("b").seq == 1


@pytest.mark.parametrize("lost", [name(3), name(20), name(43)])
def test_an_object_that_was_deleted_is_noticed_by_whoever_reads_it_all(place, log, lost):
    write(log, "a", chain(44))
    Prefix(f"{place}/{lost}").remove()
    with pytest.raises(LogUnusable, match="one of its objects is missing"):
        whole(log)
    if lost == name(43):  # the one of those that a process that starts reads
        later = another(log)
        for _ in range(2):
            with pytest.raises(LogUnusable, match="one of its objects is missing"):
                later.head("a")


def test_a_header_that_was_lost_costs_time_alone(place, log):
    write(log, "a", chain(40))
    headers = [each for each in place.files() if "/heads/" in each]
    assert len(headers) == 6
    for header in headers[1:]:
        Prefix(header).remove()
    assert another(log).head("a").seq == 40
    assert len(whole(log)) == 40
    Prefix(headers[0]).remove()
    with pytest.raises(LogUnusable, match="missing"):
        another(log).head("a")


@pytest.mark.parametrize("change", [b"", b"x\n"])
def test_an_object_that_was_replaced_is_noticed_by_the_next_probe(place, log, change):
    write(log, "a", chain(3))
    log.require_writable()
    place.write(name(3), change)
    with pytest.raises(LogUnusable, match=r"is not what it was|can't be read"):
        log.require_writable()


def test_of_an_object_with_a_wrong_line_nothing_is_taken(place, log):
    other, entries = another(log), chain(3)
    assert other.head("a").seq == 0
    assert log.append([("a", entries)]) == [None]
    first, second, third = place.read(name(1)).splitlines(keepends=True)
    for wrong in (first + third, first + second + third[:-9], first + second.replace(b"a", b"b")):
        place.write(name(1), wrong)
        for _ in range(2):
            with pytest.raises(LogUnusable):
                other.head("a")
        with pytest.raises(LogUnusable):
            whole(log)
    place.write(name(1), first + second + third)
    assert other.head("a").seq == 3
