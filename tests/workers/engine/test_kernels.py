"""Replaced parts of a network: the same values, gradients as before, and left out where they differ."""

import copy

import pytest
import torch

from tests.workers.engine.families import FAMILIES, family
from workers.engine import Batch, Decoder, Shape, Sizes, kernels, sizing

pytestmark = pytest.mark.slow


def layer(bias: bool) -> torch.nn.Linear:
    torch.manual_seed(3)
    return torch.nn.Linear(160, 120, bias=bias)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(96, 160), (3, 40, 160), (1, 160)])
def test_a_product_is_the_usual_one_up_to_rounding(bias, shape):
    plain = layer(bias)
    network = torch.nn.Sequential(copy.deepcopy(plain))
    kernels.install(network)
    assert isinstance(network[0], kernels.Product)
    states = torch.randn(shape)
    with torch.inference_mode():
        assert torch.allclose(network(states), plain(states), atol=1e-5)


def test_gradients_pass_through_a_product():
    """Soft prompts are trained through a frozen network; oneDNN's product has no gradient."""
    plain = layer(bias=True).requires_grad_(False)
    network = torch.nn.Sequential(copy.deepcopy(plain))
    kernels.install(network)
    found, expected = (torch.ones(96, 160, requires_grad=True) for _ in range(2))
    network(found).square().sum().backward()
    plain(expected).square().sum().backward()
    assert torch.allclose(found.grad, expected.grad)


def test_a_product_that_comes_out_different_is_not_used(monkeypatch):
    monkeypatch.setattr(kernels, "_by_onednn", lambda states, weight, bias: states @ weight.T * 1.01)
    network = torch.nn.Sequential(layer(bias=False))
    kernels.install(network)
    assert type(network[0]) is torch.nn.Linear


def test_where_the_call_is_missing_the_usual_product_stays(monkeypatch):
    def gone(states, weight, bias):
        raise AttributeError("no such operator")

    monkeypatch.setattr(kernels, "_by_onednn", gone)
    network = torch.nn.Sequential(layer(bias=False))
    kernels.install(network)
    assert type(network[0]) is torch.nn.Linear


def test_shapes_repeat_where_that_is_faster_and_see_nothing_more(monkeypatch):
    """On a GPU a pass sees columns up to a multiple of 64; columns ahead of a query are hidden from it."""
    assert [sizing.extent(columns, 300, "cuda") for columns in (1, 64, 65, 290)] == [64, 64, 128, 300]
    assert sizing.extent(129, 300, "cpu") == 129
    model, _ = family("llama")
    seen = []
    for columns in (1, 7):
        monkeypatch.setitem(sizing.COLUMNS, "cpu", columns)
        decoder = Decoder(model, [Batch([[5, 6, 7], [8]])], Shape(0, 3, 9), Sizes(16, 16, 1))
        list(decoder.read())
        seen.append(torch.stack([torch.cat([each for _, each in decoder.step({0: 4})]) for _ in range(9)]))
    assert torch.allclose(*seen, atol=1e-5)


@pytest.mark.parametrize("name", FAMILIES)
def test_only_norms_that_multiply_by_their_weight_are_replaced(name):
    """Gemma's multiply by one more than it, and keep their own way."""
    model, _ = family(name)
    norms = [each for each in model.network.modules() if type(each).__name__.endswith("RMSNorm")]
    one_call = [type(each).forward is kernels._by_one_call for each in norms]
    assert one_call == [not name.startswith("gemma")] * len(norms)
