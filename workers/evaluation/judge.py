"""A language model as a judge of quality. Its answers are figures about a judge, never guarantees."""

import json
import re
from collections.abc import Callable, Sequence

import numpy as np

from workers.evaluation.figures import Figure
from workers.models import LocalModel, request_tokens

PROMPT = (
    "Rate how natural, coherent and well written the following text is, from 1 (unreadable) to 10 "
    '(as a careful person writes). Answer with JSON only, as {{"score": 7}}.\n\nText: {text}\n\nAnswer:'
)
_OBJECT = re.compile(r"\{[^{}]{0,400}\}")


def read_score(answer: str) -> float | None:
    """The score in the first JSON object of an answer, or None if there is none from 1 to 10."""
    for found in _OBJECT.finditer(answer[:4000]):
        try:
            score = json.loads(found.group())["score"]
        except (ValueError, KeyError):
            continue
        if isinstance(score, int | float) and not isinstance(score, bool) and 1 <= score <= 10:
            return float(score)
        return None
    return None


def asker(model: LocalModel, tokens: int = 48) -> Callable[[str], str]:
    """A function that sends a prompt to a local model, through its chat template if any; greedy decoding.

    A prompt that would not fit the model's context loses its beginning.
    """
    import torch

    @torch.inference_mode()
    def ask(prompt: str) -> str:
        words = model.tokenizer
        ids = request_tokens(words, prompt)[-(model.context_tokens - tokens) :]
        inputs = torch.tensor([ids], device=model.device)
        written = model.network.generate(
            inputs,
            attention_mask=torch.ones_like(inputs),
            max_new_tokens=tokens,
            do_sample=False,
            pad_token_id=next(iter(model.end_tokens), 0),
        )
        answer: str = words.decode(written[0, len(ids) :], skip_special_tokens=True)
        return answer

    return ask


def quality(texts: Sequence[str], ask: Callable[[str], str], *, judge: str) -> Figure:
    """Mean score from 1 to 10 over the texts that the judge scored, with the number it did not score.

    `ask` sends a prompt to the judge and returns its answer. NaN if it scored none.
    """
    scores = [read_score(ask(PROMPT.format(text=text))) for text in texts]
    given = [score for score in scores if score is not None]
    details = {"unanswered": float(len(scores) - len(given))}
    if given:
        details["median"] = float(np.median(given))
    value = float(np.mean(given)) if given else float("nan")
    settings = {"judge": judge, "scale": "1 to 10", "texts": len(texts)}
    return Figure("Judged quality", value, settings, "the figure of real texts", details)
