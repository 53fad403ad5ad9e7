"""What only a browser shows: a dialog that says what will really happen, and a button that is in sight."""

import io
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from tests.web.conftest import open_site
from tests.web.views import test_accessibility as looks

pytestmark = looks.pytestmark
address, browser = looks.address, looks.browser  # fixtures


@pytest.fixture(scope="module")
def world(app, engine, password_hash) -> SimpleNamespace:
    return SimpleNamespace(site=open_site(app, engine, password_hash))


@pytest.fixture(scope="module")
def page(browser, world, address) -> Iterator:
    shown = looks.opened(browser, world, address, "steward", looks.DESKTOP, "light")
    yield shown
    assert not shown.complaints
    shown.context.close()


def asked(page, button: str) -> dict[str, str]:
    """What the dialog of a button says; it is left without an answer."""
    page.get_by_role("button", name=button).click()
    said = {name: page.locator(f"#confirm-{name}").inner_text() for name in ("title", "effect", "yes")}
    page.keyboard.press("Escape")
    return said


def test_a_proposer_is_asked_whether_to_propose(world, page):
    steward = world.site.api("steward")
    policy = steward.get(f"{world.site.dataset}/policy").json
    for two_people, yes in ((False, "Allow it"), (True, "Propose it")):
        steward.put(f"{world.site.dataset}/policy", policy | {"two_people": two_people})
        page.goto(f"{world.site.dataset}/policy")
        with page.expect_response(lambda answer: answer.request.method == "POST"):
            page.fill("#epsilon", "40")
        page.fill("#reason", "more")
        page.wait_for_function(
            "two => Boolean(document.getElementById('allowance-words')) === two", arg=two_people
        )
        said = asked(page, "Change the allowance")
        assert said["yes"] == yes
        assert ("another steward confirms it" in said["effect"]) == two_people
    with page.expect_response(lambda answer: answer.request.method == "POST"):
        page.uncheck("[name='policy.two_people']")
    page.wait_for_selector("#policy-words")
    assert asked(page, "Change the policy")["yes"] == "Propose it"


def test_the_button_that_destroys_an_upload_is_in_sight(world, page):
    browser = world.site.pages("steward")
    content = b"a_rather_long_column_name,another_rather_long_column_name,text\n1,2,some text\n"
    sent = {
        "csrf_token": browser.token("/uploads"),
        "file": (io.BytesIO(content), "a long name of a file.csv"),
    }
    assert browser.client.post("/uploads", data=sent).status_code == 303
    page.goto("/uploads")
    button = page.get_by_role("button", name="Destroy a long name of a file.csv")
    box = button.bounding_box()
    assert box is not None
    table = page.get_by_role("region", name="Files that are kept").bounding_box()
    assert box["x"] + box["width"] <= table["x"] + table["width"] <= 1280
