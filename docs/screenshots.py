"""Pictures of a running demo for the documents, with Debian's chromium.

    make demo
    python docs/screenshots.py http://127.0.0.1:8750 ~/.local/share/exchequer/keys

Signs in as the three people of the demo with the passwords in that folder, leaves one request in
the inbox and one token, and takes the main pages into docs/images, as a desktop shows them in
light. Colours are reduced to 256, which keeps every picture under 150 kB.
"""

import io
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx2
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

IMAGES = Path(__file__).parent / "images"
CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
DESKTOP: Final = {"width": 1280, "height": 960}
MAX_BYTES: Final = 150_000
REASON: Final = "half of it is enough for a pilot"
Act = Callable[[Page], None]


@dataclass(frozen=True)
class Scene:
    """The demo's result: a dataset, a finished job on it, and the ledger entry of its charge."""

    dataset: str
    job: str
    entry: int


@dataclass(frozen=True)
class Picture:
    """One page as one person sees it, after what they do there."""

    name: str
    who: str
    path: str
    act: Act | None = None
    height: int = 960


def prepared(url: str, password: str) -> Scene:
    """Find the dataset with the most entries and its newest result; ask for another job unless one
    waits.
    """
    with httpx2.Client(base_url=f"{url}/api/v1", trust_env=False, timeout=30) as client:
        signed_in = client.post("/session", json={"name": "analyst", "password": password})
        client.headers["Authorization"] = f"Bearer {signed_in.raise_for_status().json()['token']}"
        datasets = client.get("/datasets").json()["datasets"]
        dataset = max(datasets, key=lambda each: each["entries"])["name"]
        jobs = client.get("/jobs", params={"dataset": dataset}).json()["jobs"]
        done = next(job for job in jobs if job["state"] == "succeeded")
        if all(job["state"] != "awaiting_approval" for job in jobs):
            shown = client.get(f"/jobs/{done['id']}").json()
            asked = {
                "dataset": dataset,
                "mechanism": shown["mechanism"],
                "model": shown["model"],
                "parameters": shown["parameters"] | {"tokens_per_batch": 48, "max_text_tokens": 48},
                "purpose": "are complaints about waiting times the same for all six kinds of "
                "business?",
            }
            client.post("/jobs", json=asked).raise_for_status()
        entries = client.get(f"/jobs/{done['id']}").json()["entries"]
    return Scene(dataset, done["id"], entries[-1]["seq"])


# --- what is done on a page before its picture ----------------------------------------------------


def priced(page: Page) -> None:
    """A price that follows what is typed."""
    page.fill("[name=purpose]", "one more look at what customers write about")
    page.fill("[name='parameters.max_text_tokens']", "24")
    page.fill("[name='parameters.tokens_per_batch']", "24")
    page.locator("#price").get_by_text("24 tokens of one batch").wait_for(state="attached")
    page.locator("#price .stale").wait_for(state="detached")


def offered(page: Page) -> None:
    """A smaller job with its price, not offered yet."""
    page.get_by_text("Offer less").first.click()
    page.locator("[name='parameters.tokens_per_batch']").first.fill("24")
    page.get_by_text("If the analyst accepts").first.wait_for(state="attached")
    page.locator("[name=reason]").first.fill(REASON)


def allowed(page: Page) -> None:
    """The wizard's step of the allowance, with the panel that says what it means."""
    page.fill("#name", "letters")
    page.fill("#uri", "letters.csv")
    page.locator("button[value=next]").last.click()
    for step in ("texts", "people"):
        page.locator(f"input[name=step][value={step}]").wait_for(state="attached")
        page.locator("button[value=next]").last.click()
    page.fill("#epsilon", "3")
    page.fill("#delta", "1e-6")
    page.get_by_text("95.3 %").first.wait_for()


def pictures(scene: Scene) -> list[Picture]:
    """The pictures that the documents show."""
    dataset = f"/datasets/{scene.dataset}"
    return [
        Picture("dataset", "steward", dataset, height=1260),
        Picture("inbox", "steward", "/inbox", offered, height=1240),
        Picture("wizard", "steward", "/add-dataset", allowed),
        Picture("ask", "analyst", f"{dataset}/submit?like={scene.job}", priced),
        Picture("job", "analyst", f"/jobs/{scene.job}"),
        Picture("entry", "auditor", f"/ledger/{scene.dataset}/{scene.entry}"),
        Picture("report", "auditor", f"{dataset}/report"),
        Picture("tokens", "analyst", "/account/tokens"),
        Picture("api", "analyst", "/api/docs"),
    ]


# --- taking them ----------------------------------------------------------------------------------


def opened(browser: Browser, url: str, name: str, password: str) -> Page:
    """Open a signed-in page."""
    context = browser.new_context(
        base_url=url,
        viewport=DESKTOP,
        color_scheme="light",
        reduced_motion="reduce",
    )
    page = context.new_page()
    page.goto("/sign-in")
    page.fill("#name", name)
    page.fill("#password", password)
    page.locator("main form button").first.click()
    page.wait_for_url(lambda address: "/sign-in" not in address)
    return page


def small(picture: bytes) -> bytes:
    """The same PNG with a palette."""
    reduced = Image.open(io.BytesIO(picture)).convert("RGB").quantize(256, dither=Image.Dither.NONE)
    file = io.BytesIO()
    reduced.save(file, "PNG", optimize=True)
    return file.getvalue()


def take(browser: Browser, url: str, passwords: dict[str, str]) -> None:
    """Every picture, into IMAGES. Raises AssertionError for one that is too large."""
    IMAGES.mkdir(exist_ok=True)
    pages: dict[str, Page] = {}
    for each in pictures(prepared(url, passwords["analyst"])):
        if each.who not in pages:
            pages[each.who] = opened(browser, url, each.who, passwords[each.who])
        page = pages[each.who]
        page.set_viewport_size(DESKTOP | {"height": each.height})
        page.goto(each.path)
        if each.act is not None:
            each.act(page)
        page.evaluate("document.activeElement.blur(); window.scrollTo(0, 0)")
        taken = small(page.screenshot())
        assert len(taken) < MAX_BYTES, f"{each.name} has {len(taken)} bytes"
        (IMAGES / f"{each.name}.png").write_bytes(taken)
        print(f"{each.name}.png: {len(taken):,} bytes")


def main() -> None:
    """See the module."""
    url, folder = sys.argv[1].rstrip("/"), Path(sys.argv[2])
    people = ("steward", "analyst", "auditor")
    passwords = {name: (folder / f"{name}-password").read_text().strip() for name in people}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        take(browser, url, passwords)
        browser.close()


if __name__ == "__main__":
    main()
