"""Every mechanism from the form: reached, priced, fitted where that applies, submitted, and
switched to from every other. One browser and one service; what a mechanism reads lies ready.
"""

import re
import uuid
from collections.abc import Iterator
from html import unescape

import pytest

from accountant.core import mechanisms
from accountant.core.ledger.allowances import Allowance, SecretDeclaration
from accountant.core.privacy.events import FREE
from accountant.transactions import allowances, leases, settlement, submission
from accountant.transactions.artifacts import Stored
from accountant.transactions.job_requests import JobRequest
from accountant.transactions.settlement import Output
from tests.support import Bench, public_things, yes
from tests.web.browsers import Site
from tests.web.chromium import DESKTOP, MARKS, PHONE, address, browser, signed_in

__all__ = ["address", "browser"]  # fixtures
pytestmark = MARKS
EVERY = sorted(mechanisms.runnable())
SECRETS = {"prior": 0.0001, "bound": 0.9, "records_per_secret": 1, "sampling_rate": 0.5}


def ran(bench: Bench, mechanism: str, *left: Stored, **parameters: object) -> str:
    """A public job that ended, with what it left."""
    request = JobRequest(bench.dataset, mechanism, None, parameters, "test")
    job_id = submission.submit(bench.engine, request, bench.analyst)
    claim = leases.claim(bench.engine, job_id, 1, "a worker", 60)
    assert claim is not None
    settlement.publish(bench.engine, claim, FREE, Output("/nowhere", "0" * 64, left), "a worker")
    return str(job_id)


@pytest.fixture(scope="module")
def ready(app, engine, password_hash) -> tuple[Site, dict[str, dict[str, str]]]:
    """A dataset on which every mechanism may run, and what each asks everybody for, by field."""
    bench = Bench(engine, labels=["a", "b"], label_column="kind", secret_patterns=["[0-9]{4}"])
    secret = SecretDeclaration.from_json({**SECRETS, "neighbour": "removed", "kind": "many"})
    first = Allowance("60", "0.0000029053", "a study", secret=secret)
    allowances.allow(engine, bench.dataset, first, bench.steward)
    site = Site(app, engine, bench, password_hash)
    site.api("steward").put(f"{site.dataset}/policy", {"secret_jobs": True})
    bench.warm()
    named = public_things(engine, bench.steward, texts=5_000, labels=[])
    corpus = named["public_corpus"]
    terms = Stored("terms", "term-list", "application/json", uuid.uuid4().hex * 2, 12, "/nowhere/t")
    vocabulary = ran(bench, "vocabulary", terms, corpus=corpus)
    done = bench.submit(5)
    yes(engine, done, bench.steward, "it fits")
    claim = leases.claim(engine, done, 1, "a worker", 60)
    assert claim is not None
    leases.begin_reading(engine, claim)
    settlement.publish(engine, claim, FREE, Output("/nowhere", "1" * 64), "a worker")
    return site, {
        "dp-kps": {"vocabulary": vocabulary},
        "secpe": {"public_corpus": corpus},
        "evaluation": {"from_job": str(done), "corpus": corpus, "embedding": named["embedding"]},
        "vocabulary": {"corpus": corpus},
        "summary-adapter": {"corpus": corpus},
    }


@pytest.fixture(scope="module")
def page(browser, address, ready) -> Iterator:
    """One signed-in page, at the size of a small screen; nothing may go wrong in its console."""
    shown = signed_in(browser, address, ready[0].actor("analyst").name)
    yield shown
    assert not shown.complaints


def choose(page, mechanism: str) -> None:
    """Take a mechanism from the menu; the form comes back with its fields."""
    if page.locator("input[name=of]").input_value() == mechanism:
        return
    if page.locator("#expert").get_attribute("open") is None:
        page.locator("#expert > summary").click()
    with page.expect_navigation():
        page.select_option("#mechanism", mechanism)


def screens(page) -> float:
    """How many screens high the page is."""
    return page.evaluate("document.documentElement.scrollHeight / window.innerHeight")


def fill(page, given: dict[str, str]) -> None:
    """Fill in what a mechanism asks everybody for; a field that brings others has the form come
    back.
    """
    for name, value in given.items():
        field = page.locator(f"[name='parameters.{name}']")
        if not field.is_visible():
            page.evaluate(
                "document.querySelectorAll('details').forEach(each => { each.open = true; })"
            )
        reloads = field.get_attribute("data-reload") is not None
        if field.evaluate("each => each.tagName") != "SELECT":
            field.fill(value)
        elif reloads and field.input_value() != value:
            with page.expect_navigation():
                field.select_option(value)
        else:
            field.select_option(value)


#: Of every kind one; the forms of all are asked without a browser in test_asking.
FEW = {"private-prediction", "noisy-count", "summary-oneshot", "evaluation"}


@pytest.mark.parametrize(
    "mechanism",
    [pytest.param(each, marks=[] if each in FEW else pytest.mark.release) for each in EVERY],
)
def test_every_mechanism_is_reached_priced_fitted_and_submitted(ready, page, mechanism):
    site, needed = ready
    page.goto(f"{site.dataset}/submit")
    choose(page, mechanism)
    assert page.locator("input[name=of]").input_value() == mechanism
    assert screens(page) <= 2
    fill(page, needed.get(mechanism, {}))
    if mechanism.startswith("summary-t") or mechanism == "summary-oneshot":
        fill(page, {"public_size": "500"})
    if (fit := page.get_by_role("button", name="Fit to this part")).count():
        page.locator("#share").fill("50")
        assert page.locator("#share-shown").inner_text() == "50 %"
        with page.expect_navigation():
            fit.click()
        assert (
            page.get_by_role("status")
            .filter(has_text="the most that 50 % of what is left allows")
            .count()
        )
    page.fill("#purpose", f"to try {mechanism}")
    with page.expect_navigation():
        page.get_by_role("button", name="Ask", exact=True).click()
    assert re.search(r"/jobs/[0-9a-f-]{36}$", page.url), page.locator("main").inner_text()[:600]
    job = site.api("analyst").get(f"/jobs/{page.url.rsplit('/', 1)[1]}").json
    assert (job["mechanism"], job["purpose"]) == (mechanism, f"to try {mechanism}")
    assert job["state"] in ("awaiting_approval", "queued", "submitted"), job["refusal"]
    page.goto(f"{site.dataset}/submit?like={job['id']}")
    assert page.get_by_text("No price yet").count() == 0
    assert screens(page) <= 2, "filled as the quote answers, and priced"
    page.set_viewport_size(PHONE)
    assert screens(page) <= 2, "on a phone"
    page.set_viewport_size(DESKTOP)
    cancelled = site.api("analyst").post(f"/jobs/{job['id']}/cancel")
    assert cancelled.status_code == 200, "what it takes of the allowance is the next one's again"


@pytest.mark.parametrize("goal", ["counts", "summaries", "phrases", "texts"])
def test_a_goal_picks_a_mechanism_and_says_why(ready, page, goal):
    site, _ = ready
    page.goto(f"{site.dataset}/submit?mechanism=vocabulary")
    with page.expect_navigation():
        page.select_option("#goal", goal)
    taken = mechanisms.get(page.locator("input[name=of]").input_value())
    assert taken.goal == goal
    assert taken.advice in page.locator("#help-goal").inner_text()


# --- from every other, without scripts ----------------------------------------------------------


def fields(text: str) -> dict[str, str]:
    """Return the form's fields as a browser would send them."""
    found = dict(re.findall(r'<input[^>]* name="([^"]+)"[^>]*? value="([^"]*)"', text))
    found |= dict(re.findall(r'<textarea[^>]* name="([^"]+)"[^>]*>\n?([^<]*)</textarea>', text))
    for name, options in re.findall(r'<select[^>]* name="([^"]+)"[^>]*>(.*?)</select>', text, re.S):
        chosen = re.search(r'value="([^"]*)" selected', options) or re.search(
            r'value="([^"]*)"', options
        )
        found[name] = chosen[1] if chosen else ""
    return {name: unescape(value) for name, value in found.items()}


@pytest.mark.parametrize("new", EVERY)
def test_switching_takes_the_new_ones_defaults_and_keeps_nothing_else(ready, new):
    """From the mechanism before it, round the circle; from each other: before a release."""
    place = EVERY.index(new)
    switch(ready, new, [EVERY[place - 1]])


@pytest.mark.release
@pytest.mark.parametrize("new", EVERY)
def test_switching_from_any_mechanism_keeps_nothing_else(ready, new):
    switch(ready, new, EVERY)


def switch(ready, new, from_these):
    site, _ = ready
    browser = site.pages("analyst")
    address = f"{site.dataset}/submit"
    fresh = fields(browser.get(f"{address}?mechanism={new}").text)
    own = {name: value for name, value in fresh.items() if name.startswith("parameters.")}
    for old in from_these:
        if old == new:
            continue
        odd = {f"parameters.{name}": "7" for name in mechanisms.get(old).fields}
        said = {"of": old, "for": mechanisms.get(old).goal, "goal": mechanisms.get(old).goal}
        typed = {"csrf_token": fresh["csrf_token"], **said, **odd, "purpose": "kept", "share": "10"}
        typed |= {"mechanism": new, "action": "submit"}
        answer = browser.client.post(address, data=typed)
        assert answer.status_code == 200, "nothing is submitted that nobody has seen"
        found = fields(answer.text)
        assert {
            name: value for name, value in found.items() if name.startswith("parameters.")
        } == own, old
        assert (found["of"], found["purpose"]) == (new, "kept")
