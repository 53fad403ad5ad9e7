"""How long jobs took here: the median of what the same mechanism and model took on public things.

No run of a job that reads records counts: how long one took depends on its data.
"""

from typing import Any

from sqlalchemy import Connection, func, select

from accountant import tables
from accountant.core.mechanisms import rehearsal
from accountant.core.mechanisms.base import Mechanism
from accountant.schema.quotes import Duration

#: The newest jobs that are counted.
MOST = 20


def duration(
    connection: Connection, mechanism: Mechanism[Any], parameters: Any, model: str | None
) -> Duration | None:
    """Return what such jobs took here, or None if none has run.

    A request that reads records is told what its rehearsals took. Any other is told what jobs like
    it took.
    """
    reuses = getattr(parameters, "from_job", None) is not None
    reads_records = not (mechanism.public or mechanism.reads_output or reuses)
    jobs, models = tables.jobs, tables.models
    took = func.extract("epoch", jobs.c.finished_at - jobs.c.started_at)
    newest = (
        select(took.label("seconds"))
        .outerjoin(models, models.c.id == jobs.c.model_id)
        .where(
            jobs.c.mechanism == (rehearsal.PREFIX if reads_records else "") + mechanism.id,
            models.c.name.is_not_distinct_from(model if mechanism.uses_model else None),
            jobs.c.state == "succeeded",
            ~jobs.c.reads_records,
        )
        .order_by(jobs.c.created_at.desc())
        .limit(MOST)
        .subquery()
    )
    median = func.percentile_cont(0.5).within_group(newest.c.seconds)
    seconds, count = connection.execute(select(median, func.count())).one()
    if not count:
        return None
    kind = "rehearsal" if reads_records else "job"
    counted = f"the last {kind}" if count == 1 else f"the median of the last {count} {kind}s"
    like = f"{in_words(seconds)} in {counted} of this mechanism"
    sentence = f"{like}{' with this model' if mechanism.uses_model else ''} here, of any size"
    return Duration(seconds=seconds, jobs=count, sentence=sentence)


def in_words(seconds: float) -> str:
    """Return a duration with one or two digits: "8 seconds", "4 minutes", "2.5 hours"."""
    for size, name in ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second")):
        if seconds >= 1.5 * size or size == 1:
            count = seconds / size
            shown = f"{max(1, round(count)):,}" if count >= 10 or size == 1 else f"{count:.2g}"
            return f"{shown} {name}" + ("" if shown == "1" else "s")
    raise AssertionError
