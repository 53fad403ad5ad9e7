"""The one prompt of all three steps (paper 000, B.3 to B.5): an introduction, the shots, an open entry.

    introduction   entry: opening shot stop   entry ...   opening |

Candidates are written after it without any shot, partners and samples with the shots; a record is read in the
place of the text that would be written. An instruction model gets the same as a request of its chat template,
and what it writes is its answer.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from accountant.core.mechanisms.epsvec import Epsvec
from accountant.core.template import fill
from workers.models import request_tokens, text_start
from workers.text_tokens import text_tokens

REQUEST = "\n\nWrite the text of this last entry. Answer with that text alone."


@dataclass(frozen=True)
class Scaffold:
    """How prompts are put together; part of what is released, so that later jobs use the same."""

    template: str
    description: str
    stop: str | None
    prompting: str
    text_tokens: int

    @classmethod
    def of(cls, parameters: Epsvec) -> "Scaffold":
        return cls(
            parameters.template.replace("\r\n", "\n"),  # what a browser's form makes of a line break
            parameters.description,
            parameters.stop,
            parameters.prompting,
            parameters.max_tokens,
        )

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Scaffold":
        return cls(**value)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def marker(self) -> str:
        """The text that ends a text."""
        return self.stop or "\n"

    def prompt(self, tokenizer: Any, label: str | None, shots: Sequence[str] = ()) -> "Prompt":
        """Tokens of the prompt for one label."""
        return Prompt(self, tokenizer, label, shots)


class Prompt:
    """Token ids up to where a text begins; `read` adds one."""

    def __init__(self, scaffold: Scaffold, tokenizer: Any, label: str | None, shots: Sequence[str]) -> None:
        self.tokenizer = tokenizer
        name = label or ""
        values = {"label": name, "description": fill(scaffold.description, {"label": name})}
        before, after = scaffold.template.split("{examples}", 1)
        opening = fill(after, values)
        end = "\n" if scaffold.stop is None else f"\n{scaffold.stop}\n\n"
        entries = "".join(f"{opening} {self._cut(shot, scaffold.text_tokens)}{end}" for shot in shots)
        text = fill(before, values) + entries + opening
        chat = scaffold.prompting == "chat" and getattr(tokenizer, "chat_template", None) is not None
        # Tokenizers join a blank to the word that follows, so a record brings its own.
        self.lead = "" if chat else " "
        if chat:
            self.ids = request_tokens(tokenizer, text + REQUEST)
        else:
            self.ids = text_start(tokenizer) + text_tokens(tokenizer, text.rstrip(" "))

    def _cut(self, text: str, tokens: int) -> str:
        ids = text_tokens(self.tokenizer, text)
        if len(ids) <= tokens:
            return text
        shorter: str = self.tokenizer.decode(ids[:tokens], skip_special_tokens=True)
        return shorter

    def read(self, text: str, tokens: int) -> list[int]:
        """Tokens of a text in the place after the prompt, at most `tokens` of them."""
        # Characters far beyond any use of the tokens are cut first: time must not follow a record's length.
        shown = text[: 32 * tokens].strip()
        return text_tokens(self.tokenizer, self.lead + shown)[:tokens] if shown else []
