"""Signed heads in an object store: each is created once, and no signer takes one back."""

import hashlib
import time
import uuid
from contextlib import suppress
from unittest import mock

import fsspec
import pytest

from accountant.core.errors import DataError, LogUnusable, VerificationFailed
from accountant.core.transparency.proofs import leaf
from accountant.core.transparency.tiles import Tiles, extend
from accountant.core.transparency.witnesses import LogSigner
from accountant.ledger_log import kept_heads
from accountant.ledger_log.homes import log_at
from accountant.ledger_log.kept_heads import KeptObjects
from accountant.ledger_log.signed import SignedPlaces
from accountant.results import S3_BLOCK_BYTES, S3_LIMITS, Changed, Results
from accountant.settings import Settings
from tests.object_stores import CEPH, bucket, ceph, frozen, s3
from workers.data import manifest

pytestmark = pytest.mark.slow

ORIGIN, SEED = "exchequer.example/log", b"s" * 32
__all__ = ["bucket", "ceph", "s3"]


@pytest.fixture(params=["memory", "s3", CEPH])
def address(request) -> str:
    """A place of its own in a store: one in memory, and one that speaks S3 where there is one."""
    root = (
        "memory://" if (kind := request.param) == "memory" else f"{request.getfixturevalue(kind)}/"
    )
    return f"{root}{uuid.uuid4().hex}"


def tiles(folder, count: int, word: str = "") -> Tiles:
    """The tiles of a log of so many entries; `word`: of another log."""
    leaves = [leaf("notes", seq, f"{word}{seq:0{64 - len(word)}x}") for seq in range(1, count + 1)]
    extend(folder, 0, leaves)
    return Tiles(folder, count)


def test_heads_move_on_and_every_one_stays(address, tmp_path):
    signer = LogSigner(KeptObjects(address), ORIGIN, SEED)
    assert signer.newest.size == 0
    for size in (3, 5, 5000):
        made = tiles(tmp_path / str(size), size)
        assert signer.sign(made) == signer.sign(made)
        assert LogSigner(KeptObjects(address), ORIGIN, SEED).newest.size == size
    with pytest.raises(VerificationFailed, match="5,000 were signed"):
        signer.sign(tiles(tmp_path / "fewer", 4))
    with pytest.raises(VerificationFailed):
        signer.sign(tiles(tmp_path / "others", 6000, "f"))
    signer.heed(6001)
    found = {(head.size, leaf_digest is None) for head, leaf_digest in KeptObjects(address).all()}
    assert found == {(5000, False), (6001, True)}
    system, path = fsspec.core.url_to_fs(address, use_listings_cache=False)
    assert len(system.find(path)) == 5  # three heads, what a witness saw, and the probe


def test_of_two_signers_at_once_one_signs_at_most(address, tmp_path):
    """Both have read the same head; each then makes another tree of it."""
    LogSigner(KeptObjects(address), ORIGIN, SEED).sign(tiles(tmp_path / "both", 3))
    for number, sizes in enumerate([(5, 5), (5, 6), (9, 7)]):
        first, second = (KeptObjects(f"{address}/{number}") for _ in range(2))
        LogSigner(first, ORIGIN, SEED).sign(tiles(tmp_path / f"{number} base", 3))
        one = tiles(tmp_path / f"{number} one", sizes[0])
        leaves = [leaf("notes", seq, f"{seq:064x}") for seq in range(1, 4)]
        leaves += [leaf("notes", seq, f"f{seq:063x}") for seq in range(4, sizes[1] + 1)]
        extend(tmp_path / f"{number} other", 0, leaves)
        other = Tiles(tmp_path / f"{number} other", sizes[1])
        read = second.newest(ORIGIN)
        LogSigner(first, ORIGIN, SEED).sign(one)
        late = LogSigner(second, ORIGIN, SEED)
        with (
            mock.patch.object(second, "newest", lambda _, read=read: read),
            pytest.raises(VerificationFailed, match=r"another (head|signer)"),
        ):
            late.sign(other)


def test_a_store_that_replaces_objects_keeps_no_head(address, tmp_path):
    kept = KeptObjects(address)
    system, path = kept._store

    def replacing(name, content, mode):
        type(system).pipe_file(system, name, content)

    with (
        mock.patch.object(system, "pipe_file", replacing),
        pytest.raises(OSError, match="knows no If-None-Match"),
    ):
        LogSigner(kept, ORIGIN, SEED).sign(tiles(tmp_path / "log", 3))
    assert system.find(path) == [f"{path}/probe.json"]


@pytest.mark.parametrize("address", ["memory"], indirect=True)
def test_a_head_that_is_there_is_found_whatever_the_library_calls_it(address, tmp_path):
    """The gateway of Ceph says nothing that s3fs knows as a file that exists."""
    kept = KeptObjects(address)
    system, _ = kept._store
    real = type(system).pipe_file

    def pipe_file(name, content, mode):
        try:
            real(system, name, content, mode=mode)
        except FileExistsError:
            cause = Exception()
            cause.response = {"Error": {"Code": "PreconditionFailed"}}
            raise OSError(22, None) from cause

    with mock.patch.object(system, "pipe_file", pipe_file):
        for size in (3, 5):
            LogSigner(kept, ORIGIN, SEED).sign(tiles(tmp_path / str(size), size))
        assert kept.newest(ORIGIN).size == 5


def test_every_process_compares_its_log_with_it(address, tmp_path):
    """An older copy of the log is found by what was signed, and while the store is away too."""
    places = SignedPlaces(None, address)
    assert log_at(tmp_path / "log", signed=places).position().n == 0
    LogSigner(KeptObjects(address), ORIGIN, SEED).sign(tiles(tmp_path / "tree", 3))
    log = log_at(tmp_path / "log", signed=places)
    with pytest.raises(LogUnusable, match="3 were signed"):
        log.position()
    away = mock.patch.object(KeptObjects, "_names", side_effect=OSError("away"))
    with away, pytest.raises(LogUnusable, match="3 were signed"):
        log_at(tmp_path / "log", signed=places).position()
    with (
        away,
        mock.patch.dict(kept_heads._last_read, clear=True),
        pytest.raises(LogUnusable, match="what was signed of it can't be read"),
    ):
        log_at(tmp_path / "log", signed=places).position()


def test_objects_are_looked_at_now_and_then(address):
    places = SignedPlaces(None, address)
    with mock.patch("accountant.ledger_log.signed.time") as clock:
        states = []
        for moment in (60.0, 61.0, 91.0):
            clock.monotonic.return_value = moment
            states.append(places.state())
    assert states[0] == states[1] != states[2]


def test_the_setting_names_a_folder_or_an_address(tmp_path):
    made = Settings(home=tmp_path, signed_logs_folder="s3://bucket/signed")
    assert made.signed_logs == "s3://bucket/signed"
    assert Settings(home=tmp_path, signed_logs_folder=str(tmp_path)).signed_logs == tmp_path
    assert Settings(home=tmp_path).signed_logs == tmp_path / "signed-logs"


# --- results and data -----------------------------------------------------------------------------


def test_results_lie_in_a_bucket(bucket):
    results = Results(f"{bucket}/{uuid.uuid4().hex}")
    name = f"{uuid.uuid4()}.{uuid.uuid4()}.0"
    with results.create(name, reserved=10) as file:
        file.write(b"a draft")
    assert [each[0] for each in results.drafts()] == [name]
    assert results.draft(name).read() == b"a draft"
    results.remove(name)
    assert results.drafts() == []
    content = b"text of a job" * 10_000
    sha256 = hashlib.sha256(content).hexdigest()
    results.publish(sha256, lambda: iter([content]))
    assert results.open(sha256).read() == content
    fsspec.filesystem("s3").pipe_file(f"{results.root.removeprefix('s3://')}/{sha256}", b"other")
    with pytest.raises(Changed):
        results.open(sha256).read()


def test_what_ends_before_its_end_replaces_nothing(bucket):
    """Two workers publish one draft: the first one destroys it while the second one reads it."""
    results, content = Results(f"{bucket}/{uuid.uuid4().hex}"), b"text of a job" * 10_000
    sha256 = hashlib.sha256(content).hexdigest()
    results.publish(sha256, lambda: iter([content]))
    reads = []

    def cut_off():
        reads.append(content)
        yield content[:70_000]
        if len(reads) == 2:
            raise FileNotFoundError
        yield content[70_000:]

    with pytest.raises(FileNotFoundError):
        results.publish(sha256, cut_off)
    assert results.open(sha256).read() == content
    name = f"{uuid.uuid4()}.{uuid.uuid4()}.0"
    with suppress(FileNotFoundError), results.create(name) as file:
        file.write(b"half")
        raise FileNotFoundError
    assert results.drafts() == []


def test_a_large_file_is_sent_in_parts_that_each_end_in_time(bucket, monkeypatch):
    results, block = Results(f"{bucket}/{uuid.uuid4().hex}"), b"x" * 2**20
    sent = []
    system = results._store._system
    real = type(system)._call_s3

    async def call(self, method, *args, **values):
        sent.append((method, len(values.get("Body", b""))))
        return await real(self, method, *args, **values)

    monkeypatch.setattr(type(system), "_call_s3", call)
    with results.create(f"{uuid.uuid4()}.{uuid.uuid4()}.0", reserved=1) as file:
        for _ in range(20):
            file.write(block)
    lengths = [length for method, length in sent if method == "upload_part"]
    assert lengths == [S3_BLOCK_BYTES, S3_BLOCK_BYTES, 20 * 2**20 - 2 * S3_BLOCK_BYTES]


def test_what_another_process_writes_is_listed_and_read_whole(bucket):
    results, name = Results(f"{bucket}/{uuid.uuid4().hex}"), f"{uuid.uuid4()}.{uuid.uuid4()}.0"
    with results.create(name) as file:
        file.write(b"a draft")
    assert len(results.drafts()) == 1
    other = fsspec.filesystem("s3", skip_instance_cache=True)
    folder = f"{results.root}/drafts"
    other.pipe_file(f"{folder}/{name}", b"a longer draft")
    other.pipe_file(f"{folder}/{uuid.uuid4()}.{uuid.uuid4()}.0", b"another draft")
    assert len(results.drafts()) == 2
    assert results.draft(name).read() == b"a longer draft"


def test_a_bucket_that_is_not_there_is_a_problem(bucket):
    assert Results(f"{bucket}/empty").problem() is None
    missing = Results("s3://no-such-bucket/results").problem()
    assert missing == "results can't be read: the bucket is not there"


def test_each_call_of_a_store_that_freezes_ends(s3, monkeypatch):
    """What sends waits for leave to send, which no time limit of the library bounds."""
    monkeypatch.setitem(S3_LIMITS, "read_timeout", 0.4)
    address = f"{s3}/{uuid.uuid4().hex}"
    results, content = Results(address), b"text of a job"
    sha256 = hashlib.sha256(content).hexdigest()
    results.publish(sha256, lambda: iter([content]))
    monkeypatch.setattr("accountant.results.S3_SECONDS", 1)
    began = time.monotonic()
    with frozen():
        assert results.problem() is not None
        for step in (
            lambda: results.open(sha256),
            lambda: results.publish(sha256, lambda: iter([content])),
            lambda: KeptObjects(address).witnessed(ORIGIN, 3),
        ):
            with pytest.raises(Exception, match=r"^(Read timeout .*|)$"):
                step()
    assert time.monotonic() - began < 20
    assert results.open(sha256).read() == content


def test_data_in_a_bucket_that_changed_since_it_was_registered_is_not_read(bucket):
    address = f"{bucket}/{uuid.uuid4().hex}.csv"
    store = fsspec.filesystem("s3")
    store.pipe_file(address, b"text\nfirst\nsecond\n")
    registered = manifest.of(address)
    manifest.fetch(address, registered)
    store.pipe_file(address, b"text\nother\npeople\n")  # as many bytes
    with pytest.raises(DataError, match="other bytes than when it was registered"):
        manifest.fetch(address, registered)
    store.rm_file(address)
    with pytest.raises((DataError, OSError)):
        manifest.fetch(address, registered)
