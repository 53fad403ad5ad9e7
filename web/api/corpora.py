"""Public corpora: what cluster centres, public contexts and evaluation read."""

from typing import Literal

from flask import Response, jsonify
from pydantic import Field

from accountant import corpora
from web.api import api
from web.api.bodies import Body, read
from web.api.openapi import Operation, describe, listing
from web.app import engine
from web.auth import current_actor


class NewCorpus(Body):
    """A corpus to register."""

    name: str = Field(max_length=200)
    uri: str = Field(min_length=1, max_length=2000)
    text_template: str = Field("{text}", max_length=4000)
    label_column: str | None = Field(None, max_length=200)
    declaration: Literal["public", "consented"] = "public"
    statement: str = Field(max_length=4000)

    def spec(self) -> corpora.CorpusSpec:
        return corpora.CorpusSpec(**self.model_dump())


@api.get("/corpora")
@describe(Operation(answer=listing("corpora")))
def list_corpora() -> Response:
    """Registered corpora with their public facts."""
    return jsonify(corpora=corpora.listing(engine(), current_actor()))


@api.post("/corpora")
@describe(Operation(body=NewCorpus, status=201))
def add_corpus() -> tuple[Response, int]:
    """Register a corpus; a worker then reads it through."""
    actor = current_actor()
    actor.require("steward")
    spec = read(NewCorpus).spec()
    corpora.add(engine(), spec, actor)
    found = next(each for each in corpora.listing(engine(), actor) if each["name"] == spec.name)
    return jsonify(found), 201
