"""Tokens: some scopes, for a time, never more than their owner may; each use is noted."""

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text

from accountant.identities import credentials, people
from tests.web.browsers import PASSWORD, Api
from web import scopes


def token(site, who, *given, days=1):
    body = {"name": "a test", "scopes": list(given), "days": days}
    answer = site.api(who).post("/me/tokens", body)
    assert answer.status_code == 201, answer.text
    return Api(site.app, answer.json["token"])


def test_every_route_that_writes_says_which_scope_it_needs(app):
    unsaid = [
        rule.endpoint
        for rule in app.url_map.iter_rules()
        if rule.endpoint.startswith("api.")
        and (rule.methods or set()) - {"GET", "HEAD", "OPTIONS"}
        and rule.endpoint != "api.sign_in"
        and not scopes.stated(rule.endpoint)
    ]
    assert unsaid == [], (
        "name these in web/scopes.py; until then they need a token with every scope"
    )


def test_a_route_that_is_not_named_needs_every_scope():
    assert scopes.needed("api.not_named_anywhere", "POST") == credentials.SCOPES
    assert scopes.needed("api.make_token", "POST") == credentials.SCOPES


CALLS = {
    "read": ("get", "/jobs"),
    "jobs:submit": ("post", "/jobs"),
    "budget:approve": ("post", "/datasets/{dataset}/allowance"),
    "data:manage": ("post", "/datasets"),
    "admin": ("post", "/users"),
}


@pytest.mark.parametrize("given", credentials.SCOPES)
def test_a_scope_opens_its_own_routes_and_no_others(site, everybody, given):
    api = token(everybody, "everybody", given)
    for scope, (method, path) in CALLS.items():
        address = path.format(dataset=site.bench.dataset)
        answer = api.get(address) if method == "get" else api.post(address, {})
        refused = answer.status_code == 403
        assert refused == (scope != given), (scope, answer.text)
        if refused:
            assert f"this token's scopes are {given}; this needs {scope}" in answer.json["detail"]
    assert api.get("/me").json["scopes"] == [given]


@pytest.fixture
def everybody(site):
    """Somebody with every role: what is refused is refused for the scope."""
    name = f"all-{site.bench.dataset}"
    user_id = credentials.add_user(site.engine, name, site.password_hash, list(credentials.ROLES))
    site.people["everybody"] = credentials.actor_of(
        credentials.find_user(site.engine, user_id=user_id)
    )
    return site


def test_a_scope_gives_no_role(site):
    api = token(site, "analyst", *credentials.SCOPES)
    assert api.post(f"/datasets/{site.bench.dataset}/allowance", {"reason": "x"}).status_code == 403
    assert api.get("/users").status_code == 403


def test_a_token_follows_its_owners_roles(site):
    api, name = token(site, "steward", "data:manage"), site.actor("steward").name
    assert api.post("/models", {}).status_code == 422
    people.set_roles(site.engine, site.actor("administrator"), name, ["analyst"])
    assert api.post("/models", {"name": "m", "path": "/m", "trained_on": "x"}).status_code == 403


def test_a_token_makes_no_tokens_unless_it_may_everything(site):
    body = {"name": "more", "scopes": list(credentials.SCOPES), "days": 365}
    for given in ("read", "admin", "jobs:submit"):
        assert token(site, "analyst", given).post("/me/tokens", body).status_code == 403
    signed_in = {"name": site.actor("analyst").name, "password": PASSWORD}
    session = site.app.test_client().post("/api/v1/session", json=signed_in).json["token"]
    assert Api(site.app, session).post("/me/tokens", body).status_code == 201


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"scopes": []}, "scopes"),
        ({"scopes": ["read", "write"]}, "scopes"),
        ({"days": 0}, "days"),
        ({"days": 366}, "days"),
        ({"days": None}, "days"),
        ({"name": " "}, "name"),
    ],
)
def test_a_token_needs_a_name_scopes_and_an_end(site, wrong, field):
    body = {"name": "x", "scopes": ["read"], "days": 1} | wrong
    answer = site.api("analyst").post("/me/tokens", body)
    assert answer.status_code == 422
    assert answer.json["problems"][0]["field"] == field
    assert answer.json["problems"][0]["allowed"] or field == "days"


def test_a_token_expires_and_is_used_and_is_revoked(site):
    made = site.api("analyst").post("/me/tokens", {"name": "x", "scopes": ["read"], "days": 7}).json
    ends = datetime.fromisoformat(made["expires_at"])
    assert abs(ends - datetime.now(UTC) - timedelta(days=7)) < timedelta(minutes=5)
    api = Api(site.app, made["token"])

    def listed():
        found = site.api("analyst").get("/me/tokens").json["tokens"]
        return next((each for each in found if each["id"] == made["id"]), None)

    assert listed()["last_used_at"] is None
    assert "token" not in listed()
    assert api.get("/jobs").status_code == 200
    assert listed()["last_used_at"] is not None
    # not theirs
    assert site.api("steward").post(f"/me/tokens/{made['id']}/revoke").status_code == 404
    assert site.api("analyst").post(f"/me/tokens/{made['id']}/revoke").status_code == 200
    assert api.get("/jobs").status_code == 401
    assert listed() is None
    assert site.api("analyst").post(f"/me/tokens/{made['id']}/revoke").status_code == 404


def test_an_expired_token_opens_nothing(site):
    api = token(site, "analyst", "read")
    assert api.get("/me").status_code == 200
    with site.engine.begin() as connection:
        late = "UPDATE api_tokens SET expires_at = now() WHERE user_id = :id"
        connection.execute(text(late), {"id": site.actor("analyst").id})
    assert api.get("/me").status_code == 401


def test_tokens_by_form_are_shown_once(site):
    browser = site.pages("analyst")
    page = "/account/tokens"
    form = {"name": "nightly", "days": "30", "scopes": "jobs:submit"}
    answer = browser.post(page, page, **form)
    assert answer.status_code == 201
    shown = answer.text.split('<code class="once">')[1].split("<")[0]
    assert Api(site.app, shown).get("/me").json["scopes"] == ["jobs:submit"]
    again = browser.get(page).text
    assert shown not in again
    assert "nightly" in again
    wrong = browser.post(page, page, name="kept", days="soon")
    assert wrong.status_code == 422
    assert 'id="problem-days"' in wrong.text
    assert 'value="kept"' in wrong.text
    assert 'id="problem-scopes"' in browser.post(page, page, name="x", days="1").text
    found = people.tokens(site.engine, site.actor("analyst").id)
    nightly = next(each for each in found if each["name"] == "nightly")
    stranger = site.pages("steward")
    assert stranger.post(f"{page}/{nightly['id']}/revoke", page).status_code == 404
    assert browser.post(f"{page}/{nightly['id']}/revoke", page).status_code == 303
    assert Api(site.app, shown).get("/me").status_code == 401


def test_the_description_says_which_scope_each_route_needs(site):
    found = site.app.test_client().get("/api/v1/openapi.json").json
    assert found["paths"]["/api/v1/jobs"]["post"]["security"] == [{"token": ["jobs:submit"]}]
    assert found["paths"]["/api/v1/jobs"]["get"]["security"] == [{"token": ["read"]}]
    assert found["paths"]["/api/v1/session"]["post"]["security"] == []
    assert "`budget:approve`" in found["components"]["securitySchemes"]["token"]["description"]


@pytest.mark.parametrize("scopes", [["read"], list(credentials.SCOPES)])
def test_a_token_ends_itself_and_no_other(site, scopes):
    engine, actor = site.engine, site.actor("analyst")
    ended, other = (
        Api(site.app, people.make_token(engine, actor, "a test", scopes, 1)["token"]) for _ in "ab"
    )
    answer = ended.client.delete("/api/v1/session", headers=ended.headers)
    assert answer.status_code == 200
    assert ended.get("/me").status_code == 401
    assert ended.client.delete("/api/v1/session", headers=ended.headers).status_code == 401
    assert other.get("/me").status_code == 200
