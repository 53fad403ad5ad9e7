"""Decoding in step: prompts are read once, then one token per batch extends all of the batch's
contexts.

The columns of a context are [prefix | rest | text]. The prefix is the common beginning of a batch's
contexts, read once and copied; the rest is each context's own, padded on its left to a public
length; the text is written token by token. The rows of all batches lie one after another, padded to
whole passes of a public number of rows, so that every pass has the same shape whatever the batches
hold (docs/security.md).
"""

import contextlib
import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from accountant.core.errors import ExchequerError
from workers.engine.attention import Masks
from workers.engine.cache import Store, kept_type
from workers.engine.kept_contexts import KeptContexts, key_of
from workers.engine.sizing import Shape, Sizes, extent
from workers.engine.structure import Structure, StructureError, trial_tokens

#: A context after its prefix: token ids, or embeddings (tokens, hidden) of a soft prompt.
Context = Sequence[int] | torch.Tensor


@dataclass(frozen=True)
class Batch:
    """Contexts extended by the same tokens, and the token ids with which all begin."""

    contexts: Sequence[Context]
    prefix: Sequence[int] = ()


@dataclass
class _State:
    """The rows of a batch, and the number of tokens in its text."""

    rows: slice
    written: int = 0
    before: int = 0  # tokens of its prefix


@dataclass
class _Rows:
    """Tensors with one row for each context and each dummy, on the device."""

    ids: torch.Tensor  # (rows, rest)
    positions: torch.Tensor  # (rows, capacity): of every column, -1 for padding
    dead: torch.Tensor  # (rows,): contexts without any token, whose logits are NaN
    soft: dict[int, torch.Tensor] = field(default_factory=dict)


class PassTooLarge(ExchequerError):
    """Memory ran out in a pass whose shape must stay what it is."""

    code = "pass-too-large"

    def __init__(self, rows: int) -> None:
        super().__init__(
            f"memory ran out in a pass of {rows} contexts, a public number, and the price allows "
            "none that "
            "is smaller: the last digits of other units' logits would change with it; a smaller "
            "EXCHEQUER_DECODING_GIB makes all passes smaller from the start"
        )


Given = Iterator[tuple[int, torch.Tensor]]
Step = Callable[[slice], torch.Tensor]


class Decoder:
    """Several batches decoded together; each has its own token in every step and its own end.

    Results are pairs (batch, values). `values` has a row for each of the batch's contexts, in
    order, and comes in one or more pieces: logits, (contexts, vocabulary) float32, or with `hidden`
    the head's input, (contexts, hidden) float32. A batch without contexts gives nothing. If memory
    runs out, passes are halved, down to single rows; after that the error is raised. Passes of a
    `fixed` shape are never halved: the first that does not fit raises PassTooLarge.
    """

    def __init__(
        self,
        model: Structure,
        batches: Sequence[Batch],
        shape: Shape,
        sizes: Sizes,
        steering: Mapping[int, torch.Tensor] | None = None,
        hidden: bool = False,
        fixed: bool = False,
        whole: bool = False,
        kept: KeptContexts | None = None,
        prefixes: KeptContexts | None = None,
    ) -> None:
        """`shape` and `sizes` must be public. `steering`: layer to (hidden,), see
        Structure.steered. `whole`: every step sees all columns, however long the texts are, so that
        what it gives does not depend on what else was written beside it. `kept`: contexts without
        soft tokens that were read in earlier rounds, of the same shape and in passes that are
        `fixed`; a decoder uses its memory until the next one is made. `prefixes`: those that were
        read, by default `kept`.

        A context longer than `shape.rest` loses its beginning; a prefix longer than `shape.prefix`
        is an error.
        """
        self.model, self.shape, self.hidden = model, shape, hidden
        self.fixed, self.whole, self.kept = fixed, whole, kept
        self.steering = dict(steering or {})
        model.check_layers(list(self.steering))
        self.most_rows, self.reading = sizes.rows, min(sizes.reading, sizes.rows)
        self.batches = [_State(slice(0, 0)) for _ in batches]
        first = 0
        for state, batch in zip(self.batches, batches, strict=True):
            state.rows = slice(first, first + len(batch.contexts))
            first = state.rows.stop
        self.count = -(-first // sizes.rows) * sizes.rows
        self.keys: list[bytes] = []  # of each context, where some are kept
        self.rows = self._lay_out(batches)
        self.some_dead = any(
            not (shape.rest and len(context)) for batch in batches for context in batch.contexts
        )
        if kept is None:
            self.store = Store(len(model.blocks), self.count, shape.capacity)
        else:
            self.store = kept.store(self.count)
        self.columns = torch.full((self.count,), shape.prefix + shape.rest, device=model.device)
        self.tokens = torch.zeros((self.count,), dtype=torch.long, device=model.device)
        self._extent = shape.prefix + shape.rest
        self._common: int | None = None  # the column that a step writes, if it is one for all rows
        self._prefixes(batches, prefixes or kept)

    # --- laying out -----------------------------------------------------------------------------

    def _lay_out(self, batches: Sequence[Batch]) -> _Rows:
        shape, device = self.shape, self.model.device
        ids = torch.zeros((self.count, shape.rest), dtype=torch.long)
        positions = torch.full((self.count, shape.capacity), -1, dtype=torch.long)
        positions[:, shape.prefix + shape.rest :] = torch.arange(shape.text)
        rows = _Rows(ids, positions, torch.zeros(self.count, dtype=torch.bool))
        for state, batch in zip(self.batches, batches, strict=True):
            before = len(batch.prefix)
            if before > shape.prefix:
                raise ValueError(f"a prefix of {before} tokens does not fit into {shape.prefix}")
            state.before = before
            positions[state.rows, shape.prefix - before : shape.prefix] = torch.arange(before)
            for row, context in zip(
                range(state.rows.start, state.rows.stop), batch.contexts, strict=True
            ):
                self._place(rows, row, context, before)
                if self.kept is not None and not isinstance(context, torch.Tensor):
                    own = context[max(0, len(context) - shape.rest) :]
                    self.keys.append(key_of(batch.prefix, own))
        return _Rows(ids.to(device), positions.to(device), rows.dead.to(device), rows.soft)

    def _place(self, rows: _Rows, row: int, context: Context, before: int) -> None:
        """Lay out one context behind a prefix of `before` tokens, over its row's content."""
        begin, end = self.shape.prefix, self.shape.prefix + self.shape.rest
        own = context[-self.shape.rest :] if self.shape.rest else context[:0]
        device = rows.ids.device
        rows.ids[row] = 0
        rows.soft.pop(row, None)
        rows.positions[row, begin:end] = -1
        rows.positions[row, end - len(own) : end] = torch.arange(
            before, before + len(own), device=device
        )
        rows.positions[row, end:] = before + len(own) + torch.arange(self.shape.text, device=device)
        rows.dead[row] = len(own) == 0
        if isinstance(own, torch.Tensor):
            rows.soft[row] = own.to(self.model.device)
        elif own:
            rows.ids[row, self.shape.rest - len(own) :] = torch.tensor(own, device=device)

    @torch.inference_mode()
    def _prefixes(self, batches: Sequence[Batch], kept: KeptContexts | None) -> None:
        """Read each prefix once, as a single row, and copy it to the rows of its batches."""
        read: dict[tuple[int, ...], Store] = {}
        end = self.shape.prefix
        for state, batch in zip(self.batches, batches, strict=True):
            ids, count = tuple(batch.prefix), len(batch.prefix)
            if not ids or not batch.contexts:
                continue
            if ids not in read:
                read[ids] = kept.prefix(ids, self._read_prefix) if kept else self._read_prefix(ids)
            self.store.reserve(read[ids])
            columns = self.store.part(state.rows, end - count, end)
            columns.copy(read[ids].part(slice(1), 0, count))

    def _read_prefix(self, prefix: tuple[int, ...]) -> Store:
        alone = Store(len(self.model.blocks), 1, len(prefix))
        alone.place.extent = len(prefix)
        ids = torch.tensor([prefix], device=self.model.device)
        positions = torch.arange(len(prefix), device=self.model.device).unsqueeze(0)
        self._forward(alone, self._masks(positions, positions), positions, ids=ids)
        return alone

    # --- passes ---------------------------------------------------------------------------------

    def _masks(
        self, queries: torch.Tensor, keys: torch.Tensor, first_query: int | None = None
    ) -> Masks:
        return Masks(queries, keys, first_query, kept_type(self.model.dtype, self.model.device))

    def _reach(self, written: int) -> None:
        """Let passes see the first `written` columns of texts, or a few masked ones more."""
        columns = self.shape.prefix + self.shape.rest + (self.shape.text if self.whole else written)
        self._extent = extent(columns, self.shape.capacity, self.model.device.type)

    def _forward(
        self,
        store: Store,
        masks: Masks,
        positions: torch.Tensor,
        ids: torch.Tensor | None = None,
        embedded: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return the head's input for every token of the pass: (rows, tokens, hidden)."""
        with self.model.steered(self.steering) if self.steering else contextlib.nullcontext():
            output = self.model.base(
                input_ids=ids,
                inputs_embeds=embedded,
                attention_mask=masks.of(None),  # four axes: the model makes no mask of its own
                position_ids=positions.clamp(min=0),
                past_key_values=store,
                use_cache=True,
                masks=masks,
            )
        states: torch.Tensor = output.last_hidden_state
        return states.to(self.model.device)  # of a split model the last layer's is another

    def _read(self, rows: slice) -> torch.Tensor:
        """Read the rests of `rows`, and return the head's input for the last token of each."""
        begin, end = self.shape.prefix, self.shape.prefix + self.shape.rest
        place = self.store.place
        place.rows, place.columns, place.extent = rows, begin, end
        positions = self.rows.positions[rows, :end]
        masks = self._masks(positions[:, begin:], positions, begin)
        if not self.rows.soft:
            states = self._forward(self.store, masks, positions[:, begin:], ids=self.rows.ids[rows])
        else:
            embedded = self.model.embed(self.rows.ids[rows])
            for row in range(rows.start, rows.stop):
                if row in self.rows.soft:
                    own = self.rows.soft[row].to(embedded.dtype)
                    embedded[row - rows.start, self.shape.rest - len(own) :] = own
            states = self._forward(self.store, masks, positions[:, begin:], embedded=embedded)
        return states[:, -1]

    @torch.inference_mode()
    def _recall(self, kept: KeptContexts) -> torch.Tensor:
        """Read the contexts that are not kept, and take the others; returns the head's input for
        the last token of each: (rows, hidden).
        """
        model, size = self.model, self.reading
        last = torch.zeros((self.count, model.hidden), dtype=model.dtype, device=model.device)
        places = [kept.place(key) for key in self.keys]
        missing = [row for row, place in enumerate(places) if place is None]
        if kept.like is not None:
            self.store.reserve(kept.like)
        for first in range(0, len(places), size):
            some = places[first : first + size]
            if any(place is not None for place in some):
                # rows of the missing are written over
                rows = slice(first, first + len(some))
                last[rows] = kept.take(rows, [place or 0 for place in some], self.store)
        apart = Store(len(model.blocks), size, self.shape.capacity)
        for first in range(0, len(missing), size):
            unread = missing[first : first + size]
            states = self._read_apart(apart, unread)
            kept.keep([self.keys[row] for row in unread], apart, states)
            last[unread] = states
        return last

    def _read_apart(self, apart: Store, rows: Sequence[int]) -> torch.Tensor:
        """Read the rests of `rows`, wherever they stand, in a pass that `apart` has room for."""
        begin, end, count = self.shape.prefix, self.shape.prefix + self.shape.rest, len(rows)
        places = torch.tensor(rows)
        ids = self.rows.ids.new_zeros((self.reading, self.shape.rest))
        positions = self.rows.positions.new_full((self.reading, end), -1)
        ids[:count], positions[:count] = self.rows.ids[rows], self.rows.positions[rows, :end]
        if begin and self.store.own[0].is_initialized:
            apart.reserve(self.store)
            apart.part(slice(count), 0, begin).copy(self.store.part(places, 0, begin))
        place = apart.place
        place.rows, place.columns, place.extent = slice(0, self.reading), begin, end
        masks = self._masks(positions[:, begin:], positions, begin)
        try:
            states = self._forward(apart, masks, positions[:, begin:], ids=ids)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            raise PassTooLarge(self.reading) from None
        self.store.reserve(apart)
        self.store.part(places, begin, end).copy(apart.part(slice(count), begin, end))
        return states[:count, -1]

    def _append(self, rows: slice) -> torch.Tensor:
        """Append self.tokens to `rows`, and return the head's input for them."""
        columns = self.columns[rows]
        place = self.store.place
        place.rows, place.columns, place.extent = rows, self._common or columns, self._extent
        own = self.rows.positions[rows].gather(1, columns.unsqueeze(1))
        masks = self._masks(own, self.rows.positions[rows, : self._extent])
        return self._forward(self.store, masks, own, ids=self.tokens[rows].unsqueeze(1))[:, -1]

    def _pass(self, step: Step, rows: slice) -> Iterator[tuple[slice, torch.Tensor]]:
        """Yield one pass over `rows`, or two over its halves if memory runs out, and so on."""
        try:
            with torch.inference_mode():
                states = step(rows)
                values = states.float() if self.hidden else self.model.logits(states)
                if self.some_dead:
                    values = values.masked_fill(self.rows.dead[rows].unsqueeze(1), torch.nan)
        except Exception as error:
            if not is_out_of_memory(error) or (rows.stop - rows.start == 1 and not self.fixed):
                raise
            if self.fixed:
                raise PassTooLarge(rows.stop - rows.start) from None
        else:
            yield rows, values
            return
        # Out of the handler: the error holds on to the pass's tensors.
        gc.collect()
        if self.model.device.type == "cuda":
            torch.cuda.empty_cache()
        middle = (rows.start + rows.stop) // 2
        self.most_rows = min(self.most_rows, middle - rows.start)
        self.reading = min(self.reading, self.most_rows)
        yield from self._pass(step, slice(rows.start, middle))
        yield from self._pass(step, slice(middle, rows.stop))

    def _passes(self, step: Step, most: int, wanted: set[int]) -> Given:
        """Yield passes of `most` rows over all rows of the wanted batches."""
        for first in range(0, self.count, most):
            rows = slice(first, min(first + most, self.count))
            if not any(_overlap(self.batches[batch].rows, rows) for batch in wanted):
                continue
            for done, values in self._pass(step, rows):
                for batch in sorted(wanted):
                    shared = _overlap(self.batches[batch].rows, done)
                    if shared is not None:
                        yield batch, values[shared.start - done.start : shared.stop - done.start]

    # --- what a caller does ---------------------------------------------------------------------

    def read(self) -> Given:
        """Read all prompts; yield values for the first token. Exhaust it before a step."""
        everything = set(range(len(self.batches)))
        if self.kept is None:
            return self._passes(self._read, self.reading, everything)
        last = self._recall(self.kept)
        return self._passes(lambda rows: last[rows], self.reading, everything)

    def replace(self, row: int, context: Context) -> torch.Tensor:
        """Give a row of a single batch another public context, and read it; values for its first
        token.

        (1, vocabulary), or (1, hidden). For contexts that write texts of their own (`extend`).
        """
        (state,) = self.batches
        self._place(self.rows, row, context, state.before)
        return torch.cat([values for _, values in self._pass(self._read, slice(row, row + 1))])

    def restart(self, batch: int) -> None:
        """Begin the batch's next text: forget its tokens. `read` gave its first values."""
        self.batches[batch].written = 0

    def step(self, tokens: Mapping[int, int]) -> Given:
        """Append its token to each named batch; yields the values for the next one. To be
        exhausted.

        Raises ValueError if a text would pass `shape.text`.
        """
        begin = self.shape.prefix + self.shape.rest
        for batch, token in tokens.items():
            state = self.batches[batch]
            if state.written >= self.shape.text:
                raise ValueError("the text is as long as its public length allows")
            self.columns[state.rows] = begin + state.written
            self.tokens[state.rows] = token
            state.written += 1
        # Rows that stand still in a pass are computed again in their last place, which changes
        # nothing.
        written = {state.written for state in self.batches}
        # Most often all texts are as long as one another: then one column is written, of dummies
        # too.
        self._common = begin + written.pop() - 1 if len(written) == 1 else None
        self._reach(max((state.written for state in self.batches), default=0))
        return self._passes(self._append, self.most_rows, set(tokens))

    def append(self, texts: Mapping[int, Sequence[int]]) -> Given:
        """Append to each named batch, which has no text yet, the beginning of one; to be exhausted.

        Yields the values for its next token. In passes like those that read prompts, all tokens
        side by side; where passes are `fixed`, token by token. Raises ValueError if a text would
        pass `shape.text`.
        """
        longest = max(map(len, texts.values()))
        if longest > self.shape.text:
            raise ValueError("the text is as long as its public length allows")
        width = 1 if self.fixed else max(1, self.shape.rest)
        for first in range(0, longest, width):
            going = {batch: text for batch, text in texts.items() if len(text) > first}
            ending = {batch for batch, text in going.items() if len(text) <= first + width}
            if self.fixed:
                given = self.step({batch: text[first] for batch, text in going.items()})
            else:
                given = self._append_side_by_side(going, first, min(width, longest - first))
            yield from ((batch, values) for batch, values in given if batch in ending)

    def _append_side_by_side(
        self, texts: Mapping[int, Sequence[int]], first: int, width: int
    ) -> Given:
        """Append `width` tokens from the `first` of each text on; values after the last that a text
        has.

        What shorter texts have in its place is garbage in columns of higher positions than their
        own: nothing sees it before it is written over.
        """
        begin = self.shape.prefix + self.shape.rest
        ids = torch.zeros((self.count, width), dtype=torch.long)
        last = torch.zeros(self.count, dtype=torch.long)  # of each row's tokens here
        for batch, text in texts.items():
            state, own = self.batches[batch], list(text[first : first + width])
            ids[state.rows, : len(own)] = torch.tensor(own)
            last[state.rows] = len(own) - 1
            state.written = first + len(own)
            self.columns[state.rows], self.tokens[state.rows] = begin + state.written - 1, own[-1]
        self._reach(max(state.written for state in self.batches))
        ids, last = ids.to(self.model.device), last.to(self.model.device)

        def read(rows: slice) -> torch.Tensor:
            place, start, end = self.store.place, begin + first, begin + first + width
            place.rows, place.columns, place.extent = rows, start, end
            positions = self.rows.positions[rows, :end]
            masks = self._masks(positions[:, start:], positions)
            states = self._forward(self.store, masks, positions[:, start:], ids=ids[rows])
            return states[torch.arange(len(states), device=states.device), last[rows]]

        return self._passes(read, self.reading, set(texts))

    def extend(self, tokens: torch.Tensor, written: torch.Tensor) -> torch.Tensor:
        """Append a token of its own to each context; returns the values for the next one, a row for
        each.

        For a single batch whose contexts write different texts. `tokens`: (contexts,). `written`:
        (contexts,), the number of tokens already in each text; 0 begins a new text. Rows that are
        idle repeat what they appended last. Raises ValueError if a text would exceed `shape.text`.
        """
        (state,) = self.batches
        longest = int(written.max())
        if longest >= self.shape.text:
            raise ValueError("the text is as long as its public length allows")
        begin = self.shape.prefix + self.shape.rest
        self.columns[state.rows] = begin + written
        self.tokens[state.rows] = tokens
        self._common = None
        self._reach(longest + 1)
        return torch.cat([values for _, values in self._passes(self._append, self.most_rows, {0})])


@torch.inference_mode()
def rehearse(model: Structure) -> None:
    """Decode a short public text in two passes and compare it with the model's own answer.

    Raises StructureError, before anything private is read, if the model can't be decoded in step,
    for example because it has states besides keys and values.
    """
    ids = trial_tokens(model.vocabulary)
    plain = model.network(
        input_ids=torch.tensor([ids], device=model.device), use_cache=False
    ).logits[0, -1]
    try:
        batch = Batch([ids[1:3], ids[2:3]], ids[:1])
        decoder = Decoder(model, [batch], Shape(1, 2, 1), Sizes(1, 1, 1))
        for _ in decoder.read():
            pass
        (_, values), *_ = decoder.step({0: ids[3]})
    except Exception as error:  # whatever its own code raises
        why = type(error).__name__
        raise StructureError(
            f"the model can't be decoded token by token with this cache ({why})"
        ) from None
    near = 1e-3 if plain.dtype in (torch.float32, torch.float64) else 0.1
    if not torch.allclose(
        values[0].to(plain.dtype), plain, rtol=near, atol=near * plain.abs().max().item()
    ):
        raise StructureError(
            "the model can't be decoded token by token: its logits come out different"
        )


def _overlap(one: slice, other: slice) -> slice | None:
    start, stop = max(one.start, other.start), min(one.stop, other.stop)
    return slice(start, stop) if start < stop else None


def is_out_of_memory(error: Exception) -> bool:
    """Return True for an out-of-memory error: of CUDA by type, of a CPU by message."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    text = str(error)
    return isinstance(error, RuntimeError) and (
        "can't allocate memory" in text or "not enough memory" in text
    )
