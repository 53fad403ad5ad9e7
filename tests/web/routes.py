"""Every route of the service, who may take it, and a request that is right.

One table serves two promises: each role reaches what it should and nothing else (test_roles.py), and private
facts change nothing that an analyst sees (test_twins.py). A route without a row fails both.

The people: `analyst` asked for the jobs, `stranger` is another analyst, `nobody` is not signed in.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from accountant import corpora, proposals, registry
from accountant.core.admission import Policy
from accountant.ledger import Allowance
from tests.web.browsers import Site

PEOPLE: Final = frozenset({"analyst", "stranger", "steward", "auditor", "administrator"})
EVERYONE: Final = PEOPLE | {"nobody"}
STEWARD: Final = frozenset({"steward"})
OVERSEERS: Final = frozenset({"steward", "auditor"})
ASKERS: Final = frozenset({"analyst", "stranger", "steward"})
#: Who may see a job of `analyst`.
SEERS: Final = frozenset({"analyst", "steward", "auditor"})
ADMINISTRATOR: Final = frozenset({"administrator"})

PARAMETERS: Final = {"tokens_per_batch": 10}
REASON: Final = {"reason": "a test"}


@dataclass
class World:
    """A site with one of everything; what a request uses up is made anew for each."""

    site: Site
    published: str = ""  # a succeeded job of `analyst`
    artifact: str = ""  # the hash of what that job released besides its texts
    names: dict[str, int] = field(default_factory=dict)
    raised: int = 0

    @property
    def dataset(self) -> str:
        return self.site.bench.dataset

    def fresh(self, kind: str) -> str:
        """A name that nothing has."""
        self.names[kind] = self.names.get(kind, 0) + 1
        return f"{kind}-{self.names[kind]}-{self.dataset}"

    def job(self) -> str:
        """A job of `analyst` that awaits approval."""
        return str(self.site.bench.submit(3))

    def proposal(self) -> str:
        """An open proposal of another steward: a raise, which needs two people here."""
        bench, colleague = self.site.bench, self.site.actor("steward-colleague")
        registry.set_policy(bench.engine, bench.dataset, Policy(two_people=True), bench.steward)
        self.raised += 1
        raised = Allowance(str(10 + self.raised), "0.0000029053", "a test")
        found = proposals.allow_or_propose(bench.engine, bench.dataset, raised, colleague)
        assert found is not None
        return str(found)


@dataclass(frozen=True)
class Request:
    """What is sent; `form` goes to a page with the token of the sender's session."""

    method: str
    path: str
    json: Any = None
    form: dict[str, str] | None = None


@dataclass(frozen=True)
class Route:
    """One endpoint: who may take it, a right request, and its status where there is nothing to change."""

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


def put(path: str, body: Any) -> Callable[[World], Request]:
    """A PUT of JSON."""
    return lambda world: Request("PUT", filled(path, world), json=body)


def send(path: str, body: Any = None) -> Callable[[World], Request]:
    """A form of a page."""
    return lambda world: Request(
        "POST", filled(path, world), form=body(world) if callable(body) else body or {}
    )


def filled(path: str, world: World) -> str:
    """`path` with the names of things in it."""
    for name in ("job", "proposal"):
        if f"{{{name}}}" in path:
            path = path.replace(f"{{{name}}}", getattr(world, name)())
    return path.format(dataset=world.dataset, published=world.published, artifact=world.artifact)


def _dataset(world: World) -> dict[str, Any]:
    return {"name": world.fresh("data"), "uri": f"/nowhere/{world.fresh('file')}.csv"}


def _dataset_form(world: World) -> dict[str, str]:
    return {**_dataset(world), "neighbours": "add-remove", "text_template": "{text}"}


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


def _job_form(world: World) -> dict[str, str]:
    return {
        "action": "submit",
        "mechanism": "private-prediction",
        "model": world.site.bench.model,
        "parameters.tokens_per_batch": "3",
        "purpose": "a test",
    }


def _user(world: World) -> dict[str, Any]:
    return {"name": world.fresh("person")[:60], "password": "correct horse battery", "roles": ["analyst"]}


DATASET: Final = "/datasets/{dataset}"
ALLOWANCE: Final = {"epsilon": "9", "delta": "0.000001", "reason": "a test"}

API: Final[dict[str, Route]] = {
    "api.openapi": Route(EVERYONE, get("/openapi.json")),
    "api.keys": Route(EVERYONE, get("/keys")),
    "api.me": Route(PEOPLE, get("/me")),
    "api.users": Route(ADMINISTRATOR, get("/users")),
    "api.add_user": Route(ADMINISTRATOR, post("/users", _user)),
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
    "api.correct_dataset": Route(STEWARD, post(f"{DATASET}/data", {"uri": "/nowhere.csv"}), status=409),
    "api.add_version": Route(STEWARD, post(f"{DATASET}/versions", {"uri": "/elsewhere.csv"})),
    "api.policy": Route(PEOPLE, get(f"{DATASET}/policy")),
    "api.set_policy": Route(STEWARD, put(f"{DATASET}/policy", {})),
    "api.quote": Route(
        PEOPLE,
        post(f"{DATASET}/quote", {"mechanism": "private-prediction", "parameters": PARAMETERS}),
    ),
    "api.entries": Route(OVERSEERS, get(f"{DATASET}/ledger")),
    "api.ex_post": Route(OVERSEERS, get(f"{DATASET}/ex-post")),
    "api.export": Route(OVERSEERS, get(f"{DATASET}/ledger/export")),
    "api.check": Route(OVERSEERS, get(f"{DATASET}/ledger/check")),
    "api.list_checkpoints": Route(OVERSEERS, get(f"{DATASET}/checkpoints")),
    "api.make_checkpoint": Route(OVERSEERS, post(f"{DATASET}/checkpoints")),
    "api.submit": Route(ASKERS, post("/jobs", _job)),
    "api.jobs": Route(PEOPLE, get("/jobs?dataset={dataset}")),
    "api.job": Route(SEERS, get("/jobs/{published}")),
    "api.result": Route(SEERS, get("/jobs/{published}/result")),
    "api.approve": Route(STEWARD, post("/jobs/{job}/approve", REASON)),
    "api.refuse": Route(STEWARD, post("/jobs/{job}/refuse", REASON)),
    "api.cancel": Route(frozenset({"analyst", "steward"}), post("/jobs/{job}/cancel")),
    "api.correct": Route(STEWARD, post("/jobs/{published}/correct", REASON), status=422),
    "api.list_artifacts": Route(PEOPLE, get("/artifacts?dataset={dataset}")),
    "api.artifact": Route(SEERS, get("/artifacts/{artifact}")),
    "api.list_proposals": Route(OVERSEERS, get("/proposals")),
    "api.proposal": Route(OVERSEERS, get("/proposals/{proposal}")),
    "api.confirm": Route(STEWARD, post("/proposals/{proposal}/confirm", REASON)),
    "api.withdraw": Route(STEWARD, post("/proposals/{proposal}/withdraw", REASON)),
}

PAGES: Final[dict[str, Route]] = {
    "api_docs.show": Route(EVERYONE, get("/api/docs")),
    "healthz": Route(EVERYONE, get("/healthz"), file=True),
    "static": Route(EVERYONE, get("/static/exchequer.css"), file=True),
    "sign_in.form": Route(EVERYONE, get("/sign-in")),
    "datasets.catalogue": Route(PEOPLE, get("/")),
    "datasets.new": Route(STEWARD, get("/add-dataset")),
    "datasets.add": Route(STEWARD, send("/datasets", _dataset_form)),
    "datasets.show": Route(PEOPLE, get(DATASET)),
    "datasets.allow": Route(STEWARD, send(f"{DATASET}/allowance", ALLOWANCE)),
    "datasets.set_policy": Route(STEWARD, send(f"{DATASET}/policy")),
    "datasets.correct": Route(STEWARD, send(f"{DATASET}/data", {"uri": "/nowhere.csv"}), status=409),
    "datasets.add_version": Route(STEWARD, send(f"{DATASET}/versions", {"uri": "/elsewhere.csv"})),
    "datasets.export": Route(OVERSEERS, get(f"{DATASET}/ledger.jsonl"), file=True),
    "datasets.ask": Route(ASKERS, get(f"{DATASET}/submit")),
    "datasets.submit": Route(ASKERS, send(f"{DATASET}/submit", _job_form)),
    "datasets.price": Route(ASKERS, send(f"{DATASET}/price", _job_form)),
    "jobs.listing": Route(PEOPLE, get("/jobs?dataset={dataset}")),
    "jobs.show": Route(SEERS, get("/jobs/{published}")),
    "jobs.live": Route(SEERS, get("/jobs/{published}/live"), file=True),
    "jobs.result": Route(SEERS, get("/jobs/{published}/result"), file=True),
    "jobs.cancel": Route(frozenset({"analyst", "steward"}), send("/jobs/{job}/cancel")),
    "inbox.listing": Route(STEWARD, get("/inbox")),
    "inbox.changes": Route(STEWARD, get("/inbox/changes?shown="), file=True),
    "inbox.decide": Route(STEWARD, send("/inbox/{job}", {"decision": "refuse", **REASON})),
    "inbox.settle": Route(STEWARD, send("/inbox/proposals/{proposal}", {"decision": "withdraw", **REASON})),
    "artifacts.listing": Route(PEOPLE, get("/artifacts?dataset={dataset}")),
    "artifacts.file": Route(SEERS, get("/artifacts/{artifact}"), file=True),
    "models.listing": Route(PEOPLE, get("/models")),
    "models.add": Route(STEWARD, send("/models", _model)),
    "corpora.listing": Route(PEOPLE, get("/corpora")),
    "corpora.add": Route(STEWARD, send("/corpora", _corpus)),
}

#: Signing in and out is tested where it is built: it is what makes the roles.
ELSEWHERE: Final = frozenset({"api.sign_in", "sign_in.submit", "sign_in.sign_out"})
