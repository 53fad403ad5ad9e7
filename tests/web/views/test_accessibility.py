"""Every page in a real browser: axe finds no violation, nothing spills over a phone's edge, Tab reaches all.

Pages come from the table of routes, so a new page is looked at without being named here. Both widths for
everybody; light and dark at each width between stewards and analysts.
"""

import shutil
import threading
from collections.abc import Iterator

import pytest
from werkzeug.serving import make_server

from tests import tallies
from tests.web.browsers import PASSWORD
from tests.web.routes import PAGES, World
from tests.web.test_roles import make_world

CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="Debian's chromium is not installed"),
]
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
LOOKS = {
    "steward": [(DESKTOP, "light"), (PHONE, "dark")],
    "analyst": [(DESKTOP, "dark"), (PHONE, "light")],
    "auditor": [(DESKTOP, "light"), (PHONE, "dark")],
    "administrator": [(DESKTOP, "light"), (PHONE, "dark")],
    "nobody": [(DESKTOP, "light"), (PHONE, "dark")],
}
#: What Tab should stop at, unless it is hidden, closed in a <details>, or switched off.
STOPS = (
    "a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex]:not([tabindex='-1'])"
)

_REACHABLE = f"""() => [...document.querySelectorAll("{STOPS}")].filter(each =>
    each.checkVisibility({{visibilityProperty: true}}) && !each.disabled && each.tabIndex >= 0
    && !(each.type === "radio" && !each.checked))
    .map(each => {{ each.dataset.stop ??= String(Math.random()); return each.dataset.stop; }})"""
_FOCUSED = """() => { const at = document.activeElement, style = getComputedStyle(at);
    return [at.dataset.stop ?? null, style.outlineStyle !== "none" || style.boxShadow !== "none"]; }"""
#: Every rule, and no more work than for what is said of a violation: pages have no frames and no media, and
#: their elements are told by their HTML, not by a selector.
AXE = {"resultTypes": ["violations"], "preload": False, "iframes": False, "selectors": False}
_SPILL = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture
def world(site, tmp_path) -> Iterator[World]:
    tallies.register()
    yield make_world(site, tmp_path)
    tallies.forget()


@pytest.fixture
def address(app) -> Iterator[str]:
    """The application on a port of its own, in this process."""
    server = make_server("127.0.0.1", 0, app, threaded=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield started
        started.close()


def paths(world: World, who: str) -> dict[str, str]:
    """The pages that `who` may read, by endpoint; files are no pages."""
    mine = {name: route for name, route in PAGES.items() if who in route.may and not route.file}
    read = [name for name, route in mine.items() if route.request(world).method == "GET"]
    # Once more, for those alone: what is made for another route may have replaced what a page is about.
    return {name: PAGES[name].request(world).path for name in read}


def opened(browser, world: World, address: str, who: str, viewport, scheme: str):
    """A page of a signed-in person, with all that its console complained about."""
    context = browser.new_context(
        base_url=address, viewport=viewport, color_scheme=scheme, reduced_motion="reduce"
    )
    page = context.new_page()
    page.complaints = []
    page.on("console", lambda m: page.complaints.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    if who != "nobody":
        page.goto("/sign-in")
        page.fill("#name", world.site.actor(who).name)
        page.fill("#password", PASSWORD)
        page.locator("main button[type=submit], main form button").first.click()
        page.wait_for_url(lambda url: "/sign-in" not in url)
    return page


@pytest.mark.parametrize("who", LOOKS)
def test_every_page_is_accessible_and_fits(browser, address, world, who):
    from axe_playwright_python.sync_playwright import Axe

    axe, wrong = Axe(), []
    pages = paths(world, who)
    for viewport, scheme in LOOKS[who]:
        page = opened(browser, world, address, who, viewport, scheme)
        for name, path in pages.items():
            answer = page.goto(path)
            seen = f"{name} {path} as {who}, {viewport['width']} px, {scheme}"
            if answer is None or answer.status != 200:
                wrong.append(f"{seen}: answered {answer and answer.status}")
            for each in axe.run(page, options=AXE).response["violations"]:
                where = "; ".join(node["html"][:150] for node in each["nodes"][:3])
                wrong.append(f"{seen}: {each['id']}: {each['help']}: {where}")
            if (spill := page.evaluate(_SPILL)) > 0:
                wrong.append(f"{seen}: {spill} px wider than the screen")
        wrong += [f"console as {who}: {each}" for each in page.complaints]
        page.context.close()
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("who", ["steward", "analyst", "auditor"])
def test_tab_reaches_everything_and_shows_where_it_is(browser, address, world, who):
    page = opened(browser, world, address, who, DESKTOP, "light")
    wrong = []
    for name, path in paths(world, who).items():
        page.goto(path)
        stops = page.evaluate(_REACHABLE)
        reached, unseen = set(), 0
        for _ in range(len(stops) + 5):
            page.keyboard.press("Tab")
            stop, shown = page.evaluate(_FOCUSED)
            reached.add(stop)
            unseen += stop is not None and not shown
        if missing := [each for each in stops if each not in reached]:
            selector = ", ".join(f"[data-stop='{each}']" for each in missing[:3])
            elements = page.locator(selector).evaluate_all(
                "all => all.map(each => each.outerHTML.slice(0, 150))"
            )
            wrong.append(f"{name} {path}: Tab misses {len(missing)} of {len(stops)}: {elements}")
        if unseen:
            wrong.append(f"{name} {path}: {unseen} stops don't show the focus")
    page.context.close()
    assert not wrong, "\n".join(wrong)
