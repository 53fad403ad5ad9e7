"""Notices by page and by API: administrators set addresses, and their people see and end them."""

import re

import pytest

from accountant.catalogue import notices

URL = "https://receiver.example/hook"
HERE = "/settings/notices"


def wanted(site, **changes: object) -> dict[str, object]:
    person = site.actor("analyst").name
    return {"url": URL, "kind": "json", "person": person, "events": ["job.failed"]} | changes


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"url": "http://receiver.example/"}, "url"),
        ({"url": "https://169.254.169.254/"}, "url"),
        ({"url": "https://127.0.0.1/"}, "url"),
        ({"url": "mailto:ada@example.org", "kind": "mail"}, "url"),
        ({"kind": "webhook"}, "kind"),
        ({"person": "nobody"}, "person"),
        ({"events": []}, "events"),
        ({"events": ["job.exploded"]}, "events"),
        ({"events": ["dataset.overdrawn"]}, "events"),
    ],
)
def test_what_is_wrong_is_named(site, changes, field):
    answer = site.api("administrator").post("/notices", wanted(site, **changes))
    assert answer.status_code == 422
    assert answer.json["problems"][0]["field"] == field
    browser = site.pages("administrator")
    form = {"csrf_token": browser.token(HERE), **wanted(site, **changes)}
    page = browser.client.post(HERE, data=form)
    assert page.status_code == 422
    assert "field-problem" in page.text


def test_a_page_sets_tests_and_ends_an_address(site):
    browser, own = site.pages("administrator"), site.pages("analyst")
    form = {"csrf_token": browser.token(HERE), **wanted(site)}
    assert browser.client.post(HERE, data=form).status_code == 303
    person = site.actor("analyst").name
    assert URL in browser.get(HERE).text
    shown = own.get(HERE).text
    assert "https://receiver.example/…" in shown
    assert URL not in shown
    assert "Set an address" not in shown
    assert person not in site.pages("steward").get(HERE).text
    notice = re.search(rf"{HERE}/([0-9a-f-]{{36}})/remove", shown)[1]
    assert browser.post(f"{HERE}/{notice}/test", HERE).status_code == 303
    assert own.post(f"{HERE}/{notice}/remove", HERE).status_code == 303
    assert site.api("administrator").get("/notices").json["notices"] == []


def test_there_is_a_most(site, monkeypatch):
    monkeypatch.setattr(notices, "MOST_ADDRESSES", 2)
    api = site.api("administrator")
    assert [api.post("/notices", wanted(site)).status_code for _ in range(3)] == [201, 201, 422]
