"""REST: roles by route, problem+json, idempotent submission, results, and nothing that makes a
500.
"""

import json

import pytest

from accountant.settings import Settings
from web.app import create_app

PROBLEM = "application/problem+json"


def test_health(app):
    told = app.test_client().get("/healthz").json
    assert told["status"] == "ok"
    # said where there is no log
    assert told["ledger_log"].startswith("not configured: a restored backup")
    assert "database_role" not in told


def test_health_tells_of_a_role_that_can_do_more_than_this_process(
    owner_url, database_url, tmp_path
):
    for url, told in (
        (database_url, "one for all processes"),
        (owner_url, "the owner of the tables"),
    ):
        app = create_app(Settings(home=tmp_path, DATABASE_URL=url))
        assert app.test_client().get("/healthz").json["database_role"].startswith(told)


def test_sign_in_gives_a_token(site):
    name = site.actor("analyst").name
    answer = site.api("analyst").post(
        "/session", {"name": name, "password": "correct horse battery"}
    )
    assert answer.status_code == 201
    assert answer.json["token"].startswith("exq_")
    assert answer.json["roles"] == ["analyst"]
    headers = {"Authorization": f"Bearer {answer.json['token']}"}
    assert site.app.test_client().get("/api/v1/me", headers=headers).json["name"] == name


@pytest.mark.parametrize("name", ["analyst", "nobody-at-all"])
def test_wrong_passwords_and_unknown_names_answer_alike(site, name):
    name = site.actor("analyst").name if name == "analyst" else name
    answer = site.api("analyst").post("/session", {"name": name, "password": "not the password"})
    assert answer.status_code == 401
    assert answer.json["code"] == "not-signed-in"


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer exq_wrong", "Basic YTpi", "Bearer \xe9"])
def test_no_token_no_answer(app, header):
    answer = app.test_client().get("/api/v1/datasets", headers={"Authorization": header})
    assert answer.status_code == 401
    assert answer.mimetype == PROBLEM
    assert answer.headers["WWW-Authenticate"] == "Bearer"


def test_analysts_see_neither_addresses_nor_other_peoples_jobs(site):
    job_id = site.submitted()
    other = site.api("analyst-2")
    assert "nowhere" not in other.get(site.dataset).text
    assert other.get("/jobs").json == {"jobs": [], "next": None}
    for path in (f"/jobs/{job_id}", f"/jobs/{job_id}/result"):
        assert other.get(path).status_code == 404
    assert other.post(f"/jobs/{job_id}/cancel").status_code == 404
    assert site.api("auditor").get(f"/jobs/{job_id}").status_code == 200
    browser = site.pages("analyst-2")
    assert browser.get(f"/jobs/{job_id}").status_code == 404
    assert browser.get(f"/jobs/{job_id}/live").status_code == 404


def test_from_request_to_result(site, publish):
    job_id = site.submitted()
    steward, analyst = site.api("steward"), site.api("analyst")
    assert (
        steward.post(f"/decisions/{job_id}/answer", {"yes": True, "reason": " "}).json["problems"][
            0
        ]["field"]
        == "reason"
    )
    assert (
        steward.post(f"/decisions/{job_id}/answer", {"yes": True, "reason": "fine"}).json["state"]
        == "accepted"
    )
    assert (
        steward.post(f"/decisions/{job_id}/answer", {"yes": False, "reason": "late"}).status_code
        == 409
    )
    assert analyst.get(f"/jobs/{job_id}/result").status_code == 404
    content = b'{"text": "hello", "label": null, "complete": true}\n'
    publish(job_id, content)
    result = analyst.get(f"/jobs/{job_id}/result")
    assert result.data == content
    assert result.headers["ETag"] == f'"{analyst.get(f"/jobs/{job_id}").json["output_sha256"]}"'
    assert "attachment" in result.headers["Content-Disposition"]
    kinds = [each["kind"] for each in steward.get(f"{site.dataset}/ledger").json["entries"]]
    assert kinds[:2] == ["COMMIT", "RESERVE"]
    older = steward.get(f"{site.dataset}/ledger?before=3&limit=1").json["entries"]
    assert [each["seq"] for each in older] == [2]
    export = steward.get(f"{site.dataset}/ledger/export?format=jsonl")
    assert json.loads(export.text.splitlines()[-1])["kind"] == "COMMIT"


def test_quotes(site):
    api = site.api("analyst")
    body = {"mechanism": "private-prediction", "parameters": {}, "fit": "tokens_per_batch"}
    quote = api.post(f"{site.dataset}/quote", body).json
    assert quote["dataset"]["decision"] == "NeedsApproval"
    more = {"tokens_per_batch": quote["parameters"]["tokens_per_batch"] + 1}
    over = api.post(
        f"{site.dataset}/quote", {"mechanism": "private-prediction", "parameters": more}
    ).json
    assert over["dataset"]["decision"] == "Refused"


def test_allowances_keep_every_digit(site):
    api = site.api("steward")
    body = {"epsilon": "12.123456789", "delta": 2.9053e-06, "reason": "test"}
    account = api.post(f"{site.dataset}/allowance", body).json["account"]
    assert (account["epsilon"], account["delta"]) == ("12.123456789", "0.0000029053")


def test_administrators_add_people(site):
    api = site.api("administrator")
    body = {"name": "new.person", "password": "long enough now", "roles": ["analyst"]}
    assert api.post("/users", body).status_code == 201
    assert api.post("/users", body).status_code == 409
    assert "new.person" in [each["name"] for each in api.get("/users").json["users"]]
    assert (
        api.post("/users", body | {"name": "p2", "password": "short"}).json["problems"][0]["field"]
        == "password"
    )


FIELDS = [
    ({"mechanism": "nonsense"}, "mechanism"),
    ({"model": "nonsense"}, "model"),
    ({"model": None}, "model"),
    ({"mechanism": "noisy-count", "parameters": {}}, "model"),  # it uses none, and one is named
    ({"dataset": "nonsense"}, "dataset"),
    ({"extra": 1}, "extra"),
    ({"purpose": 3}, "purpose"),
    ({"purpose": "a\0b"}, "purpose"),
    ({"purpose": " "}, "purpose"),
    ({"parameters": []}, "parameters"),
    ({"parameters": {"clip": -1}}, "parameters.clip"),
    ({"parameters": {"clip": "9"}}, "parameters.clip"),
    ({"parameters": {"clip": True}}, "parameters.clip"),
    ({"parameters": {"colour": 1}}, "parameters.colour"),
    ({"parameters": {"tokens_per_batch": 2**60}}, "parameters.tokens_per_batch"),
    ({"parameters": {"template": "no slot"}}, "parameters.template"),
    ({"parameters": {"template": "{record}\0"}}, "parameters.template"),
]


@pytest.mark.parametrize(("change", "field"), FIELDS)
def test_errors_name_the_field(site, change, field):
    answer = site.api("analyst").post("/jobs", site.job(**change))
    assert answer.status_code == 422
    assert answer.json["problems"][0]["field"] == field


GARBAGE = [
    b"",
    b"null",
    b"[]",
    b'"text"',
    b"{",
    b"\xff\xfe",
    b'{"dataset": "\\ud800"}',
    b'{"\\u0000": 1}',
    b'{"dataset": "a\\u0000b", "reason": "\\u0000", "name": "\\u0000", "password": "\\u0000"}',
    b'{"epsilon": NaN, "delta": 1, "reason": "x"}',
    b'{"epsilon": 1e999, "delta": 1e-6, "reason": "x"}',
    b'{"epsilon": "1e999999999", "delta": "1e-6", "reason": "x"}',
    b'{"epsilon": "nan", "delta": "-inf", "reason": "x"}',
    b'{"epsilon": true, "delta": null, "reason": []}',
    b'{"epsilon": ' + b"9" * 5000 + b', "delta": 1, "reason": "x"}',
    b'{"parameters": ' + b"[" * 50_000 + b"]" * 50_000 + b"}",
    b'{"parameters": ' + b'{"a":' * 500 + b"1" + b"}" * 500 + b"}",
    b'{"dataset": "a", "dataset": "b"}',
    b'{"mechanism": "private-prediction", "parameters": {"clip": NaN}}',
    b'{"mechanism": ["private-prediction"], "parameters": {"clip": {}}}',
    b'{"mechanism": "private-prediction", "parameters": {"clip": 1e-300, "batch_size": 1}, "fit": '
    b'"clip"}',
    b'{"mechanism": "private-prediction", "parameters": {"temperature": 5e-324}}',
    b'{"mechanism": "private-prediction", "fit": "template", "epsilon": 1}',
    b'{"mechanism": "private-prediction", "fit": "tokens_per_batch", "epsilon": 1e-300}',
    b'{"name": "x", "uri": "y", "policy": {"auto_approve_epsilon": "-1"}}',
    b'{"name": "x", "uri": "y", "labels": [1], "public_size": 1e3, "max_records_per_unit": 0}',
    b'{"name": "x\\n", "path": "p", "trained_on": "t"}',
    b'{"name": "x\\n", "password": "long enough now", "roles": ["analyst"]}',
    b'{"name": "x", "password": "long enough now", "roles": ["king"]}',
]
TAKERS = ["/jobs", "/datasets", "/models", "/users", "/session"]
TAKERS += ["{dataset}/quote", "{dataset}/allowance", "{dataset}/data", "{dataset}/versions"]


@pytest.fixture(scope="module")
def everybody(app, engine, password_hash):
    """One dataset, and one person with every role: what they send reaches every check."""
    from accountant.identities import credentials
    from tests.support import Bench
    from tests.web.browsers import Site

    bench = Bench(engine)
    bench.allow()
    everything = credentials.add_user(engine, "everybody", None, list(credentials.ROLES))
    site = Site(app, engine, bench, password_hash)
    site.people["everybody"] = credentials.actor_of(
        credentials.find_user(engine, user_id=everything)
    )
    return site


@pytest.mark.parametrize("body", GARBAGE, ids=range(len(GARBAGE)))
def test_garbage_is_never_a_500(everybody, body):
    api = everybody.api("everybody")
    for path in TAKERS:
        answer = api.raw(path.format(dataset=everybody.dataset), body)
        may_be_right = path.endswith("/quote") and b'"fit"' in body
        assert 400 <= answer.status_code < 500 or may_be_right, (path, answer.text)
        assert answer.status_code < 400 or answer.mimetype == PROBLEM


@pytest.mark.parametrize(
    "path",
    [
        "/jobs/not-a-uuid",
        "/jobs/%00",
        "/jobs?state=nonsense",
        "/jobs?before=yesterday",
        "/jobs?before=2026-01-01",
        "/jobs?before=0001-01-01T00:00:00%2B14:00",
        "/jobs?limit=0",
        "/jobs?limit=1e9",
        "/jobs?limit=%D9%A1",
        "/jobs?dataset=%00",
        "/datasets/%00",
        "/datasets/%ED%A0%80",
        "/datasets/nothing",
        "/datasets/nothing/ledger",
        "{dataset}/ledger?before=99999999999999999999",
        "{dataset}/ledger?before=-1",
        "{dataset}/ledger/export?format=xml",
    ],
)
def test_bad_addresses_are_never_a_500(everybody, path):
    answer = everybody.api("everybody").get(path.format(dataset=everybody.dataset))
    assert answer.status_code in (404, 422), answer.text
    assert answer.mimetype == PROBLEM


def test_bodies_have_a_limit(everybody):
    answer = everybody.api("everybody").raw("/jobs", b'{"a": "' + b"x" * 2**20 + b'"}')
    assert (answer.status_code, answer.json["code"]) == (413, "too-large")


def test_what_nobody_foresaw_says_nothing(app, everybody, monkeypatch):
    from accountant.queries import datasets

    def fail(*_):
        raise RuntimeError("the secret address /srv/private")

    monkeypatch.setattr(datasets, "datasets", fail)
    answer = everybody.api("everybody").get("/datasets")
    assert answer.status_code == 500
    assert "private" not in answer.text
    assert "reference" in answer.json["detail"]


def test_anybody_may_have_the_public_keys(site, signer):
    checkpoint = site.api("auditor").post(f"{site.dataset}/checkpoints", {}).json
    answer = site.app.test_client().get("/api/v1/keys").json
    keys = answer["keys"]
    assert answer["public_log"] is None  # none is published
    assert keys == checkpoint["keys"]
    assert [each["key"]["id"] for each in keys] == [checkpoint["checkpoint"]["key"]]
    assert not (site.app.extensions["exchequer"]["settings"].home / "keys" / "checkpoint").exists()
    secret = signer / "keys" / "checkpoint"
    assert secret.stat().st_mode & 0o777 == 0o600
    assert secret.read_text() not in json.dumps(keys)


def test_an_export_carries_a_checkpoint_that_the_published_key_signed(site):
    from accountant.core.ledger.checkpoints import read_keys
    from accountant.core.ledger.export_formats import verify_lines

    keys = site.app.test_client().get("/api/v1/keys").json["keys"]
    for public in ("false", "true"):
        answer = site.api("auditor").get(f"{site.dataset}/ledger/export?public={public}")
        found = verify_lines(answer.text.splitlines(), pinned=read_keys(keys)[0].public)
        assert found.checkpoints[0].seq == found.entries > 0
    assert site.api("auditor").get(f"{site.dataset}/ledger/export?public=maybe").status_code == 422
    assert site.api("auditor").get(f"{site.dataset}/ledger/check").json["problems"] == []


def test_a_database_that_is_away_is_a_503_that_says_try_again(tmp_path):
    from accountant.settings import Settings
    from web.app import create_app

    nowhere = f"postgresql+psycopg://nobody@/nothing?host={tmp_path}"
    client = create_app(Settings(home=tmp_path, DATABASE_URL=nowhere)).test_client()
    answer = client.get("/api/v1/datasets", headers={"Authorization": "Bearer exq_any"})
    assert answer.status_code == 503
    assert answer.mimetype == PROBLEM
    assert answer.json["code"] == "unavailable"
    assert answer.headers["Retry-After"]
    assert client.get("/healthz").status_code == 503
