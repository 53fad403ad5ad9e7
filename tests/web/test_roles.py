"""Every route × every role: who should get there does, and nobody else gets an answer or changes
anything.
"""

from uuid import UUID

import pytest
from sqlalchemy import event

from accountant.core.privacy.events import from_json
from accountant.transactions import leases, settlement
from accountant.transactions.artifacts import Stored
from tests import tallies
from tests.support import put
from tests.web.routes import API, ELSEWHERE, EVERYONE, PAGES, Request, Route, World

#: What an answer to somebody who may not says: not signed in, not permitted, or that there is no
#: such thing.
CLOSED = {401, 403, 404}
#: Tables that say who knocked; a refused request may write there.
DOORS = ("sign_ins", "sessions", "api_tokens")


@pytest.fixture
def world(site):
    """A site with one of everything, an output and an artifact included."""
    tallies.register()
    yield make_world(site)
    tallies.forget()


def make_world(site) -> World:
    """A world whose analyst has a succeeded job with texts and an artifact."""
    site.api("steward").put(f"{site.dataset}/policy", {"auto_approve_epsilon": "10"})
    body = site.job(mechanism="tally", model=None, parameters={"epsilon": 1.0})
    job_id = site.api("analyst").post("/jobs", body).json["id"]
    claim = leases.claim(site.engine, UUID(job_id), 1, "a worker", 60)
    leases.begin_reading(site.engine, claim)
    content, texts = f'{{"job": "{job_id}"}}'.encode(), b'{"text": "x"}\n'
    sha256 = put(site.results, content)[1]
    stored = Stored("counts", "noisy-counts", "application/json", sha256, len(content), "draft")
    output = settlement.Output("draft", put(site.results, texts)[1], (stored,))
    realized = from_json(site.api("steward").get(f"/jobs/{job_id}").json["event"])
    settlement.publish(site.engine, claim, realized, output, "a worker")
    site.api("steward").put(f"{site.dataset}/policy", {})
    return World(site, published=job_id, artifact=sha256)


class Sender:
    """Sends requests as one of the people, and notes what they write."""

    def __init__(self, world: World, who: str) -> None:
        self.world, self.who = world, who
        site = world.site
        name = {"stranger": "analyst-stranger"}.get(who, who)
        self.api = None if who == "nobody" else site.api(name)
        self.pages = None if who == "nobody" else site.pages(name)
        self.client = site.app.test_client()
        self.written: list[str] = []
        self.token = ""

    def send(self, request: Request, *, api: bool):
        """The answer; `written` then holds every statement that changed a table."""
        self.written = []
        mine = self.world.site.app.extensions["exchequer"]["engine"]
        event.listen(mine, "before_cursor_execute", self._note)
        try:
            return self._send(request, api)
        finally:
            event.remove(mine, "before_cursor_execute", self._note)

    def _note(self, _connection, _cursor, statement, *_):
        words = statement.split()
        if words[0] in ("INSERT", "UPDATE", "DELETE") and not any(
            door in words[:4] for door in DOORS
        ):
            self.written.append(statement)

    def _send(self, request: Request, api: bool):
        if api:
            headers = self.api.headers if self.api else {}
            path = f"/api/v1{request.path}"
            return self.client.open(path, method=request.method, json=request.json, headers=headers)
        client = self.client if self.pages is None else self.pages.client
        data = None
        if request.form is not None:
            self.token = self.token or _token(client, self.who)
            data = {"csrf_token": self.token, **request.form}
        answer = client.open(request.path, method=request.method, data=data)
        if "Set-Cookie" in answer.headers:  # another session may have begun
            self.token = ""
        return answer


def _token(client, who: str) -> str:
    import re

    page = client.get("/sign-in" if who == "nobody" else "/models").text
    found = re.search(r'name="csrf_token" value="([^"]+)"', page)
    assert found
    return found[1]


def closed(answer) -> bool:
    """Return True if an answer keeps somebody out: pages send strangers to the sign-in form."""
    return answer.status_code in CLOSED or (
        answer.status_code == 303 and "/sign-in" in answer.headers.get("Location", "")
    )


@pytest.mark.slow
@pytest.mark.parametrize("api", [True, False], ids=["api", "pages"])
def test_every_role_reaches_what_it_should_and_nothing_else(world, api):
    routes: dict[str, Route] = API if api else PAGES
    wrong = []
    senders = {who: Sender(world, who) for who in sorted(EVERYONE)}
    for name, route in routes.items():
        refused = route.request(world)  # whoever may not leaves it as it was
        for who in sorted(EVERYONE, key=lambda each: each in route.may):
            request, sender = route.request(world) if who in route.may else refused, senders[who]
            answer = sender.send(request, api=api)
            seen = f"{name} {request.method} {request.path} as {who}: {answer.status_code}"
            if who in route.may:
                if closed(answer) or (
                    answer.status_code >= 400 and answer.status_code != route.status
                ):
                    wrong.append(f"{seen}, kept out: {answer.text[:300]}")
            elif not closed(answer):
                wrong.append(f"{seen}, let in")
            elif sender.written:
                wrong.append(f"{seen}, refused, yet it wrote {sender.written[0][:100]}")
    assert not wrong, "\n".join(wrong)


#: Routes of whoever has the role, about no dataset; what they list is searched for what is the
#: owners' alone.
ANYWHERE = frozenset(
    {
        *("api.add_model", "api.add_corpus", "api.add_dataset", "api.upload", "api.list_uploads"),
        *("api.show_upload", "api.discard_upload", "api.list_refusals", "api.all_checkpoints"),
        *("api.list_activity", "wizard.start", "wizard.step", "wizard.panel"),
        *(
            "people.log",
            "decisions.listing",
            "decisions.changes",
            "overview.table",
            "overview.file",
            "overview.calendar",
            "auditing.listing",
            "auditing.refusals",
        ),
        *(
            "auditing.activity",
            "auditing.signed",
            "auditing.keys",
            "auditing.keys_file",
            "auditing.exports",
        ),
        *("models.add", "corpora.add", "uploads.files", "uploads.add", "uploads.discard"),
    }
)


@pytest.mark.slow
def test_stewards_and_auditors_of_other_datasets_are_strangers_here(world):
    """Own and others' objects with owners: no route lets them in, and no list holds anything of
    it.
    """
    site = world.site
    colleague, bench = site.actor("steward-colleague"), site.bench
    world.owners = {
        "stewards": (bench.steward.name, colleague.name),
        "auditors": (bench.auditor.name,),
    }
    site.api("steward").put(
        f"{site.dataset}/policy", {name: list(each) for name, each in world.owners.items()}
    )
    world.made += [world.published, world.artifact]
    wrong = []
    for who in ("steward-outsider", "auditor-outsider"):
        sender = Sender(world, who)
        for routes, api in ((API, True), (PAGES, False)):
            for name, route in routes.items():
                request = route.request(world)
                answer = sender.send(request, api=api)
                seen = f"{name} {request.method} {request.path} as {who}: {answer.status_code}"
                if closed(answer):
                    wrong += [f"{seen}, refused, yet it wrote"] * bool(sender.written)
                    continue
                if "stranger" not in route.may and name not in ANYWHERE:
                    wrong.append(f"{seen}, let in")
                leaks = [
                    each
                    for each in world.made
                    if each in answer.text or f"/{each[:8]}" in answer.text
                ]
                wrong += [f"{seen}, shows {each}" for each in leaks]
    assert not wrong, "\n".join(wrong)
    for who in ("steward", "auditor"):  # and the owners themselves are let in
        assert site.api(who).get(f"{site.dataset}/ledger").status_code == 200


def test_every_route_has_its_row(app):
    known = {rule.endpoint for rule in app.url_map.iter_rules()}
    assert known == set(API) | set(PAGES) | ELSEWHERE


def test_anothers_job_and_artifact_are_as_unknown_as_one_that_never_was(world):
    """An answer to a stranger doesn't say whether a job exists."""
    stranger = world.site.api("analyst-stranger")
    nothing = "00000000-0000-4000-8000-000000000000"
    for path in ("/jobs/{}", "/jobs/{}/result", "/jobs/{}/output", "/jobs/{}/card"):
        real, none = (stranger.get(path.format(each)) for each in (world.published, nothing))
        assert real.status_code == none.status_code == 404
        assert real.text.replace(world.published, nothing) == none.text
    real, none = (stranger.get(f"/artifacts/{each}") for each in (world.artifact, "0" * 64))
    assert real.status_code == none.status_code == 404
    assert real.text.replace(world.artifact, "0" * 64) == none.text
