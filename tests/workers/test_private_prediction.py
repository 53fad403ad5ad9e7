"""The mechanism against its definition, and one unit's influence against its price."""

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from accountant.core import mechanisms
from accountant.core.events import releases
from accountant.core.mechanisms.private_prediction import shift
from accountant.core.pricing import Neighbours, Terms
from tests.support import SHARED, needs_shared
from workers import models
from workers import records as reading
from workers.decoding import SharedDecoder
from workers.interface import Progress
from workers.mechanisms.private_prediction import GRID, ROWS, Runner, aggregate, clip_to_grid
from workers.meter import Meter
from workers.models import Prompt
from workers.records import Layout, Record, Records

PRICE = mechanisms.get("private-prediction")


@pytest.fixture(scope="module")
def model():
    from pathlib import Path

    import workers

    folder = Path(workers.__file__).parent / "sample" / "model"
    return models.load(folder, models.digest(folder))


def run(model, parameters: dict, data: Records, terms: Terms):
    parsed = PRICE.parse({"record_tokens": 24, "batches_per_label": 2, **parameters}, terms)
    meter = Meter(PRICE.price(parsed, terms).dp)
    progress = Progress(Runner().total(parsed, terms))
    texts = list(Runner().run(parsed, terms, data, model, meter, progress))
    return parsed, texts, meter, progress


def reviews(count: int, label: str | None = None) -> tuple[Record, ...]:
    return tuple(Record(f"u{i}", label, f"The soup was cold on day {i} and I left.") for i in range(count))


@pytest.mark.parametrize("neighbours", list(Neighbours))
def test_meter_equals_price_and_progress_is_public(model, neighbours):
    terms = Terms(neighbours, labels=("a", "b"))
    data = Records(("a", "b"), reviews(5, "a"), b"k" * 32)  # label b has no record and runs all the same
    parsed, texts, meter, progress = run(model, {"tokens_per_batch": 12, "batch_size": 4}, data, terms)
    assert releases(meter.realized) == releases(PRICE.price(parsed, terms).dp)
    assert progress.done == progress.total == 2 * 2 * 12
    assert {text.label for text in texts} <= {"a", "b"}
    assert not model.network.training


def test_every_batch_writes_exactly_its_tokens_whatever_it_holds(model):
    terms = Terms()
    for size in (0, 1, ROWS + 3):
        _, _, meter, progress = run(
            model,
            {"tokens_per_batch": 9, "max_text_tokens": 4},
            Records((None,), reviews(size), b"k" * 32),
            terms,
        )
        assert progress.done == 18
        assert sum(releases(meter.realized).values()) == 9


def test_stop_text_ends_a_text_and_is_left_out(model):
    data = Records((None,), reviews(40), b"k" * 32)
    _, texts, _, _ = run(
        model, {"tokens_per_batch": 60, "stop": ".", "temperature": 0.5, "batch_size": 20}, data, Terms()
    )
    assert texts
    assert not any("." in text.text for text in texts)


def test_the_engine_gives_the_logits_of_reading_everything_again(model):
    """Padding, chunks and the cut cache against one plain forward pass per context in float64."""
    torch.manual_seed(0)
    prompts = [torch.randint(4, 1000, (length,)).tolist() for length in (3, 17, 20, 9, 20)]
    decoder = SharedDecoder(model, prompts, width=20, rows=2, text=6)
    double = type(model.network)(model.network.config).double().eval()
    double.load_state_dict(model.network.state_dict())
    for tokens in ([], [5], [5, 9], [], [7, 7, 7]):  # going back to the prompts in between
        chunks = decoder.start()
        for token in tokens:
            list(chunks)
            chunks = decoder.step(token)
        fast = torch.cat(list(chunks))
        for row, prompt in enumerate(prompts):
            with torch.inference_mode():
                slow = double(torch.tensor([[*prompt, *tokens]])).logits[0, -1]
            assert torch.allclose(fast[row].double(), slow, atol=2e-4), (tokens, row)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([0.5, 9.0, 100.0]))
def test_clipping_follows_equation_1(seed, clip):
    logits = torch.randn((4, 50), generator=torch.Generator().manual_seed(seed)) * 20
    grid = clip_to_grid(logits, clip)
    expected = torch.maximum(torch.tensor(-clip), logits - logits.max(dim=1, keepdim=True).values + clip)
    assert torch.allclose(grid.double() * clip / GRID, expected.double(), atol=clip / GRID)
    assert grid.abs().max() <= GRID


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_context_that_gives_nan_contributes_zero(bad):
    logits = torch.zeros((2, 5))
    logits[0, 3] = bad
    assert clip_to_grid(logits, 9.0)[0].tolist() == [0] * 5
    logits[1, 2] = -float("inf")  # a forbidden token is clipped like any other
    assert clip_to_grid(logits, 9.0)[1].tolist() == [GRID, GRID, -GRID, GRID, GRID]


def test_a_long_record_is_cut_at_its_public_length(model):
    prompt = Prompt(model.tokenizer, "A review: {record} Another:", None)
    long = prompt.tokens("good food and drink " * 5000, 24)
    assert len(long) == prompt.fixed_tokens + 24


def batch_totals(model, data: Records, parameters: dict, terms: Terms) -> dict:
    """The sum that one step of each batch aggregates, for the first token and after a fixed one."""
    parsed = PRICE.parse(parameters, terms)
    totals = {}
    for part, texts in data.batches(parsed.batches_per_label).items():
        prompt = Prompt(model.tokenizer, parsed.template, part[0])
        prompts = [prompt.tokens(text, parsed.record_tokens) for text in texts]
        decoder = SharedDecoder(model, prompts, prompt.fixed_tokens + parsed.record_tokens, ROWS, 4)
        first = aggregate(decoder.start(), parsed.clip, model.vocabulary)
        totals[part] = (first, aggregate(decoder.step(42), parsed.clip, model.vocabulary))
    return totals


@needs_shared
@pytest.mark.parametrize("bound", [1, 5])
def test_one_author_of_reddit_moves_one_batch_by_at_most_the_priced_sensitivity(bound):
    """Privacy unit by column on real data: adding or removing one author, with up to `bound` records."""
    folder = SHARED / "data" / "models" / "stories260K"
    model = models.load(folder, models.digest(folder))
    layout = Layout("{bigram}", "author", max_records_per_unit=bound)
    address = str(SHARED / "data" / "reddit_ngrams" / "reddit_bigrams.csv.gz")
    everything = reading.read(address, layout, b"k" * 32)
    authors = [name for name, _ in Counter(record.unit for record in everything.records).most_common()]
    kept = set(authors[:150])
    some = tuple(record for record in everything.records if record.unit in kept)
    terms = Terms(max_records_per_unit=bound)
    parameters = {"batches_per_label": 4, "record_tokens": 16, "batch_size": 64, "template": "{record} and"}
    full = batch_totals(model, Records((None,), some, everything.key), parameters, terms)
    parsed = PRICE.parse(parameters, terms)
    allowed = shift(parsed, terms)  # what the price charges: Delta / temperature
    scale = Fraction(parsed.clip) / (GRID * parsed.batch_size * Fraction(parsed.temperature))
    for author in (authors[0], authors[75], authors[149]):
        rest = tuple(record for record in some if record.unit != author)
        without = batch_totals(model, Records((None,), rest, everything.key), parameters, terms)
        moved = [
            part
            for part in full
            if any((a != b).any() for a, b in zip(full[part], without[part], strict=True))
        ]
        assert len(moved) == 1
        for with_it, without_it in zip(full[moved[0]], without[moved[0]], strict=True):
            step = int(np.abs(with_it - without_it).max())
            assert step * scale <= allowed
