"""Pages and answers about charges of other programs: who vouches is said wherever they stand."""

import pytest

from accountant.core.privacy.events import EpsilonDelta
from accountant.transactions import charges, submission
from accountant.transactions.job_requests import JobRequest
from tests.accountant.transactions.test_charges import RUNNER, signed
from tests.support import Bench

pytestmark = pytest.mark.slow

SECRET = bytes(32)
STATED = {"tool": "opacus 1.6", "unit": "record", "relation": "add-remove"}


@pytest.fixture
def ledger(site):
    """A dataset with a charge that waits, one that is refused, one that runs and one that
    ended.
    """
    policy = {"auto_approve_epsilon": "1", "stated_charges_epsilon": "3"}
    bench = Bench(site.engine, policy=policy)
    bench.allow()
    jobs = {}
    for name, epsilon in (("waits", 2.0), ("refused", 30.0), ("runs", 0.25), ("ended", 0.5)):
        raw = {"event": {"epsilon": epsilon}, **STATED}
        request = JobRequest(bench.dataset, "charge", None, raw, f"a model that {name}")
        jobs[name] = submission.submit(site.engine, request, site.actor("analyst"))
    for name in ("runs", "ended"):
        charges.begin(site.engine, jobs[name], site.actor("analyst"), SECRET, 600)
    charges.settle(site.engine, jobs["ended"], site.actor("analyst"), SECRET, None, "ab" * 32, None)
    return bench, jobs


def test_every_page_says_who_vouches(site, ledger):
    bench, jobs = ledger
    for who in ("analyst", "steward"):
        pages = site.pages(who)
        for job in jobs.values():
            page = pages.get(f"/jobs/{job}")
            assert page.status_code == 200
            assert f"as {site.actor('analyst').name} states" in page.text
            assert pages.get(f"/jobs/{job}/live").status_code == 200
    steward = site.pages("steward")
    assert "Download with its data card" not in steward.get(f"/jobs/{jobs['ended']}").text
    for path in (
        f"/decisions/{jobs['waits']}",
        f"/datasets/{bench.dataset}",
        f"/ledger?dataset={bench.dataset}",
        *(f"/ledger/{bench.dataset}/{seq}" for seq in (4, 5, 6)),
        f"/datasets/{bench.dataset}/policy",
        f"/datasets/{bench.dataset}/report",
        "/inbox",
        "/jobs",
        "/ledger/refusals",
        "/ledger/activity",
    ):
        assert steward.get(path).status_code == 200, path
    shown = steward.get(f"/datasets/{bench.dataset}").text
    assert "rests on charges of other programs, by themselves ε 0.74" in shown


def test_a_charge_has_no_output_here(site, ledger):
    _, jobs = ledger
    for what in ("result", "output", "card"):
        answer = site.api("analyst").get(f"/jobs/{jobs['ended']}/{what}")
        assert answer.status_code in (404, 409), (what, answer.status_code)


def test_the_caps_of_charges_are_shown(site, ledger):
    bench, jobs = ledger
    found = site.api("steward").get(f"/datasets/{bench.dataset}").json
    caps = [cap for cap in found["caps"] if cap["kind"] == "stated"]
    assert [float(cap["used"]) for cap in caps] == [pytest.approx(0.75, rel=1e-3)]
    assert found["statements"][0]["unqualified"] is False
    asked = site.api("steward").get(f"/decisions/{jobs['waits']}")
    assert asked.status_code == 200
    assert site.api("analyst").get(f"/jobs/{jobs['runs']}").json["vouched"] == "stated"


def test_the_card_counts_charges_by_their_cap_and_counts_without_it(site, ledger):
    """The cap of 3 leaves ε 2.25: one charge of 2, and then none; jobs of this service go on."""
    bench, jobs = ledger
    api = site.api("steward")
    (card,) = (
        each
        for each in api.get("/decisions").json["decisions"]
        if each["job"] == str(jobs["waits"])
    )
    now, then = card["effect"]["remaining"], card["effect"]["remaining_after"]
    alone = api.get(f"/datasets/{bench.dataset}").json["remaining"]
    assert (now["jobs"], then["jobs"]) == (1, 0)
    assert now["counts"] == alone["counts"] > then["counts"] > 1


@pytest.mark.parametrize(("epsilon", "fits"), [(2.2, True), (2.3, False)])
def test_a_quote_of_a_charge_that_fits_is_admitted(site, ledger, epsilon, fits):
    bench, _ = ledger
    asked = {"mechanism": "charge", "parameters": {"event": {"epsilon": epsilon}, **STATED}}
    quote = site.api("analyst").post(f"/datasets/{bench.dataset}/quote", asked).json
    assert (not quote["dataset"]["refusal"]) is fits
    job = {**asked, "dataset": bench.dataset, "purpose": "a model"}
    state = site.api("analyst").post("/jobs", job).json["state"]
    assert (state == "awaiting_approval") is fits


def test_a_refused_charge_that_has_happened_is_declared_on_its_page(site, ledger):
    bench, jobs = ledger
    steward, second, page = (
        site.pages("steward"),
        site.pages("steward-2"),
        f"/jobs/{jobs['refused']}",
    )
    assert "Declare an overdraft" in steward.get(page).text
    assert "Declare an overdraft" not in steward.get(f"/jobs/{jobs['ended']}").text
    assert "Declare an overdraft" not in site.pages("analyst").get(page).text
    assert steward.post(f"{page}/overdraft", page, reason=" ").status_code == 422
    assert steward.post(f"{page}/overdraft", page, reason="it ran by night").status_code == 303
    (found,) = site.api("steward").get("/decisions?kind=overdraft").json["decisions"]
    shown = second.get(f"/decisions/{found['id']}").text
    assert "opacus 1.6 has released this already, and that it is more than is left" in shown
    confirm = second.post(f"/decisions/{found['id']}/confirm", "/inbox", answer="yes", reason="yes")
    assert "closed until a new allowance covers it" in confirm.text
    assert (
        second.post(f"/decisions/{found['id']}", "/inbox", answer="yes", reason="yes").status_code
        == 303
    )
    sentence = "Two people declared 1 overdraft, ε 29.99"
    for path in ("", "/report"):
        text = steward.get(f"/datasets/{bench.dataset}{path}").text
        assert "verdrawn" in text
        assert sentence in text
    card = site.api("steward").get(f"/datasets/{bench.dataset}/report").json
    assert sentence in str(card)
    made = site.api("steward").get(f"/decisions/{found['id']}").json["made_job"]
    assert steward.get(f"/jobs/{made}").status_code == 200


def test_a_refused_charge_that_a_runner_signed_says_how_it_is_declared(site):
    caps = {"signed_charges_epsilon": "99", "runners": [RUNNER]}
    bench = Bench(site.engine, policy=caps)
    bench.allow()
    raw = signed(bench, EpsilonDelta(30.0, 0.0))
    request = JobRequest(bench.dataset, "charge", None, raw, "a model")
    job = submission.submit(site.engine, request, site.actor("analyst"))
    page = site.pages("steward").get(f"/jobs/{job}").text
    assert f"exchequer charge declare {bench.dataset} --runner FILE" in page
    assert f"/jobs/{job}/overdraft" not in page
    assert "Declare an overdraft" not in site.pages("analyst").get(f"/jobs/{job}").text
