"""What to ask for on a dataset as it stands: the proposal of the core for a goal, a model and a
share of what is left.
"""

from collections.abc import Collection, Mapping
from fractions import Fraction
from typing import Any

from sqlalchemy import Engine, select

from accountant import tables
from accountant.catalogue import corpora
from accountant.core import mechanisms
from accountant.core.errors import invalid
from accountant.core.ledger.policy import Policy
from accountant.core.mechanisms import group_plans, summary_adapter
from accountant.core.mechanisms.outlooks import Outlook
from accountant.core.mechanisms.planning import PLANNED, SHARES, propose_least
from accountant.core.mechanisms.proposals import Known, Proposal
from accountant.core.mechanisms.summary_oneshot import ADAPTER
from accountant.database import reading
from accountant.identities.actor import Actor
from accountant.queries import models
from accountant.queries.dataset_rows import dataset_row
from accountant.queries.measured import measured
from accountant.queries.quotes import (
    affordable_by,
    is_overseer,
    outlook_of,
    output_of,
    standing_for,
)
from accountant.schema import quotes
from accountant.transactions import artifacts
from accountant.transactions.job_requests import check_data, terms_of

#: Released artifacts, the newest, among which an adapter is looked for.
MOST_ARTIFACTS = 200


def proposal_on(
    engine: Engine,
    name: str,
    goal: str,
    viewer: Actor,
    *,
    share: float | None = None,
    model: str | None = None,
    project: str | None = None,
    mechanism: str | None = None,
    label_counts: Mapping[str, int] | None = None,
) -> quotes.Proposal:
    """Return what to ask for on a dataset, and what it would be worth. Changes nothing.

    `share`: at most this part of what is left; None: the smallest of `SHARES` whose proposal is
    good, or as good as that of all. `model`: None takes the largest that is ready and admitted.
    `mechanism`: None takes the one of the best outlook. `label_counts`: noisy ones that a job
    published.
    Raises NotFound and InvalidRequest.
    """
    if goal not in PLANNED:
        raise invalid("goal", f"nothing is proposed for {goal[:40]!r}", ", ".join(PLANNED))
    with reading(engine) as connection:
        row = dataset_row(connection, name)
        standing = standing_for(connection, row, viewer, project)
    check_data(goal, row.data_is_here)
    terms = terms_of(row, standing.accounts)
    shown = standing.shown(is_overseer(viewer, row))
    admitted = standing.policy.mechanisms
    offered = [each for each in mechanisms.runnable() if not admitted or each in admitted]
    named, facts = _model(engine, viewer, standing.policy, model)
    found, part = propose_least(
        goal,
        terms,
        lambda part: affordable_by(shown.part(Fraction(part)), terms),
        facts,
        offered,
        mechanism,
        SHARES if share is None else (share,),
        _known(engine, viewer, named, offered)
        if goal == "summaries" and terms.groups
        else Known(label_counts=label_counts or {}),
    )
    if standing.accounts.dp is None:
        found = Proposal(goal, Outlook("not enough", "the dataset has no allowance yet"))
    asked = None if found.mechanism is None else mechanisms.get(found.mechanism)
    uses_model = asked is not None and asked.uses_model
    return quotes.Proposal(
        goal=goal,
        share=0.0 if asked is not None and asked.public else part,
        outlook=_required(found),
        mechanism=found.mechanism,
        model=named if uses_model else None,
        parameters=dict(found.parameters),
        output=output_of(found.makes),
        lacks=None if found.lacks is None else f"{found.lacks.field}: {found.lacks.allowed}",
        notes=[*found.notes, *filter(None, [measured(found.mechanism or "")])],
    )


def _required(found: Proposal) -> quotes.Outlook:
    told = outlook_of(found.outlook)
    assert told is not None
    return told


def _model(
    engine: Engine, viewer: Actor, policy: Policy, named: str | None
) -> tuple[str | None, Mapping[str, Any]]:
    """Return the name and the public facts of the model that would run it; None: there is none."""
    for model in models.serving(engine, viewer, policy.models, ("language",)):
        if named in (None, model.name):
            return model.name, model.facts or {}
    if named is not None:
        raise invalid("model", f"{named[:80]!r} is not ready here", "a registered language model")
    return None, {}


def _known(engine: Engine, viewer: Actor, model: str | None, offered: Collection[str]) -> Known:
    """Return what summaries need: adapters that the viewer may use, the newest first, and corpora
    that one can be trained on, the largest first.
    """
    ready = {
        each["name"]: each["facts"] for each in corpora.listing(engine, viewer) if _is_ready(each)
    }
    rows = artifacts.listing(engine, viewer, limit=MOST_ARTIFACTS)
    found = [row["job"] for row in rows if row["kind"] == ADAPTER and row["model"] == model]
    jobs = tables.jobs
    with reading(engine) as connection:
        query = select(jobs.c.id, jobs.c.parameters).where(jobs.c.id.in_(found))
        trained = {str(row.id): row.parameters for row in connection.execute(query)}
    trainable = sorted(ready, key=lambda name: -ready[name]["texts"])
    return Known(
        {job: trained[job] for job in found if trained[job]["corpus"] in ready},
        tuple(trainable) if summary_adapter.MECHANISM.id in offered else (),
    )


def _is_ready(corpus: Mapping[str, Any]) -> bool:
    """Return True for a corpus whose labels have a set of texts, a target and some to spare."""
    facts = corpus["facts"] or {}
    labels = max(1, len(facts.get("labels", ())))
    enough = facts.get("texts", 0) // labels >= 2 * group_plans.TRAINING["set_size"]
    return bool(corpus["state"] == "ready" and enough)
