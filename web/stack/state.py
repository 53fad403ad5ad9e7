"""The state that the supervisor tells `up`, `down` and `status`: home/run/stack.json, replaced as a
whole.
"""

from contextlib import suppress
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field

from web.stack.addresses import SERVERS
from web.stack.processes import Child, Handle

State = Literal["starting", "running", "waiting", "done", "stopped"]
Phase = Literal["starting", "running", "stopping", "stopped", "failed"]


class ProcessStatus(BaseModel):
    """One process of the stack; `waiting` is between an end and the next start."""

    name: str
    pid: int | None = None
    started: str = Field("", repr=False, description="tells it from a later process with its pid")
    state: State = "starting"
    restarts: int = 0

    def observed(self, supervised: bool) -> "ProcessStatus":
        """Return the same, corrected by what the kernel says."""
        if self.state == "done" or (self.pid is None and supervised):
            return self
        if self.pid and Handle(self.pid, self.started).alive():
            return self
        state: State = "waiting" if supervised and self.state != "stopped" else "stopped"
        return self.model_copy(update={"pid": None, "state": state})


class Status(BaseModel):
    """The stack at one moment. The URLs may hold passwords: they are kept out of `repr`."""

    running: bool
    phase: Phase
    processes: list[ProcessStatus]
    address: str
    database_url: str = Field(repr=False)
    broker_url: str = Field(repr=False)


class Record(BaseModel):
    """The file."""

    pid: int
    started: str
    address: str
    taken: str = Field("", description="a sentence on a port that the page could not have")
    phase: Phase = "starting"
    failed: str | None = Field(None, description="the process that made the start fail")
    reason: str = ""
    remedy: str = ""
    processes: dict[str, ProcessStatus] = {}

    def supervisor(self) -> Handle | None:
        """Return the supervisor that wrote this, while it lives."""
        handle = Handle(self.pid, self.started)
        return handle if handle.alive() else None


def read(home: Path) -> Record | None:
    """Return the latest record, of a living supervisor or of the last one."""
    with suppress(FileNotFoundError):
        return Record.model_validate_json(_path(home).read_bytes())
    return None


def write(home: Path, record: Record) -> None:
    """Replace the record; a reader sees the old one or the new one."""
    draft = _path(home).with_suffix(".new")
    draft.write_text(record.model_dump_json(indent=2))
    draft.replace(_path(home))


def survivors(home: Path) -> list[Child]:
    """Return the last record's living programs, which may have hidden from `find`."""
    record = read(home)
    noted = record.processes.values() if record else ()
    children = [Child(p.name, Handle(p.pid, p.started)) for p in noted if p.pid]
    return [child for child in children if child.name not in SERVERS and child.alive()]


def forget(home: Path) -> None:
    """Remove the record: nothing of this home runs."""
    _path(home).unlink(missing_ok=True)


def _path(home: Path) -> Path:
    return home / "run" / "stack.json"
