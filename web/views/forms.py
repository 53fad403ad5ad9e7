"""Forms: what was typed stays, and errors stand beside their fields."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, get_args, get_origin

from flask import Response as Page
from flask import flash, make_response, redirect, render_template, request, url_for
from pydantic import BaseModel
from werkzeug.wrappers import Response

from accountant.core.errors import (
    Conflict,
    ExchequerError,
    FieldProblem,
    InvalidRequest,
    SignatureNeeded,
)
from accountant.core.privacy.units import is_plain
from web import passkeys
from web.api.paging import Order, Window, cut, read_window
from web.errors import status_of

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
        found = (each for each in self.problems if f"{each.field}.".startswith(f"{name}."))
        return next(found, None)

    def elsewhere(self, names: Iterable[str]) -> list[FieldProblem]:
        """Return problems of fields that the form does not show: they go to its top."""
        shown = tuple(f"{name}." for name in names)
        return [each for each in self.problems if not f"{each.field}.".startswith(shown)]


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


def attachment(name: str, text: str, mimetype: str = "application/json") -> Page:
    """Return a text as a file of this name."""
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Page(text, mimetype=mimetype, headers=headers)


def done(message: str, endpoint: str, **address: Any) -> Response:
    """Go to a page, which says what was done."""
    flash(message)
    return redirect(url_for(endpoint, **address), 303)


def shown_again(
    page: Callable[..., str],
    form: str = "form",
    errors: tuple[type[ExchequerError], ...] = (InvalidRequest, Conflict),
    back: str = "",
) -> Callable[[Callable[..., Response]], Callable[..., Response]]:
    """Show `page` again, with its `form` as it came, if what the form asks for is rejected.

    Where a signature is needed it is asked for, and `back` is the endpoint to go back to.
    """

    def decorated(act: Callable[..., Response]) -> Callable[..., Response]:
        @wraps(act)
        def done_or_shown(**address: Any) -> Response:
            try:
                return act(**address)
            except SignatureNeeded as needed:
                return passkeys.sign(needed, url_for(back, **address))
            except errors as error:
                shown = page(**address, **{form: rejected(error)})
                return make_response(shown, status_of(error))

        return done_or_shown

    return decorated


def asked(names: Iterable[str]) -> dict[str, str]:
    """Return the filters that stand in the address."""
    stated = {name: request.args.get(name, "").strip() for name in names}
    return {name: text for name, text in stated.items() if text}


def listed(
    template: str,
    order: Order,
    find: Callable[[Window], Sequence[Any]],
    filters: Iterable[str] = (),
    *,
    limit: int = 50,
    about: Callable[[list[dict[str, Any]]], Mapping[str, Any]] | None = None,
    **more: Any,
) -> str:
    """Return a page of a list, with its filters and what else there is to say `about` its rows."""
    window = read_window(order, limit)
    rows, following = cut(find(window), window)
    shown = {"rows": rows, "following": following, "asked": asked(filters)}
    return render_template(template, **shown, **(about(rows) if about else {}), **more)


def typed(model: type[BaseModel], values: Mapping[str, str], prefix: str = "") -> dict[str, Any]:
    """Read a form as the API takes a body of `model`: each field by its type; nothing typed is its
    default.

    `prefix`: of the fields' names in the form. A box that is off is not sent; a list has one item
    per line.
    """
    typed_fields: dict[str, Any] = {}
    for name, about in model.model_fields.items():
        kinds = {about.annotation, *get_args(about.annotation)}
        text = values.get(prefix + name, "").strip()
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
