"""Realized ex-post costs depend on the data: stewards and auditors see them, nothing of an
analyst's does.
"""

from functools import partial

import pytest
from sqlalchemy import text

from accountant.core.errors import NotPermitted
from accountant.core.ledger.allowances import Allowance
from accountant.core.ledger.export_formats import verify_lines
from accountant.core.privacy.events import FREE
from accountant.core.privacy.ex_post_curves import CostCurve
from accountant.queries import datasets, entries, integrity, jobs
from accountant.transactions import allowances, leases
from accountant.transactions import settlement as ledger
from accountant.transactions.settlement import Output
from tests.web.browsers import Site
from tests.web.views.looks import ALSO_NAMES, Look, look

pytestmark = pytest.mark.slow

CAP = 2.5
FIGURES = (1, 12_345_678_901)
PARAMETERS = {"aggregation": "median", "ex_post_cap": CAP, "tokens_per_batch": 5}


@pytest.fixture
def sites(app, engine, password_hash):
    from tests.support import Bench

    def make() -> Site:
        bench = Bench(engine)
        bench.allow()
        allowances.allow(
            engine, bench.dataset, Allowance(None, None, "a study", ex_post="10"), bench.steward
        )
        bench.warm()
        return Site(app, engine, bench, password_hash)

    return make(), make()


def ended(site: Site, figure: int, settlement: str | None = None) -> str:
    """A median job that really cost `figure` units."""
    bench = site.bench
    if settlement:
        allowed = Allowance(None, None, "settle", ex_post="10", ex_post_settlement=settlement)
        allowances.allow(bench.engine, bench.dataset, allowed, bench.steward)
    job_id = site.api("analyst").post("/jobs", site.job(parameters=PARAMETERS)).json["id"]
    site.api("steward").post(
        f"/decisions/{job_id}/answer", {"yes": True, "reason": "it fits the study"}
    )
    from uuid import UUID

    claim = leases.claim(bench.engine, UUID(job_id), 1, "worker", 60)
    assert claim is not None
    leases.begin_reading(bench.engine, claim)
    # However many tokens and batches there are in public, what they cost differs with the figure.
    curve = CostCurve.of([[figure / 1e9] * 5, [0.0] * 5, [figure / 3e9] * 5][: 2 + figure % 2])
    output = Output("x", "0" * 64)
    leases.finish(bench.engine, claim, FREE, output, figure, curve)
    ledger.publish(bench.engine, claim, FREE, output, "worker", ex_post=figure, curve=curve)
    return job_id


def seen(site: Site, job_id: str) -> list[Look]:
    """All that an analyst may ask of this job and its dataset."""
    api, pages = site.api("analyst"), site.pages("analyst")
    more = site.job(parameters=PARAMETERS)
    quote = {"mechanism": "private-prediction", "parameters": PARAMETERS}
    asked = [
        lambda: api.get(f"/jobs/{job_id}"),
        lambda: api.get(f"/jobs?dataset={site.bench.dataset}"),
        lambda: api.get(site.dataset),
        lambda: api.post(f"{site.dataset}/quote", quote),
        lambda: api.get(f"{site.dataset}/ex-post"),
        lambda: api.get(f"{site.dataset}/ledger"),
        lambda: pages.get(f"/jobs/{job_id}"),
        lambda: pages.get(f"/jobs/{job_id}/live"),
        lambda: pages.get(site.dataset),
        lambda: pages.get(f"/jobs?dataset={site.bench.dataset}"),
        lambda: api.post("/jobs", more),
        lambda: api.post("/jobs", site.job(parameters={**PARAMETERS, "ex_post_cap": 7.6})),
    ]
    found = [look(ask, ALSO_NAMES) for ask in asked]
    for each in found:
        for statement in each.statements:
            words = statement.lower().replace("parts.realized_ex_post", "")
            assert "realized_ex_post" not in words
            assert "curve" not in words
    return found


def test_nothing_that_an_analyst_can_reach_depends_on_what_a_job_really_cost(sites):
    seen_by = [seen(site, ended(site, figure)) for site, figure in zip(sites, FIGURES, strict=True)]
    for first, second in zip(*seen_by, strict=True):
        assert first == second
    assert [each.status for each in seen_by[0]][:6] == [200, 200, 200, 200, 403, 403]


def test_the_comparison_would_notice_a_figure(sites):
    """Under `realized` the same two figures lead a steward's approval to two ends: so it has
    power.
    """
    seen_by = []
    for site, figure in zip(sites, FIGURES, strict=True):
        ended(site, figure, "realized")
        more = site.job(parameters={**PARAMETERS, "ex_post_cap": 7.6})
        job_id = site.api("analyst").post("/jobs", more).json["id"]
        site.api("steward").post(
            f"/decisions/{job_id}/answer", {"yes": True, "reason": "it fits the study"}
        )
        seen_by.append(seen(site, job_id))
    assert seen_by[0] != seen_by[1]


def test_a_refusal_under_realized_settlement_tells_an_analyst_no_figure_that_follows_from_costs(
    sites,
):
    """The decision depends on the data there, and is said to; what is left is for those who see it
    anyway.
    """
    figures = (1, 2_000_000_000)
    for site, figure in zip(sites, figures, strict=True):
        ended(site, figure, "realized")
    whole = {**PARAMETERS, "ex_post_cap": 10.0}
    quote = {"mechanism": "private-prediction", "parameters": whole}
    uncapped = {name: value for name, value in PARAMETERS.items() if name != "ex_post_cap"}
    fit = {"mechanism": "private-prediction", "parameters": uncapped, "fit": "ex_post_cap"}
    found, lefts = [], []
    for site in sites:
        api, pages = site.api("analyst"), site.pages("analyst")
        job_id = api.post("/jobs", site.job(parameters=whole)).json["id"]
        steward, answer = site.api("steward"), {"yes": True, "reason": "let us see"}
        assert steward.post(f"/decisions/{job_id}/answer", answer).status_code == 200
        refused = steward.get(f"/jobs/{job_id}")
        assert refused.json["refusal"]["cap"] == "ex-post"
        asked = [
            partial(api.get, f"/jobs/{job_id}"),
            partial(api.get, f"/jobs?dataset={site.bench.dataset}&state=refused"),
            partial(api.post, f"{site.dataset}/quote", quote),
            partial(api.post, f"{site.dataset}/quote", fit),
            partial(api.get, f"{site.dataset}/spending"),
            partial(pages.get, f"/jobs/{job_id}"),
        ]
        found.append([look(ask, ALSO_NAMES) for ask in asked])
        lefts.append(site.api("steward").get(f"/jobs/{job_id}").json["refusal"]["left"])
    assert lefts == ["9.999999999", "8"]
    for first, second in zip(*found, strict=True):
        assert first.status == 200, first.body
        assert (first.status, first.body) == (second.status, second.body)


def test_no_cap_that_an_analyst_tries_tells_what_realized_costs_left(sites):
    """Without a steward's yes the answers are the same, whatever was spent: no search finds the
    figure.
    """
    for site, figure in zip(sites, (1, 9_000_000_000), strict=True):
        ended(site, figure, "realized")
    for cap in (0.5, 1.000000001, 9.999999999, 10.0, 10.000000001):
        answers = []
        for site in sites:
            api, tried = site.api("analyst"), {**PARAMETERS, "ex_post_cap": cap}
            quote = {"mechanism": "private-prediction", "parameters": tried}
            quoted = api.post(f"{site.dataset}/quote", quote).json["dataset"]
            asked = api.post("/jobs", site.job(parameters=tried)).json
            answers.append(
                (quoted["decision"], quoted["refusal"], asked["state"], asked["refusal"])
            )
        assert answers[0] == answers[1]
        assert answers[0][0] == ("Refused" if cap > 10 else "NeedsApproval")


def test_stewards_and_auditors_see_cap_and_figure_with_what_they_mean(sites):
    site = sites[0]
    job_id = ended(site, 3_000_000_001)
    for who in ("steward", "auditor"):
        answer = site.api(who).get(f"{site.dataset}/ex-post").json
        (found,) = answer["jobs"]
        assert (found["job"], found["cap"], found["realized"]) == (job_id, "2.5", "3.000000001")
        assert found["curve"]["batches"] == [0.0, 5.0, 15.0]
        assert found["curve"]["most"] == [3.0, 6.0, 9.0, 12.0, 15.0]
        assert "neither bound nor mean" in answer["note"]
        page = site.pages(who).get(site.dataset).text
        assert "3.000000001" in page
        assert page.count('<polyline class="plot-line') == 4
        assert "over 3 batches" in page
        assert "approvals given after seeing these figures leak them" in page
        assert "all that is decided later, tells of the data" not in page
    assert site.api("analyst").get(f"{site.dataset}/ex-post").status_code == 403
    hidden = site.pages("analyst").get(site.dataset).text
    assert "3.000000001" not in hidden
    assert 'polyline class="plot-line' not in hidden
    with pytest.raises(NotPermitted):
        jobs.ex_post(site.engine, site.bench.dataset, site.bench.analyst)


@pytest.mark.parametrize(
    ("figure", "spent"), [(1_234_567_891, "1.234567891"), (12_345_678_912, "12.345678912")]
)
def test_the_cap_stands_under_planned_and_differences_return_or_overdraw_under_realized(
    sites, figure, spent
):
    planned, realized = sites
    ended(planned, figure)
    ended(realized, figure, "realized")
    found = [
        datasets.dataset(s.engine, s.bench.dataset, s.bench.steward)["ex_post"]["spent"]
        for s in sites
    ]
    assert found == ["2.5", spent]
    assert (
        "all that is decided later, tells of the data"
        in realized.pages("steward").get(realized.dataset).text
    )
    for site in sites:
        assert integrity.check(site.engine, site.bench.dataset) == []
        verify_lines(entries.export(site.engine, site.bench.dataset, site.bench.steward, "jsonl"))
    export = "".join(
        entries.export(planned.engine, planned.bench.dataset, planned.bench.steward, "jsonl")
    )
    assert str(figure) not in export


def test_the_price_of_a_job_without_epsilon_is_shown_as_such(sites):
    site = sites[0]
    job_id = site.api("analyst").post("/jobs", site.job(parameters=PARAMETERS)).json["id"]
    for path in ("/inbox", f"/jobs/{job_id}", "/jobs"):
        page = site.pages("steward").get(path)
        assert page.status_code == 200
        assert "None" not in page.text
    assert "ex-post cap&nbsp;2.5" in site.pages("steward").get("/inbox").text


def test_a_dataset_promises_nothing_of_what_its_statement_excepts(sites):
    site = sites[0]
    said = (
        "Take all that jobs on this data publish{}. Adding or removing one record makes no outcome"
    )
    assert said.format("") in site.pages("analyst").get(site.dataset).text
    ended(site, FIGURES[0])
    page = site.pages("analyst").get(site.dataset).text
    assert said.format(", the exceptions above aside") in page
    assert said.format("") not in page


def test_no_promise_stands_on_a_page_whose_statement_makes_none(sites, owner):
    bench = sites[0].bench
    with owner.begin() as connection:
        query = text("SELECT id FROM datasets WHERE name = :name")
        dataset_id = connection.execute(query, {"name": bench.dataset}).scalar_one()
        changed = "UPDATE accounts SET secret_job_count = 1 WHERE dataset_id = :dataset"
        connection.execute(text(changed), {"dataset": dataset_id})
    assert "What (ε, δ) promises" not in sites[0].pages("analyst").get(sites[0].dataset).text
