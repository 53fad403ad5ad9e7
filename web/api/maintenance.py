"""Maintenance: admissions stop, for administrators."""

from flask import Response, jsonify
from pydantic import Field

from accountant.schema.people import Maintenance
from accountant.transactions import maintenance
from web.api.blueprint import api
from web.api.openapi import Operation, describe
from web.api.parsing import Body, read
from web.auth import current_actor
from web.context import engine


class Switch(Body):
    """Whether maintenance is to be on, and why."""

    on: bool
    reason: str = Field(description="one sentence, which everybody reads on every page")


@api.get("/maintenance")
@describe(Operation(answer=Maintenance, roles=("administrator",)))
def show_maintenance() -> Response:
    """Whether maintenance is on, and how many jobs still run."""
    current_actor().require("administrator")
    return jsonify(maintenance.standing(engine()))


@api.put("/maintenance")
@describe(Operation(body=Switch, answer=Maintenance, roles=("administrator",)))
def switch_maintenance() -> Response:
    """Begin maintenance, or end it.

    Nothing is admitted and no job begins while it is on; what runs goes on, and so do reads.
    """
    body = read(Switch)
    maintenance.switch(engine(), current_actor(), body.on, body.reason)
    return jsonify(maintenance.standing(engine()))
