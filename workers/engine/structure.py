"""The parts of a causal transformer, found by their roles and checked by running them once.

Blocks: the list of as many modules as the configuration has layers. Embedding and head: the model's
input and output embeddings. `prepare` runs one short public text through the model and checks that
the blocks follow one another, that their outputs are the residual stream, that the head on the last
hidden state gives the model's own logits, and that a context's length does not affect other
contexts.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from accountant.core.errors import ExchequerError
from workers.engine import attention, kernels

#: Names, among the layers, the hidden state that the head receives: after the final norm.
HEAD = "head"


#: What removes hooks at its end.
Hooked = contextlib.AbstractContextManager[Any]


class StructureError(ExchequerError):
    """A model or layer that this engine can't find its way in. The text is public."""

    code = "model"


@dataclass(frozen=True)
class Structure:
    """A network and its parts."""

    network: Any
    base: Any
    blocks: tuple[torch.nn.Module, ...]
    embedding: torch.nn.Module
    head: torch.nn.Module
    hidden: int
    vocabulary: int
    softcap: float | None

    @property
    def device(self) -> torch.device:
        """Where tokens go in and logits come out; of a split model each layer has its own."""
        return next(self.embedding.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        return next(self.embedding.parameters()).dtype

    def embed(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the input of the first block for token ids: (..., hidden)."""
        embedded: torch.Tensor = self.embedding(ids)
        return embedded

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return logits, float32 or better, from the head's input: (..., vocabulary)."""
        scores: torch.Tensor = self.head(hidden.to(next(self.head.parameters()).dtype))
        if self.softcap is not None:
            scores = torch.tanh(scores / self.softcap) * self.softcap
        return scores.to(self.device, torch.promote_types(scores.dtype, torch.float32))

    def check_layers(self, layers: Iterator[int] | list[int]) -> None:
        """Refuse a layer that the model does not have. Raises StructureError."""
        for layer in layers:
            if not 0 <= layer < len(self.blocks):
                last = len(self.blocks) - 1
                raise StructureError(
                    f"layers: {layer} is not a layer of this model; it has 0 to {last}"
                )

    def steered(self, bias: Mapping[int, torch.Tensor]) -> Hooked:
        """Return a context that adds bias[l], (hidden,), to block l's output everywhere."""
        self.check_layers(list(bias))
        hooks = contextlib.ExitStack()
        for layer, vector in bias.items():
            own = next(self.blocks[layer].parameters())
            moved = vector.to(own.device, own.dtype)
            # Before any other hook: who watches a layer sees the stream that goes on.
            hook = self.blocks[layer].register_forward_hook(_adding(moved), prepend=True)
            hooks.enter_context(hook)
        return hooks

    def watched(self, layers: Mapping[int, Callable[[torch.Tensor], None]]) -> Hooked:
        """Return a context that calls layers[l] with block l's (rows, tokens, hidden)."""
        self.check_layers(list(layers))
        hooks = contextlib.ExitStack()
        for layer, look in layers.items():
            hooks.enter_context(self.blocks[layer].register_forward_hook(_telling(look)))
        return hooks

    def receiving(self, look: Callable[[torch.Tensor], None]) -> Hooked:
        """Return a context that calls `look` with the head's (rows, tokens, hidden)."""
        hook: Hooked = self.base.register_forward_hook(
            lambda _base, _inputs, output: look(output.last_hidden_state)
        )
        return hook


def _stream(output: Any) -> torch.Tensor:
    """Return the residual stream of a block's output: it alone, or first in a tuple."""
    stream: torch.Tensor = output[0] if isinstance(output, tuple) else output
    return stream


def _adding(bias: torch.Tensor) -> Callable[..., Any]:
    def add(_module: Any, _inputs: Any, output: Any) -> Any:
        moved = _stream(output) + bias
        return (moved, *output[1:]) if isinstance(output, tuple) else moved

    return add


def _telling(look: Callable[[torch.Tensor], None]) -> Callable[..., None]:
    def tell(_module: Any, _inputs: Any, output: Any) -> None:
        look(_stream(output))

    return tell


def structure_of(network: Any) -> Structure:
    """Find the parts of a transformers causal model. Raises StructureError if one is missing."""
    config = network.config.get_text_config()
    base, head = network.base_model, network.get_output_embeddings()
    if base is network or head is None:
        raise StructureError("the model has no head apart from its blocks")
    count = config.num_hidden_layers
    found = [
        module
        for module in base.modules()
        if isinstance(module, torch.nn.ModuleList) and len(module) == count
    ]
    if not found:
        raise StructureError(f"the model has no list of {count} blocks")
    return Structure(
        network=network,
        base=base,
        blocks=tuple(found[0]),
        embedding=network.get_input_embeddings(),
        head=head,
        hidden=config.hidden_size,
        vocabulary=config.vocab_size,
        softcap=getattr(config, "final_logit_softcapping", None),
    )


def trial_tokens(vocabulary: int) -> list[int]:
    """Return four token ids from all over the vocabulary, to try a model with.

    The first ids are often controls that no text has, at which a coarse type is a third of the
    logits away from itself (SmolLM2, bfloat16).
    """
    return [number * vocabulary // 5 for number in range(1, 5)]


@torch.inference_mode()
def check_finite(network: Any, ids: list[int]) -> None:
    """Run a public text, or the trial tokens. Raises StructureError if a logit is not finite."""
    config = network.config.get_text_config()
    ids = (ids or trial_tokens(config.vocab_size))[: config.max_position_embeddings]
    tokens = torch.tensor([ids], device=network.device)
    if not network(input_ids=tokens, use_cache=False).logits.isfinite().all():
        dtype = str(network.dtype).removeprefix("torch.")
        raise StructureError(f"its logits of a public text are not finite in {dtype}")


@torch.inference_mode()
def prepare(network: Any) -> Structure:
    """Install the engine's attention in `network` and check its parts by one short public run."""
    found = structure_of(network)
    ids = torch.tensor([trial_tokens(found.vocabulary)], device=found.device)
    plain = network(input_ids=ids, use_cache=False).logits
    network.set_attn_implementation(attention.NAME)
    kernels.install(network)
    if network.config.get_text_config()._attn_implementation != attention.NAME:
        raise StructureError("the model computes its attention itself")
    order: list[int] = []

    def note(layer: int) -> Callable[[torch.Tensor], None]:
        def look(stream: torch.Tensor) -> None:
            if stream.shape != (1, 4, found.hidden):
                raise StructureError("the model's blocks do not hand on its hidden states")
            order.append(layer)

        return look

    positions = torch.arange(4, device=found.device).unsqueeze(0)
    masks = attention.Masks(positions, positions, None, found.dtype)
    with found.watched({layer: note(layer) for layer in range(len(found.blocks))}):
        hidden = found.base(
            input_ids=ids,
            attention_mask=masks.of(None),
            position_ids=positions,
            use_cache=False,
            masks=masks,
        ).last_hidden_state
    if order != list(range(len(found.blocks))):
        raise StructureError("the model's blocks do not follow one another")
    # A coarse type may round differently; another function of the hidden state would be far away.
    near = 1e-3 if plain.dtype in (torch.float32, torch.float64) else 0.1
    most = near * plain.abs().max().item()
    if not torch.allclose(found.logits(hidden).to(plain.dtype), plain, rtol=near, atol=most):
        raise StructureError("the model's head is more than its output embedding and a soft cap")
    _check_positions(found, ids, near)
    return found


def _check_positions(found: Structure, ids: torch.Tensor, near: float) -> None:
    """Refuse a model that treats all rows of a pass by the position of the longest, as longrope
    does.

    One long record would change the logits of every other in its pass, by any amount. Tested with
    positions at the end of the model's context, beyond which no job goes: in the logits of a row
    that does not change, and in the model's buffers, because short rows show little of other
    angles.
    """
    last = getattr(found.network.config.get_text_config(), "max_position_embeddings", 0)
    short = torch.arange(ids.shape[1], device=found.device)
    seen = []
    for first in (0, max(0, last - ids.shape[1])):
        positions = torch.stack([short, short + first])
        masks = attention.Masks(positions, positions, None, found.dtype)
        hidden = found.base(
            input_ids=ids.expand(2, -1),
            attention_mask=masks.of(None),
            position_ids=positions,
            use_cache=False,
            masks=masks,
        ).last_hidden_state
        kept = {name: buffer.clone() for name, buffer in found.base.named_buffers()}
        seen.append((found.logits(hidden[:1]), kept))
    (logits, before), (other, after) = seen
    most = near * logits.abs().max().item()
    same = torch.allclose(logits, other, rtol=near, atol=most) and before.keys() == after.keys()
    if not (same and all(torch.equal(before[name], after[name]) for name in before)):
        raise StructureError(
            "the model turns all contexts by angles that follow from the longest context of a pass "
            "(longrope, say), so one record would move the logits of others"
        )
