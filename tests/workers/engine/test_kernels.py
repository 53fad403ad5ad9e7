"""Replaced parts of a network: the same values, gradients as before, and left out where they
differ.
"""

import copy

import pytest
import torch

from tests.workers.engine.families import BRANCHES, FAMILIES, LAYERS, family
from tests.workers.engine.test_engine import CASES, SHAPE, follow
from workers.engine import Batch, Decoder, Shape, Sizes, attention, cache, kernels, sizing
from workers.engine.steadiness import check_steady

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
    monkeypatch.setattr(
        kernels, "_by_onednn", lambda states, weight, bias: states @ weight.T * 1.01
    )
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
    """On a GPU a pass sees columns up to a multiple of 64; columns ahead of a query are hidden from
    it.
    """
    assert [sizing.extent(columns, 300, "cuda") for columns in (1, 64, 65, 290)] == [
        64,
        64,
        128,
        300,
    ]
    assert sizing.extent(129, 300, "cpu") == 129
    model, _ = family("llama")
    seen = []
    for columns in (1, 7):
        monkeypatch.setitem(sizing.COLUMNS, "cpu", columns)
        decoder = Decoder(model, [Batch([[5, 6, 7], [8]])], Shape(0, 3, 9), Sizes(16, 16, 1))
        list(decoder.read())
        seen.append(
            torch.stack([torch.cat([each for _, each in decoder.step({0: 4})]) for _ in range(9)])
        )
    assert torch.allclose(*seen, atol=1e-5)


@pytest.mark.parametrize("name", FAMILIES)
def test_only_norms_that_multiply_by_their_weight_are_replaced(name):
    """Gemma's multiply by one more than it, and keep their own way."""
    model, _ = family(name)
    norms = [each for each in model.network.modules() if type(each).__name__.endswith("RMSNorm")]
    one_call = [type(each).forward is kernels._by_one_call for each in norms]
    assert one_call == [not name.startswith("gemma")] * len(norms)


@pytest.mark.parametrize("case", ["one pass", "several batches"])
def test_keys_of_wide_heads_lie_as_their_values_do(case, monkeypatch):
    """FAMILIES have narrow heads only, whose keys lie otherwise in memory: logits are the same
    either way.
    """
    model, plain = family("llama")
    batches, chosen = CASES[case]
    laid_out = set()
    for narrow in (8, 7):
        monkeypatch.setattr(cache, "NARROW", narrow)
        follow(model, plain, batches, chosen)
        check_steady(model, SHAPE, Sizes(rows=16, reading=16, batches=1))
        decoder = Decoder(model, batches, SHAPE, chosen)
        list(decoder.read())
        kept = decoder.store.own[0]
        laid_out.add((kept.keys.stride(3) == 1, kept.values.stride(3) == 1))
    assert laid_out == {(False, True), (True, True)}


# --- prompts in blocks and small passes ----------------------------------------------------------


@pytest.mark.parametrize("case", ["one pass", "no prefix"])
@pytest.mark.parametrize("name", BRANCHES)
def test_prompts_in_blocks_have_the_logits_of_reading_everything_again(name, case, monkeypatch):
    """Contexts of all lengths, so that padding fills whole blocks of some; windows and prefixes
    too.
    """
    monkeypatch.setattr(attention, "BLOCK", 3)
    model, plain = family(name)
    follow(model, plain, *CASES[case])


@pytest.mark.parametrize("name", BRANCHES)
def test_a_record_that_goes_moves_no_digit_of_prompts_in_blocks(name, monkeypatch):
    monkeypatch.setattr(attention, "BLOCK", 3)
    check_steady(family(name)[0], SHAPE, Sizes(rows=16, reading=16, batches=1))


def test_a_block_of_a_prompt_computes_nothing_behind_itself(monkeypatch):
    """Of 3 columns of a prefix and 80 of each prompt; a short prompt is read whole."""
    seen = []

    def noting(query, key, value, mask, scaling):
        seen.append((query.shape[2], key.shape[2], value.shape[2], tuple(mask.shape[2:])))
        return FUSED(query, key, value, mask, scaling)

    monkeypatch.setattr(attention, "_fused", noting)
    model, _ = family("llama")
    for rest in (80, 63):
        decoder = Decoder(
            model, [Batch([[5] * 9, [6] * rest], [8, 9, 7])], Shape(3, rest, 1), Sizes(16, 16, 1)
        )
        seen.clear()
        list(decoder.read())
        blocks = [(32, 35), (32, 67), (16, 83)] if rest == 80 else [(63, 66)]
        assert seen == [(own, to, to, (own, to)) for own, to in blocks] * LAYERS


FUSED = attention._fused


@pytest.mark.parametrize(("rest", "reading"), [(20, 64), (60, 32), (128, 16), (4000, 16)])
def test_a_processor_reads_about_2048_tokens_at_once(rest, reading):
    """Whole tiles of prompts, whatever memory there is; a GPU reads as many as fit."""
    model, _ = family("llama")
    assert sizing.sizes(model.network, Shape(0, rest, 4), 64, 1, 2**36).reading == reading
    assert sizing.most_read("cuda", rest, 64) == 64
