"""An auditor's way in a real browser: filter, open an entry, take the ledger home, check it
there.
"""

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pypdf
import pytest
from playwright.sync_api import expect
from werkzeug.serving import make_server

from accountant.core.ledger.policy import Policy
from accountant.identities import credentials
from accountant.schema.ledgers import Report
from accountant.settings import Settings
from accountant.transactions import policies, settlement
from tests.support import Bench, no, yes
from tests.web.browsers import PASSWORD
from tests.web.chromium import MARKS, browser, signed_in
from web.api import ledgers
from web.app import create_app
from web.auth import hash_password

__all__ = ["browser"]  # a fixture
pytestmark = MARKS
ROOT = Path(__file__).parents[2]
#: Width in pixels, colours, and whether scripts run.
LOOKS = [
    (1280, "light", True),
    (390, "dark", False),
    *(
        pytest.param(*look, True, marks=pytest.mark.release)
        for look in ((1280, "dark"), (390, "light"))
    ),
]


@pytest.fixture(scope="module")
def desk(engine) -> Bench:
    """A ledger with every page's worth: allowances, jobs, refusals, a policy; the auditor can sign
    in.
    """
    bench = Bench(engine)
    bench.allow("10", reason="a pilot")
    bench.warm()
    for tokens in (3, 4, 5):
        job = bench.submit(tokens)
        yes(engine, job, bench.steward, "it fits the pilot")
    settlement.cancel(engine, job, bench.analyst)
    refused = bench.submit(6)
    no(engine, refused, bench.steward, "not a part of this study")
    policies.set_policy(engine, bench.dataset, Policy(auto_approve_epsilon="0.1"), bench.steward)
    credentials.set_password(engine, bench.auditor.id, hash_password(PASSWORD))
    return bench


@pytest.fixture(scope="module")
def address(database_url, tmp_path_factory) -> Iterator[str]:
    app = create_app(Settings(home=tmp_path_factory.mktemp("web"), DATABASE_URL=database_url))
    server = make_server("127.0.0.1", 0, app, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def verify(*words: object) -> subprocess.CompletedProcess[str]:
    """`exchequer verify` as a process that knows neither server nor database."""
    command = [sys.executable, "-c", "from web.cli import main; main()", "verify", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


def downloaded(page, link, folder: Path) -> Path:
    with page.expect_download() as waiting:
        link.click()
    target = folder / waiting.value.suggested_filename
    waiting.value.save_as(target)
    return target


def test_from_the_list_to_a_file_that_is_checked_at_home(browser, address, desk, tmp_path):
    page = signed_in(browser, address, desk.auditor.name)
    page.get_by_role("navigation", name="Main").get_by_role("link", name="Ledger").click()
    page.get_by_label("Dataset").select_option(desk.dataset)
    page.get_by_label("Kind").select_option("RESERVE")
    page.get_by_role("button", name="Show").click()
    page.wait_for_url(re.compile(f"dataset={desk.dataset}&kind=RESERVE"))
    expect(page.locator("table.entries tbody tr")).to_have_count(3)
    expect(page.locator(".kind")).to_have_text(["RESERVE"] * 3)

    page.locator("table.entries tbody th a").first.click()
    expect(page.get_by_text("Equal: it comes out as it was charged.")).to_be_visible()
    expect(page.get_by_text("Its content gives its hash")).to_be_visible()
    expect(page.locator("aside")).to_contain_text(desk.analyst.name)

    page.get_by_role("link", name="Checkpoints").click()
    page.locator("form[method=post] select[name=dataset]").last.select_option(desk.dataset)
    page.get_by_role("button", name="Sign a checkpoint").click()
    kept = downloaded(page, page.get_by_role("link", name=re.compile("keep it")).first, tmp_path)
    page.get_by_role("link", name="Keys").click()
    keys = downloaded(page, page.get_by_role("link", name="Download keys.json"), tmp_path)
    page.get_by_role("link", name="Exports").click()
    page.get_by_label("Dataset").select_option(desk.dataset)
    page.get_by_role("button", name="Show").click()
    page.wait_for_url(re.compile(f"dataset={desk.dataset}"))
    told = page.locator("pre").first.inner_text()
    file = downloaded(page, page.get_by_role("link", name=f"{desk.dataset}-ledger.jsonl"), tmp_path)
    assert f"exchequer verify {file.name} --public-key {keys.name}" in told
    assert page.complaints == []

    found = verify(file, "--checkpoint", kept, "--public-key", keys)
    assert found.returncode == 0, found.stdout + found.stderr
    assert found.stdout.startswith("verify: ok")
    assert "all of" in found.stdout

    lines = file.read_text().splitlines()
    # The header is line 0, and the first entries state the dataset's rules.
    number = next(place for place, line in enumerate(lines) if '"main":"' in line)
    lines[number] = lines[number].replace('"main":"', '"main":"9', 1)
    changed = tmp_path / "changed.jsonl"
    changed.write_text("\n".join(lines) + "\n")
    assert changed.read_text() != file.read_text()
    found = verify(changed, "--checkpoint", kept, "--public-key", keys)
    assert found.returncode == 1
    assert f"verify: failed: entry {number}: its content does not match its hash" in (
        found.stdout + found.stderr
    )


def pages_of(desk: Bench) -> list[str]:
    parts = (
        "",
        "/refusals",
        "/checkpoints",
        "/keys",
        f"/exports?dataset={desk.dataset}",
        "/activity",
    )
    entries = [f"/ledger/{desk.dataset}/{seq}" for seq in (1, 2)]
    return [*(f"/ledger{part}" for part in parts), *entries, f"/datasets/{desk.dataset}/report"]


@pytest.mark.parametrize(("width", "scheme", "scripts"), LOOKS)
def test_no_page_scrolls_sideways_and_all_work_without_scripts(
    browser, address, desk, width, scheme, scripts
):
    page = signed_in(
        browser,
        address,
        desk.auditor.name,
        {"width": width, "height": 900},
        scheme,
        java_script_enabled=scripts,
    )
    for path in pages_of(desk):
        answer = page.goto(path)
        assert answer.status == 200, path
        assert page.locator("h1").count() == 1, path
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), path
    assert page.complaints == []


def test_by_keyboard_alone(browser, address, desk):
    """From the top of the list to an entry with Tab and Enter; whatever has the focus shows it."""
    page = signed_in(browser, address, desk.auditor.name)
    page.goto(f"/ledger?dataset={desk.dataset}")
    for _ in range(60):
        page.keyboard.press("Tab")
        href = page.evaluate("document.activeElement.getAttribute('href') || ''")
        if re.fullmatch(rf"/ledger/{desk.dataset}/\d+", href):
            break
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(rf"/ledger/{desk.dataset}/\d+"))


@pytest.mark.parametrize("public", [False, True])
def test_the_report_prints(browser, address, desk, tmp_path, public):
    """A4, without navigation, and it says what the page says."""
    page = signed_in(browser, address, desk.auditor.name, scheme="dark")
    page.goto(f"/datasets/{desk.dataset}/report{'?public=true' if public else ''}")
    page.get_by_text("The ledger holds.").wait_for()
    file = tmp_path / "report.pdf"
    page.pdf(path=str(file), prefer_css_page_size=True, print_background=True)
    printed = pypdf.PdfReader(file)
    assert 1 <= len(printed.pages) <= 12
    assert tuple(round(side) for side in printed.pages[0].mediabox[2:]) == (595, 842)
    board, details = (printed.pages[number].extract_text() for number in (0, 1))
    for part in ("How private is", "Who decides", "right in at most", "exchequer verify"):
        assert part in board  # one side for a board, and the details on others
    assert "Rényi" not in board
    assert "What holds now" in details
    words = re.sub(r"\s+", " ", " ".join(each.extract_text() for each in printed.pages))
    for part in ("The ledger holds.", "What it went on", "Checkpoints", "Refusals", "1 / "):
        assert part in words
    for part in ("Sign out", "Skip to the content", "Back to", "Who did what"):
        assert part not in words
    assert (desk.steward.name in words) == (not public)
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_the_board_has_one_side_in_the_worst_case(browser, address, desk, tmp_path, monkeypatch):
    """Every name and text as long as it may be, many releases, and a ledger that does not hold."""
    true = ledgers.report_named

    def worst(name: str, **options: bool) -> Report:
        report, long = true(name, **options), "w" * 63
        policy = {"stewards": [f"{n:02}{long[2:]}" for n in range(40)], "two_people": True}
        facts = {"name": long, "unit": long, "description": "of letters " * 180, "overdrawn": True}
        release = {"day": "2026-11-26", "mechanism": "private-prediction", "analyst": long}
        release |= {"purpose": "for a study " * 160, "epsilon_alone": 1.0, "pure": None}
        problems = [f"entry {n}: {'its content does not match its hash ' * 9}" for n in range(60)]
        return report.model_copy(
            update={
                "dataset": {**report.dataset, **facts, "policy": report.dataset["policy"] | policy},
                "releases": [{**release, "ex_post_cap": None}] * 50,
                "jobs_by_state": {"succeeded": 12_345},
                "verification": {**report.verification, "problems": problems},
            }
        )

    monkeypatch.setattr(ledgers, "report_named", worst)
    page = signed_in(browser, address, desk.auditor.name)
    page.goto(f"/datasets/{desk.dataset}/report?check=true")
    expect(page.get_by_text("The ledger does not hold.")).to_be_visible()
    file = tmp_path / "report.pdf"
    page.pdf(path=str(file), prefer_css_page_size=True, print_background=True)
    board, details = (part.extract_text() for part in pypdf.PdfReader(file).pages[:2])
    assert "How private is" in board
    assert "--public-key keys.json" in board
    assert "What holds now" in details
