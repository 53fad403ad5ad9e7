"""Following a job to a state, and showing how far it is: in public quantities only."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from web.client.errors import Json, RateLimited, ServiceUnavailable, StillWaiting, Unreachable

ENDED = frozenset({"refused", "expired", "succeeded", "failed", "cancelled"})
UNSUCCESSFUL = ENDED - {"succeeded"}
UNDECIDED = frozenset({"submitted"})

Show = Callable[[Json], None]

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.25, 5.0
PATIENCE_SECONDS = 120.0
_AWAY = (Unreachable, ServiceUnavailable, RateLimited)


def watch(
    look: Callable[[], Json],
    until: Callable[[Json], bool],
    show: Show,
    seconds: float | None = None,
) -> Json:
    """Look at a job until `until` is true of it; the pauses grow with the time that it takes.

    A server that is away for two minutes or less is waited for. Raises StillWaiting after
    `seconds`.
    """
    began = heard = time.monotonic()
    job: Json | None = None
    while True:
        try:
            job = look()
            heard = time.monotonic()
        except _AWAY:
            if job is None or time.monotonic() - heard > PATIENCE_SECONDS:
                raise
        else:
            show(job)
            if until(job):
                return job
        passed = time.monotonic() - began
        if seconds is not None and passed >= seconds:
            raise StillWaiting(job, seconds)
        pause = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS + passed / 40)
        time.sleep(pause if seconds is None else min(pause, seconds - passed))


def ended(job: Json) -> bool:
    """Return True if the job will not change any more."""
    return job["state"] in ENDED


def decided(job: Json) -> bool:
    """Return True if it is known whether the job runs, or who decides."""
    return job["state"] not in UNDECIDED


# --- showing --------------------------------------------------------------------------------------


def state_text(job: Json) -> str:
    """Return the state in words."""
    return str(job["state"]).replace("_", " ")


def amount_text(job: Json) -> str | None:
    """Return progress in public quantities; None where none is told, as by a job with slots."""
    done, total = how_far(job)
    if not done or not total:
        return None
    return f"{done:,} of {total:,} {job['progress'].get('unit', 'tokens')}"


def how_far(job: Json) -> tuple[int, int | None]:
    """Return the units done, and of how many."""
    total = job["progress"]["total"] or None
    done = total if job["state"] == "succeeded" else job["progress"]["done"]
    return done or 0, total


def silent(job: Json) -> None:
    """Shows nothing."""


@contextmanager
def shown(console: Any, line: Callable[[str], None]) -> Iterator[Show]:
    """Return a bar in a terminal or notebook, else a line for each state and tenth."""
    with _bar(console) if console.is_terminal or console.is_jupyter else _lines(line) as show:
        yield show


@contextmanager
def _bar(console: Any) -> Iterator[Show]:
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=28),
        TextColumn("{task.fields[amount]}", markup=False),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, refresh_per_second=4) as progress:
        bar = progress.add_task("", total=None, amount="")

        def show(job: Json) -> None:
            done, total = how_far(job)
            amount = amount_text(job) or ""
            progress.update(
                bar, description=state_text(job), total=total, completed=done, amount=amount
            )

        yield show


@contextmanager
def _lines(line: Callable[[str], None]) -> Iterator[Show]:
    printed: set[tuple[str, int]] = set()

    def show(job: Json) -> None:
        done, total = how_far(job)
        tenth = 10 * done // total if total else 0
        if (job["state"], tenth) not in printed:
            printed.add((job["state"], tenth))
            line(": ".join(filter(None, (state_text(job), amount_text(job)))))

    yield show
