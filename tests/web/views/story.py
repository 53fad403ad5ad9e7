"""One story through the whole API on a real server: every example of the description was recorded
from it.

Names, times, hashes and tokens are replaced by others of the same form, so that two recordings
differ only where the service does.
"""

import hashlib
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from accountant.catalogue import datasets
from tests.web.api.conformance import Description
from tests.web.browsers import PASSWORD, Api, Site

Publish = Callable[[str, bytes], None]
RESULT = b'{"text": "A short text.", "label": null, "complete": true}\n'


class Recorder:
    """Asks as somebody, holds the answer against the description, and keeps the first of each
    kind.
    """

    def __init__(self, site: Site) -> None:
        self.site = site
        self.description = Description(site.app)
        self.kept: dict[str, dict[str, Any]] = {}
        self.job = ""  # one that succeeds
        self.void = ""  # one that is cancelled before it reads
        self.names: dict[str, str] = {site.bench.dataset: "notes", site.bench.model: "tiny"}

    def api(self, who: str) -> Api:
        self.names[self.site.actor(who).name] = who
        return self.site.api(who)

    def ask(
        self,
        api: Api,
        method: str,
        path: str,
        status: int,
        /,
        body: Any = None,
        headers: dict[str, str] | None = None,
        query: str = "",
        data: bytes | None = None,
        **names: str,
    ) -> Any:
        """One request of the story, which must be answered with `status`."""
        template = f"/api/v1{path}"
        address = template.format(**names) + query
        response = api.client.open(
            address, method=method, json=body, data=data, headers={**api.headers, **(headers or {})}
        )
        assert response.status_code == status, (method, address, response.text)
        wrong = list(self.description.problems(method, template, response))
        assert not wrong, (method, address, wrong)
        kept = self.kept.setdefault(f"{method} {template}", {"responses": {}})
        if body is not None and status < 300:
            kept.setdefault("request", body)
        if response.is_json and status != 304:
            kept["responses"].setdefault(str(status), response.json)
        return response

    def recorded(self) -> dict[str, Any]:
        """Return the records, with plain names."""
        text = json.dumps(self.kept)
        for name, plain in sorted(self.names.items(), key=lambda each: -len(each[0])):
            text = text.replace(name, plain)
        moments = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?=Z|\+00:00)")
        base = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)
        order = {each: n for n, each in enumerate(sorted(set(moments.findall(text))))}
        shown = "%Y-%m-%dT%H:%M:%S.%f"
        text = moments.sub(lambda m: (base + timedelta(seconds=order[m[0]])).strftime(shown), text)
        uuids = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
        text = _renumbered(uuids, text, lambda n, _: f"6f1c0de0-0000-4000-8000-{n:012x}")
        text = _renumbered(re.compile(r"exq_[\w-]{20,}"), text, lambda n, _: f"exq_an-example-{n}")
        text = _renumbered(
            re.compile(r"whsec_[\w+/=-]{20,}"), text, lambda n, _: f"whsec_an-example-{n}"
        )
        cursors = re.compile(r'(?<="next": ")W[\w-]{11,}')
        text = _renumbered(cursors, text, lambda n, _: f"WyJhIGN1cnNvciIsI{n}Jd")
        text = _renumbered(
            re.compile(r"(?<![\w.-])(?=[0-9]*[a-f])[0-9a-f]{16,}(?![\w-])"), text, _hexadecimal
        )
        return dict(sorted(json.loads(text).items()))


def _renumbered(pattern: re.Pattern[str], text: str, name: Callable[[int, str], str]) -> str:
    seen: dict[str, str] = {}
    for each in pattern.findall(text):
        seen.setdefault(each, name(len(seen) + 1, each))
    return pattern.sub(lambda m: seen[m[0]], text)


def _hexadecimal(number: int, like: str) -> str:
    digits = hashlib.sha512(f"example {number}".encode()).hexdigest()
    return digits[: len(like)]


def tell(site: Site, publish: Publish) -> Recorder:
    """The whole story; every answer on the way is held against the description."""
    recorder = Recorder(site)
    chapters = (
        people,
        oneself,
        declarations,
        files,
        jobs,
        results,
        offers,
        charges,
        ledgers,
        two_people,
        audit,
    )
    for chapter in (*chapters, notices, mistakes, maintenance):
        chapter(recorder, publish)
    return recorder


def people(r: Recorder, _: Publish) -> None:
    ask, admin = r.ask, r.api("administrator")
    credentials = {"name": r.site.actor("analyst").name, "password": PASSWORD}
    ask(r.api("analyst"), "POST", "/session", 201, credentials)
    ask(r.api("analyst"), "POST", "/session", 401, credentials | {"password": "not the password"})
    ask(r.api("analyst"), "GET", "/me", 200)
    ask(
        admin,
        "POST",
        "/users",
        201,
        {"name": "robin", "password": "long enough now", "roles": ["analyst"]},
    )
    ask(admin, "GET", "/users", 200, query="?limit=2")
    ask(r.api("analyst"), "GET", "/users", 403)
    ask(admin, "GET", "/mechanisms", 200)
    ask(Api(r.site.app, None), "GET", "/keys", 200)
    ask(Api(r.site.app, None), "GET", "/openapi.json", 200)
    del r.kept["GET /api/v1/openapi.json"]  # it would contain itself
    kept = r.kept["GET /api/v1/mechanisms"]["responses"]["200"]  # one of them says enough
    kept["mechanisms"] = [each for each in kept["mechanisms"] if each["id"] == "noisy-count"]

    someone = {"name": "robin"}
    ask(admin, "GET", "/users/{name}", 200, **someone)
    ask(admin, "GET", "/users/{name}/tokens", 200, **someone)
    ask(admin, "PUT", "/users/{name}/roles", 200, {"roles": ["analyst", "auditor"]}, **someone)
    for act in ("deactivate", "activate", "reset-password", "unlock", "sign-out", "revoke-tokens"):
        ask(admin, "POST", f"/users/{{name}}/{act}", 200, **someone)
    ask(admin, "GET", "/sign-ins", 200, query="?limit=2")


def oneself(r: Recorder, _: Publish) -> None:
    ask, actor = r.ask, r.site.actor("analyst-2")
    r.names[actor.name] = "alex"
    alex = r.site.api("analyst-2")
    wanted = {"name": "a notebook", "scopes": ["read", "jobs:submit"], "days": 30}
    token = ask(alex, "POST", "/me/tokens", 201, wanted).json["id"]
    ask(alex, "GET", "/me/tokens", 200)
    ask(alex, "POST", "/me/tokens/{token}/revoke", 200, token=token)
    ask(alex, "POST", "/me/sign-out-everywhere", 200)
    changed = {"current": PASSWORD, "new": "a longer horse battery"}
    ask(alex, "POST", "/me/password", 200, changed)
    ask(alex, "DELETE", "/session", 200)
    ask(alex, "GET", "/me", 401)


def declarations(r: Recorder, _: Publish) -> None:
    ask, steward = r.ask, r.api("steward")
    model = {
        "name": "small",
        "path": "/models/small",
        "trained_on": "public stories",
        "kind": "language",
    }
    ask(steward, "POST", "/models", 201, model, headers={"Idempotency-Key": "add-small"})
    ask(steward, "GET", "/models", 200)
    ask(steward, "GET", "/models/{name}", 200, name="small")
    corpus = {
        "name": "stories",
        "uri": "/data/stories.csv",
        "statement": "published in 1911, out of copyright",
    }
    ask(steward, "POST", "/corpora", 201, corpus, headers={"Idempotency-Key": "add-stories"})
    ask(steward, "GET", "/corpora", 200)
    ask(steward, "GET", "/corpora/{name}", 200, name="stories")
    dataset = {
        "name": "letters",
        "uri": "/data/letters.csv",
        "description": "letters to the hospital",
        "public_size": 7600,
        "text_template": "{title}. {body}",
    }
    ask(steward, "POST", "/datasets", 201, dataset, headers={"Idempotency-Key": "add-letters"})
    name = r.site.bench.dataset
    ask(steward, "GET", "/datasets", 200, query="?limit=1")
    ask(steward, "GET", "/datasets/{name}", 200, name=name)
    allowance = {
        "epsilon": "12",
        "delta": "0.0000029053",
        "ex_post": "5",
        "reason": "board, 12 March",
    }
    ask(steward, "POST", "/datasets/{name}/allowance", 200, allowance, name=name)
    ask(
        steward,
        "POST",
        "/datasets/{name}/versions",
        201,
        {"uri": "/data/notes-2027.csv"},
        name=name,
    )
    refuse_version(r, "letters")
    correction = {"uri": "/data/letters.csv.gz"}
    ask(steward, "POST", "/datasets/{name}/data", 202, correction, name="letters")
    policy = ask(steward, "GET", "/datasets/{name}/policy", 200, name=name)
    changed = policy.json | {"approval_days": 14}
    match = {"If-Match": policy.headers["ETag"]}
    ask(steward, "PUT", "/datasets/{name}/policy", 200, changed, headers=match, name=name)
    ask(steward, "PUT", "/datasets/{name}/policy", 412, changed, headers=match, name=name)
    ask(steward, "GET", "/datasets/{name}", 404, name="nothing")


def files(r: Recorder, _: Publish) -> None:
    ask, steward = r.ask, r.api("steward")
    content = b"title,body\nA letter,Dear doctor\n"
    kept = ask(steward, "POST", "/uploads", 201, data=content).json
    r.names[kept["address"].rpartition("/")[0]] = "/var/lib/exchequer/uploads"
    ask(steward, "GET", "/uploads", 200)
    ask(steward, "GET", "/uploads/{sha256}", 200, sha256=kept["sha256"])
    ask(steward, "DELETE", "/uploads/{sha256}", 200, sha256=kept["sha256"])


def refuse_version(r: Recorder, name: str) -> None:
    """Refuse data that is not as it was declared, as a worker does."""
    from sqlalchemy import text

    query = text(
        "SELECT v.id FROM dataset_versions v JOIN datasets d ON d.id = v.dataset_id WHERE d.name = "
        ":name"
    )
    with r.site.engine.connect() as connection:
        version = connection.execute(query, {"name": name}).scalar_one()
    datasets.dataset_refused(r.site.engine, version, "row 2 has no column 'title'")


def jobs(r: Recorder, _: Publish) -> None:
    ask, analyst, steward = r.ask, r.api("analyst"), r.api("steward")
    name = r.site.bench.dataset
    question = {"mechanism": "private-prediction", "parameters": {}, "fit": "tokens_per_batch"}
    ask(analyst, "POST", "/datasets/{name}/quote", 200, question, name=name)
    ask(analyst, "GET", "/datasets/{name}/proposal", 200, query="?goal=counts", name=name)
    for _ in range(2):
        asked = ask(
            analyst, "POST", "/jobs", 201, r.site.job(), headers={"Idempotency-Key": "monday-1"}
        )
    ask(analyst, "POST", "/jobs", 409, r.site.job(11), headers={"Idempotency-Key": "monday-1"})
    job = asked.json["id"]
    ask(analyst, "GET", "/jobs", 200, query="?limit=1")
    shown = ask(analyst, "GET", "/jobs/{job}", 200, job=job)
    ask(
        analyst,
        "GET",
        "/jobs/{job}",
        304,
        headers={"If-None-Match": shown.headers["ETag"]},
        job=job,
    )
    why = {"text": "which wards will read the texts?", "asks": True}
    ask(steward, "POST", "/jobs/{job}/comments", 201, why, job=job)
    ask(
        analyst,
        "POST",
        "/jobs/{job}/comments",
        201,
        {"text": "the two on the third floor"},
        job=job,
    )
    ask(analyst, "POST", ANSWER, 403, {"yes": True, "reason": "please"}, decision=job)
    ask(
        steward, "POST", ANSWER, 200, {"yes": True, "reason": "agreed with the board"}, decision=job
    )
    ask(steward, "POST", ANSWER, 422, {"yes": True, "reason": " "}, decision=job)
    other = ask(analyst, "POST", "/jobs", 201, r.site.job(5)).json["id"]
    ask(
        steward,
        "POST",
        ANSWER,
        200,
        {"yes": False, "reason": "for another purpose"},
        decision=other,
    )
    ask(steward, "POST", ANSWER, 409, {"yes": False, "reason": "late"}, decision=job)
    third = ask(analyst, "POST", "/jobs", 201, r.site.job(6)).json["id"]
    ask(analyst, "POST", "/jobs/{job}/cancel", 200, job=third)
    ask(analyst, "POST", "/jobs/{job}/cancel", 409, job=other)
    ask(analyst, "POST", "/jobs", 422, r.site.job(mechanism="nonsense"))
    r.job, r.void = job, ask(analyst, "POST", "/jobs", 201, r.site.job(7)).json["id"]
    ask(steward, "POST", ANSWER, 200, {"yes": True, "reason": "fine"}, decision=r.void)
    ask(analyst, "POST", "/jobs/{job}/cancel", 200, job=r.void)


def results(r: Recorder, publish: Publish) -> None:
    ask, analyst = r.ask, r.api("analyst")
    ask(analyst, "GET", "/jobs/{job}/result", 404, job=r.job)
    publish(r.job, RESULT)
    ask(analyst, "GET", "/jobs/{job}/result", 200, job=r.job)
    ask(analyst, "GET", "/jobs/{job}/card", 200, job=r.job)
    ask(analyst, "GET", "/artifacts", 200)
    there = {"to": "hf://datasets/clinic/notes", "license": "cc-by-4.0", "language": "en"}
    there |= {"reason": "a benchmark that others can run"}
    asked = ask(analyst, "POST", "/jobs/{job}/push", 202, there, job=r.job).json["decision"]["id"]
    ask(analyst, "POST", "/jobs/{job}/push", 409, there, job=r.job)
    ask(analyst, "POST", "/jobs/{job}/push", 422, there | {"to": "clinic/notes"}, job=r.job)
    ask(analyst, "GET", "/decisions/{decision}/archive", 409, decision=asked)
    yes = {"yes": True, "reason": "the board agreed"}
    ask(r.api("steward"), "POST", ANSWER, 200, yes, decision=asked)
    ask(analyst, "GET", "/decisions/{decision}/archive", 200, decision=asked)
    commit = {"commit": "c0ffee" * 6 + "c0ff"}
    ask(analyst, "POST", "/decisions/{decision}/pushed", 200, commit, decision=asked)
    ask(analyst, "GET", "/artifacts/{sha256}", 404, sha256="0" * 64)


def offers(r: Recorder, _: Publish) -> None:
    ask, analyst, steward = r.ask, r.api("analyst"), r.api("steward")
    smaller = {"parameters": {"tokens_per_batch": 4}}
    first, second, third = (r.site.submitted(tokens=tokens) for tokens in (11, 12, 13))
    ask(steward, "GET", "/decisions", 200, query="?limit=1")
    ask(steward, "POST", "/jobs/{job}/offer/quote", 200, smaller, job=first)
    reasoned = smaller | {"reason": "this much fits the pilot"}
    made = [
        ask(steward, "POST", "/jobs/{job}/offer", 201, reasoned, job=job).json["id"]
        for job in (first, second, third)
    ]
    ask(analyst, "GET", "/decisions/{decision}", 200, decision=made[0])
    ask(analyst, "POST", ANSWER, 200, {"yes": True}, decision=made[0])
    ask(analyst, "POST", ANSWER, 409, {"yes": False, "reason": "late"}, decision=made[0])
    ask(analyst, "POST", ANSWER, 200, {"yes": False, "reason": "too few"}, decision=made[1])
    ask(steward, "POST", ANSWER, 200, {"yes": False, "reason": "a slip"}, decision=made[2])


ANSWER = "/decisions/{decision}/answer"


def charges(r: Recorder, _: Publish) -> None:
    ask, analyst, steward = r.ask, r.api("analyst"), r.api("steward")
    name = r.site.bench.dataset
    policy = ask(steward, "GET", "/datasets/{name}/policy", 200, name=name).json
    admitting = policy | {"auto_approve_epsilon": "1", "stated_charges_epsilon": "2"}
    ask(steward, "PUT", "/datasets/{name}/policy", 200, admitting, name=name)
    stated = {"tool": "opacus 1.6", "unit": "record", "relation": "add-remove"}
    request = {"dataset": name, "mechanism": "charge", "purpose": "a triage model"}
    request |= {"parameters": {"event": [[1.0, 0.001, 100]], **stated}}
    job = ask(analyst, "POST", "/jobs", 201, request).json["id"]
    lease = {"lease": "c0ffee" * 10 + "c0ff"}
    ask(analyst, "POST", "/jobs/{job}/begin", 200, lease | {"lease_seconds": 600}, job=job)
    ask(analyst, "POST", "/jobs/{job}/begin", 409, {"lease": "0b" * 32}, job=job)
    going = lease | {"lease_seconds": 600, "step": 50}
    ask(analyst, "POST", "/jobs/{job}/alive", 200, going, job=job)
    ask(analyst, "POST", "/jobs/{job}/settle", 422, lease | {"signature": "00"}, job=job)
    ask(analyst, "POST", "/jobs/{job}/settle", 200, lease | {"output": "5e" * 32}, job=job)
    ask(analyst, "POST", "/jobs/{job}/alive", 409, going, job=job)
    twice = {"reason": "a script ran twice", "parameters": request["parameters"]}
    ask(steward, "POST", "/datasets/{name}/overdraft", 422, twice, name=name)
    large = {**twice, "parameters": {"event": {"epsilon": 99.0}, **stated}}
    late = ask(steward, "POST", "/datasets/{name}/overdraft", 202, large, name=name).json[
        "decision"
    ]
    no = {"yes": False, "reason": "it was another dataset"}
    ask(steward, "POST", ANSWER, 200, no, decision=late["id"])
    ask(steward, "PUT", "/datasets/{name}/policy", 200, policy, name=name)


def ledgers(r: Recorder, _: Publish) -> None:
    ask, auditor, name = r.ask, r.api("auditor"), r.site.bench.dataset
    ask(auditor, "GET", "/datasets/{name}/ledger", 200, query="?limit=2", name=name)
    ask(auditor, "GET", "/datasets/{name}/ledger/check", 200, name=name)
    ask(auditor, "GET", "/datasets/{name}/ledger/export", 200, name=name)
    ask(auditor, "POST", "/datasets/{name}/checkpoints", 201, name=name)
    ask(auditor, "GET", "/datasets/{name}/checkpoints", 200, query="?limit=1", name=name)
    ask(auditor, "GET", "/datasets/{name}/ex-post", 200, name=name)
    ask(r.api("analyst"), "GET", "/datasets/{name}/ledger", 403, name=name)


def two_people(r: Recorder, _: Publish) -> None:
    ask, steward, name = r.ask, r.api("steward"), r.site.bench.dataset
    second = r.api("steward-2")
    policy = ask(steward, "GET", "/datasets/{name}/policy", 200, name=name).json | {
        "two_people": True
    }
    ask(steward, "PUT", "/datasets/{name}/policy", 200, policy, name=name)
    raised = {
        "epsilon": "14",
        "delta": "0.0000029053",
        "ex_post": "5",
        "reason": "the board raised it",
    }
    asked = ask(steward, "POST", "/datasets/{name}/allowance", 202, raised, name=name)
    proposed = asked.json["decision"]["id"]
    ask(steward, "POST", ANSWER, 403, {"yes": True, "reason": "mine"}, decision=proposed)
    ask(second, "POST", ANSWER, 200, {"yes": True, "reason": "I was there"}, decision=proposed)
    correction = {"reason": "it was cancelled, and its output had been copied"}
    ask(second, "POST", "/jobs/{job}/correct", 422, correction, job=r.job)
    ask(second, "POST", "/jobs/{job}/correct", 202, correction, job=r.void)
    wide = {"epsilon": "15", "delta": "0.0000029053", "ex_post": "5", "reason": "once more"}
    other = ask(steward, "POST", "/datasets/{name}/allowance", 202, wide, name=name).json[
        "decision"
    ]["id"]
    ask(second, "POST", ANSWER, 200, {"yes": False, "reason": "not needed"}, decision=other)
    alone = policy | {"two_people": False}
    other = ask(steward, "PUT", "/datasets/{name}/policy", 202, alone, name=name).json["decision"][
        "id"
    ]
    ask(steward, "POST", ANSWER, 200, {"yes": False, "reason": "a slip"}, decision=other)


def audit(r: Recorder, _: Publish) -> None:
    ask, auditor, name = r.ask, r.api("auditor"), r.site.bench.dataset
    ask(r.api("analyst"), "POST", "/jobs", 201, r.site.job(100_000))
    ask(auditor, "GET", "/ledger", 200, query="?limit=1")
    ask(auditor, "GET", "/datasets/{name}/ledger/{seq}", 200, name=name, seq="2")
    ask(auditor, "GET", "/refusals", 200, query="?cap=renyi&limit=1")
    ask(auditor, "GET", "/checkpoints", 200, query="?limit=1")
    ask(auditor, "GET", "/activity", 200, query="?limit=2")
    ask(auditor, "GET", "/datasets/{name}/report", 200, name=name)
    ask(r.api("analyst"), "GET", "/datasets/{name}/spending", 200, name=name)
    ask(r.api("analyst"), "GET", "/meaning", 200, query="?epsilon=8&delta=0.000001")
    more = {"epsilon": "16", "delta": "0.0000029053", "reason": "what if"}
    ask(r.api("steward"), "POST", "/datasets/{name}/allowance/preview", 200, more, name=name)


def notices(r: Recorder, _: Publish) -> None:
    ask, administrator = r.ask, r.api("administrator")
    ask(administrator, "GET", "/notices/events", 200)
    wanted = {
        "url": "https://hooks.slack.com/services/T/B/X",
        "kind": "chat",
        "events": ["job.succeeded"],
    }
    wanted["person"] = r.site.actor("analyst").name
    notice = {"id": ask(administrator, "POST", "/notices", 201, wanted).json["id"]}
    ask(administrator, "GET", "/notices", 200)
    ask(administrator, "POST", "/notices/{id}/test", 201, **notice)
    ask(administrator, "DELETE", "/notices/{id}", 200, **notice)


def mistakes(r: Recorder, _: Publish) -> None:
    ask, analyst = r.ask, r.api("analyst")
    ask(Api(r.site.app, None), "GET", "/me", 401)
    ask(analyst, "GET", "/jobs", 422, query="?cursor=nonsense")
    ask(analyst, "GET", "/jobs", 422, query="?limit=0")


def maintenance(r: Recorder, _: Publish) -> None:
    ask, administrator = r.ask, r.api("administrator")
    ask(administrator, "GET", "/maintenance", 200)
    for on in (True, False):
        ask(administrator, "PUT", "/maintenance", 200, {"on": on, "reason": "an upgrade"})
