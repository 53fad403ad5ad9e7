"""Every route of the service, who may take it, and a request that is right.

One table serves two promises: each role reaches what it should and nothing else (test_roles.py),
and private facts change nothing that an analyst sees (test_twins.py). A route without a row fails
both.

The people: `analyst` asked for the jobs, `stranger` is another analyst, `nobody` is not signed in.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID, uuid4

from sqlalchemy import insert, select

from accountant import tables
from accountant.catalogue import corpora
from accountant.core.ledger.allowances import Allowance
from accountant.core.ledger.policy import Policy
from accountant.identities import credentials, passkeys, people
from accountant.transactions import allowances, charges, offers, policies, submission
from accountant.transactions.job_requests import JobRequest
from tests.passkeys import Passkey
from tests.support import Bench, person
from tests.web.browsers import PASSWORD, Site

PEOPLE: Final = frozenset({"analyst", "stranger", "steward", "auditor", "administrator"})
EVERYONE: Final = PEOPLE | {"nobody"}
STEWARD: Final = frozenset({"steward"})
OVERSEERS: Final = frozenset({"steward", "auditor"})
ASKERS: Final = frozenset({"analyst", "stranger", "steward"})
#: Who may see a job of `analyst`.
SEERS: Final = frozenset({"analyst", "steward", "auditor"})
ANALYST: Final = frozenset({"analyst"})
ADMINISTRATOR: Final = frozenset({"administrator"})
#: Whose address it is: no other but an administrator may see it.
OWNER: Final = frozenset({"analyst"})

PARAMETERS: Final = {"tokens_per_batch": 10}
REASON: Final = {"reason": "a test"}
LEASE: Final = {"lease": "ab" * 32}


@dataclass
class World:
    """A site with one of everything; what a request uses up is made anew for each."""

    site: Site
    published: str = ""  # a succeeded job of `analyst`
    artifact: str = ""  # the hash of what that job released besides its texts
    names: dict[str, int] = field(default_factory=dict)
    raised: int = 0
    settled: str = ""  # an ex-post job of `analyst`, where there is one
    owners: dict[str, tuple[str, ...]] = field(default_factory=dict)  # in the dataset's policy
    # ids that only the dataset's owners and `analyst` know
    made: list[str] = field(default_factory=list)

    @property
    def dataset(self) -> str:
        return self.site.bench.dataset

    def fresh(self, kind: str) -> str:
        """A name that nothing has."""
        self.names[kind] = self.names.get(kind, 0) + 1
        return f"{kind}-{self.names[kind]}-{self.dataset}"

    def job(self) -> str:
        """A job of `analyst` that awaits approval."""
        return self.noted(self.site.bench.submit(3))

    def charge(self) -> str:
        """A charge of `analyst` that is reserved, on a dataset whose policy admits it."""
        policy = {"auto_approve_epsilon": "1", "stated_charges_epsilon": "1"}
        # In two worlds these datasets stand in one order, by their names.
        bench = Bench(self.site.engine, tag=self.fresh("charge"), policy=policy)
        analyst = self.site.actor("analyst")
        bench.allow()
        stated = {"tool": "a test", "unit": "record", "relation": "add-remove"}
        request = JobRequest(
            bench.dataset, "charge", None, {"event": {"epsilon": 0.1}, **stated}, "a test"
        )
        return str(submission.submit(self.site.engine, request, analyst))

    def begun(self) -> str:
        """A charge of `analyst` that runs."""
        job, secret = self.charge(), bytes.fromhex(LEASE["lease"])
        charges.begin(self.site.engine, UUID(job), self.site.actor("analyst"), secret, 600)
        return job

    def noted(self, made: object) -> str:
        """The id, remembered among those that no outsider may see."""
        self.made.append(str(made))
        return self.made[-1]

    def notice(self) -> str:
        """An address that is told what `analyst` may see."""
        url, person = (
            f"https://receiver.example/{self.fresh('notice')}",
            self.site.actor("analyst").name,
        )
        wanted = {"url": url, "events": ["job.failed"], "kind": "json", "person": person}
        return str(self.site.api("administrator").post("/notices", wanted).json["id"])

    def upload(self) -> str:
        """The hash of a file that nothing names."""
        answer = self.site.api("steward").post("/uploads", {"text": self.fresh("text")})
        return str(answer.json["sha256"])

    def proposal(self) -> str:
        """An open proposal of another steward: a raise, which needs two people here."""
        bench, colleague = self.site.bench, self.site.actor("steward-colleague")
        policies.set_policy(
            bench.engine, bench.dataset, Policy(two_people=True, **self.owners), bench.steward
        )
        self.raised += 1
        raised = Allowance(str(10 + self.raised), "0.0000029053", "a test")
        found = allowances.allow(bench.engine, bench.dataset, raised, colleague)
        assert found is not None
        return self.noted(found)

    def person(self) -> str:
        """The name of an account that nobody uses."""
        name = self.fresh("person")[:60]
        credentials.add_user(self.site.engine, name, None, ["analyst"])
        return name

    def token(self) -> str:
        """The id of a token of `analyst`."""
        made = people.make_token(
            self.site.engine, self.site.actor("analyst"), "a test", ["read"], 1
        )
        return str(made["id"])

    def passkey(self) -> str:
        """The only passkey of `analyst`: one of several goes after a touch alone."""
        for each in passkeys.of(self.site.engine, self.site.actor("analyst").id):
            passkeys.remove(self.site.engine, self.site.actor("analyst"), UUID(each["id"]))
        actor, key = self.site.actor("analyst"), Passkey(self.site.actor("analyst").name)
        found = passkeys.add(
            self.site.engine, actor, "a", key.signer.key.encode(), b"", key.signer, 0
        )
        return str(found)

    def access(self) -> str:
        """Somebody's open request for access, who need not ask for it here."""
        bench, asker = self.site.bench, person(self.site.engine, "analyst")
        table, named, made = tables.decisions, tables.datasets, uuid4()
        own = select(named.c.id).where(named.c.name == bench.dataset).scalar_subquery()
        with bench.engine.begin() as connection:
            row = {
                "id": made,
                "kind": "access",
                "dataset_id": own,
                "asked": {},
                "asked_by": asker.id,
            }
            row |= {"reason": "for a study"}
            connection.execute(insert(table).values(**row))
        return self.noted(made)

    def push(self) -> str:
        """A yes to `analyst`, who may publish a result on a hub."""
        asked = {"to": f"hf://datasets/clinic/{self.fresh('hub')}", **REASON}
        answer = self.site.api("analyst").post(f"/jobs/{self.published}/push", asked)
        decision = self.noted(answer.json["decision"]["id"])
        yes = {"yes": True, **REASON}
        self.site.api("steward").post(f"/decisions/{decision}/answer", yes)
        return decision

    def offer(self) -> str:
        """An open offer of the steward to `analyst`."""
        bench = self.site.bench
        found = offers.offer(
            bench.engine, UUID(self.job()), {"tokens_per_batch": 2}, bench.steward, "a test"
        )
        return self.noted(found)


@dataclass(frozen=True)
class Request:
    """A request to send; `form` goes to a page with the token of the sender's session."""

    method: str
    path: str
    json: Any = None
    form: dict[str, str] | None = None


@dataclass(frozen=True)
class Route:
    """One endpoint: who may take it, a right request, and its status where there is nothing to
    change.
    """

    may: frozenset[str]
    request: Callable[[World], Request]
    status: int | None = None
    file: bool = False  # a GET whose answer is no page, or a part of one


def get(path: str) -> Callable[[World], Request]:
    """A GET; {dataset}, {published}, {artifact} and {job} stand for things of the world."""
    return lambda world: Request("GET", filled(path, world))


def post(path: str, body: Any = None) -> Callable[[World], Request]:
    """A POST of JSON; a body that is a function is made for each request."""
    return lambda world: Request(
        "POST", filled(path, world), json=body(world) if callable(body) else body or {}
    )


def remove(path: str) -> Callable[[World], Request]:
    """A DELETE."""
    return lambda world: Request("DELETE", filled(path, world))


def put(path: str, body: Any) -> Callable[[World], Request]:
    """A PUT of JSON."""
    return lambda world: Request("PUT", filled(path, world), json=body)


def send(path: str, body: Any = None) -> Callable[[World], Request]:
    """A form of a page."""
    return lambda world: Request(
        "POST", filled(path, world), form=body(world) if callable(body) else body or {}
    )


def filled(path: str, world: World) -> str:
    """`path` with the names of things in it; what is a method of the world is made anew."""
    for name in re.findall(r"\{(\w+)\}", path):
        thing = getattr(world, name)
        path = path.replace(f"{{{name}}}", thing() if callable(thing) else thing, 1)
    return path


def _policy_form(world: World) -> dict[str, str]:
    page = filled(f"{DATASET}/policy", world)
    version = world.site.pages("steward").token(page, "policy_version")
    return {"policy_version": version, "policy.two_people": "1"}


def _dataset(world: World) -> dict[str, Any]:
    return {"name": world.fresh("data"), "uri": f"/nowhere/{world.fresh('file')}.csv"}


def _dataset_form(world: World) -> dict[str, str]:
    return {**_dataset(world), "step": "data", "action": "create"}


def _model(world: World) -> dict[str, str]:
    return {"name": world.fresh("model"), "path": "/nowhere", "trained_on": "public text"}


def _corpus(world: World) -> dict[str, str]:
    return {"name": world.fresh("corpus"), "uri": "/nowhere.csv", "statement": "made up"}


def _known_corpus(world: World) -> Request:
    spec = corpora.CorpusSpec.model_validate(_corpus(world))
    corpora.add(world.site.engine, spec, world.site.bench.steward)
    return Request("GET", f"/corpora/{spec.name}")


def _job(world: World) -> dict[str, Any]:
    return world.site.job(3)


def _push(world: World) -> dict[str, str]:
    return {"to": f"hf://datasets/clinic/{world.fresh('hub')}", **REASON}


def _job_form(world: World) -> dict[str, str]:
    return {
        "action": "submit",
        "mechanism": "private-prediction",
        "model": world.site.bench.model,
        "parameters.tokens_per_batch": "3",
        "purpose": "a test",
    }


def _checkpoint(world: World) -> str:
    """The name of a checkpoint that is signed for it."""
    auditor = world.site.api("auditor")
    auditor.post(f"/datasets/{world.dataset}/checkpoints")
    found = auditor.get(f"/checkpoints?dataset={world.dataset}").json["checkpoints"]
    return str(found[0]["reference"])


def _checkpoint_file(world: World) -> Request:
    return Request("GET", f"/ledger/checkpoints/{_checkpoint(world)}.json")


def _sign(world: World) -> dict[str, str]:
    return {"dataset": world.dataset}


def _notice(world: World) -> dict[str, Any]:
    person = world.site.actor("analyst").name
    return {
        "url": "https://receiver.example/",
        "kind": "json",
        "person": person,
        "events": ["job.failed"],
    }


def _user(world: World) -> dict[str, Any]:
    return {
        "name": world.fresh("person")[:60],
        "password": "correct horse battery",
        "roles": ["analyst"],
    }


def _user_form(world: World) -> dict[str, str]:
    return {"name": world.fresh("person")[:60], "roles": "analyst"}


PERSON: Final = "/people/{person}"
TOKEN: Final = {"name": "a test", "scopes": ["read"], "days": 1}
DATASET: Final = "/datasets/{dataset}"
SMALLER: Final = {"parameters": {"tokens_per_batch": 2}}
SMALLER_FORM: Final = {"answer": "offer", "parameters.tokens_per_batch": "2", **REASON}
ALLOWANCE: Final = {"epsilon": "9", "delta": "0.000001", "reason": "a test"}

API: Final[dict[str, Route]] = {
    "api.openapi": Route(EVERYONE, get("/openapi.json")),
    "api.keys": Route(EVERYONE, get("/keys")),
    "api.me": Route(PEOPLE, get("/me")),
    "api.users": Route(ADMINISTRATOR, get("/users")),
    "api.add_user": Route(ADMINISTRATOR, post("/users", _user)),
    "api.user": Route(ADMINISTRATOR, get("/users/{person}")),
    "api.tokens_of_user": Route(ADMINISTRATOR, get("/users/{person}/tokens")),
    "api.set_roles": Route(ADMINISTRATOR, put("/users/{person}/roles", {"roles": ["auditor"]})),
    "api.deactivate_user": Route(ADMINISTRATOR, post("/users/{person}/deactivate")),
    "api.activate_user": Route(ADMINISTRATOR, post("/users/{person}/activate")),
    "api.reset_password": Route(ADMINISTRATOR, post("/users/{person}/reset-password")),
    "api.show_maintenance": Route(ADMINISTRATOR, get("/maintenance")),
    "api.switch_maintenance": Route(ADMINISTRATOR, put("/maintenance", {"on": False, **REASON})),
    "api.unlock_user": Route(ADMINISTRATOR, post("/users/{person}/unlock")),
    "api.sign_out_user": Route(ADMINISTRATOR, post("/users/{person}/sign-out")),
    "api.revoke_tokens_of_user": Route(ADMINISTRATOR, post("/users/{person}/revoke-tokens")),
    "api.tokens": Route(PEOPLE, get("/me/tokens")),
    "api.make_token": Route(PEOPLE, post("/me/tokens", TOKEN)),
    "api.revoke_token": Route(
        frozenset({"analyst", "administrator"}), post("/me/tokens/{token}/revoke")
    ),
    "api.sign_in_log": Route(PEOPLE, get("/sign-ins")),
    "api.models": Route(PEOPLE, get("/models")),
    "api.add_model": Route(STEWARD, post("/models", _model)),
    "api.model": Route(PEOPLE, lambda world: Request("GET", f"/models/{world.site.bench.model}")),
    "api.mechanisms": Route(PEOPLE, get("/mechanisms")),
    "api.list_corpora": Route(PEOPLE, get("/corpora")),
    "api.corpus": Route(PEOPLE, _known_corpus),
    "api.add_corpus": Route(STEWARD, post("/corpora", _corpus)),
    "api.datasets": Route(PEOPLE, get("/datasets")),
    "api.add_dataset": Route(STEWARD, post("/datasets", _dataset)),
    "api.dataset": Route(PEOPLE, get(DATASET)),
    "api.allow": Route(STEWARD, post(f"{DATASET}/allowance", ALLOWANCE)),
    "api.correct_dataset": Route(
        STEWARD, post(f"{DATASET}/data", {"uri": "/nowhere.csv"}), status=409
    ),
    "api.add_version": Route(STEWARD, post(f"{DATASET}/versions", {"uri": "/elsewhere.csv"})),
    "api.policy": Route(PEOPLE, get(f"{DATASET}/policy")),
    "api.set_policy": Route(STEWARD, put(f"{DATASET}/policy", {})),
    "api.quote": Route(
        PEOPLE,
        post(f"{DATASET}/quote", {"mechanism": "private-prediction", "parameters": PARAMETERS}),
    ),
    "api.propose": Route(PEOPLE, get(f"{DATASET}/proposal")),
    "api.entries": Route(OVERSEERS, get(f"{DATASET}/ledger")),
    "api.ex_post": Route(OVERSEERS, get(f"{DATASET}/ex-post")),
    "api.export": Route(OVERSEERS, get(f"{DATASET}/ledger/export")),
    "api.check": Route(OVERSEERS, get(f"{DATASET}/ledger/check")),
    "api.list_checkpoints": Route(OVERSEERS, get(f"{DATASET}/checkpoints")),
    "api.make_checkpoint": Route(OVERSEERS, post(f"{DATASET}/checkpoints")),
    "api.spending_of": Route(PEOPLE, get(f"{DATASET}/spending")),
    "api.preview_allowance": Route(STEWARD, post(f"{DATASET}/allowance/preview", ALLOWANCE)),
    "api.means": Route(PEOPLE, get("/meaning?epsilon=1&delta=0.000001")),
    "api.list_decisions": Route(PEOPLE, get("/decisions")),
    "api.show_decision": Route(SEERS, get("/decisions/{offer}")),
    "api.answer": Route(STEWARD, post("/decisions/{job}/answer", {"yes": False, **REASON})),
    "api.offer": Route(STEWARD, post("/jobs/{job}/offer", SMALLER | REASON)),
    "api.quote_offer": Route(STEWARD, post("/jobs/{job}/offer/quote", SMALLER)),
    "api.ledger_entries": Route(OVERSEERS, get("/ledger?dataset={dataset}")),
    "api.ledger_entry": Route(OVERSEERS, get(f"{DATASET}/ledger/2")),
    "api.list_refusals": Route(OVERSEERS, get("/refusals")),
    "api.all_checkpoints": Route(OVERSEERS, get("/checkpoints")),
    "api.list_activity": Route(OVERSEERS | ADMINISTRATOR, get("/activity")),
    "api.dataset_report": Route(OVERSEERS, get(f"{DATASET}/report")),
    "api.submit": Route(ASKERS, post("/jobs", _job)),
    "api.jobs": Route(PEOPLE, get("/jobs?dataset={dataset}")),
    "api.job": Route(SEERS, get("/jobs/{published}")),
    "api.result": Route(SEERS, get("/jobs/{published}/result")),
    "api.output": Route(SEERS, get("/jobs/{published}/output?format=csv")),
    "api.card": Route(SEERS, get("/jobs/{published}/card")),
    "api.push": Route(frozenset({"analyst", "steward"}), post("/jobs/{published}/push", _push)),
    "api.pushed_archive": Route(ANALYST, get("/decisions/{push}/archive")),
    "api.record_push": Route(ANALYST, post("/decisions/{push}/pushed", {"commit": "ab" * 20})),
    "api.begin": Route(ANALYST, post("/jobs/{charge}/begin", LEASE)),
    "api.alive": Route(ANALYST, post("/jobs/{begun}/alive", LEASE)),
    "api.settle": Route(ANALYST, post("/jobs/{begun}/settle", LEASE)),
    "api.cancel": Route(frozenset({"analyst", "steward"}), post("/jobs/{job}/cancel")),
    "api.comment": Route(
        frozenset({"analyst", "steward"}), post("/jobs/{job}/comments", {"text": "a test"})
    ),
    "api.correct": Route(STEWARD, post("/jobs/{published}/correct", REASON), status=422),
    "api.declare_overdraft": Route(
        STEWARD, post(f"{DATASET}/overdraft", {"parameters": {}, **REASON}), status=422
    ),
    "api.list_artifacts": Route(PEOPLE, get("/artifacts?dataset={dataset}")),
    "api.artifact": Route(SEERS, get("/artifacts/{artifact}")),
    "api.upload": Route(STEWARD, post("/uploads", lambda world: {"text": world.fresh("text")})),
    "api.list_uploads": Route(STEWARD, get("/uploads")),
    "api.show_upload": Route(STEWARD, get("/uploads/{upload}")),
    "api.discard_upload": Route(STEWARD, remove("/uploads/{upload}")),
    "api.notice_events": Route(PEOPLE, get("/notices/events")),
    "api.list_notices": Route(PEOPLE, get("/notices")),
    "api.add_notice": Route(ADMINISTRATOR, post("/notices", _notice)),
    "api.remove_notice": Route(OWNER | ADMINISTRATOR, remove("/notices/{notice}")),
    "api.test_notice": Route(ADMINISTRATOR, post("/notices/{notice}/test")),
}

PAGES: Final[dict[str, Route]] = {
    "api_docs.show": Route(EVERYONE, get("/api/docs")),
    "healthz": Route(EVERYONE, get("/healthz"), file=True),
    "livez": Route(EVERYONE, get("/livez"), file=True),
    "readyz": Route(EVERYONE, get("/readyz"), file=True),
    "static": Route(EVERYONE, get("/static/exchequer.css"), file=True),
    "sign_in.form": Route(EVERYONE, get("/sign-in")),
    "account.show": Route(PEOPLE, get("/account")),
    "account.password": Route(PEOPLE, get("/account/password")),
    "account.tokens": Route(PEOPLE, get("/account/tokens")),
    "account.make_token": Route(
        PEOPLE, send("/account/tokens", {"name": "a test", "scopes": "read", "days": "1"})
    ),
    "account.revoke_token": Route(
        frozenset({"analyst", "administrator"}), send("/account/tokens/{token}/revoke")
    ),
    "account.add_passkey": Route(PEOPLE, send("/account/passkeys", {"passkey_name": "laptop"})),
    "account.remove_passkey": Route(
        OWNER, send("/account/passkeys/{passkey}/remove", {"confirm_password": PASSWORD})
    ),
    "people.listing": Route(ADMINISTRATOR, get("/people")),
    "people.add": Route(ADMINISTRATOR, send("/people", _user_form)),
    "people.show": Route(ADMINISTRATOR, get(PERSON)),
    "people.set_roles": Route(ADMINISTRATOR, send(f"{PERSON}/roles", {"roles": "auditor"})),
    "people.act": Route(ADMINISTRATOR, send(f"{PERSON}/activate")),
    "people.reset_password": Route(ADMINISTRATOR, send(f"{PERSON}/password")),
    "people.revoke_token": Route(ADMINISTRATOR, send(f"{PERSON}/tokens/{{token}}/revoke")),
    "people.log": Route(frozenset({"auditor", "administrator"}), get("/sign-ins")),
    "datasets.catalogue": Route(PEOPLE, get("/")),
    "overview.table": Route(OVERSEERS, get("/overview?sort=left")),
    "overview.file": Route(OVERSEERS, get("/overview.csv"), file=True),
    "overview.calendar": Route(OVERSEERS, get("/overview.ics"), file=True),
    "wizard.start": Route(STEWARD, get("/add-dataset")),
    "wizard.step": Route(STEWARD, send("/add-dataset", _dataset_form)),
    "wizard.panel": Route(STEWARD, send("/add-dataset/meaning", {"epsilon": "1", "delta": "0.1"})),
    "datasets.spent": Route(PEOPLE, get(f"{DATASET}/spending")),
    "datasets.show": Route(PEOPLE, get(DATASET)),
    "datasets.ask_access": Route(ASKERS, send(f"{DATASET}/access", REASON), status=409),
    "policies.show": Route(STEWARD, get(f"{DATASET}/policy")),
    "policies.allow": Route(STEWARD, send(f"{DATASET}/allowance", ALLOWANCE)),
    "policies.allowance_effect": Route(STEWARD, send(f"{DATASET}/allowance/effect", ALLOWANCE)),
    "policies.review": Route(STEWARD, send(f"{DATASET}/allowance/review", ALLOWANCE)),
    "policies.set_policy": Route(STEWARD, send(f"{DATASET}/policy", _policy_form)),
    "policies.policy_effect": Route(STEWARD, send(f"{DATASET}/policy/effect")),
    "datasets.correct": Route(
        STEWARD, send(f"{DATASET}/data", {"uri": "/nowhere.csv"}), status=409
    ),
    "datasets.add_version": Route(STEWARD, send(f"{DATASET}/versions", {"uri": "/elsewhere.csv"})),
    "datasets.export": Route(OVERSEERS, get(f"{DATASET}/ledger.jsonl"), file=True),
    "asking.ask": Route(ASKERS, get(f"{DATASET}/submit")),
    "asking.submit": Route(ASKERS, send(f"{DATASET}/submit", _job_form)),
    "asking.price": Route(ASKERS, send(f"{DATASET}/price", _job_form)),
    "jobs.listing": Route(PEOPLE, get("/jobs?dataset={dataset}")),
    "jobs.states": Route(EVERYONE, get("/job-states")),
    "docs.first": Route(EVERYONE, get("/docs")),
    "docs.show": Route(EVERYONE, get("/docs/mechanisms/noisy-count")),
    "jobs.show": Route(SEERS, get("/jobs/{published}")),
    "results.compare": Route(SEERS, get("/jobs/compare?a={published}&b={job}")),
    "jobs.live": Route(SEERS, get("/jobs/{published}/live"), file=True),
    "jobs.result": Route(SEERS, get("/jobs/{published}/result"), file=True),
    "jobs.output": Route(SEERS, get("/jobs/{published}/output.csv"), file=True),
    "jobs.card": Route(SEERS, get("/jobs/{published}/card.md"), file=True),
    "jobs.comment": Route(
        frozenset({"analyst", "steward"}), send("/jobs/{job}/comments", {"text": "a test"})
    ),
    "jobs.cancel": Route(frozenset({"analyst", "steward"}), send("/jobs/{job}/cancel")),
    "decisions.listing": Route(STEWARD, get("/inbox")),
    "decisions.confirm_selected": Route(
        STEWARD,
        send(
            "/inbox/selected/confirm",
            lambda world: {"ids": world.access(), "answer": "no", **REASON},
        ),
    ),
    "decisions.answer_selected": Route(
        STEWARD,
        send("/inbox/selected", lambda world: {"ids": world.access(), "answer": "no", **REASON}),
    ),
    "decisions.changes": Route(STEWARD, get("/inbox/changes?shown="), file=True),
    "decisions.show": Route(OVERSEERS, get("/decisions/{proposal}")),
    "decisions.answer": Route(STEWARD, send("/decisions/{access}", {"answer": "no", **REASON})),
    "decisions.confirm": Route(
        SEERS, send("/decisions/{offer}/confirm", {"answer": "yes", **REASON})
    ),
    "decisions.price": Route(STEWARD, send("/decisions/{job}/price", SMALLER_FORM)),
    "jobs.correct": Route(
        STEWARD,
        send("/jobs/{published}/correction", {"released": "reserved", **REASON}),
        status=422,
    ),
    "jobs.declare": Route(STEWARD, send("/jobs/{published}/overdraft", REASON), status=422),
    "auditing.listing": Route(OVERSEERS, get("/ledger?dataset={dataset}")),
    "auditing.entry": Route(OVERSEERS, get("/ledger/{dataset}/2")),
    "auditing.hashed": Route(OVERSEERS, get("/ledger/{dataset}/2.json"), file=True),
    "auditing.refusals": Route(OVERSEERS, get("/ledger/refusals")),
    "auditing.activity": Route(OVERSEERS | ADMINISTRATOR, get("/ledger/activity")),
    "auditing.signed": Route(OVERSEERS, get("/ledger/checkpoints")),
    "auditing.sign": Route(OVERSEERS, send("/ledger/checkpoints", _sign)),
    "auditing.checkpoint_file": Route(OVERSEERS, _checkpoint_file, file=True),
    "auditing.keys": Route(OVERSEERS, get("/ledger/keys")),
    "auditing.keys_file": Route(OVERSEERS, get("/ledger/keys.json"), file=True),
    "auditing.exports": Route(OVERSEERS, get("/ledger/exports?dataset={dataset}")),
    "auditing.registry": Route(OVERSEERS, get(f"{DATASET}/registry")),
    "auditing.registry_file": Route(OVERSEERS, send(f"{DATASET}/registry"), status=422),
    "auditing.report": Route(OVERSEERS, get(f"{DATASET}/report")),
    "artifacts.listing": Route(PEOPLE, get("/artifacts?dataset={dataset}")),
    "artifacts.file": Route(SEERS, get("/artifacts/{artifact}"), file=True),
    "models.listing": Route(PEOPLE, get("/models")),
    "models.add": Route(STEWARD, send("/models", _model)),
    "corpora.listing": Route(PEOPLE, get("/corpora")),
    "corpora.add": Route(STEWARD, send("/corpora", _corpus)),
    "uploads.files": Route(STEWARD, get("/uploads")),
    "uploads.add": Route(STEWARD, send("/uploads"), status=422),
    "uploads.discard": Route(STEWARD, send("/uploads/{upload}/discard")),
    "notices.listing": Route(PEOPLE, get("/settings/notices")),
    "notices.add": Route(ADMINISTRATOR, send("/settings/notices", _notice)),
    "notices.test": Route(ADMINISTRATOR, send("/settings/notices/{notice}/test")),
    "notices.remove": Route(OWNER | ADMINISTRATOR, send("/settings/notices/{notice}/remove")),
}

#: Signing in and out is tested where it is built: it is what makes the roles.
ELSEWHERE: Final = frozenset(
    {
        "auditing.published_file",
        *(
            "api.sign_in",
            "api.sign_out",
            "sign_in.submit",
            "sign_in.sign_out",
            "sign_in.provider_begin",
        ),
        *(
            "sign_in.passkey",
            "sign_in.provider_return",
            "sign_in.provider_again",
            "sign_in.provider_left",
            "sign_in.provider_back_channel",
            "api.change_password",
            "account.change_password",
        ),
        *("api.sign_out_everywhere", "account.sign_out_everywhere"),
    }
)
