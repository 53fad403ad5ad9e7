"""Public things that a request names: corpora, embedding models, further language models.

A mechanism says which of its parameters name one (Mechanism.resources). They are looked up when the
request is decided, and their hashes stand in its RESERVE, so that what a job read beside the data
can be held against the very bytes.
"""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Engine, Row, select

from accountant import tables
from accountant.core import mechanisms
from accountant.core.errors import NotPermitted, invalid
from accountant.core.ledger.policy import Policy
from accountant.transactions.job_requests import Candidate

_WORDS = {
    "corpus": "corpus",
    "embedding": "embedding model",
    "model": "language model",
    "writer": "language model or endpoint",
}
#: The kinds of models that serve as each kind of thing.
_KINDS = {
    "embedding": ("embedding",),
    "model": ("language",),
    "endpoint": ("endpoint",),
    "writer": ("language", "endpoint"),
}


def resolve(connection: Connection, job: Candidate, policy: Policy) -> dict[str, dict[str, str]]:
    """{field: {kind, name, sha256}} of what the parameters name.

    Raises InvalidRequest where there is no such thing, or none that is ready, or where it lacks
    what the request needs, and NotPermitted where the dataset's policy excludes a model.
    """
    resources, facts = {}, {}
    mechanism = mechanisms.get(job.mechanism)
    for field, kind in mechanism.resources(job.resolved).items():
        name = str(getattr(job.resolved, field))
        check_policy(policy, {field: {"kind": kind, "name": name}})
        row = _row(connection, kind, name)
        if row is None or row.state != "ready":
            problem = (
                f"there is no {_WORDS[kind]} {name!r}"
                if row is None
                else f"{name!r} is {row.state}"
            )
            raise invalid(
                f"parameters.{field}", problem, ", ".join(_ready(connection, kind)) or "none yet"
            )
        resources[field] = {"kind": kind, "name": name, "sha256": row.facts["sha256"]}
        if kind == "writer":
            resources[field]["kind"] = "model"
            if row.kind == "endpoint":
                if not job.is_free:  # its requests would reveal what it reads
                    problem = "an endpoint is asked by jobs that read no records"
                    raise invalid(f"parameters.{field}", problem, "a registered language model")
                declared = {key: row.endpoint[key] for key in ("model", "version")}
                resources[field] |= {"kind": "endpoint", **declared}
        facts[field] = row.facts
    unfit = mechanism.unfit_public(job.resolved, job.terms, facts)
    if unfit is not None:
        raise invalid(f"parameters.{unfit.field}", unfit.problem, unfit.allowed)
    return resources


def check_policy(policy: Policy, found: Mapping[str, Mapping[str, str]]) -> None:
    """Raise NotPermitted where the policy excludes a model among what `resolve` found."""
    for each in found.values():
        if each["kind"] != "corpus" and policy.models and each["name"] not in policy.models:
            raise NotPermitted(f"the dataset's policy does not allow the model {each['name']!r}")


def find(engine: Engine, kind: str, name: str) -> Row[Any] | None:
    """Return a public thing's row by name, for a worker: where to find what a RESERVE names."""
    with engine.connect() as connection:
        return _row(connection, kind, name)


def _row(connection: Connection, kind: str, name: str) -> Row[Any] | None:
    return connection.execute(_query(kind).where(_table(kind).c.name == name)).one_or_none()


def _ready(connection: Connection, kind: str) -> list[str]:
    query = (
        _query(kind).with_only_columns(_table(kind).c.name).where(_table(kind).c.state == "ready")
    )
    return sorted(connection.execute(query).scalars())


def _table(kind: str) -> Any:
    return tables.corpora if kind == "corpus" else tables.models


def _query(kind: str) -> Any:
    if kind == "corpus":
        return select(tables.corpora)
    return select(tables.models).where(tables.models.c.kind.in_(_KINDS[kind]))


def lineage(found: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """Return its part of the lineage in a RESERVE; empty if nothing is named."""
    return {"public": {field: dict(each) for field, each in found.items()}} if found else {}
