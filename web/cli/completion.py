"""Names that a shell completes: asked of the server, once and briefly. After an error there are
none.
"""

from collections.abc import Callable, Iterator
from typing import Any

import typer

from web.client.api import Api
from web.client.profiles import chosen, read

ANSWER_SECONDS = 2.0
JOBS = 50

Completed = Iterator[tuple[str, str]]


def _asked(
    ctx: typer.Context, incomplete: str, find: Callable[[Api], Completed]
) -> list[tuple[str, str]]:
    try:
        profile = chosen(ctx.find_root().params.get("profile"))
        with Api(profile.url, profile.token, timeout_seconds=ANSWER_SECONDS, attempts=1) as api:
            return [(name, _plain(text)) for name, text in find(api) if name.startswith(incomplete)]
    except Exception:  # a traceback in the middle of somebody's command line helps nobody
        return []


def _plain(text: str) -> str:
    """Return one line that a terminal takes as text."""
    return "".join(c if c.isprintable() else " " for c in text)[:60]


def datasets(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return names of datasets."""
    return _asked(
        ctx, incomplete, lambda api: ((d["name"], d["description"]) for d in api.datasets())
    )


def corpora(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return names of corpora."""
    return _asked(ctx, incomplete, lambda api: ((c["name"], c["state"]) for c in api.corpora()))


def _jobs(state: str | None) -> Callable[[typer.Context, str], list[tuple[str, str]]]:
    def complete(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
        return _asked(ctx, incomplete, lambda api: map(_job, api.jobs(state=state, limit=JOBS)))

    return complete


def _job(job: dict[str, Any]) -> tuple[str, str]:
    return job["id"], f"{job['state'].replace('_', ' ')}, {job['mechanism']} on {job['dataset']}"


jobs = _jobs(None)
awaiting = _jobs("awaiting_approval")
succeeded = _jobs("succeeded")


def decisions(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Open decisions."""
    return _asked(
        ctx, incomplete, lambda api: ((one["id"], one["asks"]) for one in api.decisions())
    )


def mechanisms(incomplete: str) -> list[str]:
    """Return mechanisms, which need no server."""
    from accountant.core.mechanisms import MECHANISMS

    return [name for name in MECHANISMS if name.startswith(incomplete)]


def profiles(incomplete: str) -> list[tuple[str, str]]:
    """Return profiles on this machine."""
    return [
        (name, profile.url) for name, profile in read().known.items() if name.startswith(incomplete)
    ]
