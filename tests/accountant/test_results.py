"""Files of the results folder are opened by their hash below the root, and compared before a byte
leaves.
"""

import hashlib
import os
from pathlib import Path
from uuid import uuid4

import fsspec
import pytest

from accountant.results import BLOCK_BYTES, Changed, Results, draft_name
from tests.support import put

SECRET = b"the web's own keys"
NAME = hashlib.sha256(SECRET).hexdigest()


@pytest.fixture
def root(tmp_path) -> Path:
    (tmp_path / "secret").write_bytes(SECRET)
    made = tmp_path / "results"
    made.mkdir()
    return made


@pytest.mark.parametrize(
    "name",
    [
        "../secret",
        "/proc/self/environ",
        "drafts",
        "",
        ".",
        "s3://elsewhere/x",
        "file:///proc/self/environ",
    ],
)
def test_what_is_no_hash_is_no_name(root, name):
    with pytest.raises(FileNotFoundError):
        Results(str(root)).open(name)
    for step in (Results(str(root)).create, Results(str(root)).draft):
        with pytest.raises(FileNotFoundError):
            step(name)


@pytest.mark.parametrize("kind", ["link", "link to a folder", "folder", "pipe"])
def test_nothing_but_a_file_is_opened(root, kind):
    match kind:
        case "link":
            (root / NAME).symlink_to(root.parent / "secret")
        case "link to a folder":
            (root / NAME).symlink_to(root.parent)
        case "folder":
            (root / NAME).mkdir()
        case "pipe":
            os.mkfifo(root / NAME)
    with pytest.raises(OSError):  # noqa: PT011
        Results(str(root)).open(NAME)
    assert Results(str(root)).facts(NAME) is None


def test_a_folder_of_drafts_that_leads_elsewhere_is_not_used(root):
    (root.parent / "elsewhere").mkdir()
    (root / "drafts").symlink_to(root.parent / "elsewhere")
    name = draft_name(uuid4(), uuid4(), "texts")
    with pytest.raises(OSError), Results(str(root)).create(name) as file:  # noqa: PT011
        file.write(b"x")
    assert os.listdir(root.parent / "elsewhere") == []


def test_a_draft_is_written_into_no_file_that_lay_there(root):
    (root / "drafts").mkdir()
    name = draft_name(uuid4(), uuid4(), "texts")
    os.link(root.parent / "secret", root / "drafts" / name)
    with Results(str(root)).create(name) as file:
        file.write(b"x")
    assert (root.parent / "secret").read_bytes() == SECRET


def test_another_file_under_the_name_is_not_read(root):
    os.link(root.parent / "secret", root / ("0" * 64))
    with pytest.raises(Changed):
        Results(str(root)).open("0" * 64)


@pytest.mark.parametrize("whole", [True, False])
def test_a_file_that_changes_after_it_was_compared_gives_no_byte_away(root, whole):
    content = b"published " * BLOCK_BYTES
    path, sha256 = put(root, content)
    results = Results(str(root))
    results.open(sha256, whole=whole).close()
    with results.open(sha256, whole=whole) as file:
        assert file.read(10) == content[:10]
        path.write_bytes(content[:BLOCK_BYTES] + SECRET * BLOCK_BYTES)  # the same file, other bytes
        with pytest.raises(Changed):
            file.read()
        path.write_bytes(content[: 3 * BLOCK_BYTES])
    with results.open(put(root, content)[1], whole=whole) as file:
        path.write_bytes(content[: 3 * BLOCK_BYTES])
        with pytest.raises(Changed):
            file.read()


def test_a_page_of_a_file_that_was_seen_reads_that_page_alone(root):
    content = b"".join(b"%063d\n" % number for number in range(10 * BLOCK_BYTES // 64))
    path, sha256 = put(root, content)
    results = Results(str(root))
    results.open(sha256, whole=False).close()
    path.write_bytes(content[: 2 * BLOCK_BYTES] + SECRET)
    with results.open(sha256, whole=False) as file:
        assert file.readline() == content[:64]
    with pytest.raises(Changed):
        results.open(sha256)


def test_what_is_published_is_whole_and_has_its_name(root):
    results = Results(str(root))
    with pytest.raises(Changed):
        results.publish(NAME, lambda: [b"something else"])
    assert [each for each in root.iterdir() if each.is_file()] == []
    results.publish(NAME, lambda: [SECRET[:5], SECRET[5:]])
    assert (root / NAME).read_bytes() == SECRET
    assert results.facts(NAME) == (len(SECRET), "application/x-safetensors")


def test_an_object_store_is_read_below_its_address_alone():
    store = fsspec.filesystem("memory")
    results = Results("memory://bucket/results")
    store.pipe_file("/bucket/secret", SECRET)
    for name in ("../secret", "memory://bucket/secret"):
        with pytest.raises(FileNotFoundError):
            results.open(name)
    name = draft_name(uuid4(), uuid4(), "texts")
    with results.create(name, 10) as file:
        file.write(SECRET)
    assert [each[0] for each in results.drafts()] == [name]
    results.publish(NAME, lambda: [results.draft(name).read()])
    results.remove(name)
    assert results.open(NAME).read() == SECRET
    assert results.drafts() == []
