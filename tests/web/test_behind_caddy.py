"""The service behind a real Caddy, set as docs/operations.md says: it forwards addresses and
refuses large bodies.
"""

import re
import shutil
import subprocess
import time

import httpx2
import pytest
from sqlalchemy import text

from tests.web.serving import ROOT, free_port, serving

CADDY = shutil.which("caddy")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(CADDY is None, reason="caddy is not installed")]

DOCUMENTED = re.search(
    r"    handle_path /exchequer/\* \{.*?\n    \}\n",
    (ROOT / "docs" / "operations.md").read_text(),
    re.S,
)[0]


@pytest.fixture(scope="module")
def proxied(database_url, tmp_path_factory):
    home, port = tmp_path_factory.mktemp("web"), free_port()
    with serving(database_url, home, trusted_proxies=1) as server:
        documented = DOCUMENTED.replace(":8750", f":{server.port}").replace("600MB", "100KB")
        config = f"{{\nadmin off\nauto_https off\n}}\nhttp://127.0.0.1:{port} {{\n{documented}}}\n"
        (home / "Caddyfile").write_text(config)
        command = [CADDY, "run", "--adapter", "caddyfile", "--config", home / "Caddyfile"]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        url = f"http://127.0.0.1:{port}/exchequer"
        try:
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                try:
                    httpx2.get(f"{url}/livez", timeout=5)
                    break
                except httpx2.HTTPError:
                    time.sleep(0.05)
            yield url
        finally:
            process.terminate()
            process.wait(20)


def test_pages_are_found_below_the_path_and_ids_come_back(proxied):
    answer = httpx2.get(f"{proxied}/livez")
    assert (answer.status_code, answer.json()["status"]) == (200, "ok")
    assert re.fullmatch(r"[0-9a-f-]{36}", answer.headers["X-Request-ID"])


@pytest.mark.parametrize("claimed", [{}, {"X-Forwarded-For": "192.0.2.200"}])
def test_the_address_is_the_one_that_caddy_saw(site, proxied, claimed):
    name = f"nobody-{time.monotonic_ns()}"
    body = {"name": name, "password": "certainly not the password"}
    httpx2.post(f"{proxied}/api/v1/session", json=body, headers=claimed, timeout=60)
    with site.engine.connect() as connection:
        query = text("SELECT address FROM sign_ins WHERE name = :name")
        assert connection.execute(query, {"name": name}).scalar_one() == "127.0.0.1"


def test_a_body_that_is_too_large_is_refused(proxied):
    answer = httpx2.post(f"{proxied}/api/v1/session", content=b"x" * 200_000, timeout=60)
    assert answer.status_code in (413, 502)  # Caddy 2.6 says that its reader failed
