"""Checks for auditors beside the export: signed checkpoints, public keys, a check of the live
ledger.
"""

from datetime import datetime

from flask import Response, jsonify

from accountant.ledger_log.publication import published_key
from accountant.queries import entries, integrity
from accountant.schema.ledgers import Checkpoint, LedgerCheck, SignedKey
from accountant.transactions import signing
from web.api.blueprint import api
from web.api.openapi import Operation, describe, listing
from web.api.paging import Order, page, read_window
from web.auth import current_actor
from web.context import engine, settings

SIGNING = "checkpoint"
TEXT_OR_NULL = {"type": ["string", "null"]}
OVERSEERS = ("steward", "auditor")
ORDER = Order(
    "checkpoints of a dataset",
    (("checkpoint.seq", int), ("checkpoint.at", datetime), ("checkpoint.key", str)),
)


def seed() -> bytes:
    """Return the secret that signs checkpoints; where another process has it, what says so."""
    return settings().secret(SIGNING) if signing.signs_here(engine()) else signing.ELSEWHERE


@api.get("/keys")
@describe(Operation(answer=listing("keys", SignedKey, public_log=TEXT_OR_NULL), public=True))
def keys() -> Response:
    """The public keys that sign checkpoints, oldest first, and the key of the published log.

    Each is introduced by the one before, so they come in one piece: a part could not be checked.
    `public_log` is null where no log is published.
    """
    log_key = published_key(settings().public_log)
    return jsonify(keys=signing.keys(engine(), seed()), public_log=log_key)


@api.get("/datasets/<name>/checkpoints")
@describe(Operation(answer=listing("checkpoints", Checkpoint, paged=ORDER), roles=OVERSEERS))
def list_checkpoints(name: str) -> Response:
    """Checkpoints that were handed out, newest first."""
    window = read_window(ORDER)
    checkpoints = entries.checkpoints(engine(), name, current_actor(), **window.reads)
    return page("checkpoints", checkpoints, window)


@api.post("/datasets/<name>/checkpoints")
@describe(Operation(status=201, refusals=(409,), answer=Checkpoint, roles=OVERSEERS))
def make_checkpoint(name: str) -> tuple[Response, int]:
    """Sign what the ledger is now.

    At one entry a key signs once: asked again, the same checkpoint is the answer, so it takes no
    Idempotency-Key.
    """
    return jsonify(entries.checkpoint(engine(), name, current_actor(), seed())), 201


@api.get("/datasets/<name>/ledger/check")
@describe(Operation(answer=LedgerCheck, roles=OVERSEERS))
def check(name: str) -> Response:
    """Compare entries, cached balances and jobs; `problems` says what disagrees."""
    actor = current_actor()
    actor.require("steward", "auditor")
    entries.require(engine(), name, actor)
    return jsonify(dataset=name, problems=integrity.check(engine(), name))
