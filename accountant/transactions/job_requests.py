"""Requests: prices, policy, context lengths and the largest request that would fit.

Reads no table; the ledger calls it with the rows that it holds.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

from sqlalchemy import Row

from accountant.core import mechanisms
from accountant.core.errors import FieldProblem, InvalidRequest, NotPermitted, invalid
from accountant.core.ledger import charges
from accountant.core.ledger.accounts import NOTHING, Accounts, Demand, demand
from accountant.core.ledger.accounts import with_largest as largest_beside
from accountant.core.ledger.admission import Refused, delta_of
from accountant.core.ledger.caps import Usage
from accountant.core.ledger.hash_chain import canonical
from accountant.core.ledger.policy import Policy
from accountant.core.mechanisms import charge
from accountant.core.mechanisms.base import Mechanism
from accountant.core.names import PROJECT_NAME
from accountant.core.privacy.events import to_json
from accountant.core.privacy.pld_bounds import quoted
from accountant.core.privacy.price import Price, Terms
from accountant.core.template import templates


@dataclass(frozen=True)
class JobRequest:
    """An analyst's request, as it arrived."""

    dataset: str
    mechanism: str
    model: str | None  # None: the mechanism uses none
    parameters: Mapping[str, Any]
    purpose: str = ""
    project: str | None = None  # a public name; None: the job belongs to no project

    @cached_property
    def text(self) -> str:
        """The parameters as JSON, which tells 2 from 2.0."""
        return json.dumps(dict(self.parameters), sort_keys=True)

    def sha256(self) -> str:
        """Return the body's identity. Raises ValueError if it has no canonical form."""
        body = {"dataset": self.dataset, "mechanism": self.mechanism, "model": self.model}
        body["purpose"] = self.purpose
        if self.project is not None:  # requests without one keep the identity that they had before
            body["project"] = self.project
        found = _identity if len(self.text) <= _LONGEST_CACHED else _identity.__wrapped__
        return found(_Shape(tuple(body.items()), self.text, self.parameters))


@dataclass(frozen=True)
class Priced:
    """A request after every check that needs no lock; `columns` are those of its row in `jobs`."""

    candidate: "Candidate"
    columns: Mapping[str, Any]


@dataclass(frozen=True)
class _Shape:
    """Parameters and what they are parameters of; equal where the text is. The text tells 2 from
    2.0.

    `raw`: the parameters, as they were given or parsed.
    """

    of: Any
    text: str
    raw: Any = field(compare=False)


#: A price takes milliseconds and depends on nothing but these, so the one found before the lock is
#: taken serves while it is held. Longer parameters are priced anew each time: memory stays bounded.
_CACHED_PRICES = 1024
_LONGEST_CACHED = 16_384


def priced(request: JobRequest, terms: Terms) -> Priced:
    """Return the price of a request that can run. Raises InvalidRequest, with every wrong field."""
    shape = _Shape(mechanisms.get_runnable(request.mechanism), request.text, request.parameters)
    found = (_outcome if len(request.text) <= _LONGEST_CACHED else _outcome.__wrapped__)(
        shape, terms
    )
    if isinstance(found, Priced):
        return found
    raise InvalidRequest(found)


@lru_cache(maxsize=_CACHED_PRICES)
def _identity(shape: _Shape) -> str:
    return hashlib.sha256(canonical({**dict(shape.of), "parameters": dict(shape.raw)})).hexdigest()


@lru_cache(maxsize=_CACHED_PRICES)
def _outcome(shape: _Shape, terms: Terms) -> Priced | tuple[FieldProblem, ...]:
    """Return the price, or what is wrong: refusing a request costs as much as pricing it."""
    try:
        return _price(shape, terms)
    except InvalidRequest as error:
        return error.problems


def _price(shape: _Shape, terms: Terms) -> Priced:
    mechanism = shape.of
    try:
        parameters = mechanism.parse(shape.raw, terms)
    except InvalidRequest as error:
        raise InvalidRequest([_under_parameters(problem) for problem in error.problems]) from None
    lacking = mechanism.missing(parameters)
    if lacking is not None:
        raise InvalidRequest([_under_parameters(lacking)])
    return _at(mechanism, parameters, terms)


def price_of(mechanism: Mechanism[Any], parameters: Any, terms: Terms) -> Price:
    """Return parsed parameters' price, found once for quote, form check and submission."""
    text = parameters.model_dump_json()
    found = _known_price if len(text) <= _LONGEST_CACHED else _known_price.__wrapped__
    return found(_Shape(mechanism, text, parameters), terms)


@lru_cache(maxsize=_CACHED_PRICES)
def _known_price(shape: _Shape, terms: Terms) -> Price:
    price: Price = shape.of.price(shape.raw, terms)
    return price


def _at(mechanism: Mechanism[Any], parameters: Any, terms: Terms) -> Priced:
    dumped = mechanism.recorded(parameters)
    parameters = mechanism.parse(dumped, terms)  # what is priced is what is recorded
    price = price_of(mechanism, parameters, terms)
    alone = None if price.dp is None else quoted(price.dp, terms.delta)[0]
    columns = {
        "mechanism": mechanism.id,
        "parameters": dumped,
        "terms": terms.to_json(),
        "event": None if price.dp is None else to_json(price.dp),
        "epsilon_alone": alone,
        "breakdown": list(price.breakdown),
    }
    asked = demand(price)
    if mechanism.public and asked != NOTHING:
        raise ValueError(f"{mechanism.id} is public and has a price")
    return Priced(Candidate(mechanism.id, dumped, parameters, terms, asked, alone or 0.0), columns)


def _under_parameters(problem: FieldProblem) -> FieldProblem:
    return FieldProblem(f"parameters.{problem.field}", problem.problem, problem.allowed)


def terms_of(dataset: Any, accounts: Accounts) -> Terms:
    """Return a dataset's public terms: its row, its delta, and its statement of secrets."""
    dp, secret = accounts.dp, accounts.secret
    stated = {} if secret is None else {"secret": secret.terms.to_json()}
    return Terms.from_json(
        {
            **stated,
            "neighbours": dataset.neighbours,
            "delta": delta_of(None if dp is None else dp.delta),
            "max_records_per_unit": dataset.max_records_per_unit,
            "public_size": dataset.public_size,
            "labels": dataset.labels,
            "groups": dataset.groups,
        }
    )


def check_data(mechanism: str, data_is_here: bool) -> None:
    """Raise InvalidRequest for a job on a dataset whose data never comes here."""
    if not data_is_here and mechanism != charge.ID:
        problem = "the data of this dataset never comes here, so no job of this service reads it"
        raise invalid("mechanism", problem, "charge, for what another program releases")


def check_policy(policy: Policy, request: JobRequest, analyst: str) -> None:
    """Raise NotPermitted where the dataset's policy excludes mechanism, model or analyst.

    Raises InvalidRequest for a project that is no name, and for none where the policy caps
    projects.
    """
    if request.project is not None and not re.fullmatch(PROJECT_NAME, request.project):
        raise invalid(
            "project",
            repr(request.project[:80]),
            "1 to 63 lower case letters, digits, '.', '_', '-'",
        )
    if request.project is None and policy.counts_projects:
        raise invalid(
            "project", "not given, and the dataset's policy caps projects", "the project's name"
        )
    # A policy that lists no mechanisms admits no charges by that: it says so itself.
    listed = () if request.mechanism == charge.ID else policy.mechanisms
    if request.mechanism == charge.ID:
        charges.check_admitted(policy, request.parameters)
    for name, allowed, asked in (
        ("mechanism", listed, mechanisms.get(request.mechanism).admitted_as),
        ("model", policy.models, request.model),
        ("analyst", policy.analysts, analyst),
    ):
        if allowed and asked is not None and asked not in allowed:
            raise NotPermitted(f"the dataset's policy does not allow the {name} {asked!r}")


# --- candidates ---------------------------------------------------------------------------------

#: What a probe would find for a mechanism whose parameters have no template.
NO_TEMPLATE: Mapping[str, Any] = {"template_tokens": 0}


@dataclass(frozen=True)
class Candidate:
    """A job to be decided on, recorded or about to be; `resolved`: its parsed parameters."""

    mechanism: str
    parameters: Mapping[str, Any]
    resolved: Any
    terms: Terms
    asked: Demand
    epsilon_alone: float

    @property
    def is_free(self) -> bool:
        """True if it charges no account."""
        return self.asked == NOTHING

    @property
    def is_public(self) -> bool:
        """True if it reads public inputs only."""
        return mechanisms.get(self.mechanism).public


def candidate_of(job: Row[Any]) -> Candidate:
    """Return a recorded job: what it asks is the price of its parameters under its terms."""
    mechanism = mechanisms.get(job.mechanism)
    terms = Terms.from_json(job.terms)
    resolved = mechanism.parse(job.parameters, terms)
    asked = demand(mechanism.price(resolved, terms))
    return Candidate(
        job.mechanism, job.parameters, resolved, terms, asked, job.epsilon_alone or 0.0
    )


def restated(job: Row[Any], delta: float) -> Priced:
    """Return a recorded job that waits, at the δ of now: what approval and caps go by, and what is
    shown.

    Its parameters are resolved, so it asks of every account what it did; what it costs alone is
    another.
    """
    mechanism = mechanisms.get(job.mechanism)
    terms = replace(Terms.from_json(job.terms), delta=delta)
    return _at(mechanism, mechanism.parse(job.parameters, terms), terms)


#: What `restated` changes of a job.
RESTATED = ("terms", "epsilon_alone", "breakdown")


def probe_key(
    model: Mapping[str, Any] | None, parameters: Mapping[str, Any], terms: Terms
) -> str | None:
    """Return identity of a public probe: the model's bytes, the templates and the labels that fill
    them.

    `model`: the facts found about it. None where there is no model or the parameters have no
    template: there is nothing to look at.
    """
    found = templates(parameters)
    if model is None or not found:
        return None
    return _probe_key(model["sha256"], tuple(found), terms.labels)


@lru_cache(maxsize=1024)
def _probe_key(model: str, found: tuple[str, ...], labels: tuple[str, ...]) -> str:
    document = {"model": model, "templates": list(found), "labels": list(labels)}
    return hashlib.sha256(canonical(document)).hexdigest()


def parts_of(job: Candidate, most: int) -> int:
    """Into how many parts a job is split: from its parameters and the service's settings alone."""
    return min(mechanisms.get(job.mechanism).batches(job.resolved, job.terms), most)


def context_problem(
    job: Candidate, model: Mapping[str, Any] | None, probe: Mapping[str, Any]
) -> Refused | None:
    """Return a refusal if this model can't run the job or has too short a context."""
    if model is None:
        return None
    mechanism = mechanisms.get(job.mechanism)
    unfit = mechanism.unfit(job.resolved, model)
    if unfit is not None:
        return Refused("model", unfit.allowed, unfit.field, f"{unfit.field}: {unfit.problem}")
    asked = mechanism.context_tokens(job.resolved, probe["template_tokens"])
    limit = model["context_tokens"]
    if asked <= limit:
        return None
    why = (
        f"a context would need {asked} tokens ({probe['template_tokens']} of template, the rest "
        f"record and text), the model has {limit}: make {_lengths(mechanism)} or the template "
        "smaller"
    )
    return Refused("model context", str(limit), str(asked), why)


def _lengths(mechanism: Mechanism[Any]) -> str:
    """Return the fields of a mechanism that make its contexts long."""
    named = ("record_tokens", "max_text_tokens", "max_tokens", "target_tokens")
    found = [name for name in named if name in mechanism.fields]
    return ", ".join(found[:2] if "max_text_tokens" in found else found)


def with_largest(
    refused: Refused, job: Candidate, accounts: Accounts, policy: Policy, usage: Usage
) -> Refused:
    """Add the largest value of the size field with which the request would fit every account.

    Not where no size would help: a policy that excludes it, or no allowance at all. A search over
    prices: never while an account's row is held.
    """
    if refused.cap in ("policy", "allowance", "overdrawn"):
        return refused
    mechanism = mechanisms.get(job.mechanism)
    return largest_beside(refused, mechanism, job.parameters, job.terms, accounts, policy, usage)
