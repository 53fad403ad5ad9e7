"""Signing in at an OpenID Connect provider that runs as a process of its own, over HTTP."""

import subprocess
import sys
from pathlib import Path
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import httpx
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
    running = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    port = int(running.stdout.readline())
    with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
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


def test_a_name_or_an_address_never_links_to_an_account_that_is_there(app, provider, engine):
    local = credentials.add_user(engine, "margaret", None, ["steward"])
    claims = {"preferred_username": "margaret", "email": "margaret@example.org", "email_verified": False}
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


def test_more_groups_than_a_token_holds_take_no_role_away_and_are_told(app, provider, engine, caplog):
    knows(provider, "hedy", ["privacy-team"])
    sign_in(app, provider, "hedy")
    issuer = str(provider.base_url).rstrip("/")
    user = people.find_external(engine, issuer, "id-hedy")
    token = credentials.add_token(engine, user.id, "kept", None)
    for name in ("hedy", "new"):
        provider.put(
            f"/people/{name}",
            json={"sub": f"id-{name}", "_claim_names": {"groups": "src1"}, "_claim_sources": SOURCES},
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
    people.deactivate(engine, credentials.actor_of(credentials.find_user(engine, user_id=admin)), "edsger")
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


# --- before a sensitive act -----------------------------------------------------------------------

LONG_AGO = {"claims": {"auth_time": 1_000_000_000}}


@pytest.fixture
def asking(provider, database_url, tmp_path):
    """The service, for which every sign-in but one of the last moments was long ago."""

    def made(**more):
        return create_app(configured(provider, database_url, tmp_path, fresh_minutes=2, **more))

    return made


def act(browser, **more):
    """A sensitive act on what is not there: 422 says that it was let through."""
    return browser.post(f"/inbox/proposals/{uuid4()}", "/account", decision="confirm", **more)


def again(browser, provider, name):
    away = browser.get("/sign-in/provider/again")
    query = parse_qs(urlsplit(away.headers["Location"]).query)
    assert (query["prompt"], query["max_age"]) == (["login"], ["0"])
    back = urlsplit(provider.post(away.headers["Location"], data={"user": name}).headers["Location"])
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
    assert act(browser, confirming="1").status_code == 422  # there is no such proposal


def test_a_sign_in_of_now_at_the_provider_counts(asking, provider):
    knows(provider, "hedy", ["privacy-team"])
    browser, _ = sign_in(asking(), provider, "hedy")
    assert act(browser).status_code == 422


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
        assert act(browser).status_code == (403 if status == 403 else 422)
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
    assert after - before == sign_ins.ADDRESS_FAILURES + 1  # each, and once that there were too many


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


def test_a_secret_may_lie_in_a_file_and_the_address_may_be_the_proxys(provider, database_url, tmp_path):
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
