"""`summary-token` (paper 004, Algorithm 1): each token from the noisy mean hidden state of a
group's records.

    template(record), read once -> for every token: last states, clipped, one sum of integers ->
        noise -> / n -> the model's head -> a draw from the public support (free) -> the token is
          appended to all contexts of the group

Contexts keep their keys and values, so a token is one step of the model and not the whole text
again. Groups are decoded side by side, as many as memory holds; each has its own text, its own end
and its own branch of the meter. Where a group alone does not fit, a keyed hash of each record
decides whether it has room, at a public rate, and the others are read again for every token. States
and clean sums are never written to disk.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import torch
from numpy.typing import NDArray

from accountant.core.mechanisms.batches import doubled
from accountant.core.mechanisms.group_means import Group, sizes
from accountant.core.mechanisms.summary_token import SummaryToken, token
from accountant.core.privacy.price import Terms
from workers import engine
from workers.data.keyed_hashes import keyed_hash, pick
from workers.data.records import Records
from workers.embedding import mean_states
from workers.engine import (
    Batch,
    Continued,
    Decoder,
    PublicContexts,
    Shape,
    Support,
    Supports,
)
from workers.generation.local_writer import generator
from workers.interface import NOTHING_PUBLIC, Progress, Public, Text
from workers.models import LocalModel, Prompt, endings
from workers.noise.clipping import GRID, to_grid
from workers.noise.meter import Meter

Integers = NDArray[np.int64]


class Runner:
    """Runs `summary-token`."""

    resumes = True

    def total(self, parameters: SummaryToken, terms: Terms) -> int:
        """Return tokens of all groups, at most."""
        return parameters.max_tokens * max(1, len(terms.groups))

    def run(
        self,
        parameters: SummaryToken,
        terms: Terms,
        records: Records,
        model: LocalModel,
        meter: Meter,
        progress: Progress,
        public: Public = NOTHING_PUBLIC,  # noqa: ARG002
    ) -> Iterator[Text]:
        """Yield one summary of every group, in the declared order, labelled by its group."""
        public_sizes = sizes(parameters, terms)
        prompt = Prompt(model.tokenizer, parameters.template, None)
        shared = len(prompt.before)
        shape = Shape(
            shared, prompt.fixed_tokens - shared + parameters.record_tokens, parameters.max_tokens
        )
        most = max(public_sizes.values())
        rate = cached_share(model, shape, most)
        rows = max(1, round(most * rate))
        chosen = engine.sizes(model.network, shape, rows, len(public_sizes), model.memory_bytes)
        groups = list(public_sizes)
        # Of each group its own, so that a seed's draws don't depend on how many go side by side.
        seeds = {group: place + (parameters.seed or 0) for place, group in enumerate(groups)}
        random = {
            group: generator(torch.device("cpu"), None if parameters.seed is None else seeds[group])
            for group in groups
        }
        for first in range(0, len(groups), chosen.batches):
            together = groups[first : first + chosen.batches]

            def opened(together: Sequence[Group] = together) -> Opened:
                parts = [
                    contexts(parameters, terms, records, prompt, group, rate) for group in together
                ]
                batches = [Batch(cached, prompt.before) for cached, _ in parts]
                decoder = Decoder(model.structure, batches, shape, chosen, hidden=True)
                again = [Batch(others, prompt.before) for _, others in parts]
                public = [prompt.tokens("", parameters.record_tokens)] * len(together)
                ends = endings(model, None, parameters.min_tokens)
                public_contexts = PublicContexts(
                    model.structure, public, shape.text, model.memory_bytes, ends
                )
                return Opened(decoder, again, Supports(public_contexts, parameters.top_k))

            writing = Writing(parameters, terms, model, meter, opened, together, random)
            yield from writing.texts(progress)


def cached_share(model: LocalModel, shape: Shape, size: int) -> float:
    """Return the share of a group of public n whose keys and values fit into memory: public."""
    cache_bytes = engine.cache_bytes(model.network, shape.capacity)
    return min(1.0, model.memory_bytes * (1 - 1 / engine.WORKING_SHARE) / (size * cache_bytes))


def contexts(
    parameters: SummaryToken,
    terms: Terms,
    records: Records,
    prompt: Prompt,
    group: Group,
    rate: float = 1.0,
) -> tuple[list[list[int]], list[list[int]]]:
    """Return the contexts of a group's records after what all begin with: those that are cached,
    and the others.

    Which a record is depends on itself alone, so one that comes or goes moves no other.
    """
    kept_and_again: tuple[list[list[int]], list[list[int]]] = ([], [])
    for record in records.records:
        if terms.groups and record.group != group:
            continue
        place = pick(keyed_hash(records.key, "cached", record.unit, record.text), 2**32)
        ids = prompt.tokens(record.text, parameters.record_tokens)[len(prompt.before) :]
        kept_and_again[place >= rate * 2**32].append(ids)
    return kept_and_again


@dataclass(frozen=True)
class Opened:
    """Groups decoded together: their cached contexts; of each those that are read again for every
    token; and the supports.
    """

    decoder: Decoder
    others: Sequence[Batch]
    supports: Supports


#: The clipped sum of a group's states, (hidden,) int64, and the tokens that may come next.
Next = tuple[Integers, Support]


class _Sums:
    """Groups decoded together, and what the next token of each is drawn from."""

    def __init__(self, opened: Opened, clip: float) -> None:
        self.decoder, self.supports, self.clip = opened.decoder, opened.supports, clip

    def read(self) -> dict[int, Next]:
        """Read all prompts: the sums at their last tokens, zero where there are no contexts."""
        return self._sums(self.supports.read(), self.decoder.read())

    def append(self, texts: Mapping[int, Sequence[int]]) -> dict[int, Next]:
        """Append to each named group the beginning of its text; the sums at its last tokens."""
        return self._sums(self.supports.append(texts), self.decoder.append(texts))

    def step(self, tokens: Mapping[int, int]) -> dict[int, Next]:
        """Append to each named group its token; the sums there."""
        return self._sums(self.supports.step(tokens), self.decoder.step(tokens))

    def restart(self, batch: int) -> None:
        """The group's text has ended: its rows stand still from now on."""

    def _sums(
        self, supports: Mapping[int, Support], given: Iterable[tuple[int, torch.Tensor]]
    ) -> dict[int, Next]:
        sums = {place: np.zeros(self.decoder.model.hidden, np.int64) for place in supports}
        for place, states in given:
            sums[place] += _clipped(states, self.clip)
        return {place: (total, supports[place]) for place, total in sums.items()}


def _clipped(states: torch.Tensor, clip: float) -> Integers:
    """Return the sum of states, (n, hidden), each clipped."""
    clipped = (to_grid(state, clip) for state in states.double().cpu().numpy())
    return sum(clipped, np.zeros(states.shape[1], np.int64))


class Writing:
    """The texts of groups that are decoded side by side."""

    def __init__(
        self,
        parameters: SummaryToken,
        terms: Terms,
        model: LocalModel,
        meter: Meter,
        opened: Callable[[], Opened],
        groups: Sequence[Group],
        random: Mapping[Group, torch.Generator],
    ) -> None:
        """`opened` reads the groups' records, once a token has to be drawn."""
        self.parameters, self.terms, self.model = parameters, terms, model
        self.meter, self.groups, self.random = meter, groups, random
        self.opened = opened
        self.sizes = sizes(parameters, terms)
        self.event = token(parameters)
        self.written: list[list[int]] = [[] for _ in groups]
        self.view = mean_states.plain(model.structure.hidden)

    def texts(self, progress: Progress) -> Iterator[Text]:
        """Write every group's text to its end; yields them in order."""
        written = self.written
        complete = [False] * len(self.groups)
        most = self.parameters.max_tokens
        live = set(range(len(self.groups)))
        together = Continued(self._open)
        while live:
            tokens = {}
            for place in sorted(live):
                drawn = self._kept(place)
                if drawn is None:
                    total, support = together.law(place)
                    drawn = self._token(place, total + self._read_again(place), support)
                progress.advance()
                complete[place] = drawn in self.model.end_tokens
                if not complete[place]:
                    written[place].append(drawn)
                    tokens[place] = drawn
                if complete[place] or len(written[place]) == most:
                    live.discard(place)
                    tokens.pop(place, None)
                    together.restart(place)
                    progress.advance(most - len(written[place]) - complete[place])
            together.append(tokens)
        for group, row, ended in zip(self.groups, written, complete, strict=True):
            text: str = self.model.tokenizer.decode(row, skip_special_tokens=True)
            yield Text(text.strip(), group, ended)

    def _open(self) -> _Sums:
        self.held = self.opened()
        return _Sums(self.held, self.parameters.clip)

    def _read_again(self, place: int) -> Integers:
        """Return the clipped sum of states of contexts that are read from the beginning."""
        batch, shape, total = (
            self.held.others[place],
            self.held.decoder.shape,
            np.zeros(self.view.dimensions, np.int64),
        )
        longer = Shape(shape.prefix, shape.rest + shape.text, 0)
        sizes = engine.sizes(
            self.model.network, longer, 1, mean_states.ROWS, self.model.memory_bytes
        )
        for first in range(0, len(batch.contexts), sizes.rows):
            group = [
                [*ids, *self.written[place]] for ids in batch.contexts[first : first + sizes.rows]
            ]
            decoder = Decoder(
                self.model.structure, [Batch(group, batch.prefix)], longer, sizes, hidden=True
            )
            for _, states in decoder.read():
                total += _clipped(states, self.parameters.clip)
        return total

    def _kept(self, place: int) -> int | None:
        """Return a group's next token, if an earlier attempt drew it."""
        group = self.groups[place]
        token = self.meter.parallel(group).kept_token(self.event)
        if token is not None:  # a seed's draws go on behind those that were made
            even = torch.ones(self.model.vocabulary, dtype=torch.double)
            torch.multinomial(even, 1, generator=self.random[group])
        return token

    def _token(self, place: int, total: Integers, support: Support) -> int:
        """Release a group's mean state and draw its next token, which is kept in the release's
        place.

        The seed's draws are over all tokens, whatever the support: each takes as much of it.
        """
        group = self.groups[place]
        group_meter = self.meter.parallel(group)
        sensitivity = Fraction(doubled(self.terms) * self.terms.max_records_per_unit * GRID)
        noisy = group_meter.gaussian(total, sensitivity, self.event)
        mean = mean_states.mean_state(self.view, noisy, self.parameters.clip, self.sizes[group])
        structure = self.model.structure
        with torch.inference_mode():
            logits = (
                structure.logits(torch.from_numpy(mean).float().to(structure.device)).double().cpu()
            )
        kept = support.alone(logits) / self.parameters.temperature
        weights = torch.softmax(kept, dim=-1)
        token = int(torch.multinomial(weights, 1, generator=self.random[group]))
        group_meter.drew(token)
        return token
