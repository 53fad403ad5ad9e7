"""A real browser for tests of pages: people who are signed in, and what its console complained
about.
"""

import shutil
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from flask import Flask
from werkzeug.serving import make_server

from tests.web.browsers import PASSWORD

CHROMIUM = shutil.which("chromium")
#: What a module of tests in the browser is marked with.
MARKS = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="Debian's chromium is not installed"),
]
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=60_000)  # five seconds are few where processes share a processor
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield started
        started.close()


@pytest.fixture(scope="module")
def address(app: Flask) -> Iterator[str]:
    """The application on a port of its own, in this process."""
    server = make_server("127.0.0.1", 0, app, threaded=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()


def signed_in(
    browser: Any,
    address: str,
    name: str | None,
    viewport: dict[str, int] = DESKTOP,
    scheme: str = "light",
    **options: Any,
) -> Any:
    """Open a page for somebody, or for nobody; `complaints` holds what its console says."""
    context = browser.new_context(
        base_url=address, viewport=viewport, color_scheme=scheme, reduced_motion="reduce", **options
    )
    page = context.new_page()
    page.complaints = []
    page.on("console", lambda m: page.complaints.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    if name is not None:
        page.goto("/sign-in")
        page.fill("#name", name)
        page.fill("#password", PASSWORD)
        page.get_by_role("button", name="Sign in", exact=True).click()
        page.wait_for_url(lambda url: "/sign-in" not in url)
    return page
