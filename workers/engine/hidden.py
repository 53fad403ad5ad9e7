"""Hidden states of many contexts: the outputs of chosen blocks, pooled over each context's own
tokens.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

import torch

from workers.engine.decoder import Batch, Context, Decoder
from workers.engine.sizing import Shape, Sizes
from workers.engine.structure import HEAD, Structure

Layer = int | str
#: From one token to before another, counted in a context after its prefix.
Span = tuple[int, int]


def hidden_states(
    model: Structure,
    contexts: Sequence[Context],
    layers: Sequence[Layer],
    shape: Shape,
    sizes: Sizes,
    prefix: Sequence[int] = (),
    spans: Sequence[Span] | None = None,
    steering: Mapping[int, torch.Tensor] | None = None,
) -> Iterator[torch.Tensor]:
    """Yield one row for each context in order: (layers, hidden) float32, pooled.

    `layers`: l for the residual stream after block l, counted from 0; HEAD for the head's input.
    `spans`: the tokens to average over (an empty span gives NaN); None: each context's last token.
    Memory does not grow with the number of contexts. A context longer than `shape.rest` loses its
    beginning, and its span moves accordingly. Raises StructureError for a layer that the model does
    not have.
    """
    numbers = [layer for layer in layers if isinstance(layer, int)]
    if unknown := [layer for layer in layers if isinstance(layer, str) and layer != HEAD]:
        raise ValueError(f"layers are numbers or {HEAD!r}, not {unknown[0]!r}")
    model.check_layers(numbers)
    shape = Shape(shape.prefix, shape.rest, 0)
    for first in range(0, len(contexts), sizes.rows):
        group = contexts[first : first + sizes.rows]
        own = None if spans is None else spans[first : first + sizes.rows]
        decoder = Decoder(model, [Batch(group, prefix)], shape, sizes, steering, hidden=True)
        yield from _pooled(decoder, model, group, own, layers)


def _pooled(
    decoder: Decoder,
    model: Structure,
    contexts: Sequence[Context],
    spans: Sequence[Span] | None,
    layers: Sequence[Layer],
) -> Iterator[torch.Tensor]:
    weights = _weights(contexts, spans, decoder.count, decoder.shape.rest).to(model.device)
    pooled: dict[Layer, torch.Tensor] = {}

    def pool(layer: Layer) -> Callable[[torch.Tensor], None]:
        def look(stream: torch.Tensor) -> None:
            # A block's look comes before its pass can fail, so a repeated pass overwrites it.
            own = weights[decoder.store.place.rows].to(stream.device, _fine(stream))
            mean = torch.einsum("rt,rtd->rd", own, stream.to(_fine(stream)))
            pooled[layer] = mean.to(model.device)

        return look

    watched = {layer: pool(layer) for layer in layers if isinstance(layer, int)}
    with model.watched(watched), model.receiving(pool(HEAD)):
        for _, values in decoder.read():
            for row in range(len(values)):
                yield torch.stack([pooled[layer][row] for layer in layers]).float()


def _fine(stream: torch.Tensor) -> torch.dtype:
    return torch.promote_types(stream.dtype, torch.float32)


def _weights(
    contexts: Sequence[Context], spans: Sequence[Span] | None, rows: int, rest: int
) -> torch.Tensor:
    """Return the weight of each column in its context's mean: (rows, rest)."""
    weights = torch.zeros((rows, rest), dtype=torch.float64)
    for row, context in enumerate(contexts):
        if spans is None:
            weights[row, rest - 1] = 1
            continue
        start, stop = (min(max(place + rest - len(context), 0), rest) for place in spans[row])
        if stop > start:
            weights[row, start:stop] = 1 / (stop - start)
        else:
            weights[row] = torch.nan
    return weights
