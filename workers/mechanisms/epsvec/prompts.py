"""The one prompt of all three steps (paper 000, B.3 to B.5): an introduction, the shots, an open
entry.

    introduction   entry: opening shot stop   entry ...   opening |

Candidates are written after it without any shot, partners and samples with the shots; a record is
read in the place of the text that would be written. An instruction model gets the same as a request
of its chat template, and what it writes is its answer. A template without a place for shots is the
whole request.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from accountant.core.mechanisms.epsvec import Epsvec
from workers.data.public_text import (
    PublicPrompt,
    PublicText,
    constant,
    filled,
    joined,
    parameter,
    released,
)
from workers.generation.local_writer import prompt_tokens
from workers.interface import Released
from workers.text_tokens import text_tokens

REQUEST = constant("\n\nWrite the text of this last entry. Answer with that text alone.")
BLANK, LINE, PARAGRAPH = constant(" "), constant("\n"), constant("\n\n")


@dataclass(frozen=True)
class Scaffold:
    """The layout of prompts. It is part of what is released, so that later jobs use the same."""

    template: PublicText
    description: PublicText
    stop: PublicText | None
    prompting: str
    text_tokens: int

    @classmethod
    def of(cls, parameters: Epsvec) -> "Scaffold":
        template = parameter(parameters, "template")
        return cls(
            # what a browser makes of a line break
            template.through(lambda text: text.replace("\r\n", "\n")),
            parameter(parameters, "description"),
            None if parameters.stop is None else parameter(parameters, "stop"),
            parameters.prompting,
            parameters.max_tokens,
        )

    @classmethod
    def released(cls, artifact: Released) -> "Scaffold":
        """Return the layout that an earlier job released."""
        scaffold = artifact.json()["scaffold"]
        texts = {
            name: None if scaffold[name] is None else released(artifact, scaffold[name])
            for name in ("template", "description", "stop")
        }
        return cls(**(scaffold | texts))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def marker(self) -> str:
        """The text that ends a text."""
        return self.stop or "\n"

    def prompt(
        self, tokenizer: Any, label: PublicText, shots: Sequence[PublicText] = ()
    ) -> "Prompt":
        """Return tokens of the prompt for one label."""
        return Prompt(self, tokenizer, label, shots)


class Prompt:
    """A prompt for a Writer, and its token ids up to the start of the text; `read` adds one."""

    def __init__(
        self, scaffold: Scaffold, tokenizer: Any, label: PublicText, shots: Sequence[PublicText]
    ) -> None:
        self.tokenizer = tokenizer
        values = {"label": label, "description": filled(scaffold.description, {"label": label})}
        opening = filled(
            scaffold.template.through(lambda text: text.rpartition("{examples}")[2]), values
        )
        end = LINE if scaffold.stop is None else joined(LINE, scaffold.stop, PARAGRAPH)
        cut = [shot.through(lambda text: self._cut(text, scaffold.text_tokens)) for shot in shots]
        entries = joined(*(part for shot in cut for part in (opening, BLANK, shot, end)))
        text = filled(scaffold.template, {**values, "examples": entries})
        chat = (
            scaffold.prompting == "chat" and getattr(tokenizer, "chat_template", None) is not None
        )
        asks = chat and "{examples}" in scaffold.template
        self.asked = PublicPrompt(joined(text, REQUEST) if asks else text, chat)
        # Tokenizers join a blank to the word that follows, so a record brings its own.
        self.lead = "" if chat else " "
        self.ids = prompt_tokens(tokenizer, self.asked)

    def _cut(self, text: str, tokens: int) -> str:
        ids = text_tokens(self.tokenizer, text)
        if len(ids) <= tokens:
            return text
        shorter: str = self.tokenizer.decode(ids[:tokens], skip_special_tokens=True)
        return shorter

    def read(self, text: str, tokens: int) -> list[int]:
        """Return tokens of a text in the place after the prompt, at most `tokens` of them."""
        # Characters far beyond any use of the tokens are cut first: time must not follow a record's
        # length.
        shown = text[: 32 * tokens].strip()
        return text_tokens(self.tokenizer, self.lead + shown)[:tokens] if shown else []
