"""Gradients through a frozen model to soft tokens: what an adapter is trained by, on public texts
only.

    [soft tokens (m, hidden)] [tokens of the target] -> mean cross-entropy of the target -> d loss /
      d soft

The model's weights are held fixed and get no gradients. The engine's own attention is used, as in
decoding, so that what was trained is read back alike.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from workers.engine.attention import Masks
from workers.engine.structure import Structure


@dataclass(frozen=True)
class SoftLoss:
    """`loss`: mean nats a target token. `gradients`: of `loss`, as the soft tokens."""

    loss: float
    gradients: torch.Tensor


def soft_loss(
    model: Structure, soft: torch.Tensor, targets: Sequence[Sequence[int]], rows: int = 16
) -> SoftLoss:
    """Return the loss of public targets after soft tokens, and its gradient by them.

    `soft`: (targets, m, hidden), soft tokens of each target's own, or (m, hidden), the same before
    all. `targets`: token ids, each at least one. `rows`: contexts in one pass; gradients add up, so
    it changes memory only. Gradients are float32, of the shape of `soft`. A caller with an adapter
    passes them on: `made.backward(gradients)`. Raises ValueError for other shapes, no targets, or a
    model that is not frozen.
    """
    shared = soft.dim() == 2
    if soft.dim() not in (2, 3) or soft.shape[-1] != model.hidden or not soft.shape[-2]:
        raise ValueError(f"soft tokens are (m, {model.hidden}), or one such for each target")
    if not targets or any(not target for target in targets):
        raise ValueError("there is no target, or one without tokens")
    if not shared and len(soft) != len(targets):
        raise ValueError("there must be soft tokens for each target")
    if any(weight.requires_grad for weight in model.network.parameters()):
        raise ValueError("the model is not frozen")
    fixed = soft.detach().to(model.device, torch.float32)
    gradients = torch.zeros_like(fixed)
    count, total = sum(map(len, targets)), 0.0
    for first in range(0, len(targets), rows):
        group = targets[first : first + rows]
        own = (fixed if shared else fixed[first : first + rows]).clone().requires_grad_(True)
        with torch.enable_grad():
            loss = _summed(model, own.expand(len(group), -1, -1) if shared else own, group) / count
            loss.backward()
        total += float(loss.detach())
        assert own.grad is not None
        if shared:
            gradients += own.grad
        else:
            gradients[first : first + rows] = own.grad
    return SoftLoss(total, gradients)


def _summed(model: Structure, soft: torch.Tensor, targets: Sequence[Sequence[int]]) -> torch.Tensor:
    """Sum targets' cross-entropy after soft tokens: (rows, m, hidden) -> ()."""
    before, longest = soft.shape[1], max(map(len, targets))
    ids = torch.zeros((len(targets), longest), dtype=torch.long)
    for row, target in enumerate(targets):
        ids[row, : len(target)] = torch.tensor(list(target))
    ids = ids.to(model.device)
    lengths = torch.tensor([len(target) for target in targets], device=model.device)
    places = torch.arange(before + longest, device=model.device)
    # Padding stands on the right and has no position, so nothing attends to it.
    positions = torch.where(places < before + lengths.unsqueeze(1), places, -1)
    with torch.no_grad():
        read = model.embed(ids)
    masks = Masks(positions, positions, 0, model.dtype)
    states = model.base(
        inputs_embeds=torch.cat([soft.to(read.dtype), read], dim=1),
        attention_mask=masks.of(None),
        position_ids=positions.clamp(min=0),
        use_cache=False,
        masks=masks,
    ).last_hidden_state
    scores = model.logits(states[:, before - 1 : -1])
    wanted = torch.arange(longest, device=model.device) < lengths.unsqueeze(1)
    return torch.nn.functional.cross_entropy(scores[wanted], ids[wanted], reduction="sum")
