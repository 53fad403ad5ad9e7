"""Charts of spending: the same figures on page and API, with a table beside every drawing."""

import re
from uuid import UUID

import pytest

from accountant.core.mechanisms.base import GOALS
from tests import tallies
from tests.support import yes
from web.views import charts


def test_the_chart_and_its_table_say_what_the_api_says(site):
    site.bench.submit(10)
    job_id = site.submitted(tokens=5)
    yes(site.engine, UUID(job_id), site.bench.steward, "yes")
    told = site.api("steward").get(f"{site.dataset}/spending").json
    assert [each["name"] for each in told["measures"]] == ["renyi", "gaussian", "renyi2", "basic"]
    page = site.pages("steward").get(f"{site.dataset}/spending").text
    for each in told["measures"]:
        assert f'title="{each["left"]}"' in page
    assert page.count("<polyline") == 4
    assert page.count("<caption>") == 3
    assert f">{site.bench.analyst.name}</th>" in page
    assert re.search(r'aria-label="What is left over time[^"]*Rényi 9[0-9.]+ %', page)
    assert "<polyline" in site.pages("auditor").get(site.dataset).text
    assert site.pages("steward").get(f"{site.dataset}/spending?measure=basic").status_code == 200
    assert site.pages("steward").get(f"{site.dataset}/spending?measure=no").status_code == 422


@pytest.fixture
def _tallies():
    tallies.register()
    yield
    tallies.forget()


@pytest.mark.usefixtures("_tallies")
def test_a_board_reads_two_mechanisms_of_one_goal_as_one_line(site):
    tally = site.job(mechanism="tally", model=None, parameters={"epsilon": 0.5})
    for job_id in (site.submitted(tokens=5), site.api("analyst").post("/jobs", tally).json["id"]):
        yes(site.engine, UUID(job_id), site.bench.steward, "yes")
    told = site.api("steward").get(f"{site.dataset}/spending").json
    rows, goal = charts.spent_by(told, "goal"), GOALS["texts"]
    assert [(row["name"], row["jobs"], row["share"]) for row in rows] == [(goal, 2, 1.0)]
    assert len(charts.spent_by(told, "mechanism")) == 2
    page = site.pages("steward").get(f"{site.dataset}/report").text
    board = page.partition("How much is used")[2].partition("</ul>")[0]
    assert re.findall(r"<li>([^<]*)</li>", board) == [f"{goal}: 2 jobs, 100.0 % of what is used"]


def test_analysts_read_no_name_but_their_own(site):
    job_id = site.submitted("analyst-2", tokens=5)
    yes(site.engine, UUID(job_id), site.bench.steward, "yes")
    told = site.api("analyst").get(f"{site.dataset}/spending")
    assert site.actor("analyst-2").name not in told.text
    page = site.pages("analyst").get(f"{site.dataset}/spending").text
    assert "everybody else" in page
    assert site.actor("analyst-2").name not in page


def test_nothing_spent_says_how_to_begin(app, engine, password_hash):
    from tests.support import Bench
    from tests.web.browsers import Site

    site = Site(app, engine, Bench(engine), password_hash)
    assert "Nothing is spent yet" in site.pages("analyst").get(f"{site.dataset}/spending").text
    assert site.api("analyst").get("/datasets/none/spending").status_code == 404
