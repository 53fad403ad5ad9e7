"""Classes of workers: which one a job waits for, and how many workers of it live.

A class is a name with the memory of its workers (EXCHEQUER_HARDWARE). What a job needs follows from
public numbers alone: its model's size, its batch and its lengths, as the engine sizes them
(core.device_memory).
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, and_, any_, delete, func, select
from sqlalchemy.dialects.postgresql import insert

from accountant import tables
from accountant.core import device_memory, mechanisms
from accountant.settings import Settings
from accountant.transactions.job_requests import Candidate

live = tables.live_workers

#: A worker says so often that it lives, and has ended if it says nothing for SECONDS.
EVERY_SECONDS = 20.0
SECONDS = 60
#: Most parts of a job, whatever workers say of themselves.
MOST_WORKERS = 1000


def class_of(
    job: Candidate,
    facts: Mapping[str, Any] | None,
    probe: Mapping[str, Any] | None,
    configured: Settings,
) -> str:
    """Return the smallest class whose memory holds a job, the largest if none does, or "" if there
    are no classes.

    Args:
        facts: The public facts of its model, if it has one in memory.
        probe: What a look at its model found, if it was looked at.
        configured: The classes, the GPUs of a worker, and the type that models run in.
    """
    classes = configured.hardware
    ordered = sorted(classes, key=lambda name: classes[name])
    for name in ordered:
        if holds(job, facts, probe, name, configured):
            return name
    return ordered[-1] if ordered else ""


def holds(
    job: Candidate,
    facts: Mapping[str, Any] | None,
    probe: Mapping[str, Any] | None,
    name: str,
    configured: Settings,
) -> bool:
    """Return whether workers of a class hold a job's model, and the contexts of a batch at once."""
    if facts is None or "parameters" not in facts:  # no model, or one at an endpoint
        return True
    dtype, on_cpu = configured.model_dtype, name.startswith("cpu")
    coarse = dtype == "bfloat16" or (dtype == "auto" and facts.get("dtype") == "bfloat16")
    weight = 2 if coarse and not on_cpu else 4
    template = 0 if probe is None else probe["template_tokens"]
    capacity = mechanisms.get(job.mechanism).context_tokens(job.resolved, template)
    weights = facts["parameters"] * weight
    # an embedding model keeps no keys and values, nor logits
    context = facts.get("cached_numbers", 0) * weight * capacity + 4 * facts.get("vocabulary", 0)
    count = 1 if on_cpu else configured.gpus_per_worker
    each = configured.hardware[name] * 2**30 / count
    needed = device_memory.with_contexts(weights, each)
    # nor is it split
    gpus = 1 if "dimensions" in facts else device_memory.put_on(needed, each, count)
    room = device_memory.for_contexts(each - weights / gpus, 1 / gpus)
    return bool(contexts(job) * context <= room * (1 - 1 / device_memory.WORKING_SHARE))


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
