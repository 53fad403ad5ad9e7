"""The overview: one line for each dataset that somebody looks after, as CSV too, and a calendar."""

import csv
import io
import re
from uuid import UUID

import pytest
from sqlalchemy import Engine, event, text

from accountant.core.ledger.policy import Policy
from accountant.identities import people
from accountant.queries import datasets
from accountant.queries.overview import overview
from accountant.transactions import policies
from tests.support import Bench, person, yes
from tests.web.views.looks import noting
from web.views.overview import feed

pytestmark = pytest.mark.slow


@pytest.fixture
def foreign(site) -> str:
    """A dataset that has other stewards and auditors."""
    names = {f"{role}s": (person(site.engine, role).name,) for role in ("steward", "auditor")}
    return Bench(site.engine, policy=names).dataset


def row_of(site, who="auditor") -> dict:
    rows = overview(site.engine, site.actor(who))
    return next(row for row in rows if row["name"] == site.bench.dataset)


def test_each_line_says_what_the_datasets_page_says(site, publish, foreign):
    """In 90 days went all that was ever used here: what was charged, and what is set aside."""
    policies.set_policy(
        site.engine, site.bench.dataset, Policy(approval_days=2), site.bench.steward
    )
    done, going, void = (site.submitted(tokens=tokens) for tokens in (10, 6, 5))
    for job in (done, going, void):
        yes(site.engine, UUID(job), site.bench.steward, "it fits")
    publish(done, b'{"text": "a"}\n')
    assert site.api("analyst").post(f"/jobs/{void}/cancel").status_code == 200
    waiting = site.submitted(tokens=4)
    account = datasets.dataset(site.engine, site.bench.dataset, site.bench.auditor).account
    row = row_of(site)
    assert row["left"] == pytest.approx(1 - account.used_share)
    assert row["pace"] == pytest.approx(account.used_share)
    assert (row["waiting"], row["warnings"]) == (1, ["a request expires soon"])
    assert row["last_release"] is not None
    page = site.pages("auditor").get(f"/overview?q={site.bench.dataset}").text
    assert site.bench.dataset in page
    assert foreign not in site.pages("auditor").get("/overview").text
    feed = site.pages("auditor").get(f"/overview.ics?q={site.bench.dataset}")
    assert feed.mimetype == "text/calendar"
    assert f"SUMMARY:{site.bench.dataset}: a request expires\r\n" in feed.text.replace("\r\n ", "")
    assert all(len(line.encode()) <= 75 for line in feed.text.split("\r\n"))
    for private in (site.bench.analyst.name, waiting[:8], "a test"):
        assert private not in feed.text


def test_what_was_used_before_is_no_pace(site, publish, owner):
    job = site.submitted(tokens=10)
    yes(site.engine, UUID(job), site.bench.steward, "it fits")
    assert row_of(site)["pace"] > 0
    with owner.begin() as connection:
        connection.execute(text("ALTER TABLE entries DISABLE TRIGGER USER"))
        connection.execute(text("UPDATE entries SET at = at - interval '91 days'"))
        connection.execute(text("ALTER TABLE entries ENABLE TRIGGER USER"))
    assert row_of(site)["pace"] == 0
    publish(job, b'{"text": "a"}\n')  # charged as it was reserved, so nothing more went
    assert row_of(site)["pace"] == 0


def test_order_and_filter_stand_in_the_address(site):
    Bench(site.engine)  # without an allowance
    browser = site.pages("steward")
    page = browser.get("/overview?sort=left&only=warnings").text
    assert 'aria-sort="ascending"><a href="/overview?only=warnings&amp;sort=left"' in page
    assert "no allowance" in page
    assert site.bench.dataset not in page
    for part in ("csv", "ics"):
        link = re.search(rf'href="(/overview\.{part}[^"]*)"', page)
        assert link
    rows = list(csv.DictReader(io.StringIO(browser.get("/overview.csv?sort=left").text)))
    lefts = [float(row["left"]) for row in rows if row["left"]]
    assert lefts == sorted(lefts)
    assert browser.get("/overview?sort=magic").status_code == 422
    assert {
        site.pages("analyst").get(f"/overview{end}").status_code for end in ("", ".csv", ".ics")
    } == {403}


def test_it_takes_few_statements_of_one_moment(site):
    browser, statements = site.pages("auditor"), []
    browser.get("/overview")
    note = noting(statements)
    event.listen(Engine, "before_cursor_execute", note)
    browser.get("/overview")
    event.remove(Engine, "before_cursor_execute", note)
    assert len(statements) <= 12, statements


def test_a_calendar_program_reads_what_expires_by_an_address_of_a_token(site):
    """No session, and nothing but the calendar; the address ends with its token."""
    stranger = site.app.test_client()
    assert stranger.get("/overview.ics").status_code == 303
    who, browser = site.actor("auditor"), site.pages("auditor")
    asking, token = (
        people.make_token(site.engine, who, "calendar", [scope], 3)
        for scope in ("jobs:submit", "read")
    )
    with site.app.test_request_context():
        assert stranger.get(feed(str(asking["id"]))).status_code == 401, "it may read nothing"
    page = browser.get("/account/tokens").text
    (address,) = re.findall(r'href="http://[^/]+(/overview\.ics\?feed=[^"]+)"', page)
    assert token["token"] not in address
    answer = stranger.get(address)
    assert (answer.status_code, answer.mimetype) == (200, "text/calendar")
    for other in (address.replace(".ics", ".csv"), "/overview" + address[len("/overview.ics") :]):
        assert stranger.get(other).status_code == 303
    assert stranger.get(address[:-2] + "xx").status_code == 401
    assert site.api("auditor").get("/me").status_code == 200
    with site.engine.begin() as connection:
        connection.execute(
            text("UPDATE users SET roles = '{analyst}' WHERE id = :id"), {"id": who.id}
        )
    assert stranger.get(address).status_code == 403
    with site.engine.begin() as connection:
        connection.execute(
            text("UPDATE users SET roles = '{auditor}' WHERE id = :id"), {"id": who.id}
        )
    people.revoke_token(site.engine, who, UUID(str(token["id"])))
    assert stranger.get(address).status_code == 401
    assert "Calendar feed" not in site.pages("analyst").get("/account/tokens").text
