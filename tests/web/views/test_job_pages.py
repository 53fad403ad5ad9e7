"""Jobs: the list with its filters, states, the page, what may be downloaded, and its data card."""

import csv
import io
import json
import re
import uuid
import zipfile
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from html import unescape
from pathlib import Path

import pytest
import yaml
from sqlalchemy import Engine, event, text

from accountant.core.ledger.allowances import Allowance
from accountant.core.ledger.export_formats import read_document
from accountant.core.ledger.hash_chain import digest
from accountant.core.ledger.policy import Policy
from accountant.core.names import job_name
from accountant.core.states import ENDED, JOB_STATES, STATES
from accountant.queries import jobs
from accountant.transactions import allowances, corrections, leases, policies
from accountant.transactions import settlement as ledger
from accountant.transactions.settlement import Output
from tests.support import Bench, person, put, yes
from tests.web.views.looks import noting

pytestmark = pytest.mark.slow

OUTPUT = (
    b'{"text": "=1+1", "label": "a", "complete": true}\n{"text": "two\\nlines", "label": null}\n'
)


@pytest.fixture
def done(site, publish):
    """A job that published OUTPUT."""
    job_id = site.submitted()
    site.api("steward").post(f"/decisions/{job_id}/answer", {"yes": True, "reason": "it fits"})
    publish(job_id, OUTPUT)
    return job_id


# --- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("purpose", "name"),
    [
        ("for onboarding", "Texts for onboarding, 3 March, no. 12"),
        ("to train new staff.", "Texts to train new staff, 3 March, no. 12"),
        ("reviews\nfor  onboarding", "Texts: reviews for onboarding, 3 March, no. 12"),
        ("", "Texts, 3 March, no. 12"),
        ("word " * 20, f"Texts: {'word ' * 9}…, 3 March, no. 12"),
    ],
)
def test_a_job_is_called_by_what_it_makes_and_is_for(purpose, name):
    assert job_name("Texts", datetime(2026, 3, 3, 23, 59, tzinfo=UTC), 12, purpose) == name


def test_jobs_are_counted_in_their_dataset_in_the_order_in_which_they_came(site, engine):
    first, second = site.submitted(), site.submitted()
    names = [site.api("analyst").get(f"/jobs/{job_id}").json["name"] for job_id in (first, second)]
    places = [int(name.rpartition("no. ")[2]) for name in names]
    assert places[1] == places[0] + 1
    with engine.begin() as connection:  # at one moment each has a place of its own too
        same = "UPDATE jobs SET created_at = (SELECT max(created_at) FROM jobs) WHERE id = :id"
        for job_id in (first, second):
            connection.execute(text(same), {"id": job_id})
    tied = jobs.names(engine, site.bench.steward, [first, second])
    assert sorted(int(name.rpartition("no. ")[2]) for name in tied.values()) == places
    names = [tied[first], tied[second]]
    pages = site.pages("steward")
    for path in (f"/jobs/{first}", "/jobs", site.dataset, "/inbox", "/ledger/activity"):
        assert names[0] in unescape(pages.get(path).text), path
    assert first[:8] not in pages.get("/jobs").text.replace(f"/jobs/{first}", "")
    # A stranger's jobs have no name for them, even where an id is known.
    assert jobs.names(engine, site.bench.analyst, [first]) != {}
    assert jobs.names(engine, person(engine, "analyst"), [first]) == {}


# --- states and the list ------------------------------------------------------------------------


def test_every_state_is_explained_to_everybody(site):
    assert set(STATES) == set(JOB_STATES)
    assert {name for name, state in STATES.items() if not state.next} == ENDED
    page = site.app.test_client().get("/job-states")
    assert page.status_code == 200
    for name in JOB_STATES:
        assert f'id="{name}"' in page.text
    for each in STATES.values():
        assert set(each.next) <= set(JOB_STATES)


def rows_of(page: str) -> list[str]:
    return re.findall(r'<th scope="row"><a href="/jobs/([0-9a-f-]+)"', page)


def test_pages_of_jobs_hold_each_once_even_where_moments_are_equal(site):
    """Forty of 120 jobs were submitted in one moment: a key of time alone would lose or repeat
    some.
    """
    bench = site.bench
    first = bench.submit(5)
    copy = text(
        "INSERT INTO jobs (id, dataset_id, version_id, model_id, analyst_id, mechanism, "
        "parameters, terms,"
        " event, epsilon_alone, breakdown, purpose, request_sha256, state, created_at)"
        " SELECT gen_random_uuid(), dataset_id, version_id, model_id, analyst_id, mechanism, "
        "parameters,"
        " terms, event, epsilon_alone, breakdown, purpose, request_sha256, 'cancelled',"
        " created_at - (n / 40) * interval '1 second' FROM jobs, generate_series(1, 119) AS n "
        "WHERE id = :id"
    )
    with bench.engine.begin() as connection:
        connection.execute(copy, {"id": first})
    browser = site.pages("analyst")
    address, seen = f"/jobs?dataset={bench.dataset}&state=cancelled", []
    for _ in range(10):
        page = browser.get(address).text
        seen += rows_of(page)
        more = re.search(r'href="([^"]+)" rel="next"', page)
        if more is None:
            break
        address = unescape(more[1])
        assert "state=cancelled" in address  # filters stay
    assert len(seen) == len(set(seen)) == 120  # the bench's own probe is one of them


def test_filters_stand_in_the_address(site):
    job_id = site.submitted()
    browser, today = site.pages("analyst"), datetime.now(UTC).date()
    for query in (
        "state=awaiting_approval",
        f"dataset={site.bench.dataset}",
        "mechanism=private-prediction",
        f"since={today}",
        f"until={today}",
    ):
        assert job_id in rows_of(browser.get(f"/jobs?{query}").text), query
    for query in (
        "state=failed",
        "dataset=nothing",
        "mechanism=evaluation",
        f"since={today + timedelta(days=2)}",
        f"until={today - timedelta(days=2)}",
    ):
        page = browser.get(f"/jobs?{query}").text
        assert job_id not in rows_of(page), query
        assert "exchequer job submit" in page
    overseer = site.pages("auditor")
    assert job_id in rows_of(overseer.get(f"/jobs?analyst={site.bench.analyst.name}").text)
    assert job_id not in rows_of(overseer.get("/jobs?analyst=nobody").text)
    for query in ("state=x", "since=x", "until=2026-13-01", "cursor=x", "offers=x"):
        assert browser.get(f"/jobs?{query}").status_code == 422, query


def test_a_list_is_one_query_and_shows_ones_own_jobs_alone(site):
    mine, theirs = site.submitted(), site.submitted("analyst-other")
    actor = site.actor("analyst")
    statements: list[str] = []
    note = noting(statements)
    event.listen(Engine, "before_cursor_execute", note)
    found = jobs.jobs(site.engine, actor, jobs.Wanted(dataset=site.bench.dataset), limit=50)
    event.remove(Engine, "before_cursor_execute", note)
    assert len(statements) == 1
    assert mine in {each["id"] for each in found}
    assert theirs not in {each["id"] for each in found}
    assert theirs not in rows_of(
        site.pages("analyst").get(f"/jobs?analyst={site.actor('analyst-other').name}").text
    )


# --- what an analyst is told --------------------------------------------------------------------


def test_times_that_depend_on_the_data_are_told_to_overseers_alone(site, done):
    for who, told in (("analyst", False), ("steward", True), ("auditor", True)):
        job = site.api(who).get(f"/jobs/{done}").json
        assert (job["started_at"] is not None, job["finished_at"] is not None) == (told, told)
        assert job["created_at"]
        assert job["queued_at"]
        page = site.pages(who).get(f"/jobs/{done}").text
        assert ("time not told" in page) != told
    (listed,) = [
        each for each in site.api("analyst").get("/jobs").json["jobs"] if each["id"] == done
    ]
    assert listed["finished_at"] is None


def test_a_running_job_says_when_results_appear_and_no_progress(site):
    each_minute = Policy(solo=True, results_every_seconds=60)
    policies.set_policy(site.engine, site.bench.dataset, each_minute, site.bench.steward)
    job_id = site.submitted()
    yes(site.engine, uuid.UUID(job_id), site.bench.steward, "it fits")
    assert leases.claim(site.engine, uuid.UUID(job_id), 1, "worker", 60) is not None
    for who, told in (("analyst", False), ("steward", True)):
        page = site.pages(who).get(f"/jobs/{job_id}").text
        assert "results show 60 seconds after it began" in page
        assert ("The next moment is" in page) == told
        assert "progress-line" not in page


def test_times_that_depend_on_nothing_private_are_told(site):
    job_id = site.submitted()
    site.api("analyst").post(f"/jobs/{job_id}/cancel")
    assert site.api("analyst").get(f"/jobs/{job_id}").json["finished_at"] is not None


# --- downloads ----------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["/api", "/page"])
def test_the_output_in_every_format(site, done, place):
    def get(form):
        if place == "/api":
            return site.api("analyst").get(f"/jobs/{done}/output?format={form}")
        return site.pages("analyst").get(f"/jobs/{done}/output.{form}")

    assert get("jsonl").data == OUTPUT
    found = get("csv")
    assert found.mimetype == "text/csv"
    assert found.data.startswith(b"\xef\xbb\xbf")
    assert list(csv.reader(io.StringIO(found.data.decode("utf-8-sig"), newline=""))) == [
        ["text", "label", "complete"],
        ["'=1+1", "a", "true"],
        ["two\nlines", "", ""],
    ]
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = parquet.read_table(pyarrow.BufferReader(get("parquet").data))
    assert table.to_pylist() == [
        {"text": "=1+1", "label": "a", "complete": True},
        {"text": "two\nlines", "label": None, "complete": None},
    ]
    assert table.schema.metadata[b"exchequer.sha256"] == sha256(OUTPUT).hexdigest().encode()
    assert get("xlsx").status_code == 422


def test_parquet_without_pyarrow_says_what_to_do(site, done, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "pyarrow", None)
    answer = site.api("analyst").get(f"/jobs/{done}/output?format=parquet")
    assert answer.status_code == 422
    assert "install pyarrow" in answer.json["problems"][0]["allowed"]


def test_nobody_else_gets_anything(site, done):
    other, auditor = site.api("analyst-other"), site.api("auditor")
    for path in ("output", "output?card=true", "card", "result", ""):
        assert other.get(f"/jobs/{done}/{path}".rstrip("/")).status_code == 404, path
    for path in ("output.csv", "card.md", "result"):
        assert site.pages("analyst-other").get(f"/jobs/{done}/{path}").status_code == 404
    assert auditor.get(f"/jobs/{done}/card").status_code == 200


@pytest.mark.parametrize("path", ["output?format=jsonl", "output?format=csv", "output?card=true"])
def test_a_file_that_is_not_the_published_one_is_not_handed_out(site, done, path):
    file = put(site.results, OUTPUT)[0]
    file.write_bytes(OUTPUT + b'{"text": "added"}\n')
    answer = site.api("analyst").get(f"/jobs/{done}/{path}")
    assert answer.status_code == 409
    file.unlink()
    assert site.api("analyst").get(f"/jobs/{done}/{path}").status_code == 404


def test_an_output_that_is_no_table_stays_json_lines(site, publish):
    job_id = site.submitted()
    site.api("steward").post(f"/decisions/{job_id}/answer", {"yes": True, "reason": "it fits"})
    publish(job_id, b"[1, 2]\n")
    assert site.api("analyst").get(f"/jobs/{job_id}/output?format=csv").status_code == 422
    assert site.api("analyst").get(f"/jobs/{job_id}/output").data == b"[1, 2]\n"


def test_the_archive_holds_data_and_card(site, done):
    answer = site.api("analyst").get(f"/jobs/{done}/output?format=csv&card=true")
    assert answer.mimetype == "application/zip"
    with zipfile.ZipFile(io.BytesIO(answer.data)) as archive:
        assert archive.testzip() is None
        names = {f"{done}.csv", "README.md", "card.json", "croissant.json"}
        assert set(archive.namelist()) == names
        assert archive.read(f"{done}.csv").decode("utf-8-sig").startswith('"text","label"')
        # which of the files `datasets` loads
        header = archive.read("README.md").decode().split("---")[1]
        assert yaml.safe_load(header)["configs"] == [
            {"config_name": "default", "data_files": f"{done}.csv"}
        ]
        assert (
            json.loads(archive.read("card.json"))
            == site.api("analyst").get(f"/jobs/{done}/card").json
        )
        assert {each.date_time for each in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def unpacked(site, path: str, folder: Path) -> Path:
    answer = site.api("analyst").get(path)
    assert answer.status_code == 200, answer.text
    with zipfile.ZipFile(io.BytesIO(answer.data)) as archive:
        archive.extractall(folder)
    return folder


def test_an_archive_is_a_dataset_of_the_hub(site, done, tmp_path):
    hub = pytest.importorskip("huggingface_hub")
    stated = "format=parquet&card=true&license=cc-by-4.0&language=en,de"
    folder = unpacked(site, f"/jobs/{done}/output?{stated}", tmp_path)
    read = hub.DatasetCard.load(folder / "README.md")
    card = site.api("analyst").get(f"/jobs/{done}/card").json
    data, newest = read.data.to_dict(), max(entries_of(site))
    assert (data["license"], data["language"]) == ("cc-by-4.0", ["en", "de"])
    assert "differential-privacy" in data["tags"]
    privacy = data["differential_privacy"]
    loss = card["privacy_loss"]
    assert isinstance(privacy["epsilon"], float)
    assert 0 <= privacy["epsilon"] - loss["epsilon"] <= 0.001 * loss["epsilon"]
    assert (privacy["delta"], privacy["unit"]) == (loss["delta"], "record")
    assert privacy["guarantee"] == card["guarantee"]
    assert privacy["ledger_head"] == entries_of(site)[newest]["hash"]
    assert privacy["ledger_entries"] == newest
    assert read.text.strip().startswith("# Data card")


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
def test_datasets_loads_an_archive(site, done, tmp_path, form):
    datasets = pytest.importorskip("datasets")
    folder = unpacked(site, f"/jobs/{done}/output?format={form}&card=true", tmp_path / "made")
    loaded = datasets.load_dataset(str(folder), split="train", cache_dir=str(tmp_path / "cache"))
    assert loaded["text"][1] == "two\nlines"


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
def test_croissant_names_the_file_its_hash_and_its_columns(site, done, tmp_path, form):
    folder = unpacked(site, f"/jobs/{done}/output?format={form}&card=true", tmp_path)
    metadata = json.loads((folder / "croissant.json").read_text())
    (file,) = metadata["distribution"]
    assert file["sha256"] == sha256((folder / f"{done}.{form}").read_bytes()).hexdigest()
    fields = {each["name"]: each["dataType"] for each in metadata["recordSet"][0]["field"]}
    assert fields == {"text": "sc:Text", "label": "sc:Text", "complete": "sc:Boolean"}


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
def test_mlcroissant_validates_and_reads_the_metadata(site, done, tmp_path, form):
    library = pytest.importorskip("mlcroissant")
    folder = unpacked(site, f"/jobs/{done}/output?format={form}&card=true", tmp_path)
    read = library.Dataset(jsonld=folder / "croissant.json")
    assert not read.metadata.ctx.issues.errors
    rows = list(read.records("records"))
    assert rows[1]["records/text"] in (b"two\nlines", "two\nlines")


@pytest.mark.parametrize("stated", ["license=a%20b", "language=english", "language=en,"])
def test_a_licence_or_language_of_no_such_form_is_refused(site, done, stated):
    answer = site.api("analyst").get(f"/jobs/{done}/output?card=true&{stated}")
    assert answer.status_code == 422


# --- cards --------------------------------------------------------------------------------------


def entries_of(site) -> dict[int, dict]:
    query = text(
        "SELECT seq, kind, document, hash FROM entries JOIN datasets ON id = dataset_id WHERE name "
        "= :name"
    )
    with site.engine.connect() as connection:
        rows = connection.execute(query, {"name": site.bench.dataset}).all()
    return {
        row.seq: {"kind": row.kind, "hash": row.hash, "document": read_document(row.document)}
        for row in rows
    }


def test_a_card_says_what_the_ledger_says(site, done):
    card = site.api("analyst").get(f"/jobs/{done}/card").json
    job = site.api("analyst").get(f"/jobs/{done}").json
    assert card["output"]["sha256"] == sha256(OUTPUT).hexdigest()
    entries = entries_of(site)
    for name, kind in (("reserve", "RESERVE"), ("charge", "COMMIT")):
        entry = entries[card["ledger"][name]["seq"]]
        assert (entry["kind"], entry["document"]["job"]) == (kind, done)
        assert card["ledger"][name]["hash"] == entry["hash"] == digest(entry["document"])
    assert card["reserved"]["epsilon"] == job["epsilon_alone"]
    assert card["parameters"] == job["parameters"]
    assert card["model"]["name"] == site.bench.model
    assert card["model"]["trained_on"] == "public text"
    assert re.fullmatch("[0-9a-f]{64}", card["model"]["sha256"])
    assert card["lineage"] == {"version": 1}
    stated = float(re.search(r"is \(([0-9.]+), ([0-9.e-]+)\)", card["guarantee"])[1])
    assert 0 <= stated - job["epsilon_alone"] <= 0.001 * stated
    assert "adding or removing one record" in card["guarantee"]
    page = site.api("analyst").get(f"/jobs/{done}/card?format=md")
    assert page.mimetype == "text/markdown"
    for fact in (
        card["guarantee"],
        card["ledger"]["charge"]["hash"],
        card["output"]["sha256"],
        "## Cite",
    ):
        assert fact in page.text


def test_a_card_tells_no_time_and_nobody(site, done):
    for who in ("analyst", "steward"):
        text_ = (
            site.api(who).get(f"/jobs/{done}/card").text
            + site.api(who).get(f"/jobs/{done}/card?format=md").text
        )
        assert not re.search(r"\d{4}-\d\d-\d\dT|\d\d:\d\d", text_)
        for name in ("analyst", "steward"):
            assert getattr(site.bench, name).name not in text_


def test_what_is_not_published_has_no_card(site):
    answer = site.api("analyst").get(f"/jobs/{site.submitted()}/card")
    assert (answer.status_code, answer.json["code"]) == (409, "conflict")


@pytest.mark.parametrize("settlement", ["planned", "realized"])
def test_the_card_of_an_ex_post_output_states_its_cap_and_no_figure(site, settlement, tmp_path):
    bench = site.bench
    allowed = Allowance(None, None, "a study", ex_post="10", ex_post_settlement=settlement)
    allowances.allow(bench.engine, bench.dataset, allowed, bench.steward)
    cards = []
    for figure in (1_234_567_891, 2_345_678_912):
        parameters = {"aggregation": "median", "ex_post_cap": 2.5, "tokens_per_batch": 5}
        job_id = site.api("analyst").post("/jobs", site.job(parameters=parameters)).json["id"]
        site.api("steward").post(f"/decisions/{job_id}/answer", {"yes": True, "reason": "it fits"})
        claim = leases.claim(bench.engine, uuid.UUID(job_id), 1, "worker", 60)
        leases.begin_reading(bench.engine, claim)
        from accountant.core.privacy.events import FREE

        ledger.publish(bench.engine, claim, FREE, Output("x", "0" * 64), "worker", ex_post=figure)
        for who in ("analyst", "steward"):
            card = site.api(who).get(f"/jobs/{job_id}/card").json
            assert card["ex_post_cap"] == "2.5"
            assert card["guarantee"].startswith("The output has no (ε, δ) guarantee")
            assert "cap of ε 2.5" in card["guarantee"]
            assert "neither a bound nor a mean" in card["guarantee"]
            own = {
                name: card[name]
                for name in ("guarantee", "reserved", "charged", "limits", "parameters")
            }
            assert "1.234" not in json.dumps(card)
            assert "2.345" not in json.dumps(card)
            cards.append(own)
    assert all(each == cards[0] for each in cards)


def test_the_card_of_a_corrected_job_states_the_correction(site, done):
    bench = site.bench
    before = site.api("analyst").get(f"/jobs/{done}/card").json
    other = person(bench.engine, "steward")
    event_ = {"type": "SelfComposed", "event": {"type": "ZCDp", "rho": 0.05}, "count": 10}
    entry = jobs.job(bench.engine, uuid.UUID(done), bench.auditor)["event"]
    event_ = {**entry, "count": entry["count"] * 2} if "count" in entry else event_
    found = corrections.correct(
        bench.engine, uuid.UUID(done), bench.steward, "twice as many", event=event_
    )
    yes(bench.engine, found, other, "seen")
    after = site.api("analyst").get(f"/jobs/{done}/card").json
    assert after["ledger"]["charge"]["kind"] == "REVERSAL"
    assert after["charged"]["epsilon"] > before["charged"]["epsilon"]
    assert f"as corrected by entry {after['ledger']['charge']['seq']}" in after["guarantee"]
    assert after["guarantee"].split(",")[0] != before["guarantee"].split(",")[0]


def test_units_by_column_and_replacement_are_named(site, engine, app, password_hash, publish):
    from tests.web.browsers import Site

    bench = Bench(engine, unit_column="patient", max_records_per_unit=3, neighbours="replace-one")
    bench.allow("1000")
    bench.warm()
    other = Site(app, engine, bench, password_hash)
    job_id = other.submitted()
    other.api("steward").post(f"/decisions/{job_id}/answer", {"yes": True, "reason": "it fits"})
    publish(job_id, OUTPUT)
    told = other.api("analyst").get(f"/jobs/{job_id}/card").json["guarantee"]
    assert "replacing one patient (of which at most 3 records are read)" in told


def test_the_first_digits_of_an_id_name_a_job_to_whoever_may_see_it(site, done):
    assert site.pages("analyst").get(f"/jobs/{done[:8]}").status_code == 200
    assert site.api("analyst").get(f"/jobs/{done[:8]}").json["id"] == done
    assert site.api("analyst").get(f"/jobs/{done[:13]}").json["id"] == done
    assert site.api("steward").get(f"/jobs/{done[:8]}/card?format=json").status_code == 200
    assert site.api("analyst-2").get(f"/jobs/{done[:8]}").status_code == 404
    for wrong in (done[:7], f"{done[:8]}-ffff", "ffffffff", "wordword"):
        assert site.api("analyst").get(f"/jobs/{wrong}").status_code == 404, wrong


def test_digits_that_several_jobs_share_name_none(site):
    first = uuid.UUID(site.submitted())
    copy = text(
        "INSERT INTO jobs (id, dataset_id, version_id, model_id, analyst_id, mechanism, "
        "parameters, terms,"
        " event, epsilon_alone, breakdown, purpose, request_sha256, state)"
        " SELECT :twin, dataset_id, version_id, model_id, analyst_id, mechanism, parameters, "
        "terms, event,"
        " epsilon_alone, breakdown, purpose, request_sha256, 'cancelled' FROM jobs WHERE id = :id"
    )
    twin = uuid.UUID(int=first.int ^ 1)
    with site.bench.engine.begin() as connection:
        connection.execute(copy, {"twin": twin, "id": first})
    assert site.api("analyst").get(f"/jobs/{str(first)[:8]}").status_code == 404
    assert site.api("analyst").get(f"/jobs/{first}").status_code == 200


@pytest.mark.parametrize("approves", [True, False])
def test_a_timeline_runs_forward(site, approves):
    job_id = site.submitted(tokens=10)
    body = {"yes": approves, "reason": "for a reason"}
    site.api("steward").post(f"/decisions/{job_id}/answer", body)
    job = site.api("analyst").get(f"/jobs/{job_id}").json
    assert job["created_at"] <= job["decided_at"]
    after = job["queued_at"] if approves else job["finished_at"]
    assert job["decided_at"] <= after


def test_every_text_can_be_read(site, publish):
    job_id = site.submitted()
    site.api("steward").post(f"/decisions/{job_id}/answer", {"yes": True, "reason": "it fits"})
    lines = [json.dumps({"text": f"text number {number}."}) for number in range(91)]
    publish(job_id, "\n".join(lines).encode())
    browser, address, seen = site.pages("analyst"), f"/jobs/{job_id}?after=0", []
    for _ in range(9):
        page = browser.get(address).text
        seen += re.findall(r"text number (\d+)\.", page)
        more = re.search(r'href="([^"]+)" rel="next">More texts', page)
        if more is None:
            break
        address = unescape(more[1])
    assert [int(each) for each in seen] == list(range(91))
    assert "Lines 51 to 91, the last" in page
    assert "No line is left" in browser.get(f"/jobs/{job_id}?after=500").text
    assert browser.get(f"/jobs/{job_id}?after=-1").status_code == 422


def test_a_gallery_is_a_random_sample_by_label_that_says_how_many_were_cut(site, publish):
    job_id = site.submitted()
    site.api("steward").post(f"/decisions/{job_id}/answer", {"yes": True, "reason": "it fits"})
    rows = [
        {"text": f"text number {n}.", "label": "ab"[n % 2], "complete": n % 4 > 0}
        for n in range(200)
    ]
    publish(job_id, "\n".join(map(json.dumps, rows)).encode())
    browser, samples = site.pages("analyst"), []
    for number in (1, 2):
        page = browser.get(f"/jobs/{job_id}?sample={number}").text
        samples.append([int(each) for each in re.findall(r"text number (\d+)\.", page)])
        assert "200 lines; 50 of them (25 %) were cut at their limit" in page
        assert re.search(r'>a <span class="dim">100, 50 cut</span>', page)
        assert re.search(r'>b <span class="dim">100</span>', page)
    first, second = map(set, samples)
    assert len(first) == len(second) == 50
    assert first != second
    assert max(first) > 100  # not the first fifty
    assert [n % 2 for n in samples[0]] == sorted(n % 2 for n in samples[0])
    again = re.findall(r"text number (\d+)\.", browser.get(f"/jobs/{job_id}").text)
    assert [int(each) for each in again] == samples[0]


def test_texts_are_found_by_words_and_label_and_none_is_left_out(site, publish):
    job_id = site.submitted()
    site.api("steward").post(f"/decisions/{job_id}/answer", {"yes": True, "reason": "it fits"})
    rows = [
        {"text": f"{'Blue' if n % 3 else 'green'} text {n}", "label": "ab"[n % 2]}
        for n in range(130)
    ]
    publish(job_id, "\n".join(map(json.dumps, rows)).encode())
    browser = site.pages("analyst")
    address, seen = f"/jobs/{job_id}?q=blue+TEXT&label=b", []
    while address:
        page = browser.get(address).text
        seen += [int(each) for each in re.findall(r"Blue text (\d+)", page)]
        assert "green text" not in page
        more = re.search(r'href="([^"]+)" rel="next">More texts', page)
        address = more and unescape(more[1])
    assert seen == [n for n in range(130) if n % 3 and n % 2]
    assert "No such text" in browser.get(f"/jobs/{job_id}?q=nowhere").text
    assert 'value="&lt;i&gt;"' in browser.get(f"/jobs/{job_id}?q=<i>").text


def test_two_jobs_stand_side_by_side_for_who_may_see_both(site, publish):
    ids = []
    for tokens in (10, 7):
        ids.append(site.submitted(tokens=tokens))
        site.api("steward").post(f"/decisions/{ids[-1]}/answer", {"yes": True, "reason": "it fits"})
        publish(ids[-1], json.dumps({"text": f"written with {tokens}"}).encode())
    browser = site.pages("analyst")
    shown = browser.get(f"/jobs/{ids[0]}").text
    assert f'<option value="{ids[1]}">' in shown
    assert "See how good they are, free" in shown
    page = browser.get(f"/jobs/compare?a={ids[0]}&b={ids[1]}").text
    assert re.search(r"tokens per batch</th><td[^>]*>10</td><td[^>]*>7</td>", page)
    assert "written with 10" in page
    assert "written with 7" in page
    assert browser.get(f"/jobs/compare?a={ids[0]}&b={ids[0]}").status_code == 422
    assert browser.get(f"/jobs/compare?a={ids[0]}").status_code == 404
    assert site.pages("analyst-2").get(f"/jobs/compare?a={ids[0]}&b={ids[1]}").status_code == 404


def test_figures_stand_beside_one_another_only_with_the_same_settings():
    from web.views.results import joined

    def figure(value: float, **settings: object) -> dict[str, object]:
        beside = {"real texts": {"value": 0.9, "interval": None}}
        return {
            "name": "mauve",
            "value": value,
            "ideal": "1",
            "settings": settings,
            "beside": beside,
        }

    rows = joined([[figure(0.5, k=2), figure(0.6, k=3)], [figure(0.7, k=3), figure(0.8, k=4)]])
    values = [[each and each["value"] for each in row["values"]] for row in rows]
    assert values == [[0.5, None, None, 0.9], [0.6, 0.7, None, 0.9], [None, 0.8, None, 0.9]]


def test_a_steward_without_datasets_is_led_to_the_first_one(site):
    from web.views.datasets import next_steps

    with site.app.test_request_context():
        steps = next_steps(site.bench.steward, [])
    assert {"Add a dataset": "/add-dataset"}.items() <= {
        each["title"]: each["link"] for each in steps
    }.items()
