"""What an admission goes by besides the account's row: looked up in one statement while that row is
held.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import SimpleNamespace
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Connection, select

from accountant import tables
from accountant.core.ledger.accounts import Accounts
from accountant.core.ledger.policy import Policy
from accountant.core.privacy.price import Terms
from accountant.database import run_by_driver
from accountant.transactions.job_requests import terms_of
from accountant.transactions.locked_account import LockedAccount, as_json


@dataclass(frozen=True)
class ModelFacts:
    """A language model's row; `facts` are there where it is ready."""

    id: str
    name: str
    state: str
    facts: Mapping[str, Any] | None


@dataclass(frozen=True)
class Facts:
    """What decisions use besides the books: the newest ready version, policy, terms, models."""

    version_id: UUID | None
    version_number: int
    data_is_here: bool
    policy: Policy
    terms: Terms
    models: Mapping[str, ModelFacts]


class Found(NamedTuple):
    """What `look_up` read: the columns of _LOOK_UP. A list is None where it would be empty."""

    dataset: dict[str, Any]
    version_id: UUID | None
    version_number: int
    data_is_here: bool
    newest_rule: str | None
    now: datetime
    models: Sequence[dict[str, Any]] | None
    earlier: Sequence[tuple[str, str, str, str | None]] | None
    recorded: Sequence[str] | None
    waiting: Sequence[tuple[str, str, int]] | None


def look_up(
    locked: LockedAccount,
    models: Sequence[str],
    keys: Sequence[tuple[UUID, str]],
    tried: Sequence[UUID],
    people: Sequence[UUID],
) -> Found:
    """Return everything that a batch refers to, in one statement: its snapshot is younger than
    every request.

    `keys`: (analyst, idempotency key); `tried`: jobs that may be recorded; `people`: whose waiting
    jobs are counted. The account's `now` moves on.
    """
    about = {
        "models": models,
        "keys": [{"analyst": analyst, "key": key} for analyst, key in keys],
        "tried": tried,
        "people": people,
    }
    values = (locked.seq, as_json(about), locked.dataset_id)
    row = run_by_driver(locked.connection, _LOOK_UP, values)
    assert row is not None  # the account's row refers to the dataset's
    found = Found(*row)
    locked.now = found.now
    return found


def facts_of(found: Found, accounts: Accounts) -> Facts:
    """Return the facts in what `look_up` found."""
    dataset = SimpleNamespace(**found.dataset)
    models = {model["name"]: ModelFacts(**model) for model in found.models or ()}
    policy = Policy.model_validate(dataset.policy)
    version = found.version_id, found.version_number, found.data_is_here
    return Facts(*version, policy, terms_of(dataset, accounts), models)


#: The questions come as one JSON value, so PostgreSQL keeps one plan for batches of every size.
#: LATERAL: one look into an index for each key, job or person, however many jobs there are.
_LOOK_UP = """
SELECT
    row_to_json(datasets) AS dataset,
    version.id AS version_id,
    version.number AS version_number,
    version.uri IS NOT NULL AS data_is_here,
    (SELECT hash FROM entries
        WHERE dataset_id = datasets.id AND kind IN ('ALLOW','REGISTER','POLICY')
        ORDER BY seq DESC LIMIT 1) AS newest_rule,
    greatest(clock_timestamp(), (
        SELECT at FROM entries WHERE dataset_id = datasets.id AND seq = question.seq)) AS now,
    (SELECT json_agg(json_build_object('id', id, 'name', name, 'state', state, 'facts', facts))
        FROM jsonb_array_elements_text(question.about -> 'models') AS wanted(model)
        JOIN models ON kind = 'language' AND name = wanted.model) AS models,
    (SELECT json_agg(json_build_array(job.id, used.analyst, used.key, job.request_sha256))
        FROM jsonb_to_recordset(question.about -> 'keys') AS used(analyst uuid, key text),
        LATERAL (SELECT id, request_sha256 FROM jobs
            WHERE analyst_id = used.analyst AND idempotency_key = used.key LIMIT 1) AS job
    ) AS earlier,
    (SELECT json_agg(job.id)
        FROM jsonb_array_elements_text(question.about -> 'tried') AS tried(id),
        LATERAL (SELECT id FROM jobs WHERE id = tried.id::uuid LIMIT 1) AS job) AS recorded,
    (SELECT json_agg(json_build_array(person.id, jobs_of.state, jobs_of.count))
        FROM jsonb_array_elements_text(question.about -> 'people') AS person(id),
        LATERAL (SELECT state, count(*) FROM jobs
            WHERE analyst_id = person.id::uuid AND reads_records
            AND state IN ('submitted','awaiting_approval','awaiting_release','queued')
            GROUP BY state) AS jobs_of) AS waiting
FROM (SELECT %s::bigint, %s::jsonb) AS question(seq, about), datasets LEFT JOIN LATERAL (
    SELECT id, number, uri FROM dataset_versions
    WHERE dataset_id = datasets.id AND state = 'ready'
    ORDER BY number DESC LIMIT 1) AS version ON true
WHERE datasets.id = %s
"""


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
