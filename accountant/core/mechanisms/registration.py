"""Third-party mechanisms: found by entry point, refused unless their files passed the conformance kit.

    [project.entry-points."exchequer.mechanisms"]
    length-histogram = "length_histogram.price"

The module defines MECHANISM. `exchequer conform` tries it and leaves a record in its package with the hash of
every file there. Where the record lacks, or one byte was changed since, the package is not even imported.
This prevents mistakes, not malice: installing a package on a worker means trusting its author.
"""

import hashlib
import importlib.util
import json
import re
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from accountant.core.mechanisms.base import GOALS, Mechanism

GROUP = "exchequer.mechanisms"
RECORD = "conformance.json"

#: Raised whenever the kit demands more; records of an older kit no longer count.
KIT = 1

_ID = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


class Refused(Exception):
    """A mechanism is not registered; the message says why."""


def found(own: Mapping[str, Mechanism[Any]]) -> tuple[dict[str, Mechanism[Any]], dict[str, str]]:
    """Mechanisms of all entry points by id, and for each refused name why. `own`: the built-in ones."""
    accepted: dict[str, Mechanism[Any]] = {}
    refused: dict[str, str] = {}
    for point in sorted(entry_points(group=GROUP), key=lambda each: (each.name, each.value)):
        try:
            if point.name in own or point.name in accepted:
                raise Refused("another mechanism has this id")
            accepted[point.name] = _load(point)
        except Exception as error:  # somebody else's module may raise anything, and must stop nothing else
            refused[point.name] = str(error) if isinstance(error, Refused) else repr(error)
    return accepted, refused


def _load(point: EntryPoint) -> Mechanism[Any]:
    folder = package_folder(point.module)
    record = folder / RECORD
    if not record.is_file():
        raise Refused(f"it was not conformed: run exchequer conform {point.module}")
    if json.loads(record.read_text("utf-8")) != conformed(point.name, folder):
        raise Refused(f"it is not what was conformed: run exchequer conform {point.module} again")
    mechanism = point.load().MECHANISM
    check(mechanism, point.module)
    if mechanism.id != point.name:
        raise Refused(f"its id is {mechanism.id!r} and not the entry point's name")
    return mechanism  # type: ignore[no-any-return]


def package_folder(module: str) -> Path:
    """The folder of a module's outermost package, found without importing it. Raises Refused."""
    top = module.partition(".")[0]
    spec = importlib.util.find_spec(top)
    if spec is None or not spec.submodule_search_locations:
        raise Refused(f"{top} is no package")
    return Path(next(iter(spec.submodule_search_locations)))


def conformed(mechanism_id: str, folder: Path) -> dict[str, Any]:
    """The record of a mechanism that passed: its id, the kit, and the hash of its package's files."""
    total = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if path.is_file() and "__pycache__" not in name.parts and str(name) != RECORD:
            total.update(f"{name.as_posix()}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return {"mechanism": mechanism_id, "kit": KIT, "sha256": total.hexdigest()}


def check(mechanism: object, module: str) -> None:
    """Refuse metadata that menus, forms, pages or workers can't use. Raises Refused naming what is wrong."""
    if not isinstance(mechanism, Mechanism):
        raise Refused("MECHANISM is no accountant.core.mechanisms.base.Mechanism")
    if not _ID.fullmatch(mechanism.id):
        raise Refused(f"id: {mechanism.id!r} is not lower case words joined by hyphens")
    for name in ("title", "summary", "source"):
        if not getattr(mechanism, name).strip():
            raise Refused(f"{name}: it is empty")
    if mechanism.size_field not in mechanism.fields:
        raise Refused(f"size_field: {mechanism.size_field!r} is no parameter")
    if mechanism.goal not in GOALS:
        raise Refused(f"goal: {mechanism.goal!r} is none of {', '.join(GOALS)}")
    named = [each.partition("=")[0] for each in mechanism.needs]
    named += " ".join((mechanism.plain, *mechanism.begins, *mechanism.needs.values())).split()
    for name in named:
        if name not in mechanism.fields:
            raise Refused(f"plain, begins or needs: {name!r} is no parameter")
    for names in mechanism.groups.values():
        for name in names.split():
            if name not in mechanism.fields:
                raise Refused(f"groups: {name!r} is no parameter")
    top = module.partition(".")[0]
    if mechanism.runner is not None and top not in ("accountant", mechanism.runner.partition(".")[0]):
        raise Refused(f"runner: {mechanism.runner!r} is not in the package {top}")
    _check_fields(mechanism)


def _check_fields(mechanism: Mechanism[Any]) -> None:
    for name, part in mechanism.schema["properties"].items():
        if not part.get("description"):
            raise Refused(f"{name}: it has no description")
        for option in part.get("anyOf", [part]):
            bounds = {"minimum", "exclusiveMinimum"} & set(option), "maximum" in option
            if option.get("type") in ("integer", "number") and "enum" not in option and not all(bounds):
                raise Refused(f"{name}: a number needs bounds on both sides")
