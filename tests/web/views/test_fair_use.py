"""Fair use on the pages: the fields of the policy, a request that waits, and its end."""

import html
from datetime import UTC, datetime

import pytest

from accountant.core.ledger.fair_use import first_day, month_of
from accountant.queries import jobs
from accountant.transactions import releases

pytestmark = pytest.mark.slow


def next_month() -> int:
    return month_of(datetime.now(UTC)) + 1


def share(site, **values: str) -> int:
    """Share ε 12 by the form, in one month that begins after this one."""
    browser, page = site.pages("steward"), f"{site.dataset}/policy"
    month = next_month()
    typed = {
        "policy.shared_epsilon": "12",
        "policy.release_start": f"{month // 12}-{month % 12 + 1:02}",
        "policy.release_months": "1",
        "policy.wait_for_release": "1",
        "policy.auto_approve_epsilon": "10",
        "policy_version": browser.token(page, "policy_version"),
        **values,
    }
    told = html.unescape(browser.post(f"{page}/effect", page, **typed).text)
    assert "All jobs from the first month on may add up to ε 12 (now: none)." in told
    assert "A job that fits a later release waits for it." in told
    return browser.post(page, page, **typed).status_code


def test_a_request_waits_says_until_when_and_is_taken_back(site):
    assert share(site) == 303
    job_id = site.submitted()
    analyst = site.pages("analyst")
    page = html.unescape(analyst.get(f"/jobs/{job_id}").text)
    day = first_day(next_month())
    assert f"It waits for a release. ε 0 of 12 is released now; the rest waits until {day}." in page
    assert "awaiting release" in page
    assert str(job_id) in analyst.get("/jobs?state=awaiting_release").text
    assert str(job_id) not in site.pages("steward").get("/inbox").text
    assert analyst.post(f"/jobs/{job_id}/cancel", f"/jobs/{job_id}").status_code == 303
    assert site.api("analyst").get(f"/jobs/{job_id}").json["state"] == "cancelled"


def test_an_approved_request_waits_and_who_approved_it_is_not_who_says_when(site):
    assert share(site, **{"policy.auto_approve_epsilon": "0"}) == 303
    job_id, steward = site.submitted(), site.api("steward")
    answer = {"yes": True, "reason": "it is worth it"}
    assert steward.post(f"/decisions/{job_id}/answer", answer).status_code == 200
    assert steward.get(f"/jobs/{job_id}").json["state"] == "awaiting_release"
    page = html.unescape(site.pages("steward").get(f"/jobs/{job_id}").text)
    assert f"by {site.bench.steward.name}: ε 0" not in page
    assert site.pages("steward").get(f"/decisions/{job_id}").status_code == 200
    assert releases.admit(site.engine) == 0
    assert jobs.job(site.engine, job_id, site.bench.steward).state == "awaiting_release"


def test_wrong_fields_are_named(site):
    browser, page = site.pages("steward"), f"{site.dataset}/policy"
    wrong = {"policy.shared_epsilon": "12", "policy.release_start": "soon"}
    wrong |= {"policy_version": browser.token(page, "policy_version")}
    answer = browser.post(page, page, **wrong | {"policy.auto_approve_epsilon": "0"})
    assert answer.status_code == 422
    assert "a month, such as 2027-01" in html.unescape(answer.text)


def test_a_quote_says_that_it_would_wait(site):
    assert share(site) == 303
    question = {"mechanism": "private-prediction", "parameters": site.job(10)["parameters"]}
    on = site.api("analyst").post(f"{site.dataset}/quote", question).json["dataset"]
    assert on["decision"] == "Waits"
    assert first_day(next_month()) in on["waits"]


def test_a_dataset_says_what_is_free_now_to_each_of_its_own(site):
    """Stewards see each holder of a share, an analyst only what is theirs."""
    names = [site.bench.analyst.name, site.actor("analyst-2").name]
    shares = "\n".join(f"{name} 1" for name in names)
    now = next_month() - 1
    month = {"policy.release_start": f"{now // 12}-{now % 12 + 1:02}"}
    assert share(site, **month, **{"policy.shares": shares}) == 303
    free = {
        role: {
            cap["name"]: cap["left"]
            for cap in site.api(role).get(site.dataset).json["caps"]
            if cap["kind"] == "release"
        }
        for role in ("analyst", "steward")
    }
    assert free["analyst"] == {names[0]: "6"}
    assert {name: free["steward"][name] for name in names} == dict.fromkeys(names, "6")
    page = html.unescape(site.pages("analyst").get(site.dataset).text)
    assert f"released for {names[0]}" in page
    assert names[1] not in page


def test_where_projects_have_shares_the_form_asks_for_one(site):
    assert share(site, **{"policy.share_by_project": "1", "policy.shares": "pilot 1"}) == 303
    page = site.pages("analyst").get(f"{site.dataset}/submit").text
    assert page.count('name="project"') == 1
    assert "A public name. Caps count by it." in page
