"""Pictures of a running service for the documents, with Debian's chromium.

    python docs/screenshots.py http://127.0.0.1:8750 NAME PASSWORD

Takes the page of the dataset with the most entries and that of its newest job that succeeded (or of its
newest job at all), as the steward NAME sees them, into docs/images.
"""

import os
import sys
from pathlib import Path

import httpx
from playwright.sync_api import Page, sync_playwright

IMAGES = Path(__file__).parent / "images"
CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")


def addresses(url: str, name: str, password: str) -> dict[str, str]:
    """Image name to page address."""
    with httpx.Client(base_url=f"{url}/api/v1", trust_env=False) as client:
        signed_in = client.post("/session", json={"name": name, "password": password})
        client.headers["Authorization"] = f"Bearer {signed_in.raise_for_status().json()['token']}"
        datasets = client.get("/datasets").json()["datasets"]
        dataset = max(datasets, key=lambda each: each["entries"])["name"]
        jobs = client.get("/jobs", params={"dataset": dataset}).json()["jobs"]
    shown = next((job for job in jobs if job["state"] == "succeeded"), jobs[0])
    return {"dataset": f"/datasets/{dataset}", "job": f"/jobs/{shown['id']}"}


def take(page: Page, url: str, name: str, password: str) -> None:
    """Sign in and photograph each page."""
    page.goto(f"{url}/sign-in")
    page.fill("#name", name)
    page.fill("#password", password)
    page.click("main button")
    IMAGES.mkdir(exist_ok=True)
    for image, address in addresses(url, name, password).items():
        page.goto(url + address)
        page.screenshot(path=IMAGES / f"{image}.png")


def main() -> None:
    """See the module."""
    url, name, password = sys.argv[1:]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 1120}, color_scheme="light")
        take(page, url.rstrip("/"), name, password)
        browser.close()


if __name__ == "__main__":
    main()
