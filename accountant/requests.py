"""What is asked for: prices, policy, context lengths and the largest request that would fit.

Reads no table; the ledger calls it with the rows that it holds.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row

from accountant.core import currencies, mechanisms
from accountant.core.admission import Policy, Refused
from accountant.core.budget import DELTA_UNITS
from accountant.core.caps import Usage
from accountant.core.chain import canonical
from accountant.core.composition import epsilon_alone
from accountant.core.currencies import Accounts, Demand
from accountant.core.errors import FieldProblem, InvalidRequest, NotPermitted, invalid
from accountant.core.pricing import Mechanism, Price, Terms

PROJECT_NAME = r"[a-z0-9][a-z0-9._-]{0,62}"


@dataclass(frozen=True)
class JobRequest:
    """What an analyst asks for, as it arrived."""

    dataset: str
    mechanism: str
    model: str | None  # None: the mechanism uses none
    parameters: Mapping[str, Any]
    purpose: str = ""
    project: str | None = None  # a public name; None: the job belongs to no project

    def sha256(self) -> str:
        """Identity of the body, for idempotency keys."""
        document = {
            "dataset": self.dataset,
            "mechanism": self.mechanism,
            "model": self.model,
            "parameters": dict(self.parameters),
            "purpose": self.purpose,
        }
        if self.project is not None:  # requests without one keep the identity that they had before
            document["project"] = self.project
        return hashlib.sha256(canonical(document)).hexdigest()


@dataclass(frozen=True)
class Priced:
    """A request after every check that needs no lock; `epsilon_alone` None: it has no dp part."""

    mechanism: Mechanism[Any]
    parameters: Any
    terms: Terms
    price: Price
    epsilon_alone: float | None

    @property
    def is_free(self) -> bool:
        """Whether it asks nothing of any account."""
        return currencies.demand(self.price) == currencies.NOTHING


def priced(request: JobRequest, terms: Terms) -> Priced:
    """The price of a request that can run. Raises InvalidRequest naming every wrong field."""
    mechanism = mechanisms.get_runnable(request.mechanism)
    try:
        parameters = mechanism.parse(request.parameters, terms)
    except InvalidRequest as error:
        raise InvalidRequest([_under_parameters(each) for each in error.problems]) from None
    lacking = mechanism.unavailable(parameters) or mechanism.missing(parameters)
    if lacking is not None:
        raise InvalidRequest([_under_parameters(lacking)])
    price = mechanism.price(parameters, terms)
    alone = None if price.dp is None else epsilon_alone(price.dp, terms.delta)[0]
    return Priced(mechanism, parameters, terms, price, alone)


def _under_parameters(problem: FieldProblem) -> FieldProblem:
    return FieldProblem(f"parameters.{problem.field}", problem.problem, problem.allowed)


def terms_of(dataset: Row[Any], accounts: Accounts) -> Terms:
    """The public terms of a dataset: its row, its allowance's delta, and what it states of secrets."""
    dp, secret = accounts.dp, accounts.secret
    stated = {} if secret is None else {"secret": secret.terms.to_json()}
    return Terms.from_json(
        {
            **stated,
            "neighbours": dataset.neighbours,
            "delta": 1e-6 if dp is None or dp.delta == 0 else dp.delta / DELTA_UNITS,
            "max_records_per_unit": dataset.max_records_per_unit,
            "public_size": dataset.public_size,
            "labels": dataset.labels,
        }
    )


def check_policy(policy: Policy, request: JobRequest, analyst: str) -> None:
    """Raise NotPermitted where the dataset's policy excludes mechanism, model or analyst.

    Raises InvalidRequest for a project that is no name, and for none where the policy caps projects.
    """
    if request.project is not None and not re.fullmatch(PROJECT_NAME, request.project):
        raise invalid(
            "project", repr(request.project[:80]), "1 to 63 lower case letters, digits, '.', '_', '-'"
        )
    if request.project is None and policy.project_epsilon is not None:
        raise invalid("project", "not given, and the dataset's policy caps projects", "the project's name")
    for name, allowed, asked in (
        ("mechanism", policy.mechanisms, request.mechanism),
        ("model", policy.models, request.model),
        ("analyst", policy.analysts, analyst),
    ):
        if allowed and asked is not None and asked not in allowed:
            raise NotPermitted(f"the dataset's policy does not allow the {name} {asked!r}")


# --- recorded jobs ------------------------------------------------------------------------------

#: What a probe would find for a mechanism whose parameters have no template.
NO_TEMPLATE: Mapping[str, Any] = {"template_tokens": 0}


def probe_key(model: Row[Any] | None, parameters: Mapping[str, Any], terms: Mapping[str, Any]) -> str | None:
    """Identity of a public probe: the model's bytes, the template and the labels that fill it.

    None where there is no model or the parameters have no template: there is nothing to look at.
    """
    if model is None or "template" not in parameters:
        return None
    document = {
        "model": model.facts["sha256"],
        "template": parameters["template"],
        "labels": list(terms["labels"]),
    }
    return hashlib.sha256(canonical(document)).hexdigest()


def demand_of(job: Row[Any]) -> Demand:
    """What a recorded job asks of each currency: the price of its parameters under its terms."""
    mechanism = mechanisms.get(job.mechanism)
    terms = Terms.from_json(job.terms)
    return currencies.demand(mechanism.price(mechanism.parse(job.parameters, terms), terms))


def context_problem(job: Row[Any], model: Row[Any] | None, probe: Mapping[str, Any]) -> Refused | None:
    """The refusal of a job whose contexts are longer than its model takes."""
    if model is None:
        return None
    mechanism = mechanisms.get(job.mechanism)
    parameters = mechanism.parse(job.parameters, Terms.from_json(job.terms))
    asked = mechanism.context_tokens(parameters, probe["template_tokens"])
    limit = model.facts["context_tokens"]
    if asked <= limit:
        return None
    why = (
        f"a context would need {asked} tokens ({probe['template_tokens']} of template, the rest record and "
        f"text), the model has {limit}: make record_tokens, max_text_tokens or the template smaller"
    )
    return Refused("model context", str(limit), str(asked), why)


def with_largest(
    refused: Refused, job: Row[Any], accounts: Accounts, policy: Policy, usage: Usage
) -> Refused:
    """Add the largest value of the size field with which the request would fit every account.

    Not where no size would help: a policy that excludes it, or no allowance at all.
    """
    if refused.cap in ("policy", "allowance", "overdrawn"):
        return refused
    raw = {name: value for name, value in job.parameters.items() if name != "max_text_tokens"}
    mechanism = mechanisms.get(job.mechanism)
    terms = Terms.from_json(job.terms)
    return currencies.with_largest(refused, mechanism, raw, terms, accounts, policy, usage)
