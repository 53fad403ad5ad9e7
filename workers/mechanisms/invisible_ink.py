"""`invisible-ink` (Vinod et al. 2025, a baseline of paper 000).

    for each batch, several side by side:
        repeat until each of its texts is written:
            z_0, z_r = logits of the public context, and of every private context r of the batch
            V        = {y : z_0[y] >= (k-th largest of z_0) - 2c/s}           # "top-k+"
            scores   = z_0 + sum over r of clip(z_r - z_0, -c, c) / s         # s is public
            token    ~ softmax(scores / temperature) over V
            append the token to every context; an end token, `stop` or `max_tokens` ends the text

Why top-k+ costs nothing. Given what is written already, which was paid for and is the same in
neighbouring worlds, z_0 is a function of public text alone, and so is V: both worlds have the same
one. A draw from it is the exponential mechanism with V for its outcomes, and one context moves each
score by at most c/s whatever the outcomes are (`Exponential` in the price). A set that looked at a
private logit would have to be paid for. 2c/s is what one context can change about the order of two
tokens: a token outside V lies so far below k public ones that no single record lifts it among them.
Many records together can move a score by c; they act on V only. Lengths and numbers of texts are
given, never read from private lengths.

Exact numbers. A score is a whole number of steps of c / (GRID * s). A clipped difference is rounded
to multiples of c / GRID, which are whole steps once divided by s: sums are exact, and one context
adds at most GRID steps. Public logits are rounded to steps too: they are public, so it does not
matter how. The sampler gets the scores of V and nothing of other tokens, which therefore have
probability zero.

Public contexts are decoded apart from private ones (engine/support.py), so z_0 is the same to the
last bit in neighbouring worlds. A private context with NaN among its logits contributes zero.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

import torch

from accountant.core.mechanisms.batches import LEFT_OUT
from accountant.core.mechanisms.invisible_ink import InvisibleInk, token_event, tokens
from accountant.core.privacy.price import Terms
from workers.data.records import Place, Records, share_of
from workers.engine import (
    Batch,
    Continued,
    Decoder,
    Endings,
    KeptContexts,
    PublicContexts,
    Shape,
    Sizes,
    check_steady,
    private_sizes,
)
from workers.engine.aggregation import COLUMNS, GRID, Scores
from workers.generation.rules import Rules
from workers.interface import NOTHING_PUBLIC, Artifact, Progress, Public, Text
from workers.models import LocalModel, Prompt, endings
from workers.noise.meter import Branch, Meter, Turn

#: Public scores lie within 2^61 of the highest, so that they and all differences add up in int64.
LOWEST = -(2.0**61)


class Runner:
    """Runs `invisible-ink`."""

    resumes = True

    def total(self, parameters: InvisibleInk, terms: Terms) -> int:
        """Return tokens that all batches may write: public."""
        return parameters.batches_run(terms) * tokens(parameters) * parameters.rounds

    def prepare(
        self, parameters: InvisibleInk, terms: Terms, model: LocalModel, share: tuple[int, int]
    ) -> None:
        """Refuse a device on which one record acts on another's logits, where that has no price."""
        if parameters.amplified:
            count = range(parameters.batches_run(terms))[
                share_of(parameters.batches_run(terms), share)
            ]
            labels = parameters.written(terms) or (None,)
            shape = _private_shape(
                parameters, {label: _Prompts(parameters, model, label) for label in labels}
            )
            chosen = private_sizes(
                model.network, shape, parameters.batch_size, len(count), model.memory_bytes
            )
            check_steady(model.structure, shape, chosen)

    def run(
        self,
        parameters: InvisibleInk,
        terms: Terms,
        records: Records,
        model: LocalModel,
        meter: Meter,
        progress: Progress,
        public: Public = NOTHING_PUBLIC,  # noqa: ARG002
    ) -> Iterator[Text | Artifact]:
        """Write all batches' texts, as many side by side as a public count has room for."""
        records = records.of(parameters.labels)
        prompts = {label: _Prompts(parameters, model, label) for label in records.labels}
        shape = _private_shape(parameters, prompts)
        ends = endings(model, parameters.stop, parameters.min_tokens)
        rules = Rules([parameters.template, parameters.public_template])
        kept = None
        if parameters.rounds > 1:
            kept = KeptContexts(model.structure, shape, model.memory_bytes)
        for number in range(parameters.rounds):
            if kept is not None:
                kept.begin_round()
            coins = records.in_round(number) if parameters.amplified else records
            many = parameters.batches_by_label(terms)
            items = list(coins.batches(many, run=parameters.batches_to_run).items())
            chosen = private_sizes(
                model.network, shape, parameters.batch_size, len(items), model.memory_bytes
            )
            for first in range(0, len(items), chosen.batches):
                group = items[first : first + chosen.batches]
                writers = []
                for (label, index), _ in group:
                    part = Turn(number, label, index) if parameters.amplified else (label, index)
                    writers.append(_Writer(parameters, terms, model, label, meter.parallel(part)))
                made = partial(_pair, parameters, model, prompts, group, shape, chosen, ends, kept)
                for text in _write(made, writers, progress):
                    if rules.publishes(text.text):
                        yield text
        # a part of a shared job releases texts alone
        if rules.left_out and records.share[1] == 1:
            yield Artifact.of_json(LEFT_OUT, LEFT_OUT, rules.counts())


# --- contexts -----------------------------------------------------------------------------------


class _Prompts:
    """The private and the public prompt of one label."""

    def __init__(self, parameters: InvisibleInk, model: LocalModel, label: str | None) -> None:
        self.private = Prompt(model.tokenizer, parameters.template, label)
        self.public = Prompt(model.tokenizer, parameters.public_template, label).before
        self.record_tokens = parameters.record_tokens
        self.prefix = self.private.before[:-1]  # each context has a token of its own

    def private_batch(self, texts: list[str]) -> Batch:
        """Return a context for each record."""
        shared = len(self.prefix)
        return Batch(
            [self.private.tokens(text, self.record_tokens)[shared:] for text in texts], self.prefix
        )


def _private_shape(parameters: InvisibleInk, prompts: dict[str | None, _Prompts]) -> Shape:
    """Return public lengths: the longest prefix, a full record and a full text."""
    return Shape(
        prefix=max(len(prompt.prefix) for prompt in prompts.values()),
        rest=max(prompt.private.fixed_tokens - len(prompt.prefix) for prompt in prompts.values())
        + parameters.record_tokens,
        text=parameters.max_tokens,
    )


# --- scores -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Candidates:
    """The tokens that may be drawn and their public part: `tokens` int64 (n,) and `logits` float32
    (n,) on the device, `scores` int64 (n,), in steps of clip / (GRID * batch size).
    """

    tokens: torch.Tensor
    logits: torch.Tensor
    scores: Scores


@torch.inference_mode()
def top_k_plus(public: torch.Tensor, parameters: InvisibleInk) -> Candidates:
    """Return the public top k, widened by 2c/s, from the public context's logits (vocabulary,)
    float32 alone.

    A model without finite logits here makes all tokens alike; one of -infinity is never drawn.
    """
    if not torch.isfinite(public.max()):
        public = torch.zeros_like(public)
    per_unit = float(GRID * parameters.batch_size / Fraction(parameters.clip))
    # (vocabulary,)
    steps = ((public.double() - public.max()) * per_unit).clamp(min=LOWEST).round().long()
    kth = steps.topk(min(parameters.top_k or len(steps), len(steps))).values[-1]
    places = torch.nonzero((steps >= kth - 2 * GRID) & torch.isfinite(public)).squeeze(1)  # (n,)
    return Candidates(places, public[places], steps[places].cpu().numpy())


@torch.inference_mode()
def difference_steps(logits: torch.Tensor, public: torch.Tensor, clip: float) -> torch.Tensor:
    """Sum over contexts of clip(logits - public, -c, c), in multiples of c / GRID: whole float64
    (n,).

    `logits`: (contexts, n), `public`: (n,), finite, of the same tokens. A context with NaN
    contributes zero.
    """
    dead = logits.amax(dim=1).isnan()  # (contexts,)
    if dead.any():
        logits = logits[~dead]
    total = torch.zeros(len(public), dtype=torch.float64, device=public.device)
    width = COLUMNS if logits.device.type == "cpu" else max(1, len(public))
    for first in range(0, len(public), width):
        piece = slice(first, first + width)
        # (contexts, columns)
        steps = (
            (logits[:, piece] - public[piece])
            .double()
            .mul_(GRID / clip)
            .round_()
            .clamp_(-GRID, GRID)
        )
        total[piece] = steps.sum(dim=0)
    return total


@dataclass(frozen=True)
class _Law:
    """The next token's law: softmax of `scores` int64 (n,) over `tokens` int64 (n,)."""

    tokens: torch.Tensor
    scores: Scores


def _pair(
    parameters: InvisibleInk,
    model: LocalModel,
    prompts: dict[str | None, _Prompts],
    group: Sequence[tuple[Place, list[str]]],
    shape: Shape,
    chosen: Sizes,
    ends: Endings,
    kept: KeptContexts | None,
) -> "_Pair":
    """Return the batches of a group, ready to be read."""
    private = [prompts[label].private_batch(texts) for (label, _), texts in group]
    contexts = [prompts[label].public for (label, _), _ in group]
    fixed = parameters.amplified
    return _Pair(
        parameters,
        Decoder(model.structure, private, shape, chosen, fixed=fixed, kept=kept),
        PublicContexts(
            model.structure, contexts, parameters.max_tokens, model.memory_bytes, ends, kept
        ),
    )


class _Pair:
    """Public and private contexts of a group of batches, extended by the same tokens."""

    def __init__(self, parameters: InvisibleInk, private: Decoder, public: PublicContexts) -> None:
        self.parameters, self.private, self.public = parameters, private, public

    def read(self) -> dict[int, _Law]:
        """Read all prompts; what the first token of each batch's texts is drawn from."""
        return self._laws(self.public.read(), self.private.read())

    def append(self, texts: Mapping[int, Sequence[int]]) -> dict[int, _Law]:
        """Append to each named batch the beginning of a text; what its next token is drawn from."""
        return self._laws(self.public.append(texts), self.private.append(texts))

    def step(self, chosen: Mapping[int, int]) -> dict[int, _Law]:
        """Append to each named batch its token; what its next one is drawn from."""
        return self._laws(self.public.step(chosen), self.private.step(chosen))

    def restart(self, batch: int) -> None:
        """The batch's next text begins."""
        self.public.restart(batch)
        self.private.restart(batch)

    def _laws(
        self,
        public: Mapping[int, torch.Tensor],
        private: Iterator[tuple[int, torch.Tensor]],
    ) -> dict[int, _Law]:
        candidates = {number: top_k_plus(each, self.parameters) for number, each in public.items()}
        # Whole numbers below 2^53 are exact in float64 and add in any order.
        sums = {
            number: torch.zeros_like(pair.logits).double() for number, pair in candidates.items()
        }
        for number, logits in private:
            candidate = candidates[number]
            sums[number] += difference_steps(
                logits.index_select(1, candidate.tokens), candidate.logits, self.parameters.clip
            )  # (n,)
        return {
            number: _Law(pair.tokens, pair.scores + sums[number].long().cpu().numpy())
            for number, pair in candidates.items()
        }


# --- texts --------------------------------------------------------------------------------------


def _write(
    make: Callable[[], _Pair], writers: list["_Writer"], progress: Progress
) -> Iterator[Text]:
    """Yield texts of the batches side by side until each has written all of its own.

    Progress is what the batches could have written by now. How much they did write is in the texts,
    which are not published yet.
    """
    pair = Continued(make)
    writing = dict(enumerate(writers))
    most = tokens(writers[0].parameters)
    for drawn in range(1, most + 1):
        chosen = {}
        for number, writer in list(writing.items()):
            token = writer.kept()
            if token is None:
                token = writer.draw(pair.law(number))
            text = writer.ended(token)
            if text is None:
                chosen[number] = token
                continue
            yield text
            pair.restart(number)
            if not writer.texts_left:
                del writing[number]
        progress.advance(len(writers))
        if not writing:
            progress.advance(len(writers) * (most - drawn))
            return
        pair.append(chosen)


class _Writer:
    """One batch's text in the making, and how many texts it still has to write."""

    def __init__(
        self,
        parameters: InvisibleInk,
        terms: Terms,
        model: LocalModel,
        label: str | None,
        meter: Branch,
    ) -> None:
        self.parameters, self.model, self.label, self.meter = parameters, model, label, meter
        self.texts_left = parameters.texts_per_batch
        self.written: list[int] = []
        self.event = token_event(parameters, terms)
        # scores * scale = logits / temperature, exactly; GRID of these steps are the priced shift.
        self.scale = Fraction(parameters.clip) / (
            GRID * parameters.batch_size * Fraction(parameters.temperature)
        )

    def draw(self, law: _Law) -> int:
        """Return the next token, paid for."""
        token = int(law.tokens[self.meter.sample_token(law.scores, self.scale, self.event)])
        self.meter.drew(token)
        return token

    def kept(self) -> int | None:
        """Return the next token, if an earlier attempt drew it."""
        return self.meter.kept_token(self.event)

    def ended(self, token: int) -> Text | None:
        """Return the text, if `token` ends it: an end token, the stop text or the length limit."""
        stop = self.parameters.stop
        complete = token in self.model.end_tokens
        if not complete:
            self.written.append(token)
            complete = stop is not None and stop in self._decode(self.written[-64:])
            if not complete and len(self.written) < self.parameters.max_tokens:
                return None
        text = self._decode(self.written)
        if stop is not None:
            text = text.split(stop, 1)[0]
        self.written = []
        self.texts_left -= 1
        return Text(text.strip(), self.label, complete)

    def _decode(self, written: list[int]) -> str:
        text: str = self.model.tokenizer.decode(written, skip_special_tokens=True)
        return text
