"""The API keeps what it promised: everything of the frozen description stands in today's, beside
additions.

`openapi_frozen.json.gz` is the description of version 1 without its prose and examples. It is
written anew for a version 2 alone.
"""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from web.api.openapi import document

FROZEN = Path(__file__).parent / "openapi_frozen.json.gz"
PROSE = frozenset({"description", "summary", "title", "example", "examples"})


def promised(value: Any, names: bool = False) -> Any:
    """`value` without prose; in an object of `properties` (or other names) every member is a
    name.
    """
    if isinstance(value, dict):
        return {
            key: promised(each, not names and key in ("properties", "schemas", "headers", "paths"))
            for key, each in value.items()
            if names or key not in PROSE
        }
    return [promised(each) for each in value] if isinstance(value, list) else value


def broken(old: Any, new: Any, place: str = "") -> Iterator[str]:
    """Yield the places where `new` lacks or contradicts what `old` promised."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key, each in old.items():
            if key not in new:
                yield f"{place}/{key} is gone"
            else:
                yield from broken(each, new[key], f"{place}/{key}")
    elif isinstance(old, list) and isinstance(new, list):
        for each in old:
            if not any(not list(broken(each, other)) for other in new):
                yield f"{place} lacks {each}"
    elif old != new:
        yield f"{place} was {old!r} and is {new!r}"


def bodies(found: Any) -> Iterator[tuple[str, Any]]:
    """The schemas that requests are read with."""
    schemas = found["components"]["schemas"]
    for path, operations in found["paths"].items():
        for method, operation in operations.items():
            for content in operation.get("requestBody", {}).get("content", {}).values():
                name = content["schema"].get("$ref", "").rpartition("/")[2]
                yield f"{method} {path}", schemas.get(name, content["schema"])


def test_the_description_equals_the_frozen_one_but_for_additions(app):
    old = json.loads(gzip.decompress(FROZEN.read_bytes()))
    new = promised(document(app))
    assert list(broken(old, new)) == []
    demanded = {name: set(schema.get("required", ())) for name, schema in bodies(new)}
    for name, schema in bodies(old):  # what is demanded of a request may not grow
        assert demanded[name] <= set(schema.get("required", ())), name


def test_a_promise_that_is_taken_back_is_told():
    old = {"paths": {"/a": {"get": {"enum": ["x", "y"], "type": "object"}}}}
    assert list(broken(old, old | {"more": 1})) == []
    assert list(broken(old, {"paths": {}})) == ["/paths//a is gone"]
    narrowed = {"paths": {"/a": {"get": {"enum": ["x"], "type": "object"}}}}
    assert list(broken(old, narrowed)) == ["/paths//a/get/enum lacks y"]
