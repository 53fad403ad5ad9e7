"""What an auditor needs beside the export: signed checkpoints, public keys, a check of the live ledger."""

from flask import Response, jsonify

from accountant import checkpoints, reports
from web.api import api
from web.api.bodies import read_limit
from web.api.openapi import LIMIT, Operation, describe, listing
from web.app import engine, settings
from web.auth import current_actor

SIGNING = "checkpoint"


def seed() -> bytes:
    """The secret that signs checkpoints."""
    return settings().secret(SIGNING)


@api.get("/keys")
@describe(Operation(answer=listing("keys"), public=True))
def keys() -> Response:
    """The public keys that sign checkpoints, oldest first, each introduced by the one before."""
    return jsonify(keys=checkpoints.keys(engine(), seed()))


@api.get("/datasets/<name>/checkpoints")
@describe(Operation(query={"limit": LIMIT}, answer=listing("checkpoints")))
def list_checkpoints(name: str) -> Response:
    """Checkpoints that were handed out, newest first."""
    found = reports.checkpoints(engine(), name, current_actor(), read_limit())
    return jsonify(checkpoints=found)


@api.post("/datasets/<name>/checkpoints")
@describe(Operation(status=201, refusals=(409,)))
def make_checkpoint(name: str) -> tuple[Response, int]:
    """Sign what the ledger is now."""
    return jsonify(reports.checkpoint(engine(), name, current_actor(), seed())), 201


@api.get("/datasets/<name>/ledger/check")
@describe(Operation())
def check(name: str) -> Response:
    """Compare cached balances, entries and jobs: `problems` says what disagrees."""
    actor = current_actor()
    actor.require("steward", "auditor")
    reports.dataset(engine(), name, actor)
    return jsonify(dataset=name, problems=reports.check(engine(), name))
