"""Public corpora: what cluster centres, public contexts and evaluation read."""

from flask import Response, jsonify

from accountant.catalogue import corpora
from accountant.schema.models import Corpus
from web.api.blueprint import api
from web.api.openapi import Operation, describe, listing
from web.api.paging import BY_NAME, Order, page, read_window
from web.api.parsing import MAX_PAGE, made, read, read_once
from web.auth import current_actor
from web.context import engine

ORDER = Order("corpora", BY_NAME, MAX_PAGE)


class NewCorpus(corpora.CorpusSpec):
    """A corpus to register."""


@api.get("/corpora")
@describe(Operation(answer=listing("corpora", Corpus, paged=ORDER)))
def list_corpora() -> Response:
    """Registered corpora with their public facts, by name."""
    window = read_window(ORDER)
    return page("corpora", corpora.listing(engine(), current_actor(), **window.reads), window)


@api.get("/corpora/<name>")
@describe(Operation(answer=Corpus))
def corpus(name: str) -> Response:
    """One corpus."""
    return jsonify(corpora.show(engine(), name, current_actor()))


@api.post("/corpora")
@describe(
    Operation(
        body=NewCorpus, keyed=True, status=201, located=True, answer=Corpus, roles=("steward",)
    )
)
def add_corpus() -> tuple[Response, int]:
    """Register a corpus that is public, or given for this with consent.

    A worker then reads it through; `state` says what it found.
    """
    actor = current_actor()
    actor.require("steward")
    body = read(NewCorpus)
    corpora.add(engine(), body, actor, read_once(body))
    return made(corpora.show(engine(), body.name, actor), "corpus", name=body.name)
