"""`exchequer push` over a real service and a small hub, with the real `huggingface_hub` between."""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import IntegrityError

from accountant.core.ledger.allowances import Allowance
from accountant.identities.actor import Actor
from accountant.transactions import allowances
from tests.web.browsers import Site
from tests.web.client.test_client import address  # noqa: F401  (a fixture)
from tests.web.test_commands_live import Run, run  # noqa: F401  (a fixture)
from web.client import hub as publishing

pytestmark = pytest.mark.slow

OUTPUT = b'{"text": "a good place", "label": null, "complete": true}\n'
TO = "hf://datasets/clinic/notes"
WHY = ("--reason", "a benchmark", "--license", "cc-by-4.0", "--language", "en")


class Hub(ThreadingHTTPServer):
    """A hub with the routes that a commit takes; it keeps the files and who sent them."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.repos: list[str] = []
        self.tokens: set[str | None] = set()
        self.commits = 0
        self.refuses = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    """What a commit asks for: a repository, its card's form, modes of uploading, the commit."""

    server: Hub

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        hub, body = self.server, self.rfile.read(int(self.headers["Content-Length"]))
        hub.tokens.add(self.headers["Authorization"])
        if hub.refuses:
            self.answer(403, {"error": "this token may not write"})
        elif self.path == "/api/repos/create":
            asked = json.loads(body)
            hub.repos.append(f"{asked['type']}s/{asked['organization']}/{asked['name']}")
            self.answer(200, {"url": f"{hub.url}/{hub.repos[-1]}"})
        elif self.path == "/api/validate-yaml":
            assert "differential_privacy:" in json.loads(body)["content"]
            self.answer(200, {"errors": [], "warnings": []})
        elif "/preupload/" in self.path:
            files = [one["path"] for one in json.loads(body)["files"]]
            modes = [{"path": n, "uploadMode": "regular", "shouldIgnore": False} for n in files]
            self.answer(200, {"files": modes})
        else:
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    value = line["value"]
                    hub.files[value["path"]] = base64.b64decode(value["content"])
            hub.commits += 1
            oid = f"{hub.commits:040x}"
            where = f"{hub.url}/{hub.repos[-1]}/commit/{oid}"
            self.answer(200, {"commitUrl": where, "commitOid": oid, "pullRequestUrl": None})

    def do_GET(self) -> None:
        self.answer(404, {"error": "not here"})

    do_HEAD = do_GET

    def answer(self, status: int, document: Any) -> None:
        content = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    pytest.importorskip("huggingface_hub")
    server = Hub()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    monkeypatch.setenv("HF_TOKEN", "hf_of_the_asker")
    yield server
    server.shutdown()
    server.server_close()
    thread.join(timeout=10)


@pytest.fixture
def done(site: Site, publish: Callable[[str, bytes], None]) -> str:
    """A job that published OUTPUT."""
    job_id = site.submitted()
    site.api("steward").post(f"/decisions/{job_id}/answer", {"yes": True, "reason": "it fits"})
    publish(job_id, OUTPUT)
    return job_id


def asked(run: Run, who: Actor, job: str, *about: str, to: str = TO) -> str:  # noqa: F811
    """The decision of a request to publish."""
    found = json.loads(run(who, "push", job, to, *(about or WHY), "--json"))
    assert found["state"] == "open"
    return str(found["id"])


def agree(run: Run, who: Actor, decision: str) -> None:  # noqa: F811
    run(who, "decision", "answer", decision, "--yes", "--reason", "public by now")


def pushed(engine: Engine, job: str) -> list[dict[str, Any]]:
    query = "SELECT detail FROM activity WHERE object_id = :job AND action = 'result pushed'"
    with engine.connect() as connection:
        return list(connection.execute(text(query), {"job": job}).scalars())


def test_a_result_goes_to_a_hub_once_another_person_agreed(
    site: Site,
    run: Run,  # noqa: F811
    hub: Hub,
    done: str,
) -> None:
    analyst, steward = site.actor("analyst"), site.actor("steward")
    decision = asked(run, analyst, done)
    name = site.api("analyst").get(f"/jobs/{done}").json["name"]
    run(analyst, "push", done, TO)  # it waits, and nothing is sent
    assert not hub.tokens
    shown = json.loads(run(steward, "decision", "show", decision, "--json"))
    assert shown["asks"] == f"publish on {TO}: {name}"
    assert (shown["kind"], shown["may_say"]) == ("push", ["yes", "no"])
    page = site.pages("steward").get(f"/decisions/{decision}").text
    assert all(word in page for word in (TO, f"{name}</a>", hub.url, "cc-by-4.0", "be taken back"))
    agree(run, steward, decision)
    said = json.loads(run(analyst, "job", "push", done, TO, "--json"))
    assert said["commit"] == f"{hub.url}/datasets/clinic/notes/commit/{1:040x}"
    assert (hub.repos, hub.commits) == (["datasets/clinic/notes"], 1)
    assert hub.tokens == {"Bearer hf_of_the_asker"}
    named = {name: hashlib.sha256(content).hexdigest() for name, content in hub.files.items()}
    assert named == shown["asked"]["files"]
    assert hub.files[f"{done}.jsonl"] == OUTPUT
    assert b'license: "cc-by-4.0"' in hub.files["README.md"]
    (line,) = pushed(site.engine, done)
    assert line["commit"] == f"{1:040x}"
    assert (line["to"], line["endpoint"], line["decision"]) == (TO, hub.url, decision)
    run(analyst, "push", done, TO, code=1)  # one approval is used once
    assert hub.commits == 1


def test_nobody_agrees_to_what_they_asked_for_and_a_no_sends_nothing(
    site: Site,
    run: Run,  # noqa: F811
    hub: Hub,
    done: str,
) -> None:
    steward, analyst = site.actor("steward"), site.actor("analyst")
    mine = asked(run, steward, done)
    yes = {"yes": True, "reason": "mine"}
    answer = site.api("steward").post(f"/decisions/{mine}/answer", yes)
    assert (answer.status_code, "two people" in answer.json["detail"]) == (403, True)
    alone = text("UPDATE decisions SET state = 'accepted', answered_by = asked_by WHERE id = :id")
    with site.engine.connect() as connection, pytest.raises(IntegrityError, match="two_people"):
        connection.execute(alone, {"id": mine})
    run(analyst, "push", done, TO, code=2)  # whose was asked is another's
    other = asked(run, analyst, done)
    run(analyst, "push", done, TO, *WHY, code=1)  # it waits already
    run(steward, "decision", "answer", other, "--no", "--reason", "not yet")
    run(analyst, "push", done, TO, code=1)
    run(analyst, "decision", "answer", asked(run, analyst, done), "--no", "--reason", "a slip")
    assert not hub.tokens


def test_an_approval_is_of_one_job_one_place_and_one_person(
    site: Site,
    run: Run,  # noqa: F811
    hub: Hub,
    done: str,
    publish: Callable[[str, bytes], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    analyst, steward = site.actor("analyst"), site.actor("steward")
    decision = asked(run, analyst, done)
    agree(run, steward, decision)
    other = site.submitted()
    site.api("steward").post(f"/decisions/{other}/answer", {"yes": True, "reason": "it fits"})
    publish(other, OUTPUT)
    run(analyst, "push", other, TO, code=2)
    run(analyst, "push", done, f"{TO}-2", code=2)
    run(steward, "push", done, TO, code=2)
    for who in ("steward", "analyst-2"):
        assert site.api(who).get(f"/decisions/{decision}/archive").status_code == 404
        answer = site.api(who).post(f"/decisions/{decision}/pushed", {"commit": "ab" * 20})
        assert answer.status_code == 404
    assert site.api("auditor").get(f"/decisions/{decision}/archive").status_code == 403
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # a token goes nowhere else
    run(analyst, "push", done, TO, code=1)
    with pytest.raises(publishing.HubProblem, match="it was approved for"):
        publishing.push(None, {"asked": {"endpoint": hub.url}})  # type: ignore[arg-type]
    assert not hub.tokens


def test_a_card_that_says_something_else_by_then_is_refused(
    site: Site,
    run: Run,  # noqa: F811
    hub: Hub,
    done: str,
) -> None:
    analyst, steward = site.actor("analyst"), site.actor("steward")
    decision = asked(run, analyst, done)
    agree(run, steward, decision)
    site.submitted(tokens=1_000)  # a request that is not charged says nothing else
    before = site.api("analyst").get(f"/jobs/{done}/card").json
    raised = Allowance("99", "0.000001", "the board raised it")
    allowances.allow(site.engine, site.bench.dataset, raised, site.bench.steward)
    after = site.api("analyst").get(f"/jobs/{done}/card").json
    assert after["statement"]["text"] != before["statement"]["text"]
    refused = site.api("analyst").get(f"/decisions/{decision}/archive")
    assert (refused.status_code, "not what was approved" in refused.json["detail"]) == (409, True)
    run(analyst, "push", done, TO, code=1)
    assert not hub.tokens
    agree(run, steward, asked(run, analyst, done))
    run(analyst, "push", done, TO)
    assert json.loads(hub.files["card.json"])["statement"] == after["statement"]


def test_a_ledger_that_only_grew_refuses_nothing(
    site: Site,
    run: Run,  # noqa: F811
    hub: Hub,
    done: str,
    publish: Callable[[str, bytes], None],
) -> None:
    decision = asked(run, site.actor("analyst"), done)
    other = site.submitted()
    site.api("steward").post(f"/decisions/{other}/answer", {"yes": True, "reason": "it fits"})
    publish(other, OUTPUT)
    agree(run, site.actor("steward"), decision)
    run(site.actor("analyst"), "push", done, TO)
    assert hub.commits == 1


def test_a_result_that_is_gone_or_altered_is_refused(
    site: Site,
    run: Run,  # noqa: F811
    hub: Hub,
    done: str,
) -> None:
    agree(run, site.actor("steward"), asked(run, site.actor("analyst"), done))
    (file,) = (
        one for one in site.results.rglob("*") if one.is_file() and one.read_bytes() == OUTPUT
    )
    file.chmod(0o644)
    file.write_bytes(OUTPUT.replace(b"good", b"bad."))
    run(site.actor("analyst"), "push", done, TO, code=1)
    file.unlink()
    run(site.actor("analyst"), "push", done, TO, code=2)
    assert not hub.tokens


def test_what_a_server_sends_beside_the_approved_files_is_never_uploaded(
    site: Site,
    run: Run,  # noqa: F811
    hub: Hub,
    done: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    analyst = site.actor("analyst")
    decision = asked(run, analyst, done)
    agree(run, site.actor("steward"), decision)
    from web.client.api import Api

    taken = Api.decision
    for edit in ({"README.md": "0" * 64}, {"more.txt": "0" * 64}):

        def edited(api: Api, decision_id: str, edit: dict[str, str] = edit) -> dict[str, Any]:
            found = taken(api, decision_id)
            found["asked"]["files"] |= edit
            return found

        monkeypatch.setattr(Api, "decision", edited)
        run(analyst, "push", done, TO, "--wait", code=1)
    assert not hub.files


def test_a_hub_that_refuses_leaves_the_approval_and_time_ends_it(
    site: Site,
    run: Run,  # noqa: F811
    hub: Hub,
    done: str,
) -> None:
    analyst = site.actor("analyst")
    decision = asked(run, analyst, done)
    agree(run, site.actor("steward"), decision)
    hub.refuses = True
    run(analyst, "push", done, TO, code=1)
    assert not pushed(site.engine, done)
    late = "UPDATE decisions SET answered_at = answered_at - interval '15 days' WHERE id = :id"
    with site.engine.begin() as connection:
        connection.execute(text(late), {"id": decision})
    hub.refuses = False
    run(analyst, "push", done, TO, code=1)
    assert not hub.files


@pytest.mark.parametrize(
    "said",
    [
        {"to": "clinic/notes"},
        {"to": f"{TO}/more"},
        {"to": "hf://datasets/clin\u0456c/notes"},  # a Cyrillic letter that looks like an i
        {"endpoint": "ftp://hub.example"},
        {"endpoint": "https://hub.ex\u0430mple"},
        {"endpoint": "https://name@hub.example"},
        {"reason": " "},
    ],
)
def test_a_place_is_named_in_one_form(site: Site, done: str, said: dict[str, str]) -> None:
    body = {"to": TO, "reason": "a benchmark"} | said
    assert site.api("analyst").post(f"/jobs/{done}/push", body).status_code == 422


def test_without_the_library_a_line_says_what_to_install(
    site: Site,
    run: Run,  # noqa: F811
    hub: Hub,
    done: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    analyst = site.actor("analyst")
    agree(run, site.actor("steward"), asked(run, analyst, done))
    monkeypatch.setitem(__import__("sys").modules, "huggingface_hub", None)
    with pytest.raises(publishing.HubProblem, match=re.escape("`pip install huggingface-hub`")):
        publishing.push(None, {"asked": {"endpoint": hub.url}})  # type: ignore[arg-type]
    run(analyst, "push", done, TO, code=1)


def test_an_account_that_was_closed_publishes_nothing(
    site: Site,
    run: Run,  # noqa: F811
    hub: Hub,
    done: str,
) -> None:
    decision = asked(run, site.actor("analyst"), done)
    with site.engine.begin() as connection:
        closed = "UPDATE users SET active = false WHERE id = :id"
        connection.execute(text(closed), {"id": site.actor("analyst").id})
    shown = json.loads(run(site.actor("steward"), "decision", "show", decision, "--json"))
    assert "is closed" in shown["left"]
    yes = ("decision", "answer", decision, "--yes", "--reason", "public by now")
    run(site.actor("steward"), *yes, code=1)


def test_strangers_see_and_ask_nothing(site: Site, done: str) -> None:
    body = {"to": TO, "reason": "a benchmark"}
    made = site.api("analyst").post(f"/jobs/{done}/push", body).json["decision"]
    assert site.api("analyst-2").get(f"/decisions/{made['id']}").status_code == 404
    assert site.api("analyst-2").post(f"/jobs/{done}/push", body).status_code == 404
