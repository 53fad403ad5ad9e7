"""Classes of workers: which one a job waits for, and how many workers of it live.

A class is a name with the memory of its workers (EXCHEQUER_HARDWARE). What a job needs follows from
public numbers alone: its model's size, its batch and its lengths, as the engine sizes them
(workers.engine.sizing).
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, and_, any_, delete, func, select
from sqlalchemy.dialects.postgresql import insert

from accountant import tables
from accountant.core import mechanisms
from accountant.transactions.job_requests import Candidate

live = tables.live_workers

#: A worker says so often that it lives, and has ended if it says nothing for SECONDS.
EVERY_SECONDS = 20.0
SECONDS = 60
#: Most parts of a job, whatever workers say of themselves.
MOST_WORKERS = 1000
#: What the engine takes of the memory beside the weights, and of that for contexts.
SHARE = 0.8 * 7 / 8


def class_of(
    job: Candidate,
    facts: Mapping[str, Any] | None,
    probe: Mapping[str, Any] | None,
    classes: Mapping[str, float],
    dtype: str,
) -> str:
    """Return the smallest class whose memory holds a job, the largest if none does, or "" if there
    are no classes.

    Args:
        facts: The public facts of its model, if it has one in memory.
        probe: What a look at its model found, if it was looked at.
        classes: GiB by name.
        dtype: The type that models run in, as the settings name it.
    """
    ordered = sorted(classes, key=lambda name: classes[name])
    for name in ordered:
        if needed_bytes(job, facts, probe, name, dtype) <= classes[name] * 2**30:
            return name
    return ordered[-1] if ordered else ""


def needed_bytes(
    job: Candidate,
    facts: Mapping[str, Any] | None,
    probe: Mapping[str, Any] | None,
    name: str,
    dtype: str,
) -> float:
    """Return the memory for a job's model and the contexts of a batch, on workers of a class."""
    if facts is None or "parameters" not in facts:  # no model, or one at an endpoint
        return 0
    coarse = dtype == "bfloat16" or (dtype == "auto" and facts.get("dtype") == "bfloat16")
    on_cpu = name.startswith("cpu")
    weight = 2 if coarse and not on_cpu else 4
    template = 0 if probe is None else probe["template_tokens"]
    capacity = mechanisms.get(job.mechanism).context_tokens(job.resolved, template)
    # an embedding model keeps no keys and values, nor logits
    cached = facts.get("cached_numbers", 0) * weight * capacity
    context = cached + 4 * facts.get("vocabulary", 0)
    return float(facts["parameters"] * weight + contexts(job) * context / SHARE)


def contexts(job: Candidate) -> int:
    """Return the contexts that a job decodes together: those of a batch, by its parameters."""
    batch = getattr(job.resolved, "batch_size", 1)
    return int(getattr(job.resolved, "units", batch))


# --- workers that live --------------------------------------------------------------------------


def say(engine: Engine, worker: str, classes: list[str]) -> None:
    """State that a worker lives, and which classes of jobs it takes. Forgets those that ended."""
    now = func.clock_timestamp()
    row = {"worker": worker, "classes": classes, "at": now}
    statement = insert(live).values(row)
    with engine.begin() as connection:
        connection.execute(delete(live).where(live.c.at < now - timedelta(days=1)))
        connection.execute(
            statement.on_conflict_do_update(index_elements=["worker"], set_={**row, "at": now})
        )


def forget(engine: Engine, worker: str) -> None:
    """State that a worker ended."""
    with engine.begin() as connection:
        connection.execute(delete(live).where(live.c.worker == worker))


def is_live() -> ColumnElement[bool]:
    """Return the condition of a worker that said so a short while ago."""
    return live.c.at > func.clock_timestamp() - timedelta(seconds=SECONDS)


def serves(name: ColumnElement[str] | str) -> ColumnElement[bool]:
    """Return the condition of a live worker that takes jobs of a class."""
    return and_(is_live(), any_(live.c.classes) == name)


def workers(connection: Connection, name: str) -> int:
    """Return how many live workers take jobs of a class: at least 1, for one that is to come."""
    return _count(connection, serves(name))


def all_workers(engine: Engine) -> int:
    """Return how many live workers take jobs, at least 1."""
    with engine.connect() as connection:
        return _count(connection, is_live())


def _count(connection: Connection, condition: ColumnElement[bool]) -> int:
    count = connection.execute(select(func.count()).select_from(live).where(condition))
    return min(max(1, count.scalar_one()), MOST_WORKERS)
