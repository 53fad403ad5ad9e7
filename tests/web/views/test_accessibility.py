"""Every page in a real browser: axe finds no violation, nothing spills over a phone's edge, Tab
reaches all.

Pages come from the table of routes, so a new page is looked at without being named here: for the
first role that may read it, light or dark in turn, and by keyboard and for its contrasts every
third page; before a release for every role, at both.
One world for all: where two roles are shown the same main part of a page, it is looked at for one
of them. No style depends on width and scheme together. Of the operations of the API, which one
template makes, one of each section is looked at; before a release all.
"""

import re
from collections.abc import Iterator

import pytest

from tests import tallies
from tests.web.chromium import DESKTOP, MARKS, PHONE, address, browser, signed_in
from tests.web.conftest import open_site
from tests.web.routes import PAGES, World
from tests.web.test_roles import make_world

__all__ = ["address", "browser"]  # fixtures
pytestmark = MARKS
#: Stewards come first: they are shown the most of a page. The second look is for a release.
LOOKS = {
    "steward": [(DESKTOP, "light"), (PHONE, "dark")],
    "analyst": [(DESKTOP, "dark"), (PHONE, "light")],
    "auditor": [(PHONE, "dark"), (DESKTOP, "light")],
    "administrator": [(DESKTOP, "light"), (PHONE, "dark")],
    "nobody": [(PHONE, "light"), (DESKTOP, "dark")],
}
#: What Tab should stop at, unless it is hidden, closed in a <details>, or switched off.
STOPS = (
    "a[href], button, input:not([type=hidden]), select, textarea, summary, "
    "[tabindex]:not([tabindex='-1'])"
)

#: Names the stops of a page, and notes of each that is reached from here on whether it shows its
#: focus.
_NAMED = f"""() => {{
    const stops = [...document.querySelectorAll("{STOPS}")].filter(each =>
        each.checkVisibility({{visibilityProperty: true}}) && !each.disabled && each.tabIndex >= 0
        && !(each.type === "radio" && !each.checked));
    stops.forEach((each, number) => {{ each.dataset.stop = number; }});
    window.reached = {{}};
    addEventListener("focusin", ({{target}}) => {{
        const style = getComputedStyle(target), stop = target.dataset.stop;
        const shown = style.outlineStyle !== "none" || style.boxShadow !== "none";
        if (stop !== undefined) reached[stop] = shown && (reached[stop] ?? true);
    }});
    return stops.map(each => each.outerHTML.slice(0, 150));
}}"""
#: Every rule, and no more work than for what is said of a violation: pages have no frames and no
#: media, and their elements are told by their HTML, not by a selector.
AXE = {"resultTypes": ["violations"], "preload": False, "iframes": False, "selectors": False}
#: Pairs of buttons that are less than 4 pixels apart.
_TOUCHING = """() => {
    const boxes = [...document.querySelectorAll(".btn")].filter(each => each.checkVisibility())
        .map(each => [each.textContent.trim(), each.getBoundingClientRect()]);
    return boxes.flatMap(([one, a], place) => boxes.slice(place + 1)
        .filter(([, b]) => a.right + 4 > b.left && b.right + 4 > a.left
            && a.bottom + 4 > b.top && b.bottom + 4 > a.top)
        .map(([other]) => `${one} and ${other}`));
}"""
#: Leaves the first of each section's operations in the page about the API.
_FEWER = """() => document.querySelectorAll("section").forEach(section =>
    [...section.querySelectorAll(":scope > article, :scope > ul > li")].slice(1)
        .forEach(each => each.remove()))"""
_SPILL = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture(scope="module")
def world(app, engine, password_hash, tmp_path_factory) -> Iterator[World]:
    tallies.register()
    yield make_world(open_site(app, engine, password_hash))
    tallies.forget()


@pytest.fixture(scope="module")
def paths(world) -> dict[str, str]:
    """The pages that somebody may read, by endpoint; files are no pages."""
    read = [
        name
        for name, route in PAGES.items()
        if not route.file and route.request(world).method == "GET"
    ]
    # Once more, for those alone: what is made for another route may have replaced what a page is
    # about.
    return {name: PAGES[name].request(world).path for name in read}


@pytest.fixture(scope="module")
def seen() -> set[tuple[object, ...]]:
    """(path, main part, width or scheme) and (page,) of what was looked at, for whichever role."""
    return set()


def name_of(world: World, who: str) -> str | None:
    return None if who == "nobody" else world.site.actor(who).name


def main_part(html: str) -> str:
    """What a page shows of its own, without the tokens of its forms."""
    found = re.search(r"<main.*</main>", html, re.DOTALL)
    assert found
    return re.sub(r'name="csrf_token" value="[^"]+"', "", found[0])


def missed(page) -> list[str]:
    """What is wrong with a page for somebody who has only a keyboard."""
    stops = page.evaluate(_NAMED)
    for _ in range(len(stops) + 5):
        page.keyboard.press("Tab")
    reached = page.evaluate("() => reached")
    wrong = []
    if lost := [html for number, html in enumerate(stops) if str(number) not in reached]:
        wrong.append(f"Tab misses {len(lost)} of {len(stops)}: {lost[:3]}")
    if unseen := [stops[int(number)] for number, shown in reached.items() if not shown]:
        wrong.append(f"{len(unseen)} stops don't show the focus: {unseen[:3]}")
    return wrong


@pytest.mark.parametrize(
    ("number", "every_role"),
    [
        (0, False),
        pytest.param(0, True, marks=pytest.mark.release),
        pytest.param(1, True, marks=pytest.mark.release),
    ],
)
@pytest.mark.parametrize("who", LOOKS)
def test_every_page_is_accessible_and_fits_and_tab_reaches_everything(
    browser, address, world, paths, seen, who, number, every_role
):
    from axe_playwright_python.sync_playwright import Axe

    axe, wrong, (viewport, scheme) = Axe(), [], LOOKS[who][number]
    page = signed_in(browser, address, name_of(world, who), viewport, scheme)
    for place, (name, path) in enumerate(paths.items()):
        if who not in PAGES[name].may or (not every_role and (name,) in seen):
            continue
        if not every_role:
            scheme = ("light", "dark")[place % 2]
            page.emulate_media(color_scheme=scheme)
        answer = page.goto(path)
        at = f"{name} {path} as {who}, {viewport['width']} px, {scheme}"
        if answer is None or answer.status != 200:
            wrong.append(f"{at}: answered {answer and answer.status}")
            continue
        looks = {(path, main_part(answer.text()), each) for each in (viewport["width"], scheme)}
        if looks <= seen:
            continue
        seen |= {*looks, (name,)}
        if name == "api_docs.show" and not every_role:
            page.evaluate(_FEWER)
        contrast = {"color-contrast": {"enabled": every_role or place % 3 == 0}}
        for each in axe.run(page, options=AXE | {"rules": contrast}).response["violations"]:
            where = "; ".join(node["html"][:150] for node in each["nodes"][:3])
            wrong.append(f"{at}: {each['id']}: {each['help']}: {where}")
        if viewport == DESKTOP and (every_role or place % 3 == 0):
            wrong += [f"{at}: {each}" for each in missed(page)]
        for size in (viewport, PHONE):
            page.set_viewport_size(size)
            if (spill := page.evaluate(_SPILL)) > 0:
                wrong.append(f"{at}: {spill} px wider than a screen of {size['width']}")
            wrong += [f"{at}: {each} touch" for each in page.evaluate(_TOUCHING)]
        page.set_viewport_size(viewport)
    wrong += [f"console as {who}: {each}" for each in page.complaints]
    page.context.close()
    assert not wrong, "\n".join(wrong)
