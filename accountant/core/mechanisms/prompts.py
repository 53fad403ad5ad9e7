"""Prompts that show a model a record and let it write on: defaults, and templates by name."""

from collections.abc import Mapping

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
