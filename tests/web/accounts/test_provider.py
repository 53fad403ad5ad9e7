"""Signing in at an OpenID Connect provider that runs as a process of its own, over HTTP."""

import os
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import httpx2
import pytest
from sqlalchemy import text

from accountant.identities import credentials, people, sign_ins
from accountant.settings import Settings
from tests.web.accounts.oidc_provider import CLIENT_ID, CLIENT_SECRET
from tests.web.browsers import Api, Pages
from web import oidc
from web.app import create_app

pytestmark = pytest.mark.slow

ROLES = {"privacy-team": "steward", "data-people": "analyst", "ops": "administrator"}


@pytest.fixture(scope="module")
def provider():
    script = Path(__file__).with_name("oidc_provider.py")
    running = subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    port = int(running.stdout.readline())
    with httpx2.Client(base_url=f"http://127.0.0.1:{port}") as client:
        yield client
    running.terminate()
    running.wait(10)


@pytest.fixture(autouse=True)
def honest(provider):
    provider.put("/faults", json={})


def configured(provider, database_url, home, **more):
    options = {
        "oidc_issuer": str(provider.base_url).rstrip("/"),
        "oidc_client_id": CLIENT_ID,
        "oidc_client_secret": CLIENT_SECRET,
        "oidc_roles": ROLES,
        "oidc_name": "Example University",
    }
    return Settings(home=home, DATABASE_URL=database_url, **(options | more))


@pytest.fixture(scope="module")
def app(provider, database_url, tmp_path_factory):
    return create_app(configured(provider, database_url, tmp_path_factory.mktemp("web")))


def knows(provider, name, groups, **claims):
    provider.put(f"/people/{name}", json={"sub": f"id-{name}", "groups": groups, **claims})


def consent(provider, browser, name):
    """Go to the provider as a browser would and come back; the address that one comes back to."""
    away = browser.get("/sign-in/provider?next=/jobs")
    assert away.status_code == 302, away.text
    asked = parse_qs(urlsplit(away.headers["Location"]).query)
    assert asked["code_challenge_method"] == ["S256"]
    assert asked["nonce"][0]
    assert asked["state"][0]
    back = provider.post(away.headers["Location"], data={"user": name})
    assert back.status_code == 302, back.text
    parts = urlsplit(back.headers["Location"])
    return f"{parts.path}?{parts.query}"


def sign_in(app, provider, name):
    browser = Pages(app)
    return browser, browser.get(consent(provider, browser, name))


def test_the_sign_in_page_offers_the_provider(app):
    page = Pages(app).get("/sign-in").text
    assert "Sign in with Example University" in page
    assert 'href="/sign-in/provider"' in page


def test_a_new_person_gets_an_account_with_the_mapped_roles(app, provider, engine):
    knows(provider, "ada", ["privacy-team", "unheard-of"], preferred_username="Ada@example.org")
    browser, answer = sign_in(app, provider, "ada")
    assert answer.status_code == 303, answer.text
    assert answer.headers["Location"] == "/jobs"
    assert browser.get("/inbox").status_code == 200
    user = credentials.find_user(engine, name="ada")
    assert user.roles == ["steward"]
    assert user.password_hash is None
    again, _ = sign_in(app, provider, "ada")
    assert ">ada<" in again.get("/account").text
    with engine.connect() as connection:
        count = text("SELECT count(*) FROM users WHERE name LIKE 'ada%'")
        assert connection.execute(count).scalar_one() == 1


def test_roles_are_mapped_anew_at_each_sign_in(app, provider, engine):
    knows(provider, "grace", ["privacy-team", "data-people"])
    first, _ = sign_in(app, provider, "grace")
    name = people.find_external(engine, str(provider.base_url).rstrip("/"), "id-grace").name
    token = credentials.add_token(engine, credentials.find_user(engine, name=name).id, "kept", None)
    assert first.get("/inbox").status_code == 200
    knows(provider, "grace", ["data-people"])
    second, answer = sign_in(app, provider, "grace")
    assert answer.status_code == 303
    assert second.get("/inbox").status_code == 403
    assert first.get("/inbox").status_code == 303  # what was open with the old roles is closed
    assert Api(app, token).get("/me").json["roles"] == ["analyst"]
    knows(provider, "grace", [])
    _, answer = sign_in(app, provider, "grace")
    assert answer.status_code == 403
    assert "gives you no role here" in answer.text
    assert Api(app, token).get("/me").json["roles"] == []


def test_a_form_whose_session_had_ended_comes_back_through_the_provider(app, provider, engine):
    """And to its own person alone, and once."""
    for name in ("lin", "eve"):
        knows(provider, name, ["privacy-team"])
    browser, _ = sign_in(app, provider, "lin")
    token = browser.token("/account/tokens")
    typed = {"csrf_token": token, "name": "for <b>nights</b>", "days": "3"}
    with engine.begin() as connection:
        connection.execute(text("UPDATE sessions SET ended_at = now() WHERE ended_at IS NULL"))
    asked = browser.client.post("/account/tokens", data=typed)
    assert (asked.status_code, "too long" in asked.text) == (401, False)
    cookie = next(each for each in asked.headers.getlist("Set-Cookie") if "_held=" in each)
    assert "HttpOnly" in cookie
    assert "Path=/sign-in/provider/return" in cookie
    other = browser.get(consent(provider, browser, "eve"))
    assert other.status_code == 303
    back = browser.get(consent(provider, browser, "lin"))
    assert (back.status_code, "for &lt;b&gt;nights" in back.text) == (200, True)
    assert 'action="/account/tokens"' in back.text
    assert browser.get(consent(provider, browser, "lin")).status_code == 303, "it comes once"
    typed |= {"csrf_token": browser.token("/account/tokens"), "name": os.urandom(9000).hex()}
    with engine.begin() as connection:
        connection.execute(text("UPDATE sessions SET ended_at = now() WHERE ended_at IS NULL"))
    asked = browser.client.post("/account/tokens", data=typed)
    assert (asked.status_code, "too long" in asked.text) == (401, True)
    assert not any("_held=" in each for each in asked.headers.getlist("Set-Cookie"))


def test_a_name_or_an_address_never_links_to_an_account_that_is_there(app, provider, engine):
    local = credentials.add_user(engine, "margaret", None, ["steward"])
    claims = {
        "preferred_username": "margaret",
        "email": "margaret@example.org",
        "email_verified": False,
    }
    knows(provider, "mallory", ["data-people"], **claims)
    browser, answer = sign_in(app, provider, "mallory")
    assert answer.status_code == 303
    assert browser.get("/inbox").status_code == 403
    found = people.find_external(engine, str(provider.base_url).rstrip("/"), "id-mallory")
    assert found.id != local
    assert found.name.startswith("margaret-")


def test_somebody_without_a_role_gets_no_account(app, provider, engine):
    knows(provider, "nobody", ["unheard-of"])
    browser, answer = sign_in(app, provider, "nobody")
    assert answer.status_code == 403
    assert people.find_external(engine, str(provider.base_url).rstrip("/"), "id-nobody") is None
    assert browser.get("/").status_code == 303


SOURCES = {"src1": {"endpoint": "https://graph.example/v1.0/users/1/getMemberObjects"}}


@pytest.mark.parametrize(
    ("claim", "claims", "left_out"),
    [
        ("groups", {"_claim_names": {"groups": "src1"}, "_claim_sources": SOURCES}, True),
        ("groups", {"_claim_names": {"groups": "src1"}}, True),
        ("groups", {"hasgroups": True}, True),
        ("groups", {"hasgroups": "true"}, True),
        ("wids", {"_claim_names": {"wids": "src1"}}, True),
        ("realm.roles", {"_claim_names": {"realm": "src1"}}, True),
        ("groups", {"hasgroups": False}, False),
        ("groups", {"hasgroups": True, "groups": ["ops"]}, False),
        ("roles", {"hasgroups": True}, False),
        ("roles", {"_claim_names": {"groups": "src1"}}, False),
        ("groups", {"_claim_names": "groups"}, False),
        ("groups", {"_claim_names": None, "groups": []}, False),
        ("groups", {}, False),
    ],
)
def test_groups_that_a_provider_left_out_are_no_missing_role(claim, claims, left_out):
    assert oidc.leaves_groups_out(claims, claim) is left_out


def test_more_groups_than_a_token_holds_take_no_role_away_and_are_told(
    app, provider, engine, caplog
):
    knows(provider, "hedy", ["privacy-team"])
    sign_in(app, provider, "hedy")
    issuer = str(provider.base_url).rstrip("/")
    user = people.find_external(engine, issuer, "id-hedy")
    token = credentials.add_token(engine, user.id, "kept", None)
    for name in ("hedy", "new"):
        provider.put(
            f"/people/{name}",
            json={
                "sub": f"id-{name}",
                "_claim_names": {"groups": "src1"},
                "_claim_sources": SOURCES,
            },
        )
        browser, answer = sign_in(app, provider, name)
        assert answer.status_code == 403
        assert "more than 200" in answer.text
        assert browser.get("/").status_code == 303
    assert people.find_external(engine, issuer, "id-hedy").roles == ["steward"]
    assert people.find_external(engine, issuer, "id-new") is None
    assert Api(app, token).get("/me").json["roles"] == ["steward"]
    said = [each.getMessage() for each in caplog.records if "Entra" in each.getMessage()]
    assert len(said) == 2
    assert user.name in said[0]
    auditor = credentials.actor_of(credentials.find_user(engine, user_id=user.id))
    found = sign_ins.listing(engine, auditor, name=user.name)
    assert found[0]["outcome"] == "too many groups"


def test_a_closed_account_stays_closed(app, provider, engine):
    knows(provider, "edsger", ["data-people"], preferred_username="edsger")
    sign_in(app, provider, "edsger")
    admin = credentials.add_user(engine, "closer", None, ["administrator"])
    people.deactivate(
        engine, credentials.actor_of(credentials.find_user(engine, user_id=admin)), "edsger"
    )
    browser, answer = sign_in(app, provider, "edsger")
    assert answer.status_code == 403
    assert "closed" in answer.text
    assert browser.get("/").status_code == 303


FAULTS = {
    "another nonce": {"claims": {"nonce": "another"}},
    "another audience": {"claims": {"aud": ["somebody else"]}},
    "another audience and our party": {"claims": {"aud": ["somebody else"], "azp": CLIENT_ID}},
    "another authorized party": {"claims": {"azp": "somebody else"}},
    "another issuer": {"claims": {"iss": "https://elsewhere.example"}},
    "expired": {"claims": {"exp": 1_000_000_000}},
    "another key": {"key": "another"},
    "no signature": {"key": "none"},
    "no subject": {"claims": {"sub": None}},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_an_id_token_that_does_not_hold_opens_nothing(app, provider, engine, fault):
    who = fault.replace(" ", "-")
    knows(provider, who, ["privacy-team"])
    provider.put("/faults", json=FAULTS[fault])
    browser, answer = sign_in(app, provider, who)
    assert answer.status_code == 403, answer.text
    assert "did not work" in answer.text
    assert browser.get("/").status_code == 303
    assert people.find_external(engine, str(provider.base_url).rstrip("/"), f"id-{who}") is None


# --- whose answer it is (RFC 9207), and what the clocks say
# ----------------------------------------

PROMISED = {"metadata": {"authorization_response_iss_parameter_supported": True}}
# what comes back as iss, whether the provider promises one, whether the sign-in goes on
SENDERS = (
    (["ITSELF"], True, True),
    (["ITSELF"], False, True),
    ([], False, True),
    ([], True, False),
    (["https://elsewhere.example"], True, False),
    (["https://elsewhere.example"], False, False),
    (["ITSELF/"], False, False),
    (["ITSELF", "ITSELF"], False, False),
    ([""], False, False),
    ([""], True, False),
    (["ITSELF", "https://elsewhere.example"], True, False),
    (["ITSELF/realms/other"], True, False),
)


@pytest.mark.parametrize(("senders", "promised", "good"), SENDERS)
def test_an_answer_of_another_issuer_is_refused(
    provider, database_url, tmp_path, senders, promised, good
):
    app = create_app(configured(provider, database_url, tmp_path))
    knows(provider, "ada", ["privacy-team"])
    provider.put("/faults", json={"senders": senders} | (PROMISED if promised else {}))
    browser, answer = sign_in(app, provider, "ada")
    assert answer.status_code == (303 if good else 403)
    assert browser.get("/account").status_code == (200 if good else 303)


CLOCKS = (  # seconds from now, and whether it is good: two minutes either way, and no more
    ({"exp": 60}, True),
    ({"exp": -100}, True),
    ({"exp": -140}, False),
    ({"exp": -3600}, False),
    ({"iat": 100}, True),
    ({"iat": 140}, False),
    ({"iat": 3600}, False),
    ({"iat": -100}, True),
    ({"iat": -140}, False),
    ({"nbf": 100}, True),
    ({"nbf": 140}, False),
    ({"nbf": -3600}, True),
    ({"iat": 100, "nbf": 100}, True),
)


@pytest.mark.parametrize(("moved", "good"), CLOCKS)
def test_two_minutes_between_the_clocks_are_allowed_for(app, provider, moved, good):
    knows(provider, "ada", ["privacy-team"])
    provider.put("/faults", json={"moved": moved})
    _, answer = sign_in(app, provider, "ada")
    assert answer.status_code == (303 if good else 403)


# --- userinfo
# ---------------------------------------------------------------------------------------

# what hides from the id token, what userinfo says, the roles that follow; None: refused
USERINFO = (
    (["groups"], {}, ["steward"]),
    (["groups"], {"groups": ["data-people"]}, ["analyst"]),
    (["groups"], {"groups": "ops"}, ["administrator"]),
    (["groups"], {"groups": []}, None),
    (["groups"], {"sub": "somebody else"}, None),
    (["groups"], {"sub": None}, None),
    ([], {"groups": ["ops"]}, ["steward"]),
    (["groups"], {"groups": None}, None),
    (["groups"], {"groups": ["unheard-of"]}, None),
    (["groups"], {"iss": "https://elsewhere.example"}, ["steward"]),
    (["groups"], {"nonce": "x"}, ["steward"]),
)


@pytest.mark.parametrize(("hidden", "userinfo", "roles"), USERINFO)
def test_groups_that_stand_at_userinfo_only_count(app, provider, engine, hidden, userinfo, roles):
    who = uuid4().hex[:8]
    knows(provider, who, ["privacy-team"])
    provider.put("/faults", json={"hidden": hidden, "userinfo": userinfo})
    _, answer = sign_in(app, provider, who)
    assert answer.status_code == (403 if roles is None else 303)
    found = people.find_external(engine, str(provider.base_url).rstrip("/"), f"id-{who}")
    assert (None if found is None else found.roles) == roles


# --- standing: who is removed at the provider
# -------------------------------------------------------


def pass_minutes(engine, minutes):
    with engine.begin() as connection:
        past = text(
            "UPDATE external_accounts SET confirmed_at = confirmed_at - make_interval(mins => "
            ":minutes)"
        )
        connection.execute(past, {"minutes": minutes})


def stander(app, provider, engine, refresh=True, groups=("data-people",)):
    """Somebody who has just signed in: their name at the provider, browser and API client with a
    token.
    """
    who = f"s{uuid4().hex[:8]}"
    provider.put("/faults", json={"refresh": refresh})
    knows(provider, who, list(groups))
    browser, answer = sign_in(app, provider, who)
    assert answer.status_code == 303
    user = people.find_external(engine, str(provider.base_url).rstrip("/"), f"id-{who}")
    return who, browser, Api(app, credentials.add_token(engine, user.id, "kept", None))


def standing(browser, api):
    return browser.get("/account").status_code == 200, api.get("/me").status_code == 200


@pytest.mark.parametrize("refresh", [True, False])
def test_who_is_removed_at_the_provider_is_out_within_the_hour(app, provider, engine, refresh):
    who, browser, api = stander(app, provider, engine, refresh)
    provider.delete(f"/people/{who}")
    assert standing(browser, api) == (True, True)
    pass_minutes(engine, 29)
    assert standing(browser, api) == (True, True)
    pass_minutes(engine, 2 if refresh else 32)
    assert standing(browser, api) == (False, False)
    assert "/sign-in" in browser.get("/account").headers["Location"]


def test_without_a_refresh_token_a_sign_in_is_good_for_an_hour_and_tokens_wake_with_the_next(
    app, provider, engine
):
    who, browser, api = stander(app, provider, engine, refresh=False)
    pass_minutes(engine, 61)
    assert standing(browser, api) == (False, False)
    again, _ = sign_in(app, provider, who)
    assert standing(again, api) == (True, True)


def test_who_stays_is_asked_nothing_and_has_the_roles_of_now(app, provider, engine):
    who, browser, api = stander(app, provider, engine)
    for _ in range(3):
        pass_minutes(engine, 59)
        assert standing(browser, api) == (True, True)
    knows(provider, who, ["privacy-team"])
    pass_minutes(engine, 31)
    assert api.get("/me").json["roles"] == ["steward"]
    assert browser.get("/account").status_code == 303  # other roles: a new session


SILENT = (
    {"token_status": 500},
    {"token_status": 502},
    {"token_error": "invalid_client"},
    {"token_error": "server_error"},
)


@pytest.mark.parametrize("fault", SILENT)
def test_a_provider_that_does_not_say_leaves_an_hour(
    provider, database_url, tmp_path, engine, fault
):
    app = create_app(configured(provider, database_url, tmp_path))
    _, browser, api = stander(app, provider, engine)
    provider.put("/faults", json=fault)
    pass_minutes(engine, 58)
    assert standing(browser, api) == (True, True)
    pass_minutes(engine, 3)
    assert standing(browser, api) == (False, False)


@pytest.mark.parametrize(
    "error", ["invalid_grant", "access_denied", "login_required", "interaction_required"]
)
def test_a_refusal_ends_it_at_once(app, provider, engine, error):
    _, browser, api = stander(app, provider, engine)
    provider.put("/faults", json={"token_error": error})
    pass_minutes(engine, 31)
    assert standing(browser, api) == (False, False)
    provider.put("/faults", json={})
    assert standing(browser, api) == (False, False)  # the refresh token is forgotten


def test_another_provider_confirms_nobody_of_the_first(
    app, provider, database_url, tmp_path, engine
):
    """A service whose provider was changed, or taken away, has no way to ask: tokens end within the
    hour.
    """
    _, _, api = stander(app, provider, engine)
    token = api.headers
    for more in ({"oidc_issuer": "http://127.0.0.1:9"}, {"oidc_issuer": None}):
        other = create_app(configured(provider, database_url, tmp_path, **more)).test_client()
        assert other.get("/api/v1/me", headers=token).status_code == 200
    pass_minutes(engine, 61)
    assert other.get("/api/v1/me", headers=token).status_code == 401


def test_refresh_tokens_are_sealed(app, provider, engine):
    stander(app, provider, engine)
    with engine.connect() as connection:
        query = text(
            "SELECT refresh_token, id_token FROM external_accounts JOIN sessions USING (user_id)"
        )
        rows = [row for row in connection.execute(query) if row.refresh_token]
    assert rows
    assert all(b"eyJ" not in bytes(each) for row in rows for each in row if each)


# --- signing out
# --------------------------------------------------------------------------------------


def out(browser):
    return browser.post("/sign-out", "/account")


def test_signing_out_ends_the_session_at_the_provider(provider, database_url, tmp_path, engine):
    app = create_app(configured(provider, database_url, tmp_path))
    provider.put(
        "/faults", json={"metadata": {"end_session_endpoint": "https://login.example.org/out?x=1"}}
    )
    knows(provider, "ada", ["privacy-team"])
    browser, _ = sign_in(app, provider, "ada")
    page = out(browser)
    there = urlsplit(page.headers["Refresh"].removeprefix("0; url="))
    query = parse_qs(there.query)
    assert (there.netloc, there.path, query["x"], query["client_id"]) == (
        "login.example.org",
        "/out",
        ["1"],
        [CLIENT_ID],
    )
    assert query["post_logout_redirect_uri"] == ["http://localhost/sign-in/provider/left"]
    assert query["id_token_hint"][0].count(".") == 2
    assert browser.get("/account").status_code == 303
    forged = browser.get("/sign-in/provider/left?state=x")
    assert forged.headers["Location"] == "/sign-in"
    assert (
        browser.get(f"/sign-in/provider/left?state={query['state'][0]}").headers["Location"]
        == "/sign-in"
    )  # used


def test_the_way_back_is_known_by_its_state(provider, database_url, tmp_path):
    app = create_app(configured(provider, database_url, tmp_path))
    provider.put(
        "/faults", json={"metadata": {"end_session_endpoint": "https://login.example.org/out"}}
    )
    knows(provider, "ada", ["privacy-team"])
    browser, _ = sign_in(app, provider, "ada")
    state = parse_qs(urlsplit(out(browser).headers["Refresh"]).query)["state"][0]
    assert "was told" in browser.get(f"/sign-in/provider/left?state={state}").text


def test_a_provider_without_a_way_out_leaves_a_sign_out_of_this_service(app, provider):
    knows(provider, "ada", ["privacy-team"])
    browser, _ = sign_in(app, provider, "ada")
    assert out(browser).headers["Location"] == "/sign-in"
    assert browser.get("/account").status_code == 303


EVENTS = {"http://schemas.openid.net/event/backchannel-logout": {}}


def logout(app, provider, wanted=None, header=None, key=None, **claims):
    """Send a logout token; `claims` with None are left out, numbers of times are seconds from
    now.
    """
    now, issuer = int(time.time()), str(provider.base_url).rstrip("/")
    stated = {
        "iss": issuer,
        "aud": CLIENT_ID,
        "iat": 0,
        "exp": 120,
        "jti": uuid4().hex,
        "events": EVENTS,
    } | claims
    stated = {
        name: value + now if name in ("iat", "exp", "nbf") and isinstance(value, int) else value
        for name, value in stated.items()
        if value is not None
    }
    body = {"claims": stated, "header": header or {}, "key": key}
    token = provider.post("/sign", json=body).text
    return app.test_client().post("/sign-in/provider/back-channel", data={"logout_token": token})


def test_a_logout_token_ends_what_it_names(app, provider, engine):
    provider.put("/faults", json={"claims": {"sid": "one"}})
    knows(provider, "ada", ["privacy-team"])
    knows(provider, "bob", ["privacy-team"])
    (one, _) = sign_in(app, provider, "ada")
    provider.put("/faults", json={"claims": {"sid": "two"}})
    (two, _), (bob, _) = sign_in(app, provider, "ada"), sign_in(app, provider, "bob")

    def open_():
        return [each.get("/account").status_code == 200 for each in (one, two, bob)]

    assert logout(app, provider, sid="nobody's").status_code == 200
    assert open_() == [True, True, True]
    answer = logout(app, provider, sid="one", sub="id-ada")
    assert (answer.status_code, answer.headers["Cache-Control"]) == (200, "no-store")
    assert open_() == [False, True, True]
    assert logout(app, provider, sub="id-ada").status_code == 200
    assert open_() == [False, False, True]
    assert (
        logout(app, provider, sid="two", sub="id-ada").status_code == 200
    )  # bob's session has this name too
    assert open_() == [False, False, True]


FALSE = {
    "another issuer": {"iss": "https://elsewhere.example"},
    "no issuer": {"iss": None},
    "another audience": {"aud": "somebody else"},
    "other audiences": {"aud": ["a", "b"]},
    "no audience": {"aud": None},
    "made tomorrow": {"iat": 86_400},
    "made yesterday": {"iat": -86_400},
    "made five minutes ago": {"iat": -300},
    "no time": {"iat": None},
    "expired": {"exp": -200},
    "no jti": {"jti": None},
    "no events": {"events": None},
    "other events": {"events": {"x": {}}},
    "events as a list": {"events": ["http://schemas.openid.net/event/backchannel-logout"]},
    "a nonce": {"nonce": "n"},
    "nobody": {"sub": None},
    "an empty name": {"sub": ""},
    "a number": {"sub": 7},
    "another key": {"key": "another"},
    "a shared key": {"header": {"alg": "HS256"}},
    "no signature": {"header": {"alg": "none"}},
    "an unknown key": {"header": {"kid": "unknown"}},
}


@pytest.mark.parametrize("how", FALSE)
def test_a_false_logout_token_ends_nothing(app, provider, how):
    knows(provider, "ada", ["privacy-team"])
    browser, _ = sign_in(app, provider, "ada")
    answer = logout(app, provider, **({"sub": "id-ada"} | FALSE[how]))
    assert (answer.status_code, answer.json["error"]) == (400, "invalid_request")
    assert browser.get("/account").status_code == 200


def test_a_logout_token_is_taken_once(app, provider):
    knows(provider, "ada", ["privacy-team"])
    assert logout(app, provider, sub="id-ada", jti="once").status_code == 200
    browser, _ = sign_in(app, provider, "ada")
    assert logout(app, provider, sub="id-ada", jti="once").status_code == 400
    assert browser.get("/account").status_code == 200


@pytest.mark.parametrize(
    "sent", [{}, {"logout_token": ""}, {"logout_token": "a.b.c"}, {"logout_token": "x" * 5000}]
)
def test_what_is_no_logout_token_is_refused(app, sent):
    assert app.test_client().post("/sign-in/provider/back-channel", data=sent).status_code == 400


# --- before a sensitive act -----------------------------------------------------------------------

LONG_AGO = {"claims": {"auth_time": 1_000_000_000}}


@pytest.fixture
def asking(provider, database_url, tmp_path):
    """The service, for which every sign-in but one of the last moments was long ago."""

    def made(**more):
        return create_app(configured(provider, database_url, tmp_path, fresh_minutes=2, **more))

    return made


def act(browser, **more):
    """A sensitive act on what is not there: 404 says that it was let through."""
    return browser.post(f"/datasets/none-{uuid4()}/policy", "/account", **more)


def again(browser, provider, name):
    away = browser.get("/sign-in/provider/again")
    query = parse_qs(urlsplit(away.headers["Location"]).query)
    assert (query["prompt"], query["max_age"]) == (["login"], ["0"])
    back = urlsplit(
        provider.post(away.headers["Location"], data={"user": name}).headers["Location"]
    )
    return query, browser.get(f"{back.path}?{back.query}")


def test_a_sensitive_act_waits_for_a_new_sign_in_at_the_provider(asking, provider):
    app = asking()
    knows(provider, "hedy", ["privacy-team"])
    provider.put("/faults", json=LONG_AGO)  # signed in there long ago: sent back without a word
    browser, answer = sign_in(app, provider, "hedy")
    assert answer.status_code == 303
    asked = act(browser, note="what was typed")
    assert (asked.status_code, "Is it still you?" in asked.text) == (403, True)
    assert 'name="note" value="what was typed"' in asked.text
    assert 'href="/sign-in/provider/again"' in asked.text
    assert "has not confirmed it yet" in act(browser, confirming="1").text
    provider.put("/faults", json={})
    _, told = again(browser, provider, "hedy")
    assert (told.status_code, "It is you" in told.text) == (200, True)
    assert act(browser, confirming="1").status_code == 404  # there is no such dataset


def test_a_sign_in_of_now_at_the_provider_counts(asking, provider):
    knows(provider, "hedy", ["privacy-team"])
    browser, _ = sign_in(asking(), provider, "hedy")
    assert act(browser).status_code == 404


UNPROVEN = {
    "long ago": (LONG_AGO, "just now"),
    "in an hour": ({"claims": {"auth_time": 9_000_000_000}}, "auth_time"),
    "at no time": ({"claims": {"auth_time": None}}, "auth_time"),
}


@pytest.mark.parametrize("how", UNPROVEN)
def test_what_the_provider_does_not_prove_confirms_nothing(asking, provider, how):
    knows(provider, "joan", ["privacy-team"])
    fault, said = UNPROVEN[how]
    provider.put("/faults", json=fault)
    browser, answer = sign_in(asking(), provider, "joan")
    assert answer.status_code == 303, "it is a sign-in all the same"
    assert act(browser).status_code == 403
    _, told = again(browser, provider, "joan")
    assert told.status_code == 403
    assert said in told.text
    assert act(browser).status_code == 403


def test_a_provider_has_to_say_how_somebody_signed_in_where_that_is_asked_for(asking, provider):
    app = asking(oidc_acr="gold platinum")
    knows(provider, "radia", ["privacy-team"])
    for stated, status in ((None, 403), ("silver", 403), ("gold", 200), ("platinum", 200)):
        provider.put("/faults", json={"claims": {"acr": stated}})
        browser, _ = sign_in(app, provider, "radia")
        assert act(browser).status_code == (403 if status == 403 else 404)
        query, told = again(browser, provider, "radia")
        assert query["acr_values"] == ["gold platinum"]
        assert told.status_code == status
        assert ("acr gold platinum" in told.text) == (status == 403)


def test_another_person_at_the_provider_confirms_nothing(asking, provider):
    app = asking()
    for name in ("adele", "sophie"):
        knows(provider, name, ["privacy-team"])
    provider.put("/faults", json=LONG_AGO)
    sign_in(app, provider, "sophie")
    browser, _ = sign_in(app, provider, "adele")
    provider.put("/faults", json={})
    for name in ("sophie", "nobody-here"):
        knows(provider, name, ["privacy-team"])
        _, told = again(browser, provider, name)
        assert (told.status_code, "somebody else" in told.text) == (403, True)
        assert act(browser).status_code == 403
    assert Pages(app).get("/sign-in/provider/again").status_code == 303


def test_a_session_that_ended_meanwhile_is_not_confirmed(asking, provider):
    """Other roles, which are looked at in passing, end all of a person's sessions."""
    knows(provider, "lise", ["privacy-team"])
    browser, _ = sign_in(asking(), provider, "lise")
    knows(provider, "lise", ["data-people"])
    _, told = again(browser, provider, "lise")
    assert (told.status_code, "has ended: sign in" in told.text) == (403, True)
    assert browser.get("/account").status_code == 303


def test_who_came_back_is_confirmed_in_the_session_that_left_and_in_no_other(asking, provider):
    """Left to confirm, then signed in anew in the same browser: the note to confirm is gone."""
    app = asking()
    knows(provider, "hedy", ["privacy-team"])
    provider.put("/faults", json=LONG_AGO)
    browser, _ = sign_in(app, provider, "hedy")
    browser.get("/sign-in/provider/again")
    assert browser.get(consent(provider, browser, "hedy")).headers["Location"] == "/jobs"
    assert act(browser).status_code == 403


def test_a_discovery_document_of_another_issuer_opens_nothing(provider, database_url, tmp_path):
    knows(provider, "barbara", ["privacy-team"])
    lie = "https://elsewhere.example"  # and the id tokens tell the same one
    provider.put("/faults", json={"issuer": lie, "claims": {"iss": lie}})
    app = create_app(configured(provider, database_url, tmp_path))
    _, answer = sign_in(app, provider, "barbara")
    assert answer.status_code == 403


def test_a_state_is_of_one_browser_and_of_one_use(app, provider):
    knows(provider, "alan", ["data-people"])
    browser = Pages(app)
    address = consent(provider, browser, "alan")
    stranger = Pages(app)
    assert stranger.get(address).status_code == 403  # the cookie holds no such state
    assert stranger.get("/").status_code == 303
    assert browser.get(address).status_code == 303
    assert Pages(app).get("/sign-in/provider/return?state=x&code=y").status_code == 403
    assert browser.get(address).status_code == 403  # again: the state is used up


def test_a_code_without_its_verifier_is_worth_nothing(app, provider):
    """PKCE protects a code that somebody saw on its way, even if they have the client's secret."""
    knows(provider, "alan", ["data-people"])
    browser = Pages(app)
    away = browser.get("/sign-in/provider").headers["Location"]
    back = provider.post(away, data={"user": "alan"}).headers["Location"]
    code = parse_qs(urlsplit(back).query)["code"][0]
    redirect = parse_qs(urlsplit(away).query)["redirect_uri"][0]
    body = {"grant_type": "authorization_code", "code": code, "redirect_uri": redirect}
    assert provider.post("/token", data=body, auth=(CLIENT_ID, CLIENT_SECRET)).status_code == 400


def test_what_the_provider_refuses_is_said_plainly(app):
    browser = Pages(app)
    browser.get("/sign-in/provider")
    answer = browser.get("/sign-in/provider/return?error=access_denied&error_description=<b>no</b>")
    assert answer.status_code == 403
    assert "did not work" in answer.text
    assert "<b>no</b>" not in answer.text


def test_nobody_fills_the_log_by_coming_back_from_nowhere(app, engine):
    """The log of sign-ins is append-only: it must not grow as fast as somebody can ask."""
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM sign_in_limits"))
        before = connection.execute(text("SELECT count(*) FROM sign_ins")).scalar_one()
    browser = Pages(app)
    for _ in range(sign_ins.ADDRESS_FAILURES + 20):
        assert browser.get("/sign-in/provider/return?state=x&code=y").status_code == 403
    with engine.begin() as connection:
        after = connection.execute(text("SELECT count(*) FROM sign_ins")).scalar_one()
        connection.execute(text("DELETE FROM sign_in_limits"))
    # each, and once that there were too many
    assert after - before == sign_ins.ADDRESS_FAILURES + 1


def test_an_address_writes_no_line_of_its_own_into_the_log(app, caplog):
    forged = "no%0A2031-01-01 00:00:00 INFO web: administrator signed in"
    Pages(app).get(f"/sign-in/provider/return?error=x&error_description={forged}")
    told = [each.getMessage() for each in caplog.records if "provider" in each.getMessage()]
    assert told
    assert all(each.isprintable() for each in told)


def test_a_provider_that_is_away_leaves_local_accounts(provider, database_url, tmp_path):
    app = create_app(configured(provider, database_url, tmp_path, oidc_issuer="http://127.0.0.1:9"))
    browser = Pages(app)
    answer = browser.get("/sign-in/provider")
    assert answer.status_code == 502
    assert "did not work" in answer.text
    assert 'name="password"' in answer.text


def test_a_secret_may_lie_in_a_file_and_the_address_may_be_the_proxys(
    provider, database_url, tmp_path
):
    kept = tmp_path / "secret"
    kept.write_text(f"{CLIENT_SECRET}\n")
    more = {"oidc_client_secret": None, "oidc_client_secret_file": kept}
    public = "https://budget.example.org"
    app = create_app(configured(provider, database_url, tmp_path, public_url=public, **more))
    knows(provider, "ada", ["privacy-team"])
    browser = Pages(app)
    away = browser.get("/sign-in/provider").headers["Location"]
    asked = parse_qs(urlsplit(away).query)["redirect_uri"]
    assert asked == [f"{public}/sign-in/provider/return"]
    back = urlsplit(provider.post(away, data={"user": "ada"}).headers["Location"])
    assert browser.get(f"{back.path}?{back.query}").status_code == 303


@pytest.mark.parametrize(
    "wrong",
    [
        {"oidc_issuer": "http://elsewhere.example"},
        {"oidc_client_id": None},
        {"oidc_roles": {}},
        {"oidc_roles": {"x": "king"}},
    ],
)
def test_half_a_setting_is_an_error_at_start(provider, database_url, tmp_path, wrong):
    with pytest.raises(RuntimeError, match="EXCHEQUER_OIDC"):
        create_app(configured(provider, database_url, tmp_path, **wrong))


def test_without_a_provider_there_is_no_such_address(database_url, tmp_path):
    app = create_app(Settings(home=tmp_path, DATABASE_URL=database_url))
    browser = Pages(app)
    assert browser.get("/sign-in/provider").status_code == 404
    assert browser.get("/sign-in/provider/return").status_code == 404
    assert "/sign-in/provider" not in browser.get("/sign-in").text
