"""Rules for every route of the API: methods, media types, ETags, keys and limits."""

import json
import re
import threading
import time
from datetime import UTC, datetime

import pytest
from flask import Flask
from sqlalchemy import text

from accountant.settings import Settings
from tests.web.api.conformance import PROBLEM
from tests.web.browsers import Api
from web.api.openapi import routes
from web.app import create_app
from web.errors import CODES

pytestmark = pytest.mark.slow

# --- problems -----------------------------------------------------------------------------------


def is_problem(answer, status: int) -> None:
    assert answer.status_code == status, answer.text
    assert answer.mimetype == PROBLEM
    assert set(answer.json) == {"type", "title", "status", "detail", "code", "problems"}
    assert answer.json["status"] == status
    assert answer.json["code"] == CODES[status]
    assert answer.json["type"] == f"/api/docs#problem-{CODES[status]}"
    assert answer.json["detail"]


def test_each_error_is_a_problem(site, monkeypatch):
    from accountant.queries import models

    api = site.api("analyst")
    is_problem(Api(site.app, None).get("/me"), 401)
    is_problem(api.get("/users"), 403)
    is_problem(api.get("/nothing"), 404)
    wrong_method = api.client.delete("/api/v1/jobs", headers=api.headers)
    is_problem(wrong_method, 405)
    assert {"GET", "POST"} <= {each.strip() for each in wrong_method.headers["Allow"].split(",")}
    is_problem(api.raw("/jobs", b'{"a": "' + b"x" * 2**20 + b'"}'), 413)
    for body in (b"{", b"\xff", b"[]", b"null", b""):
        is_problem(api.raw("/jobs", body), 422)
    monkeypatch.setattr(models, "models", lambda *_, **__: 1 / 0)
    is_problem(api.get("/models"), 500)


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "x"]
)
def test_a_body_that_is_sent_as_something_else_is_415(site, kind):
    api = site.api("analyst")
    body = json.dumps(site.job()).encode()
    answer = api.client.post(
        "/api/v1/jobs", data=body, headers=api.headers | {"Content-Type": kind}
    )
    is_problem(answer, 415)
    for kind_of_json in (
        "application/json",
        "application/json; charset=utf-8",
        "application/merge-patch+json",
    ):
        headers = api.headers | {"Content-Type": kind_of_json}
        assert api.client.post("/api/v1/jobs", data=body, headers=headers).status_code == 201


# --- methods ------------------------------------------------------------------------------------


def test_head_answers_as_get_does_without_its_body(site):
    api = site.api("steward")
    for path in (
        "/me",
        "/jobs",
        site.dataset,
        f"{site.dataset}/ledger",
        f"{site.dataset}/ledger/export",
        "/no",
    ):
        got = api.get(path)
        head = api.client.head(f"/api/v1{path}", headers=api.headers)
        assert head.status_code == got.status_code
        assert head.data == b""
        for name in ("Content-Type", "ETag"):
            assert head.headers.get(name) == got.headers.get(name), (path, name)


def test_options_tells_the_methods_of_each_route_to_everybody(site):
    client = site.app.test_client()
    methods: dict[str, set[str]] = {}
    for route in routes(site.app):
        methods.setdefault(route.path, {"OPTIONS"}).add(route.method)
    for path, allowed in methods.items():
        answer = client.options(re.sub(r"\{[^}]+\}", "x", path))
        assert answer.status_code == 204, path
        assert answer.data == b""
        told = {each.strip() for each in answer.headers["Allow"].split(",")}
        shared = path == "/api/v1/notices/events"  # an address that is also one of {id}
        assert told - {"HEAD"} == allowed | ({"DELETE"} if shared else set()), path


# --- ETags --------------------------------------------------------------------------------------


def test_an_answer_that_did_not_change_is_not_sent_again(site):
    api, job = site.api("analyst"), site.submitted()
    for path in (f"/jobs/{job}", "/jobs", site.dataset, "/openapi.json"):
        first = api.get(path)
        tag = first.headers["ETag"]
        assert re.fullmatch(r'"[0-9a-f]{40}"', tag), "strong"
        again = api.client.get(f"/api/v1{path}", headers=api.headers | {"If-None-Match": tag})
        assert (again.status_code, again.data, again.headers["ETag"]) == (304, b"", tag), path
        other = api.client.get(f"/api/v1{path}", headers=api.headers | {"If-None-Match": '"other"'})
        assert (other.status_code, other.data) == (200, first.data)
    before = api.get(f"/jobs/{job}").headers["ETag"]
    api.post(f"/jobs/{job}/cancel")
    changed = api.client.get(f"/api/v1/jobs/{job}", headers=api.headers | {"If-None-Match": before})
    assert changed.status_code == 200
    assert changed.json["state"] == "cancelled"


def test_no_shared_cache_gives_on_what_one_person_may_see(site):
    for path in ("/me", site.dataset, "/jobs"):
        headers = site.api("analyst").get(path).headers
        assert "private" in headers["Cache-Control"]
        assert "Authorization" in headers["Vary"]
    problem = site.api("analyst").get("/users")
    assert "no-store" in problem.headers["Cache-Control"]


def test_a_policy_is_not_changed_over_somebody_s_head(site):
    api, path = site.api("steward"), f"{site.dataset}/policy"

    def put(policy, **headers):
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return api.client.put(f"/api/v1{path}", json=policy, headers=api.headers | named)

    read = api.get(path)
    assert put(read.json | {"approval_days": 3}, If_Match=read.headers["ETag"]).status_code == 200
    late = put(read.json | {"solo": True}, If_Match=read.headers["ETag"])
    is_problem(late, 412)
    now = api.get(path)
    assert (now.json["approval_days"], now.json["solo"]) == (3, False)
    assert put(now.json | {"approval_days": 4}, If_Match="*").status_code == 200
    assert put(now.json | {"approval_days": 5}).status_code == 200, "without If-Match: as before"


#: What servers make of "tag": nginx and Cloudflare, Apache (two modules, two manners), Caddy,
#: Jetty, a list.
MARKED = (
    '"{}"', 'W/"{}"', "{}", '"{}-gzip"', 'W/"{}-gzip"', '"{}-br"', '"{}--gzip"',
    '"{}-zstd"', '"{}-deflate"',
    '"other", W/"{}"', '"{}-gzip", "other"',
)  # fmt: skip


@pytest.mark.parametrize("marked", MARKED)
def test_a_tag_that_a_proxy_marked_is_the_same_tag(site, marked):
    api, path = site.api("steward"), f"/api/v1{site.dataset}/policy"
    read = api.client.get(path, headers=api.headers)
    tag = marked.format(read.headers["ETag"].strip('"'))
    seen = api.client.get(path, headers=api.headers | {"If-None-Match": tag})
    assert (seen.status_code, seen.data) == (304, b"")
    days = {"approval_days": (read.json["approval_days"] or 0) % 9 + 1}
    for status in (200, 412):  # the policy is another after the first change
        done = api.client.put(path, json=read.json | days, headers=api.headers | {"If-Match": tag})
        assert done.status_code == status, done.text


@pytest.mark.parametrize(
    "wrong", ['"{}x"', '"x{}"', 'W/"{}-gzipped"', '"{}-gzip-gzip-x"', '"-gzip"', 'W/""']
)
def test_another_tag_is_another_however_it_is_marked(site, wrong):
    api, path = site.api("steward"), f"/api/v1{site.dataset}/policy"
    read = api.client.get(path, headers=api.headers)
    headers = api.headers | {"If-Match": wrong.format(read.headers["ETag"].strip('"'))}
    is_problem(api.client.put(path, json=read.json, headers=headers), 412)


def test_of_two_who_change_one_policy_at_once_the_second_is_told(site):
    """The ETag is compared under the policy's lock, so the second to change it sees the first
    change.
    """
    api, path = site.api("steward"), f"{site.dataset}/policy"
    read = api.get(path)
    answers = []

    def change() -> None:
        headers = api.headers | {"If-Match": read.headers["ETag"]}
        answers.append(
            api.client.put(f"/api/v1{path}", json=read.json | {"solo": True}, headers=headers)
        )

    with site.engine.begin() as connection:  # another change, on its way
        lock = text("SELECT id FROM datasets WHERE name = :name FOR UPDATE")
        connection.execute(lock, {"name": site.bench.dataset})
        thread = threading.Thread(target=change)
        thread.start()
        # of every role's sessions
        waiting = text("SELECT count(*) FROM pg_locks WHERE NOT granted")
        while not connection.execute(waiting).scalar_one() and thread.is_alive():
            time.sleep(0.02)
        policy = json.dumps(read.json | {"approval_days": 9})
        change_it = text("UPDATE datasets SET policy = CAST(:policy AS jsonb) WHERE name = :name")
        connection.execute(change_it, {"policy": policy, "name": site.bench.dataset})
    thread.join()
    is_problem(answers[0], 412)
    now = api.get(path).json
    assert (now["approval_days"], now["solo"]) == (9, False)


# --- idempotency keys ---------------------------------------------------------------------------


def counts(site) -> dict[str, int]:
    steward = site.api("steward")
    dataset = steward.get(site.dataset).json
    return {
        "versions": len(dataset["versions"]),
        "entries": dataset["entries"],
        "models": len(steward.get("/models").json["models"]),
        "corpora": len(steward.get("/corpora").json["corpora"]),
        "datasets": len(steward.get("/datasets").json["datasets"]),
        "decisions": len(steward.get("/decisions").json["decisions"]),
    }


def makers(site, name: str) -> list:
    return [
        ("/models", {"name": name, "path": "/m", "trained_on": "public"}, {"trained_on": "other"}),
        (
            "/corpora",
            {"name": name, "uri": "/c.csv", "statement": "public"},
            {"statement": "other"},
        ),
        ("/datasets", {"name": name, "uri": "/d.csv"}, {"uri": "/e.csv"}),
        (f"{site.dataset}/versions", {"uri": f"/{name}.csv"}, {"uri": "/other.csv"}),
        (f"{site.dataset}/allowance", allowance("11"), {"epsilon": "12"}),
    ]


def allowance(epsilon: str) -> dict[str, str]:
    return {"epsilon": epsilon, "delta": "0.0000029053", "reason": "the board"}


def test_what_is_sent_twice_with_one_key_is_made_once(site):
    api = site.api("steward")
    for number, (path, body, change) in enumerate(makers(site, "once-a")):
        key = {"Idempotency_Key": f"key-{number}"}
        first = api.post(path, body, **key)
        made = counts(site)
        again = api.post(path, body, **key)
        assert (first.status_code, again.status_code) in ((201, 201), (200, 200)), (
            path,
            again.text,
        )
        assert again.headers.get("Location") == first.headers.get("Location")
        assert counts(site) == made, path
        is_problem(api.post(path, body | change, **key), 409)
        assert counts(site) == made, path


def test_keys_belong_to_the_person_and_what_was_refused_leaves_them_free(site):
    body = {"name": "once-b", "path": "/m", "trained_on": "public"}
    api = site.api("steward")
    is_problem(api.post("/models", body | {"path": ""}, Idempotency_Key="k"), 422)
    assert api.post("/models", body, Idempotency_Key="k").status_code == 201
    other = site.api("steward-2")
    assert other.post("/models", body | {"name": "once-c"}, Idempotency_Key="k").status_code == 201
    is_problem(api.post("/models", body, Idempotency_Key="another"), 409)
    assert (
        api.post("/models", body | {"name": "once-d"}, Idempotency_Key="another").status_code == 201
    )
    for key in ("", "a b", "\xe9", "x" * 201):
        is_problem(api.post("/models", body, Idempotency_Key=key), 422)


def test_one_key_is_one_proposal(site):
    api = site.api("steward")
    policy = api.get(f"{site.dataset}/policy").json | {"two_people": True}
    assert api.put(f"{site.dataset}/policy", policy).status_code == 200
    asked = [
        api.post(f"{site.dataset}/allowance", allowance("20"), Idempotency_Key="raise")
        for _ in range(2)
    ]
    assert [each.status_code for each in asked] == [202, 202]
    assert len({each.json["decision"]["id"] for each in asked}) == 1


def test_eight_at_once_with_one_key_make_one_version(site):
    before = counts(site)["versions"]
    statuses, start = [], threading.Barrier(8)

    def ask() -> None:
        api = site.api("steward")
        start.wait()
        statuses.append(
            api.post(
                f"{site.dataset}/versions", {"uri": "/v.csv"}, Idempotency_Key="race"
            ).status_code
        )

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == [201] * 8
    assert counts(site)["versions"] == before + 1


#: They change nothing, or act on the one thing in their address, where a second act finds it so.
#: What some of them make (a token, an address, an upload) stands in a list, and charges nothing.
UNKEYED = {
    "POST /api/v1/datasets/{name}/allowance/preview",
    # The secret of a charge's lease is its key.
    "POST /api/v1/jobs/{job}/alive",
    "POST /api/v1/jobs/{job}/begin",
    "POST /api/v1/jobs/{job}/settle",
    "POST /api/v1/jobs/{job}/offer",
    "POST /api/v1/jobs/{job}/offer/quote",
    "POST /api/v1/me/password",
    "POST /api/v1/me/sign-out-everywhere",
    "POST /api/v1/me/tokens",
    "POST /api/v1/me/tokens/{token}/revoke",
    "POST /api/v1/notices",
    "POST /api/v1/notices/{id}/test",
    "POST /api/v1/uploads",
    "POST /api/v1/users/{name}/activate",
    "POST /api/v1/users/{name}/deactivate",
    "POST /api/v1/users/{name}/reset-password",
    "POST /api/v1/users/{name}/revoke-tokens",
    "POST /api/v1/users/{name}/sign-out",
    "POST /api/v1/users/{name}/unlock",
}


def test_every_post_that_makes_something_takes_a_key_or_says_why_not(app):
    """A route needs no key if its name decides what is made, or if asking again makes the same
    thing.
    """
    without = {
        route.label for route in routes(app) if route.method == "POST" and not route.operation.keyed
    }
    assert without - UNKEYED == {
        # a second token does no harm, and the first could not be shown again
        "POST /api/v1/session",
        "POST /api/v1/users",  # its name is its key; a stored digest of a password would be a gift
        "POST /api/v1/datasets/{name}/checkpoints",  # at one entry a key signs once
        "POST /api/v1/datasets/{name}/quote",  # changes nothing
        # Decisions on one thing: the second finds it asked, decided or recorded.
        "POST /api/v1/jobs/{job}/push",
        "POST /api/v1/decisions/{decision}/pushed",
        "POST /api/v1/decisions/{decision}/answer",
        "POST /api/v1/jobs/{job}/cancel",
        "POST /api/v1/jobs/{job}/comments",  # what is said twice stands twice, and decides nothing
    }


# --- refusals and times -------------------------------------------------------------------------


def test_a_refused_request_names_what_binds_what_was_asked_what_is_left_and_what_would_fit(site):
    api = site.api("analyst")
    job = api.post("/jobs", site.job(50_000)).json
    assert job["state"] == "refused"
    refusal = job["refusal"]
    assert refusal["cap"] in {"renyi", "gaussian", "renyi2", "basic"}
    assert float(refusal["asked"]) > float(refusal["left"]) > 0
    assert refusal["size_field"] == "tokens_per_batch"
    assert refusal["asked"] in refusal["why"]
    fits = api.post("/jobs", site.job(refusal["largest"])).json
    assert fits["state"] == "awaiting_approval"
    assert api.post("/jobs", site.job(refusal["largest"] + 1)).json["state"] == "refused"
    question = {"mechanism": "private-prediction", "parameters": {"tokens_per_batch": 50_000}}
    quoted = api.post(f"{site.dataset}/quote", question).json["dataset"]["refusal"]
    assert quoted == {name: value for name, value in refusal.items() if name != "by"}


def test_times_are_rfc_3339_in_utc_and_amounts_are_decimals(site, publish):
    job = site.submitted()
    steward = site.api("steward")
    steward.post(f"/decisions/{job}/answer", {"yes": True, "reason": "fine"})
    publish(job, b"{}\n")
    form = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)")
    found = 0

    def look(value: object, name: str = "") -> None:
        nonlocal found
        if isinstance(value, dict):
            for key, inner in value.items():
                look(inner, key)
        elif isinstance(value, list):
            for inner in value:
                look(inner, name)
        elif name.endswith(("_at", "_expires")) or name == "at":
            found += value is not None
            assert value is None or form.fullmatch(value), (name, value)
        elif name in {"epsilon", "delta", "spent", "reserved", "left", "limit"} and isinstance(
            value, str
        ):
            assert re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", value), (name, value)

    for path in (
        f"/jobs/{job}",
        "/jobs",
        site.dataset,
        f"{site.dataset}/ledger",
        f"{site.dataset}/checkpoints",
    ):
        look(steward.get(path).json)
    look(site.api("administrator").get("/users").json)
    name = site.actor("analyst").name
    signed = (
        site.api("analyst")
        .post("/session", {"name": name, "password": "correct horse battery"})
        .json
    )
    look(signed)
    assert datetime.fromisoformat(signed["expires_at"]) > datetime.now(UTC)
    assert found > 10


# --- rate limits --------------------------------------------------------------------------------


def limited(database_url: str, home, **values: object) -> Flask:
    return create_app(Settings(home=home, DATABASE_URL=database_url, **values))


def left(answer, name: str) -> int:
    found = re.search(rf'"{name}";r=(\d+);t=(\d+)', answer.headers["RateLimit"])
    assert found
    assert 1 <= int(found[2]) <= 60
    return int(found[1])


def steady() -> None:
    """Wait for a window that the next moments don't leave."""
    while time.time() % 60 > 50:
        time.sleep(0.2)


def test_who_asks_too_often_is_told_how_long_to_wait(site, database_url, servers, tmp_path):
    steady()
    shared = {
        "BROKER_URL": servers.broker_url,
        "requests_per_person": 5,
        "requests_per_address": 50,
    }
    one, two = (limited(database_url, tmp_path, **shared) for _ in range(2))
    headers = site.api("analyst").headers
    for number in range(5):  # two processes count together
        answer = (one, two)[number % 2].test_client().get("/api/v1/me", headers=headers)
        assert answer.status_code == 200
        assert left(answer, "person") == 4 - number
        assert '"person";q=5;w=60' in answer.headers["RateLimit-Policy"]
    refused = two.test_client().get("/api/v1/me", headers=headers)
    is_problem(refused, 429)
    assert 1 <= int(refused.headers["Retry-After"]) <= 60
    other = one.test_client().get("/api/v1/me", headers=site.api("steward").headers)
    assert other.status_code == 200, "a person's limit is theirs alone"


def test_wrong_tokens_and_many_people_share_the_limit_of_their_address(
    site, database_url, tmp_path
):
    steady()
    app = limited(database_url, tmp_path, requests_per_address=6, sign_ins_per_address=2)
    client = app.test_client()
    for number in range(4):
        is_problem(client.get("/api/v1/me", headers={"Authorization": f"Bearer exq_{number}"}), 401)
    for status in (401, 401, 429):
        answer = client.post("/api/v1/session", json={"name": "nobody", "password": "none"})
        is_problem(answer, status)
    elsewhere = client.get("/api/v1/keys", environ_base={"REMOTE_ADDR": "192.0.2.7"})
    assert elsewhere.status_code == 200
    is_problem(client.get("/api/v1/keys"), 429)


def test_an_address_is_what_trusted_proxies_say_and_nobody_else(database_url, tmp_path):
    steady()

    def asked(app, address: str) -> int:
        return (
            app.test_client().get("/api/v1/keys", headers={"X-Forwarded-For": address}).status_code
        )

    trusting = limited(database_url, tmp_path, requests_per_address=1, trusted_proxies=1)
    assert [
        asked(trusting, "192.0.2.1"),
        asked(trusting, "192.0.2.2"),
        asked(trusting, "192.0.2.1"),
    ] == [
        200,
        200,
        429,
    ]
    one_network = [
        asked(trusting, each) for each in ("2001:db8:7::1", "2001:db8:7::2", "2001:db8:7:1::1")
    ]
    assert one_network == [200, 429, 200]  # of IPv6 one customer has a /64, addresses without end
    open_one = limited(database_url, tmp_path, requests_per_address=1)
    assert [asked(open_one, "192.0.2.3"), asked(open_one, "192.0.2.4")] == [200, 429]


def test_without_a_broker_each_process_counts_for_itself(site, database_url, tmp_path):
    steady()
    away = f"redis+socket://{tmp_path}/nothing.sock?virtual_host=0"
    values = {"BROKER_URL": away, "requests_per_person": 2, "requests_per_address": 0}
    one, two = (limited(database_url, tmp_path, **values).test_client() for _ in range(2))
    headers = site.api("analyst").headers
    statuses = [
        client.get("/api/v1/me", headers=headers).status_code for client in (one, one, one, two)
    ]
    assert statuses == [200, 200, 429, 200]


def test_no_limit_tells_nothing(app):
    answer = app.test_client().get("/api/v1/keys")
    assert "RateLimit" not in answer.headers
    assert "RateLimit-Policy" not in answer.headers


def test_the_limits_that_come_with_it_hamper_nobody():
    settings = Settings()
    assert settings.requests_per_person >= 6_000
    assert settings.requests_per_address >= 12_000
