"""A language model as a judge of quality. Its answers are figures about a judge, never
guarantees.
"""

import json
import re
from collections.abc import Sequence

import numpy as np

from workers.data.public_text import PublicPrompt, PublicText, constant, joined
from workers.evaluation.figures import Figure, mean_interval
from workers.generation.writer import Manner, Writer, answers

QUESTION = constant(
    "Rate how natural, coherent and well written the following text is, from 1 (unreadable) to 10 "
    '(as a careful person writes). Answer with JSON only, as {"score": 7}.\n\nText: '
)
ASK = constant("\n\nAnswer:")
#: Of an answer: always the likeliest one.
MANNER = Manner(max_tokens=48, temperature=0.0)
_OBJECT = re.compile(r"\{[^{}]{0,400}\}")


def read_score(answer: str) -> float | None:
    """Return the score in an answer's first JSON object, or None unless it is 1 to 10."""
    for match in _OBJECT.finditer(answer[:4000]):
        try:
            score = json.loads(match.group())["score"]
        except (ValueError, KeyError):
            continue
        if isinstance(score, int | float) and not isinstance(score, bool) and 1 <= score <= 10:
            return float(score)
        return None
    return None


def quality(texts: Sequence[PublicText], judge: Writer) -> Figure:
    """Return mean score from 1 to 10 over the texts that the judge scored, with the number it did
    not score.

    NaN if it scored none. Raises WriterError if the judge can't answer.
    """
    prompts = [PublicPrompt(joined(QUESTION, text, ASK), chat=True) for text in texts]
    scores = [read_score(answer) for answer in answers(judge, prompts, MANNER)]
    valid_scores = [score for score in scores if score is not None]
    details = {"unanswered": float(len(scores) - len(valid_scores))}
    if valid_scores:
        details["median"] = float(np.median(valid_scores))
    value = float(np.mean(valid_scores)) if valid_scores else float("nan")
    settings = {"judge": judge.name, "scale": "1 to 10", "texts": len(texts)}
    interval = mean_interval(valid_scores) if valid_scores else None
    ideal = "the figure of real texts"
    return Figure("Judged quality", value, settings, ideal, details, interval=interval)
