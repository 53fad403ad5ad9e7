"""Reading what a request carries, strictly: every mistake is an InvalidRequest that names its
field.
"""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

from flask import Response, jsonify, request, url_for
from pydantic import BaseModel, ConfigDict, ValidationError
from werkzeug.exceptions import UnsupportedMediaType

from accountant.core.errors import FieldProblem, InvalidRequest, NotFound, invalid
from accountant.core.ledger.hash_chain import canonical
from accountant.queries import decisions, jobs
from accountant.schema.base import Answer
from accountant.transactions.idempotency import Once
from web.auth import current_actor
from web.context import engine
from web.errors import refuse_unstorable

MAX_DEPTH = 20
MAX_PAGE = 200
_EXACT = 2**53  # whole numbers beyond it are not exact in JSON, and have no canonical form
_LARGEST_SEQ = 2**63 - 1

M = TypeVar("M", bound=BaseModel)


class Body(BaseModel):
    """Base of every request body: unknown fields, wrong types and NaN are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


# --- JSON ---------------------------------------------------------------------------------------


def read_object() -> dict[str, Any]:
    """Return the request's body as one JSON object, without a name twice and without unstorable
    values.

    Raises UnsupportedMediaType (415) for a body that says it is something else.
    """
    if request.content_type is not None and not request.is_json:
        raise UnsupportedMediaType(
            f"the body is sent as {request.mimetype[:80]!r}; send JSON, as `Content-Type: "
            "application/json`"
        )
    try:
        value = json.loads(
            request.get_data().decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_number
        )
    except InvalidRequest:
        raise
    except RecursionError:
        raise invalid("body", "nested too deeply", f"at most {MAX_DEPTH} levels") from None
    except ValueError as error:  # bad UTF-8, bad JSON, whole numbers of thousands of digits
        raise invalid("body", f"is not JSON: {str(error)[:120]}", "a JSON object") from None
    if not isinstance(value, dict):
        raise invalid("body", "is not an object", "a JSON object")
    _check(value, "", 0)
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise invalid(_printable(name), "is given twice", "each name once")
            seen.add(name)
    return fields


def _no_number(text: str) -> Any:
    raise invalid("body", f"{text} is no JSON number", "finite numbers")


def _printable(text: str) -> str:
    return text.encode("ascii", "backslashreplace").decode()[:80]


def _check(value: object, path: str, depth: int) -> None:
    """Raise for what can't be stored or has no canonical form, anywhere in the document."""
    if depth > MAX_DEPTH:
        raise invalid(path or "body", "nested too deeply", f"at most {MAX_DEPTH} levels")
    match value:
        case str():
            refuse_unstorable(value, path)
        case float() if not math.isfinite(value):
            raise invalid(path, "is not finite", "a finite number")
        case int() if abs(value) > _EXACT:
            raise invalid(path, "is too large", "whole numbers up to 2^53")
        case dict():
            for name, inner in value.items():
                at = f"{path}.{_printable(name)}" if path else _printable(name)
                refuse_unstorable(name, at)
                _check(inner, at, depth + 1)
        case list():
            for index, inner in enumerate(value):
                _check(inner, f"{path}.{index}", depth + 1)


def read(model: type[M], raw: Mapping[str, Any] | None = None) -> M:
    """Return the body (or `raw`) as `model`. Raises InvalidRequest with every wrong field."""
    document = read_object() if raw is None else dict(raw)
    try:
        # JSON mode: lists serve as tuples, and everything else stays strict.
        return model.model_validate_json(json.dumps(document), strict=True)
    except ValidationError as error:
        raise InvalidRequest(_problems(error, model)) from None


def _problems(error: ValidationError, model: type[BaseModel]) -> list[FieldProblem]:
    problems = {}
    for problem in error.errors(include_url=False):
        # Members of a union ("str", "float") end the path; they are no field of the request's.
        place = [str(part) for part in problem["loc"]]
        name = ".".join(place[:1] if place and place[0] in model.model_fields else place) or "body"
        if problem["type"] == "extra_forbidden":
            problems[name] = FieldProblem(name, "unknown field", ", ".join(model.model_fields))
        else:
            problems.setdefault(
                name, FieldProblem(name, problem["msg"][:1].lower() + problem["msg"][1:])
            )
    return list(problems.values())


# --- answers ------------------------------------------------------------------------------------


def made(body: Answer | Mapping[str, Any], endpoint: str, **address: Any) -> tuple[Response, int]:
    """201 with what was made, and where it can be read from now on."""
    response = jsonify(body)
    response.headers["Location"] = url_for(f"api.{endpoint}", **address)
    return response, 201


# --- addresses ----------------------------------------------------------------------------------


_DIGITS = re.compile(r"[0-9a-f]{8}[0-9a-f-]{0,27}")


def read_id(text: str, kind: str = "job") -> UUID:
    """Return an id from an address; what is no id names nothing. The first digits of the id of a
    job, or of a decision, name it.
    """
    named = {"job": jobs.named, "decision": decisions.named}.get(kind)
    try:
        return UUID(text)
    except ValueError:
        if named is not None and _DIGITS.fullmatch(text):
            return named(engine(), text, current_actor())
        raise NotFound(kind, text[:80]) from None


def read_count(name: str, default: int | None, low: int = 1, high: int = MAX_PAGE) -> int | None:
    """Return a whole number from the query, within bounds."""
    text = request.args.get(name)
    if text is None or text == "":
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 20 and low <= int(text) <= high):
        raise invalid(name, repr(text[:40]), f"a whole number from {low} to {high:,}")
    return int(text)


def read_limit(default: int) -> int:
    """Return the number of rows that a listing answers with."""
    return read_count("limit", default) or default


def read_seq() -> int | None:
    """Return the entry before which a page of the ledger ends."""
    return read_count("before", None, low=1, high=_LARGEST_SEQ)


def read_moment(name: str) -> datetime | None:
    """Return a moment from the query, with its offset from UTC."""
    text = request.args.get(name)
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None or not 1970 <= moment.year <= 9000:
        raise invalid(name, repr(text[:40]), "a time with its offset, as 2026-01-31T12:00:00Z")
    return moment


def read_when(name: str) -> datetime | None:
    """Return a moment, or a day's beginning or end; without an offset in UTC."""
    text = request.args.get(name)
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or not 1970 <= moment.year <= 9000:
        raise invalid(
            name, repr(text[:40]), "a day as 2026-01-31, or a time as 2026-01-31T12:00:00Z"
        )
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return (
        moment + timedelta(days=1) if name == "until" and len(text) == len("2026-01-31") else moment
    )


def read_share() -> float | None:
    """Return `share` of the query, a part above 0, or nothing."""
    text = request.args.get("share")
    if not text:
        return None
    try:
        share = float(text)
    except ValueError:
        share = math.nan
    if not 0 < share <= 1:
        raise invalid("share", repr(text[:40]), "a number above 0, to 1")
    return share


def read_choice(name: str, allowed: tuple[str, ...]) -> str | None:
    """Return one of `allowed` from the query, or nothing."""
    text = request.args.get(name)
    if not text:
        return None
    if text not in allowed:
        raise invalid(name, repr(text[:40]), ", ".join(allowed))
    return text


_KEY = re.compile(r"[\x21-\x7e]{1,200}")


def read_key() -> str | None:
    """Return the Idempotency-Key of the request. Raises InvalidRequest for one that is none."""
    key = request.headers.get("Idempotency-Key")
    if key is not None and not _KEY.fullmatch(key):
        raise invalid("Idempotency-Key", "is no key", "1 to 200 visible ASCII characters")
    return key


def read_once(body: BaseModel | Mapping[str, Any]) -> Once | None:
    """Return the Idempotency-Key of the request with what it stands for, or None without one.

    The key belongs to the person. The same key with the same method, address and body answers with
    what was made, as it is now; with another it is a 409. A request that was refused made nothing
    and leaves its key free.
    """
    key = read_key()
    if key is None:
        return None
    document = body.model_dump(mode="json") if isinstance(body, BaseModel) else dict(body)
    request_bytes = f"{request.method} {request.path}\n".encode() + canonical(document)
    return Once(current_actor().id, key, hashlib.sha256(request_bytes).hexdigest())
