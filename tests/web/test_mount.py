"""The service below a path of its host: every link stays there, whatever the proxy does with the
path.
"""

import re
import shutil
import socket
import subprocess
import time
from urllib.parse import urljoin, urlsplit

import httpx2
import pytest
from pydantic import ValidationError
from sqlalchemy import text

from accountant.core.notices import page
from accountant.identities import credentials
from accountant.settings import Settings
from tests.support import Bench, person
from tests.web.browsers import PASSWORD
from tests.web.serving import serving
from web import oidc
from web.app import cookie_name, create_app
from web.proxies import below

HOST = "https://tools.example.org"
LINK = re.compile(r'(?:href|src|action|formaction|hx-get|hx-post|data-action)="([^"]*)"')

#: Pages of one kind: two of them are looked at.
ALIKE = re.compile(
    r"[0-9a-f]{8}-[0-9a-f-]{27}|(?<=/docs/)[^?#]+|(?<=[/=-])[0-9a-f]{8}(?=\b)|(?<==)[^&#]+|[0-9]+"
)


def configured(database_url, home, **more):
    return Settings(home=home, DATABASE_URL=database_url, **more)


# --- settings -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    [
        *(
            "tools.example.org",
            "ftp://x.example",
            "https://",
            "https://x.example/a?b",
            "https://x.example/a#b",
        ),
        *("https://u:p@x.example/a", "https://x.example/a//b", "https://x.example/a/../b"),
        *(
            "https://x.example/a b",
            "https://x.example/ä",
            "https://x.example/%2e%2e",
            "https://x.example/.",
        ),
    ],
)
def test_an_address_that_links_can_not_begin_with_is_refused(address):
    with pytest.raises(ValidationError, match="links can begin with"):
        Settings(public_url=address)


@pytest.mark.parametrize("path", ["/api", "/jobs/exchequer", "/static", "/sign-in"])
def test_a_path_that_is_a_page_of_the_service_is_refused(path, database_url, tmp_path):
    with pytest.raises(RuntimeError, match="its path begins with"):
        create_app(configured(database_url, tmp_path, public_url=HOST + path))


@pytest.mark.parametrize(
    ("mount", "path", "rest"),
    [
        ("", "/exchequer/jobs", "/exchequer/jobs"),
        ("/exchequer", "/exchequer/jobs", "/jobs"),
        ("/exchequer", "/exchequer/", "/"),
        ("/exchequer", "/exchequer", ""),
        ("/exchequer", "/exchequers", "/exchequers"),
        ("/exchequer", "/jobs", "/jobs"),
        ("/a/b", "/a/b/jobs", "/jobs"),
        ("/a/b", "/a/jobs", "/a/jobs"),
    ],
)
def test_a_path_is_taken_off_where_the_proxy_left_it(mount, path, rest):
    assert below(mount, path) == rest


def test_links_in_mail_and_the_provider_s_way_back_stay_below(database_url, tmp_path):
    settings = configured(database_url, tmp_path, public_url=f"{HOST}/tools/exchequer/")
    assert page(settings.public_url, {"job": "1"}).startswith(f"{HOST}/tools/exchequer/")
    app = create_app(settings)
    with app.test_request_context("/", environ_overrides={"SCRIPT_NAME": settings.public_path}):
        assert oidc.public_address("sign_in.provider_return").startswith(
            f"{HOST}/tools/exchequer/sign-in/"
        )


@pytest.mark.parametrize("stated", ["//evil.example", "/a/../..", "/x?y", "/x y", '/"><b>', "evil"])
def test_a_forwarded_prefix_that_is_no_path_is_not_believed(stated, database_url, tmp_path):
    client = create_app(configured(database_url, tmp_path, trusted_proxies=1)).test_client()
    answer = client.get("/", headers={"X-Forwarded-Prefix": stated})
    assert answer.headers["Location"] == "/sign-in"


# --- cookies --------------------------------------------------------------------------------------


def test_services_on_one_host_have_cookies_of_their_own(database_url, tmp_path, monkeypatch):
    monkeypatch.delenv("EXCHEQUER_KEY_SESSION")  # each home makes its own
    settings = [configured(database_url, tmp_path / name) for name in "ab"]
    names = [create_app(each).config["SESSION_COOKIE_NAME"] for each in settings]
    assert names[0] != names[1]
    # of all its processes, after each start
    assert names[0] == cookie_name(settings[0].secret("session"))
    client = create_app(settings[0]).test_client()
    form = client.get("/sign-in")
    (cookie,) = form.headers.getlist("Set-Cookie")
    assert cookie.startswith(names[0])
    assert "Path=/;" in cookie + ";"


# --- crawling -------------------------------------------------------------------------------------

NGINX = shutil.which("nginx") or "/usr/sbin/nginx"
PROXIES = {
    "takes the path off": ("location /exchequer/ {{ proxy_pass {url}/;", True),
    "leaves the path": ("location /exchequer/ {{ proxy_pass {url};", True),
    "says the path in a header": (
        "location /exchequer/ {{ proxy_pass {url}/; proxy_set_header X-Forwarded-Prefix "
        "/exchequer;",
        False,
    ),
}


def proxied(folder, url, location):
    """A running nginx that has the service below /exchequer/ and nothing anywhere else; its
    address.
    """
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    headers = (
        "proxy_set_header Host $http_host; proxy_set_header X-Forwarded-Proto http; "
        "proxy_set_header X-Forwarded-Host $http_host; "
        "proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; }}"
    )
    (folder / "nginx.conf").write_text(
        f"daemon off; pid {folder}/pid; error_log {folder}/error.log; events {{}} http "
        f"{{ access_log off; "
        + " ".join(
            f"{kind}_temp_path {folder}/{kind};"
            for kind in ("client_body", "proxy", "fastcgi", "uwsgi")
        )
        + f" scgi_temp_path {folder}/scgi; server {{ listen 127.0.0.1:{port}; "
        + (location + headers).format(url=url)
        + " location / { return 404; } } }"
    )
    process = subprocess.Popen(
        (NGINX, "-c", folder / "nginx.conf", "-p", folder, "-e", folder / "error.log")
    )
    return process, f"http://127.0.0.1:{port}"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which(NGINX) is None, reason="nginx is not here")
@pytest.mark.parametrize("kind", PROXIES)
def test_every_page_behind_nginx_links_below_its_path(
    kind, engine, database_url, tmp_path, password_hash
):
    location, is_set = PROXIES[kind]
    bench = Bench(engine)
    bench.allow()
    bench.warm()
    for tokens in range(1, 4):
        bench.submit(tokens)
    who = person(engine, "steward", f"crawler-{kind.split()[0]}")
    credentials.set_password(engine, who.id, password_hash)
    with engine.begin() as connection:
        connection.execute(
            text("UPDATE users SET roles = '{steward,auditor,administrator}' WHERE id = :id"),
            {"id": who.id},
        )
    folder = tmp_path / "nginx"
    folder.mkdir()
    more = {"public_url": "http://127.0.0.1/exchequer"} if is_set else {}
    with serving(database_url, tmp_path.parent / "crawled", trusted_proxies=1, **more) as served:
        process, host = proxied(folder, served.url, location)
        try:
            _wait(f"{host}/exchequer/livez")
            crawled = crawl(host, who.name)
        finally:
            process.terminate()
            process.wait(10)
    assert len(crawled) > 30


def _wait(url):
    for _ in range(100):
        try:
            if httpx2.get(url, trust_env=False).status_code == 200:
                return
        except httpx2.HTTPError:
            pass
        time.sleep(0.1)
    raise AssertionError("nginx did not start")


def crawl(host, name):
    """Follow every link of every page; whatever leaves the path is an error."""
    root, seen = f"{host}/exchequer/", set()
    with httpx2.Client(trust_env=False, timeout=60) as client:
        form = client.get(f"{root}sign-in").text
        token = re.search(r'name="csrf_token" value="([^"]+)"', form)[1]
        answer = client.post(
            f"{root}sign-in",
            data={"csrf_token": token, "name": name, "password": PASSWORD, "next": ""},
        )
        assert answer.status_code == 303, answer.text[:500]
        assert {cookie.path for cookie in client.cookies.jar} == {"/exchequer"}
        waiting = [
            urljoin(root, answer.headers["Location"]),
            f"{root}api/docs",
            f"{root}api/v1/openapi.json",
        ]
        while waiting and len(seen) < 400:
            url = waiting.pop()
            kind = ALIKE.sub("*", url)
            if url in seen or sum(ALIKE.sub("*", each) == kind for each in seen) > 1:
                continue
            seen.add(url)
            answer = client.get(url)
            assert answer.status_code < 400 or answer.status_code in (401, 403, 405, 422), (
                url,
                answer.status_code,
            )
            for found in _links(answer):
                target = urljoin(url, found)
                parts = urlsplit(target)
                if f"{parts.scheme}://{parts.netloc}" != host:
                    assert not found.startswith("/"), (url, found)
                    continue  # a document's source elsewhere
                assert parts.path.startswith("/exchequer/"), (url, found)
                if not parts.path.endswith(("/static", "/report")):
                    waiting.append(target.split("#")[0])
        api = client.get(f"{root}api/v1/openapi.json").json()
        assert api["servers"] == [{"url": "/exchequer"}]
        problem = client.get(f"{root}api/v1/jobs").json()
        assert problem["type"].startswith("/exchequer/api/docs")
        session = client.post(
            f"{root}api/v1/session", json={"name": name, "password": PASSWORD}
        ).json()
        listed = client.get(
            f"{root}api/v1/jobs?limit=1", headers={"Authorization": f"Bearer {session['token']}"}
        )
        assert listed.headers["Link"].startswith("</exchequer/api/v1/jobs?")
    return seen


def _links(answer):
    for name in ("Location", "HX-Redirect", "Content-Location"):
        if name in answer.headers:
            yield answer.headers[name]
    if answer.headers.get("Content-Type", "").startswith("text/html"):
        for found in LINK.findall(answer.text):
            link = found.replace("&amp;", "&")
            if link and not link.startswith(("#", "data:", "mailto:")):
                yield link
