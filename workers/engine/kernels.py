"""Parts of a network as they are fastest: the same functions by fewer and better calls.

On a processor PyTorch multiplies float32 matrices with MKL, which reached less than half of
oneDNN's speed on an AMD EPYC. A root mean square norm is one call instead of seven. Each
replacement is tried first, and left out where a call is missing or gives other values.
"""

from typing import Any

import torch
from torch.nn import functional

#: Multiplications from which on a call of oneDNN is worth its 15 µs.
WORTH = 2**20


class Product(torch.nn.Linear):
    """A linear layer that oneDNN computes where that is faster; its weights stay."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        if (
            input.numel() * self.out_features < WORTH
            or input.dtype != torch.float32
            or input.device.type != "cpu"
            or torch.is_grad_enabled()  # oneDNN's product has no gradient
        ):
            return functional.linear(input, self.weight, self.bias)
        return _by_onednn(input, self.weight, self.bias)


def _by_onednn(
    states: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
) -> torch.Tensor:
    made: torch.Tensor = torch.ops.mkldnn._linear_pointwise(states, weight, bias, "none", [], "")
    return made


def onednn_agrees() -> bool:
    """Return True if this PyTorch has oneDNN's product, and it is the usual one up to rounding."""
    if not torch.backends.mkldnn.is_available():
        return False
    random = torch.Generator().manual_seed(0)
    states, weight = torch.randn(16, 80, generator=random), torch.randn(48, 80, generator=random)
    try:
        with torch.inference_mode():
            found = _by_onednn(states, weight, None)
    except (AttributeError, RuntimeError, TypeError):  # not a public call: it may go, or change
        return False
    return torch.allclose(found, functional.linear(states, weight), atol=1e-4)


def _by_one_call(norm: Any, states: torch.Tensor) -> torch.Tensor:
    epsilon, weight = (
        norm.variance_epsilon if hasattr(norm, "variance_epsilon") else norm.eps,
        norm.weight,
    )
    return functional.rms_norm(states, weight.shape, weight, epsilon)


@torch.inference_mode()
def _is_plain_norm(module: torch.nn.Module) -> bool:
    """Return True for a root mean square norm that only multiplies by its weight."""
    weight = getattr(module, "weight", None)
    named = hasattr(module, "variance_epsilon") or hasattr(module, "eps")
    if (
        not named
        or not isinstance(weight, torch.Tensor)
        or weight.ndim != 1
        or list(module.children())
    ):
        return False
    random = torch.Generator().manual_seed(0)
    states = 3 * torch.randn((4, len(weight)), generator=random)
    states = states.to(weight.device, weight.dtype)
    expected, found = module(states), _by_one_call(module, states)
    near = 0.02 if weight.dtype in (torch.bfloat16, torch.float16) else 1e-5
    return expected.dtype == found.dtype and torch.allclose(found, expected, rtol=near, atol=near)


def install(network: torch.nn.Module) -> None:
    """Replace linear layers and norms of the network, where the replacement agrees with them."""
    products, norms = onednn_agrees(), dict[type, type]()
    for module in list(network.modules()):
        kind = type(module)
        if products and kind is torch.nn.Linear:
            module.__class__ = Product
        elif kind.__name__.endswith("RMSNorm") and _is_plain_norm(module):
            # A class of its own for each, so that whoever asks for the kind still finds it.
            faster = norms.setdefault(kind, type(kind.__name__, (kind,), {"forward": _by_one_call}))
            module.__class__ = faster
