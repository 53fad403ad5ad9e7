"""The auditor's pages and API: every entry and its price anew, refusals, checkpoints, who did
what.
"""

import hashlib
import html
import json
import re
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from sqlalchemy import Engine, event, text

from accountant.core.ledger.allowances import Allowance, allowance_body
from accountant.core.ledger.export_formats import verify_lines
from accountant.core.ledger.hash_chain import EntryKind
from accountant.core.ledger.policy import Policy
from accountant.core.ledger.registry_entries import differences
from accountant.core.privacy.events import FREE
from accountant.queries import datasets
from accountant.queries import jobs as job_queries
from accountant.transactions import allowances, corrections, leases, policies
from accountant.transactions import settlement as ledger
from accountant.transactions.ledger_log import writing
from accountant.transactions.locked_account import LockedAccount
from tests.accountant.core.ledger.test_registry_entries import FILLED
from tests.support import person, yes
from tests.web.browsers import Site
from tests.web.views.looks import noting

pytestmark = pytest.mark.slow

PAGES = (
    "/ledger",
    "/ledger/refusals",
    "/ledger/checkpoints",
    "/ledger/keys",
    "/ledger/keys.json",
    "/ledger/exports",
    "/ledger/activity",
)
LISTS = ("/ledger", "/refusals", "/checkpoints", "/activity")


@pytest.fixture
def done(site: Site, publish) -> str:
    """A job that was approved and succeeded; the newest entries of the ledger are its and the
    warm-up's.
    """
    job_id = site.submitted(tokens=10)
    site.api("steward").post(
        f"/decisions/{job_id}/answer", {"yes": True, "reason": "it fits the pilot"}
    )
    publish(job_id, b'{"text": "a"}\n')
    return job_id


@pytest.fixture
def corrected(site: Site, done: str) -> str:
    """The same with a raise of its charge, proposed by one steward and confirmed by another."""
    other = person(site.engine, "steward")
    event_json = job_queries.job(site.engine, UUID(done), site.bench.auditor)["event"]
    costly = {**event_json, "count": event_json["count"] + 3}
    found = corrections.correct(
        site.engine, UUID(done), site.bench.steward, "more was drawn", event=costly
    )
    yes(site.engine, found, other, "the log says so")
    return done


def cancelled(site: Site) -> str:
    """A job that was approved and cancelled before a worker took it: a VOID."""
    job_id = site.submitted(tokens=4)
    site.api("steward").post(f"/decisions/{job_id}/answer", {"yes": True, "reason": "it fits"})
    assert site.api("analyst").post(f"/jobs/{job_id}/cancel").status_code == 200
    return job_id


def everything(api, path: str, name: str, limit: int = 2) -> list[dict]:
    """All rows of a list, page by page."""
    rows, following, joint = [], None, "&" if "?" in path else "?"
    while True:
        more = "" if following is None else f"&cursor={following}"
        answer = api.get(f"{path}{joint}limit={limit}{more}")
        assert answer.status_code == 200, answer.text
        assert len(answer.json[name]) <= limit
        rows += answer.json[name]
        following = answer.json["next"]
        if following is None:
            return rows


def tampered(owner: Engine, table: str, statement: str, **values: object) -> None:
    """Change what is append-only, as only the owner of the database can."""
    with owner.begin() as connection:
        connection.execute(text(f"ALTER TABLE {table} DISABLE TRIGGER USER"))
        assert connection.execute(text(statement), values).rowcount == 1
        connection.execute(text(f"ALTER TABLE {table} ENABLE TRIGGER USER"))


# --- who may ------------------------------------------------------------------------------------


def test_the_ledger_is_for_stewards_and_auditors(site, done):
    name = site.bench.dataset
    pages = [*PAGES, f"/ledger/{name}/1", f"/ledger/{name}/1.json", f"/datasets/{name}/report"]
    paths = [*LISTS, f"/datasets/{name}/ledger/1", f"/datasets/{name}/report"]
    for who in ("auditor", "steward"):
        assert {site.pages(who).get(page).status_code for page in pages} == {200}
        assert {site.api(who).get(path).status_code for path in paths} == {200}
    for who in ("analyst", "administrator-1"):
        own = {"/ledger/activity"} if who.startswith("admin") else set()
        browser, api = site.pages(who), site.api(who)
        assert {browser.get(page).status_code for page in pages if page not in own} == {403}
        assert {api.get(path).status_code for path in paths if path != "/activity" or not own} == {
            403
        }
        assert 'href="/ledger"' not in browser.get("/").text
        token = browser.token("/")
        posted = browser.client.post(
            "/ledger/checkpoints", data={"csrf_token": token, "dataset": name}
        )
        assert posted.status_code == 403
    nobody = site.app.test_client()
    assert {nobody.get(page).status_code for page in pages} == {303, 302} - {302}


# --- entries ------------------------------------------------------------------------------------


def test_filters_stand_in_the_address_and_pages_go_on_by_key(site, done):
    void = cancelled(site)
    name, api = site.bench.dataset, site.api("auditor")
    all_of_it = everything(api, f"/ledger?dataset={name}", "entries")
    assert [each["seq"] for each in all_of_it] == list(range(len(all_of_it), 0, -1))
    everywhere = everything(api, "/ledger", "entries", limit=3)
    keys = [(each["dataset"], each["seq"]) for each in everywhere]
    assert len(set(keys)) == len(keys)
    assert [each["at"] for each in everywhere] == sorted(
        (each["at"] for each in everywhere), reverse=True
    )
    assert [each for each in everywhere if each["dataset"] == name] == all_of_it

    middle = all_of_it[2]
    kept = {
        f"kind={middle['kind']}": lambda each: each["kind"] == middle["kind"],
        "kind=VOID": lambda each: each["kind"] == "VOID",
        f"actor={site.actor('steward').name}": lambda each: (
            each["actor"] == site.actor("steward").name
        ),
        "mechanism=private-prediction": lambda each: each["job"] is not None,
        "mechanism=epsvec": lambda each: False,
        f"job={done}": lambda each: each["job"] == done,
        f"since={middle['at']}": lambda each: each["at"] >= middle["at"],
        f"until={middle['at']}": lambda each: each["at"] < middle["at"],
        f"kind=VOID&job={void}": lambda each: each["kind"] == "VOID" and each["job"] == void,
    }
    for query, keeps in kept.items():
        found = everything(api, f"/ledger?dataset={name}&{query}", "entries")
        assert found == [each for each in all_of_it if keeps(each)], query
        found = everything(api, f"/ledger?{query}", "entries")
        assert [each for each in found if each["dataset"] == name] == [
            e for e in all_of_it if keeps(e)
        ], query

    page = site.pages("auditor").get(f"/ledger?dataset={name}&kind=RESERVE&since=2020-01-01").text
    assert f'<option value="{name}" selected>{name}</option>' in page
    assert '<option value="RESERVE" selected>RESERVE</option>' in page
    assert 'value="2020-01-01"' in page
    assert ">COMMIT</span>" not in page


def test_a_page_keeps_its_place_while_entries_are_added(site, done):
    api, name = site.api("auditor"), site.bench.dataset
    first = api.get(f"/ledger?dataset={name}&limit=2").json
    site.bench.allow("11")
    second = api.get(f"/ledger?dataset={name}&limit=2&cursor={first['next']}").json["entries"]
    assert second[0]["seq"] == first["entries"][-1]["seq"] - 1


def test_the_pages_of_the_list_link_to_the_next_with_their_filters(site, done):
    for n in range(60):
        site.bench.allow(str(11 + n))
    browser = site.pages("auditor")
    page = browser.get(f"/ledger?dataset={site.bench.dataset}&kind=ALLOW").text
    older = re.search(r'href="([^"]+)" rel="next"', page)
    assert older is not None
    address = older[1].replace("&amp;", "&")
    assert "kind=ALLOW" in address
    assert f"dataset={site.bench.dataset}" in address
    following = browser.get(address).text
    assert following.count('class="kind kind-allow"') == 11
    assert 'rel="next"' not in following


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("cursor=5", "cursor"),
        ("kind=SPEND", "kind"),
        ("mechanism=magic", "mechanism"),
        ("since=yesterday", "since"),
        ("limit=0", "limit"),
    ],
)
def test_a_wrong_filter_is_named(site, query, field):
    answer = site.api("auditor").get(f"/ledger?{query}")
    assert answer.status_code == 422
    assert answer.json["problems"][0]["field"] == field


def test_no_list_asks_the_database_once_a_row(site, done):
    """However many rows a page has, it makes the same number of statements."""
    for _ in range(3):
        refused = site.submitted(tokens=4)
        site.api("steward").post(f"/decisions/{refused}/answer", {"yes": False, "reason": "no"})
        site.bench.allow("12")
        site.api("auditor").post(f"{site.dataset}/checkpoints")
    api = site.api("auditor")
    api.get("/ledger")  # a token's first use is noted
    for path, name in zip(LISTS, ("entries", "refusals", "checkpoints", "activity"), strict=True):
        counts = set()
        for limit in (1, 3):
            statements: list[str] = []
            note = noting(statements)
            event.listen(Engine, "before_cursor_execute", note)
            assert len(api.get(f"{path}?limit={limit}").json[name]) == limit
            event.remove(Engine, "before_cursor_execute", note)
            counts.add(len(statements))
        assert len(counts) == 1, path


# --- one entry ----------------------------------------------------------------------------------


def test_every_entry_comes_out_as_it_was_charged(site, corrected):
    cancelled(site)
    api, browser, name = site.api("auditor"), site.pages("auditor"), site.bench.dataset
    kinds = set()
    for listed in everything(api, f"/ledger?dataset={name}", "entries"):
        found = api.get(f"/datasets/{name}/ledger/{listed['seq']}").json
        kinds.add(found["kind"])
        assert found["price"]["equal"], found["price"]
        assert found["chain"]["problems"] == []
        assert (
            hashlib.sha256(found["hashed"].encode()).hexdigest() == listed["hash"] == found["hash"]
        )
        priced = found["kind"] not in ("VOID", "REGISTER", "POLICY")
        if priced:
            assert len(found["price"]["figures"]) >= 4
        page = browser.get(f"/ledger/{name}/{listed['seq']}").text
        assert "Differs" not in page
        assert ("Equal" in page) == priced
    assert kinds == {"ALLOW", "RESERVE", "COMMIT", "VOID", "REVERSAL", "REGISTER", "POLICY"}
    account = datasets.dataset(site.engine, name, site.bench.auditor)["account"]
    newest = api.get(f"/ledger?dataset={name}&limit=1").json["entries"][0]["seq"]
    after = api.get(f"/datasets/{name}/ledger/{newest}").json["after"]
    assert after["problem"] is None
    assert after["account"] == account


def test_an_entry_says_who_and_links_its_job_and_proposal(site, corrected):
    api, name = site.api("auditor"), site.bench.dataset
    reversal = api.get(f"/ledger?dataset={name}&kind=REVERSAL").json["entries"][0]["seq"]
    found = api.get(f"/datasets/{name}/ledger/{reversal}").json
    assert [each["kind"] for each in found["job_entries"]] == ["RESERVE", "COMMIT", "REVERSAL"]
    assert found["body"]["proposed_by"] == site.bench.steward.name
    assert found["decision"]
    page = site.pages("auditor").get(f"/ledger/{name}/{reversal}").text
    assert f"/jobs/{corrected}" in page
    assert "more was drawn" in page
    assert "the log says so" in page


def test_the_bytes_of_an_entry_give_its_hash(site, done):
    name = site.bench.dataset
    listed = site.api("auditor").get(f"/ledger?dataset={name}&limit=1").json["entries"][0]
    file = site.pages("auditor").get(f"/ledger/{name}/{listed['seq']}.json")
    assert hashlib.sha256(file.data).hexdigest() == listed["hash"]
    assert site.bench.analyst.name not in file.text  # as it is hashed: commitments


def test_a_changed_charge_differs_in_plain_words(site, done, owner):
    """An owner of the database lowers what a job is charged."""
    name, api = site.bench.dataset, site.api("auditor")
    listed = api.get(f"/ledger?dataset={name}&kind=RESERVE&job={done}").json["entries"][0]
    stated = listed["body"]["costs"]["renyi"]["main"]
    lower = (
        "UPDATE entries SET document = replace(document, :old, :new) WHERE job_id = :job AND "
        "kind = 'RESERVE'"
    )
    tampered(owner, "entries", lower, old=f'"main":"{stated}"', new='"main":"1"', job=done)
    found = api.get(f"/datasets/{name}/ledger/{listed['seq']}").json
    assert not found["price"]["equal"]
    wrong = [each for each in found["price"]["figures"] if not each["equal"]]
    assert [each["name"] for each in wrong] == ["cost renyi"]
    assert wrong[0]["charged"] == "0.000000001"
    assert found["chain"]["problems"] == ["its content does not give its hash"]
    assert found["after"]["account"] is None
    assert "costs are not those" in found["after"]["problem"]
    page = site.pages("auditor").get(f"/ledger/{name}/{listed['seq']}").text
    assert "Differs: 1 of 5 figures" in page
    assert "its content does not give its hash" in page


def test_a_changed_request_differs_in_its_event(site, done, owner):
    """A higher temperature stated than was priced: the event no longer follows from the
    parameters.
    """
    name, api = site.bench.dataset, site.api("auditor")
    lower = (
        "UPDATE entries SET document = replace(document, :old, :new) WHERE job_id = :job AND "
        "kind = 'RESERVE'"
    )
    tampered(owner, "entries", lower, old='"temperature":1.5', new='"temperature":3', job=done)
    listed = api.get(f"/ledger?dataset={name}&kind=RESERVE&job={done}").json["entries"][0]
    found = api.get(f"/datasets/{name}/ledger/{listed['seq']}").json
    assert {each["name"] for each in found["price"]["figures"] if not each["equal"]} >= {
        "event",
        "cost renyi",
    }


def test_a_request_that_has_no_price_any_more_says_so(site, done, owner):
    name, api = site.bench.dataset, site.api("auditor")
    odd = (
        "UPDATE entries SET document = replace(document, :old, :new) WHERE job_id = :job AND "
        "kind = 'RESERVE'"
    )
    tampered(
        owner,
        "entries",
        odd,
        old='"mechanism":"private-prediction"',
        new='"mechanism":"magic"',
        job=done,
    )
    listed = api.get(f"/ledger?dataset={name}&kind=RESERVE&job={done}").json["entries"][0]
    found = api.get(f"/datasets/{name}/ledger/{listed['seq']}").json
    assert not found["price"]["equal"]
    assert "unknown mechanism 'magic'" in found["price"]["problem"]
    assert (
        "It could not be computed."
        in site.pages("auditor").get(f"/ledger/{name}/{listed['seq']}").text
    )


def test_a_wrong_limit_differs(site, owner):
    name, api = site.bench.dataset, site.api("auditor")
    seq = api.get(f"/ledger?dataset={name}&kind=ALLOW").json["entries"][-1]["seq"]
    stated = api.get(f"/datasets/{name}/ledger/{seq}").json["body"]["filters"][0]["limit"]["main"]
    raised = (
        'UPDATE entries SET document = replace(document, :old, \'"main":"99000000000"\') '
        f"WHERE seq = {seq} AND dataset_id = (SELECT id FROM datasets WHERE name = :name)"
    )
    tampered(owner, "entries", raised, old=f'"main":"{stated}"', name=name)
    found = api.get(f"/datasets/{name}/ledger/{seq}").json
    wrong = [each for each in found["price"]["figures"] if not each["equal"]]
    assert [each["name"] for each in wrong] == ["limit renyi"]
    assert wrong[0]["charged"] == "99"


@pytest.mark.parametrize("seq", ["0", "9999", "9" * 30, "x", "-1", "1.5"])
def test_an_entry_that_there_is_not(site, seq):
    assert (
        site.api("auditor").get(f"/datasets/{site.bench.dataset}/ledger/{seq}").status_code == 404
    )
    assert site.pages("auditor").get(f"/ledger/{site.bench.dataset}/{seq}").status_code == 404


# --- refusals, checkpoints, keys ----------------------------------------------------------------


def test_refusals_say_what_was_binding_asked_and_left(site):
    site.submitted()  # it waits, and is none
    by_steward = site.submitted(tokens=5)
    site.api("steward").post(
        f"/decisions/{by_steward}/answer", {"yes": False, "reason": "not a part of this study"}
    )
    too_much = site.api("analyst").post("/jobs", site.job(5_000)).json
    api, name = site.api("auditor"), site.bench.dataset
    found = everything(api, f"/refusals?dataset={name}", "refusals", limit=1)
    assert [each["job"] for each in found] == [too_much["id"], by_steward]
    assert found[0]["refusal"] == too_much["refusal"]
    assert found[0]["refusal"]["largest"]
    for query, jobs in {
        "cap=steward": [by_steward],
        f"cap={too_much['refusal']['cap']}": [too_much["id"]],
        f"analyst={site.bench.analyst.name}": [too_much["id"], by_steward],
        "analyst=nobody": [],
        "mechanism=epsvec": [],
    }.items():
        kept = everything(api, f"/refusals?dataset={name}&{query}", "refusals")
        assert [each["job"] for each in kept] == jobs, query
    page = site.pages("auditor").get(f"/ledger/refusals?dataset={name}").text
    assert "not a part of this study" in page
    assert too_much["refusal"]["asked"] in page
    assert too_much["refusal"]["left"] in page
    assert f"tokens per batch&nbsp;= {too_much['refusal']['largest']:,}" in page


def test_checkpoints_are_checked_as_the_page_is_made(site, done, owner):
    browser, api, name = site.pages("auditor"), site.api("auditor"), site.bench.dataset
    browser.post("/ledger/checkpoints", "/ledger/checkpoints", dataset=name)
    site.bench.allow("12")
    api.post(f"{site.dataset}/checkpoints")
    found = everything(api, f"/checkpoints?dataset={name}", "checkpoints", limit=1)
    assert len(found) == 2
    assert {each["problem"] for each in found} == {None}
    page = browser.get(f"/ledger/checkpoints?dataset={name}").text
    assert page.count("signature and head hold") == 2
    kept = browser.get(f"/ledger/checkpoints/{found[0]['reference']}.json")
    assert json.loads(kept.text)["checkpoint"]["head"] == found[0]["head"]

    moved = (
        "UPDATE checkpoints SET document = replace(document, :old, :new) WHERE seq = :seq AND "
        "dataset_id = "
    )
    moved += "(SELECT id FROM datasets WHERE name = :name)"
    values = {"old": found[0]["head"], "new": "0" * 64, "seq": found[0]["seq"], "name": name}
    tampered(owner, "checkpoints", moved, **values)
    rehashed = "UPDATE entries SET hash = :new WHERE seq = :seq AND dataset_id = "
    rehashed += "(SELECT id FROM datasets WHERE name = :name)"
    tampered(owner, "entries", rehashed, new="1" * 64, seq=found[1]["seq"], name=name)
    problems = [
        each["problem"] for each in api.get(f"/checkpoints?dataset={name}").json["checkpoints"]
    ]
    assert problems == [
        "the signature of the checkpoint does not hold",
        f"entry {found[1]['seq']} has another hash than the one that was signed",
    ]
    assert browser.get(f"/ledger/checkpoints?dataset={name}").text.count("does not hold") >= 2


def test_keys_with_the_times_in_which_they_sign(site):
    browser = site.pages("auditor")
    keys = site.api("auditor").get("/keys").json
    assert json.loads(browser.get("/ledger/keys.json").text)["keys"] == keys["keys"]
    page = browser.get("/ledger/keys").text
    assert keys["keys"][-1]["key"]["public"] in page
    assert "in use" in page


# --- who did what -------------------------------------------------------------------------------


def test_who_did_what_holds_every_act(site, corrected):
    name, bench = site.bench.dataset, site.bench
    void = cancelled(site)
    refused = site.submitted(tokens=5)
    site.api("steward").post(
        f"/decisions/{refused}/answer", {"yes": False, "reason": "not a part of this study"}
    )
    too_much = site.api("analyst").post("/jobs", site.job(5_000)).json["id"]
    offered = site.submitted(tokens=6)
    smaller = {"parameters": {"tokens_per_batch": 2}, "reason": "so much"}
    offer = site.api("steward").post(f"/jobs/{offered}/offer", smaller).json["id"]
    accepted = (
        site.api("analyst").post(f"/decisions/{offer}/answer", {"yes": True}).json["made_job"]
    )
    policies.set_policy(site.engine, name, Policy(solo=True), bench.steward)
    site.pages("auditor").get(f"/datasets/{name}/ledger.jsonl?public=true")
    site.api("auditor").post(f"{site.dataset}/checkpoints")
    site.pages("analyst").get(f"/jobs/{corrected}/result")

    found = everything(site.api("auditor"), f"/activity?dataset={name}", "activity", limit=4)
    acts = {(each["actor"], each["action"], each["job"]) for each in found}
    steward, analyst, auditor = bench.steward.name, bench.analyst.name, bench.auditor.name
    assert acts >= {
        (analyst, "job submitted", corrected),
        (steward, "job approved", corrected),
        (analyst, "job cancelled", void),
        (analyst, "reservation voided", void),
        (steward, "job refused", refused),
        ("the account", "job refused", too_much),
        (steward, "allowance set", None),
        (steward, "correction asked for", None),
        (steward, "offer asked for", None),
        (analyst, "offer accepted", None),
        (steward, "policy set", None),
        (steward, "dataset registered", None),
        (auditor, "ledger exported", None),
        (auditor, "checkpoint signed", None),
        (analyst, "result downloaded", corrected),
    }
    assert {each["action"] for each in found if each["job"] == corrected} >= {"charge corrected"}
    assert [each["at"] for each in found] == sorted((each["at"] for each in found), reverse=True)
    assert len({(each["at"], each["source"], each["key"]) for each in found}) == len(found)
    answered = next(each for each in found if each["action"] == "offer accepted")
    assert answered["detail"] == {"job": offered, "made_job": accepted}
    reasons = {each["job"]: each["reason"] for each in found if each["action"] == "job refused"}
    assert reasons[refused] == "not a part of this study"
    exported = next(each for each in found if each["action"] == "ledger exported")
    assert exported["detail"] == {"format": "jsonl", "public": True}


def test_who_did_what_is_filtered_and_paged_by_key(site, corrected):
    cancelled(site)
    api, name = site.api("auditor"), site.bench.dataset
    whole = everything(api, f"/activity?dataset={name}", "activity", limit=200)
    for limit in (1, 3):
        assert everything(api, f"/activity?dataset={name}", "activity", limit=limit) == whole
    middle, steward = whole[len(whole) // 2], site.bench.steward.name
    for query, keeps in {
        f"actor={steward}": lambda each: each["actor"] == steward,
        "what=decisions": lambda each: (
            each["action"] in ("job approved", "job refused") or each["kind"] == "decision"
        ),
        "what=ledger": lambda each: each["kind"] == "entry",
        f"until={middle['at'].replace('+', '%2B')}": lambda each: each["at"] < middle["at"],
        f"since={middle['at'].replace('+', '%2B')}": lambda each: each["at"] >= middle["at"],
    }.items():
        found = everything(api, f"/activity?dataset={name}&{query}", "activity", limit=3)
        assert found == [each for each in whole if keeps(each)], query
        assert found, query


def test_of_peoples_accounts_stewards_see_nothing_and_administrators_all_of_that(site, done):
    site.pages("auditor").get("/")
    seen = {
        who: everything(site.api(who), "/activity", "activity", limit=200)
        for who in ("auditor", "steward", "administrator-1")
    }
    accounts = {"account", "token"}
    assert {each["kind"] for each in seen["auditor"]} > accounts - {"token"} | {
        "job",
        "entry",
        "dataset",
    }
    assert not accounts & {each["kind"] for each in seen["steward"]}
    assert "job" in {each["kind"] for each in seen["steward"]}
    assert not {each["kind"] for each in seen["administrator-1"]} & {
        "job",
        "entry",
        "dataset",
        "decision",
    }
    assert seen["administrator-1"]
    assert site.api("analyst").get("/activity").status_code == 403


# --- the report ---------------------------------------------------------------------------------


def test_the_report_states_what_is_true_now(site, corrected):
    cancelled(site)
    name = site.bench.dataset
    report = site.api("auditor").get(f"/datasets/{name}/report").json
    account = datasets.dataset(site.engine, name, site.bench.auditor)
    assert report["dataset"]["account"] == account["account"]
    newest = site.api("auditor").get(f"/ledger?dataset={name}&limit=1").json["entries"][0]
    assert (report["entries"], report["head"]) == (newest["seq"], newest["hash"])
    assert sum(report["by_kind"].values()) == report["entries"]
    assert report["verification"]["checked"]
    assert report["verification"]["problems"] == []
    assert len(report["corrections"]) == 1
    assert len(report["allowances"]) == report["by_kind"]["ALLOW"]
    page = site.pages("auditor").get(f"/datasets/{name}/report?check=true").text
    for part in (
        "The ledger holds.",
        newest["hash"],
        "more was drawn",
        site.bench.steward.name,
        "By analyst",
    ):
        assert part in page
    assert "version 1 of the data was found right" in page
    assert "which never comes here" not in page, "its data is here"
    assert all(sentence.count(". ") == 0 for sentence in report["definitions"].values())
    jobs = {each["job_name"] for each in report["newest"] if each["job"]}
    assert jobs
    assert all(html.escape(each) in page for each in jobs)
    public = site.pages("auditor").get(f"/datasets/{name}/report?public=true").text
    assert not any(html.escape(each) in public for each in jobs)


def test_the_report_says_where_the_ledger_does_not_hold(site, done, owner):
    name = site.bench.dataset
    lower = (
        "UPDATE entries SET document = replace(document, :old, :new) WHERE job_id = :job AND "
        "kind = 'RESERVE'"
    )
    tampered(
        owner, "entries", lower, old='"tokens_per_batch":10', new='"tokens_per_batch":9', job=done
    )
    report = site.api("auditor").get(f"/datasets/{name}/report").json
    assert report["verification"]["problems"]
    page = site.pages("auditor").get(f"/datasets/{name}/report").text
    assert "The ledger does not hold." not in page
    verdict = re.search(r'hx-get="([^"]+)" hx-trigger="load"', page)[1]  # the page asks by itself
    part = site.pages("auditor").client.get(verdict, headers={"HX-Request": "true"}).text
    assert "The ledger does not hold." in part
    assert "<h1>" not in part
    assert f'<noscript> <a href="{verdict}">' in page
    assert "The ledger does not hold." in site.pages("auditor").get(verdict).text


def test_the_report_is_bounded(site, monkeypatch):
    from accountant.queries import audit_report

    for n in range(7):
        site.bench.allow(str(11 + n))
    monkeypatch.setattr(audit_report, "NEWEST", 3)
    monkeypatch.setattr(audit_report, "MOST_VERIFIED", 5)
    report = site.api("auditor").get(f"{site.dataset}/report").json
    assert [each["seq"] for each in report["newest"]] == [report["entries"] - n for n in range(3)]
    assert not report["verification"]["checked"]
    assert report["verification"]["problems"] == []
    page = site.pages("auditor").get(f"/datasets/{site.bench.dataset}/report?check=true").text
    assert f"The newest 3 of {report['entries']} entries" in page
    assert "was not verified" in page


def test_a_report_for_publication_names_nobody(site, corrected):
    refused = site.submitted(tokens=5)
    site.api("steward").post(
        f"/decisions/{refused}/answer", {"yes": False, "reason": "a secret reason"}
    )
    policies.set_policy(
        site.engine,
        site.bench.dataset,
        Policy(analysts=(site.bench.analyst.name,)),
        site.bench.steward,
    )
    private = [
        site.bench.steward.name,
        site.bench.analyst.name,
        "a secret reason",
        "more was drawn",
        "it fits",
    ]
    full = site.pages("auditor").get(f"/datasets/{site.bench.dataset}/report").text
    assert all(each in full for each in private[:4])
    answer = site.api("auditor").get(f"/datasets/{site.bench.dataset}/report?public=true")
    page = site.pages("auditor").get(f"/datasets/{site.bench.dataset}/report?public=true").text
    content = page[page.index('<div class="report">') :]
    for each in private:
        assert each not in answer.text
        assert each not in content


@pytest.mark.parametrize("settlement", ["planned", "realized"])
def test_a_report_for_publication_tells_no_realized_cost(site, settlement):
    """Realized costs of ex-post jobs are for stewards and auditors, with the warning beside
    them.
    """
    bench, units = site.bench, 1_234_567_891
    allowed = Allowance(None, None, "a study", ex_post="3", ex_post_settlement=settlement)
    allowances.allow(site.engine, bench.dataset, allowed, bench.steward)
    median = {"aggregation": "median", "ex_post_cap": 2.5, "tokens_per_batch": 5}
    job_id = UUID(site.api("analyst").post("/jobs", site.job(parameters=median)).json["id"])
    yes(site.engine, job_id, bench.steward, "it fits the study")
    claim = leases.claim(site.engine, job_id, 1, "worker", 60)
    assert claim is not None
    leases.begin_reading(site.engine, claim)
    output = ledger.Output("x", "0" * 64)
    ledger.publish(site.engine, claim, FREE, output, "worker", ex_post=units)
    refused = (
        site.api("analyst").post("/jobs", site.job(parameters=median | {"ex_post_cap": 2.9})).json
    )
    if settlement == "realized":  # what is left decides when a steward says yes
        yes(site.engine, UUID(refused["id"]), bench.steward, "let us see")
        refused = site.api("steward").get(f"/jobs/{refused['id']}").json
    assert refused["refusal"]["cap"] == "ex-post"

    full = site.api("auditor").get(f"{site.dataset}/report").json
    assert full["realized_ex_post"]["epsilon"] == "1.234567891"
    assert (
        job_queries.EX_POST_NOTE
        in site.pages("auditor").get(f"/datasets/{bench.dataset}/report").text
    )
    answer = site.api("auditor").get(f"{site.dataset}/report?public=true")
    page = site.pages("auditor").get(f"/datasets/{bench.dataset}/report?public=true").text
    for figure in ("1.2345", "1.235", "1.765"):  # the cost, and what it leaves of 3
        assert figure not in answer.text
        assert figure not in page
    assert answer.json["realized_ex_post"] is None
    shown = [each["name"] for each in answer.json["spending"]["measures"]]
    assert ("ex_post" in shown) == (settlement == "planned")


def test_days_and_times_of_a_filter():
    from flask import Flask

    from web.api.parsing import read_when

    app = Flask(__name__)
    with app.test_request_context("/?since=2026-01-31&until=2026-01-31"):
        since, until = read_when("since"), read_when("until")
        assert since == datetime(2026, 1, 31, tzinfo=UTC)
        assert until == since + timedelta(days=1)


def test_entries_of_one_moment_are_each_on_one_page(site):
    """Entries of one transaction have one time: what follows the last row is told by more than
    that.
    """
    job_id = UUID(site.submitted(tokens=4))
    yes(site.engine, job_id, site.bench.steward, "it fits")
    with writing(site.engine) as connection:
        locked = LockedAccount(connection, site.bench.dataset)
        void = {"outcome": "cancelled", "reason": "a test", "read": False}
        locked.post(EntryKind.VOID, site.bench.steward.name, job_id, void)
        # acts of one moment go by what they are: these come after the VOID
        for epsilon in ("11", "12"):
            body = allowance_body(
                Allowance(epsilon, "0.0000029053", "more"), locked.books, "add-remove"
            )
            locked.post(EntryKind.ALLOW, site.bench.steward.name, None, body)
        locked.write()
    api = site.api("auditor")
    for path, name, key in (
        ("/ledger", "entries", "hash"),
        ("/activity?what=ledger", "activity", "object"),
    ):
        whole = [each[key] for each in everything(api, path, name, limit=200)]
        assert [each[key] for each in everything(api, path, name, limit=1)] == whole


def test_an_entry_for_the_registry_is_asked_for_on_one_page(site, done):
    page, auditor = f"/datasets/{site.bench.dataset}/registry", site.pages("auditor")
    assert page in auditor.get(f"/ledger/exports?dataset={site.bench.dataset}").text
    answers = {**FILLED, "data_curators": "a hospital\na town", "registry_authors": "anna"}
    wrong = auditor.post(page, page, **{**answers, "intended_use": ""})
    assert wrong.status_code == 422
    assert 'id="problem-intended_use"' in wrong.text
    assert "Letters like those of the wards." in wrong.text  # what was typed stays
    made = json.loads(auditor.post(page, page, **answers).text)
    export = (
        site.api("auditor").get(f"/datasets/{site.bench.dataset}/ledger/export?public=true").text
    )
    assert differences(made, verify_lines(export.split("\n")[:-1])) == []
    assert made["deployment"]["basic"]["data_curators"] == ["a hospital", "a town"]
    unchosen = auditor.post(page, page, **{**answers, "data_product_type": ""})
    assert (unchosen.status_code, "problem-data_product_type" in unchosen.text) == (422, True)


def test_a_ledger_that_no_page_can_verify_gets_its_registry_entry_from_the_command(
    site, monkeypatch
):
    monkeypatch.setattr("accountant.queries.audit_report.MOST_VERIFIED", 1)
    site.bench.allow("11")
    page, auditor = f"/datasets/{site.bench.dataset}/registry", site.pages("auditor")
    shown = auditor.get(page)
    assert shown.status_code == 409
    assert f"exchequer registry export {site.bench.dataset}" in html.unescape(shown.text)
    sent = auditor.post(page, "/ledger/exports", **FILLED)
    assert sent.status_code == 409


def test_no_two_parts_of_the_exports_page_have_one_name(site):
    auditor = site.pages("auditor")
    auditor.get(f"{site.dataset}/ledger.jsonl")
    page = auditor.get(f"/ledger/exports?dataset={site.bench.dataset}").text
    assert "Newest exports" in page
    headings = dict(re.findall(r'<h2 id="([^"]+)">([^<]+)</h2>', page))
    named = [
        headings[each]
        for each in re.findall(r'aria-labelledby="([^"]+)"', page)
        if each in headings
    ]
    named += re.findall(r'role="region" aria-label="([^"]+)"', page)
    assert len(named) == len(set(named)) > 1


def test_of_many_datasets_a_name_is_typed(site, monkeypatch):
    monkeypatch.setattr("accountant.queries.ledgers.MOST_NAMES", 0)
    auditor, name = site.pages("auditor"), site.bench.dataset
    for page in ("ledger", "ledger/refusals", "ledger/checkpoints", "ledger/activity"):
        shown = auditor.get(f"/{page}?dataset={name}").text
        assert re.search(rf'<input class="form-control" name="dataset" value="{name}"', shown), page
    auditor.post("/ledger/checkpoints", "/ledger/checkpoints", dataset=name)
    assert f"A checkpoint of {name} at entry" in auditor.get("/ledger/checkpoints").text
    auditor.post("/ledger/checkpoints", "/ledger/checkpoints", dataset="")
    assert "note-bad" in auditor.get("/ledger/checkpoints").text
