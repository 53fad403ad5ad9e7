"""The log published in a folder or an object store: the same files, by the same steps."""

import signal
import subprocess
import sys
import uuid
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from unittest import mock

import fsspec
import pytest

from accountant.core.errors import LogUnusable, VerificationFailed
from accountant.core.transparency.notes import key_of
from accountant.core.transparency.proofs import check_head
from accountant.core.transparency.publication import checkpoint, proof_of, publish
from accountant.core.transparency.tiles import Tiles, extend
from accountant.core.transparency.witnesses import LogSigner
from accountant.ledger_log import published, signed
from accountant.ledger_log.homes import log_at
from accountant.ledger_log.publication import published_key
from accountant.ledger_log.published import files_at
from accountant.ledger_log.signed import SignedPlaces
from accountant.settings import Settings
from tests.object_stores import CEPH, answering_503, ceph, frozen, full, s3

pytestmark = pytest.mark.slow

ORIGIN, SEED = "exchequer.example/log", b"s" * 32
#: Three datasets in turn, over more than a tile of tiles' first row.
ENTRIES = [(f"set-{n % 3}", n // 3 + 1, f"{n:064x}") for n in range(700)]
SIZES = (1, 100, 256, 300, 301, 600, 700)
__all__ = ["ceph", "s3"]


@pytest.fixture(params=["memory", "s3", CEPH])
def address(request) -> str:
    """A place of its own in a store: one in memory, and one that speaks S3."""
    kind = request.param
    root = "memory:/" if kind == "memory" else request.getfixturevalue(kind)
    return f"{root}/{uuid.uuid4().hex}"


@pytest.fixture
def bucket(s3) -> str:
    return f"{s3}/{uuid.uuid4().hex}"


def signer(tmp_path: Path) -> LogSigner:
    return LogSigner(tmp_path / "memory", ORIGIN, SEED)


def published_to(place: Path | str, by: LogSigner, size: int, entries=ENTRIES) -> None:
    publish(files_at(place), lambda count: iter(entries[count:size]), by)


def objects(address: str) -> dict[str, bytes]:
    system, root = fsspec.core.url_to_fs(address, use_listings_cache=False)
    return {path.removeprefix(f"{root}/"): system.cat_file(path) for path in system.find(root)}


def test_a_store_holds_what_a_folder_holds_at_each_publication(address, tmp_path):
    folder = tmp_path / "public"
    for before, size in pairwise((0, *SIZES)):
        for place, memory in ((folder, "one"), (address, "two")):
            published_to(place, LogSigner(tmp_path / memory, ORIGIN, SEED), size)
        there = {
            str(path.relative_to(folder)): path.read_bytes()
            for path in folder.rglob("*")
            if path.is_file() and path.name != "lock"
        }
        assert objects(address) == there, (before, size)
    text, tiles = checkpoint(files_at(address))
    assert check_head(text, key_of(ORIGIN, SEED))[0].size == 700
    tiles.check()
    for name in ("set-0", "set-1", "set-2"):
        for most in (1, 90, 500):
            found = proof_of(files_at(address), name, most)
            assert found is not None
            assert found == proof_of(folder, name, most)
    assert proof_of(files_at(address), "another", 5) is None


KILLED = """
import os, signal, sys
from pathlib import Path
from accountant.core.transparency.publication import publish
from accountant.core.transparency.witnesses import LogSigner
from accountant.ledger_log.published import files_at
from tests.accountant.ledger_log.test_published import ENTRIES, ORIGIN, SEED
place, memory, when = sys.argv[1:]
files = files_at(place)
if when == "signed":
    replace = files.replace
    def killed(name, data):
        if name == "checkpoint":
            os.kill(os.getpid(), signal.SIGKILL)
        replace(name, data)
    files.replace = killed
elif when == "written":
    LogSigner.sign = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
else:
    files.drop_partial = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
publish(files, lambda count: iter(ENTRIES[count:600]), LogSigner(Path(memory), ORIGIN, SEED))
"""


@pytest.mark.parametrize(
    ("home", "when"),
    [
        *(("folder", when) for when in ("written", "signed", "replaced")),
        ("s3", "signed"),
        *(pytest.param("s3", when, marks=pytest.mark.release) for when in ("written", "replaced")),
    ],
)
def test_a_publisher_killed_between_tiles_and_checkpoint(home, when, tmp_path, request):
    place: Path | str = tmp_path / "public"
    if home == "s3":
        place = request.getfixturevalue("bucket")
    published_to(place, signer(tmp_path), 300)
    command = [sys.executable, "-c", KILLED, str(place), str(tmp_path / "memory"), when]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    text, tiles = checkpoint(files_at(place))
    assert tiles.size == (600 if when == "replaced" else 300)  # an old one, or a new one
    tiles.check()
    assert check_head(text, key_of(ORIGIN, SEED))[0].root == tiles.root()
    assert proof_of(files_at(place), "set-0", 500)[0] == (tiles.size + 2) // 3
    published_to(place, signer(tmp_path), 700)
    assert checkpoint(files_at(place))[1].size == 700
    checkpoint(files_at(place))[1].check()


def test_another_tile_that_is_there_is_never_replaced(address, tmp_path):
    """Of two signers at once neither sees the other's tiles before it writes its own."""
    files = files_at(address)
    others = [("set-0", n + 1, f"f{n:063x}") for n in range(300)]
    published_to(address, signer(tmp_path), 300)
    held = objects(address)
    with mock.patch.object(type(files), "read", return_value=None):
        other = LogSigner(tmp_path / "other", ORIGIN, SEED)
        with pytest.raises(VerificationFailed, match="the log has another tile"):
            published_to(address, other, 300, others)
    assert objects(address) == held


def test_a_reader_of_a_checkpoint_that_was_replaced_finds_its_tiles(address, tmp_path):
    published_to(address, signer(tmp_path), 300)
    tiles = checkpoint(files_at(address))[1]
    published_to(address, signer(tmp_path), 700)  # the part of which it knows is gone
    assert not any("tile/entries/001.p" in name for name in objects(address))
    tiles.check()


# --- a store that is away -------------------------------------------------------------------------


@pytest.mark.parametrize("away", [answering_503, frozen])
def test_a_store_that_is_away_is_told_in_time(away, bucket, tmp_path, monkeypatch):
    monkeypatch.setattr(published, "CALL_SECONDS", 1.0)
    monkeypatch.setattr(signed, "LOOK_SECONDS", 1e-6)
    made = log_at(tmp_path / "log", signed=SignedPlaces(bucket))
    published_to(bucket, signer(tmp_path), 300)
    files = files_at(bucket)
    with away():
        for step in (
            lambda: files.read("checkpoint"),
            lambda: files.create("tile/x", b"x"),
            lambda: files.replace("key", b"x"),
            lambda: files.write_at("places/x", 8, b"x"),
            lambda: files.drop_partial(["tile/0/000"]),
            lambda: published_key(bucket),
            lambda: published_to(bucket, signer(tmp_path), 600),
            made.position,  # it was never read
        ):
            with pytest.raises(LogUnusable, match="what is published of it can't be") as told:
                step()
            assert away is answering_503 or "FSTimeoutError" in str(told.value)
    assert checkpoint(files)[1].size == 300
    assert "tile/x" not in objects(bucket)


def test_what_was_read_last_holds_while_the_store_is_away(bucket, tmp_path, monkeypatch):
    monkeypatch.setattr(signed, "LOOK_SECONDS", 1e-6)
    place = SignedPlaces(bucket)
    published_to(bucket, signer(tmp_path), 300)
    for away in (nullcontext, answering_503):
        with away():
            (head,) = place.heads()
            assert (head.size, head.log) == (300, ORIGIN)
            with pytest.raises(LogUnusable, match="300 were signed"):
                log_at(tmp_path / "log", signed=place).position()
    published_to(bucket, signer(tmp_path), 600)
    assert place.heads()[0].size == 600


def test_a_full_store_leaves_the_checkpoint_from_before(bucket, tmp_path):
    published_to(bucket, signer(tmp_path), 300)
    with full(bucket), pytest.raises(LogUnusable, match="can't be written"):
        published_to(bucket, signer(tmp_path), 600)
    assert checkpoint(files_at(bucket))[1].size == 300
    published_to(bucket, signer(tmp_path), 600)
    assert checkpoint(files_at(bucket))[1].size == 600


def test_a_missing_bucket_or_library_is_no_log_without_entries(s3):
    for place, named in (("s3://absent/log", "FileNotFoundError"), ("gs://bucket/log", "gcsfs")):
        with pytest.raises(LogUnusable, match=named):
            SignedPlaces(place).heads()


def test_a_garbled_checkpoint_stops_everything(bucket, tmp_path):
    published_to(bucket, signer(tmp_path), 300)
    SignedPlaces(bucket).heads()
    files_at(bucket).replace("checkpoint", b"[]")
    with pytest.raises(LogUnusable, match="what was signed of it can't be read"):
        SignedPlaces(bucket).heads()


def test_the_setting_names_a_folder_or_an_address(tmp_path):
    made = Settings(home=tmp_path, public_log="s3://bucket/log/")
    assert made.public_log == "s3://bucket/log"
    for given in (str(tmp_path / "log"), f"file://{tmp_path}/log"):
        assert Settings(home=tmp_path, public_log=given).public_log == tmp_path / "log"


def test_tiles_are_read_from_any_files(address):
    leaves = [b"%d" % n for n in range(10)]
    assert extend(files_at(address), 0, leaves) == 10
    assert list(Tiles(files_at(address), 10).leaves(4)) == leaves[4:]


def test_a_slower_signer_says_that_another_one_signed(tmp_path):
    """Without a lock; that entries are missing would be a false alarm."""
    made = signer(tmp_path)
    place = "memory://" + uuid.uuid4().hex
    files = files_at(place)

    def entries(count: int):
        yield from ENTRIES[count:300]
        published_to(place, signer(tmp_path), 400)

    with pytest.raises(VerificationFailed, match="another signer signed this log meanwhile"):
        publish(files, entries, made)
    assert checkpoint(files)[1].size == 400
