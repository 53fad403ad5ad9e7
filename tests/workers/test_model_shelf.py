"""Models that stay loaded, and those that go before the next one comes."""

import shutil
import weakref

import pytest

from tests.workers.conftest import SAMPLE
from workers import model_shelf, models
from workers.model_shelf import Shelf, free_memory

GIB = 2**30


class Model:
    """Something that can be seen to be gone."""


def test_without_room_the_one_before_is_gone_when_the_next_is_loaded():
    shelf: Shelf[Model] = Shelf()
    first = weakref.ref(shelf.get("a", 5, lambda: 10, Model))

    def load() -> Model:
        assert first() is None
        return Model()

    room = iter([3, 10])
    shelf.get("b", 5, lambda: next(room), load)


def test_with_room_both_stay_and_the_longest_unused_of_three_goes():
    shelf: Shelf[Model] = Shelf()
    seen = {}

    def get(key: str) -> None:
        seen[key] = weakref.ref(shelf.get(key, 1, lambda: 10, Model))

    get("a")
    get("b")
    before = seen["a"]()
    get("a")
    assert seen["a"]() is before
    del before
    get("c")
    assert seen["b"]() is None
    assert seen["a"]() is not None


def test_what_fails_to_load_is_not_held():
    shelf: Shelf[Model] = Shelf()

    def fails() -> Model:
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        shelf.get("a", 1, lambda: 10, fails)
    assert isinstance(shelf.get("a", 1, lambda: 10, Model), Model)


@pytest.mark.parametrize(("room", "stays"), [(100 * GIB, True), (GIB, False)])
def test_two_language_models_one_after_the_other(tmp_path, monkeypatch, room, stays):
    monkeypatch.setattr(models, "free_memory", lambda _: room)
    monkeypatch.setattr(models, "_shelf", Shelf())
    folders = [shutil.copytree(SAMPLE / "model", tmp_path / name) for name in "ab"]
    first = weakref.ref(models.load(folders[0], models.digest(folders[0])).network)
    models.load(folders[1], models.digest(folders[1]))
    assert (first() is not None) == stays
    assert models.load(folders[1], models.digest(folders[1])) is models.load(
        folders[1], models.digest(folders[1])
    )


def test_memory_is_that_of_the_host_or_of_its_control_group(tmp_path, monkeypatch):
    (tmp_path / "meminfo").write_text("MemTotal: 9000 kB\nMemAvailable: 4000 kB\n")
    monkeypatch.setattr(model_shelf, "_MEMORY", tmp_path / "meminfo")
    monkeypatch.setattr(model_shelf, "_GROUP", tmp_path)
    assert free_memory("cpu") == 4000 * 1024
    (tmp_path / "memory.current").write_text("1000\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert free_memory("cpu") == 4000 * 1024
    (tmp_path / "memory.max").write_text("51000\n")
    assert free_memory("cpu") == 50_000
