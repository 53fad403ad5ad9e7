"""The front page: finding a dataset, paging, what next; and artifacts that are used again for
nothing.
"""

import re
from html import unescape

import pytest
from sqlalchemy import Engine, event, text

from accountant.catalogue import datasets
from accountant.queries import datasets as dataset_queries
from tests.support import Bench, put, somebody
from tests.web.views.looks import noting
from tests.web.views.test_asking import fields, press

pytestmark = pytest.mark.slow


def names(page: str) -> list[str]:
    return re.findall(r'<h2><a href="/datasets/([^"]+)"', page)


@pytest.fixture
def others(site):
    """Three more datasets: described, for one person alone, and without data that is ready."""
    made = {}
    specs = {
        "described": {
            "description": "Discharge letters of 50% of wards",
            "label_column": "kind",
            "labels": ["Surgery", "medicine"],
        },
        "closed": {
            "policy": {
                "analysts": [somebody(site.engine, "somebody")],
                "mechanisms": ["noisy-count"],
            }
        },
    }
    for name, spec in specs.items():
        bench = Bench(site.engine, **spec)
        bench.allow()
        made[name] = bench.dataset
    raw = {"name": f"raw-{site.bench.dataset}", "uri": "/nowhere.csv", "public_size": 10}
    datasets.add_dataset(site.engine, datasets.read_dataset(raw), site.bench.steward)
    return made | {"raw": raw["name"]}


def test_words_find_names_descriptions_and_labels(site, others):
    browser = site.pages("analyst")
    for words, found in (
        ("discharge wards", {"described"}),
        ("surgery", {"described"}),
        ("50%", {"described"}),
        ("discharge nothing", set()),
        (others["raw"], {"raw"}),
        ("%", {"described"}),
        ("_", set()),
    ):
        page = browser.client.get("/", query_string={"q": words})
        seen = {name for name, dataset in others.items() if dataset in names(page.text)}
        assert seen == found, words
        if not found:
            assert "exchequer dataset list" in page.text


def test_filters_by_policy_and_readiness(site, others):
    browser = site.pages("analyst")
    open_ones = names(browser.get("/?open=1").text)
    assert others["described"] in open_ones
    assert not {others["closed"], others["raw"]} & set(open_ones)
    counts = names(browser.get("/?mechanism=noisy-count").text)
    assert {others["closed"], others["described"]} <= set(counts)
    assert others["closed"] not in names(browser.get("/?mechanism=epsvec").text)
    assert browser.get("/?mechanism=magic").status_code == 422


def test_pages_of_the_catalogue(site, others, monkeypatch):
    monkeypatch.setattr("web.views.datasets.PAGE", 2)
    browser, seen, address = site.pages("analyst"), [], "/?mechanism=noisy-count"
    for _ in range(40):
        page = browser.get(address).text
        seen += names(page)
        more = re.search(r'href="([^"]+)" rel="next"', page)
        if more is None:
            break
        address = unescape(more[1])
    with site.engine.connect() as connection:
        known = connection.execute(text("SELECT name FROM datasets ORDER BY name")).scalars().all()
    assert seen == list(known)


def test_the_catalogue_is_one_query(site, others):
    """Closed filters too, with who closed each."""
    statements: list[str] = []
    note = noting(statements)
    event.listen(Engine, "before_cursor_execute", note)
    found = dataset_queries.datasets(site.engine, site.bench.analyst)
    event.remove(Engine, "before_cursor_execute", note)
    assert len(statements) == 1
    assert len(found) > 3


def test_nothing_of_the_data_is_in_the_catalogue(site, others):
    for each in dataset_queries.datasets(site.engine, site.bench.analyst):
        assert not {"uri", "error", "versions", "text_template"} & set(each.document())
    assert "/nowhere" not in site.pages("analyst").get("/").text


# --- what next ----------------------------------------------------------------------------------


def test_an_analyst_is_led_to_a_form_that_is_filled_in(site):
    browser = site.pages("analyst-new")
    page = browser.get("/").text
    link = unescape(re.search(r'<li><a href="([^"]+)">Ask for a first job', page)[1])
    form = browser.get(link).text
    assert "would be refused" not in form
    assert "sent back" not in form
    answer = press(browser, site, fields(form), "submit", purpose="a first try")
    assert answer.status_code == 303
    assert "Ask for a first job" not in browser.get("/").text


def test_a_steward_is_led_to_what_waits(site):
    site.submitted()
    assert '<a href="/inbox">Decide on requests</a>' in site.pages("steward").get("/").text
    assert "What next" in site.pages("auditor").get("/").text


# --- artifacts ----------------------------------------------------------------------------------


@pytest.fixture
def released(site):
    """An epsvec job of the analyst's with vectors among its artifacts, as a worker would end it."""
    import uuid

    from accountant.core.privacy.events import from_json
    from accountant.transactions import leases, settlement
    from accountant.transactions.artifacts import Stored

    parameters = {
        "epsilon": 1.0,
        "shots": 0,
        "samples_per_label": 100,
        "layers": "1-2",
        "max_tokens": 20,
    }
    asked = {"mechanism": "epsvec", "parameters": parameters, "model": site.bench.model}
    answer = site.api("analyst").post("/jobs", site.job(**asked)).json
    if answer["state"] == "submitted":
        site.bench.probe(uuid.UUID(answer["id"]))
    site.api("steward").post(
        f"/decisions/{answer['id']}/answer", {"yes": True, "reason": "it fits"}
    )
    claim = leases.claim(site.engine, uuid.UUID(answer["id"]), 1, "a worker", 60)
    leases.begin_reading(site.engine, claim)
    digest = put(site.results, uuid.uuid4().bytes)[1]
    stored = Stored("vectors", "dataset-vectors", "application/x-safetensors", digest, 16, "draft")
    counts = b'{"written": 60, "left_out": {"refusal": 2, "further from the label": 38}}'
    counted = "texts-left-out", "texts-left-out", "application/json", put(site.results, counts)[1]
    output = settlement.Output("x", "0" * 64, (stored, Stored(*counted, len(counts), "counts")))
    settlement.publish(site.engine, claim, from_json(answer["event"]), output, "a worker")
    return answer["id"]


def spent(site):
    return site.api("analyst").get(site.dataset).json["account"]


def test_from_an_artifact_one_click_to_a_free_request(site, released):
    site.api("steward").put(f"{site.dataset}/policy", {"auto_approve_epsilon": "0"})
    browser = site.pages("analyst")
    page = browser.get(f"/artifacts?dataset={site.bench.dataset}").text
    link = unescape(re.search(r'href="([^"]+reuse=[^"]+)"', page)[1])
    assert link in unescape(browser.get(f"/jobs/{released}").text)
    form = browser.get(link).text
    held = fields(form)
    assert held["parameters.from_job"] == released
    assert "parameters.layers" not in held, "of what is released nothing is asked again"
    assert "Costs <strong>nothing</strong>" in form
    assert "that was paid for then" in form
    assert ">Fit " not in form
    fresh = browser.get(f"{site.dataset}/submit?mechanism=epsvec").text
    for name in ("temperature", "coefficient"):  # tuned for nothing
        for page, stands in ((form, True), (fresh, False)):
            plain = page.partition("mechanism, model and all parameters")[0]
            assert (f'name="parameters.{name}"' in plain) == stands
    before = spent(site)
    answer = press(browser, site, held, "submit", purpose="more of the same")
    assert answer.status_code == 303
    job = site.api("analyst").get("/jobs/" + answer.headers["Location"].rsplit("/", 1)[1]).json
    assert (job["epsilon_alone"], job["source_job"]) == (0.0, released)
    assert spent(site) == before


def test_shared_artifacts_are_used_without_showing_whose_request_it_was(site, released):
    other = site.pages("analyst-other")
    address = f"{site.dataset}/submit?reuse={released}"
    assert other.get(address).status_code == 404
    site.api("steward").put(f"{site.dataset}/policy", {"share_artifacts": True})
    page = other.get(address)
    held = fields(page.text)
    assert (held["parameters.from_job"], held["model"]) == (released, site.bench.model)
    assert held["parameters.max_tokens"] != "20"
    assert "Costs <strong>nothing</strong>" in page.text


def test_when_an_artifact_was_released_is_told_to_overseers_alone(site, released):
    for who, told in (("analyst", False), ("auditor", True)):
        for found in site.api(who).get(f"/artifacts?job={released}").json["artifacts"]:
            assert (found["created_at"] is not None) == told


def test_a_card_tells_how_many_drafts_public_rules_kept(site, released):
    told = "kept 20 of 60 drafts by public rules"
    assert told in site.api("analyst").get(f"/jobs/{released}/card?format=md").text
    card = site.api("analyst").get(f"/jobs/{released}/card").json
    assert card["output"]["written"] == 60
    (counts,) = (e for e in card["artifacts"] if e["name"] == "texts-left-out")
    (site.results / counts["sha256"]).unlink()
    bare = site.api("analyst").get(f"/jobs/{released}/card?format=md")
    assert bare.status_code == 200
    assert told not in bare.text


def test_the_card_of_what_was_made_from_it_inherits_its_guarantee(site, released, publish):
    body = site.job(
        mechanism="epsvec", parameters={"from_job": released, "layers": "1-2", "shots": 0}
    )
    job_id = site.api("analyst").post("/jobs", body).json["id"]
    import uuid

    from accountant.core.privacy.events import FREE
    from accountant.transactions import leases, settlement

    claim = leases.claim(site.engine, uuid.UUID(job_id), 1, "a worker", 60)
    settlement.publish(site.engine, claim, FREE, settlement.Output("x", "0" * 64), "a worker")
    source = site.api("analyst").get(f"/jobs/{released}/card").json
    card = site.api("analyst").get(f"/jobs/{job_id}/card").json
    assert card["guarantee"].startswith(f"Made from the artifacts of job {released}")
    assert card["guarantee"].endswith(source["guarantee"])
    assert card["charged"]["epsilon"] == 0
    published = {each["name"]: each["sha256"] for each in source["artifacts"]}
    assert card["lineage"]["artifacts"]["vectors"] == published["vectors"]
    assert site.api("analyst").get(f"/jobs/{job_id}").json["finished_at"] is not None
