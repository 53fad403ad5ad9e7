"""Mechanisms of others: registered with the record of what is there, refused by name otherwise."""

import json
import sys

import pytest

from accountant.core import mechanisms
from accountant.core.errors import InvalidRequest
from accountant.core.mechanisms import registration

PRICE = """
from dataclasses import replace
from accountant.core.mechanisms import noisy_count
MECHANISM = replace(noisy_count.MECHANISM, id={id!r}, runner={runner!r})
"""


@pytest.fixture
def shipped(tmp_path, monkeypatch):
    """Write a package with an entry point, conformed or not, and load the mechanisms again."""
    names = []

    def ship(name="shipped-count", runner="shipped.price", record=True, own_id=None):
        package = tmp_path / "shipped"
        package.mkdir(exist_ok=True)
        (package / "__init__.py").write_text("")
        (package / "price.py").write_text(PRICE.format(id=own_id or name, runner=runner))
        info = tmp_path / "shipped-1.0.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shipped\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{registration.GROUP}]\n{name} = shipped.price\n")
        if record:
            made = registration.conformed(name, package)
            (package / registration.RECORD).write_text(json.dumps(made))
        names.append(name)
        mechanisms._found.cache_clear()
        for each in ("shipped", "shipped.price"):
            sys.modules.pop(each, None)
        return package

    monkeypatch.syspath_prepend(tmp_path)
    yield ship
    monkeypatch.undo()
    mechanisms._found.cache_clear()


def why(name="shipped-count") -> str:
    with pytest.raises(InvalidRequest) as refused:
        mechanisms.get(name)
    (problem,) = refused.value.problems
    assert problem.field == "mechanism"
    return problem.problem


def test_what_was_conformed_is_registered_after_the_built_in_ones(shipped):
    shipped()
    assert mechanisms.get_runnable("shipped-count").runner == "shipped.price"
    order = list(mechanisms.MECHANISMS)
    assert order[0] == "private-prediction"
    assert order.index("noisy-count") + 1 == order.index("shipped-count")


def test_what_was_not_conformed_is_not_even_imported(shipped):
    shipped(record=False)
    assert "was not conformed" in why()
    assert "shipped" not in sys.modules


def test_one_changed_byte_is_refused(shipped):
    package = shipped()
    (package / "price.py").write_text((package / "price.py").read_text() + "#")
    assert "not what was conformed" in why()
    shipped()
    (package / "added.py").write_text("")
    mechanisms._found.cache_clear()
    assert "not what was conformed" in why()


def test_the_record_of_an_older_kit_or_of_another_mechanism_is_refused(shipped, monkeypatch):
    shipped()
    monkeypatch.setattr(registration, "KIT", registration.KIT + 1)
    assert "not what was conformed" in why()
    monkeypatch.undo()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"name": "noisy-count"}, None),
        ({"own_id": "another-name"}, "its id is 'another-name'"),
        ({"runner": "workers.mechanisms.noisy_count"}, "is not in the package shipped"),
    ],
)
def test_an_id_that_is_taken_or_a_runner_elsewhere_is_refused(shipped, change, told):
    shipped(**change)
    if told is None:  # the built-in one stays
        assert mechanisms.get("noisy-count").runner == "workers.mechanisms.noisy_count"
    else:
        assert told in why()
