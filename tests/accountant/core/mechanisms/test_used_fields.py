"""Which fields a configuration uses: only those are recorded and shown, and the others move no
price.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from accountant.core import mechanisms
from accountant.core.errors import InvalidRequest
from accountant.core.mechanisms.base import Mechanism
from accountant.core.privacy.price import Terms
from accountant.transactions.job_requests import JobRequest, priced

TERMS = Terms(public_size=100_000, labels=("a", "b"), groups=())
#: What examples leave out because their page's dataset states it.
STATED = {"summary-token": {"public_size": 500}, "summary-oneshot": {"public_size": 500}}
#: What has a price without it, and can't run.
MISSING = {
    "private-prediction": {"public_corpus": "corpus", "embedding": "embedding", "ex_post_cap": 1.0}
}

CONDITIONS = [
    (name, condition) for name in mechanisms.runnable() for condition in mechanisms.get(name).needs
]


def request(mechanism: Mechanism[Any], condition: str) -> dict[str, Any] | None:
    """A request that fulfils a condition; None where that takes an earlier job."""
    raw: dict[str, Any] = {**mechanism.example, **STATED.get(mechanism.id, {})}
    other, compared, value = condition.partition("=")
    if other in ("from_job", "adapter"):
        return None if not compared or value else raw
    options = mechanism.schema["properties"][other].get("enum", [])
    typed = next((each for each in options if str(each) == value), value or "given")
    known = MISSING.get(mechanism.id, {})
    needed = {name: known[name] for name in mechanism.needs[condition].split() if name in known}
    if condition == "context_partner=shot":
        needed |= {"examples_per_context": 2, "shots": "a text"}
    if condition == "examples":
        needed |= {"output": "texts"}
    return raw | needed | {other: typed}


def others(mechanism: Mechanism[Any], name: str) -> Iterator[Any]:
    """Values that the field might have, by its schema."""
    stated = mechanism.schema["properties"][name]
    for part in stated.get("anyOf", [stated]):
        default = stated.get("default")
        match part.get("type"):
            case "integer":
                yield (default or part.get("minimum", 1)) + 1
            case "number":
                yield (
                    default or part.get("minimum", part.get("exclusiveMinimum", 1.0)) or 1.0
                ) * 1.5
            case "boolean":
                yield not default
            case "string":
                yield from (each for each in part.get("enum", ["another"]) if each != default)


@pytest.mark.parametrize("name", sorted(mechanisms.runnable()))
def test_conditions_name_fields_of_the_mechanism(name):
    mechanism = mechanisms.get(name)
    for condition, fields in mechanism.needs.items():
        assert condition.partition("=")[0] in mechanism.fields
        assert set(fields.split()) <= set(mechanism.fields)
    properties = mechanism.schema["properties"]
    for field in mechanism.fields:
        said = properties[field].get("description", "").partition(":")[0]
        if said.endswith(" only"):  # what its help says, its conditions say too
            assert any(field in names.split() for names in mechanism.needs.values()), field


@pytest.mark.parametrize(("name", "condition"), CONDITIONS)
def test_what_is_not_used_is_not_recorded_and_moves_no_price(name, condition):
    mechanism = mechanisms.get(name)
    raw = request(mechanism, condition)
    if raw is None:
        return
    parsed = mechanism.parse(raw, TERMS)
    recorded, price = mechanism.recorded(parsed), mechanism.price(parsed, TERMS)
    assert mechanism.price(mechanism.parse(recorded, TERMS), TERMS) == price
    unused = set(mechanism.fields) - set(mechanism.used_fields(raw))
    assert not unused & set(recorded)
    for field in unused:
        for value in others(mechanism, field):
            try:
                odd = mechanism.parse(raw | {field: value}, TERMS)
            except InvalidRequest:
                continue  # refused: it can't be recorded either
            assert mechanism.price(odd, TERMS) == price, (field, value)
            assert mechanism.recorded(odd) == recorded, (field, value)


def test_a_uniform_job_records_no_clusters():
    asked = JobRequest(
        "reviews", "private-prediction", "model", {"tokens_per_batch": 5, "clusters": 30}
    )
    columns = priced(asked, TERMS).columns
    assert {"clusters", "cluster_epsilon", "public_centres", "rounds"}.isdisjoint(
        columns["parameters"]
    )
    assert columns["parameters"]["tokens_per_batch"] == 5


def test_a_condition_may_hang_on_another():
    used = mechanisms.get("private-prediction").used_fields
    assert "shots" not in used({"examples_per_context": 1, "context_partner": "shot"})
    # texts of a form
    assert "shots" in used({"examples_per_context": "2", "context_partner": "shot"})
    assert "clusters" in used({"batching": "clusters"})


def test_a_field_that_is_missing_is_named_without_the_rest():
    with pytest.raises(InvalidRequest) as found:
        mechanisms.get("evaluation").parse({"embedding": "some", "corpus": "reviews"}, TERMS)
    assert [(each.field, each.problem) for each in found.value.problems] == [
        ("from_job", "not given")
    ]
