"""What-if planning: what a plan's page says is what admission does, for those who may know it."""

import re
from datetime import UTC, datetime

import pytest

from accountant.core.ledger.allowances import Allowance
from accountant.queries import plans
from accountant.transactions import allowances
from web.views.plans import month_in_words


def shown(site, who: str, **given: object):
    """The page of a plan on noisy counts of ε 1."""
    asked = {"people": 2, "each": 1, "job": "mechanism:noisy-count", "size": 1} | given
    query = "&".join(f"{name}={value}" for name, value in asked.items())
    return site.pages(who).get(f"{site.dataset}/plan?{query}")


def count(site) -> dict[str, object]:
    return site.job(mechanism="noisy-count", model=None, parameters={"epsilon": 1.0})


def test_a_plan_ends_where_the_next_request_is_refused(site):
    page = shown(site, "analyst")
    assert page.status_code == 200
    last, months = re.search(r"until the end of (\w+ \d{4}) \((\d+) months", page.text).groups()
    this = datetime.now(UTC)
    ends = plans.month(plans.read_month(this.strftime("%Y-%m"), "this") + int(months) - 1)
    assert last == month_in_words(ends)
    left = [
        int(each) for each in re.findall(r'<td class="num">(\d+)</td><td class="num">\d+ %</td>', page.text)
    ]
    fit = left[0] + 2
    assert left == [max(fit - 2 * (n + 1), 0) for n in range(len(left))]
    steward, analyst = site.api("steward"), site.api("analyst")
    for number in range(fit + 1):
        job = analyst.post("/jobs", count(site)).json
        if number == fit:
            assert job["state"] == "refused"
        else:
            steward.post(f"/jobs/{job['id']}/approve", {"reason": "as planned"})
    assert "not one whole month" in shown(site, "steward").text


def test_the_largest_pace_until_a_month_and_what_is_wrong_beside_its_field(site):
    this = datetime.now(UTC).strftime("%Y-%m")
    two = plans.month(plans.read_month(this, "this") + 1)
    text = shown(site, "steward", until=two).text
    each, together = re.search(
        r"at most <strong[^>]*>(\d+)</strong>.*?<strong[^>]*>(\d+)</strong>", text
    ).groups()
    assert 0 < int(each) == int(together) // 2
    assert f"({2} months" in shown(site, "steward", each=each).text
    for field, value in (("people", "0"), ("each", "many"), ("until", "2020-01"), ("until", "soon")):
        page = shown(site, "steward", **{field: value})
        assert page.status_code == 422
        assert f'id="problem-{field}"' in page.text
    assert shown(site, "steward", size="-1").status_code == 422
    assert shown(site, "steward", job="template-of-nobody").status_code == 404


def test_a_free_job_never_ends_and_an_earlier_one_is_a_shape(site):
    job = site.submitted(tokens=7)
    text = shown(site, "analyst", job=f"job:{job}", size="").text
    assert "tokens per batch 7" in text
    assert shown(site, "analyst-2", job=f"job:{job}").status_code == 404, "another's request"
    lacking = shown(site, "analyst", job="mechanism:vocabulary", size="")
    assert lacking.status_code == 422
    assert "corpus" in lacking.text


@pytest.mark.parametrize("who", ["analyst-2", "auditor"])
def test_a_plan_is_for_stewards_and_for_who_may_ask(site, who):
    name = site.actor("analyst").name
    policy = {"analysts": [name]}
    assert site.api("steward").put(f"{site.dataset}/policy", policy).status_code == 200
    assert shown(site, who).status_code == 403
    assert "How long it lasts" not in site.pages(who).get(site.dataset).text
    assert shown(site, "analyst").status_code == 200
    assert "How long it lasts" in site.pages("analyst").get(site.dataset).text


def test_what_realized_costs_leave_is_told_to_no_analyst(site):
    allowed = Allowance(None, None, "a study", ex_post="10", ex_post_settlement="realized")
    allowances.allow(site.engine, site.bench.dataset, allowed, site.bench.steward)
    median = site.job(parameters={"aggregation": "median", "ex_post_cap": 2.5, "tokens_per_batch": 5})
    job = site.api("analyst").post("/jobs", median).json["id"]
    told = shown(site, "analyst", job=f"job:{job}", size="").text
    assert "depends on what ex-post jobs really cost" in told
    assert "still fit" not in told
    assert "such jobs fit" in shown(site, "steward", job=f"job:{job}", size="", people=20).text
