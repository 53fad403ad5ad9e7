"""Decode every family over two GPUs that compute nothing, in a process of its own.

PyTorch's fake tensors know their device and refuse a call on tensors of two: what is run is the
engine and accelerate's hooks as they are, without a number. Its spare backend can be named once a
process.
"""

import sys

import torch
import transformers
from accelerate import dispatch_model
from torch._subclasses import FakeTensorMode
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend
from transformers import AutoModelForCausalLM

from tests.workers.engine.families import FAMILIES, LAYERS, WIDTH
from workers.engine import (
    HEAD,
    Batch,
    Decoder,
    KeptContexts,
    Shape,
    Sizes,
    hidden_states,
    prepare,
    structure_of,
)
from workers.engine.soft_prompts import _summed

_setup_privateuseone_for_python_backend("gpu")
FIRST, SECOND = torch.device("gpu", 0), torch.device("gpu", 1)


def no_numbers() -> None:
    """Let checks of numbers pass; of two tensors the devices are compared all the same."""

    def same(one: torch.Tensor, other: torch.Tensor, **_: object) -> bool:
        assert one.device == other.device
        return True

    real = torch.tensor

    def tensor(data: object, device: object = "cpu", **options: object) -> torch.Tensor:
        return real(data, **options).to(device)  # else it is made behind the fakes' back

    torch.tensor = tensor
    torch.allclose = torch.equal = same
    FakeTensor.item = lambda _self: 1.0
    FakeTensor.__float__ = lambda _self: 1.0


def split(network):
    """Two layers on the first GPU, two on the second, with the norm and a head that is not tied."""
    model = structure_of(network)
    tied = network.get_output_embeddings().weight is network.get_input_embeddings().weight
    behind = {*model.blocks[LAYERS // 2 :]} | (set() if tied else {model.head})
    places: dict[str, torch.device] = {}
    for name, module in network.named_modules():
        inner = any(name.startswith(f"{placed}.") for placed in places)
        if inner or isinstance(module, torch.nn.ModuleList) or module in (network, model.base):
            continue
        norm = name.endswith((".norm", ".ln_f"))
        places[name] = SECOND if module in behind or norm else FIRST
        # what accelerate would move by a constructor, which fakes have another of
        for part in module.modules():
            for key, own in [*part.named_parameters(recurse=False)]:
                moved = torch.zeros(own.shape, dtype=own.dtype, device=places[name])
                part._parameters[key] = torch.nn.Parameter(moved, requires_grad=False)
            for key, own in [*part.named_buffers(recurse=False)]:
                moved = torch.zeros(own.shape, dtype=own.dtype, device=places[name])
                part._buffers[key] = moved
    skipped = network._skip_keys_device_placement
    return dispatch_model(network, places, main_device=FIRST, skip_keys=skipped)


def decode(name: str) -> None:
    kind, values = FAMILIES[name]
    network = AutoModelForCausalLM.from_config(getattr(transformers, kind)(**values))
    model = prepare(split(network.eval().requires_grad_(False)))
    assert model.device == FIRST
    shape, chosen = Shape(2, 6, 3), Sizes(4, 2, 2)
    batches = [Batch([[5, 6], [7]], [1, 2]), Batch([[8], torch.zeros(3, WIDTH)])]
    steering = {0: torch.zeros(WIDTH), LAYERS - 1: torch.zeros(WIDTH)}
    decoder = Decoder(model, batches, shape, chosen, steering)
    given = [*decoder.read(), *decoder.append({0: [3, 4]}), *decoder.step({0: 1, 1: 2})]
    assert {values.device for _, values in given} == {FIRST}
    held = [layer.keys.device for layer in decoder.store.own]
    assert held == [FIRST] * (LAYERS // 2) + [SECOND] * (LAYERS // 2)
    assert held == [layer.values.device for layer in decoder.store.own]
    inner = Decoder(model, [Batch([[5], []])], shape, chosen, hidden=True)
    assert {values.device for _, values in inner.read()} == {FIRST}
    states = hidden_states(model, [[5, 6], [7]], [0, LAYERS - 1, HEAD], shape, chosen, [1, 2])
    assert {state.device for state in states} == {FIRST}
    kept = KeptContexts(model, shape, 2**20)
    kept.keep([b"a", b"b"], decoder.store, torch.zeros(2, WIDTH, device=SECOND))
    assert kept.take(slice(0, 2), [0, 1], decoder.store).device.type == "cpu"
    # autograd counts devices once, so the loss alone, without its gradient
    _summed(model, torch.zeros(2, 2, WIDTH, device=FIRST), [[1, 2], [3]])


if __name__ == "__main__":
    no_numbers()
    for name in sys.argv[1:]:
        shapes = ShapeEnv(allow_dynamic_output_shape_ops=True)
        with FakeTensorMode(shape_env=shapes):
            decode(name)
        print(name)
