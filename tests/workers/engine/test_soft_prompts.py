"""Gradients to soft tokens against autograd on the plain model; the model's weights get none."""

import pytest
import torch

from tests.workers.engine.families import BRANCHES, CONTEXT, FAMILIES, VOCABULARY, WIDTH, family
from workers.engine import Batch, Decoder, Shape, Sizes, soft_loss

pytestmark = pytest.mark.slow
TARGETS = [[5, 17, 3], [9], [4, 4, 60, 2, 31, 8], [80, 1]]


def plainly(plain, soft: torch.Tensor, targets) -> tuple[float, torch.Tensor]:
    """Loss and gradient by autograd, one target after the other, in float64."""
    own = soft.double().clone().requires_grad_(True)
    total = torch.zeros((), dtype=torch.float64)
    for row, target in enumerate(targets):
        ids = torch.tensor([target])
        before = own if own.dim() == 2 else own[row]
        embedded = torch.cat([before.unsqueeze(0), plain.get_input_embeddings()(ids)], dim=1)
        logits = plain(inputs_embeds=embedded, use_cache=False).logits[0, before.shape[0] - 1 : -1]
        total = total + torch.nn.functional.cross_entropy(logits, ids[0], reduction="sum")
    loss = total / sum(map(len, targets))
    loss.backward()
    return float(loss.detach()), own.grad


def soft_tokens(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize(
    ("name", "shared", "rows"),
    [(name, True, 3) for name in FAMILIES]
    + [(name, shared, rows) for name in BRANCHES for shared, rows in ((True, 1), (False, 16))],
)
def test_loss_and_gradient_are_those_of_the_plain_model(name, shared, rows):
    model, plain = family(name)
    soft = soft_tokens(4, WIDTH) if shared else soft_tokens(len(TARGETS), 4, WIDTH)
    found = soft_loss(model, soft, TARGETS, rows)
    loss, gradients = plainly(plain, soft, TARGETS)
    assert found.loss == pytest.approx(loss, rel=1e-4)
    assert found.gradients.shape == soft.shape
    assert torch.allclose(
        found.gradients.double(), gradients, rtol=1e-3, atol=1e-6 + 1e-3 * gradients.abs().max()
    )


def test_the_models_weights_get_no_gradient_and_do_not_move():
    model, _ = family("llama")
    before = {name: weight.clone() for name, weight in model.network.named_parameters()}
    soft = soft_tokens(4, WIDTH)
    soft_loss(model, soft, TARGETS)
    for name, weight in model.network.named_parameters():
        assert weight.grad is None
        assert not weight.requires_grad
        assert torch.equal(weight, before[name])
    assert soft.grad is None
    next(iter(model.network.parameters())).requires_grad_(True)
    with pytest.raises(ValueError, match="frozen"):
        soft_loss(model, soft, TARGETS)


def test_following_the_gradient_through_an_adapter_lowers_the_loss_and_decoding_shows_it():
    """The engine then writes what the trained tokens make likely."""
    model, _ = family("llama")
    target = [7, 23, 42, 11]
    torch.manual_seed(1)
    adapter = torch.nn.Linear(8, 3 * WIDTH)
    seed = torch.randn(8)
    optimiser = torch.optim.Adam(adapter.parameters(), lr=0.05)
    losses = []
    for _ in range(300):
        optimiser.zero_grad()
        made = adapter(seed).view(3, WIDTH)
        found = soft_loss(model, made, [target])
        made.backward(found.gradients)
        optimiser.step()
        losses.append(found.loss)
    assert losses[-1] < 1 < losses[0]
    soft = adapter(seed).view(3, WIDTH).detach()
    decoder = Decoder(model, [Batch([soft])], Shape(0, 3, len(target)), Sizes(1, 1, 1))
    ((_, values),) = decoder.read()
    written = []
    for _ in target:
        written.append(int(values[0].argmax()))
        ((_, values),) = decoder.step({0: written[-1]})
    assert written == target


@pytest.mark.parametrize(
    ("soft", "targets"),
    [
        (torch.zeros(4, WIDTH + 1), TARGETS),
        (torch.zeros(0, WIDTH), TARGETS),
        (torch.zeros(WIDTH), TARGETS),
        (torch.zeros(3, 4, WIDTH), TARGETS),
        (torch.zeros(4, WIDTH), []),
        (torch.zeros(4, WIDTH), [[1], []]),
    ],
)
def test_wrong_shapes_are_refused(soft, targets):
    model, _ = family("llama")
    with pytest.raises(ValueError, match=r"soft tokens|target"):
        soft_loss(model, soft, targets)


def test_sizes_are_those_of_the_families():
    assert max(map(max, TARGETS)) < VOCABULARY
    assert 4 + max(map(len, TARGETS)) < CONTEXT
