"""The inbox: right numbers, offers, a page that confirms without scripts, and no query per row."""

import html
import json
import re
from uuid import UUID

import pytest
from sqlalchemy import event, text

from accountant.core.ledger.allowances import Allowance
from accountant.core.ledger.policy import Policy
from accountant.core.privacy.hypothesis_testing import best_success
from accountant.queries import integrity
from accountant.transactions import allowances, job_requests, policies
from tests.support import yes
from web.meaning import at_most
from web.views.template_filters import percent

pytestmark = pytest.mark.slow

OFFER = {"answer": "offer", "reason": "that is enough", "parameters.tokens_per_batch": "4"}


def offer_of(site, job_id: str, **body: object) -> dict:
    body = {"parameters": {"tokens_per_batch": 4}, "reason": "that is enough"} | body
    answer = site.api("steward").post(f"/jobs/{job_id}/offer", body)
    assert answer.status_code == 201, answer.text
    return answer.json


def test_an_offer_by_form_and_its_acceptance(site):
    job_id = site.submitted()
    steward, analyst = site.pages("steward"), site.pages("analyst")
    priced = steward.post(f"/decisions/{job_id}/price", "/inbox", **OFFER)
    assert "<html" not in priced.text
    told = site.api("steward").post(
        f"/jobs/{job_id}/offer/quote", {"parameters": {"tokens_per_batch": 4}}
    )
    assert told.json["larger"] == []
    assert (
        f'Jobs of this shape left: <strong class="tab">{told.json["effect"]["jobs_of_this_shape"]}'
        in (priced.text)
    )
    assert (
        steward.post(f"/decisions/{job_id}", "/inbox", **{**OFFER, "answer": "price"}).status_code
        == 200
    )
    before = site.api("steward").get(f"{site.dataset}/ledger").json["entries"][0]["seq"]
    assert steward.post(f"/decisions/{job_id}", "/inbox", **OFFER).status_code == 303
    page = analyst.get(f"/jobs/{job_id}").text
    assert "A smaller job is offered" in page
    assert "Accept the offer" in page
    assert "Accept the offer" not in steward.get(f"/jobs/{job_id}").text
    assert "offers a smaller job in place of" in analyst.get("/jobs").text
    assert "offers a smaller job in place of" not in steward.get("/jobs").text, "not one's own"
    assert site.api("steward").get(f"{site.dataset}/ledger").json["entries"][0]["seq"] == before
    found = site.api("analyst").get(f"/decisions?job={job_id}").json["decisions"][0]
    assert f'id="decision-{found["id"]}"' in steward.get("/inbox").text
    accepted = analyst.post(f"/decisions/{found['id']}", f"/jobs/{job_id}", answer="yes")
    made = accepted.headers["Location"].rsplit("/", 1)[1]
    now = site.api("analyst").get(f"/jobs/{made}").json
    assert (now["state"], now["parameters"]["tokens_per_batch"]) == ("queued", 4)
    assert "It is accepted by" in analyst.get(f"/jobs/{job_id}").text
    assert site.api("analyst").get(f"/jobs/{job_id}").json["state"] == "refused"


def test_a_card_says_what_is_written_what_it_tells_and_what_is_unusual(site):
    job_id = site.submitted("analyst-2", tokens=20)
    steward, api = site.pages("steward"), site.api("steward")
    told = api.get(f"/decisions/{job_id}").json
    quote = site.api("analyst").post(
        f"{site.dataset}/quote",
        {"mechanism": "private-prediction", "parameters": {"tokens_per_batch": 20}},
    )
    card = html.unescape(steward.get(f"/decisions/{job_id}").text)
    assert f"Writes <strong>{quote.json['output']['sentence']}</strong>" in card
    # the guesser is bounded by the price of the job alone, as the meaning of an allowance is
    job = told["request"]
    success = best_success(job["epsilon_alone"], job["delta"])
    assert f"right in at most {at_most(success)}" in card
    used = [1 - told["effect"][name]["share"] for name in ("remaining", "remaining_after")]
    assert f"{percent(used[0])} before, {percent(used[1])} after" in card
    analyst = site.actor("analyst-2").name
    first = f"the first job of {analyst} on this dataset"
    largest = "the largest job on this dataset so far"
    assert first in card
    yes(site.engine, UUID(job_id), site.bench.steward, "yes")
    small, large = (site.submitted("analyst-2", tokens=tokens) for tokens in (4, 40))
    assert largest not in html.unescape(steward.get(f"/decisions/{small}").text)
    card = html.unescape(steward.get(f"/decisions/{large}").text)
    assert largest in card
    assert first not in card


def test_offers_by_the_api(site):
    api, asker = site.api("steward"), site.api("analyst")
    first, second, third = (offer_of(site, site.submitted())["id"] for _ in range(3))

    def answer(who, offer: str, yes: bool, reason: str = ""):
        return who.post(f"/decisions/{offer}/answer", {"yes": yes, "reason": reason})

    listed = api.get("/decisions?kind=offer").json["decisions"]
    assert {decision["id"] for decision in listed} >= {first, second, third}
    assert site.api("analyst-2").get("/decisions").json["decisions"] == []
    assert site.api("analyst-2").get(f"/decisions/{first}").status_code == 404
    assert answer(site.api("analyst-2"), first, True).status_code == 404
    assert asker.get(f"/decisions/{first}").json["effect"]["jobs_of_this_shape"] > 1
    made = answer(asker, first, True)
    assert (made.status_code, made.json["state"]) == (200, "accepted")
    assert asker.get(f"/jobs/{made.json['made_job']}").json["state"] == "queued"
    assert answer(asker, first, True).json["made_job"] == made.json["made_job"]
    assert answer(asker, second, False, "too small").json["state"] == "refused"
    assert answer(asker, second, True).status_code == 409
    assert answer(api, third, True, "for them").status_code == 403
    assert answer(api, third, False).json["state"] == "withdrawn"
    assert answer(asker, third, False).status_code == 409
    assert integrity.check(site.engine, site.bench.dataset) == []


@pytest.mark.parametrize(
    ("tokens", "says"),
    [("11", "more than was asked"), ("10", "costs what was asked"), ("x", "integer")],
)
def test_an_offer_that_is_none_is_told_beside_the_form(site, tokens, says):
    job_id = site.submitted()
    answer = site.pages("steward").post(
        f"/decisions/{job_id}", "/inbox", **{**OFFER, "parameters.tokens_per_batch": tokens}
    )
    assert answer.status_code == 422
    assert says in html.unescape(answer.text)
    assert "that is enough" in answer.text  # the reason stays
    assert site.api("analyst").get(f"/jobs/{job_id}").json["state"] == "awaiting_approval"


@pytest.mark.parametrize("decision", ["yes", "no", "offer"])
def test_without_scripts_a_page_confirms_and_changes_nothing(site, decision):
    job_id = site.submitted()
    browser = site.pages("steward")
    page = browser.get("/inbox").text
    assert f'value="{decision}" formaction="/decisions/{job_id}/confirm"' in page
    typed = {**OFFER, "answer": decision}
    confirm = browser.post(f"/decisions/{job_id}/confirm", "/inbox", **typed)
    assert confirm.status_code == 200
    assert "that is enough" in confirm.text
    assert site.api("analyst").get(f"/jobs/{job_id}").json["state"] == "awaiting_approval"
    hidden = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', confirm.text))
    assert browser.client.post(f"/decisions/{job_id}", data=hidden).status_code == 303
    state = site.api("analyst").get(f"/jobs/{job_id}").json["state"]
    assert state == ("queued" if decision == "yes" else "refused")
    assert (
        browser.post(
            f"/decisions/{job_id}/confirm", "/inbox", answer=decision, reason=""
        ).status_code
        == 422
    )


def test_figures_before_and_after_are_what_the_ledger_moves(site):
    job_id = site.submitted(tokens=20)
    told = site.api("steward").get(f"/decisions/{job_id}").json
    stated = {row["kind"]: row for row in told["effect"]["filters"]}
    page = site.pages("steward").get("/inbox").text
    yes(site.engine, UUID(job_id), site.bench.steward, "yes")
    for each in site.api("steward").get(site.dataset).json["account"]["filters"]:
        assert stated[each["kind"]]["left_after"] == each["left"]
        assert f'title="{each["left"]}"' in page


def test_jobs_of_this_shape_are_as_many_as_fit(site):
    policies.set_policy(
        site.engine, site.bench.dataset, Policy(auto_approve_epsilon="100"), site.bench.steward
    )
    quote = site.api("analyst").post(
        f"{site.dataset}/quote",
        {"mechanism": "private-prediction", "parameters": {"tokens_per_batch": 60}},
    )
    left = quote.json["dataset"]["jobs_of_this_shape"]
    states = [
        site.api("analyst").post("/jobs", site.job(60)).json["state"] for _ in range(left + 1)
    ]
    assert states == ["queued"] * left + ["refused"]


def test_a_refusal_in_the_inbox_names_cap_asked_left_and_largest(site):
    job_id = site.submitted(tokens=300)
    allowances.allow(
        site.engine, site.bench.dataset, Allowance("1", "0.0000029053", "less"), site.bench.steward
    )
    page = site.pages("steward").get("/inbox").text
    article = page.partition(f'id="decision-{job_id}"')[2].partition("</article>")[0]
    for each in ("what binds", "asked", "left", "largest that fits", "not enough"):
        assert each in article
    assert 'Jobs of this shape left: <strong class="tab">0</strong>' in article
    largest = re.search(r"tokens per batch = (\d+)", article)
    assert largest is not None
    assert (
        f'name="parameters.tokens_per_batch" type="number" step="1" value="{largest[1]}"' in article
    )


def test_a_list_of_decisions_looks_for_no_size_that_fits(site, monkeypatch):
    job_id = site.submitted(tokens=300)
    allowances.allow(
        site.engine, site.bench.dataset, Allowance("1", "0.0000029053", "less"), site.bench.steward
    )
    api = site.api("steward")
    shown = api.get(f"/decisions/{job_id}").json["effect"]["refusal"]
    assert shown["largest"] > 0
    monkeypatch.setattr(job_requests, "with_largest", None)  # it must not be called
    listed = api.get("/decisions?limit=200").json["decisions"]
    refusal = next(each for each in listed if each["id"] == job_id)["effect"]["refusal"]
    assert refusal == shown | {"size_field": None, "largest": None}


def counted(site, act) -> tuple[str, int]:
    """Return the answer of `act`, and the number of statements it took."""
    statements: list[str] = []

    def listen(*rest: object) -> None:
        statements.append(str(rest[2]))

    mine = site.app.extensions["exchequer"]["engine"]
    event.listen(mine, "before_cursor_execute", listen)
    try:
        answer = act()
        return answer, len(statements)
    finally:
        event.remove(mine, "before_cursor_execute", listen)


def test_pages_of_the_inbox_take_as_many_queries_however_many_wait(site, engine):
    seen: list[int] = []
    for wanted in (1, 30):
        with engine.begin() as connection:
            connection.execute(
                text("UPDATE jobs SET state = 'cancelled' WHERE state = 'awaiting_approval'")
            )
            connection.execute(text("UPDATE decisions SET state = 'expired' WHERE state = 'open'"))
        for _ in range(wanted):
            site.bench.submit(5)
        browser = site.pages("steward")
        page, statements = counted(site, lambda browser=browser: browser.get("/inbox").text)
        seen.append(statements)
    assert seen[0] == seen[1]
    assert page.count('<article class="request" id="decision-') == 20
    later = re.search(r'href="(/inbox\?cursor=[^"]+)" rel="next">Later decisions', page)
    assert later is not None
    assert (
        browser.get(html.unescape(later[1])).text.count('<article class="request" id="decision-')
        == 10
    )


def test_a_correction_by_form(site, publish):
    job_id = site.submitted()
    yes(site.engine, UUID(job_id), site.bench.steward, "yes")
    publish(job_id, b"")
    browser, second = site.pages("steward"), site.pages("steward-2")
    assert "Correct the charge" in browser.get(f"/jobs/{job_id}").text
    assert "Correct the charge" not in site.pages("auditor").get(f"/jobs/{job_id}").text
    where = f"/jobs/{job_id}/correction"
    same = browser.post(where, f"/jobs/{job_id}", released="reserved", reason="x")
    assert same.status_code == 422
    assert "changes nothing" in same.text
    wrong = browser.post(where, f"/jobs/{job_id}", released="event", event="{", reason="kept")
    assert 'id="problem-event"' in wrong.text
    assert "kept" in wrong.text
    larger = site.api("steward").get(f"/jobs/{site.submitted(tokens=12)}").json["event"]
    done = browser.post(
        where,
        f"/jobs/{job_id}",
        released="event",
        event=json.dumps(larger),
        reason="it released more",
    )
    assert done.status_code == 303
    decision = site.api("steward").get("/decisions?kind=correction").json["decisions"][0]
    name = site.api("steward").get(f"/jobs/{job_id}").json["name"]
    assert decision["asks"] == f"change the charge: {name}"
    found = decision["id"]
    page = _words(page_of(site, found))
    assert name in page
    assert job_id[:8] not in page
    reserved = decision["asked"]["reserved"]
    assert 0 < reserved < decision["asked"]["epsilon_alone"]
    assert re.search(r"It is then charged ε [0-9.]+ by itself. ε [0-9.]+ was reserved.", page)
    for path, said in (("/confirm", "offer"), ("", "price"), ("", "ask")):  # of a job alone
        odd = second.post(f"/decisions/{found}{path}", "/inbox", answer=said, reason="seen")
        assert odd.status_code == 422
    confirm = second.post(f"/decisions/{found}/confirm", "/inbox", answer="yes", reason="seen")
    assert "The ledger gets an entry with both names" in confirm.text
    hidden = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', confirm.text))
    assert second.client.post(f"/decisions/{found}", data=hidden).status_code == 303
    assert "corrected by two people" in browser.get(f"/jobs/{job_id}").text


def _words(page: str) -> str:
    """What a page shows, without its addresses and attributes."""
    return re.sub(r"<[^>]*>", " ", page)


def page_of(site, decision: str) -> str:
    return site.pages("steward").get(f"/decisions/{decision}").text


def test_the_inbox_is_one_list_for_pages_programs_and_the_command_line(site):
    """Requests, proposals with what they weaken, and people who ask for access."""
    api, name = site.api("steward"), site.dataset
    jobs = [site.submitted() for _ in range(3)]
    two = api.get(f"{name}/policy").json | {
        "two_people": True,
        "analysts": [site.actor("analyst").name],
    }
    assert api.put(f"{name}/policy", two).status_code == 200
    assert (
        site.pages("analyst-2").post(f"{name}/access", name, reason="for a study").status_code
        == 303
    )
    weaker = two | {"auto_approve_epsilon": "3", "solo": True}
    assert api.put(f"{name}/policy", weaker).status_code == 202
    listed = api.get("/decisions?limit=200").json["decisions"]
    *first, wanted, proposal = (each for each in listed if each["dataset"] == site.bench.dataset)
    assert [each["id"] for each in first] == jobs
    assert sorted(proposal["weakens"]) == ["auto_approve_epsilon", "solo"]
    assert (wanted["asked_by"], wanted["reason"]) == (site.actor("analyst-2").name, "for a study")
    assert wanted["id"] not in [
        each["id"] for each in site.api("auditor").get("/decisions").json["decisions"]
    ]
    assert "It weakens solo, auto approve epsilon." in page_of(site, proposal["id"])
    assert "for a study" in page_of(site, wanted["id"])


def test_a_form_that_weakens_a_policy_says_what_waits(site):
    api, steward = site.api("steward"), site.pages("steward")
    two = api.get(f"{site.dataset}/policy").json | {"two_people": True}
    assert api.put(f"{site.dataset}/policy", two).status_code == 200
    page = f"{site.dataset}/policy"
    version = re.search(r'name="policy_version" value="([^"]*)"', steward.get(page).text)[1]
    form = {
        "policy_version": html.unescape(version),
        "policy.solo": "true",
        "policy.two_people": "true",
    }
    assert steward.post(page, page, **form).headers["Location"] == site.dataset
    assert (
        "Another steward confirms in the inbox what weakens solo" in steward.get(site.dataset).text
    )


def test_one_decision_has_a_page_with_what_was_answered(site):
    job_id = site.submitted()
    steward, analyst = site.pages("steward"), site.pages("analyst")
    assert 'name="answer" value="yes"' in steward.get(f"/decisions/{job_id}").text
    assert 'name="answer"' not in analyst.get(f"/decisions/{job_id}").text
    assert site.pages("analyst-2").get(f"/decisions/{job_id}").status_code == 404
    steward.post(f"/decisions/{job_id}", "/inbox", answer="no", reason="too large for a pilot")
    page = analyst.get(f"/decisions/{job_id}").text
    assert "It is refused by" in page
    assert "too large for a pilot" in page
    assert 'name="answer"' not in page


def test_what_is_no_decision_is_said_to_be_none(site):
    """A mistyped id of a decision is not reported as a job that is missing."""
    answer = site.api("steward").get("/decisions/nonsense")
    assert answer.status_code == 404
    assert "no decision 'nonsense'" in answer.json["detail"]
