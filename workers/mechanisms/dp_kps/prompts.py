"""The prompt of a sequence: the phrases in their slot, after example texts with theirs where these
are named.

Example texts come from a registered corpus, of which a steward has stated whose it is (paper 002,
C.2.5, takes them from the client's own texts). Their phrases are found as a record's are. No prompt
has a record's text.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from accountant.core.mechanisms.dp_kps import PHRASE_TOKENS, DpKps
from accountant.core.privacy.price import Terms
from workers.data.corpora import Corpus
from workers.data.public_text import (
    PublicPrompt,
    PublicText,
    constant,
    filled,
    joined,
    parameter,
)
from workers.data.public_text import label as public_label
from workers.data.terms import TermList
from workers.generation.writer import Writer

COMMA, LINE, PARAGRAPH, NOTHING = constant(", "), constant("\n"), constant("\n\n"), constant("")

#: Texts of a corpus that are looked at for examples.
MOST_TEXTS = 10_000


@dataclass(frozen=True)
class Prompts:
    """What comes before every prompt, and the prompt itself with its slots."""

    template: PublicText
    examples: PublicText
    writer: Writer
    chat: bool

    def of(self, phrases: Sequence[PublicText], label: PublicText) -> PublicPrompt:
        """Return the prompt of one sequence."""
        cut = [self.writer.shortened(phrase, PHRASE_TOKENS) for phrase in phrases]
        return PublicPrompt(joined(self.examples, _asked(self.template, cut, label)), self.chat)


def listed(phrases: Sequence[PublicText]) -> PublicText:
    """Return phrases with commas between them."""
    parts = [part for phrase in phrases for part in (COMMA, phrase)]
    return joined(*parts[1:])


def _asked(template: PublicText, phrases: Sequence[PublicText], label: PublicText) -> PublicText:
    return filled(template, {"phrases": listed(phrases), "label": label})


def prompts(
    parameters: DpKps,
    terms: Terms,
    phrases: Sequence[PublicText],
    writer: Writer,
    corpus: Corpus | None,
) -> Prompts:
    """Return a job's prompts. Texts without any of the phrases are no examples."""
    template, chat = parameter(parameters, "prompt"), parameters.prompting == "chat"
    if corpus is None:
        return Prompts(template, NOTHING, writer, chat)
    parts: list[PublicText] = []
    for text, examples, label in _examples(parameters, terms, phrases, corpus):
        cut = [writer.shortened(phrase, PHRASE_TOKENS) for phrase in examples]
        shown = writer.shortened(text, parameters.max_tokens)
        parts += [_asked(template, cut, label), LINE, shown, PARAGRAPH]
    return Prompts(template, joined(*parts), writer, chat)


def _examples(
    parameters: DpKps, terms: Terms, phrases: Sequence[PublicText], corpus: Corpus
) -> list[tuple[PublicText, list[PublicText], PublicText]]:
    """Return (text, its phrases, its label) of the first texts with any, labels in turn."""
    public = {str(phrase): phrase for phrase in phrases}
    matching = TermList(dict.fromkeys(public, 1), 1)
    by_label: dict[str | None, list[tuple[PublicText, list[PublicText], PublicText]]] = {}
    for number, (text, label) in enumerate(corpus.texts()):
        if number == MOST_TEXTS:
            break
        held = by_label.setdefault(label, [])
        examples = matching.distinct(text, parameters.sequence_length, parameters.record_words)
        if examples and len(held) < parameters.shots:
            shown = public_label(terms, label if label in terms.labels else None)
            held.append((text, [public[term] for term in examples], shown))
    turns = (
        held[turn]
        for turn in range(parameters.shots)
        for held in by_label.values()
        if turn < len(held)
    )
    return list(turns)[: parameters.shots]
