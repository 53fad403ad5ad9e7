"""How long a request would take, by what is public: parameters, declared sizes, a model's measured speed."""

import math
from typing import Any

from sqlalchemy import Connection, select

from accountant import tables
from accountant.core.ledger.policy import Policy
from accountant.core.mechanisms.base import Mechanism
from accountant.core.mechanisms.durations import Speed, estimate, in_words
from accountant.core.privacy.price import Terms
from accountant.core.template import templates
from accountant.schema.quotes import Duration
from accountant.transactions.job_requests import probe_key

#: Characters of a token, about, in a template that no worker has counted yet.
TOKEN_CHARACTERS = 3


def duration(
    connection: Connection,
    mechanism: Mechanism[Any],
    parameters: Any,
    terms: Terms,
    model: str | None,
    policy: Policy,
) -> Duration | None:
    """The estimate for a request with this model, or the one that writes; None where nothing is known."""
    name = getattr(parameters, "writer", None) or (model if mechanism.uses_model else None)
    if name is None:
        return None
    models = tables.models
    query = select(models.c.facts).where(models.c.name == name, models.c.kind == "language")
    facts = connection.execute(query).scalar_one_or_none()
    if not facts or "speed" not in facts:
        return None
    work = mechanism.work(parameters, terms, _template_tokens(connection, facts, parameters, terms))
    if work is None:
        return None
    found = estimate(work, Speed.read(facts["speed"]))
    warning, limit = None, policy.time_limit_seconds
    if limit is not None and found.seconds > limit:
        share = max(1, math.floor(100 * limit / found.seconds))
        warning = (
            f"time_limit_seconds: an attempt ends after {in_words(limit)} here, for about "
            f"{share} % of this work, and the next one goes on, a few times at most; a job "
            "that needs more of them fails and is charged"
        )
    low, high, told = found.low, found.high, found.sentence()
    return Duration(
        seconds=found.seconds, low=low, high=high, device=found.device, sentence=told, warning=warning
    )


def _template_tokens(connection: Connection, facts: Any, parameters: Any, terms: Terms) -> int:
    """Tokens of the longest template: as a worker counted them for a job like this, else by its length."""
    raw = parameters.model_dump(mode="json")
    probes, key = tables.probes, probe_key(facts, raw, terms)
    known = connection.execute(select(probes.c.facts).where(probes.c.key == key)).scalar_one_or_none()
    if known is not None:
        return int(known["template_tokens"])
    return max((len(each) // TOKEN_CHARACTERS + 1 for each in templates(raw)), default=0)
