"""`private-prediction` (paper 001, Algorithm 1, with the mean of Equation 1; Amin et al. 2024).

    for each batch:
        repeat until T tokens are written:
            z_r   = logits of every context r of the batch
            total = sum over r of clip_c(z_r), each on a fixed grid of integers
            token ~ softmax(total / s / temperature)       # s is public, whatever the batch holds
            append the token to every context; an end token starts the batch's next text

Every batch writes exactly T tokens, also one without any record, whose logits are all zero.
"""

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import torch
from numpy.typing import NDArray

from accountant.core.mechanisms.private_prediction import PrivatePrediction, token_event
from accountant.core.pricing import Terms
from workers.decoding import SharedDecoder
from workers.interface import Progress, Text
from workers.meter import Branch, Meter
from workers.models import LocalModel, Prompt
from workers.records import Records

#: Clipped logits are rounded to multiples of clip / GRID and added as integers.
GRID = 2**16

#: Contexts in one forward pass: a fixed shape, whatever a batch holds.
ROWS = 32


def clip_to_grid(logits: torch.Tensor, clip: float) -> torch.Tensor:
    """clip_c(z) = max(-c, z - max z + c) of each row, in integer multiples of c / GRID.

    `logits`: float32 (contexts, vocabulary). Returns int64 of the same shape, within [-GRID, GRID]. A
    row with NaN or +infinity is zero: a record that can't be processed contributes nothing.
    """
    highest = logits.max(dim=1, keepdim=True).values
    shifted = (logits - highest + clip).clamp(-clip, clip)
    grid = torch.round(shifted.double() * (GRID / clip))
    usable = torch.isfinite(highest) & ~torch.isnan(shifted).any(dim=1, keepdim=True)
    grid = torch.where(usable, grid, torch.zeros_like(grid))
    return grid.clamp(-GRID, GRID).long()


def aggregate(chunks: Iterator[torch.Tensor], clip: float, vocabulary: int) -> NDArray[np.int64]:
    """Sum of the clipped logits of all contexts, (vocabulary,) int64 in multiples of clip / GRID."""
    total = torch.zeros(vocabulary, dtype=torch.int64)
    for logits in chunks:
        total += clip_to_grid(logits, clip).sum(dim=0).cpu()
    summed: NDArray[np.int64] = total.numpy()
    return summed


# --- the median's cost, token by token ----------------------------------------------------------


def median_interval(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(left end, median, right end) per token: between the ends lies the median of any neighbour.

    `logits`: (contexts, vocabulary), clipped. Even size, middles a, b: [a, b], for one context removed
    leaves a or b in the middle, and one added lies between them or leaves one of them there. Odd size,
    middles a, b, c: [(a + b) / 2, (b + c) / 2], for a neighbour's median is the mean of two middles. The
    paper's interval for odd sizes is [a, c], which also holds and is up to twice as wide; its right
    median c for even sizes is a slip for b (paper 001, Definition 3).
    """
    size = len(logits)
    if logits.ndim != 2 or size < 2:
        raise ValueError("the median's cost needs at least two contexts: (contexts, vocabulary)")
    ordered = logits.double().sort(dim=0).values
    if size % 2 == 0:
        low, high = ordered[size // 2 - 1], ordered[size // 2]
        return low, (low + high) / 2, high
    low, middle, high = ordered[size // 2 - 1], ordered[size // 2], ordered[size // 2 + 1]
    return (low + middle) / 2, middle, (middle + high) / 2


def interval_costs(
    left: torch.Tensor, median: torch.Tensor, right: torch.Tensor, temperature: float
) -> torch.Tensor:
    """gamma of paper 001, Definition 4, per token, in float64, rounded up: (vocabulary,)."""
    left, median, right = (ends.double() / temperature for ends in (left, median, right))
    below = torch.logsumexp(median, 0) - torch.logsumexp(left, 0)
    above = torch.logsumexp(right, 0) - torch.logsumexp(median, 0)
    cost = torch.maximum(right - median + below, median - left + above)
    # Sums of exponentials err by a few units in the last place for each of their terms.
    slack = (len(median) + 8) * 2.0**-52 * (1 + median.abs().max() + left.abs().max() + right.abs().max())
    return cost + slack


def median_token_costs(logits: torch.Tensor, temperature: float) -> torch.Tensor:
    """What drawing each token from the median costs ex post, when a context may be added or removed.

    `logits`: float (contexts, vocabulary), already clipped, public contexts included. Returns gamma per
    token, float64 (vocabulary,): |ln P(token) - ln P'(token)| is at most that for every neighbour (paper
    001, Theorem 2, with the tighter ends of `median_interval`). Raises ValueError for fewer than two
    contexts.
    """
    return interval_costs(*median_interval(logits), temperature)


class Runner:
    """Runs `private-prediction`."""

    def total(self, parameters: PrivatePrediction, terms: Terms) -> int:
        """Tokens written over all batches: public."""
        batches = (parameters.batches_per_label or 1) * max(1, len(terms.labels))
        return batches * parameters.tokens_per_batch

    def run(
        self,
        parameters: PrivatePrediction,
        terms: Terms,
        records: Records,
        model: LocalModel,
        meter: Meter,
        progress: Progress,
    ) -> Iterator[Text]:
        """Write the texts of every batch in turn."""
        for (label, index), texts in records.batches(parameters.batches_per_label or 1).items():
            batch = _Batch(parameters, terms, model, label, texts, meter.parallel((label, index)))
            yield from batch.write(progress)


class _Batch:
    """One batch: its contexts, and the tokens it still has to write."""

    def __init__(
        self,
        parameters: PrivatePrediction,
        terms: Terms,
        model: LocalModel,
        label: str | None,
        texts: list[str],
        meter: Branch,
    ) -> None:
        self.parameters, self.model, self.label, self.meter = parameters, model, label, meter
        self.event = token_event(parameters, terms)
        # total * scale = (mean of clipped logits with the public denominator) / temperature, exactly.
        denominator = GRID * parameters.batch_size * Fraction(parameters.temperature)
        self.scale = Fraction(parameters.clip) / denominator
        prompt = Prompt(model.tokenizer, parameters.template, label)
        prompts = [prompt.tokens(text, parameters.record_tokens) for text in texts]
        width = prompt.fixed_tokens + parameters.record_tokens
        text = parameters.max_text_tokens or parameters.tokens_per_batch
        self.decoder = SharedDecoder(model, prompts, width, ROWS, text)
        self.left = parameters.tokens_per_batch

    def write(self, progress: Progress) -> Iterator[Text]:
        """Texts until all tokens are written; empty ones are left out."""
        while self.left:
            text = self._text(progress)
            if text.text:
                yield text

    def _text(self, progress: Progress) -> Text:
        """One text: until an end token, the stop text, its length limit or the last token."""
        limit = self.parameters.max_text_tokens or self.parameters.tokens_per_batch
        written: list[int] = []
        chunks = self.decoder.start()
        while self.left and len(written) < limit:
            total = aggregate(chunks, self.parameters.clip, self.model.vocabulary)
            token = self.meter.sample_token(total, self.scale, self.event)
            self.left -= 1
            progress.advance()
            if token in self.model.end_tokens:
                return self._finished(written, complete=True)
            written.append(token)
            if self.parameters.stop and self.parameters.stop in self._decode(written[-64:]):
                return self._finished(written, complete=True)
            chunks = self.decoder.step(token)
        return self._finished(written, complete=False)

    def _decode(self, tokens: list[int]) -> str:
        text: str = self.model.tokenizer.decode(tokens, skip_special_tokens=True)
        return text

    def _finished(self, tokens: list[int], complete: bool) -> Text:
        text = self._decode(tokens)
        if self.parameters.stop:
            text = text.split(self.parameters.stop, 1)[0]
        return Text(text.strip(), self.label, complete)
