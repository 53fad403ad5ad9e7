"""The description of the API: every route is in it, and nothing that it promises is missing."""

from web.api.openapi import document


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

    for reference in references(answer.json):
        _, kind, name = reference.removeprefix("#/").split("/")
        assert name in answer.json["components"][kind]
    submit = answer.json["paths"]["/api/v1/jobs"]["post"]
    assert {"201", "401", "403", "409", "422"} <= set(submit["responses"])
    assert [each["name"] for each in submit["parameters"]] == ["Idempotency-Key"]
