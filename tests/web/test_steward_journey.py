"""A steward's way in a real browser, at both widths: a dataset in steps, an offer, an approval; axe
looks on.

The same without scripts at the end: nothing needs them but what follows by itself.
"""

import re

import pytest
from playwright.sync_api import expect

from tests.web.chromium import DESKTOP, MARKS, PHONE, address, browser, signed_in
from tests.web.views.test_accessibility import AXE, name_of, world

__all__ = ["address", "browser", "world"]  # fixtures

pytestmark = MARKS
SPILL = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"


def look(page, where: str) -> None:
    """No violation, nothing wider than the screen, nothing said in the console."""
    page.wait_for_load_state()  # with its styles
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page, options=AXE).response["violations"]
    wrong = [f"{each['id']}: {each['nodes'][0]['html'][:200]}" for each in found]
    assert not wrong, f"{where}: {wrong}"
    assert page.evaluate(SPILL) <= 0, f"{where} scrolls sideways"
    assert page.complaints == [], where


@pytest.mark.parametrize(
    ("viewport", "scheme"),
    [(DESKTOP, "light"), pytest.param(PHONE, "dark", marks=pytest.mark.release)],
)
def test_a_dataset_an_offer_and_an_approval(browser, address, world, viewport, scheme):
    steward = signed_in(browser, address, name_of(world, "steward"), viewport, scheme)
    name = f"journey-{viewport['width']}-{world.dataset}"
    steward.goto("/add-dataset")
    steward.fill("#name", name)
    steward.fill("#uri", "/data/journey.csv")
    steward.keyboard.press("Enter")  # goes on, as the first button does
    for step in ("texts", "people", "allowance"):
        steward.locator(f"input[name=step][value={step}]").wait_for(state="attached")
        look(steward, step)
        if step != "allowance":
            steward.locator("button[value=next]").last.click()
    steward.fill("#epsilon", "3")
    steward.fill("#delta", "1e-6")
    steward.get_by_text("95.3 %").first.wait_for()  # the panel follows what is typed
    steward.fill("#reason", "a pilot")
    look(steward, "allowance with its panel")
    steward.locator("button[value=next]").last.click()
    steward.locator("input[name=step][value=policy]").wait_for(state="attached")
    look(steward, "policy")
    steward.locator("button[value=next]").last.click()
    steward.locator("button[value=create]").last.wait_for()
    look(steward, "review")
    steward.locator("button[value=create]").last.click()
    steward.wait_for_url(re.compile(f"/datasets/{name}$"))

    offered, approved = world.job(), world.job()
    steward.goto("/inbox")
    request = steward.locator(f"#decision-{offered}")
    request.get_by_text("Offer less").click()
    request.locator("[name='parameters.tokens_per_batch']").fill("2")
    request.get_by_text("asked: ε").wait_for()
    look(steward, "inbox with an offer's price")
    request.locator("[name=reason]").fill("two will do")
    request.locator("button[value=offer]").click()
    expect(steward.locator("#confirm-title")).to_contain_text("smaller job")
    look(steward, "the dialog")
    steward.keyboard.press("Escape")  # leaves everything as it is
    steward.locator("#confirm").wait_for(state="hidden")
    expect(request).to_have_count(1)
    request.locator("button[value=offer]").click()
    steward.locator("#confirm").wait_for()
    steward.locator("#confirm-yes").click()
    steward.get_by_text("a smaller one is offered").wait_for()

    analyst = signed_in(browser, address, name_of(world, "analyst"), viewport, scheme)
    analyst.goto(f"/jobs/{offered}")
    look(analyst, "the offer")
    analyst.get_by_role("button", name="Accept the offer").click()
    analyst.locator("#confirm-yes").click()
    analyst.get_by_text("is now queued").wait_for()

    second = signed_in(browser, address, name_of(world, "steward-second"), viewport, scheme)
    second.goto("/inbox")
    request = second.locator(f"#decision-{approved}")
    request.wait_for()
    steward.goto("/inbox")
    steward.locator(f"#decision-{approved} [name=reason]").fill("it fits")
    steward.locator(f"#decision-{approved} button[value=yes]").click()
    steward.locator("#confirm-yes").click()
    steward.get_by_text("is now queued").wait_for()
    # somebody else resolved it: it goes by itself
    request.wait_for(state="detached", timeout=60_000)
    for page in (steward, analyst, second):
        page.context.close()


def test_without_scripts_everything_is_there(browser, address, world):
    page = signed_in(browser, address, name_of(world, "steward"), PHONE, java_script_enabled=False)
    approved = world.job()
    page.goto("/inbox")
    request = page.locator(f"#decision-{approved}")
    request.locator("[name=reason]").fill("it fits")
    request.locator("button[value=yes]").click()
    expect(page.locator("h1")).to_have_text("Approve?")
    page.get_by_role("button", name="Approve").click()
    expect(page.locator("main")).to_contain_text("is now queued")
    page.goto(f"/datasets/{world.dataset}/policy")
    page.fill("#epsilon", "12")
    page.fill("#reason", "more")
    page.get_by_role("button", name="Change the allowance").click()
    expect(page.locator("main")).to_contain_text("Nothing is changed yet")
    page.get_by_role("button", name="Change the allowance").click()
    expect(page.locator("main")).to_contain_text("is now ε 12")
    page.context.close()
