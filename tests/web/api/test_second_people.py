"""Changes that need two stewards, over REST and by page; caps as each role sees them."""

import re

import pytest

from accountant.core.ledger.policy import Policy
from accountant.core.privacy.events import FREE, to_json
from accountant.transactions import policies
from tests.support import somebody

pytestmark = pytest.mark.slow


def test_a_raise_is_proposed_and_confirmed_over_rest(site):
    steward, second = site.api("steward"), site.api("steward-2")
    policy = steward.get(site.dataset).json["policy"]
    assert steward.put(f"{site.dataset}/policy", policy | {"two_people": True}).status_code == 200
    body = {"epsilon": "12", "delta": "0.0000029053", "reason": "more people"}
    answer = steward.post(f"{site.dataset}/allowance", body)
    assert answer.status_code == 202
    found = answer.json["decision"]
    assert (found["state"], found["asked"]["epsilon"]) == ("open", "12")
    path = f"/decisions/{found['id']}/answer"
    assert found["id"] in {each["id"] for each in steward.get("/decisions").json["decisions"]}
    inbox = site.pages("steward-2").get("/inbox").text
    article = inbox.partition(f'id="decision-{found["id"]}')[2].partition("</article>")[0]
    assert "Limits of each filter" in article, "whoever confirms sees what its proposer saw"
    assert "What this ε means" in article
    confirmed = {"yes": True, "reason": "seen"}
    assert steward.post(path, confirmed).status_code == 403
    assert found["id"] not in site.api("analyst").get("/decisions").text
    assert site.api("analyst").post(path, confirmed).status_code == 404
    assert site.api("auditor").post(path, confirmed).status_code == 403
    assert second.post(path, {"yes": True, "reason": " "}).status_code == 422
    first, again = (second.post(path, confirmed) for _ in range(2))
    assert first.status_code == again.status_code == 200
    assert first.json["entry"] == again.json["entry"]
    assert steward.get(site.dataset).json["account"]["epsilon"] == "12"
    assert second.post(path, {"yes": False, "reason": "late"}).status_code == 409
    lower = steward.post(f"{site.dataset}/allowance", body | {"epsilon": "11"})
    assert lower.status_code == 200


def test_a_policy_without_two_people_is_proposed_and_confirmed_over_rest(site):
    steward, second = site.api("steward"), site.api("steward-2")
    policy = steward.get(f"{site.dataset}/policy").json | {"two_people": True}
    assert steward.put(f"{site.dataset}/policy", policy).status_code == 200
    wanted = policy | {"two_people": False, "approval_days": 4}
    answer = steward.put(f"{site.dataset}/policy", wanted)
    assert answer.status_code == 202
    found = answer.json["decision"]
    assert (found["kind"], found["asked"]["policy"], found["asked"]["replaces"]) == (
        "policy",
        wanted,
        policy,
    )
    assert steward.get(f"{site.dataset}/policy").json == policy
    path, confirmed = f"/decisions/{found['id']}/answer", {"yes": True, "reason": "seen"}
    assert steward.post(path, confirmed).status_code == 403
    done = second.post(path, confirmed)
    assert (done.status_code, done.json["state"], done.json["entry"]) == (200, "accepted", None)
    assert steward.get(f"{site.dataset}/policy").json == wanted


def test_a_policy_without_two_people_by_page(site):
    own, second = site.pages("steward"), site.pages("steward-2")
    path, typed = (
        f"{site.dataset}/policy",
        {"policy.auto_approve_epsilon": "0", "policy.approval_days": "30"},
    )

    def seen() -> str:
        return own.token(path, "policy_version")

    own.post(path, path, **typed, **{"policy.two_people": "1"}, policy_version=seen())
    shown = own.post(f"{path}/review", path, **typed)
    assert "Weaker rules take two people" in shown.text
    asked = own.post(path, path, **typed, **{"policy.solo": "1"}, policy_version=seen())
    assert asked.status_code == 303
    stands = site.api("steward").get(f"{site.dataset}/policy").json
    assert (stands["two_people"], stands["solo"]) == (True, False)
    (found,) = (
        each
        for each in site.api("steward").get("/decisions").json["decisions"]
        if (each["kind"], each["dataset"]) == ("policy", site.bench.dataset)
    )
    article = (
        second.get("/inbox")
        .text.partition(f'id="decision-{found["id"]}')[2]
        .partition("</article>")[0]
    )
    assert "no longer needs a second steward" in article
    assert "may approve a job of their own" in article
    page = second.post(f"/decisions/{found['id']}/confirm", "/inbox", answer="yes", reason="yes")
    assert "no longer needs a second steward" in page.text
    second.post(f"/decisions/{found['id']}", "/inbox", answer="yes", reason="yes")
    stands = site.api("steward").get(f"{site.dataset}/policy").json
    assert (stands["two_people"], stands["solo"]) == (False, True)


def test_a_correction_by_page(site, publish):
    job_id = site.submitted()
    site.api("steward").post(f"/decisions/{job_id}/answer", {"yes": True, "reason": "yes"})
    publish(job_id, b"{}\n")
    steward, second = site.api("steward"), site.pages("steward-2")
    assert (
        steward.post(
            f"/jobs/{job_id}/correct", {"reason": "why", "event": to_json(FREE)}
        ).status_code
        == 422
    )
    event = steward.get(f"/jobs/{job_id}").json["event"]
    twice = {**event, "count": 2 * event["count"]}
    answer = steward.post(f"/jobs/{job_id}/correct", {"reason": "why", "event": twice})
    assert answer.status_code == 202, answer.text
    found = answer.json["decision"]["id"]
    own = site.pages("steward")
    assert (
        'value="yes"'
        not in own.get("/inbox")
        .text.partition(f'id="decision-{found}')[2]
        .partition("</article>")[0]
    )
    refused = own.post(f"/decisions/{found}", "/inbox", answer="yes", reason="me")
    assert refused.status_code == 403
    assert "two people" in refused.text
    assert f"decision-{found}" in second.get("/inbox").text
    done = second.post(f"/decisions/{found}", "/inbox", answer="yes", reason="seen")
    assert done.status_code == 303
    assert f"decision-{found}" not in second.get("/inbox").text
    assert "REVERSAL" in second.get(site.dataset).text


def test_an_analyst_sees_their_own_caps_only(site):
    policy = Policy(analyst_epsilon="5", project_epsilon="6", auto_approve_epsilon="10")
    policies.set_policy(site.engine, site.bench.dataset, policy, site.bench.steward)
    missing = site.api("analyst").post("/jobs", site.job())
    assert missing.status_code == 422
    assert missing.json["problems"][0]["field"] == "project"
    assert site.api("analyst").post("/jobs", site.job(project="atlas")).json["state"] == "queued"
    other = site.api("analyst-2")
    assert other.post("/jobs", site.job(project="borealis")).json["project"] == "borealis"
    caps = other.get(site.dataset).json["caps"]
    assert {(each["kind"], each["name"]) for each in caps} == {
        ("analyst", site.actor("analyst-2").name),
        ("project", "borealis"),
    }
    names = {each["name"] for each in site.api("auditor").get(site.dataset).json["caps"]}
    assert {"atlas", "borealis", site.actor("analyst").name} <= names
    assert "cap of project borealis" in site.pages("analyst-2").get(site.dataset).text
    assert "atlas" not in site.pages("analyst-2").get(site.dataset).text
    quote = {
        "mechanism": "private-prediction",
        "parameters": {"tokens_per_batch": 300},
        "project": "borealis",
    }
    told = other.post(f"{site.dataset}/quote", quote).json["dataset"]["refusal"]
    assert told["cap"] == "analyst cap"


def test_the_policy_by_form(site):
    browser = site.pages("steward")
    typed = {
        "policy.auto_approve_epsilon": "0",
        "policy.approval_days": "30",
        "policy.analyst_epsilon": "2.5",
    }
    typed["policy_version"] = browser.token(f"{site.dataset}/policy", "policy_version")
    answer = browser.post(
        f"{site.dataset}/policy", site.dataset, **typed, **{"policy.two_people": "1"}
    )
    assert answer.status_code == 303
    found = site.api("steward").get(site.dataset).json["policy"]
    assert (found["approval_days"], found["analyst_epsilon"]) == (30, "2.5")
    assert (found["project_epsilon"], found["two_people"]) == (None, True)
    wrong = browser.post(
        f"{site.dataset}/policy", site.dataset, **{**typed, "policy.analyst_epsilon": "-1"}
    )
    assert wrong.status_code == 422
    assert 'id="problem-policy.analyst_epsilon"' in wrong.text
    raised = browser.post(
        f"{site.dataset}/allowance", site.dataset, epsilon="12", delta="1e-6", reason="x"
    )
    assert raised.status_code == 303
    assert site.api("steward").get(site.dataset).json["account"]["epsilon"] == "10"


@pytest.mark.parametrize("seen", ["before", "nothing"])
def test_a_policy_that_somebody_changed_meanwhile_is_not_undone_unseen(site, seen):
    browser, path = site.pages("steward"), f"{site.dataset}/policy"
    typed = {"policy.auto_approve_epsilon": "0.25", "policy.analysts": somebody(site.engine, "ada")}
    if seen == "before":
        typed["policy_version"] = browser.token(path, "policy_version")
    other = Policy(solo=True, approval_days=9)
    policies.set_policy(site.engine, site.bench.dataset, other, site.actor("steward-2"))
    stale = browser.post(path, path, **typed)
    assert stale.status_code == 409
    assert "was changed after this page was made" in stale.text
    assert 'value="0.25"' in stale.text
    assert "A steward may no longer approve a job of their own." in stale.text
    assert Policy.model_validate(site.api("steward").get(path).json) == other
    again = re.search('name="policy_version" value="([^"]+)"', stale.text)
    assert browser.post(path, path, **{**typed, "policy_version": again[1]}).status_code == 303
    assert site.api("steward").get(path).json["analysts"] == ["ada"]
