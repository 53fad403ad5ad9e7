"""A new dataset in steps. What was typed goes from page to page in the form itself, signed.

The server keeps nothing, going back loses nothing, and only the last step writes.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from flask import Blueprint, Response, current_app, flash, render_template, request
from itsdangerous import BadSignature, URLSafeSerializer
from werkzeug.wrappers import Response as BaseResponse

from accountant.catalogue import datasets, uploads
from accountant.catalogue.datasets import DatasetSpec
from accountant.core.errors import (
    Conflict,
    ExchequerError,
    FieldProblem,
    InvalidRequest,
    NoRoom,
    NotFound,
    TooLarge,
)
from accountant.core.ledger.allowances import Allowance, allowance_body
from accountant.core.ledger.books import Books
from accountant.queries import datasets as dataset_queries
from accountant.transactions import allowances
from web.api.datasets import NewAllowance
from web.api.parsing import read
from web.auth import current_actor, needs_role
from web.context import engine, settings
from web.errors import status_of
from web.meaning import ABOUT_EX_POST, ABOUT_SECRETS, FILTER_WORDS, RELATIONS, meaning
from web.request_bodies import store
from web.views import presets
from web.views.forms import Form, done, number, sent, typed, whole
from web.views.policies import allowance_fields, policy_of
from web.views.uploads import receive_form

pages = Blueprint("wizard", __name__)

#: Each step with the fields that it shows; one that ends in a dot stands for all that begin so.
STEPS = {
    "data": "name file uri elsewhere description",
    "texts": "text_column text_template label_column labels",
    "people": "neighbours unit_column max_records_per_unit unit_spelling missing_units public_size "
    "group_column groups secret_patterns secret_terms secret_column",
    "allowance": "epsilon delta reason ex_post ex_post_settlement secret. shares. order",
    "policy": "policy.",
    "review": "",
}
TITLES = {
    "data": "Data",
    "texts": "Texts",
    "people": "Whom it protects",
    "allowance": "Allowance",
    "policy": "Policy",
    "review": "Review",
}
MOST_FILES = 100
_SECRET_FIELDS = ("prior", "bound", "records_per_secret", "sampling_rate", "neighbour", "kind")

# --- pages --------------------------------------------------------------------------------------


@pages.get("/add-dataset")
@needs_role("steward")
def start() -> str:
    """The first step."""
    uri = request.args.get("uri", "")
    return _page("data", Form({"uri": uri} if uri else {}))


@pages.post("/add-dataset")
@needs_role("steward")
def step() -> BaseResponse:
    """Go on, go back, or create; the input of this step is kept."""
    values, now = _values()
    try:
        _take_file(values, now)
    except InvalidRequest as error:
        wrong = tuple(replace(problem, field="upload") for problem in error.problems)
        return Response(_page(now, Form(values, wrong)), 422)
    except (TooLarge, NoRoom) as error:
        return Response(_page(now, Form(values, general=str(error))), status_of(error))
    names = list(STEPS)
    action = "show" if "preset" in request.form else request.form.get("action", "next")
    if action in names and names.index(action) < names.index(now):
        return Response(_page(action, Form(values)))
    if action == "show":  # the same step, with what its panel says of these values
        return Response(_page(now, Form(values)))
    upto = names if action == "create" else names[: names.index(now) + 1]
    problems = _problems(values)
    for name in upto:
        wrong = tuple(problem for problem in problems if _belongs(problem.field, name))
        if wrong:
            return Response(_page(name, Form(values, wrong)), 422)
    if action == "create":
        return _create(values)
    return Response(_page(names[min(names.index(now) + 1, len(names) - 1)], Form(values)))


@pages.post("/add-dataset/meaning")
@needs_role("steward")
def panel() -> str:
    """The meaning of the allowance that the form says now, as a part of its page."""
    return render_template("_meaning.html", **_meaning(_values()[0]))


def _page(step: str, form: Form) -> str:
    files = uploads.listing(engine(), store(), current_actor(), limit=MOST_FILES)
    named = (
        list(file["columns"]) for file in files if file["address"] == form.value("uri").strip()
    )
    body = _allowance_body(form.values) if step == "review" else None
    return render_template(
        "wizard.html",
        step=step,
        steps=TITLES,
        form=form,
        kept=_signer().dumps({name: value for name, value in form.values.items() if value}),
        columns=next(named, []),
        files=files,
        relations=RELATIONS,
        filter_words=FILTER_WORDS,
        filters=(body or {}).get("filters", []),
        policy=policy_of(form.values),
        new_policy={"results_every_seconds": settings().results_every_seconds or None},
        **_meaning(form.values),
    )


def _meaning(values: Mapping[str, str]) -> dict[str, Any]:
    """Return values for the panel; without figures that can be it says how to begin."""
    texts = {"ex_post_text": ABOUT_EX_POST, "secret_text": ABOUT_SECRETS}
    unit = values.get("unit_column", "").strip() or "record"
    epsilon, delta = (values.get(name, "").strip() for name in ("epsilon", "delta"))
    try:
        sentences = meaning(epsilon, delta, values.get("neighbours") or "add-remove", unit)
    except InvalidRequest:
        sentences = None
    return {"meaning": sentences, **texts}


# --- what is kept -------------------------------------------------------------------------------


def _signer() -> URLSafeSerializer:
    salt = f"add-dataset {current_actor().id}"
    return URLSafeSerializer(current_app.config["SECRET_KEY"], salt=salt)


def _values() -> tuple[dict[str, str], str]:
    """Return all values so far, those of this step as they were sent, and the step."""
    form = presets.applied(sent())
    now = form.get("step", "data")
    now = now if now in STEPS else "data"
    try:
        saved: dict[str, str] = _signer().loads(form.get("kept", ""))
    except BadSignature:
        saved, now = {}, "data" if now == "review" else now
    stated = {name: text for name, text in form.items() if _belongs(name, now)}
    if stated.get("file"):
        stated["uri"] = stated["file"]
    if stated.get("text_column"):
        stated["text_template"] = f"{{{stated['text_column']}}}"
    values = {name: text for name, text in saved.items() if not _belongs(name, now)} | stated
    if now == "policy":
        values["policy.seen"] = "1"
    return values, now


def _take_file(values: dict[str, str], step: str) -> None:
    """Keep a file sent with the first step: it is the data, and may name the dataset."""
    sent_file = request.files.get("upload")
    if step != "data" or sent_file is None or not sent_file.filename:
        return
    values["uri"] = receive_form("upload")["address"]
    if not values.get("name", "").strip():
        stem = PurePath(sent_file.filename.replace("\\", "/")).name.partition(".")[0]
        values["name"] = re.sub("[^a-z0-9._-]+", "-", stem.lower()).strip("-._")[:63]


def _belongs(field: str, step: str) -> bool:
    if step == "allowance" and field in ("shares", "secret", *_SECRET_FIELDS):
        return True
    names = STEPS[step].split()
    return field in names or any(field.startswith(name) for name in names if name.endswith("."))


# --- what is wrong ------------------------------------------------------------------------------


def declaration(values: Mapping[str, str]) -> dict[str, Any]:
    """Return the values as the API takes a dataset's declaration."""
    # as it is: what stands around a column is part of it
    template = values.get("text_template", "{text}")
    spec = typed(DatasetSpec, values) | {"text_template": template, "policy": policy_of(values)}
    return spec | {"uri": spec["uri"] or None if values.get("elsewhere") else spec["uri"]}


def _allowance(values: Mapping[str, str]) -> Allowance | None:
    """Return the allowance that was typed, or None. Raises InvalidRequest."""
    allowance = allowance_fields(values, "shares", "secret")
    if "prior" not in (allowance["secret"] or {}):
        allowance["secret"] = None
    if not any(allowance[name] for name in ("epsilon", "delta", "ex_post", "shares", "secret")):
        return None
    if allowance["secret"]:
        allowance["secret"] = _secret(allowance["secret"])
    return read(NewAllowance, allowance).allowance()


def _secret(stated: Mapping[str, str]) -> dict[str, Any]:
    """Return numbers as numbers; a text that is none goes on as it is, and its field is named."""
    secret: dict[str, Any] = dict(stated)
    for name in ("prior", "bound", "sampling_rate"):
        value = number(stated.get(name, ""))
        if not isinstance(value, int | float):
            problem = "missing" if name not in stated else f"{stated[name]!r} is no number"
            raise InvalidRequest([FieldProblem(f"secret.{name}", problem, "a number")])
        secret[name] = float(value)
    secret["records_per_secret"] = whole(stated.get("records_per_secret", ""))
    return secret


def _allowance_body(values: Mapping[str, str]) -> dict[str, Any] | None:
    allowance = _allowance(values)
    if allowance is None:
        return None
    unit = values.get("unit_column", "").strip() or None
    return allowance_body(allowance, Books(), values.get("neighbours") or "add-remove", unit)


def _problems(values: Mapping[str, str]) -> list[FieldProblem]:
    """Return everything that is wrong with what was typed so far."""
    problems: list[FieldProblem] = []
    try:
        spec = datasets.read_dataset(declaration(values))
        with suppress(NotFound):
            dataset_queries.dataset(engine(), spec.name, current_actor())
            found = f"there is a dataset {spec.name!r} already"
            problems.append(FieldProblem("name", found, "another name"))
    except InvalidRequest as error:
        problems += error.problems
    try:
        _allowance_body(values)
    except InvalidRequest as error:
        for problem in error.problems:  # of the declaration of secrets, at the form's field
            name = "epsilon" if problem.field == "body" else problem.field
            named = f"secret.{name}" if name in _SECRET_FIELDS else name
            problems.append(replace(problem, field=named))
    except Conflict as error:
        problems.append(FieldProblem("epsilon", str(error)))
    return problems


# --- the end ------------------------------------------------------------------------------------


def _create(values: Mapping[str, str]) -> BaseResponse:
    actor = current_actor()
    try:
        spec = datasets.read_dataset(declaration(values))
        datasets.add_dataset(engine(), spec, actor)
    except InvalidRequest as error:
        return Response(_page("data", Form(values, error.problems)), 422)
    except Conflict as error:
        return Response(_page("data", Form(values, general=str(error))), 409)
    reads, charged = "A worker now reads its data through.", "Other programs may charge it."
    message = f"{spec.name} is registered. {charged if spec.uri is None else reads}"
    allowance = _allowance(values)
    if allowance is not None:
        try:
            entry = allowances.allow(engine(), spec.name, allowance, actor)
            by_two = "Another steward confirms its allowance."
            message += f" {'Its allowance is set.' if entry is None else by_two}"
        except ExchequerError as error:
            flash(f"The allowance is not set: {error}.", "problem")
    return done(message, "datasets.show", name=spec.name)
