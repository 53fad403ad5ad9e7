"""The service's own processes, as data: tests pass small ones of their own."""

import sys
from pathlib import Path

from pydantic import BaseModel, Field

from accountant.rights import Process

# Programs run here, so that a checkout needs no install.
ROOT = Path(__file__).resolve().parents[2]


class Program(BaseModel, frozen=True):
    """A process that the supervisor keeps running, or runs once."""

    name: str
    argv: tuple[str, ...]
    process: Process | None = Field(None, description="whose database role it connects as")
    once: bool = Field(False, description="runs to its end before anything else starts")
    page: str | None = Field(None, description="ready when the web server answers 200 at this path")
    alive: bool = Field(False, description="ready, and well, while it keeps touching its file")
    stop_stage: int = Field(0, description="stages end one after another, smallest first")
    stop_seconds: float = Field(10.0, description="from the request to end until SIGKILL")


def _python(*arguments: str) -> tuple[str, ...]:
    return (sys.executable, *arguments)


def _worker(name: str, process: Process, queues: str) -> Program:
    """Return a process for some queues. SIGTERM ends its job or check, handed back, in time."""
    flags = f"--quiet -A workers.jobs.app worker -Q {queues} -c 1 -n {name}@%h --loglevel WARNING"
    return Program(
        name=name,
        argv=_python("-m", "celery", *flags.split()),
        process=process,
        alive=True,
        stop_stage=2,
        stop_seconds=30.0,
    )


_ALEMBIC = str(ROOT / "migrations" / "alembic.ini")

PROGRAMS: tuple[Program, ...] = (
    Program(
        name="migrate", argv=_python("-m", "alembic", "-c", _ALEMBIC, "upgrade", "head"), once=True
    ),
    Program(name="web", argv=_python("-m", "web.serve"), process="web", page="/readyz"),
    *(
        Program(
            name=name,
            argv=_python("-m", f"workers.jobs.{name}"),
            process=name,
            alive=True,
            stop_stage=1,
        )
        for name in ("relay", "signer")
    ),
    _worker("generate", "worker", "generate,free"),
    _worker("checks", "checks", "checks"),
)
