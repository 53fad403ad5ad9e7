"""Asking for a job: every mechanism's form, its price, what would be sent back, fitting and
prefilling.
"""

import re
from html import unescape
from uuid import UUID

import pytest
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import text

from accountant.catalogue import datasets, models, registration
from accountant.core import mechanisms
from accountant.core.errors import ResultsAway
from accountant.core.ledger.allowances import Allowance
from accountant.core.privacy.hypothesis_testing import best_success
from accountant.core.privacy.price import Terms
from accountant.queries import jobs, measured
from accountant.transactions import allowances
from tests.support import found_right, public_things, somebody
from web.api import proposals
from web.meaning import at_most
from web.views import job_form_defaults, schema_forms
from web.views.template_filters import percent

pytestmark = pytest.mark.slow

# --- schemas ------------------------------------------------------------------------------------


class Inner(BaseModel):
    """A nested object."""

    size: int = Field(3, ge=1, description="how large")
    name: str | None = None


class Sorts(BaseModel):
    """Every sort of field that a mechanism may declare."""

    model_config = ConfigDict(extra="forbid", strict=True)

    count: int
    share: float = 0.5
    flag: bool = True
    maybe: bool | None = None
    either: int | str = "auto"
    words: list[str] = ["a", "b"]
    numbers: list[int] | None = None
    inner: Inner = Inner()
    perhaps: Inner | None = None
    table: dict[str, float] = {}
    rows: list[Inner] = []


SORTS = Sorts.model_json_schema()


def test_every_sort_of_field_becomes_an_input():
    kinds = {
        each.name.removeprefix("parameters."): each.kind for each in schema_forms.inputs(SORTS)
    }
    assert kinds == {
        "count": "number",
        "share": "number",
        "flag": "choice",
        "maybe": "choice",
        "either": "text",
        "words": "lines",
        "numbers": "lines",
        "inner.size": "number",
        "inner.name": "text",
        "perhaps.size": "number",
        "perhaps.name": "text",
        "table": "json",
        "rows": "json",
    }
    (size,) = (each for each in schema_forms.inputs(SORTS) if each.name == "parameters.inner.size")
    assert (size.help, size.default, size.minimum, size.label) == (
        "how large",
        "3",
        "1",
        "Inner: size",
    )


@pytest.mark.parametrize(
    "value",
    [
        Sorts(count=1),
        Sorts(count=2, share=0.25, flag=False, maybe=True, either=4, words=["x"], numbers=[1, 2]),
        Sorts(
            count=3,
            inner=Inner(size=9, name="n"),
            perhaps=Inner(size=1),
            table={"a": 0.5},
            rows=[Inner()],
        ),
        Sorts(count=4, either="some words", words=[], numbers=None),
    ],
)
def test_what_is_typed_is_what_is_asked(value):
    typed = schema_forms.typed(value.model_dump(mode="json"), SORTS)
    assert Sorts.model_validate(schema_forms.stated(SORTS, typed)) == value


def test_a_blank_says_nothing_or_is_named():
    assert schema_forms.stated(SORTS, {"parameters.maybe": " ", "parameters.count": ""}) == {
        "maybe": None,
        "count": "",
    }


#: Fields that some mechanisms ask everybody for.
ASKED = (
    "corpus",
    "public_corpus",
    "epsilon",
    "prior",
    "bound",
    "records_per_secret",
    "sampling_rate",
    "neighbour",
)


@pytest.mark.parametrize(
    "each",
    [mechanisms.get(name) for name in sorted(mechanisms.runnable())],
    ids=lambda each: each.id,
)
def test_the_defaults_of_a_form_are_those_of_its_mechanism(each):
    document = each.parameters.model_json_schema()
    typed = {one.name: one.default for one in schema_forms.inputs(document) if one.kind != "fixed"}
    assert all(one.help for one in schema_forms.inputs(document))
    given = {name: value for name, value in each.example.items() if name in ASKED}
    given |= {"from_job": "0" * 36, "metrics": "lengths"} if each.id == "evaluation" else {}
    given |= {"epsilon": 1.0} if each.id == "epsvec" else {}
    typed |= schema_forms.typed(given, document)
    stated = schema_forms.stated(document, typed)
    terms = Terms(public_size=100_000, labels=("a", "b"))
    assert each.parse(stated, terms) == each.parse(given, terms)


def test_resources_are_found_without_a_request():
    kinds = {
        name: job_form_defaults.given(mechanism.resources, mechanism)
        for name, mechanism in mechanisms.runnable().items()
    }
    assert kinds["private-prediction"] == {"public_corpus": "corpus", "embedding": "embedding"}
    named = {
        "corpus": "corpus",
        "embedding": "embedding",
        "language_model": "model",
        "judge": "writer",
    }
    assert kinds["evaluation"] == named
    assert kinds["noisy-count"] == {}


# --- the page -----------------------------------------------------------------------------------


def fields(page: str) -> dict[str, str]:
    """Return the form's present fields, as a browser would send them."""
    found = dict(re.findall(r'<input[^>]* name="([^"]+)"[^>]*? value="([^"]*)"', page))
    found |= dict(re.findall(r'<textarea[^>]* name="([^"]+)"[^>]*>\n?([^<]*)</textarea>', page))
    for name, options in re.findall(r'<select[^>]* name="([^"]+)"[^>]*>(.*?)</select>', page, re.S):
        chosen = re.search(r'value="([^"]*)" selected', options) or re.search(
            r'value="([^"]*)"', options
        )
        found[name] = chosen[1] if chosen else ""
    return {name: unescape(value) for name, value in found.items()}


def press(browser, site, form, action, **changes):
    data = (
        form
        | {name.replace("__", "."): value for name, value in changes.items()}
        | {"action": action}
    )
    return browser.client.post(f"{site.dataset}/submit", data=data)


@pytest.mark.parametrize("mechanism", sorted(mechanisms.runnable()))
def test_every_mechanism_has_its_form(site, mechanism):
    browser = site.pages("analyst")
    page = browser.get(f"{site.dataset}/submit?mechanism={mechanism}")
    assert page.status_code == 200
    form, found = fields(page.text), mechanisms.get(mechanism)
    stated = {
        name.partition(".")[2]: value
        for name, value in form.items()
        if name.startswith("parameters.")
    }
    used = set(found.used_fields(stated))
    for each in schema_forms.inputs(found.parameters.model_json_schema()):
        if each.kind != "fixed":
            shown = each.name.partition(".")[2] in used
            assert (each.name in form) == shown, "what the request does not use is not shown"
            assert (f'id="help-{each.name}"' in page.text) == shown
    answer = press(browser, site, fields(page.text), "price")
    assert answer.status_code == 200


#: The address of a form that begins with the mechanism's own values, not with a proposal.
OWN = "?mechanism=private-prediction&parameters.clip=9.0"


def test_the_form_begins_with_what_is_worth_it_and_may_be_submitted(site):
    """1,000 records: a proposal, with its share, its outlook and its price; taken as it stands."""
    browser, api = site.pages("analyst"), site.api("analyst")
    found = api.get(f"{site.dataset}/proposal").json
    assert found["outlook"]["verdict"] == "good"
    ask = {name: found[name] for name in ("mechanism", "model", "parameters")}
    quoted = api.post(f"{site.dataset}/quote", ask).json
    page = browser.get(f"{site.dataset}/submit").text
    assert "It fits, and a steward would have to approve it" in page
    sentence = found["outlook"]["sentence"]
    card = page.split('id="price"')[1].split("</aside>")[0]
    assert sentence in card.split("Costs <strong>")[0], "what one gets before what it costs"
    used = [1 - quoted["dataset"][when]["share"] for when in ("remaining", "remaining_after")]
    assert f"Costs <strong>{percent((used[1] - used[0]) / (1 - used[0]))}</strong>" in card
    success = at_most(best_success(quoted["dp"]["epsilon"], quoted["dp"]["delta"]))
    assert f"is then right in at most {success} of cases" in card
    form = fields(page)
    assert form["share"] == f"{100 * found['share']:.0f}"
    assert form["model"] == found["model"]
    answer = press(browser, site, form, "submit", purpose="a first job")
    assert answer.status_code == 303
    job = api.get("/jobs/" + answer.headers["Location"].rsplit("/", 1)[1]).json
    assert job["state"] == "awaiting_approval"
    assert {name: job["parameters"][name] for name in found["parameters"]} == found["parameters"]
    assert job["parameters"]["max_text_tokens"] >= 16
    card = site.pages("steward").get(f"/decisions/{job['id']}").text
    assert sentence in card, "whoever decides is told the same"


def test_whoever_decides_is_told_what_a_small_model_is_worth(site):
    api = site.api("analyst")
    found = api.get(f"{site.dataset}/proposal").json
    ask = {name: found[name] for name in ("mechanism", "model", "parameters")}
    change = text("UPDATE models SET facts = facts || :more WHERE name = :name")
    with site.engine.begin() as connection:
        connection.execute(change, {"more": '{"parameters": 1000000}', "name": found["model"]})
    try:
        job = api.post("/jobs", site.job(**ask)).json
        card = site.pages("steward").get(f"/decisions/{job['id']}").text
        told = api.post(f"{site.dataset}/quote", ask).json["outlook"]
    finally:
        with site.engine.begin() as connection:
            connection.execute(change, {"more": '{"parameters": null}', "name": found["model"]})
    assert told["verdict"] == "thin"
    assert told["sentence"] in card


def allow_little(site):
    """So little is allowed that no text is affordable."""
    allowances.allow(
        site.engine, site.bench.dataset, Allowance("0.06", "0.000001", "little"), site.bench.steward
    )


def test_what_is_not_enough_is_no_default_and_is_said_to_be(site):
    allow_little(site)
    browser = site.pages("analyst")
    page = browser.get(f"{site.dataset}/submit").text
    assert fields(page)["mechanism"] == "noisy-count"
    assert "Not enough: not one text of 16 tokens is affordable." in page
    own = browser.get(f"{site.dataset}/submit?mechanism=private-prediction").text
    assert "Not enough: not one text of 16 tokens is affordable." in own
    assert "It would be refused now." in own, "no stub that fits stands in its place"
    stub = press(browser, site, fields(own), "price", parameters__tokens_per_batch="1").text
    assert "Not enough: a text of fewer than 16 tokens says nothing." in stub


def test_what_fits_instead_is_a_link_to_the_form_filled_in_for_it(site):
    allow_little(site)
    browser = site.pages("analyst")
    page = browser.get(f"{site.dataset}/submit?mechanism=private-prediction").text
    link = unescape(re.search(r'What fits: <a href="([^"]+goal=counts)">(.*?)</a>', page)[1])
    again = browser.get(link).text
    assert fields(again)["mechanism"] == "noisy-count"
    assert "It fits" in again
    assert press(browser, site, fields(again), "submit", purpose="how many").status_code == 303


@pytest.mark.parametrize("epsilon", ["0.5", "3"])
def test_counts_are_the_jobs_that_their_link_asks_for(site, epsilon):
    little = Allowance(epsilon, "0.000001", "a study")
    allowances.allow(site.engine, site.bench.dataset, little, site.bench.steward)
    browser = site.pages("analyst")
    page = browser.get(site.dataset).text
    counts = re.search(r"([\d,]+) counts\.", page)[1]
    link = unescape(re.search(r'href="([^"]+)">Ask for a count<', page)[1])
    asked = browser.get(link).text
    room = re.search(r'<dl class="pairs room">(.*?)</dl>', asked, re.S)[1]
    assert f"<strong>{counts}</strong>" in room
    assert f"or {counts} counts." in asked


def test_a_price_that_no_longer_holds_is_shown_again_before_anything_is_asked(site):
    browser = site.pages("analyst")
    form = fields(browser.get(f"{site.dataset}/submit").text)
    site.api("steward").put(f"{site.dataset}/policy", {"auto_approve_epsilon": "3"})
    before = len(site.api("analyst").get("/jobs").json["jobs"])
    answer = press(browser, site, form, "submit", purpose="a first job")
    assert answer.status_code == 409
    assert "The price has changed since you saw it." in answer.text
    assert "It fits, and would be admitted at once." in answer.text
    assert len(site.api("analyst").get("/jobs").json["jobs"]) == before
    again = press(browser, site, fields(answer.text), "submit")
    assert again.status_code == 303
    job = site.api("analyst").get("/jobs/" + again.headers["Location"].rsplit("/", 1)[1]).json
    assert job["state"] == "queued", "what is said to be admitted at once is"


def test_another_goal_brings_its_own_proposal(site):
    browser = site.pages("analyst")
    form = fields(browser.get(f"{site.dataset}/submit").text)
    found = site.api("analyst").get(f"{site.dataset}/proposal?goal=counts").json
    page = press(browser, site, form, "price", goal="counts").text
    form = fields(page)
    assert form["mechanism"] == "noisy-count"
    assert form["parameters.epsilon"] == str(found["parameters"]["epsilon"])
    assert found["outlook"]["sentence"] in page
    hopeless = press(browser, site, fields(page), "price", goal="summaries").text
    assert "Not enough: the dataset declares no groups." in hopeless


def test_summaries_begin_with_the_form_of_a_free_adapter(site):
    bench = site.bench
    raw = {"name": f"grouped-{bench.dataset}", "uri": "/nowhere.csv", "public_size": 1000}
    raw |= {"group_column": "kind", "groups": ["inn", "gym"]}
    found_right(
        site.engine, datasets.add_dataset(site.engine, datasets.read_dataset(raw), bench.steward)
    )
    allowances.allow(
        site.engine, raw["name"], Allowance("10", "0.000001", "a study"), bench.steward
    )
    public_things(site.engine, bench.steward, 500, [])
    browser = site.pages("analyst")
    page = browser.get(f"/datasets/{raw['name']}/submit?goal=summaries").text
    form = fields(page)
    assert form["mechanism"] == "summary-adapter"
    assert "When it has ended, ask for summaries again." in page
    assert "first an adapter, free; then 8 summaries, of at most 48 tokens each" in page
    assert "Costs <strong>nothing</strong>" in page
    assert "It fits, and would be admitted at once." in page
    # chosen by itself, the paid one keeps its own form
    own = browser.get(f"/datasets/{raw['name']}/submit?mechanism=summary-oneshot").text
    assert fields(own)["mechanism"] == "summary-oneshot"


def test_figures_of_a_mechanism_stand_beside_it_where_some_were_measured(site, monkeypatch):
    told = {"corpora": ["IMDb"], "model": "SmolLM2", "settings": "this", "epsilon": 3.0}
    told |= {"texts": 45.0, "tokens": 40.0, "finished": 0.5, "right label": None}
    told |= {"right label of zero-shot": None, "loss above zero-shot": None}
    monkeypatch.setattr(measured, "_table", lambda: {"private-prediction": told})
    sentence = "Measured elsewhere, on IMDb; your data may differ."
    browser = site.pages("analyst")
    assert sentence in browser.get(f"{site.dataset}/submit{OWN}").text
    assert sentence not in browser.get(f"{site.dataset}/submit?goal=counts").text
    found = site.api("analyst").get(f"{site.dataset}/proposal").json
    assert found["mechanism"] == "private-prediction"
    assert found["notes"][-1].startswith(sentence)


def test_a_proposal_names_what_was_wrong(site):
    api = site.api("analyst")
    for wrong in ("goal=poems", "share=2", "share=x", "share=nan", "model=nobody"):
        answer = api.get(f"{site.dataset}/proposal?{wrong}")
        assert answer.status_code == 422, wrong
        assert answer.json["problems"][0]["field"] == wrong.partition("=")[0]
    part = api.get(f"{site.dataset}/proposal?share=0.01").json
    assert part["share"] == 0.01
    quoted = {name: part[name] for name in ("mechanism", "parameters", "share")}
    if part["mechanism"] is not None:
        told = api.post(f"{site.dataset}/quote", quoted).json
        assert told["dataset"]["decision"] != "Refused"
        assert told["outlook"] == part["outlook"]
        assert told["output"] == part["output"]


def test_defaults_fit_a_model_with_a_short_context(site):
    small = f"small-{site.bench.dataset}"
    model_id = models.add_model(site.engine, small, "/nowhere", "public text", site.bench.steward)
    facts = {"sha256": "5" * 64, "context_tokens": 256, "end_tokens": [2], "layers": 4}
    registration.checked(site.engine, "model", model_id, facts, None)
    site.api("steward").put(f"{site.dataset}/policy", {"models": [small]})
    browser = site.pages("analyst")
    page = browser.get(f"{site.dataset}/submit").text
    found = fields(page)
    assert found["model"] == small
    assert int(found["parameters.record_tokens"]) + int(found["parameters.max_text_tokens"]) == 192
    assert "sent back" not in page
    own = browser.get(f"{site.dataset}/submit{OWN}").text
    assert f"the model {small}: record tokens 64, max text tokens 64" in own
    long = press(browser, site, found, "price", parameters__record_tokens="500").text
    assert "a context would need" in long
    layers = fields(browser.get(f"{site.dataset}/submit?mechanism=epsvec").text)
    assert layers["parameters.layers"] == "2-3"


def test_a_mistake_stands_beside_its_field_and_nothing_is_lost(site):
    browser = site.pages("analyst")
    page = browser.get(f"{site.dataset}/submit").text
    assert "a number from" not in page, "limits appear when they are broken"
    form = fields(page)
    wrong = {"parameters.clip": "many", "parameters.template": "no slot", "project": "my-project"}
    answer = press(browser, site, form | wrong, "submit", purpose="kept words")
    assert answer.status_code == 422
    after = fields(answer.text)
    assert {name: after[name] for name in wrong} == wrong
    assert after["purpose"] == "kept words"
    assert re.search(r'id="problem-parameters.clip">.*; allowed: a number', answer.text)
    empty = press(browser, site, form, "submit", purpose=" ")
    assert empty.status_code == 422
    assert 'id="problem-purpose"' in empty.text


def test_the_price_says_what_would_be_sent_back(site):
    """Clusters without a corpus have a price and can't run: both are told before anybody asks."""
    browser = site.pages("analyst")
    form = fields(browser.get(f"{site.dataset}/submit{OWN}").text)
    clusters = {"parameters__batching": "clusters"}
    assert (
        "public corpus</strong>: not given" in press(browser, site, form, "price", **clusters).text
    )
    named = public_things(site.engine, site.bench.steward, texts=5, labels=[])
    clusters |= {f"parameters__{name}": value for name, value in named.items()}
    page = press(browser, site, form, "price", **clusters).text
    assert "1,000 centres of the 5 texts" in page
    assert f'value="{named["public_corpus"]}" selected' in page
    assert press(browser, site, form, "submit", purpose="x", **clusters).status_code == 422
    site.api("steward").put(
        f"{site.dataset}/policy", {"analysts": [somebody(site.engine, "somebody-else")]}
    )
    told = browser.get(f"{site.dataset}/submit{OWN}").text
    assert "policy does not allow the analyst" in unescape(told)


def test_the_part_with_the_price_is_the_same(site):
    browser = site.pages("analyst")
    form = fields(browser.get(f"{site.dataset}/submit").text)
    part = browser.client.post(f"{site.dataset}/price", data=form).text
    assert part.count("<h2>What you get</h2>") == 1
    assert "jobs of this shape left" in part
    bad = browser.client.post(f"{site.dataset}/price", data=form | {"parameters.clip": "x"}).text
    assert "<strong>clip</strong>" in bad


@pytest.mark.parametrize("mechanism", ["noisy-count", "private-prediction", "summary-oneshot"])
def test_fit_fills_in_the_most_that_is_left(site, mechanism):
    """Without scripts: the button answers with the form; one more would be refused."""
    browser = site.pages("analyst")
    page = browser.get(f"{site.dataset}/submit?mechanism={mechanism}").text
    answer = press(browser, site, fields(page) | {"share": "100"}, "fit")
    assert answer.status_code == 200
    assert "the most that what is left allows" in answer.text
    assert "would be refused" not in answer.text
    form = fields(answer.text)
    size = "parameters." + mechanisms.get(mechanism).size_field
    more = str(int(form[size]) + 1) if form[size].isdigit() else str(float(form[size]) * 1.01)
    assert "It would be refused now." in press(browser, site, form | {size: more}, "price").text


def test_fit_fills_in_the_most_rounds_where_batches_are_secret(site):
    browser = site.pages("analyst")
    form = fields(browser.get(f"{site.dataset}/submit").text)
    form |= {"parameters.amplification": "allocation", "parameters.tokens_per_batch": "8"}
    form |= {"parameters.max_text_tokens": "", "parameters.batches_per_label": "20"}
    answer = press(browser, site, form | {"share": "100"}, "fit")
    assert "Rounds is" in answer.text
    found = fields(answer.text)
    assert int(found["parameters.rounds"]) > 1
    assert found["parameters.tokens_per_batch"] == "8"
    more = {"parameters.rounds": str(int(found["parameters.rounds"]) + 1)}
    page = press(browser, site, found | more, "price").text
    assert "It would be refused now." in page
    assert "nobody but the job" in page
    assert "beyond about 1.4 ln k" in page, "the cliff"


def test_fit_of_a_median_fills_in_its_cap(site):
    allowances.allow(
        site.engine,
        site.bench.dataset,
        Allowance(None, None, "a study", ex_post="4"),
        site.bench.steward,
    )
    browser = site.pages("analyst")
    form = fields(browser.get(f"{site.dataset}/submit{OWN}").text)
    form |= {"parameters.aggregation": "median", "parameters.ex_post_cap": "1"}
    found = fields(press(browser, site, form | {"share": "100"}, "fit").text)
    assert float(found["parameters.ex_post_cap"]) == 4
    found = fields(press(browser, site, form | {"share": "25"}, "fit").text)
    assert float(found["parameters.ex_post_cap"]) == 1


def test_the_cap_that_binds_is_named_with_what_it_leaves(site):
    site.api("steward").put(f"{site.dataset}/policy", {"analyst_epsilon": "1"})
    browser = site.pages("analyst")
    form = fields(browser.get(f"{site.dataset}/submit{OWN}").text)
    page = press(
        browser,
        site,
        form,
        "price",
        parameters__tokens_per_batch="1",
        parameters__max_text_tokens="",
    )
    room = re.search(r'<dl class="pairs room">(.*?)</dl>', page.text, re.S)[1]
    assert "analyst cap" in room
    quote = (
        site.api("analyst")
        .post(
            f"{site.dataset}/quote",
            {"mechanism": "private-prediction", "parameters": {"tokens_per_batch": 1}},
        )
        .json
    )
    alone, left = quote["dp"]["epsilon"], quote["dataset"]["jobs_of_this_shape"]
    assert left == int(1 / alone)
    assert f"<strong>{left}</strong>" in room


def test_a_refusal_leads_to_a_form_that_fits(site):
    browser = site.pages("analyst")
    job_id = site.api("analyst").post("/jobs", site.job(tokens=2_000)).json["id"]
    page = browser.get(f"/jobs/{job_id}").text
    largest = jobs.job(site.engine, UUID(job_id), site.bench.analyst)["refusal"]["largest"]
    for word in ("what binds", "asked", "left", f"tokens per batch = {largest}"):
        assert word in page
    link = unescape(re.search(r'href="([^"]+largest=true)"', page)[1])
    again = browser.get(link).text
    assert fields(again)["parameters.tokens_per_batch"] == str(largest)
    assert "It would be refused" not in again
    assert press(browser, site, fields(again), "submit", purpose="a smaller one").status_code == 303


def test_another_like_it_is_the_same_request(site):
    browser = site.pages("analyst")
    job_id = site.submitted(tokens=21)
    page = browser.get(f"{site.dataset}/submit?like={job_id}").text
    assert fields(page)["purpose"] == "", "what it is for is never copied"
    assert press(browser, site, fields(page), "submit").status_code == 422
    answer = press(browser, site, fields(page), "submit", purpose="another look")
    again = site.api("analyst").get("/jobs/" + answer.headers["Location"].rsplit("/", 1)[1]).json
    first = site.api("analyst").get(f"/jobs/{job_id}").json
    for name in ("parameters", "model", "mechanism", "event"):
        assert again[name] == first[name]


@pytest.mark.parametrize("query", ["like={}", "reuse={}", "like={}&largest=true"])
def test_nobody_is_shown_anothers_request(site, query):
    job_id = site.submitted()
    address = f"{site.dataset}/submit?" + query.format(job_id)
    assert site.pages("analyst-other").get(address).status_code == 404
    assert (
        site.pages("analyst").get(f"{site.dataset}/submit?" + query.format("x")).status_code == 404
    )


def test_an_unknown_mechanism_is_named_on_the_page(site):
    browser = site.pages("analyst")
    form = fields(browser.get(f"{site.dataset}/submit").text)
    answer = press(browser, site, form | {"mechanism": "dp-kpss"}, "price")
    assert answer.status_code == 200
    assert 'id="problem-mechanism"' in answer.text


# --- what a price says --------------------------------------------------------------------------


def test_a_pure_count_names_no_delta(site):
    browser = site.pages("analyst")
    form = fields(browser.get(f"{site.dataset}/submit?mechanism=noisy-count").text)
    line = r'<p class="plainly price">.*?</p>'
    price = re.search(line, press(browser, site, form, "price").text, re.S)[0]
    assert "pure ε" in price
    assert "δ" not in price
    gaussian = {"parameters__noise": "gaussian"}
    page = press(browser, site, form, "price", **gaussian).text
    assert "δ" in re.search(line, page, re.S)[0]
    answer = press(browser, site, form, "submit", purpose="how many there are")
    job = browser.get(answer.headers["Location"]).text
    assert "pure ε" in re.search(r'<p class="headline price">.*?</p>', job, re.S)[0]


def test_filters_are_folded_and_none_is_red_where_another_decides(site):
    browser = site.pages("analyst")
    form = fields(browser.get(f"{site.dataset}/submit{OWN}").text)
    page = press(browser, site, form, "price", parameters__tokens_per_batch="300").text
    shown, _, folded = page.split('id="price"')[1].partition("<summary>Details</summary>")
    assert "Filters before and after" not in shown
    assert "share of each filter used" in folded
    assert re.search(
        r"Now:</span> <strong>100 % left: one more job like this, or \d+ counts\.", folded
    )
    assert re.search(r"After it:</span> <strong>\d+ % left: ", folded)
    quote = site.api("analyst").post(
        f"{site.dataset}/quote",
        {"mechanism": "private-prediction", "parameters": {"tokens_per_batch": 300}},
    )
    after = [each["after"] for each in quote.json["dataset"]["filters"]]
    assert any(each is None or each > 1 for each in after), "one filter alone would not do"
    assert 'class="over"' not in page
    assert "bar-closed" not in page
    refused = press(browser, site, form, "price", parameters__tokens_per_batch="5000").text
    assert 'class="over"' in refused


def test_a_quote_says_what_the_job_writes(site):
    ask = {
        "mechanism": "private-prediction",
        "parameters": {"tokens_per_batch": 50, "max_text_tokens": 20},
    }
    told = site.api("analyst").post(f"{site.dataset}/quote", ask).json["output"]
    # 1,000 / 64 batches; none begins a third text with 10 tokens left
    assert (told["number"], told["tokens"], told["bound"]) == (15 * 2, 20, "at least")
    browser = site.pages("analyst")
    form = fields(browser.get(f"{site.dataset}/submit{OWN}").text)
    page = press(browser, site, form, "price", parameters__tokens_per_batch="1").text
    assert "At least 15 texts, of at most 1 token each." in page


def test_a_part_of_what_is_left_decides_and_fits(site):
    ask = {"mechanism": "private-prediction", "parameters": {"tokens_per_batch": 100}, "share": 0.1}
    told = site.api("analyst").post(f"{site.dataset}/quote", ask).json["dataset"]
    assert told["decision"] == "Refused"
    largest = told["refusal"]["largest"]
    fitted = ask | {"parameters": {}, "fit": "tokens_per_batch"}
    assert site.api("analyst").post(f"{site.dataset}/quote", fitted).json["fit"]["value"] == largest
    whole = {name: value for name, value in ask.items() if name != "share"}
    assert (
        site.api("analyst").post(f"{site.dataset}/quote", whole).json["dataset"]["decision"]
        != "Refused"
    )
    for share in (0, 1.5, -1):
        answer = site.api("analyst").post(f"{site.dataset}/quote", ask | {"share": share})
        assert answer.status_code == 422
        assert answer.json["problems"][0]["field"] == "share"


def counted(site, publish, epsilon: float) -> str:
    """A job whose counts of both labels are published."""
    body = site.job(mechanism="noisy-count", model=None, parameters={"epsilon": epsilon})
    job = site.api("analyst").post("/jobs", body).json["id"]
    site.api("steward").post(f"/decisions/{job}/answer", {"yes": True, "reason": "it fits"})
    publish(job, b'{"label": "a", "count": 300}\n{"label": "b", "count": -3}\n')
    return job


def test_a_form_waits_once_for_results_that_are_away(site, publish, monkeypatch):
    counted(site, publish, 0.01), counted(site, publish, 0.02)
    asked = []

    def away(*given):
        asked.append(given)
        raise ResultsAway

    monkeypatch.setattr(proposals.outputs, "first_texts", away)
    page = site.pages("analyst").get(f"{site.dataset}/submit?mechanism=private-prediction")
    assert (page.status_code, len(asked)) == (200, 1)


def test_paid_counts_of_labels_are_named_for_texts_in_one_click(site, publish):
    browser = site.pages("analyst")
    job = counted(site, publish, 0.5)
    page = browser.get(f"/jobs/{job}").text
    link = unescape(re.search(r'href="([^"]+label_counts=[^"]+)"', page)[1])
    form = fields(browser.get(link).text)
    assert form["mechanism"] == "private-prediction"
    assert form["parameters.label_counts"].split() == ["300", "0"]
    # a proposal names them by itself, and leaves out the label with too few records
    with site.engine.begin() as connection:
        labels = text("UPDATE datasets SET labels = :two WHERE name = :name")
        connection.execute(labels, {"two": '["a", "b"]', "name": site.bench.dataset})
    found = site.api("analyst").get(f"{site.dataset}/proposal").json
    assert found["parameters"]["label_counts"] == [300, 0]
    assert found["parameters"]["labels"] == ["a"]
    begun = browser.get(f"{site.dataset}/submit").text
    assert fields(begun)["parameters.label_counts"].split() == ["300", "0"]
    assert "for 1 of 2 labels" in begun
    address = f"{site.dataset}/submit?mechanism=private-prediction"
    shown = browser.get(address).text
    assert ">300, 0 <" in shown
    form = {**fields(shown), "purpose": "kept", "parameters.batches_per_label": "7"}
    data = {**form, "counts": "300\r\n0"}
    page = browser.client.post(f"{site.dataset}/submit", data=data)
    form = fields(page.text)
    assert form["parameters.label_counts"].split() == ["300", "0"]
    assert (form["parameters.batches_per_label"], form["purpose"]) == ("", "kept")
