"""The service behind a real nginx: it compresses, refuses large bodies, forwards addresses, finds
nobody.
"""

import re
import shutil
import subprocess
import time
from contextlib import contextmanager

import httpx2
import pytest
from sqlalchemy import text
from typer.testing import CliRunner

from accountant.identities import credentials
from tests.web.serving import ROOT, free_port, serving
from web.cli.commands import app as commands
from web.client.client import Client
from web.client.errors import ApiProblem

NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(NGINX is None, reason="nginx is not installed")]

CONFIG = """
daemon off; worker_processes 1; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 64; }}
http {{
  access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  gzip on; gzip_types application/json application/problem+json text/csv;
  gzip_min_length 1; gzip_proxied any;
  client_max_body_size 100k; proxy_read_timeout 2s;
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://127.0.0.1:{service};
      proxy_set_header Host $http_host;
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
      proxy_set_header X-Forwarded-Proto https;
    }}
    location /away/ {{ proxy_pass http://127.0.0.1:9/; }}
    location /slow/ {{ proxy_pass http://127.0.0.1:{silent}/; }}
  }}
}}
"""


#: What docs/operations.md says for a path of a host.
DOCUMENTED = re.search(
    r"    location /exchequer/ \{.*?\n    \}\n", (ROOT / "docs" / "operations.md").read_text(), re.S
)[0]


@contextmanager
def nginx(folder, service, silent=9):
    port = free_port()
    config = CONFIG.format(folder=folder, port=port, service=service, silent=silent)
    documented = DOCUMENTED.replace(":8750/", f":{service}/")
    config = config.replace("    location / {", f"{documented}    location / {{")
    (folder / "nginx.conf").write_text(config)
    process = subprocess.Popen([NGINX, "-c", folder / "nginx.conf", "-e", folder / "error.log"])
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(100):
            try:
                httpx2.get(f"{url}/livez", timeout=5)
                break
            except httpx2.HTTPError:
                time.sleep(0.05)
        yield url
    finally:
        process.terminate()
        process.wait(10)


@pytest.fixture(scope="module")
def proxied(database_url, tmp_path_factory):
    home = tmp_path_factory.mktemp("web")
    with serving(database_url, home, trusted_proxies=1) as server, nginx(home, server.port) as url:
        yield url


def token_of(site, who):
    return credentials.add_token(site.engine, site.actor(who).id, "test", None)


def test_a_policy_that_came_compressed_is_changed(site, proxied):
    token = token_of(site, "steward")
    headers = {"Authorization": f"Bearer {token}", "Accept-Encoding": "gzip"}
    path = f"{proxied}/api/v1{site.dataset}/policy"
    read = httpx2.get(path, headers=headers)
    assert (read.headers["Content-Encoding"], read.headers["ETag"][:2]) == ("gzip", "W/")
    changed = read.json() | {"approval_days": 3}
    for status in (200, 412):
        answer = httpx2.put(
            path, json=changed, headers=headers | {"If-Match": read.headers["ETag"]}
        )
        assert answer.status_code == status, answer.text
    seen = httpx2.get(path, headers=headers)
    assert (
        httpx2.get(path, headers=headers | {"If-None-Match": seen.headers["ETag"]}).status_code
        == 304
    )
    environment = {"EXCHEQUER_URL": proxied, "EXCHEQUER_TOKEN": token}
    told = CliRunner().invoke(
        commands, ["dataset", "policy", site.bench.dataset, "--approval-days", "4"], env=environment
    )
    assert told.exit_code == 0, told.output


@pytest.mark.parametrize(
    "claimed", [{}, {"X-Forwarded-For": "192.0.2.200"}, {"X-Forwarded-For": "127.0.0.1"}]
)
def test_the_address_is_the_one_that_nginx_saw(site, proxied, claimed):
    name = f"nobody-{time.monotonic_ns()}"
    body = {"name": name, "password": "certainly not the password"}
    httpx2.post(f"{proxied}/api/v1/session", json=body, headers=claimed)
    with site.engine.connect() as connection:
        query = text("SELECT address FROM sign_ins WHERE name = :name")
        assert connection.execute(query, {"name": name}).scalar_one() == "127.0.0.1"


FORGED = (
    {"X-Forwarded-Host": "evil.example"}, {"Forwarded": "host=evil.example"},
    {"X-Forwarded-Port": "666"},
    {"X-Forwarded-Server": "evil.example"}, {"X-Host": "evil.example"},
    {"X-Original-Host": "evil.example"},
)  # fmt: skip


@pytest.mark.parametrize("forged", FORGED)
def test_a_client_says_no_host_through_it(proxied, forged):
    page = httpx2.get(f"{proxied}/api/docs", headers=forged).text
    assert f"URL={proxied.replace('http://', 'https://')}\n" in page
    assert "evil.example" not in page
    assert ":666" not in page


def test_what_it_answers_by_itself_is_explained(site, proxied, tmp_path, monkeypatch):
    monkeypatch.setattr("web.client.transport._sleep", lambda seconds: None)
    large = tmp_path / "large.csv"
    large.write_text("text\n" + "one more line\n" * 40_000)
    environment = {"EXCHEQUER_URL": proxied, "EXCHEQUER_TOKEN": token_of(site, "steward")}
    told = CliRunner().invoke(commands, ["upload", "add", str(large)], env=environment)
    words = " ".join(told.stderr.split())
    assert "a proxy before the service (nginx" in words, told.output
    assert "takes no body of this size" in words
    with (
        Client(f"{proxied}/away", "exq_x") as client,
        pytest.raises(ApiProblem, match="got no answer"),
    ):
        client.whoami()


def test_a_service_that_is_slow_is_told_apart_from_one_that_is_away(tmp_path, monkeypatch):
    import socket

    monkeypatch.setattr("web.client.transport._sleep", lambda seconds: None)
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        nginx(tmp_path, 9, silent.getsockname()[1]) as url,
    ):
        with (
            Client(f"{url}/slow", "exq_x", attempts=1) as client,
            pytest.raises(ApiProblem, match="too long"),
        ):
            client.whoami()
        with (
            Client(url, "exq_x", attempts=1) as client,
            pytest.raises(ApiProblem, match="no answer from the"),
        ):
            client.whoami()


def test_what_the_documents_say_for_a_path_serves_pages_below_it(database_url, tmp_path):
    settings = {"trusted_proxies": 1, "public_url": "https://tools.example.org/exchequer"}
    with (
        serving(database_url, tmp_path, gunicorn=True, **settings) as server,
        nginx(tmp_path, server.port) as url,
    ):
        first = httpx2.get(f"{url}/exchequer/")
        assert first.headers["Location"].startswith("/exchequer/sign-in")
        page = httpx2.get(f"{url}/exchequer/sign-in", headers={"X-Request-ID": "not-this-one"})
        assert page.status_code == 200
        assert 'href="/exchequer/static/' in page.text
        assert len(page.headers["X-Request-ID"]) == 32
        assert "Secure" in page.headers["Set-Cookie"] or url.startswith("http:")
