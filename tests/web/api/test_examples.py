"""The examples of the API's description: recorded from a real server, right by their schemas, still
so.
"""

import json
import os
from pathlib import Path

import pytest

from tests.web.api.conformance import PROBLEM, Description
from tests.web.views.story import tell
from web.api import openapi

FILE = Path(openapi.__file__).parent / "examples.json"
RECORD = "EXCHEQUER_RECORD"


@pytest.fixture(scope="module")
def described(app) -> Description:
    return Description(app)


def shape(value):
    """Return a value's members and their types; the first of a list stands for all."""
    if isinstance(value, dict):
        return {name: shape(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [shape(each) for each in value[:1]]
    return (
        "number"
        if isinstance(value, int | float) and not isinstance(value, bool)
        else type(value).__name__
    )


@pytest.mark.slow
def test_the_examples_are_what_a_real_server_answers(site, publish):
    found = tell(site, publish).recorded()
    if os.environ.get(RECORD):
        FILE.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
        openapi.examples.cache_clear()
        openapi.document.cache_clear()
    kept = json.loads(FILE.read_text())
    assert list(found) == list(kept), f"operations came or went: {RECORD}=1 records them anew"
    for label, each in found.items():
        assert shape(each) == shape(kept[label]), f"{label}: {RECORD}=1 records it anew"


def test_every_operation_states_its_answer_and_has_an_example(app, described):
    lacking = set()
    for route in openapi.routes(app):
        told = described.operation(route.method, route.path)
        assert told["summary"].endswith("."), route.label
        assert told["description"], route.label
        for status in route.answers:
            content = told["responses"][str(status)]["content"].get("application/json")
            if (
                content is None
                or len(route.operation.media_types) > 1
                or route.endpoint == "api.openapi"
            ):
                continue  # a file, and the description itself
            if content["schema"] == openapi.OBJECT or "example" not in content:
                lacking.add(route.label)
        if (
            route.operation.body is not None
            and "example" not in told["requestBody"]["content"]["application/json"]
        ):
            lacking.add(route.label)
    assert not lacking


def test_each_example_fits_its_schema(app, described):
    for route in openapi.routes(app):
        told = described.operation(route.method, route.path)
        for status, answer in told["responses"].items():
            for media_type in ("application/json", PROBLEM):
                content = answer.get("content", {}).get(media_type, {})
                if "example" in content:
                    wrong = list(described.misfits(content["schema"], content["example"]))
                    assert not wrong, (route.label, status, wrong)
        if "requestBody" in told:
            content = told["requestBody"]["content"].get("application/json", {})
            if "example" in content:
                assert not list(described.misfits(content["schema"], content["example"])), (
                    route.label
                )


def test_no_example_names_a_machine_or_a_person(app):
    text = FILE.read_text()
    for word in ("/tmp", "/work", "/root", "data-", "model-", "analyst-", "localhost"):
        assert word not in text, word
