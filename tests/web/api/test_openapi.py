"""The description of the API: every route is in it, and nothing that it promises is missing."""

import re

import pytest

from accountant.identities.credentials import ROLES
from web.api.openapi import document, examples, routes


def test_every_route_is_described(app):
    found = document(app)
    assert found["openapi"] == "3.1.0"
    described = {(method, path) for path, each in found["paths"].items() for method in each}
    for rule in app.url_map.iter_rules():
        if rule.endpoint.startswith("api."):
            path = rule.rule.replace("<", "{").replace(">", "}")
            methods = {each.lower() for each in rule.methods} - {"head", "options"}
            assert {(method, path) for method in methods} <= described


def test_it_is_served_to_everybody_and_refers_to_what_is_in_it(app):
    answer = app.test_client().get("/api/v1/openapi.json")
    assert answer.status_code == 200

    def references(value):
        if isinstance(value, dict):
            yield from (v for k, v in value.items() if k == "$ref")
            for each in value.values():
                yield from references(each)
        elif isinstance(value, list):
            for each in value:
                yield from references(each)

    served = answer.json  # parsed anew each time it is asked for
    for reference in references(served):
        _, kind, name = reference.removeprefix("#/").split("/")
        assert name in served["components"][kind]
    submit = served["paths"]["/api/v1/jobs"]["post"]
    assert {"201", "401", "403", "409", "422"} <= set(submit["responses"])
    assert [each["name"] for each in submit["parameters"]] == ["Idempotency-Key"]


@pytest.mark.parametrize("role", ROLES)
def test_the_roles_that_are_described_are_those_that_may(site, role):
    """Each operation, with a body that is right, on things that exist: 403 without one of its
    roles.
    """
    api, job = site.api(role), site.submitted()
    names = {"name": site.bench.dataset, "job": job, "decision": job, "seq": "2"}
    for route in routes(site.app):
        if route.endpoint == "api.sign_out":  # it would end the token that asks
            continue
        path = re.sub(r"\{(\w+)\}", lambda found: names.get(found[1], "x"), route.path)
        body = examples().get(route.label, {}).get("request")
        answer = api.client.open(path, method=route.method, json=body, headers=api.headers)
        if route.operation.roles and role not in route.operation.roles:
            assert answer.status_code == 403, (role, route.label, answer.text)
        elif (
            route.operation.roles and answer.status_code == 403
        ):  # of those who may, the policy or one's own job may still forbid it
            assert "needs the role" not in answer.json["detail"], (role, route.label)


def test_every_route_asks_for_a_token_unless_it_is_described_as_public(app):
    for route in routes(app):
        path = re.sub(r"\{\w+\}", "x", route.path)
        answer = app.test_client().open(path, method=route.method)
        assert (answer.status_code == 401) != route.operation.public, (
            route.label,
            answer.status_code,
        )
