"""The public support: the same tokens in neighbouring worlds to the last bit, and the stated floor.

docs/accounting.md, section 15.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import workers
from accountant.core import mechanisms
from accountant.core.privacy.events import FREE
from accountant.core.privacy.price import Terms
from tests.workers.noise.test_kept_draws import Memory, Stopped
from workers import models
from workers.data.records import Record, Records
from workers.engine import decoder as decoding
from workers.engine import support
from workers.engine.aggregation import GRID, Mean, Median, grid_costs
from workers.engine.support import Support, likeliest
from workers.interface import Progress
from workers.mechanisms import invisible_ink, runner
from workers.models import endings
from workers.noise.kept_draws import KeptDraws
from workers.noise.meter import Meter

pytestmark = pytest.mark.slow

PREDICTION = {"tokens_per_batch": 6, "max_text_tokens": 5, "batch_size": 4, "top_k": 12}
COIN = {"amplification": "allocation", "rounds": 2, "batches_to_run": 2}
CASES = {
    "mean": ("private-prediction", PREDICTION),
    "rounds": ("private-prediction", PREDICTION | COIN),
    "median": (
        "private-prediction",
        PREDICTION | {"aggregation": "median", "ex_post_cap": 9.0},
    ),
    "ink": ("invisible-ink", {"max_tokens": 4, "texts_per_batch": 2, "top_k": 12}),
    "summary": ("summary-token", {"max_tokens": 12, "epsilon": 5.0, "seed": 1, "top_k": 12}),
}
GROUPS = ("north", "south")


@pytest.fixture(scope="module")
def model():
    folder = Path(workers.__file__).parent / "sample" / "model"
    found = models.load(folder, models.digest(folder), "float32")
    return replace(found, end_tokens=frozenset(range(0, found.vocabulary, 11)))


def some(count: int, case: str) -> Records:
    grouped = case == "summary"
    made = tuple(
        Record(
            f"u{i}",
            None if grouped else "ab"[i % 2],
            f"Day {i}: the soup was {'cold' if i % 3 else 'hot'}.",
            GROUPS[i % 2] if grouped else None,
        )
        for i in range(count)
    )
    labels = (None,) if grouped else ("a", "b")
    return Records(labels, made, b"k" * 32, groups=GROUPS if grouped else ())


class Seen:
    """The public logits that supports were found in, and the tokens, of each batch in turn."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.found: list[tuple[bytes, list[int]]] = []
        ours, inks = support.likeliest, invisible_ink.top_k_plus

        def likeliest(public, top_k):
            made = ours(public, top_k)
            self.found.append((public.numpy().tobytes(), made.tokens.tolist()))
            return made

        def top_k_plus(public, parameters):
            made = inks(public, parameters)
            self.found.append((public.numpy().tobytes(), made.tokens.tolist()))
            return made

        patch.setattr(support, "likeliest", likeliest)
        patch.setattr(invisible_ink, "top_k_plus", top_k_plus)


def run(model, case: str, data: Records, kept: KeptDraws | None = None, **more) -> list:
    name, raw = CASES[case]
    terms = Terms(groups=GROUPS) if case == "summary" else Terms(labels=("a", "b"))
    size = {"public_size": 30} if case == "summary" else {"batches_per_label": 3}
    mechanism = mechanisms.get(name)
    given = {"record_tokens": 8, "min_tokens": 0, **size, **raw, **more}
    parsed = mechanism.parse(given, terms)
    price = mechanism.price(parsed, terms)
    meter = Meter(price.dp or FREE, price.ex_post_draws, kept=kept)
    progress = Progress(runner(name).total(parsed, terms))
    return list(runner(name).run(parsed, terms, data, model, meter, progress))


# --- neighbouring worlds ------------------------------------------------------------------------


@pytest.fixture
def one_token(monkeypatch):
    """What is written is the same in all worlds."""
    monkeypatch.setattr("workers.noise.meter.draw", lambda scores, _scale: len(scores) // 2)

    def fixed(weights: torch.Tensor, _count: int, generator) -> torch.Tensor:
        return torch.nonzero(weights)[len(torch.nonzero(weights)) // 2]

    monkeypatch.setattr(torch, "multinomial", fixed)


@pytest.mark.parametrize("case", CASES)
def test_a_record_that_goes_leaves_every_support_as_it_was(model, one_token, monkeypatch, case):
    """Bit for bit, also where it was the first, the only one, or one of a further pass."""
    seen = Seen(monkeypatch)
    run(model, case, some(33, case))
    full = list(seen.found)
    assert len(full) >= 8
    assert all(12 <= len(tokens) < model.vocabulary for _, tokens in full)
    data = some(33, case)
    for left in (data.records[1:], ()):
        seen.found.clear()
        run(model, case, replace(data, records=left))
        assert seen.found == full


@pytest.mark.parametrize("case", ["mean", "ink"])
def test_passes_of_public_contexts_have_one_shape_however_long_the_texts_are(
    model, one_token, monkeypatch, case
):
    shapes, real = set(), decoding.Decoder._append

    def noted(self, rows):
        found = real(self, rows)
        if self.shape.rest == 1:
            shapes.add((rows.stop - rows.start, self.store.place.extent, self.shape.capacity))
        return found

    monkeypatch.setattr(decoding.Decoder, "_append", noted)
    run(model, case, some(9, case))
    ((rows, seen, capacity),) = shapes
    assert rows == 6
    assert seen == capacity


def test_supports_stay_where_memory_runs_out_beside_them(model, one_token, monkeypatch):
    """Passes of private contexts are halved, which moves their last digits; those of public ones
    never are.
    """
    seen = Seen(monkeypatch)
    run(model, "mean", some(33, "mean"))
    full, real = list(seen.found), decoding.Decoder._forward

    def forward(self, store, masks, positions, ids=None, embedded=None):
        if len(positions) > 8:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return real(self, store, masks, positions, ids, embedded)

    monkeypatch.setattr(decoding.Decoder, "_forward", forward)
    seen.found.clear()
    run(model, "mean", some(33, "mean"))
    assert seen.found == full

    def smaller(self, store, masks, positions, ids=None, embedded=None):
        if len(positions) > 4:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return real(self, store, masks, positions, ids, embedded)

    monkeypatch.setattr(decoding.Decoder, "_forward", smaller)
    with pytest.raises(decoding.PassTooLarge):
        run(model, "mean", some(33, "mean"))


class Halting(Memory):
    """A store whose first attempt ends after so many draws."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def keep(self, draws) -> None:
        super().keep(draws)
        if len(self.kept()) >= self.most:
            self.most = 10**9
            raise Stopped


@pytest.mark.parametrize("case", CASES)
def test_an_attempt_that_goes_on_finds_the_same_supports(model, one_token, monkeypatch, case):
    seen = Seen(monkeypatch)
    texts = run(model, case, some(20, case))
    full = set(map(str, seen.found))
    seen.found.clear()
    store = Halting(7)
    with pytest.raises(Stopped):
        run(model, case, some(20, case), KeptDraws(store))
    begun = len(seen.found)
    again = run(model, case, some(20, case), KeptDraws(store))
    assert again == texts
    assert len(seen.found) > begun
    assert set(map(str, seen.found)) <= full


# --- what a draw moves and what it leaves -------------------------------------------------------

SIZE = 24
values = st.one_of(st.sampled_from([-30.0, 0.0, 5.0, 30.0]), st.floats(-30, 30, width=32))
rows = st.lists(st.lists(values, min_size=SIZE, max_size=SIZE), min_size=1, max_size=6).map(
    lambda found: torch.tensor(found, dtype=torch.float32)
)


def chances(scores: np.ndarray, scale: float) -> np.ndarray:
    weights = np.exp((scores - scores.max()) * scale)
    return weights / weights.sum()


def neighbours(logits: torch.Tensor) -> Iterator[torch.Tensor]:
    """Without each of the contexts, and with one more."""
    for row in range(len(logits)):
        yield torch.cat((logits[:row], logits[row + 1 :]))
    for more in (-logits[:1], 9 * logits[-1:], torch.full_like(logits[:1], torch.nan)):
        yield torch.cat((logits, more))


@settings(max_examples=30, deadline=None)
@given(rows, st.integers(1, SIZE), st.sampled_from([0.5, 2.0, 9.0]), st.sampled_from([0.3, 1.5]))
def test_the_means_draw_has_the_stated_floor_and_a_record_moves_it_as_priced(
    logits, top_k, clip, temperature
):
    """With s contexts every token of the support keeps e^(-2 clip / temperature) of the likeliest
    one's chance; others have none; a context that comes or goes moves a score by at most the clip.
    """
    kept = likeliest(logits[0], top_k)
    assert len(kept.of(logits)[0]) >= top_k
    scale = clip / (GRID * len(logits) * temperature)

    def scores(contexts: torch.Tensor) -> np.ndarray:
        mean = Mean(clip, len(kept.of(logits)[0]))
        if len(contexts):
            mean.add(kept.of(contexts))
        return mean.scores()

    own = scores(logits)
    likely = chances(own, scale)
    assert likely.min() >= np.exp(-2 * clip / temperature) * likely.max() * (1 - 1e-9)
    assert likely.max() >= 1 / (1 + (len(own) - 1) * np.exp(0)) - 1e-9
    for other in neighbours(logits):
        assert np.abs(scores(other) - own).max() <= GRID


def test_the_best_token_of_the_support_is_as_sure_as_the_floor_allows():
    """Recentred by the support's own best: what lies outside takes nothing from it."""
    logits = torch.full((4, SIZE), -20.0)
    logits[:, 3], logits[:, 5] = 10.0, 40.0  # the likeliest of all is not in the support
    kept = Support(torch.tensor([1, 2, 3, 4]))
    mean = Mean(2.0, 4)
    mean.add(kept.of(logits))
    found = chances(mean.scores(), 2.0 / (GRID * 4 * 0.5))
    assert found[2] == pytest.approx(1 / (1 + 3 * np.exp(-2 * 2.0 / 0.5)))


@settings(max_examples=30, deadline=None)
@given(rows.filter(lambda found: len(found) > 1), st.integers(1, SIZE), st.sampled_from([0.3, 1.5]))
def test_the_medians_costs_over_a_support_bound_every_neighbours_loss(logits, top_k, temperature):
    kept = likeliest(logits[0], top_k)

    def law(contexts: torch.Tensor) -> tuple[np.ndarray, torch.Tensor]:
        median = Median(6.0)
        # the public contexts, which every batch includes, and the records
        median.add(kept.of(logits[:1]).expand(2, -1))
        median.add(kept.of(contexts))
        interval = median.interval()
        found = np.log(chances(interval.median, 6.0 / (2 * GRID * temperature)))
        return found, grid_costs(interval, 6.0, temperature)

    own, costs = law(logits)
    for other in neighbours(logits):
        lost = np.abs(law(other)[0] - own)
        assert (lost <= costs.numpy() + 1e-9).all()


def test_ties_are_kept_and_logits_that_are_none_support_everything():
    public = torch.tensor([1.0, 3.0, 3.0, 2.0, 3.0])
    assert likeliest(public, 1).tokens.tolist() == [1, 2, 4]
    assert likeliest(public, 4).tokens.tolist() == [1, 2, 3, 4]
    for broken in (torch.full((5,), torch.nan), torch.full((5,), torch.inf)):
        assert likeliest(broken, 2).tokens is None
    assert likeliest(public, 0).tokens is likeliest(public, 5).tokens is None
    assert likeliest(torch.tensor([0.0, -torch.inf, 1.0]), 2).tokens.tolist() == [0, 2]


@pytest.mark.parametrize("case", ["mean", "median"])
def test_what_is_kept_of_a_draw_is_its_token(model, monkeypatch, case):
    """Not its place in the support; the median's cost stays beside it."""
    seen, store = Seen(monkeypatch), Memory()
    monkeypatch.setattr("workers.noise.meter.draw", lambda scores, _scale: len(scores) - 1)
    kept = KeptDraws(store)
    run(model, case, some(20, case), kept)
    kept.keep()
    tokens = {each[0] if case == "median" else each for _, each in store.kept()}
    assert tokens <= {tokens[-1] for _, tokens in seen.found}
    assert max(tokens) >= 12
    if case == "median":
        assert all(len(each) == 2 and each[1] >= 0 for _, each in store.kept())


# --- endings ------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", ["mean", "median", "ink", "summary"])
@pytest.mark.parametrize("top_k", [0, 12])
def test_no_text_ends_before_its_least_number_of_tokens(model, case, top_k):
    """Though half of all tokens would end it; after them it may."""
    model = replace(model, end_tokens=frozenset(range(0, model.vocabulary, 2)))
    kept = KeptDraws(store := Memory())
    run(model, case, some(9, case), kept, min_tokens=2, top_k=top_k)
    kept.keep()
    lengths = []
    for drawn in store.by_part.values():
        length = 0
        for each in drawn:
            token = each[0] if isinstance(each, list) else each
            if token in model.end_tokens:
                lengths.append(length)
                length = -1
            length = 0 if length >= LONGEST[case] - 1 else length + 1
    assert lengths
    assert min(lengths) >= 2


#: Tokens of a text, at most.
LONGEST = {"mean": 5, "median": 5, "ink": 4, "summary": 12}


def test_what_ends_a_text_is_its_end_tokens_and_what_could_begin_its_stop_text(model):
    assert endings(model, None, 3).tokens.tolist() == sorted(model.end_tokens)
    assert endings(model, ".", 0).tokens.tolist() == sorted(model.end_tokens)
    stopping = set(endings(model, ". ", 3).tokens.tolist()) - model.end_tokens
    assert stopping
    assert all("." in model.tokenizer.decode([token]) for token in stopping)
