"""Over every route of the service: headers, CSRF tokens, cookies, nothing written inline."""

import re

import httpx2
import pytest
from flask import Flask
from sqlalchemy import text

from accountant.settings import Settings
from tests.web.browsers import Pages
from tests.web.serving import serving
from web.app import create_app
from web.proxies import Proxies

pytestmark = pytest.mark.slow

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; "
    "img-src 'self' data:; connect-src "
    "'self'; "
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
INLINE = re.compile(
    r"<script(?![^>]*\ssrc=)|\sstyle=|<style|\son[a-z]+=|javascript:", re.IGNORECASE
)


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
                    assert answer.headers["Cache-Control"].startswith(
                        ("private", "no-", "public")
                    ), rule.rule
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
    posts = [
        rule for rule in pages(site.app, "POST") if rule.endpoint != "sign_in.provider_back_channel"
    ]
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
    form = {
        "csrf_token": token,
        "name": site.actor("analyst").name,
        "password": "correct horse battery",
    }
    origin = {"Referer": f"{base}/sign-in"}
    answer = client.post("/sign-in", base_url=base, data=form, headers=origin)
    assert answer.status_code == 303
    for each in (page, answer):
        for cookie in each.headers.getlist("Set-Cookie"):
            assert "HttpOnly" in cookie
            assert "SameSite=Lax" in cookie
            assert ("Secure" in cookie) == secure
        assert ("Strict-Transport-Security" in each.headers) == secure


PROXIES = "10.0.0.0/8|2001:db8:1::/48|127.0.0.1|::1"
DIRECT, PASSED = "203.0.113.9", "198.51.100.7"
#: (proxies in a row, from where, X-Forwarded-For) and the client; "": nothing that was said counts.
CAME = (
    (0, "10.0.0.1", PASSED, ""),
    (1, DIRECT, PASSED, ""),
    (1, "10.0.0.1", PASSED, PASSED),
    (1, "127.0.0.1", PASSED, PASSED),
    (1, "::1", PASSED, PASSED),
    (1, "::ffff:10.0.0.1", PASSED, PASSED),
    (1, "2001:db8:1::7", "2001:db8:7::1", "2001:db8:7::1"),
    (1, "2001:db8:2::7", PASSED, ""),
    (1, "10.0.0.1", f"1.1.1.1, {PASSED}", PASSED),
    (1, "10.0.0.1", f"{PASSED}, 10.0.0.2", "10.0.0.2"),
    (2, "10.0.0.1", f"1.1.1.1, {PASSED}, 10.0.0.2", PASSED),
    (2, "10.0.0.1", f"1.1.1.1, {DIRECT}", DIRECT),
    (2, "10.0.0.1", PASSED, PASSED),
    (1, "10.0.0.1", f"{PASSED}:4711", PASSED),
    (1, "10.0.0.1", "[2001:db8:7::1]:80", "2001:db8:7::1"),
    (1, "10.0.0.1", "unknown", "unknown"),
    (1, "", PASSED, PASSED),
    (3, "11.0.0.1", "10.0.0.1, 10.0.0.2", ""),
)


@pytest.mark.parametrize(("hops", "peer", "chain", "client"), CAME)
def test_forwarded_headers_are_believed_from_named_proxies_alone(hops, peer, chain, client):
    seen = {}

    def application(environ, start_response):
        seen.update(environ)
        return []

    settings = Settings(trusted_proxies=hops, proxy_addresses=PROXIES)
    environ = {
        "REMOTE_ADDR": peer,
        "SERVER_PORT": "8750",
        "SERVER_NAME": "web",
        "HTTP_HOST": "web:8750",
        "wsgi.url_scheme": "http",
        "SCRIPT_NAME": "",
        "PATH_INFO": "/",
        "HTTP_FORWARDED": "for=1.1.1.1;host=evil",
        "HTTP_X_FORWARDED_FOR": chain,
        "HTTP_X_FORWARDED_PROTO": "https",
        "HTTP_X_FORWARDED_HOST": "budget.example.org",
        "HTTP_X_FORWARDED_PREFIX": "/exchequer",
        "HTTP_X_FORWARDED_PORT": "1",
    }
    Proxies(application, settings)(environ, None)
    assert seen["REMOTE_ADDR"] == (client or peer)
    told = {name: seen[name] for name in ("wsgi.url_scheme", "HTTP_HOST", "SCRIPT_NAME")}
    believed = ("https", "budget.example.org", "/exchequer") if client else ("http", "web:8750", "")
    assert tuple(told.values()) == believed
    assert "HTTP_FORWARDED" not in seen
    if not client:
        assert not [name for name in seen if name.startswith("HTTP_X_FORWARDED")]


# Host and X-Forwarded-Host as the proxy sent them, the public address, the host that links have
HOSTS = (
    ("budget.example.org", "evil.example", None, "budget.example.org"),
    ("web:8750", "budget.example.org", None, "budget.example.org"),
    ("127.0.0.1", "evil.example", None, "127.0.0.1"),
    ("127.0.0.1:8080", "evil.example", None, "127.0.0.1:8080"),
    ("127.0.0.1:8750", "evil.example", "https://budget.example.org", "budget.example.org"),
    ("[::1]:8750", "b.example", None, "b.example"),
    ("evil.example", "evil.example", "https://budget.example.org:8443", "budget.example.org:8443"),
    ("web:8750", "", "https://budget.example.org", "budget.example.org"),
    ("[::1]", "evil.example", None, "[::1]"),
    ("web:8750", "evil.example, budget.example.org", None, "budget.example.org"),
    ("web:8750", "", None, "web:8750"),
)


@pytest.mark.parametrize(("host", "forwarded", "public", "shown"), HOSTS)
def test_the_host_is_the_public_one_or_the_proxys(site, tmp_path, host, forwarded, public, shown):
    """A client's X-Forwarded-Host goes through a proxy that does not set it: it must not change
    links.
    """
    url = site.engine.url.render_as_string(hide_password=False)
    app = create_app(
        Settings(home=tmp_path, DATABASE_URL=url, trusted_proxies=1, public_url=public)
    )
    environ = {"HTTP_HOST": host, "SERVER_PORT": "8750", "HTTP_X_FORWARDED_HOST": forwarded}
    page = app.test_client().get("/api/docs", environ_overrides=environ)
    assert f"URL=http://{shown}\n" in page.text
    app.extensions["exchequer"]["engine"].dispose()


@pytest.mark.parametrize("wrong", ["proxy", "10.0.0.0/33", "10.0.0.1,10.0.0.2", "300.1.1.1"])
def test_what_names_no_proxy_is_an_error_at_start(site, tmp_path, wrong):
    url = site.engine.url.render_as_string(hide_password=False)
    with pytest.raises(RuntimeError, match="EXCHEQUER_PROXY_ADDRESSES"):
        create_app(
            Settings(home=tmp_path, DATABASE_URL=url, trusted_proxies=1, proxy_addresses=wrong)
        )


@pytest.mark.parametrize("gunicorn", [False, True])
def test_so_it_is_under_the_servers_that_people_run(site, tmp_path, gunicorn):
    """A server below the application may take these headers away, or believe them, before it sees
    them: Gunicorn believes 127.0.0.1 unless told otherwise, which is no proxy here.
    """
    url = site.engine.url.render_as_string(hide_password=False)
    claimed = {"X-Forwarded-Proto": "https", "X-Forwarded-For": "203.0.113.9"}
    query = text("SELECT address FROM sign_ins WHERE name = :name")
    options = {"trusted_proxies": 1, "proxy_addresses": "127.0.0.2"}
    with serving(url, tmp_path, gunicorn=gunicorn, **options) as server:
        for sender, named in (("127.0.0.2", True), ("127.0.0.1", False)):
            name = f"nobody-{gunicorn}-{named}".lower()
            transport = httpx2.HTTPTransport(local_address=sender)
            with httpx2.Client(base_url=server.url, headers=claimed, transport=transport) as client:
                answer = client.get("/sign-in")
                assert ("secure" in answer.headers["Set-Cookie"].lower()) == named
                form = {"name": name, "password": "certainly not the password"}
                client.post("/api/v1/session", json=form)
            with site.engine.connect() as connection:
                came = connection.execute(query, {"name": name}).scalar_one()
            assert came == ("203.0.113.9" if named else "127.0.0.1")
