"""The adapter of a one-shot summary (paper 004, Section 4.2): from one mean state to m soft tokens.

    x      = (state - centre) / scale
    soft   = rms * (start + W2 gelu(W1 x + b1)),   W1: d -> 2d, W2: 2d -> m d, zero at first

`centre` and `scale` are those of public mean states; `rms` is that of the model's embedding table,
and `rms * start` are the embeddings of a prompt, so that an untrained adapter is that prompt.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from accountant.core.errors import DataError
from workers.engine import SoftLoss
from workers.models import LocalModel, text_start
from workers.text_tokens import text_tokens

Arrays = Mapping[str, NDArray[Any]]

#: No step moves the weights by a gradient of a larger norm.
MOST_GRADIENT = 1.0


class Adapter(nn.Module):
    """A network from mean states (rows, hidden) to soft tokens (rows, m, hidden), float32."""

    centre: torch.Tensor
    scale: torch.Tensor
    rms: torch.Tensor

    def __init__(self, hidden: int, soft_tokens: int) -> None:
        super().__init__()
        self.hidden, self.soft_tokens = hidden, soft_tokens
        self.first = nn.Linear(hidden, 2 * hidden)
        self.second = nn.Linear(2 * hidden, soft_tokens * hidden)
        self.register_buffer("centre", torch.zeros(hidden))
        self.register_buffer("scale", torch.ones(1))
        self.register_buffer("rms", torch.ones(1))

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Return soft tokens of each state."""
        inside = nn.functional.gelu(self.first((states - self.centre) / self.scale))
        adapted: torch.Tensor = self.rms * self.second(inside)
        return adapted.view(len(states), self.soft_tokens, self.hidden)

    def tensors(self) -> dict[str, NDArray[np.float32]]:
        """Return the weights, as an artifact holds them."""
        return {name: value.detach().cpu().numpy() for name, value in self.state_dict().items()}


def begun(
    model: LocalModel, prompt: str, soft_tokens: int, public_means: NDArray[np.float64]
) -> Adapter:
    """Return an untrained adapter, which gives the prompt's embeddings whatever the state.

    A prompt of more tokens is cut, one of fewer begins again. `public_means`: (sets, hidden), for
    the scale of the input. W1 comes from torch's global generator.
    """
    table = next(model.structure.embedding.parameters()).detach().float()
    ids = text_start(model.tokenizer) + text_tokens(model.tokenizer, prompt) or [0]
    ids = [ids[place % len(ids)] for place in range(soft_tokens)]
    start = model.structure.embed(torch.tensor(ids, device=model.device)).float()
    adapter = Adapter(model.structure.hidden, soft_tokens)
    with torch.no_grad():
        middle = public_means.mean(axis=0)
        adapter.centre.copy_(torch.from_numpy(middle))
        spread = float(np.sqrt(np.mean((public_means - middle) ** 2)))
        adapter.scale.fill_(spread if spread > 0 else 1.0)
        adapter.rms.copy_(table.square().mean().sqrt().cpu())
        adapter.second.weight.zero_()
        adapter.second.bias.copy_((start.cpu() / adapter.rms).flatten())
    return adapter


def step(
    adapter: Adapter,
    optimiser: torch.optim.Optimizer,
    states: torch.Tensor,
    loss: Callable[[torch.Tensor], SoftLoss],
) -> float:
    """Move the weights once by the loss of soft tokens made of `states`; return the loss."""
    optimiser.zero_grad()
    adapted = adapter(states)
    step_loss = loss(adapted)
    adapted.backward(step_loss.gradients.to(adapted.device))
    torch.nn.utils.clip_grad_norm_(adapter.parameters(), MOST_GRADIENT)
    optimiser.step()
    return step_loss.loss


def of_tensors(tensors: Arrays, hidden: int, soft_tokens: int) -> Adapter:
    """Return an artifact's adapter. Raises DataError if it isn't of this model and m."""
    adapter = Adapter(hidden, soft_tokens)
    wanted = {name: tuple(value.shape) for name, value in adapter.state_dict().items()}
    shapes = {name: value.shape for name, value in tensors.items()}
    if wanted != shapes or not all(np.isfinite(value).all() for value in tensors.values()):
        raise DataError(
            f"adapter: its weights are not those of {soft_tokens} soft tokens of width {hidden}"
        )
    adapter.load_state_dict(
        {name: torch.from_numpy(np.array(value)) for name, value in tensors.items()}
    )
    return adapter.requires_grad_(False).eval()
