"""First use, by somebody who knows nothing: `exchequer demo`, then only what it prints and what
pages say.

A real stack of its own and a real browser. The demo's job is made short; all else is what `make
demo` does.
"""

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

CHROMIUM = shutil.which("chromium")
ROOT = Path(__file__).resolve().parents[2]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="Debian's chromium is not installed"),
]
SHORT_DEMO = """
from web.cli import demo
from web.cli import main
few = ["hotel positive", "gym negative", "bookshop positive"]
whole, short = demo.parameters, {"labels": few, "tokens_per_batch": 12, "max_text_tokens": 12}
demo.parameters = lambda model: whole(model) | short
main()
"""


@dataclass(frozen=True)
class Turn:
    """The step that the demo's last lines tell one person to take."""

    name: str
    address: str
    password: str


@pytest.fixture
def printed(tmp_path: Path) -> Iterator[str]:
    """The output of `exchequer demo`, with its stack still running."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = {
        **{name: value for name, value in os.environ.items() if not name.endswith("_URL")},
        "EXCHEQUER_HOME": str(tmp_path / "home"),
        "EXCHEQUER_PORT": str(port),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "PYTHONPATH": str(ROOT),
        "COLUMNS": "80",
    }
    command = [sys.executable, "-c", SHORT_DEMO]
    try:
        found = subprocess.run(
            [*command, "demo"],
            env=environment,
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=400,
        )
        assert found.returncode == 0, found.stdout
        yield found.stdout
    finally:
        subprocess.run(
            [*command, "down"], env=environment, cwd=tmp_path, capture_output=True, timeout=400
        )


def turns(printed: str) -> dict[str, Turn]:
    found = re.findall(
        r"^ +(\w+) \(password (\S+)\):.*?^ +(http\S+)$", printed, re.MULTILINE | re.DOTALL
    )
    return {name: Turn(name, address, password) for name, password, address in found}


def begun(browser, turn: Turn):
    """A window of one's own, opened where the demo says, after signing in as it says."""
    page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
    page.complaints = []
    page.on("console", lambda m: page.complaints.append(m.text) if m.type == "error" else None)
    page.goto(turn.address)
    page.get_by_label("Name").fill(turn.name)
    page.get_by_label("Password").fill(turn.password)
    page.get_by_role("button", name="Sign in", exact=True).click()
    return page


def test_from_the_demo_to_an_approved_job_by_what_the_screen_says(printed):
    from playwright.sync_api import expect, sync_playwright

    people = turns(printed)
    assert set(people) == {"analyst", "steward", "auditor"}, printed
    assert printed.count("\n") <= 60
    assert "\nverify: ok\n" in printed
    assert re.search(
        r"What ε [\d.]+ means for a person .* at most \d\d(\.\d)? % of", printed, re.DOTALL
    )
    with sync_playwright() as playwright:
        expect.set_options(timeout=60_000)  # five seconds are few where processes share a processor
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )

        # "say what the texts are for, and ask."
        analyst = begun(browser, people["analyst"])
        analyst.get_by_text("It fits, and a steward would have to approve it.").wait_for()
        analyst.get_by_label("What is it for?", exact=True).fill("a first job of my own")
        analyst.get_by_role("button", name="Ask", exact=True).click()
        analyst.get_by_text("A steward has to approve it").wait_for(timeout=60_000)

        # "read the purpose and the price, write a reason, approve."
        steward = begun(browser, people["steward"])
        request = steward.get_by_role("article").filter(has_text="a first job of my own")
        expect(request.get_by_text("by itself").first).to_be_visible()
        request.locator("[name=reason]").fill("made-up reviews")
        request.get_by_role("button", name="Approve").click()
        steward.get_by_role("dialog").get_by_role("button", name="Approve").click()
        steward.get_by_text("is now queued").wait_for()
        steward.get_by_text("Nothing waits for a decision").wait_for()

        # The analyst's page follows by itself.
        analyst.get_by_text("by steward: made-up reviews").wait_for(timeout=60_000)
        analyst.get_by_role("heading", name="Result").wait_for(timeout=150_000)

        # "see both in the ledger, and take it home as a file."
        auditor = begun(browser, people["auditor"])
        expect(auditor.get_by_text("COMMIT", exact=True)).to_have_count(2)
        with auditor.expect_download() as download:
            auditor.get_by_role("link", name="JSON Lines").click()
        assert '"RESERVE"' in Path(download.value.path()).read_text()
        for page in (analyst, steward, auditor):
            assert page.complaints == []
        browser.close()
