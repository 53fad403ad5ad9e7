"""Figures of the whole service for operators: how much of what waits, runs and is spent.

No figure tells more than pages show already: what people asked for, and when jobs began and ended,
which a policy can hold to the clock (`results_every_seconds`), as how long one took may tell of its
records. Realized ex-post costs are left out. One statement reads them all.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Engine, text

from accountant.core.privacy.filters import Kind
from accountant.core.states import ENDED, JOB_STATES
from accountant.database import reading
from accountant.transactions.stopped_workers import SECONDS as STOPPED_SECONDS

#: The server ends the statement after this.
SECONDS = 2
#: Most datasets whose share is told: those with the largest.
MOST_DATASETS = 1_000


@dataclass(frozen=True)
class Figure:
    """A figure's meaning and the names of its labels."""

    help: str
    labels: tuple[str, ...] = ()


FIGURES = {
    "jobs": Figure("Jobs that wait or run now", ("state",)),
    "parts": Figure("Parts of jobs that wait or run now", ("queue", "state")),
    "longest_wait_seconds": Figure("Age of the oldest part that waits for a worker", ("queue",)),
    "asked_24h": Figure("Jobs asked for in 24 hours"),
    "admitted_24h": Figure("Jobs of these that got a reservation, or cost nothing"),
    "refused_24h": Figure("Jobs of these that were refused, by what binds", ("binds",)),
    "ended_24h": Figure("Jobs of these that ended, by state", ("state",)),
    "attempts_24h": Figure("Attempts at parts of these jobs"),
    "leases_lost_24h": Figure("Attempts of these that ended with a lost lease"),
    "waiting_seconds": Figure("Seconds from queue to start of these jobs", ("quantile",)),
    "running_seconds": Figure("Seconds from start to end of these jobs", ("quantile",)),
    "outbox_messages": Figure("Messages that the relay has not sent, or sends again"),
    "outbox_age_seconds": Figure(
        "Age of the oldest of these that waits for no other of its person"
    ),
    "stopped_workers": Figure("Workers that take no job, as their results can't be written"),
    "open_decisions": Figure("Decisions that a second person is asked for"),
    "checkpoint_age_seconds": Figure("Age of the last signed checkpoint"),
    "checkpoints_wanted": Figure("Checkpoints that the signer is asked for"),
    "checkpoints_wanted_age_seconds": Figure("Age of the oldest of these: the signer's silence"),
    "entries": Figure("Entries of all ledgers in the database"),
    "spent_share": Figure(
        "Share of a dataset's allowance that is spent or reserved: of the filter with most room",
        ("dataset", "currency"),
    ),
}

_LIVE = ", ".join(f"'{state}'" for state in JOB_STATES if state not in ENDED)
_ENDED = ", ".join(f"'{state}'" for state in sorted(ENDED))
_AGE = "extract(epoch FROM clock_timestamp() - {})"


def _used(kind: str) -> str:
    return f"({kind}_spent + {kind}_reserved) / nullif({kind}_limit, 0)"


def _share(kind: Kind) -> str:
    """Return the share that is used of a filter; NULL if it is closed or has no limit."""
    used = _used(kind)
    if kind is Kind.BASIC:
        used = f"greatest({used}, {_used('basic_delta')})"
    return f"CASE WHEN {kind}_closed = 0 THEN {used} END"


_SHARE = f"least({', '.join(map(_share, Kind))})"

_QUERY = f"""
WITH day AS MATERIALIZED (
    SELECT id, state, refusal, queued_at, started_at, finished_at FROM jobs
    WHERE created_at > now() - interval '24 hours'
), tried AS (
    SELECT sum(attempt) AS attempts, sum(greatest(attempt - 1 - handed_back, 0)) AS lost
    FROM parts JOIN day ON day.id = parts.job_id
), live AS MATERIALIZED (
    SELECT CASE WHEN reads_records THEN 'generate' ELSE 'free' END AS queue, parts.state, queued_at
    FROM parts JOIN jobs ON jobs.id = parts.job_id WHERE parts.state IN ('queued', 'running')
), due AS (
    SELECT created_at FROM outbox WHERE sent_at IS NULL AND NOT EXISTS (
        SELECT FROM outbox AS sent
        JOIN parts ON parts.job_id = sent.subject AND parts.number = sent.part
            AND parts.attempt = sent.attempt AND parts.state = 'queued'
        WHERE sent.sent_at IS NOT NULL AND sent.task = outbox.task
            AND sent.analyst_id = outbox.analyst_id
    )
), shares AS (
    SELECT name, {_SHARE} AS share,
        CASE WHEN secret IS NOT NULL THEN {_used("secret")} END AS secret
    FROM accounts JOIN datasets ON datasets.id = accounts.dataset_id
), largest AS (
    SELECT * FROM shares ORDER BY greatest(share, secret) DESC NULLS LAST LIMIT {MOST_DATASETS}
)
SELECT 'jobs', ARRAY[state], count(*)::float8 FROM jobs WHERE state IN ({_LIVE}) GROUP BY state
UNION ALL SELECT 'parts', ARRAY[queue, state], count(*) FROM live GROUP BY queue, state
UNION ALL SELECT 'longest_wait_seconds', ARRAY[queue], {_AGE.format("min(queued_at)")}
    FROM live WHERE state = 'queued' GROUP BY queue
UNION ALL SELECT 'asked_24h', '{{}}', count(*) FROM day
UNION ALL SELECT 'admitted_24h', '{{}}', count(queued_at) FROM day
UNION ALL SELECT 'refused_24h', ARRAY[refusal ->> 'cap'], count(*)
    FROM day WHERE state = 'refused' GROUP BY refusal ->> 'cap'
UNION ALL SELECT 'ended_24h', ARRAY[state], count(*)
    FROM day WHERE state IN ({_ENDED}) GROUP BY state
UNION ALL SELECT 'attempts_24h', '{{}}', attempts FROM tried
UNION ALL SELECT 'leases_lost_24h', '{{}}', lost FROM tried
UNION ALL SELECT 'waiting_seconds', ARRAY[q::text],
    extract(epoch FROM percentile_disc(q) WITHIN GROUP (ORDER BY started_at - queued_at))
    FROM day, unnest(ARRAY[0.5, 0.9, 0.99]::float8[]) AS q GROUP BY q
UNION ALL SELECT 'running_seconds', ARRAY[q::text],
    extract(epoch FROM percentile_disc(q) WITHIN GROUP (ORDER BY finished_at - started_at))
    FROM day, unnest(ARRAY[0.5, 0.9, 0.99]::float8[]) AS q GROUP BY q
UNION ALL SELECT 'outbox_messages', '{{}}', count(*) FROM outbox WHERE sent_at IS NULL
UNION ALL SELECT 'outbox_age_seconds', '{{}}', coalesce({_AGE.format("min(created_at)")}, 0)
    FROM due
UNION ALL SELECT 'stopped_workers', '{{}}', count(*) FROM stopped_workers
    WHERE at > clock_timestamp() - interval '{STOPPED_SECONDS} seconds'
UNION ALL SELECT 'open_decisions', '{{}}', count(*) FROM decisions WHERE state = 'open'
UNION ALL SELECT 'checkpoint_age_seconds', '{{}}', {_AGE.format("max(at)")} FROM checkpoints
UNION ALL SELECT 'checkpoints_wanted', '{{}}', count(*) FROM checkpoint_requests
UNION ALL SELECT 'checkpoints_wanted_age_seconds', '{{}}', coalesce({_AGE.format("min(at)")}, 0)
    FROM checkpoint_requests
UNION ALL SELECT 'entries', '{{}}', sum(chain_seq) FROM accounts
UNION ALL SELECT 'spent_share', ARRAY[name, 'epsilon-delta'], share
    FROM largest WHERE share IS NOT NULL
UNION ALL SELECT 'spent_share', ARRAY[name, 'secret'], secret
    FROM largest WHERE secret IS NOT NULL
"""  # noqa: S608 (of constants alone)


def read(engine: Engine) -> list[tuple[str, Sequence[str], float]]:
    """Return (name, values of its labels, value) of every figure that there is now."""
    with reading(engine) as connection:
        connection.execute(text(f"SET LOCAL statement_timeout = '{SECONDS}s'"))
        rows = connection.execute(text(_QUERY)).all()
        return [(name, labels, value) for name, labels, value in rows if value is not None]
