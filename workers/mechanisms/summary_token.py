"""`summary-token` (paper 004, Algorithm 1): each token from the noisy mean hidden state of a group's records.

    template(record), read once -> for every token: last states, clipped, one sum of integers -> noise
        -> / n -> the model's head -> a draw (free) -> the token is appended to all contexts of the group

Contexts keep their keys and values, so a token is one step of the model and not the whole text again. Groups
are decoded side by side, as many as memory holds; each has its own text, its own end and its own branch of
the meter. States and clean sums are never written to disk.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction

import numpy as np
import torch
from numpy.typing import NDArray

from accountant.core.mechanisms.batches import doubled
from accountant.core.mechanisms.group_means import Group, sizes
from accountant.core.mechanisms.summary_token import SummaryToken, token
from accountant.core.privacy.price import Terms
from workers import engine
from workers.data.records import Records
from workers.embedding import mean_states
from workers.engine import Batch, Decoder, Shape
from workers.generation.local_writer import generator
from workers.interface import NOTHING_PUBLIC, Progress, Public, Text
from workers.models import LocalModel, Prompt
from workers.noise.clipping import GRID, to_grid
from workers.noise.meter import Meter

Integers = NDArray[np.int64]


class Runner:
    """Runs `summary-token`."""

    def total(self, parameters: SummaryToken, terms: Terms) -> int:
        """Tokens of all groups, at most."""
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
        """One summary of every group, in the declared order. The label of a text is its group."""
        public_sizes = sizes(parameters, terms)
        prompt = Prompt(model.tokenizer, parameters.template, None)
        shared = len(prompt.before)
        shape = Shape(shared, prompt.fixed_tokens - shared + parameters.record_tokens, parameters.max_tokens)
        most = max(public_sizes.values())
        chosen = engine.sizes(model.network, shape, most, len(public_sizes), model.memory_bytes)
        groups = list(public_sizes)
        # Of each group its own, so that a seed's draws don't depend on how many go side by side.
        seeds = {group: place + (parameters.seed or 0) for place, group in enumerate(groups)}
        random = {
            group: generator(torch.device("cpu"), None if parameters.seed is None else seeds[group])
            for group in groups
        }
        for first in range(0, len(groups), chosen.batches):
            together = groups[first : first + chosen.batches]
            batches = [
                Batch(contexts(parameters, terms, records, prompt, group), prompt.before)
                for group in together
            ]
            decoder = Decoder(model.structure, batches, shape, chosen, hidden=True)
            writing = Writing(parameters, terms, model, meter, decoder, together, random)
            yield from writing.texts(progress)


def contexts(
    parameters: SummaryToken, terms: Terms, records: Records, prompt: Prompt, group: Group
) -> list[list[int]]:
    """The contexts of a group's records after what all begin with."""
    own = (each for each in records.records if not terms.groups or each.group == group)
    return [prompt.tokens(each.text, parameters.record_tokens)[len(prompt.before) :] for each in own]


class Writing:
    """The texts of groups that are decoded side by side."""

    def __init__(
        self,
        parameters: SummaryToken,
        terms: Terms,
        model: LocalModel,
        meter: Meter,
        decoder: Decoder,
        groups: Sequence[Group],
        random: Mapping[Group, torch.Generator],
    ) -> None:
        self.parameters, self.terms, self.model = parameters, terms, model
        self.meter, self.decoder, self.groups, self.random = meter, decoder, groups, random
        self.sizes = sizes(parameters, terms)
        self.view = mean_states.plain(model.structure.hidden)

    def texts(self, progress: Progress) -> Iterator[Text]:
        """Write every group's text to its end; yields them in order."""
        written: list[list[int]] = [[] for _ in self.groups]
        complete = [False] * len(self.groups)
        most = self.parameters.max_tokens
        live = set(range(len(self.groups)))
        sums = self._sums(self.decoder.read())
        while live:
            tokens = {}
            for place in sorted(live):
                drawn = self._token(self.groups[place], sums[place])
                progress.advance()
                complete[place] = drawn in self.model.end_tokens
                if not complete[place]:
                    written[place].append(drawn)
                    tokens[place] = drawn
                if complete[place] or len(written[place]) == most:
                    live.discard(place)
                    tokens.pop(place, None)
                    progress.advance(most - len(written[place]) - complete[place])
            if tokens:
                sums = self._sums(self.decoder.step(tokens))
        for group, own, ended in zip(self.groups, written, complete, strict=True):
            text: str = self.model.tokenizer.decode(own, skip_special_tokens=True)
            yield Text(text.strip(), group, ended)

    def _sums(self, given: Iterable[tuple[int, torch.Tensor]]) -> list[Integers]:
        """The clipped sum of each group's states: (hidden,) each, zero where there are none."""
        found = [np.zeros(self.view.dimensions, np.int64) for _ in self.groups]
        for place, states in given:
            for state in states.double().cpu().numpy():
                found[place] += to_grid(state, self.parameters.clip)
        return found

    def _token(self, group: Group, total: Integers) -> int:
        """Release a group's mean state and draw its next token."""
        sensitivity = Fraction(doubled(self.terms) * self.terms.max_records_per_unit * GRID)
        noisy = self.meter.parallel(group).gaussian(total, sensitivity, token(self.parameters))
        mean = mean_states.mean_state(self.view, noisy, self.parameters.clip, self.sizes[group])
        structure = self.model.structure
        with torch.inference_mode():
            logits = structure.logits(torch.from_numpy(mean).float().to(structure.device)).double().cpu()
        weights = torch.softmax(logits / self.parameters.temperature, dim=-1)
        return int(torch.multinomial(weights, 1, generator=self.random[group]))
