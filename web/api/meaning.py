"""The meaning of an allowance, and the effect of a change, before anybody writes it."""

from flask import Response, jsonify, request

from accountant.queries import datasets
from accountant.queries import proposals as proposal_queries
from accountant.schema.datasets import Meaning, Preview
from web.api.blueprint import api
from web.api.datasets import NewAllowance
from web.api.openapi import TEXT, Operation, Schema, describe
from web.api.parsing import read
from web.auth import current_actor
from web.context import engine
from web.meaning import NEIGHBOURS, meaning

RELATION: Schema = {"type": "string", "enum": list(NEIGHBOURS), "default": NEIGHBOURS[0]}


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
    given = {name: request.args.get(name, "") for name in ("epsilon", "delta", "neighbours", "unit")}
    unit = given["unit"][:200] or "record"
    return jsonify(meaning(given["epsilon"], given["delta"], given["neighbours"] or NEIGHBOURS[0], unit))


@api.post("/datasets/<name>/allowance/preview")
@describe(Operation(body=NewAllowance, answer=Preview, roles=("steward",)))
def preview_allowance(name: str) -> Response:
    """Preview an allowance, for stewards: every limit before and after; nothing is written."""
    actor = current_actor()
    actor.require("steward")
    datasets.dataset(engine(), name, actor)
    return jsonify(proposal_queries.preview(engine(), name, read(NewAllowance).allowance(), actor))
