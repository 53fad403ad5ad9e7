"""Over every route of the service: headers, CSRF tokens, cookies, nothing written inline."""

import re

import httpx
import pytest
from flask import Flask
from sqlalchemy import text

from tests.web.browsers import Pages
from tests.web.serving import serving

pytestmark = pytest.mark.slow

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": CSP,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
INLINE = re.compile(r"<script(?![^>]*\ssrc=)|\sstyle=|<style|\son[a-z]+=|javascript:", re.IGNORECASE)


def address(rule, names: dict[str, str]) -> str:
    """An address that a rule matches: of something that is there, where a name for it is known."""
    path = re.sub(r"<any\('?(\w+)[^<>]*>", r"\1", rule.rule)
    return re.sub(r"<(?:[^:<>]+:)?([^<>]+)>", lambda found: names.get(found[1], "x"), path)


def pages(app: Flask, method: str):
    """The rules of pages that take a method; the API takes tokens, never cookies."""
    return [
        rule
        for rule in app.url_map.iter_rules()
        if method in (rule.methods or ()) and not rule.endpoint.startswith("api.")
    ]


@pytest.fixture
def names(site) -> dict[str, str]:
    return {"name": site.bench.dataset, "job": site.submitted(), "filename": "exchequer.css"}


@pytest.fixture
def everybody(site) -> Pages:
    from accountant.identities import credentials

    name = f"all-{site.bench.dataset}"
    credentials.add_user(site.engine, name, site.password_hash, list(credentials.ROLES))
    browser = Pages(site.app)
    assert browser.sign_in(name).status_code == 303
    return browser


def test_every_answer_of_every_route_has_the_headers(site, names, everybody):
    strangers, statuses = site.app.test_client(), set()
    for rule in site.app.url_map.iter_rules():
        for method in sorted(rule.methods or ()):
            for client in (strangers, everybody.client):
                if "sign-out" in rule.rule and client is everybody.client:
                    continue
                answer = client.open(address(rule, names), method=method)
                statuses.add(answer.status_code)
                for header, value in HEADERS.items():
                    assert answer.headers.get(header) == value, (rule.rule, method, header)
                assert "camera=()" in answer.headers["Permissions-Policy"]
                if not rule.rule.startswith("/static"):
                    assert answer.headers["Cache-Control"].startswith(("private", "no-", "public")), rule.rule
                if answer.mimetype == "text/html":
                    assert not INLINE.search(answer.text), rule.rule
    assert {200, 303, 400, 401, 404} <= statuses


def test_errors_have_the_headers_too(site):
    client = site.app.test_client()
    wrong = [client.get("/nothing/here"), client.delete("/jobs"), client.get("/api/v1/nothing")]
    for answer in wrong:
        assert answer.status_code in (404, 405, 401)
        for header, value in HEADERS.items():
            assert answer.headers.get(header) == value


def test_every_page_that_takes_a_post_asks_for_its_csrf_token(site, names, everybody):
    posts = pages(site.app, "POST")
    assert len(posts) > 20
    for rule in posts:
        for data in ({}, {"csrf_token": "made up"}):
            answer = everybody.client.post(address(rule, names), data=data)
            assert answer.status_code == 400, rule.rule
            assert "came from elsewhere" in answer.text, rule.rule


def test_no_page_changes_anything_without_a_post(site):
    """Only GET and POST: a link or a picture elsewhere can't do more than look."""
    for rule in site.app.url_map.iter_rules():
        if not rule.endpoint.startswith("api."):
            assert (rule.methods or set()) <= {"GET", "HEAD", "OPTIONS", "POST"}


def test_the_api_takes_no_cookie(site, everybody):
    assert everybody.client.get("/api/v1/me").status_code == 401
    assert everybody.client.post("/api/v1/users", json={}).status_code == 401


@pytest.mark.parametrize("secure", [False, True])
def test_cookies_and_transport(site, secure):
    base = "https://localhost" if secure else "http://localhost"
    client = site.app.test_client()
    page = client.get("/sign-in", base_url=base)
    token = re.search(r'name="csrf_token" value="([^"]+)"', page.text)[1]
    form = {"csrf_token": token, "name": site.actor("analyst").name, "password": "correct horse battery"}
    origin = {"Referer": f"{base}/sign-in"}
    answer = client.post("/sign-in", base_url=base, data=form, headers=origin)
    assert answer.status_code == 303
    for each in (page, answer):
        for cookie in each.headers.getlist("Set-Cookie"):
            assert "HttpOnly" in cookie
            assert "SameSite=Lax" in cookie
            assert ("Secure" in cookie) == secure
        assert ("Strict-Transport-Security" in each.headers) == secure


def test_behind_a_proxy_that_is_trusted_tls_is_seen(site, tmp_path):
    from accountant.settings import Settings
    from web.app import create_app

    url = site.engine.url.render_as_string(hide_password=False)
    claimed = {"X-Forwarded-Proto": "https"}
    for hops in (0, 1):
        app = create_app(Settings(home=tmp_path, DATABASE_URL=url, trusted_proxies=hops))
        answer = app.test_client().get("/sign-in", headers=claimed)
        assert ("Secure" in answer.headers["Set-Cookie"]) == bool(hops)


@pytest.mark.slow
@pytest.mark.parametrize(("gunicorn", "hops"), [(False, 0), (False, 1), (True, 1)])
def test_so_it_is_under_the_servers_that_people_run(site, tmp_path, gunicorn, hops):
    """A server below the application may take these headers away before it sees them."""
    url = site.engine.url.render_as_string(hide_password=False)
    claimed = {"X-Forwarded-Proto": "https", "X-Forwarded-For": "203.0.113.9"}
    form = {"name": f"nobody-{gunicorn}-{hops}".lower(), "password": "certainly not the password"}
    with serving(url, tmp_path, gunicorn=gunicorn, trusted_proxies=hops) as server:
        answer = httpx.get(f"{server.url}/sign-in", headers=claimed)
        assert ("secure" in answer.headers["Set-Cookie"].lower()) == bool(hops)
        httpx.post(f"{server.url}/api/v1/session", json=form, headers=claimed)
    query = text("SELECT address FROM sign_ins WHERE name = :name")
    with site.engine.connect() as connection:
        came = connection.execute(query, {"name": form["name"]}).scalar_one()
    assert came == ("203.0.113.9" if hops else "127.0.0.1")
