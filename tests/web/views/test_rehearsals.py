"""Rehearsals on pages: asked for from the form, shown where the job itself is asked for and
decided.
"""

import json
import re
from uuid import UUID

import pytest

from accountant.core.privacy.events import FREE
from accountant.queries import jobs
from accountant.transactions import artifacts, leases, settlement
from tests.support import public_things, put
from tests.web.browsers import Site

pytestmark = pytest.mark.slow

REPORT = {
    "rehearses": "private-prediction",
    "texts_read": 800,
    "public_size": 1000,
    "labels": "none",
    "seconds": 125.0,
    "epsilon": 0.4,
    "delta": 1e-6,
    "what": "texts",
    "number": 91,
    "complete": 1.0,
    "words": {"least": 12, "median": 34, "most": 60},
    "figures": [
        {
            "name": "MAUVE",
            "value": 0.71,
            "interval": [0.6, 0.8],
            "beside": {"real texts": {"value": 0.94, "interval": None}},
            "sentence": "",
            "ideal": "1: alike",
            "settings": {},
        },
        {
            "name": "Length distance",
            "value": 3.4,
            "interval": None,
            "beside": {"real texts": {"value": 0.5, "interval": None}},
            "sentence": "",
            "ideal": "0",
            "settings": {},
        },
    ],
}


def rehearse(site: Site, who: str = "analyst", **values: str) -> str:
    """A rehearsal asked for from the form; returns the job's id."""
    page = site.pages(who)
    form = {
        "mechanism": "private-prediction",
        "of": "private-prediction",
        "model": site.bench.model,
    }
    form |= {"parameters.tokens_per_batch": "10", "action": "rehearse", **values}
    answer = page.post(f"{site.dataset}/submit", f"{site.dataset}/submit", **form)
    assert answer.status_code == 303, answer.text
    return answer.headers["Location"].rsplit("/", 1)[-1]


def end(site: Site, job_id: str, corpus: str) -> None:
    """The end of a rehearsal, as a worker makes it."""
    content = json.dumps({**REPORT, "corpus": corpus}).encode()
    told = put(site.results, content)[1]
    texts = put(site.results, b'{"text": "a public text", "label": null, "complete": true}\n')[1]
    stored = artifacts.Stored(
        "report", "rehearsal-report", "application/json", told, len(content), "draft"
    )
    claim = leases.claim(site.engine, UUID(job_id), 1, "a worker", 60)
    assert claim is not None
    made = settlement.Output("draft", texts, (stored,))
    settlement.publish(site.engine, claim, FREE, made, "a worker")


@pytest.fixture
def corpus(site: Site) -> str:
    return public_things(site.engine, site.bench.steward, 1000, [])["public_corpus"]


def test_a_form_rehearses_its_job_at_no_cost_and_without_a_purpose(site, corpus):
    job_id = rehearse(site, rehearsal_corpus=corpus)
    job = jobs.job(site.engine, UUID(job_id), site.actor("analyst"))
    assert (job.mechanism, job.state, job.epsilon_alone) == (
        "rehearsal:private-prediction",
        "queued",
        0,
    )
    assert job.parameters["rehearsal_corpus"] == corpus
    assert (job.purpose, job.parameters["tokens_per_batch"]) == ("Rehearsal", 10)
    text = site.pages("analyst").get(f"/jobs/{job_id}").text
    assert "it reads public texts alone" in text


def test_a_rehearsal_names_a_ready_corpus(site):
    page = site.pages("analyst")
    form = {
        "mechanism": "private-prediction",
        "of": "private-prediction",
        "model": site.bench.model,
    }
    answer = page.post(
        f"{site.dataset}/submit", f"{site.dataset}/submit", action="rehearse", **form
    )
    assert answer.status_code == 422
    assert "rehearsal_corpus" in answer.text


def test_what_it_made_stands_beside_the_same_request_and_no_other(site, corpus):
    end(site, rehearse(site, rehearsal_corpus=corpus), corpus)
    told = "91 texts of 12 to 60 words"
    mine, theirs = site.submitted(), site.submitted(tokens=11)
    inbox = site.pages("steward").get("/inbox").text
    articles = {
        job: re.search(rf'id="decision-{job}".*?</article>', inbox, re.DOTALL)[0]
        for job in (mine, theirs)
    }
    assert told in articles[mine]
    assert "0.71" in articles[mine]
    assert "it may come out better or worse" in articles[mine]
    assert told not in articles[theirs]
    page = site.pages("analyst")
    assert told in page.get(f"{site.dataset}/submit?like={mine}").text
    assert told not in page.get(f"{site.dataset}/submit?like={theirs}").text
    # Another analyst sees nobody's rehearsals but their own.
    stranger = site.pages("analyst-2")
    form = {
        "mechanism": "private-prediction",
        "of": "private-prediction",
        "model": site.bench.model,
    }
    form |= {"parameters.tokens_per_batch": "10"}
    assert told not in stranger.post(f"{site.dataset}/price", f"{site.dataset}/submit", **form).text
    assert told in page.post(f"{site.dataset}/price", f"{site.dataset}/submit", **form).text


def test_three_rehearsals_tell_the_page_and_the_api_how_long_the_job_takes(site, corpus):
    form = {"mechanism": "private-prediction", "of": "private-prediction"}
    form |= {"model": site.bench.model, "parameters.tokens_per_batch": "40"}
    page = site.pages("analyst")
    for tokens in (10, 20, 30):
        end(
            site,
            rehearse(site, rehearsal_corpus=corpus, **{"parameters.tokens_per_batch": str(tokens)}),
            corpus,
        )
        text = page.post(f"{site.dataset}/price", f"{site.dataset}/submit", **form).text
        assert ("by its size and the last 3 rehearsals" in text) == (tokens == 30)
    asked = {"mechanism": "private-prediction", "parameters": {"tokens_per_batch": 40}}
    asked |= {"model": site.bench.model}
    told = site.api("analyst").post(f"{site.dataset}/quote", asked).json["duration"]
    assert (told["sized"], told["jobs"]) == (True, 3)


def test_the_page_of_a_rehearsal_shows_its_figures_and_leads_to_the_job_itself(site, corpus):
    job_id = rehearse(site, rehearsal_corpus=corpus)
    end(site, job_id, corpus)
    end(
        site,
        rehearse(site, rehearsal_corpus=corpus, **{"parameters.tokens_per_batch": "20"}),
        corpus,
    )
    page = site.pages("analyst")
    text = page.get(f"/jobs/{job_id}").text
    assert "likeness (MAUVE)" in text
    assert "Rehearsals so far" in text
    assert "Ask for the job itself" in text
    form = page.get(f"{site.dataset}/submit?like={job_id}").text
    assert '<input type="hidden" name="of" value="private-prediction">' in form
    assert "91 texts of 12 to 60 words" in form


def test_a_report_whose_bytes_changed_is_not_shown(site, corpus):
    job_id = rehearse(site, rehearsal_corpus=corpus)
    end(site, job_id, corpus)
    path, _ = put(site.results, json.dumps({**REPORT, "corpus": corpus}).encode())
    path.write_text(json.dumps({**REPORT, "corpus": corpus, "number": 92}))
    assert "92 texts" not in site.pages("analyst").get(f"/jobs/{job_id}").text


def test_a_policy_admits_a_rehearsal_with_its_mechanism(site, corpus):
    body = {
        "dataset": site.bench.dataset,
        "mechanism": "rehearsal:noisy-count",
        "purpose": "a test",
    }
    body |= {"model": None, "parameters": {"rehearsal_corpus": corpus}}
    from sqlalchemy import text

    def allow(names: list[str]) -> None:
        with site.engine.begin() as connection:
            query = text(
                "UPDATE datasets SET policy = policy || CAST(:new AS jsonb) WHERE name = :name"
            )
            connection.execute(
                query, {"new": json.dumps({"mechanisms": names}), "name": site.bench.dataset}
            )

    allow(["noisy-count"])
    assert site.api("analyst").post("/jobs", body).json["state"] == "queued"
    allow(["private-prediction"])
    answer = site.api("analyst").post("/jobs", body)
    assert (answer.status_code, "does not allow the mechanism" in answer.text) == (403, True)
