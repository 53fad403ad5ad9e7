"""An analyst's way in a real browser with real workers: find, price, fit, submit, wait, look,
download.
"""

import io
import json
import re
import socket
import subprocess
import sys
import urllib.error
import urllib.request
import uuid
import zipfile
from hashlib import sha256
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import expect

from accountant.catalogue import datasets, models
from accountant.core.ledger.allowances import Allowance
from accountant.identities import credentials
from accountant.queries import datasets as dataset_queries
from accountant.queries import models as model_queries
from accountant.transactions import allowances
from tests.support import other_people, person
from tests.web.browsers import PASSWORD
from tests.web.chromium import DESKTOP, MARKS, PHONE, browser, signed_in
from tests.workers.conftest import ROOT, SAMPLE, wait_for
from web.passwords import hash_password

__all__ = ["browser"]  # a fixture
pytestmark = MARKS
SMALL = {
    "tokens_per_batch": "6",
    "max_text_tokens": "6",
    "batches_per_label": "1",
    "record_tokens": "40",
}


@pytest.fixture(scope="module")
def address(warm_service):
    """The web server as a process of its own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**warm_service.environment, "EXCHEQUER_PORT": str(port)}
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
    process.wait(timeout=120)


@pytest.fixture(scope="module")
def desk(warm_engine, tmp_path_factory):
    """A steward and an analyst who can sign in, the bundled model and some of its data."""
    engine = warm_engine
    people = {role: person(engine, role) for role in ("steward", "analyst")}
    for actor in people.values():
        credentials.set_password(engine, actor.id, hash_password(PASSWORD))
    models.add_model(
        engine, "sample", str(SAMPLE / "model"), "public sample text", people["steward"]
    )
    from workers.sample import LABELS

    some = tmp_path_factory.mktemp("data") / "some.csv"
    other_people(SAMPLE / "private.csv", some, LABELS, 40)
    raw = {
        "name": f"reviews-{uuid.uuid4().hex[:6]}",
        "uri": str(some),
        "label_column": "label",
        "labels": list(LABELS),
        "public_size": 3000,
    }
    datasets.add_dataset(engine, datasets.read_dataset(raw), people["steward"])
    allowances.allow(engine, raw["name"], Allowance("10", "0.000001", "a pilot"), people["steward"])
    ready = lambda: dataset_queries.dataset(engine, raw["name"], people["steward"])["state"]  # noqa: E731
    wait_for(ready, lambda state: state == "ready")
    wait_for(
        lambda: model_queries.models(engine, people["steward"])[0]["state"],
        lambda state: state == "ready",
    )
    return raw["name"], people


def fits_its_window(page) -> bool:
    page.wait_for_load_state()
    return not page.evaluate("document.documentElement.scrollWidth > window.innerWidth")


def approve(engine, address: str, steward, job_id: str) -> None:
    """Another person says yes, through the API."""
    token = credentials.add_token(engine, steward.id, "journey", None)
    headers = {"Authorization": f"Bearer {token}"}
    path = f"{address}/api/v1/decisions/{job_id}/answer"
    httpx2.post(
        path, json={"yes": True, "reason": "it fits"}, headers=headers, trust_env=False
    ).raise_for_status()


def downloaded(page, link: str) -> bytes:
    with page.expect_download() as download:
        page.get_by_role("link", name=link).click()
    return Path(download.value.path()).read_bytes()


@pytest.mark.parametrize("viewport", [DESKTOP, pytest.param(PHONE, marks=pytest.mark.release)])
def test_from_the_front_page_to_a_file_with_its_card(browser, address, desk, warm_engine, viewport):
    dataset, people = desk
    page = signed_in(browser, address, people["analyst"].name, viewport)
    page.fill("[name=q]", dataset)
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("q="))
    page.get_by_role("link", name=f"Ask for a job on {dataset}").click()
    page.wait_for_url(re.compile("/submit"))
    assert fits_its_window(page)

    # Priced as one types; Enter asks for nothing; the button fills in what is left.
    price = page.locator("#price")
    page.fill("[name='parameters.tokens_per_batch']", "5000000")
    price.get_by_text("It would be refused now.").wait_for()
    expect(price.get_by_text("largest that fits")).to_have_count(1)
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/submit$"))
    page.get_by_role("button", name="Fit to this part").click()
    page.get_by_text("the most that 10 % of what is left allows").wait_for()
    assert int(page.input_value("[name='parameters.tokens_per_batch']")) > 0
    expect(price.get_by_text("It would be refused now.")).to_have_count(0)

    page.locator("#expert > summary").click()
    for group in page.locator("#expert details > summary").all():
        group.click()
    for field, value in SMALL.items():
        page.fill(f"[name='parameters.{field}']", value)
    page.select_option("[name='parameters.amplification']", "none")
    page.fill("[name=purpose]", f"a journey at {viewport['width']} px")
    price.get_by_text("6 tokens of one batch").wait_for(state="attached")
    page.get_by_role("button", name="Ask", exact=True).click()
    page.wait_for_url(re.compile(r"/jobs/[0-9a-f-]{36}"))
    page.get_by_text("awaiting approval").first.wait_for(timeout=60_000)
    job_id = page.url.rsplit("/", 1)[1]

    approve(warm_engine, address, people["steward"], job_id)
    # by itself, without a reload
    page.get_by_role("heading", name="Result").wait_for(timeout=150_000)
    expect(page.locator(".texts li")).not_to_have_count(0)
    expect(page.get_by_text("time not told")).to_have_count(2)
    assert fits_its_window(page)

    lines = downloaded(page, "JSON Lines")
    archive = zipfile.ZipFile(io.BytesIO(downloaded(page, "Download with its data card")))
    card = json.loads(archive.read("card.json"))
    assert archive.read(f"{job_id}.jsonl") == lines
    assert card["output"]["sha256"] == sha256(lines).hexdigest()
    assert card["guarantee"] in archive.read("README.md").decode()
    assert downloaded(page, "CSV").decode().count("\r\n") >= 1 + len(lines.splitlines())
    assert downloaded(page, "Parquet").startswith(b"PAR1")

    page.get_by_role("link", name="Ask for another like this").click()
    expect(page.locator("[name='parameters.tokens_per_batch']")).to_have_value("6")
    assert page.complaints == []


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.release)])
def test_the_form_works_without_scripts(browser, address, desk, scheme):
    dataset, people = desk
    page = signed_in(
        browser, address, people["analyst"].name, PHONE, scheme, java_script_enabled=False
    )
    page.goto(f"/datasets/{dataset}/submit")
    page.select_option("#goal", "counts")
    page.get_by_role("button", name="Show its fields").click()
    page.fill("[name='parameters.epsilon']", "0.25")
    page.get_by_role("button", name="Price again").click()
    expect(page.locator("#price .price")).to_contain_text("0.25")
    page.get_by_role("button", name="Fit to this part").click()
    expect(page.locator("[name='parameters.epsilon']")).not_to_have_value("0.25")
    assert float(page.input_value("[name='parameters.epsilon']")) > 0.25
    page.fill("[name='parameters.epsilon']", "0.01")
    page.fill("[name=purpose]", "without scripts")
    page.get_by_role("button", name="Ask", exact=True).click()
    page.wait_for_url(re.compile(r"/jobs/[0-9a-f-]{36}$"))
    expect(page.get_by_role("heading", level=1)).to_contain_text("without scripts")


# --- how many clicks it takes ---------------------------------------------------------------------

#: Clicks, and keys that do what a click does; a choice from a menu counts by hand.
COUNTED = (
    "addEventListener('click', () => { localStorage.n = Number(localStorage.n || 0) + 1; }, true)"
)


def press(control) -> None:
    """Use a control by keyboard alone."""
    control.focus()
    control.page.keyboard.press("Enter")


def clicks(page) -> int:
    return int(page.evaluate("Number(localStorage.n || 0)"))


def test_data_of_ones_own_becomes_an_approved_job_in_a_few_clicks(
    browser, address, desk, warm_engine, tmp_path
):
    """By keyboard, from a file to a job that a steward approved: at most 20 clicks, 3 of them to
    decide.
    """
    people = desk[1]
    steward, analyst = (signed_in(browser, address, people[who].name) for who in people)
    for page in (steward, analyst):
        page.context.add_init_script(COUNTED)
        page.goto("/")
    file = tmp_path / f"own-{uuid.uuid4().hex[:6]}.csv"
    file.write_text(
        "text\n" + "".join(f"the {number}th letter of my own\n" for number in range(80))
    )
    name, chosen = file.stem, 1

    steward.goto("/add-dataset")
    with steward.expect_file_chooser() as chooser:
        press(steward.locator("#upload"))
    chooser.value.set_files(file)
    for step, following in (("data", "texts"), ("texts", "people"), ("people", "allowance")):
        if step == "texts":
            steward.select_option("#text_column", "text")
        if step == "people":
            steward.fill("#public_size", "80")
        press(steward.locator("button[value=next]").last)
        steward.locator(f"input[name=step][value={following}]").wait_for(state="attached")
    for field, value in {"#epsilon": "10", "#delta": "1e-6", "#reason": "a pilot"}.items():
        steward.fill(field, value)
    press(steward.locator("button[value=next]").last)
    steward.locator("input[name=step][value=policy]").wait_for(state="attached")
    press(steward.locator("button[value=next]").last)
    steward.locator("button[value=create]").last.wait_for()
    press(steward.locator("button[value=create]").last)
    steward.wait_for_url(re.compile(f"/datasets/{name}$"))
    engine = warm_engine
    ready = lambda: dataset_queries.dataset(engine, name, people["steward"])["state"]  # noqa: E731
    wait_for(ready, lambda state: state == "ready")

    analyst.goto("/")
    press(analyst.get_by_role("link", name=f"Ask for a job on {name}"))
    analyst.wait_for_url(re.compile("/submit"))
    analyst.fill("[name=purpose]", "a first look")
    analyst.locator("#price").get_by_text("ε").first.wait_for()
    press(analyst.get_by_role("button", name="Ask", exact=True))
    analyst.wait_for_url(re.compile(r"/jobs/[0-9a-f-]{36}"))
    analyst.get_by_text("awaiting approval").first.wait_for(timeout=60_000)
    job_id, before = analyst.url.rsplit("/", 1)[1], clicks(steward)

    steward.goto("/inbox")
    steward.fill(f"#decision-{job_id} [name=reason]", "a pilot")
    press(steward.locator(f"#decision-{job_id} button[value=yes]"))
    steward.locator("#confirm").wait_for()
    press(steward.locator("#confirm-yes"))
    steward.get_by_text("is now queued").wait_for()
    assert 0 < clicks(steward) - before <= 3
    assert clicks(steward) + clicks(analyst) + chosen <= 20
