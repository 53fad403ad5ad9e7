"""A decision as a conversation: asked back in the inbox or by the API, answered on the job's
page.
"""

import re

from tests.web.browsers import Site

EVIL = "<script>alert(1)</script> how many?"


def article(site: Site, job_id: str) -> str:
    inbox = site.pages("steward").get("/inbox").text
    found = re.search(rf'id="decision-{job_id}".*?</article>', inbox, re.DOTALL)
    assert found
    return found[0]


def test_a_steward_asks_back_and_the_analyst_answers(site):
    job_id = site.submitted()
    steward, analyst = site.pages("steward"), site.pages("analyst")
    answer = steward.post(f"/decisions/{job_id}", "/inbox", answer="ask", reason=EVIL)
    assert answer.status_code == 303
    page = analyst.get(f"/jobs/{job_id}").text
    assert "A steward has a question first" in page
    assert '1<span class="visually-hidden"> with a question to you' in page
    assert "&lt;script&gt;alert(1)" in page
    assert "<script>alert" not in page
    assert "waits for" in article(site, job_id)
    assert (
        analyst.post(f"/jobs/{job_id}/comments", f"/jobs/{job_id}", text="forty").status_code == 303
    )
    page = analyst.get(f"/jobs/{job_id}").text
    assert re.search(r"submitted.*asked back by.*answered by", page, re.DOTALL)
    assert "with a question to you" not in page
    assert "forty" in article(site, job_id)
    # Still one click and a reason from a decision.
    assert (
        steward.post(f"/decisions/{job_id}", "/inbox", answer="yes", reason="fine").status_code
        == 303
    )
    assert site.api("analyst").get(f"/jobs/{job_id}").json["state"] == "queued"


def test_words_that_are_none_are_told_beside_the_field(site):
    job_id = site.submitted()
    page = site.pages("analyst")
    answer = page.post(f"/jobs/{job_id}/comments", f"/jobs/{job_id}", text=" ")
    assert (answer.status_code, "problem-text" in answer.text) == (422, True)
    answer = site.pages("steward").post(f"/decisions/{job_id}", "/inbox", answer="ask", reason=" ")
    assert answer.status_code == 422


def test_the_api_says_who_is_waited_for(site):
    job_id = site.submitted()
    steward, analyst = site.api("steward"), site.api("analyst")
    answer = steward.post(f"/jobs/{job_id}/comments", {"text": "why so many?", "asks": True})
    assert (answer.status_code, answer.json["asked_back"]) == (201, True)
    assert [each["kind"] for each in answer.json["comments"]] == ["question"]
    (listed,) = [each for each in analyst.get("/jobs").json["jobs"] if each["id"] == job_id]
    assert listed["asked_back"]
    assert (
        analyst.post(f"/jobs/{job_id}/comments", {"text": "why?", "asks": True}).status_code == 403
    )
    assert site.api("analyst-2").post(f"/jobs/{job_id}/comments", {"text": "hi"}).status_code == 404
    assert not analyst.post(f"/jobs/{job_id}/comments", {"text": "forty"}).json["asked_back"]
