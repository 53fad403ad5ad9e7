"""Webhooks by page and by API: one's own, a secret that is shown once, and what was sent."""

import re

import pytest
from sqlalchemy import text

from accountant.webhooks import delivery
from accountant.webhooks.delivery import Outcome, Retries

URL = "https://receiver.example/hook"


def sent_all(engine, settings_key: bytes, outcome: Outcome) -> None:
    """Every message that is due gets this outcome, as if it had been sent."""
    while taken := delivery.take(engine, settings_key, 100):
        for each in taken:
            delivery.settle(engine, each, outcome, Retries(5, 24))


def all_due(engine) -> None:
    now = "UPDATE hook_deliveries SET due_at = clock_timestamp() WHERE state = 'pending'"
    with engine.begin() as connection:
        connection.execute(text(now))


@pytest.fixture
def key(app) -> bytes:
    return app.extensions["exchequer"]["settings"].secret("webhooks")


def test_a_program_registers_reads_and_removes_its_webhook(site, engine, key):
    api = site.api("analyst")
    made = api.post("/webhooks", {"url": URL, "events": ["job.succeeded", "job.awaiting_approval"]})
    assert made.status_code == 201, made.text
    assert made.json["secret"].startswith("whsec_")
    own = f"/webhooks/{made.json['id']}"
    shown = api.get(own)
    assert shown.json == {name: value for name, value in made.json.items() if name != "secret"}
    assert "whsec_" not in shown.text + api.get("/webhooks").text
    job = site.submitted()
    assert api.post(f"{own}/test").status_code == 201
    log = api.get(f"{own}/deliveries").json["deliveries"]
    assert [each["event"] for each in log] == ["webhook.test", "job.awaiting_approval"]
    assert log[1]["data"]["job"] == job
    first = api.get(f"{own}/deliveries?limit=1").json
    second = api.get(f"{own}/deliveries?limit=1&cursor={first['next']}").json
    assert first["deliveries"] + second["deliveries"] == log
    assert second["next"] is None
    again = f"{own}/deliveries/{log[0]['id']}/redeliver"
    assert api.post(again).status_code == 409  # it is on its way
    sent_all(engine, key, Outcome(500, "answered 500"))
    with engine.begin() as connection:
        connection.execute(
            text("UPDATE hook_deliveries SET due_at = clock_timestamp() WHERE state = 'pending'")
        )
    sent_all(engine, key, Outcome(204))
    assert {each["state"] for each in api.get(f"{own}/deliveries").json["deliveries"]} == {"delivered"}
    assert api.post(again).status_code == 200
    renewed = api.post(f"{own}/secret")
    assert renewed.json["secret"] != made.json["secret"]
    assert api.post(f"{own}/disable").json["disabled_reason"] == "by its owner"
    assert api.post(f"{own}/test").status_code == 409
    assert api.post(f"{own}/enable").json["active"]
    assert api.client.delete(f"/api/v1{own}", headers=api.headers).status_code == 200
    assert api.get(own).status_code == 404


def test_nobody_sees_or_changes_anothers_webhook(site):
    made = site.api("analyst").post("/webhooks", {"url": URL, "events": ["job.failed"]}).json
    own = f"/webhooks/{made['id']}"
    for who in ("analyst-2", "steward", "auditor", "administrator"):
        api = site.api(who)
        assert made["id"] not in api.get("/webhooks").text
        for answer in (
            api.get(own),
            api.get(f"{own}/deliveries"),
            api.post(f"{own}/test"),
            api.post(f"{own}/secret"),
            api.post(f"{own}/disable"),
            api.client.delete(f"/api/v1{own}", headers=api.headers),
            api.post(f"{own}/deliveries/{made['id']}/redeliver"),
        ):
            assert answer.status_code == 404
        assert site.pages(who).get(f"/settings{own}").status_code == 404
    assert site.api("analyst").get(own).json["active"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"url": "http://receiver.example/", "events": ["job.failed"]}, "url"),
        ({"url": "https://169.254.169.254/", "events": ["job.failed"]}, "url"),
        ({"url": "https://127.0.0.1/", "events": ["job.failed"]}, "url"),
        ({"url": URL, "events": []}, "events"),
        ({"url": URL, "events": ["job.exploded"]}, "events"),
        ({"url": URL, "events": ["dataset.overdrawn"]}, "events"),
    ],
)
def test_what_is_wrong_is_named(site, body, field):
    answer = site.api("analyst").post("/webhooks", body)
    assert answer.status_code == 422
    assert answer.json["problems"][0]["field"] == field
    browser = site.pages("analyst")
    page = browser.client.post(
        "/settings/webhooks", data={"csrf_token": browser.token("/settings/webhooks"), **body}
    )
    assert page.status_code == 422
    assert "field-problem" in page.text


def test_there_is_a_most(site):
    api = site.api("analyst")
    answers = [api.post("/webhooks", {"url": URL, "events": ["job.failed"]}).status_code for _ in range(21)]
    assert answers == [201] * 20 + [422]


def test_events_are_listed(site):
    events = site.api("analyst").get("/webhooks/events").json["events"]
    assert {
        "event": "job.succeeded",
        "meaning": "a job is now succeeded",
        "seen_by": "analyst and overseers",
    } in events


def test_a_page_does_all_of_it_and_shows_a_secret_once(site, engine, key):
    browser = site.pages("analyst")
    page = browser.get("/settings/webhooks").text
    assert "No notices yet" in page
    assert 'value="job.succeeded"' in page
    assert "dataset.overdrawn" not in page
    made = browser.client.post(
        "/settings/webhooks",
        data={
            "csrf_token": browser.token("/settings/webhooks"),
            "url": URL,
            "events": ["job.succeeded", "job.awaiting_approval"],
        },
    )
    assert made.status_code == 201
    secret = re.search(r"whsec_[\w+/=]+", made.text)[0]
    own = re.search(r"/settings/webhooks/[0-9a-f-]{36}", made.text)[0]
    assert "whsec_" not in browser.get(own).text
    assert "no-store" in made.headers["Cache-Control"]
    site.submitted()
    assert browser.post(f"{own}/test", own).status_code == 303
    shown = browser.get(own).text
    assert "webhook.test" in shown
    assert "job.awaiting_approval" in shown
    sent_all(engine, key, Outcome(500, "answered 500"))
    assert "answered 500" in browser.get(own).text
    sent_all(engine, key, Outcome(410, "answered 410"))
    with engine.begin() as connection:
        connection.execute(
            text("UPDATE hook_deliveries SET due_at = clock_timestamp() WHERE state = 'pending'")
        )
    sent_all(engine, key, Outcome(410, "answered 410"))
    shown = browser.get(own).text
    assert "it answered 410 Gone" in shown
    assert "it answered 410 Gone" in browser.get("/settings/webhooks").text
    assert browser.post(f"{own}/enable", own).status_code == 303
    again = re.search(rf"{own}/deliveries/[0-9a-f-]+/redeliver", browser.get(own).text)[0]
    assert browser.post(again, own).status_code == 303
    renewed = browser.post(f"{own}/secret", own)
    assert renewed.status_code == 201
    assert re.search(r"whsec_[\w+/=]+", renewed.text)[0] != secret
    assert browser.post(f"{own}/disable", own).status_code == 303
    assert "by its owner" in browser.get(own).text
    assert browser.post(f"{own}/remove", own).status_code == 303
    assert browser.get(own).status_code == 404


def test_a_long_log_has_pages(site):
    api, browser = site.api("analyst"), site.pages("analyst")
    made = api.post("/webhooks", {"url": URL, "events": ["job.failed"]}).json
    for _ in range(30):
        api.post(f"/webhooks/{made['id']}/test")
    own = f"/settings/webhooks/{made['id']}"
    first = browser.get(own).text
    older = re.search(r'href="([^"]+cursor=[^"]+)" rel="next"', first)[1]
    assert first.count("webhook.test</code>") == 25
    assert browser.get(older).text.count("webhook.test</code>") == 5
