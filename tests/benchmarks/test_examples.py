"""Every request in examples/ is a request: what it names is allowed, and what costs has a price."""

import json
from pathlib import Path

import pytest

from accountant.core import mechanisms
from accountant.core.privacy.events import FREE
from benchmarks.examples import FOLDER, TERMS, before


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_a_request_is_one_that_can_be_made(path: Path):
    request = json.loads(path.read_text("utf-8"))
    mechanism = mechanisms.get(request["mechanism"])
    parameters = mechanism.parse(request["parameters"], TERMS)
    assert set(request) <= {"dataset", "mechanism", "model", "parameters", "purpose"}
    assert ("model" in request) == mechanism.uses_model or mechanism.public or before(path.stem)
    price = mechanism.price(parameters, TERMS)
    free = mechanism.public or getattr(parameters, "from_job", None) is not None
    assert free == (price.dp in (None, FREE) and not price.ex_post_draws and price.secret is None)


def test_what_an_example_follows_is_there():
    names = {path.stem for path in FOLDER.glob("*.json")}
    assert all(set(before(name)) <= names for name in names)
