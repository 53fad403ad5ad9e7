"""Datasets: catalogue, declaration, allowance, policy, quotes, ledger."""

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from flask import Response, jsonify, request
from pydantic import Field

from accountant.catalogue import datasets as dataset_catalogue
from accountant.core import mechanisms
from accountant.core.errors import InvalidRequest, invalid
from accountant.core.ledger.allowances import Allowance, SecretDeclaration
from accountant.core.ledger.policy import Policy
from accountant.core.mechanisms.planning import PLANNED
from accountant.queries import datasets as dataset_queries
from accountant.queries import decisions, jobs, quotes, spending
from accountant.queries import effects as allowance_queries
from accountant.queries import entries as entry_queries
from accountant.schema.datasets import Dataset, DatasetInCatalogue, Meaning, Preview, Spending
from accountant.schema.decisions import Asked
from accountant.schema.ledgers import Entry, ExPostCost
from accountant.schema.quotes import Proposal, Quote
from accountant.transactions import allowances, policies
from web.api.blueprint import api
from web.api.checkpoints import seed
from web.api.etags import matcher
from web.api.openapi import TEXT, Operation, Schema, describe, listing
from web.api.paging import BY_NAME, Order, Window, page, read_window
from web.api.parsing import (
    MAX_PAGE,
    Body,
    made,
    read,
    read_choice,
    read_object,
    read_once,
    read_seq,
    read_share,
)
from web.api.proposals import proposal_for
from web.auth import current_actor
from web.context import engine, settings
from web.errors import with_prefix
from web.meaning import NEIGHBOURS, meaning

FORMATS = {"jsonl": "application/x-ndjson", "csv": "text/csv"}
FORMAT = {"type": "string", "enum": list(FORMATS), "default": "jsonl"}
YES_NO = {"type": "string", "enum": ["true", "false"], "default": "false"}
MECHANISM = {"type": "string", "enum": list(mechanisms.MECHANISMS)}
PUBLIC = {"type": "string", "enum": ["true", "false"], "default": "false"}
RELATION: Schema = {"type": "string", "enum": list(NEIGHBOURS), "default": NEIGHBOURS[0]}
GOAL: Schema = {"type": "string", "enum": list(PLANNED), "default": "texts"}
PART: Schema = {"type": "number", "exclusiveMinimum": 0, "maximum": 1, "examples": [0.5]}
SEQ = {"type": "integer", "minimum": 1, "maximum": 2**63 - 1}

ORDER = Order("datasets", BY_NAME, MAX_PAGE)
ENTRIES = Order("entries of a dataset", (("seq", int),))
EX_POST = Order("ex-post costs", (("finished_at", datetime), ("job", UUID)))
OVERSEERS = ("steward", "auditor")

Figure = Annotated[str | int | float, Field(union_mode="left_to_right")]


class NewAllowance(Body):
    """An allowance in decimals: texts keep every digit, numbers serve too."""

    epsilon: Figure | None = Field(
        None,
        description="what all jobs together may spend. The larger it is, the more a result may "
        "tell of one person",
    )
    delta: Figure | None = Field(
        None,
        description="how likely that bound may fail, such as 1e-6: far below one over the number "
        "of units",
    )
    reason: str = Field(
        max_length=2000, description="why so much. It goes into the ledger with your name"
    )
    shares: dict[str, Figure] | None = None
    order: Figure | None = Field(
        None, description="order of the first Rényi filter. Without it the one that fits the most"
    )
    ex_post: Figure | None = Field(
        None,
        description="what the caps of ex-post jobs may add up to, in ε. 0: no such job is admitted",
    )
    ex_post_settlement: str | None = Field(
        None,
        max_length=20,
        description="what an ex-post job leaves charged: its cap (planned), or what it really cost "
        "(realized). The second tells of the data, and so does all that is decided "
        "later",
    )
    secret: dict[str, Any] | None = None

    def allowance(self) -> Allowance:
        """Return the allowance. Raises InvalidRequest for figures of too many digits."""
        for field in ("epsilon", "delta", "order", "ex_post"):
            if len(str(getattr(self, field))) > 100:
                raise invalid(field, "too many digits", "at most 100 characters")
        arguments = {name: getattr(self, name) for name in type(self).model_fields}
        if self.secret is not None:
            arguments["secret"] = SecretDeclaration.from_json(self.secret)
        return Allowance(**arguments)


class Correction(Body):
    """Corrections of the declaration of refused data; a field that is not given stays."""

    uri: str | None = Field(None, min_length=1, max_length=2000)
    text_template: str | None = None
    unit_column: str | None = None
    max_records_per_unit: int | None = None
    unit_spelling: str | None = None
    missing_units: str | None = None
    label_column: str | None = None
    labels: list[str] | None = None
    group_column: str | None = None
    groups: list[str] | None = None
    secret_patterns: list[str] | None = None
    secret_terms: list[str] | None = None
    secret_column: str | None = None


class NewVersion(Body):
    """A new version of the data; fields not given stay as in the newest in use."""

    uri: str = Field(min_length=1, max_length=2000)
    text_template: str | None = Field(None, min_length=1, max_length=4000)
    label_column: str | None = None
    group_column: str | None = None
    secret_column: str | None = None


class QuoteRequest(Body):
    """A request to price, and which field to fit."""

    mechanism: str
    parameters: dict[str, Any] = Field(default_factory=dict)
    model: str | None = Field(
        None,
        max_length=200,
        description="the model that would run it: the answer says how long that takes",
    )
    fit: str | None = None
    epsilon: float | None = Field(None, gt=0, le=1e6)
    project: str | None = Field(None, max_length=200)
    share: float | None = Field(
        None,
        gt=0,
        le=1,
        description="decide and fit as if only this share of what is left were there",
    )


@api.get("/datasets")
@describe(
    Operation(
        query={"q": TEXT, "mechanism": MECHANISM, "open": YES_NO},
        answer=listing("datasets", DatasetInCatalogue, paged=ORDER),
    )
)
def datasets() -> Response:
    """The catalogue, by name.

    `q`: every word of it stands in the name, the description or a label. `mechanism`: the policy
    admits it. `open=true`: with an allowance and data that is ready, and the caller may ask for
    jobs.
    """
    window = read_window(ORDER)
    return page("datasets", found_datasets(window), window)


def found_datasets(window: Window) -> list[DatasetInCatalogue]:
    """Return datasets with the filters of the address."""
    wanted = dataset_queries.Wanted(
        request.args.get("q", "").strip()[:200],
        read_choice("mechanism", tuple(mechanisms.MECHANISMS)),
        read_choice("open", ("true", "false", "1")) in ("true", "1"),  # 1: addresses that were kept
    )
    return dataset_queries.datasets(engine(), current_actor(), wanted, **window.reads)


@api.post("/datasets")
@describe(
    Operation(
        body=dataset_catalogue.DatasetSpec,
        keyed=True,
        status=201,
        located=True,
        answer=Dataset,
        roles=("steward",),
    )
)
def add_dataset() -> tuple[Response, int]:
    """Register a dataset.

    A worker then reads its data through; `state` says what it found. It has no allowance yet.
    """
    actor = current_actor()
    actor.require("steward")
    spec = dataset_catalogue.read_dataset(read_object())
    dataset_catalogue.add_dataset(engine(), spec, actor, read_once(spec))
    return made(dataset_queries.dataset(engine(), spec.name, actor), "dataset", name=spec.name)


@api.get("/datasets/<name>")
@describe(Operation(answer=Dataset))
def dataset(name: str) -> Response:
    """One dataset with its account."""
    return jsonify(dataset_queries.dataset(engine(), name, current_actor()))


@api.post("/datasets/<name>/allowance")
@describe(
    Operation(
        body=NewAllowance,
        keyed=True,
        answer=Dataset,
        or_status=202,
        or_answer=Asked,
        roles=("steward",),
    )
)
def allow(name: str) -> tuple[Response, int]:
    """Set the allowance, or propose it.

    Answers with the dataset, or 202 with a decision where the policy asks for two people to raise
    it.
    """
    actor = current_actor()
    actor.require("steward")
    # a name in the address that names nothing is 404, not 422
    dataset_queries.dataset(engine(), name, actor)
    body = read(NewAllowance)
    entry = allowances.allow(engine(), name, body.allowance(), actor, read_once(body))
    if entry is not None:
        return jsonify(decision=decisions.show(engine(), entry, actor)), 202
    return jsonify(dataset_queries.dataset(engine(), name, actor)), 200


@api.get("/meaning")
@describe(
    Operation(
        query={
            "epsilon": {**TEXT, "examples": ["1"]},
            "delta": {**TEXT, "examples": ["0.000001"]},
            "neighbours": RELATION,
            "unit": TEXT,
        },
        answer=Meaning,
    )
)
def means() -> Response:
    """The bound on a guesser for an (epsilon, delta) in decimals."""
    query = {
        name: request.args.get(name, "") for name in ("epsilon", "delta", "neighbours", "unit")
    }
    unit = query["unit"][:200] or "record"
    return jsonify(
        meaning(query["epsilon"], query["delta"], query["neighbours"] or NEIGHBOURS[0], unit)
    )


@api.post("/datasets/<name>/allowance/preview")
@describe(Operation(body=NewAllowance, answer=Preview, roles=("steward",)))
def preview_allowance(name: str) -> Response:
    """Preview an allowance, for stewards: every limit before and after; nothing is written."""
    actor = current_actor()
    actor.require("steward")
    dataset_queries.dataset(engine(), name, actor)
    return jsonify(allowance_queries.preview(engine(), name, read(NewAllowance).allowance(), actor))


@api.post("/datasets/<name>/data")
@describe(Operation(body=Correction, keyed=True, status=202, answer=Dataset, roles=("steward",)))
def correct_dataset(name: str) -> tuple[Response, int]:
    """Declare data that was refused again: another address, template or column."""
    actor = current_actor()
    actor.require("steward")
    changes = read(Correction).model_dump(exclude_unset=True)
    dataset_catalogue.correct_dataset(engine(), name, changes, actor, read_once(changes))
    return jsonify(dataset_queries.dataset(engine(), name, actor)), 202


@api.post("/datasets/<name>/versions")
@describe(
    Operation(
        body=NewVersion, keyed=True, status=201, located=True, answer=Dataset, roles=("steward",)
    )
)
def add_version(name: str) -> tuple[Response, int]:
    """Add data on the same account.

    New jobs run on it once a worker has found it right.
    """
    actor = current_actor()
    actor.require("steward")
    changes = read(NewVersion).model_dump(exclude_none=True)
    dataset_catalogue.add_version(engine(), name, changes, actor, read_once(changes))
    return made(dataset_queries.dataset(engine(), name, actor), "dataset", name=name)


@api.get("/datasets/<name>/policy")
@describe(Operation(answer=Policy))
def policy(name: str) -> Response:
    """The policy; its ETag goes into the If-Match of a change."""
    return jsonify(
        dataset_queries.dataset(engine(), name, current_actor()).policy.model_dump(mode="json")
    )


@api.put("/datasets/<name>/policy")
@describe(
    Operation(
        body=Policy,
        if_match=True,
        answer=Dataset,
        or_status=202,
        or_answer=Asked,
        roles=("steward",),
    )
)
def set_policy(name: str) -> tuple[Response, int]:
    """Replace the policy, or propose it.

    Answers with the dataset, or 202 with a decision where `two_people` stands and the new policy is
    weaker in any field: another steward confirms the whole change, and nothing of it stands before.
    With `If-Match`, the ETag of the policy that was read, nobody else's change is undone unseen:
    412 where it is another by now. Jobs decided before keep their decision.
    """
    actor = current_actor()
    actor.require("steward")
    check = matcher()
    if check is None:
        entry = policies.set_policy(engine(), name, read(Policy), actor)
    else:
        entry = policies.set_policy(
            engine(), name, read(Policy), actor, lambda now: check(jsonify(now).get_data())
        )
    if entry is not None:
        return jsonify(decision=decisions.show(engine(), entry, actor)), 202
    return jsonify(dataset_queries.dataset(engine(), name, actor)), 200


@api.post("/datasets/<name>/quote")
@describe(Operation(body=QuoteRequest, answer=Quote))
def quote(name: str) -> Response:
    """The price of a request here, and what admission would say now.

    `fit` names a parameter whose largest value is found that still fits what is left. Changes
    nothing.
    """
    body = read(QuoteRequest)
    return jsonify(quote_for(name, body))


def quote_for(name: str, body: QuoteRequest) -> Quote:
    """Return a quote whose errors name the fields as the request does."""
    request_shape = (body.mechanism, body.parameters, body.fit, body.epsilon)
    try:
        return quotes.quote_on(
            engine(), name, *request_shape, current_actor(), body.project, body.share, body.model
        )
    except OverflowError:
        raise invalid(
            "parameters", "the price would be beyond every figure", "smaller costs"
        ) from None
    except InvalidRequest as error:
        outer = {"mechanism", "model", "fit", "epsilon", "project", "share"}
        if any(problem.field in outer for problem in error.problems):
            raise
        raise with_prefix(error, "parameters.") from None


@api.get("/datasets/<name>/proposal")
@describe(
    Operation(query={"goal": GOAL, "share": PART, "model": TEXT, "project": TEXT}, answer=Proposal)
)
def propose(name: str) -> Response:
    """What to ask for here to reach a goal, and what that would be worth. Changes nothing.

    `share`: the part of what is left that it may spend; without one, the smallest of a few whose
    proposal is good. `model`: the one that would run it; without one, the first that is ready. A
    mechanism of null: nothing would be enough, and the outlook says why.
    """
    return jsonify(
        proposal_for(
            name,
            read_choice("goal", tuple(PLANNED)) or "texts",
            current_actor(),
            share=read_share(),
            model=request.args.get("model", "")[:200] or None,
            project=request.args.get("project", "")[:200] or None,
        )
    )


@api.get("/datasets/<name>/ledger")
@describe(
    Operation(
        query={"before": SEQ}, answer=listing("entries", Entry, paged=ENTRIES), roles=OVERSEERS
    )
)
def entries(name: str) -> Response:
    """Entries of the ledger, newest first.

    `before` leaves out entries from that number on.
    """
    window = read_window(ENTRIES)
    entries = entry_queries.entries(
        engine(), name, current_actor(), before=read_seq(), **window.reads
    )
    return page("entries", entries, window)


@api.get("/datasets/<name>/ex-post")
@describe(Operation(answer=listing("jobs", ExPostCost, paged=EX_POST, note=TEXT), roles=OVERSEERS))
def ex_post(name: str) -> Response:
    """The real costs of ex-post jobs beside their caps, newest first.

    The figures depend on the data: approvals given after seeing them leak them.
    """
    window = read_window(EX_POST)
    ex_post = jobs.ex_post(engine(), name, current_actor(), **window.reads)
    return page("jobs", ex_post, window, note=jobs.EX_POST_NOTE)


@api.get("/datasets/<name>/spending")
@describe(Operation(answer=Spending))
def spending_of(name: str) -> Response:
    """The balance over time, and its use by person, mechanism and month, for every currency."""
    return jsonify(spending.figures(engine(), name, current_actor()))


@api.get("/datasets/<name>/ledger/export")
@describe(
    Operation(
        query={"format": FORMAT, "public": PUBLIC},
        refusals=(409,),
        media_types=tuple(FORMATS.values()),
        roles=OVERSEERS,
    )
)
def export(name: str) -> Response:
    """The whole ledger as a file, with a signed checkpoint of this moment.

    `public=true` hides names, purposes and realized ex-post figures behind commitments: `exchequer
    verify` checks either.
    """
    return export_response(name, request.args.get("format", "jsonl"))


def export_response(name: str, form: str) -> Response:
    """Return a streamed download with a signed checkpoint in it; pages offer it too."""
    if form not in FORMATS:
        raise invalid("format", repr(form[:40]), ", ".join(FORMATS))
    public_text = request.args.get("public", "false")
    if public_text not in ("true", "false"):
        raise invalid("public", repr(public_text[:40]), "true, false")
    public = public_text == "true"
    log = settings().public_log
    pieces = entry_queries.export(
        engine(), name, current_actor(), form, public=public, seed=seed(), log=log
    )
    file = f"{name}-ledger{'-public' if public else ''}.{form}"
    headers = {"Content-Disposition": f'attachment; filename="{file}"'}
    return Response(_blocks(pieces), mimetype=FORMATS[form], headers=headers)


def _blocks(pieces: Iterator[str], size: int = 1 << 16) -> Iterator[bytes]:
    """Yield the bytes in larger pieces: a write for each line would be slow."""
    block = bytearray()
    for piece in pieces:
        block += piece.encode()
        if len(block) >= size:
            yield bytes(block)
            block.clear()
    yield bytes(block)
