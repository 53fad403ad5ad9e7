"""First samples and variations of samples, by a Writer, and the public rules that reject some.

    rewrite    a prompt with the text in it; the answer is the variation
    continue   a random prefix of the text, continued after the prompt of first samples
    blanks     as rewrite, with blanks in place of random words

Rejected are: what generation/rules.py leaves out, the beginning of the request itself, an answer
that still has blanks, and a copy of its source. Another is written in its place, TRIES times in
all; then its source stands in for it. So a text always has the public number of variations, and a
copy collapses with its source before votes. A Writer takes public texts only, and everything here
costs nothing.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from accountant.core.mechanisms.evolution_fields import EvolvingTexts
from accountant.core.privacy.price import Terms
from workers.data.public_text import (
    PublicPrompt,
    PublicText,
    constant,
    filled,
    joined,
    parameter,
)
from workers.data.public_text import label as public_label
from workers.data.words import words
from workers.generation.local_writer import LocalWriter, generator
from workers.generation.rules import fault, is_echo
from workers.generation.writer import Manner, Writer
from workers.interface import Progress, Public
from workers.models import LocalModel

#: How often a text is asked for before what there is has to do.
TRIES = 3
#: Texts asked for in one call of the Writer, so that memory does not grow with their number.
TOGETHER = 4_096

BLANK, SPACE = "_", constant(" ")
_WORD = re.compile(r"\S+")
_LEFT_OPEN = re.compile(r"(?<!\w)_+(?!\w)")


@dataclass(frozen=True)
class Made:
    """A text that was written, or stands in for one. `complete` is false where a limit ended it."""

    text: PublicText
    complete: bool


class Scribe:
    """Writes samples and varies them. `random`: of prefixes and blanks, which are public."""

    def __init__(
        self,
        parameters: EvolvingTexts,
        terms: Terms,
        writer: Writer,
        progress: Progress,
        random: np.random.Generator,
    ) -> None:
        self.parameters, self.terms, self.writer, self.progress = (
            parameters,
            terms,
            writer,
            progress,
        )
        self.random = random
        self.chat = parameters.prompting == "chat"
        end = parameters.stop or ("" if self.chat else "\n")
        self.manner = Manner(parameters.max_tokens, parameters.temperature, end)

    def seeded_by(self, writer: Writer, seed: int) -> "Scribe":
        """Return the same with another writer, and with prefixes and blanks of another seed."""
        return Scribe(
            self.parameters, self.terms, writer, self.progress, np.random.default_rng(seed)
        )

    def first(self, label: str | None, count: int) -> list[Made]:
        """At most `count` samples by the prompt alone, fewer where the model writes nothing usable.

        Progress moves by `count`.
        """
        prompt = PublicPrompt(self._prompt(label), self.chat)
        samples: list[Made] = []
        for _ in range(TRIES):
            missing = count - len(samples)
            if not missing:
                break
            for written in self.writer.write([prompt], self.manner, missing):
                if not fault(written.text) and not is_echo(written.text, prompt.text):
                    samples.append(Made(written.text, written.complete))
                    self.progress.advance()
        self.progress.advance(count - len(samples))
        return samples

    def varied(self, label: str | None, sources: Sequence[Made], each: int) -> list[list[Made]]:
        """`each` variations of every source; a source stands in for those that were all rejected.

        Progress moves by `each` for every source.
        """
        texts_by_source: list[list[Made]] = [[] for _ in sources]
        wanted = [place for place in range(len(sources)) for _ in range(each)]
        for _ in range(TRIES):
            rejected: list[int] = []
            for start in range(0, len(wanted), TOGETHER):
                group = wanted[start : start + TOGETHER]
                requests = [self._request(label, sources[place].text) for place in group]
                for written in self.writer.write([prompt for prompt, _ in requests], self.manner):
                    place, (prompt, prefix) = group[written.row], requests[written.row]
                    sample = self._made(prefix, written.text, written.complete)
                    if not fault(sample.text) and not self._poor(
                        sample.text, sources[place].text, prompt, prefix
                    ):
                        texts_by_source[place].append(sample)
                        self.progress.advance()
                    else:
                        rejected.append(place)
            wanted = sorted(rejected)
        missing = [each - len(samples) for samples in texts_by_source]
        self.progress.advance(sum(missing))
        return [
            texts + [source] * lacking
            for texts, source, lacking in zip(texts_by_source, sources, missing, strict=True)
        ]

    def _prompt(self, label: str | None) -> PublicText:
        return filled(
            parameter(self.parameters, "prompt"), {"label": public_label(self.terms, label)}
        )

    def _request(
        self, label: str | None, text: PublicText
    ) -> tuple[PublicPrompt, PublicText | None]:
        """Return what is asked for one variation, and the prefix that it continues, if any."""
        if self.parameters.varying == "continue":
            prefix = text.through(self._prefix)
            return PublicPrompt(joined(self._prompt(label), SPACE, prefix)), prefix
        shown = text.through(self._blanked) if self.parameters.varying == "blanks" else text
        values = {"label": public_label(self.terms, label), "text": shown}
        return PublicPrompt(
            filled(parameter(self.parameters, "rewriting"), values), self.chat
        ), None

    def _made(self, prefix: PublicText | None, written: PublicText, complete: bool) -> Made:
        if prefix is None:
            return Made(written, complete)
        whole = joined(prefix, SPACE, written)
        short = self.writer.shortened(whole, self.parameters.max_tokens)
        return Made(short, complete and short == whole)

    def _prefix(self, text: str) -> str:
        """Return the first words: one at least, at most the share that is kept."""
        words = list(_WORD.finditer(text))
        most = max(1, int(self.parameters.kept * len(words)))
        return text[: words[int(self.random.integers(most))].end()] if words else ""

    def _blanked(self, text: str) -> str:
        """Return the text with a blank for every word but those kept, each by a coin."""
        return _WORD.sub(
            lambda word: word.group() if self.random.random() < self.parameters.kept else BLANK,
            text,
        )

    def _poor(
        self, made: str, source: str, prompt: PublicPrompt, prefix: PublicText | None
    ) -> bool:
        if self.parameters.varying == "blanks" and _LEFT_OPEN.search(made):
            return True
        return is_copy(made, source) or (prefix is None and is_echo(made, prompt.text))


def is_copy(text: str, source: str) -> bool:
    """Return True where both have the same words, whatever their case, blanks and punctuation."""
    return words(text) == words(source)


def tools(
    parameters: EvolvingTexts, terms: Terms, model: LocalModel, progress: Progress, public: Public
) -> tuple[Scribe, np.random.Generator]:
    """Return a job's writer and public random numbers, of its seed or the system's."""
    random = np.random.default_rng(parameters.seed)
    if parameters.writer is not None:
        return Scribe(
            parameters, terms, public.writer("writer", parameters.seed), progress, random
        ), random
    writer = LocalWriter(model, generator(model.device, parameters.seed))
    return Scribe(parameters, terms, writer, progress, random), random
