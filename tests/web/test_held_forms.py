"""A form that was sent after its session had ended is there again after the sign-in, for its own
person alone.
"""

import html
import re
from unittest.mock import patch

import pytest
from sqlalchemy import text

from tests.web.browsers import PASSWORD
from web import held_forms

TYPED = {"action": "price", "mechanism": "noisy-count", "purpose": "what <b>they</b> wrote"}


@pytest.fixture
def ended(site):
    """A browser whose session ended on the server while it showed a form, and the form's token."""
    browser = site.pages("analyst")
    page = f"{site.dataset}/submit"
    token = browser.token(page)
    with site.engine.begin() as connection:
        connection.execute(text("UPDATE sessions SET ended_at = now() WHERE ended_at IS NULL"))
    return browser, page, {**TYPED, "csrf_token": token}


def hidden(page: str) -> dict[str, str]:
    found = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', page)
    return {name: html.unescape(value) for name, value in found}


def signed_in(browser, asked, name):
    typed = {**hidden(asked.text), "name": name, "password": PASSWORD}
    return browser.client.post("/sign-in", data=typed)


def test_what_was_typed_is_there_after_signing_in_again(site, ended):
    browser, page, form = ended
    asked = browser.client.post(page, data=form)
    assert asked.status_code == 401
    assert "they" not in asked.text, "whoever sits there next may read the page"
    assert "held" not in asked.request.url
    wrong = browser.client.post(
        "/sign-in", data=hidden(asked.text) | {"name": "x", "password": "y"}
    )
    back = signed_in(browser, wrong, site.actor("analyst").name)
    assert back.status_code == 200
    assert f'action="{page}"' in back.text
    shown = back.text.split('<dl class="facts">')[1].split("</dl>")[0]
    for typed in (page, *TYPED.values()):  # somebody else may have sat there meanwhile
        assert html.escape(typed) in shown
    again = browser.client.post(page, data=hidden(back.text))
    assert html.escape(TYPED["purpose"]) in again.text


def test_another_person_gets_no_form_of_somebody_else(site, ended):
    browser, page, form = ended
    asked = browser.client.post(page, data=form)
    other = signed_in(browser, asked, site.actor("analyst-2").name)
    assert other.status_code == 303
    assert "they" not in browser.get(other.headers["Location"]).text


def test_a_held_form_ends_after_a_while_and_holds_no_password(site, ended):
    browser, page, form = ended
    secret = {**form, "confirm_password": "hunter2 hunter2"}
    asked = browser.client.post(page, data=secret)
    with patch.object(held_forms, "MOST_SECONDS", -1):
        assert signed_in(browser, asked, site.actor("analyst").name).status_code == 303
    stranger = site.app.test_client()
    assert stranger.post(page, data=form).status_code in (303, 400), "nobody's session sent it"


def test_a_part_of_a_page_says_in_a_sentence_that_nobody_is_signed_in(site, ended):
    browser, _, form = ended
    path = f"{site.dataset}/price"
    told = browser.client.post(path, data=form, headers={"HX-Request": "true"})
    assert (told.status_code, "what you typed is kept" in told.text) == (401, True)
    lost = site.app.test_client().post(path, data=form, headers={"HX-Request": "true"})
    assert lost.status_code == 400
    for answer in (told, lost):
        assert "<html" not in answer.text
        assert "HX-Redirect" not in answer.headers


def test_the_same_request_again_is_asked_about_before_it_is_a_second_job(site):
    browser, page = site.pages("analyst"), f"{site.dataset}/submit"
    typed = {**TYPED, "action": "submit", "of": "noisy-count"}
    first = browser.post(page, page, **typed, key="one")
    assert first.status_code == 303
    repeated = browser.post(page, page, **typed, key="one")
    assert repeated.headers["Location"] == first.headers["Location"], "the key makes them one"
    asked = browser.post(page, page, **typed, key="two")  # Back loads the page with a new key
    assert asked.status_code == 409
    assert "You have just asked for the same" in asked.text
    second = browser.post(page, page, **typed, key="two", again="1")
    assert second.status_code == 303
    assert second.headers["Location"] != first.headers["Location"]


def test_a_lower_allowance_is_called_lower(site):
    browser, page = site.pages("steward"), f"{site.dataset}/policy"
    effect = f"{site.dataset}/allowance/effect"
    now = site.api("steward").get(site.dataset).json["account"]
    assert "a guesser is right at most" in browser.get(page).text, "before anything is typed"
    lower = browser.post(effect, page, epsilon=str(float(now["epsilon"]) / 2), delta=now["delta"])
    assert 'data-yes="Lower it"' in lower.text
    larger = browser.post(effect, page, epsilon=str(float(now["epsilon"]) * 2), delta=now["delta"])
    assert "Lower it" not in larger.text
