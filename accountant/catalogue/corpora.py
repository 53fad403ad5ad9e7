"""Public corpora: texts that reach a mechanism without a price, because a steward vouches for them.

Cluster centres, public contexts, vocabularies and evaluation read nothing else. A corpus is
declared `public`, or `consented`: given for this use by the people who wrote it. Its hash goes into
every entry of a job that read it, so that the declaration can be held against the very bytes.
"""

import re
from typing import Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import Engine, Select, select

from accountant import tables
from accountant.catalogue import registration
from accountant.core.errors import FieldProblem, InvalidRequest, NotFound
from accountant.core.names import NAME
from accountant.core.template import slots
from accountant.database import kept, reading
from accountant.identities.actor import Actor
from accountant.tables import paging
from accountant.transactions import unit_fingerprints
from accountant.transactions.idempotency import Once


class CorpusSpec(BaseModel):
    """A steward's declaration of a corpus."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    name: str = Field(max_length=200, description="what requests call it")
    uri: str = Field(
        min_length=1, max_length=2000, description="where the data is, below a data root"
    )
    text_template: str = Field(
        "{text}", max_length=4000, description="a text from its columns, as `{title}. {body}`"
    )
    label_column: str | None = Field(
        None, max_length=200, description="the column that holds the label, if there is one"
    )
    declaration: Literal["public", "consented"] = Field(
        "public",
        description="public: free for all to read; consented: its writers gave it for this",
    )
    statement: str = Field(
        max_length=4000,
        description="a sentence that you vouch for: whose texts these are, why their use touches "
        "nobody",
    )


def add(engine: Engine, spec: CorpusSpec, actor: Actor, once: Once | None = None) -> UUID:
    """Register a corpus; a worker reads it through first. Raises InvalidRequest and Conflict."""
    actor.require("steward")
    problems = []
    if not re.fullmatch(NAME, spec.name):
        problems.append(
            FieldProblem("name", repr(spec.name), "lower case letters, digits, '.', '_' and '-'")
        )
    if not slots(spec.text_template):
        problems.append(FieldProblem("text_template", "names no column", "at least one {column}"))
    if not spec.statement.strip():
        problems.append(FieldProblem("statement", "empty", "a sentence: whose texts these are"))
    if problems:
        raise InvalidRequest(problems)
    registration.require_room(engine, actor)
    return registration.register(engine, "corpus", spec.model_dump(mode="json"), actor, once)


@kept
def listing(
    engine: Engine, viewer: Actor, *, limit: int | None = None, after: paging.After = None
) -> list[dict[str, Any]]:
    """Return corpora by name, with their public facts; address and error for stewards only."""
    table = tables.corpora
    query = paging.window(select(table), [table.c.name], limit, after, descending=False)
    return _shown(engine, viewer, query)


def show(engine: Engine, name: str, viewer: Actor) -> dict[str, Any]:
    """Return one corpus. Raises NotFound."""
    corpora = _shown(engine, viewer, select(tables.corpora).where(tables.corpora.c.name == name))
    if not corpora:
        raise NotFound("corpus", name)
    return corpora[0]


def _shown(engine: Engine, viewer: Actor, query: Select[Any]) -> list[dict[str, Any]]:
    with reading(engine) as connection:
        rows = connection.execute(query).all()
        errors = {row.id: unit_fingerprints.told(connection, viewer, row, True) for row in rows}
    steward = "steward" in viewer.roles
    shown = ("name", "state", "declaration", "statement", "label_column", "facts")
    return [
        {
            **{name: getattr(row, name) for name in shown},
            **(
                {"uri": row.uri, "error": errors[row.id], "text_template": row.text_template}
                if steward
                else {}
            ),
        }
        for row in rows
    ]
