"""What an admission goes by besides the account's row: looked up in one statement while that row is
held.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from sqlalchemy import JSON, Connection, bindparam, func, select, text, true

from accountant import tables
from accountant.core.ledger.accounts import Accounts
from accountant.core.ledger.policy import Policy
from accountant.core.privacy.price import Terms
from accountant.transactions.job_requests import terms_of
from accountant.transactions.locked_account import LockedAccount


@dataclass(frozen=True)
class ModelFacts:
    """A language model's row; `facts` are there where it is ready."""

    id: str
    name: str
    state: str
    facts: Mapping[str, Any] | None


@dataclass(frozen=True)
class Facts:
    """What a decision goes by besides the books: the newest ready version, the policy, terms and
    models.
    """

    version_id: UUID | None
    version_number: int
    policy: Policy
    terms: Terms
    models: Mapping[str, ModelFacts]


def look_up(
    locked: LockedAccount,
    models: Sequence[str],
    keys: Sequence[tuple[UUID, str]],
    tried: Sequence[UUID],
    people: Sequence[UUID],
) -> Any:
    """Return everything that a batch refers to, in one statement: its snapshot is younger than
    every request.

    `keys`: (analyst, idempotency key); `tried`: jobs that may be recorded; `people`: whose waiting
    jobs are counted. The account's `now` moves on.
    """
    found = locked.connection.execute(
        _LOOK_UP,
        {
            "dataset_id": locked.dataset_id,
            "seq": locked.seq,
            "models": models,
            "analysts": [analyst for analyst, _ in keys],
            "keys": [key for _, key in keys],
            "tried": tried,
            "people": people,
        },
    ).one()
    locked.now = found.now
    return found


def facts_of(found: Any, accounts: Accounts) -> Facts:
    """Return the facts in what `look_up` found."""
    dataset = SimpleNamespace(**found.dataset)
    models = {each["name"]: ModelFacts(**each) for each in found.models or ()}
    policy = Policy.model_validate(dataset.policy)
    return Facts(
        found.version_id, found.version_number, policy, terms_of(dataset, accounts), models
    )


_VERSION = (
    select(tables.dataset_versions)
    .where(tables.dataset_versions.c.dataset_id == tables.datasets.c.id)
    .where(tables.dataset_versions.c.state == "ready")
    .order_by(tables.dataset_versions.c.number.desc())
    .limit(1)
    .lateral()
)
_LOOK_UP = (
    select(
        func.row_to_json(tables.datasets.table_valued(), type_=JSON).label("dataset"),
        _VERSION.c.id.label("version_id"),
        _VERSION.c.number.label("version_number"),
        text("account_stand(datasets.id, CAST(:models AS text[])) AS stand"),
        text(
            "(SELECT json_agg(json_build_object('id', id, 'name', name, 'state', state, 'facts', "
            "facts))"
            " FROM models WHERE kind = 'language' AND name = ANY(CAST(:models AS text[]))) AS "
            "models"
        ),
        # LATERAL: one look into the unique index per key, however many jobs there are.
        text(
            "(SELECT json_agg(json_build_array(found.id, asked.analyst, asked.key, "
            "found.request_sha256))"
            " FROM unnest(CAST(:analysts AS uuid[]), CAST(:keys AS text[])) AS asked(analyst, key),"
            " LATERAL (SELECT id, request_sha256 FROM jobs"
            " WHERE analyst_id = asked.analyst AND idempotency_key = asked.key LIMIT 1) AS found) "
            "AS earlier"
        ),
        text(
            "(SELECT json_agg(found.id) FROM unnest(CAST(:tried AS uuid[])) AS asked(id),"
            " LATERAL (SELECT id FROM jobs WHERE jobs.id = asked.id LIMIT 1) AS found) AS recorded"
        ),
        text(
            "(SELECT json_agg(json_build_array(asked.id, found.state, found.count))"
            " FROM unnest(CAST(:people AS uuid[])) AS asked(id), LATERAL (SELECT state, count(*) "
            "FROM jobs"
            " WHERE analyst_id = asked.id AND reads_records"
            " AND state IN ('submitted','awaiting_approval','queued') GROUP BY state) AS found) AS "
            "waiting"
        ),
        text(
            "greatest(clock_timestamp(),"
            " (SELECT at FROM entries WHERE dataset_id = :dataset_id AND seq = :seq)) AS now"
        ),
    )
    .select_from(tables.datasets.outerjoin(_VERSION, true()))
    .where(tables.datasets.c.id == bindparam("dataset_id"))
)


def ready_models(connection: Connection) -> Sequence[str]:
    """Return the names of the models that may be asked for."""
    return (
        connection.execute(
            select(tables.models.c.name).where(
                tables.models.c.state == "ready", tables.models.c.kind == "language"
            )
        )
        .scalars()
        .all()
    )
