"""A person's way through the pages in a real browser, with real workers: submit, approve, result."""

import re
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.request
import uuid
from pathlib import Path

import pytest

from accountant import ledger, registry, reports
from accountant.ledger import Allowance
from tests.support import person
from tests.workers.conftest import ROOT, SAMPLE, service, variables, wait_for
from web.passwords import hash_password

__all__ = ["service", "variables"]  # fixtures

CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="Debian's chromium is not installed"),
]
PASSWORD = "correct horse battery"
WIDTHS = {"desktop": {"width": 1280, "height": 900}, "phone": {"width": 390, "height": 844}}


@pytest.fixture(scope="module")
def address(service, tmp_path_factory):
    """The web server as a process of its own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**service.environment, "EXCHEQUER_PORT": str(port)}
    process = subprocess.Popen([sys.executable, "-m", "web.serve"], cwd=ROOT, env=environment)

    def healthy() -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz") as answer:
                return answer.status == 200
        except (urllib.error.URLError, OSError):
            return False

    wait_for(healthy, bool, 60)
    yield f"http://127.0.0.1:{port}"
    process.terminate()
    process.wait(timeout=20)


@pytest.fixture(scope="module")
def desk(engine, service):
    """A steward and an analyst who can sign in, the bundled model and the sample data."""
    people = {role: person(engine, role) for role in ("steward", "analyst")}
    for actor in people.values():
        registry.set_password(engine, actor.id, hash_password(PASSWORD))
    registry.add_model(engine, "sample", str(SAMPLE / "model"), "public sample text", people["steward"])
    from workers.sample import LABELS

    raw = {
        "name": f"reviews-{uuid.uuid4().hex[:6]}",
        "uri": str(SAMPLE / "private.csv"),
        "label_column": "label",
        "labels": list(LABELS),
        "public_size": 3000,
    }
    registry.add_dataset(engine, registry.read_dataset(raw), people["steward"])
    ledger.allow(engine, raw["name"], Allowance("10", "0.000001", "a pilot"), people["steward"])
    ready = lambda: reports.dataset(engine, raw["name"], people["steward"])["state"]  # noqa: E731
    wait_for(ready, lambda state: state == "ready")
    wait_for(lambda: reports.models(engine, people["steward"])[0]["state"], lambda state: state == "ready")
    return raw["name"], people


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    arguments = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield started
        started.close()


def sign_in(browser, address: str, name: str, width: str):
    """A signed-in page; nothing may go wrong in its console."""
    page = browser.new_context(base_url=address, viewport=WIDTHS[width]).new_page()
    page.console_errors = []
    page.on("console", lambda m: page.console_errors.append(m.text) if m.type == "error" else None)
    page.goto("/sign-in")
    page.fill("#name", name)
    page.fill("#password", PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(lambda url: "/sign-in" not in url)
    return page


@pytest.mark.parametrize("width", WIDTHS)
def test_submit_approve_and_result(browser, address, desk, width):
    dataset, people = desk
    analyst = sign_in(browser, address, people["analyst"].name, width)
    analyst.goto(f"/datasets/{dataset}/submit")
    small = {"tokens_per_batch": 6, "max_text_tokens": 6, "batches_per_label": 1, "record_tokens": 40}
    for field, value in small.items():
        analyst.fill(f"[name='parameters.{field}']", str(value))
    analyst.fill("[name='purpose']", f"an errand at {width} width")
    analyst.get_by_text("Submit the job").click()
    analyst.wait_for_url(re.compile(r"/jobs/[0-9a-f-]{36}"))
    analyst.get_by_text("awaiting approval").first.wait_for(timeout=60_000)

    steward = sign_in(browser, address, people["steward"].name, width)
    steward.goto("/inbox")
    job_id = analyst.url.rsplit("/", 1)[1]
    request = steward.locator(f"#job-{job_id}")
    request.locator("textarea").fill("it fits the pilot")
    request.locator("button[value=approve]").click()
    steward.locator("#confirm-yes").click()

    # The analyst's page follows by itself, without a reload.
    analyst.get_by_text("succeeded").first.wait_for(timeout=150_000)
    with analyst.expect_download() as download:
        analyst.get_by_role("link", name=re.compile("download", re.IGNORECASE)).first.click()
    assert Path(download.value.path()).read_text().startswith('{"text"')

    steward.goto(f"/datasets/{dataset}")
    assert steward.get_by_text("COMMIT").count() >= 1
    for page in (analyst, steward):
        wide = page.evaluate("document.documentElement.scrollWidth > window.innerWidth")
        assert not wide, "the page scrolls sideways"
        assert page.console_errors == []
