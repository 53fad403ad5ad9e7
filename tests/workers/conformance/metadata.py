"""The metadata of a mechanism, as menus, forms, pages and workers need it."""

import re
from typing import Any

from accountant.core.mechanisms.base import GOALS, Mechanism

_ID = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


class Refused(Exception):
    """A mechanism does not conform; the message says why."""


def check(mechanism: object) -> None:
    """Refuse metadata that menus, forms, pages or workers can't use. Raises Refused naming what is
    wrong.
    """
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
    _check_fields(mechanism)


def _check_fields(mechanism: Mechanism[Any]) -> None:
    for name, part in mechanism.schema["properties"].items():
        if not part.get("description"):
            raise Refused(f"{name}: it has no description")
        for option in part.get("anyOf", [part]):
            bounds = {"minimum", "exclusiveMinimum"} & set(option), "maximum" in option
            if (
                option.get("type") in ("integer", "number")
                and "enum" not in option
                and not all(bounds)
            ):
                raise Refused(f"{name}: a number needs bounds on both sides")
