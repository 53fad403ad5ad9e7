"""The fields of what jobs are asked with: mechanisms, models, corpora."""

from typing import Literal

from pydantic import Field

from accountant.schema.base import Answer, Checked, Json


class Mechanism(Answer):
    """A mechanism that jobs may name."""

    id: str
    title: str
    summary: str
    source: str
    size_field: str = Field(description="the parameter that says how much is asked for")
    uses_model: bool
    runnable: bool = Field(description="false: it can be priced here and not run")
    parameters: Json = Field(description="JSON Schema of `parameters`")


class Model(Answer):
    """A registered model."""

    name: str
    kind: Literal["language", "embedding", "endpoint"]
    state: Checked
    trained_on: str = Field(description="the steward's declaration")
    facts: Json | None = Field(description="what a worker found: hash, context length, layers")
    endpoint: Json | None = Field(
        None, description="what is declared of an endpoint: model, version, limits"
    )
    path: str | None = Field(None, description="for stewards")
    error: str | None = Field(None, description="why it is invalid, for stewards")


class Corpus(Answer):
    """A registered public corpus."""

    name: str
    state: Checked
    declaration: Literal["public", "consented"]
    statement: str
    label_column: str | None
    facts: Json | None = Field(description="what a worker found: hash, number of texts, labels")
    uri: str | None = Field(None, description="for stewards")
    error: str | None = Field(None, description="why it is invalid, for stewards")
    text_template: str | None = Field(None, description="for stewards")
