"""What only a browser shows: a dialog that says what will really happen, and a button that is in
sight.
"""

import io
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from accountant.core.ledger.export_formats import verify_lines
from accountant.identities import passkeys, sign_ins
from tests.web.chromium import MARKS, address, browser, signed_in
from tests.web.conftest import open_site

__all__ = ["address", "browser"]  # fixtures
pytestmark = MARKS


@pytest.fixture(scope="module")
def world(app, engine, password_hash) -> SimpleNamespace:
    return SimpleNamespace(site=open_site(app, engine, password_hash))


@pytest.fixture(scope="module")
def page(browser, world, address) -> Iterator:
    shown = signed_in(browser, address, world.site.actor("steward").name)
    yield shown
    assert not shown.complaints
    shown.context.close()


def opened(page, group: str) -> None:
    """Open a group of a policy's fields, where it is closed."""
    for title in ("Adjust", group):
        summary = page.locator("summary", has_text=title).first
        if not summary.evaluate("it => it.parentElement.open"):
            summary.click()


def asked(page, button: str) -> dict[str, str]:
    """What the dialog of a button says; it is left without an answer."""
    page.get_by_role("button", name=button).click()
    said = {
        name: page.locator(f"#confirm-{name}").inner_text() for name in ("title", "effect", "yes")
    }
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
    opened(page, "Who decides")
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


def test_a_price_that_is_older_than_the_form_says_so_and_comes_with_the_connection(
    world, browser, address
):
    page = signed_in(browser, address, world.site.actor("analyst").name)
    page.goto(f"{world.site.dataset}/submit")
    held = []

    def hold(route) -> None:
        held.append(route)

    page.route("**/price", hold)

    def wait_for_age(words: str) -> None:
        age = "document.querySelector('#price h2').dataset.stale || ''"
        page.wait_for_function(f"words => ({age}) === words", arg=words)

    with page.expect_request("**/price"):
        page.locator("#share").fill("30")
    wait_for_age("being priced again")
    held.pop().abort("internetdisconnected")
    wait_for_age("not priced: no connection")
    page.unroute("**/price")
    page.context.set_offline(True)
    page.context.set_offline(False)
    wait_for_age("")
    page.context.set_offline(True)
    wait_for_age("not priced: no connection")
    page.context.close()


@pytest.fixture
def signing_page(app, engine, password_hash, browser, address, monkeypatch) -> Iterator:
    """A steward's page at a host name, where browsers have passkeys, with an authenticator in
    software.
    """
    world = SimpleNamespace(site=open_site(app, engine, password_hash))
    here = address.replace("127.0.0.1", "localhost")
    held = app.extensions["exchequer"]
    monkeypatch.setitem(held, "settings", held["settings"].model_copy(update={"public_url": here}))
    page = signed_in(browser, here, world.site.actor("steward").name)
    tool = page.context.new_cdp_session(page)
    tool.send("WebAuthn.enable")
    kind = {"protocol": "ctap2", "transport": "internal", "automaticPresenceSimulation": True}
    able = dict.fromkeys(("hasResidentKey", "hasUserVerification", "isUserVerified"), True)
    tool.send("WebAuthn.addVirtualAuthenticator", {"options": {**kind, **able}})
    page.site = world.site
    yield page
    assert not page.complaints
    page.context.close()


def test_a_passkey_is_added_signs_an_approval_and_a_policy_and_signs_in(signing_page):
    """One click as before, and a touch: the virtual authenticator touches by itself."""
    page, site = signing_page, signing_page.site
    steward = site.actor("steward")
    page.goto("/account")
    page.fill("#passkey_name", "laptop")
    with page.expect_navigation(url="**/account"):  # back to where it is already
        page.get_by_role("button", name="Add a passkey").click()
    (own,) = passkeys.of(site.engine, steward.id)
    api = site.api("steward")
    policy = api.get(f"{site.dataset}/policy").json | {"two_people": False}
    signing = policy | {"signed": ["approve", "policy"], "signers": [own["signer"]]}
    assert api.put(f"{site.dataset}/policy", signing).status_code == 200
    refused = api.put(f"{site.dataset}/policy", policy)  # by a token, which can't sign
    assert refused.status_code == 403
    assert "sign this with a passkey" in refused.json["detail"]

    job = site.submitted()
    assert api.post(f"/decisions/{job}/answer", {"yes": True, "reason": "fine"}).status_code == 403
    page.goto("/inbox")
    page.fill(f"#reason-{job}", "as planned")
    page.locator(f"#decision-{job}").get_by_role("button", name="Approve").click()
    signed = page.expect_request(lambda sent: "authenticatorData" in (sent.post_data or ""))
    with page.expect_navigation(url="**/inbox"), signed:
        page.locator("#confirm-yes").click()
    assert api.get(f"/jobs/{job}").json["state"] == "queued"

    page.goto(f"{site.dataset}/policy")
    opened(page, "Timing")
    page.fill("[name='policy.approval_days']", "9")
    page.get_by_role("button", name="Change the policy").click()
    page.locator("#confirm-yes").click()
    page.wait_for_url(f"**{site.dataset}")
    assert api.get(f"{site.dataset}/policy").json["approval_days"] == 9

    found = api.get(f"{site.dataset}/ledger/export", query_string={"format": "jsonl"})
    verified = verify_lines(found.text.splitlines(keepends=True))
    assert verified.unproved == ()
    assert sum('"client_data"' in each for each in found.text.splitlines()) == 2

    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url("**/sign-in")
    page.get_by_role("button", name="Sign in with a passkey").click()
    page.wait_for_url(lambda url: "/sign-in" not in url)
    assert page.get_by_role("link", name=steward.name).count() == 1
    assert sign_ins.listing(site.engine, steward, limit=1)[0]["method"] == "passkey"
