"""Rejection (paper 000, section 5.1 and B.6): a quality from 0 to 10, by a rule or by a judge.

Texts that are judged are made of what was released, so none of this costs anything.
"""

import json
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from workers.data.public_text import PublicPrompt, PublicText, constant, joined
from workers.data.words import words
from workers.evaluation.language import token_losses
from workers.generation.rules import Rules
from workers.generation.writer import Manner, Writer, Written, answers
from workers.models import LocalModel

Rate = Callable[[Sequence[Written]], list[int]]

#: Fewer words are a heading or a remark.
LEAST_WORDS = 8
#: A slip is among the part of a text's tokens that surprises most, after an opening that always
#: does.
OPENING, SLIPS = 4, 1 / 8
#: Words of so many letters say something in most languages: shorter ones have to come again.
LONG = 4
#: Of drafts so many are no stranger than the others, and so many no more repetitive.
CALMER, MORE_VARIED = 0.6, 2 / 3
#: How often a judge is asked about one text. Without an answer by then the text is not good enough.
TRIES = 3
#: Of the judge's answers: sharp, but another one when asked again.
ANSWER = Manner(max_tokens=64, temperature=0.3, stop="}")
#: What a chat template may add to a question.
TEMPLATE_TOKENS = 64

QUESTION = constant(
    "You rate how well a text is written, not whether it is true. Give whole numbers: fluency, "
    "grammar and "
    "coherence from 1 to 5, and overall from 1 to 10. Answer with one JSON object and nothing "
    "else, such as "
    '{"fluency": 3, "grammar": 4, "coherence": 3, "overall": 6}.\n\nThe text:\n'
)
ASK = constant("\n\nThe rating as JSON:")
_OBJECT = re.compile(r"\{[^{}]{0,400}\}")


def by_rule(texts: Sequence[Written], template: str = "", label: str = "") -> list[int]:
    """Return two points each for: an end, LEAST_WORDS, letters, few repeated words, few repeated
    triples. Refusals, prefaces, talk about the task, and what begins with the request or with the
    label as a heading get none.
    """
    rules = Rules([template])
    own = re.escape(label).replace("\\&", "(?:&|and)") or "(?!)"
    heading = re.compile(rf"\W*{own}\W*[.:\n]", re.IGNORECASE)
    return [
        0 if not rules.publishes(each.text) or heading.match(each.text) else _rule(each)
        for each in texts
    ]


def _rule(written: Written) -> int:
    if written.text.endswith(":"):
        return 0
    text_words = words(written.text)
    triples = list(zip(text_words, text_words[1:], text_words[2:], strict=False))
    # Letters, their vowel signs and accents, and blanks.
    letters = sum(
        letter.isspace() or unicodedata.category(letter)[0] in "LM" for letter in written.text
    )
    holds = (
        written.complete,
        len(text_words) >= LEAST_WORDS,
        letters >= 0.8 * len(written.text) > 0,
        len(set(text_words)) >= 0.4 * len(text_words) > 0,
        len(set(triples)) >= 0.9 * len(triples),
    )
    return 2 * sum(holds)


def readable(model: LocalModel, texts: Sequence[str], tokens: int) -> NDArray[np.bool_]:
    """Return which of some drafts are calmer and more varied than the others.

    A mean loss would praise repetition, and a long text: this looks at the tokens that surprise the
    model most, and at how often a text says its longer words again.
    """
    if not texts:
        return np.zeros(0, bool)
    slips = np.array([_slips(row) for row in token_losses(model, texts, tokens=tokens)])
    variety = np.array([_variety(text) for text in texts])
    calm = slips <= np.quantile(slips, CALMER, method="lower")
    return calm & (variety >= np.quantile(variety, 1 - MORE_VARIED, method="higher"))


def _slips(losses: NDArray[np.float64]) -> float:
    worst = np.sort(losses[OPENING:])[::-1]
    return float(worst[: max(1, int(len(worst) * SLIPS))].mean()) if len(worst) else np.inf


def _variety(text: str) -> float:
    long = [word for word in words(text) if len(word) >= LONG]
    return len(set(long)) / max(1, len(long))


def overall(answer: str) -> int | None:
    """Return the rating, 1 to 10, in the first JSON object of an answer, or None."""
    match = _OBJECT.search(answer)
    if match is None:
        return None
    try:
        value = json.loads(match.group())["overall"]
    except (ValueError, KeyError):
        return None
    whole = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 10
    return value if whole else None


@dataclass(frozen=True)
class Judge:
    """A Writer that rates texts; one that it gives no rating in TRIES answers gets 0.

    `most_tokens`: as much of a text as is shown.
    """

    writer: Writer
    most_tokens: int

    @classmethod
    def of(cls, writer: Writer, most_tokens: int) -> "Judge":
        room = writer.room(ANSWER) - writer.length(joined(QUESTION, ASK)) - TEMPLATE_TOKENS
        return cls(writer, max(1, min(room, most_tokens)))

    def __call__(self, texts: Sequence[Written]) -> list[int]:
        ratings: list[int | None] = [None] * len(texts)
        for _ in range(TRIES):
            open_ones = [place for place, rating in enumerate(ratings) if rating is None]
            if not open_ones:
                break
            questions = [self._question(texts[place].text) for place in open_ones]
            for place, answer in zip(
                open_ones, answers(self.writer, questions, ANSWER), strict=True
            ):
                ratings[place] = overall(answer + "}")  # the brace that ended the answer
        return [rating or 0 for rating in ratings]

    def _question(self, text: PublicText) -> PublicPrompt:
        return PublicPrompt(
            joined(QUESTION, self.writer.shortened(text, self.most_tokens), ASK), chat=True
        )
