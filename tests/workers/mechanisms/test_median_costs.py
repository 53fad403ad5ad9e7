"""The ex-post cost of a token drawn from the median bounds its loss against every neighbour."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.aggregates import median_interval, median_token_costs
from workers.engine.aggregation import interval_costs

CLIP = 6.0
TOKENS = 4

# Ties, clipped tails and nearly equal values are drawn as often as anything else.
values = st.one_of(
    st.sampled_from([-CLIP, CLIP, 0.0, 1.0]),
    st.floats(-CLIP, CLIP, allow_nan=False),
    st.integers(-6, 6).map(float),
)
collections = st.integers(3, 9).flatmap(
    lambda size: st.lists(
        st.lists(values, min_size=TOKENS, max_size=TOKENS), min_size=size, max_size=size
    )
).map(lambda rows: torch.tensor(rows, dtype=torch.float64))  # fmt: skip
temperatures = st.sampled_from([0.3, 1.0, 1.5, 6.0])


def log_chances(logits: torch.Tensor, temperature: float) -> torch.Tensor:
    """ln softmax(median / temperature), the median averaging both middles of an even size."""
    size, ordered = len(logits), logits.sort(dim=0).values
    return torch.log_softmax((ordered[(size - 1) // 2] + ordered[size // 2]) / 2 / temperature, 0)


def neighbours(logits: torch.Tensor) -> list[torch.Tensor]:
    """Every removal, and additions that reach every median a neighbour can have in each token
    alone.
    """
    found = [torch.cat((logits[:row], logits[row + 1 :])) for row in range(len(logits))]
    corners = torch.cartesian_prod(
        *[torch.tensor([-CLIP, 0.0, CLIP], dtype=torch.float64)] * TOKENS
    )
    grid = torch.linspace(-CLIP, CLIP, 25, dtype=torch.float64).unsqueeze(1).expand(-1, TOKENS)
    return found + [torch.cat((logits, extra.unsqueeze(0))) for extra in (*corners, *grid)]


def losses(logits: torch.Tensor, temperature: float) -> torch.Tensor:
    """The greatest |log ratio| of each token over all neighbours."""
    own = log_chances(logits, temperature)
    others = torch.stack([log_chances(each, temperature) for each in neighbours(logits)])
    return (others - own).abs().max(dim=0).values


@settings(max_examples=120, deadline=None)
@given(collections, temperatures)
def test_no_neighbour_loses_more_than_the_cost(logits, temperature):
    assert (losses(logits, temperature) <= median_token_costs(logits, temperature)).all()


def papers_costs(logits: torch.Tensor, temperature: float) -> torch.Tensor:
    size, ordered = len(logits), logits.sort(dim=0).values
    _, median, _ = median_interval(logits)
    low = ordered[size // 2 - 1]
    high = ordered[size // 2] if size % 2 == 0 else ordered[size // 2 + 1]
    return interval_costs(low, median, high, temperature)


@settings(max_examples=120, deadline=None)
@given(collections, temperatures)
def test_the_cost_never_exceeds_the_papers(logits, temperature):
    assert (
        median_token_costs(logits, temperature) <= papers_costs(logits, temperature) + 1e-12
    ).all()


def spread(size: int, centre: float, width: float) -> torch.Tensor:
    """A column whose lower half lies `width` below `centre` and whose upper half as far above."""
    half = [centre - width] * (size // 2), [centre + width] * (size // 2)
    return torch.tensor([*half[0], *[centre] * (size % 2), *half[1]], dtype=torch.float64)


@pytest.mark.parametrize("size", range(3, 10))
@pytest.mark.parametrize("end", ["left", "right"])
def test_with_one_end_moved_inward_the_bound_fails(size, end):
    """A rare token at its left end while a likely one is at its right: some neighbour does just
    that.
    """
    constant = torch.zeros(size, dtype=torch.float64)
    logits = torch.stack(
        (spread(size, -5.0, 0.5), spread(size, 0.0, 1.0), constant, constant - CLIP), dim=1
    )
    left, median, right = median_interval(logits)
    assert (losses(logits, 1.0) <= interval_costs(left, median, right, 1.0)).all()
    if end == "left":
        left = left + 0.1 * (median - left)
    else:
        right = right - 0.1 * (right - median)
    assert (losses(logits, 1.0) > interval_costs(left, median, right, 1.0)).any()


def test_fewer_than_two_contexts_are_an_error():
    with pytest.raises(ValueError, match="two contexts"):
        median_token_costs(torch.zeros((1, 5)), 1.0)
