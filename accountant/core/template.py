"""Prompt templates: named slots in a text, such as `{title}. {description}`. Not a template
language.
"""

import re
from collections.abc import Mapping
from functools import lru_cache

from accountant.core.errors import invalid

#: Fields of parameters that hold a prompt with slots, whose tokens a worker counts in the job's
#: model.
PROMPTS = frozenset({"template", "prompt", "rewriting"})

_SLOT = re.compile(r"\{([^{}]*)\}")
#: Where the words of a name that is written in one meet: OfficeHolder, office_holder.
_JOINT = re.compile(r"(?<=[a-z])(?=[A-Z][a-z])|_")


def slots(template: str) -> list[str]:
    """Return the names of the slots in order, with repetitions."""
    return _SLOT.findall(template)


def check_template(
    template: str, required: tuple[str, ...], optional: tuple[str, ...], field: str = "template"
) -> None:
    """Raise InvalidRequest if a required slot is missing or an unknown one is named."""
    names = slots(template)
    allowed = ", ".join(f"{{{name}}}" for name in (*required, *optional))
    for name in required:
        if names.count(name) != 1:
            raise invalid(
                field, f"the slot {{{name}}} occurs {names.count(name)} times", "exactly once"
            )
    for name in names:
        if name not in required and name not in optional:
            raise invalid(field, f"unknown slot {{{name}}}", allowed)


def check_turns(template: str, field: str = "template") -> None:
    """Raise InvalidRequest unless a chat model's question, if any, begins and ends as it must."""
    turns = [name for name in slots(template) if name in ("user", "assistant")]
    if turns not in ([], ["user", "assistant"]) or (turns and not template.startswith("{user}")):
        why = "{user} and {assistant} go together: what a chat model is asked lies between them"
        raise invalid(
            field, why, "{user} at the very beginning and {assistant} after it, or neither"
        )


def templates(parameters: Mapping[str, object]) -> list[str]:
    """Return every prompt among a job's parameters: PROMPTS, and fields named `*_template`."""
    # By name: a request, its row in the database and its entry hold them in different orders.
    named = [
        parameter
        for parameter in sorted(parameters)
        if parameter in PROMPTS or parameter.endswith("_template")
    ]
    return [value for name in named if isinstance(value := parameters[name], str)]


@lru_cache(maxsize=256)
def pieces(template: str) -> tuple[tuple[str, str | None], ...]:
    """Return (text before a slot, the slot) in order; the last pair has None for a slot."""
    parts = _SLOT.split(template)
    pairs = ((parts[index], parts[index + 1]) for index in range(0, len(parts) - 1, 2))
    return (*pairs, (parts[-1], None))


def fill(template: str, values: dict[str, str]) -> str:
    """Return the text with every slot filled. Values are inserted as they are, never read again."""
    return "".join(
        text + (values[name] if name is not None else "") for text, name in pieces(template)
    )


def in_words(label: str) -> str:
    """Return a label as prompts say it: OfficeHolder as "office holder", which a model reads as
    words and not as somebody's name. A label that has blanks stays as it is.
    """
    said = _JOINT.sub(" ", label)
    return label if " " in label or said == label else said.lower()


# --- templates by name --------------------------------------------------------------------------


DEFAULT_TEMPLATE = "A text ({label}): {record}\nAnother text ({label}):"
DEFAULT_TEMPLATE_OF_TWO = (
    "A text ({label}): {record}\nA text ({label}): {partner}\nAnother text ({label}):"
)

#: Templates by name, for one example and for two, and the text that ends a text of theirs. `base`
#: shows a model that was only pre-trained documents between fences; `instruction` asks one that was
#: tuned to follow instructions, in a turn of its own chat format (paper 001, E.4, in other words).
NAMED_TEMPLATES: Mapping[str, tuple[str, str, str | None]] = {
    "base": (
        "### {label}\n{record}\n\n### {label}\n",
        "### {label}\n{record}\n\n### {label}\n{partner}\n\n### {label}\n",
        "\n###",
    ),
    "instruction": (
        "{user}This is a text of the kind '{label}':\n\n{record}\n\nWrite one more text of this "
        "kind, about "
        "similar things and in a similar style. Answer with the new text and nothing "
        "else.{assistant}",
        "{user}These are two texts of the kind '{label}'.\n\nThe first:\n{record}\n\nThe "
        "second:\n{partner}"
        "\n\nWrite one more text of this kind, about similar things and in a similar style. Answer "
        "with the "
        "new text and nothing else.{assistant}",
        None,
    ),
}


def line_stop(template: str, stop: str | None) -> dict[str, str]:
    """Return `stop` where none is named: a line break, if the template ends in a colon."""
    asks = stop is None and template.rstrip(" ").endswith(":")
    return {"stop": "\n"} if asks else {}
