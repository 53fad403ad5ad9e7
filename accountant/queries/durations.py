"""How long a request would take, by what is public: parameters, declared sizes, a model's measured speed."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, select

from accountant import tables
from accountant.core.ledger.policy import Policy
from accountant.core.mechanisms.base import Mechanism
from accountant.core.mechanisms.durations import MODEL, Speed, estimate, in_words, together
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
    """The estimate for a request with this model and those that its fields name.

    None where nothing is told of the mechanism, or a model that does a part of the work was not measured.
    """
    writer = getattr(parameters, "writer", None) or (model if mechanism.uses_model else None)
    if writer is None:
        return None
    tokens = _template_tokens(connection, _facts(connection, writer), parameters, terms)
    parts = []
    for field, work in mechanism.work(_within_corpus(connection, parameters), terms, tokens).items():
        facts = _facts(connection, model if field == MODEL else getattr(parameters, field), field)
        speed = Speed.read(facts["speed"]) if "speed" in facts else None
        if speed is None or not speed.tells(work):
            return None
        # A model cuts what it embeds at its own context, where that is shorter.
        columns = min(work.read_columns, facts["context_tokens"])
        read = work.prompts * columns // max(1, work.read_columns)
        parts.append(estimate(replace(work, prompts=read, read_columns=columns), speed))
    if not parts:
        return None
    found = together(parts)
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


def _facts(connection: Connection, name: str | None, field: str = MODEL) -> Mapping[str, Any]:
    """The public facts of a model of the kind that a field names; none where there is no such model."""
    kind = "embedding" if field == "embedding" else "language"
    models = tables.models
    query = select(models.c.facts).where(models.c.name == name, models.c.kind == kind)
    return connection.execute(query).scalar_one_or_none() or {}


def _within_corpus(connection: Connection, parameters: Any) -> Any:
    """The parameters, with no more public texts than the corpus has where that is known."""
    name = getattr(parameters, "public_corpus", None) or getattr(parameters, "corpus", None)
    if name is None or not hasattr(parameters, "public_texts"):
        return parameters
    corpora = tables.corpora
    facts = connection.execute(select(corpora.c.facts).where(corpora.c.name == name)).scalar_one_or_none()
    texts = min(parameters.public_texts, (facts or {}).get("texts", parameters.public_texts))
    return parameters.model_copy(update={"public_texts": texts})


def _template_tokens(connection: Connection, facts: Mapping[str, Any], parameters: Any, terms: Terms) -> int:
    """Tokens of the longest template: as a worker counted them for a job like this, else by its length."""
    raw = parameters.model_dump(mode="json")
    probes, key = tables.probes, probe_key(facts or None, raw, terms)
    known = connection.execute(select(probes.c.facts).where(probes.c.key == key)).scalar_one_or_none()
    if known is not None:
        return int(known["template_tokens"])
    return max((len(each) // TOKEN_CHARACTERS + 1 for each in templates(raw)), default=0)
