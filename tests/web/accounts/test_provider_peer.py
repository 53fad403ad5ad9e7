"""Signing in and out at npm's certified oidc-provider, as a browser does, with a real server."""

import json
import re
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from html import unescape
from pathlib import Path

import httpx2
import pytest
from sqlalchemy import text

from accountant.identities import credentials, people
from tests.web import peers
from tests.web.accounts.oidc_provider import CLIENT_ID, CLIENT_SECRET
from tests.web.serving import free_port, serving

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).with_name("oidc_peer.mjs")
ROLES = {"privacy-team": "steward", "data-people": "analyst"}


class Provider:
    """The provider's process."""

    def __init__(self, url):
        self.url, self.people = url, {}

    def know(self, name, *groups):
        self.people[name] = {"preferred_username": name, "groups": list(groups)}
        self._tell()

    def forget(self, name):
        del self.people[name]
        self._tell()

    def _tell(self):
        httpx2.put(self.url, json=self.people).raise_for_status()


@pytest.fixture(scope="module")
def port():
    return free_port()


@contextmanager
def running(port, **options):
    modules = peers.npm("oidc-provider@9.13.3")
    command = [
        shutil.which("node"),
        SCRIPT,
        modules,
        f"http://127.0.0.1:{port}",
        json.dumps(options),
    ]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        lines = iter(process.stdout.readline, "")
        stated = next((line.strip() for line in lines if line.strip().isdigit()), None)
        if stated is None:
            pytest.skip("oidc-provider does not run under this node")
        yield Provider(f"http://127.0.0.1:{stated}")
    finally:
        process.terminate()
        process.wait(10)


@pytest.fixture(scope="module")
def provider(port):
    with running(port) as found:
        yield found


@pytest.fixture(scope="module")
def service(provider, port, database_url, tmp_path_factory):
    settings = {
        "oidc_issuer": provider.url,
        "oidc_client_id": CLIENT_ID,
        "oidc_client_secret": CLIENT_SECRET,
        "oidc_roles": json.dumps(ROLES),
        "oidc_name": "Example University",
        "oidc_scope": "openid profile groups offline_access",
        "oidc_prompt": "consent",
    }
    with serving(database_url, tmp_path_factory.mktemp("web"), port=port, **settings) as server:
        yield server.url


def forms(page):
    """The hidden fields and the address of the first form of a page."""
    form = re.search(r"<form[^>]*>.*?</form>", page.text, re.DOTALL)[0]
    fields = dict(re.findall(r'<input[^>]*name="([^"]+)"[^>]*value="([^"]*)"', form))
    return unescape(re.search(r'action="([^"]+)"', form)[1]), fields


def sign_in(service, name):
    """A browser that signed in at the provider under a name, and the page that it came to."""
    browser = httpx2.Client(follow_redirects=True, timeout=30)
    page = browser.get(f"{service}/sign-in/provider?next=/account")
    for _ in range(4):
        if "/interaction/" not in str(page.url):
            break
        address, fields = forms(page)
        page = browser.post(address, data=fields | {"login": name, "password": "any"})
    return browser, page


def token_of(engine, provider, name):
    user = people.find_external(engine, provider.url, name)
    return credentials.add_token(engine, user.id, "kept", None)


def asked(service, token):
    return httpx2.get(
        f"{service}/api/v1/me", headers={"Authorization": f"Bearer {token}"}, timeout=30
    )


def is_in(browser, service):
    return browser.get(f"{service}/account", follow_redirects=False).status_code == 200


def pass_minutes(engine, minutes):
    with engine.begin() as connection:
        past = text(
            "UPDATE external_accounts SET confirmed_at = confirmed_at - make_interval(mins => "
            ":minutes)"
        )
        connection.execute(past, {"minutes": minutes})


def test_groups_that_stand_at_userinfo_only_count(service, provider, engine):
    provider.know("ada", "privacy-team", "others")
    browser, page = sign_in(service, "ada")
    assert (page.status_code, page.url.path) == (200, "/account"), page.text
    assert people.find_external(engine, provider.url, "ada").roles == ["steward"]
    assert browser.get(f"{service}/inbox").status_code == 200
    provider.know("nobody", "others")
    _, page = sign_in(service, "nobody")
    assert (page.status_code, "no role here" in page.text) == (403, True)


def test_the_issuer_in_the_answer_is_looked_at(service, provider):
    """It promises iss in its answers (RFC 9207): one without it, or with another, opens nothing."""
    provider.know("ada", "privacy-team")
    for change in (
        "",
        "&iss=https://elsewhere.example",
        f"&iss={provider.url}&iss=https://elsewhere.example",
    ):
        browser = httpx2.Client(timeout=30)
        page = browser.get(f"{service}/sign-in/provider", follow_redirects=True)
        address, fields = forms(page)
        answer = browser.post(address, data=fields | {"login": "ada", "password": "any"})
        while not (where := answer.headers.get("Location", "")).startswith(service):
            if where:
                answer = browser.get(answer.url.join(where))
            else:
                address, fields = forms(answer)
                answer = browser.post(address, data=fields)
        assert "&iss=" in where
        told = browser.get(re.sub(r"&iss=[^&]*", "", where) + change)
        assert told.status_code == 403
        assert not is_in(browser, service)


def test_who_is_removed_at_the_provider_loses_sessions_and_tokens(service, provider, engine):
    provider.know("grace", "data-people")
    browser, _ = sign_in(service, "grace")
    token = token_of(engine, provider, "grace")
    for _ in range(3):  # hours go by: the refresh token is another each time
        pass_minutes(engine, 59)
        assert asked(service, token).status_code == 200
        assert is_in(browser, service)
    provider.forget("grace")
    assert asked(service, token).status_code == 200  # for half an hour at most
    pass_minutes(engine, 31)
    assert asked(service, token).status_code == 401
    assert not is_in(browser, service)
    assert asked(service, token).status_code == 401
    provider.know("grace", "data-people")
    assert asked(service, token).status_code == 401  # until they sign in again
    sign_in(service, "grace")
    assert asked(service, token).status_code == 200


def test_a_role_that_is_taken_away_at_the_provider_is_gone_within_the_hour(
    service, provider, engine
):
    provider.know("lise", "privacy-team", "data-people")
    browser, _ = sign_in(service, "lise")
    token = token_of(engine, provider, "lise")
    assert asked(service, token).json()["roles"] == ["analyst", "steward"]
    provider.know("lise", "data-people")
    pass_minutes(engine, 31)
    assert asked(service, token).json()["roles"] == ["analyst"]  # at once, in this very request
    assert not is_in(browser, service)
    provider.know("lise")
    pass_minutes(engine, 31)
    assert asked(service, token).json()["roles"] == []


def test_requests_at_once_use_one_refresh_token_once(service, provider, engine):
    """A refresh token that is used twice ends the grant: it looks stolen."""
    provider.know("alan", "data-people")
    sign_in(service, "alan")
    token = token_of(engine, provider, "alan")
    for minutes in (40, 90, 40):
        pass_minutes(engine, minutes)
        with ThreadPoolExecutor(8) as pool:
            statuses = pool.map(lambda _: asked(service, token).status_code, range(8))
            assert set(statuses) == {200}


def test_signing_out_here_signs_out_there(service, provider, engine):
    provider.know("mary", "data-people")
    browser, page = sign_in(service, "mary")
    csrf = re.search(r'name="csrf_token" value="([^"]+)"', page.text)[1]
    page = browser.post(
        f"{service}/sign-out", data={"csrf_token": csrf}, headers={"Referer": f"{service}/"}
    )
    assert "You are signed out" in page.text
    assert not is_in(browser, service)
    there = page.headers["Refresh"].removeprefix("0; url=")
    assert there.startswith(f"{provider.url}/session/end?")
    assert {"id_token_hint", "post_logout_redirect_uri", "state", "client_id"} <= set(
        httpx2.URL(there).params
    )
    address, fields = forms(browser.get(there))  # it asks whether one wants to
    back = browser.post(address, data=fields | {"logout": "yes"})
    assert back.url.path == "/sign-in/provider/left"
    assert "was told" in back.text
    page = browser.get(f"{service}/sign-in/provider")
    assert 'name="login"' in page.text  # nobody is signed in there


def test_signing_out_there_signs_out_here(service, provider, engine):
    """Back-channel logout ends the session that was named, and no other of the person's."""
    provider.know("joan", "data-people")
    provider.know("edsger", "data-people")
    (one, _), (other, _), (else_, _) = (
        sign_in(service, name) for name in ("joan", "joan", "edsger")
    )
    token = token_of(engine, provider, "joan")
    address, fields = forms(one.get(f"{provider.url}/session/end"))
    one.post(address, data=fields | {"logout": "yes"})
    deadline = time.monotonic() + 10
    while is_in(one, service) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert [is_in(each, service) for each in (one, other, else_)] == [False, True, True]
    assert asked(service, token).status_code == 200


def test_a_new_sign_in_before_a_sensitive_act_is_taken(service, provider):
    provider.know("radia", "privacy-team")
    browser, _ = sign_in(service, "radia")
    page = browser.get(f"{service}/sign-in/provider/again")
    for _ in range(3):
        if "/interaction/" in str(page.url):
            address, fields = forms(page)
            page = browser.post(address, data=fields | {"login": "radia", "password": "any"})
    assert "It is you" in page.text, page.text
