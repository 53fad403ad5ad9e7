"""The log on a folder: tiles as C2SP names them, read as the tree of any size that was written."""

import pytest

from accountant.core.errors import VerificationFailed
from accountant.core.transparency.merkle import (
    check_consistency,
    check_inclusion,
    leaf_hash,
    root_of,
)
from accountant.core.transparency.tiles import Tiles, drop_partial, extend, tile_path


def entries(count: int, start: int = 0) -> list[bytes]:
    return [f"entry {number}".encode() for number in range(start, start + count)]


HASHES = [leaf_hash(each) for each in entries(66_000)]
SIZES = (0, 1, 7, 255, 256, 257, 1000, 65_535, 65_536, 66_000)


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """A log that was extended to each of the sizes."""
    folder = tmp_path_factory.mktemp("log")
    size = 0
    for wanted in SIZES:
        size = extend(folder, size, entries(wanted - size, size))
        assert size == wanted
    return folder


def test_paths():
    assert tile_path(1, 1_234_067) == "tile/1/x001/x234/067"
    assert tile_path("entries", 5, 17) == "tile/entries/005.p/17"
    assert tile_path(0, 1000) == "tile/0/x001/000"


def test_files_are_those_of_the_specification(log):
    """A tree of 66,000: 257 full tiles, one of 208; one full above them, one of 1; one of 1 at the
    top.
    """
    assert (log / "tile/0/256").stat().st_size == 8192
    assert (log / "tile/0/257.p/208").stat().st_size == 32 * 208
    assert (log / "tile/1/000").stat().st_size == 8192
    assert (log / "tile/1/001.p/1").read_bytes() == root_of(HASHES[65_536:65_792])
    assert (log / "tile/2/000.p/1").read_bytes() == root_of(HASHES[:65_536])
    assert (log / "tile/entries/000").read_bytes()[:9] == b"\x00\x07entry 0"


@pytest.mark.parametrize("size", SIZES)
def test_every_size_is_read_back(log, size):
    tiles = Tiles(log, size)
    root = root_of(HASHES[:size])
    assert tiles.root() == root
    for index in {0, 1, size // 2, size - 1} & set(range(size)):
        check_inclusion(HASHES[index], index, size, root, tiles.inclusion(index))
    for first in SIZES:
        if first <= size:
            check_consistency(first, size, root_of(HASHES[:first]), root, tiles.consistency(first))
    if size <= 1000:
        assert list(tiles.leaves()) == entries(size)
        assert list(tiles.leaves(size // 2)) == entries(size)[size // 2 :]
        tiles.check()


def test_partial_files_end_when_the_full_one_is_there(log):
    drop_partial(log)
    assert not (log / "tile/0/000.p").exists()
    assert (log / "tile/0/257.p").exists()
    for size in SIZES:  # what was partial is read from what took its place
        assert Tiles(log, size).root() == root_of(HASHES[:size])
    assert list(Tiles(log, 257).leaves()) == entries(257)


def test_another_history_in_the_same_place_is_refused(tmp_path):
    extend(tmp_path, 0, entries(300))
    with pytest.raises(VerificationFailed, match="has another tile/0/000 already"):
        extend(tmp_path, 0, [b"other", *entries(299, 1)])
    with pytest.raises(VerificationFailed, match="already"):
        extend(tmp_path, 256, [b"other", *entries(43, 257)])
    assert extend(tmp_path, 256, entries(44, 256)) == 300  # the same again, as after a crash


def test_what_was_changed_on_the_disk_is_noticed(tmp_path):
    extend(tmp_path, 0, entries(300))
    bundle = tmp_path / "tile/entries/001.p/44"
    bundle.write_bytes(bundle.read_bytes().replace(b"entry 260", b"entry 261"))
    with pytest.raises(VerificationFailed, match="entry 260 of the log is not that of its tree"):
        list(Tiles(tmp_path, 300).leaves())
    bundle.write_bytes(bundle.read_bytes()[:-1])
    with pytest.raises(VerificationFailed, match="cut off"):
        list(Tiles(tmp_path, 300).leaves())
    top = tmp_path / "tile/1/000.p/1"
    top.write_bytes(bytes(32))
    with pytest.raises(VerificationFailed, match="not those of its entries"):
        Tiles(tmp_path, 256).check()
    top.unlink()
    with pytest.raises(VerificationFailed, match="has no tile/1/000"):
        Tiles(tmp_path, 300).root()


def test_an_entry_that_no_bundle_holds_is_refused(tmp_path):
    with pytest.raises(ValueError, match="at most 65535"):
        extend(tmp_path, 0, [bytes(65_536)])
