"""Forms: what was typed stays, and errors stand beside their fields."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, get_args, get_origin

from flask import flash, redirect, request, url_for
from pydantic import BaseModel
from werkzeug.wrappers import Response

from accountant.core.errors import ExchequerError, FieldProblem, InvalidRequest
from accountant.core.privacy.units import is_plain

_WHOLE = re.compile(r"-?[0-9]{1,15}")


@dataclass
class Form:
    """Values as they were typed, and what was wrong with each."""

    values: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[FieldProblem, ...] = ()
    general: str = ""

    def value(self, name: str, default: str = "") -> str:
        return self.values.get(name, default)

    def problem(self, name: str) -> FieldProblem | None:
        """Return the first problem of a field, or of something inside it."""
        return next(
            (
                field_problem
                for field_problem in self.problems
                if f"{field_problem.field}.".startswith(f"{name}.")
            ),
            None,
        )

    def elsewhere(self, names: Iterable[str]) -> list[FieldProblem]:
        """Return problems of fields that the form does not show: they go to its top."""
        shown = tuple(names)
        return [
            p
            for p in self.problems
            if not any(p.field == n or p.field.startswith(f"{n}.") for n in shown)
        ]


#: A form that nobody has filled in yet.
BLANK = Form()


def sent() -> dict[str, str]:
    """Return the form that came, line ends as they are on this side."""
    return {
        name: "\n".join(values).replace("\r\n", "\n")  # several of a list are one item per line
        for name, values in request.form.lists()
    }


def rejected(error: ExchequerError) -> Form:
    """Return the form that came, with what is wrong beside its fields or at its top."""
    if isinstance(error, InvalidRequest):
        return Form(sent(), error.problems)
    return Form(sent(), general=str(error))


def done(message: str, endpoint: str, **address: Any) -> Response:
    """Go to a page, which says what was done."""
    flash(message)
    return redirect(url_for(endpoint, **address), 303)


def typed(model: type[BaseModel], values: Mapping[str, str], prefix: str = "") -> dict[str, Any]:
    """Read a form as the API takes a body of `model`: each field by its type; nothing typed is its
    default.

    `prefix`: of the fields' names in the form. A box that is off is not sent; a list has one item
    per line.
    """
    typed_fields: dict[str, Any] = {}
    for name, about in model.model_fields.items():
        kinds, text = (
            {about.annotation, *get_args(about.annotation)},
            values.get(prefix + name, "").strip(),
        )
        if bool in kinds:
            typed_fields[name] = prefix + name in values
        elif get_origin(about.annotation) is tuple:
            typed_fields[name] = lines(text)
        elif not text and not about.is_required():
            typed_fields[name] = about.default
        else:
            typed_fields[name] = whole(text) if int in kinds else text
    return typed_fields


def lines(text: str) -> list[str]:
    """Return a list that was typed one item per line."""
    return [line.strip() for line in text.splitlines() if line.strip()]


def number(text: str) -> int | float | str | None:
    """Return a number in plain digits, nothing, or the text itself for the check to name."""
    read = whole(text)
    return float(read) if isinstance(read, str) and is_plain(read) else read


def whole(text: str) -> int | str | None:
    """Return a whole number, nothing, or the text itself for the check to name."""
    return int(text) if _WHOLE.fullmatch(text.strip()) else text.strip() or None
