"""Rejection (paper 000, section 5.1 and B.6): a quality from 0 to 10, by a rule or by a judge.

Texts that are judged are made of what was released, so none of this costs anything.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from workers.generation.plain_generation import Pen, Written
from workers.models import LocalModel, request_tokens
from workers.text_tokens import text_tokens

Rate = Callable[[Sequence[Written]], list[int]]

#: How often a judge is asked about one text. Without an answer by then the text is not good enough.
TRIES = 3
ANSWER_TOKENS = 64
#: Of the judge's answers: sharp, but another one when asked again.
TEMPERATURE = 0.3

QUESTION = (
    "You rate how well a text is written, not whether it is true. Give whole numbers: fluency, grammar and "
    "coherence from 1 to 5, and overall from 1 to 10. Answer with one JSON object and nothing else, such as "
    '{"fluency": 3, "grammar": 4, "coherence": 3, "overall": 6}.\n\nThe text:\n'
)
ASK = "\n\nThe rating as JSON:"
_OBJECT = re.compile(r"\{[^{}]{0,400}\}")


def by_rule(texts: Sequence[Written]) -> list[int]:
    """Two points each for: an end, five words or more, letters, few repeated words, few repeated triples."""
    return [_rule(each) for each in texts]


def _rule(written: Written) -> int:
    words = written.text.lower().split()
    triples = list(zip(words, words[1:], words[2:], strict=False))
    letters = sum(each.isalpha() or each.isspace() for each in written.text)
    holds = (
        written.complete,
        len(words) >= 5,
        letters >= 0.8 * len(written.text) > 0,
        len(set(words)) >= 0.4 * len(words) > 0,
        len(set(triples)) >= 0.9 * len(triples),
    )
    return 2 * sum(holds)


def overall(answer: str) -> int | None:
    """The rating in the first JSON object of a judge's answer; None where there is none from 1 to 10."""
    found = _OBJECT.search(answer)
    if found is None:
        return None
    try:
        value = json.loads(found.group())["overall"]
    except (ValueError, KeyError):
        return None
    whole = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 10
    return value if whole else None


@dataclass(frozen=True)
class Judge:
    """A language model that rates texts; one that it gives no rating in TRIES answers gets 0."""

    pen: Pen
    most_tokens: int

    @classmethod
    def of(cls, model: LocalModel, pen: Pen) -> "Judge":
        """`pen`: that of the texts, whose random numbers and length the judge shares."""
        room = model.context_tokens - ANSWER_TOKENS
        own = replace(pen, model=model, max_tokens=ANSWER_TOKENS, temperature=TEMPERATURE, stop="}")
        return cls(own, max(1, min(room, pen.max_tokens + len(_question(model, "")))))

    def __call__(self, texts: Sequence[Written]) -> list[int]:
        ratings: list[int | None] = [None] * len(texts)
        for _ in range(TRIES):
            open_ones = [place for place, rating in enumerate(ratings) if rating is None]
            if not open_ones:
                break
            questions = [
                _question(self.pen.model, texts[place].text, self.most_tokens) for place in open_ones
            ]
            answers = self.pen.answer(questions, self.most_tokens)
            for place, answer in zip(open_ones, answers, strict=True):
                ratings[place] = overall(answer + "}")  # the brace that ended the answer
        return [rating or 0 for rating in ratings]


def _question(model: LocalModel, text: str, most: int | None = None) -> list[int]:
    """Tokens of the question about a text, which is cut where it would not fit."""
    tokenizer = model.tokenizer
    if most is not None:
        room = max(0, most - len(_question(model, "")))
        text = tokenizer.decode(text_tokens(tokenizer, text)[:room])
    return request_tokens(tokenizer, QUESTION + text + ASK)
