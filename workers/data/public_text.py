"""Text that is public by where it came from, and what a Writer is asked with.

A Writer may send its prompts to another machine, so it takes no `str`: it takes `PublicText`, which
only public sources make. What is computed of it is a plain `str` again, but for the few ways here
that keep to public text. A record's text is a `str`, and no way leads from there to a PublicText.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from pydantic import BaseModel

from accountant.core.privacy.price import Terms
from accountant.core.template import in_words, pieces


class PublicText(str):
    """A text that anybody may read; made by the functions of this module alone."""

    __slots__ = ()

    def __new__(cls, *_: object, **__: object) -> "PublicText":
        """Never: a text is not public because somebody says so."""
        raise TypeError(
            "a PublicText is made by a public source (workers.data.public_text), not of any text"
        )

    def __deepcopy__(self, _: object) -> "PublicText":
        return self

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)  # what comes out of a file is not known to be public

    def through(self, change: Callable[[str], str]) -> "PublicText":
        """Return the result of `change`, which is given this text and nothing else."""
        return vouch(change(str(self)))


def vouch(value: str) -> PublicText:
    """`value`, of a public source: a registered corpus, what a Writer wrote, what was published.

    A test lists the modules that may call this.
    """
    return str.__new__(PublicText, value)


def constant(text: str) -> PublicText:
    """Return a text that stands in this program. A test sees that every call has a literal."""
    return vouch(text)


def parameter(parameters: BaseModel, field: str) -> PublicText:
    """Return the text in a job's parameter `field`: an operator's template or description."""
    value = getattr(parameters, field)
    if not isinstance(value, str):
        raise TypeError(f"{field} is no text")
    return vouch(value)


def label(terms: Terms, name: str | None) -> PublicText:
    """Return a declared label, whose name is public, in words; "" for None. Raises ValueError for
    another.
    """
    if name is not None and name not in terms.labels:
        raise ValueError("not a declared label")
    return vouch(in_words(name or ""))


class _Released(Protocol):
    """workers.interface.Released: an artifact that was published with its hash in the ledger."""

    released: ClassVar[bool]

    def json(self) -> Any: ...


def released(artifact: _Released, text: str) -> PublicText:
    """Vouch for `text` of a released JSON artifact. Raises ValueError if it is not in it."""
    return all_released(artifact, [text])[0]


def all_released(artifact: _Released, texts: Iterable[str]) -> list[PublicText]:
    """Vouch for `texts` of one released JSON artifact, which is read once for all."""
    known = _strings(artifact.json()) if artifact.released is True else set()
    listed = list(texts)
    if not known.issuperset(listed):
        raise ValueError("the texts do not all stand in a released artifact")
    return [vouch(text) for text in listed]


def _strings(value: Any) -> set[str]:
    """Return every text in a JSON value."""
    if isinstance(value, str):
        return {value}
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return set().union(*map(_strings, inner))


def published(line: str) -> dict[str, Any]:
    """Return a line of a published output: what its texts say is public."""
    value = json.loads(line)
    return {key: vouch(field) if isinstance(field, str) else field for key, field in value.items()}


def joined(*parts: PublicText) -> PublicText:
    """Return the parts one after the other."""
    for part in parts:
        _check(part)
    return vouch("".join(parts))


def filled(template: PublicText, values: Mapping[str, PublicText]) -> PublicText:
    """Return the template with every slot filled, by public texts only."""
    _check(template)
    made = [template[:0]]
    for text, slot in pieces(template):
        made.append(text)
        if slot is not None:
            _check(values[slot])
            made.append(values[slot])
    return vouch("".join(made))


def _check(value: object) -> None:
    if not isinstance(value, PublicText):
        raise TypeError("a Writer is asked with public text only, and this is none")


@dataclass(frozen=True)
class PublicPrompt:
    """A prompt for a Writer.

    `chat`: a user's message, which a model with a chat template answers; else a text that it
    continues.
    """

    text: PublicText
    chat: bool = False

    def __post_init__(self) -> None:
        _check(self.text)
