"""Texts that a public model writes without any record: what a job's texts must be better than."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from accountant.core.mechanisms.seconds import MOST_ZERO_SHOT
from accountant.core.privacy.price import Terms
from accountant.core.template import slots
from workers.data.public_text import PublicPrompt, PublicText, constant, filled, label, parameter
from workers.evaluation.sides import Texts
from workers.generation.writer import Manner, Writer

TEMPERATURE = 1.0
#: Fields that hold a mechanism's prompt, the first that it has.
PROMPTS = ("public_template", "template", "prompt")


@dataclass(frozen=True)
class Asked:
    """A prompt for each label, and how texts after it are written."""

    prompts: Mapping[str | None, PublicPrompt]
    manner: Manner


def asked_of(parameters: Any, terms: Terms, manner: Manner) -> Asked | None:
    """Return a job's own prompts without a record. Returns None for a mechanism without a prompt.

    Records, shots and phrases are left out; the label and the description stay.
    """
    field = next((name for name in PROMPTS if getattr(parameters, name, None)), None)
    if field is None:
        return None
    prompts = {
        name: _prompt(parameter(parameters, field), parameters, terms, name)
        for name in terms.labels or (None,)
    }
    return Asked(prompts, manner)


def _prompt(template: PublicText, parameters: Any, terms: Terms, name: str | None) -> PublicPrompt:
    chat = template.startswith("{user}")
    if chat:
        template = template.through(
            lambda text: text.removeprefix("{user}").partition("{assistant}")[0]
        )
    values = dict.fromkeys(slots(template), constant(""))
    values["label"] = label(terms, name)
    if getattr(parameters, "description", None):
        values["description"] = filled(
            parameter(parameters, "description"), {"label": values["label"]}
        )
    asks = chat or getattr(parameters, "prompting", "plain") == "chat"
    return PublicPrompt(filled(template, values), asks)


def write(writer: Writer, asked: Asked, number: int) -> Texts:
    """Return `number` texts, at most MOST_ZERO_SHOT, in turn of all labels. Raises WriterError."""
    each = -(-min(number, MOST_ZERO_SHOT) // len(asked.prompts))
    names = list(asked.prompts)
    made = list(writer.write([asked.prompts[name] for name in names], asked.manner, each))
    labels = None if names == [None] else [str(names[written.row]) for written in made]
    return Texts([written.text for written in made], labels, [written.complete for written in made])
