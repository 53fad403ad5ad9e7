"""Parameters that `aug-pe` and `secpe` share: how samples are written, varied and selected.

None of it costs anything: texts are written from prompts, labels and samples, and samples are
selected by counts that were released.
"""

import math
from fractions import Fraction
from typing import Literal, TypeVar

from pydantic import Field

from accountant.core.errors import invalid
from accountant.core.mechanisms.base import Parameters
from accountant.core.template import check_template

P = TypeVar("P", bound="EvolvingTexts")

DEFAULT_PROMPT = "A text ({label}):"
DEFAULT_REWRITING = "Rewrite this text ({label}) in other words: {text}\nRewritten:"
DEFAULT_BLANKS = (
    "In this text ({label}) words were replaced by _. Write the whole text with words of your own "
    "in "
    "their places: {text}\nThe whole text:"
)

#: What samples and their votes are to a job that reads them: the name and the kind of the artifact.
EVOLUTION = "evolution"

#: Tokens set aside for what a chat template puts around a request.
CHAT_TOKENS = 128

#: The largest σ, in steps of the grid on which noise is drawn.
MOST_SCALE = 2**40


class EvolvingTexts(Parameters):
    """Fields of a mechanism that writes samples, selects some of them, and varies those."""

    samples: int = Field(
        2_000, ge=1, le=10_000_000, description="samples per label that survive a round"
    )
    variations: int = Field(
        7, ge=0, le=1_000, description="how many new forms of each kept text are written"
    )
    select: Literal["rank", "draw"] = Field(
        "rank",
        description="which survive: those with the largest counts, or draws in proportion to the "
        "counts, with replacement",
    )
    temperature: float = Field(
        1.4, ge=0.001, le=1_000, description="how bold the texts are: 0.7 is calm, 1.2 is wild"
    )
    varying: Literal["rewrite", "continue", "blanks"] = Field(
        "rewrite",
        description="rewrite by a prompt; go on from a random start, which suits base "
        "models; or fill in blanks, for strong models alone",
    )
    kept: float = Field(
        0.5,
        ge=0.01,
        le=0.99,
        description="share of a text's words that stays: of a prefix at most, between blanks on "
        "average",
    )
    prompt: str = Field(
        DEFAULT_PROMPT, max_length=8_000, description="of first samples; slot {label}"
    )
    rewriting: str | None = Field(
        None,
        min_length=1,
        max_length=8_000,
        description="the prompt of variations by rewrite or blanks; slots {label} and {text}; "
        "nothing: "
        "a plain one",
    )
    prompting: Literal["chat", "plain"] = Field(
        "plain",
        description="plain: the model goes on from the prompt; chat: it is asked by its chat "
        "template, where it has one",
    )
    stop: str | None = Field(
        None,
        min_length=1,
        max_length=100,
        description="text that ends a sample; nothing: the model's own end, and a new line where "
        "prompting is plain",
    )
    max_tokens: int = Field(128, ge=1, le=1_000_000, description="a sample ends here at the latest")
    record_tokens: int = Field(
        256, ge=1, le=1_000_000, description="a record is cut after this many"
    )
    embedding: str | None = Field(
        None,
        min_length=1,
        max_length=63,
        description="a model that says which texts are alike; nothing: the writer's own states",
    )
    writer: str | None = Field(
        None,
        min_length=1,
        max_length=63,
        description="language model that writes instead of the job's; an endpoint only with "
        "from_job",
    )
    seed: int | None = Field(
        None,
        ge=0,
        le=2**53 - 1,
        description="of what is written and of draws among samples; private noise has none",
    )


#: Fields that some variations alone use (`Mechanism.needs`).
NEEDS_VARYING = {
    "varying=continue": "kept",
    "varying=rewrite": "rewriting",
    "varying=blanks": "kept rewriting",
}


def with_prompts(parameters: P) -> P:
    """Return the parameters with the variations' prompt. Raises InvalidRequest for slots."""
    check_template(parameters.prompt, required=(), optional=("label",), field="prompt")
    if parameters.varying == "continue":
        if parameters.rewriting is not None:
            raise invalid("rewriting", "varying is continue, which has no such prompt", "nothing")
        return parameters
    rewriting = parameters.rewriting
    if rewriting is None:
        rewriting = DEFAULT_REWRITING if parameters.varying == "rewrite" else DEFAULT_BLANKS
    check_template(rewriting, required=("text",), optional=("label",), field="rewriting")
    return parameters.model_copy(update={"rewriting": rewriting})


def evolution_context(parameters: EvolvingTexts, template_tokens: int) -> int:
    """Return the longest context: a prompt, a sample and its variation, never a record."""
    chat = CHAT_TOKENS if parameters.prompting == "chat" else 0
    writing = template_tokens + chat + 2 * parameters.max_tokens
    return max(writing, parameters.record_tokens) if parameters.embedding is None else writing


def evolution_resources(parameters: EvolvingTexts) -> dict[str, str]:
    """Return the registered models that the parameters name."""
    kinds = {"embedding": "embedding", "writer": "writer"}
    return {field: kind for field, kind in kinds.items() if getattr(parameters, field) is not None}


def root_up(square: int) -> Fraction:
    """Return the root of a whole number, exact or rounded up by less than 2^-60."""
    root = math.isqrt(square)
    if root * root == square:
        return Fraction(root)
    return Fraction(math.isqrt(square << 120) + 1, 1 << 60)
