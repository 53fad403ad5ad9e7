"""The mechanism against its definition, and one unit's influence against its price."""

from collections import Counter
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch

from accountant.core import mechanisms
from accountant.core.errors import MeterExceeded
from accountant.core.mechanisms.private_prediction import shift
from accountant.core.privacy.events import FREE, releases
from accountant.core.privacy.price import Neighbours, Terms
from accountant.core.privacy.units import EPSILON_UNITS, float_up
from tests.aggregates import clip_to_grid, median_interval, median_token_costs
from tests.support import SHARED, needs_shared
from workers import models
from workers.data import records as reading
from workers.data.records import Layout, Record, Records
from workers.engine import Decoder, Sizes, sizes
from workers.engine.aggregation import GRID, Mean
from workers.interface import NOTHING_PUBLIC, Progress, Text
from workers.mechanisms.private_prediction import Contexts, Runner, shape_of
from workers.models import Prompt
from workers.noise.meter import Meter

pytestmark = pytest.mark.slow

PRICE = mechanisms.get("private-prediction")


@pytest.fixture(scope="module")
def model():
    from pathlib import Path

    import workers

    folder = Path(workers.__file__).parent / "sample" / "model"
    return models.load(folder, models.digest(folder))


def run(model, parameters: dict, data: Records, terms: Terms):
    parsed = PRICE.parse({"record_tokens": 24, "batches_per_label": 2, **parameters}, terms)
    price = PRICE.price(parsed, terms)
    meter = Meter(price.dp or FREE, price.ex_post_draws)
    progress = Progress(Runner().total(parsed, terms))
    texts = list(Runner().run(parsed, terms, data, model, meter, progress))
    return parsed, texts, meter, progress


def reviews(count: int, label: str | None = None) -> tuple[Record, ...]:
    return tuple(
        Record(f"u{i}", label, f"The soup was cold on day {i} and I left.") for i in range(count)
    )


@pytest.mark.parametrize("neighbours", list(Neighbours))
def test_meter_equals_price_and_progress_is_public(model, neighbours):
    terms = Terms(neighbours, labels=("a", "b"))
    # label b has no record and runs all the same
    data = Records(("a", "b"), reviews(5, "a"), b"k" * 32)
    parsed, texts, meter, progress = run(
        model, {"tokens_per_batch": 12, "batch_size": 4}, data, terms
    )
    assert releases(meter.realized) == releases(PRICE.price(parsed, terms).dp)
    assert progress.done == progress.total == 2 * 2 * 12
    assert {text.label for text in texts} <= {"a", "b"}
    assert not model.network.training


def test_a_job_of_some_labels_writes_what_it_would_write_of_them_among_all(model, monkeypatch):
    monkeypatch.setattr("workers.noise.meter.draw", lambda scores, _scale: int(np.argmax(scores)))
    terms, asked = Terms(labels=("a", "b")), {"tokens_per_batch": 12, "batch_size": 4}
    other = tuple(replace(each, unit=f"v{each.unit}", label="b") for each in reviews(7))
    data = Records(("a", "b"), (*reviews(5, "a"), *other), b"k" * 32)
    _, every, _, _ = run(model, asked, data, terms)
    parsed, texts, meter, progress = run(model, {**asked, "labels": ["b"]}, data, terms)
    assert texts == [each for each in every if each.label == "b"]
    assert progress.done == progress.total == 2 * 12
    assert releases(meter.realized) == releases(PRICE.price(parsed, terms).dp)


def test_a_label_has_the_batches_that_its_counts_fill(model):
    """Every batch holds about as many records as its sum is divided by, however unlike the labels
    are.
    """
    terms = Terms(labels=("a", "b"))
    many = tuple(replace(each, unit=f"v{each.unit}", label="b") for each in reviews(400))
    data = Records(("a", "b"), (*reviews(20, "a"), *many), b"k" * 32)
    parsed = PRICE.parse({"label_counts": [20, 400], "batch_size": 20}, terms)
    found = data.batches(parsed.batches_by_label(terms))
    assert Counter(label for label, _ in found) == {"a": 1, "b": 20}
    assert max(map(len, found.values())) <= 35
    assert sum(map(len, found.values())) == 420
    raw = {
        "label_counts": [20, 400],
        "batch_size": 20,
        "batches_per_label": None,
        "tokens_per_batch": 2,
    }
    for amplification in ("none", "allocation"):
        resolved, _, meter, progress = run(
            model, {**raw, "amplification": amplification}, data, terms
        )
        assert progress.done == progress.total == 21 * 2
        assert releases(meter.realized) == releases(PRICE.price(resolved, terms).dp)


def test_of_labels_as_unlike_as_90_to_8_to_2_each_draws_at_the_temperature_asked_for(model):
    """A label's sums are divided by the public size and hold what its batches hold; rows are as
    planned.
    """
    terms, held = Terms(labels=("a", "b", "c")), {"a": 9_000, "b": 800, "c": 200}
    own = (reviews(count, label) for label, count in held.items())
    records = (replace(each, unit=f"{each.label}{each.unit}") for label in own for each in label)
    data = Records(terms.labels, tuple(records), b"k" * 32)
    parsed = PRICE.parse(
        {"label_counts": [*held.values()], "batch_size": 20, "record_tokens": 24}, terms
    )
    contexts = Contexts(parsed, model.tokenizer, terms.labels, NOTHING_PUBLIC)
    found = list(contexts.of(data, parsed.batches_by_label(terms)).items())
    for label, count in held.items():
        batches = [examples for (own, _), examples in found if own == label]
        assert sum(map(len, batches)) == count
        warm = float(parsed.temperature) * parsed.units * len(batches) / count
        assert warm == pytest.approx(float(parsed.temperature), rel=0.1)
    shape = shape_of(parsed, contexts.prompts.values())
    chosen = sizes(model.network, shape, parsed.batch_size, len(found), memory=2**29)
    assert 1 < chosen.batches < len(found)
    for first in range(0, len(found), chosen.batches):
        group = found[first : first + chosen.batches]
        rows = -(-sum(len(examples) for _, examples in group) // chosen.rows) * chosen.rows
        planned = -(-len(group) * parsed.batch_size // chosen.rows) * chosen.rows
        assert rows <= 1.2 * planned or rows == planned + chosen.rows


@pytest.mark.parametrize(("tokens", "drawn"), [(35, 20), (36, 36)])
def test_no_text_is_begun_with_fewer_than_sixteen_tokens_left(model, tokens, drawn):
    """Whatever a batch holds; tokens of a stub are neither drawn nor charged."""
    terms = Terms()
    for size in (0, 1, 35):
        parsed, texts, meter, progress = run(
            model,
            {"tokens_per_batch": tokens, "max_text_tokens": 20, "min_tokens": 20, "stop": "never"},
            Records((None,), reviews(size), b"k" * 32),
            terms,
        )
        assert progress.done == 2 * tokens
        assert sum(releases(meter.realized).values()) == drawn
        assert len(texts) == PRICE.yields(parsed, terms).number == 2 * -(-drawn // 20)


@pytest.mark.parametrize("aggregation", ["mean", "median"])
def test_rules_leave_out_texts_of_the_mean_and_count_them(model, monkeypatch, aggregation):
    """What the median's tokens cost holds of its texts as a whole."""
    monkeypatch.setattr("workers.generation.rules.fault", lambda _: "preface")
    parameters = {"tokens_per_batch": 16, "min_tokens": 16, "aggregation": aggregation}
    cap = {} if aggregation == "mean" else {"ex_post_cap": 9.0}
    data = Records((None,), reviews(9), b"k" * 32)
    _, items, _, _ = run(model, {**parameters, **cap}, data, Terms())
    if aggregation == "median":
        assert [type(item) for item in items] == [Text, Text]
        return
    (counts,) = items
    assert counts.json() == {"written": 2, "left_out": {"preface": 2}}
    data = replace(data, share=(0, 2))
    assert run(model, parameters, data, Terms())[1] == [], "a part releases texts alone"


def test_a_template_that_asks_for_a_line_has_texts_of_a_line():
    stops = {
        (): "\n",
        (("template", "Reviews.\nReview: {record}\nReview: "),): "\n",
        (("template", "{record}"),): None,
        (("template", "base"),): "\n###",
        (("template", "instruction"),): None,
        (("stop", None),): "\n",  # as a form sends an empty field
        (("stop", "."),): ".",
    }
    for parameters, stop in stops.items():
        raw = {"batches_per_label": 2, **dict(parameters)}
        parsed = PRICE.parse(raw, Terms())
        assert parsed.stop == stop
        assert PRICE.parse(parsed.model_dump(mode="json"), Terms()).stop == stop


def test_stop_text_ends_a_text_and_is_left_out(model):
    data = Records((None,), reviews(40), b"k" * 32)
    _, texts, _, _ = run(
        model,
        {"tokens_per_batch": 60, "stop": ".", "temperature": 0.5, "batch_size": 20},
        data,
        Terms(),
    )
    assert texts
    assert not any("." in text.text for text in texts)


@pytest.mark.parametrize("aggregation", ["mean", "median"])
def test_batches_side_by_side_write_what_they_write_one_after_another(
    model, aggregation, monkeypatch
):
    """With the meter's draw replaced by the likeliest token, the texts of every batch are the
    same.
    """
    monkeypatch.setattr("workers.noise.meter.draw", lambda scores, _scale: int(np.argmax(scores)))
    terms = Terms(labels=("negative", "positive"))
    data = Records(
        terms.labels,
        tuple(
            Record(f"u{i}", terms.labels[i % 2], f"The soup was cold on day {i}.")
            for i in range(30)
        ),
        b"k" * 32,
    )
    cap = {"ex_post_cap": 5.0} if aggregation == "median" else {}
    parameters = {
        "aggregation": aggregation,
        "tokens_per_batch": 26,
        "max_text_tokens": 10,
        "batch_size": 8,
        **cap,
    }
    together = run(model, parameters, data, terms)
    small = replace(model, memory_bytes=1)
    alone = run(small, parameters, data, terms)
    assert sorted(map(str, together[1])) == sorted(map(str, alone[1]))
    assert len(together[1]) >= 8
    assert together[2].realized == alone[2].realized
    # Passes of other shapes round the last digits of a logit otherwise.
    assert together[2].realized_ex_post == pytest.approx(alone[2].realized_ex_post, rel=1e-4)


def test_each_text_of_a_batch_begins_from_its_prompts(model, monkeypatch):
    """With the likeliest token drawn, every text of a batch is the first one again, as far as it
    goes.
    """
    monkeypatch.setattr("workers.noise.meter.draw", lambda scores, _scale: int(np.argmax(scores)))
    data = Records((None,), reviews(5), b"k" * 32)
    parameters = {"tokens_per_batch": 50, "max_text_tokens": 12, "batches_per_label": 1}
    _, texts, _, _ = run(model, parameters, data, Terms())
    assert len(texts) >= 4
    assert all(texts[0].text.startswith(each.text) for each in texts)


def plain_logits(model, contexts: list[list[int]]) -> torch.Tensor:
    """(contexts, vocabulary), each read alone by the model's own pass."""
    with torch.inference_mode():
        return torch.stack([model.network(torch.tensor([ids])).logits[0, -1] for ids in contexts])


def supported(model, contexts: list[list[int]], top_k: int) -> torch.Tensor:
    """The same, in the columns of the `top_k` likeliest tokens after the first context."""
    found = plain_logits(model, contexts)
    kept = found[0].topk(top_k or found.shape[1]).indices.sort().values
    return found[:, kept]


@pytest.mark.parametrize("top_k", [0, 30])
def test_the_mean_is_drawn_at_the_priced_clip_temperature_and_public_batch_size(
    model, monkeypatch, top_k
):
    """Scores at the meter equal those of plain passes; a record that fills the clip moves them as
    priced.
    """
    seen = []

    def catch(self, scores, scale, event):
        seen.append((scores, scale, event))
        return int(np.argmax(scores))

    monkeypatch.setattr("workers.noise.meter.Branch.sample_token", catch)
    data = Records((None,), reviews(5), b"k" * 32)  # fewer than the public size
    raw = {
        "tokens_per_batch": 2,
        "batches_per_label": 1,
        "batch_size": 7,
        "clip": 2.5,
        "temperature": 0.8,
        "top_k": top_k,
        "min_tokens": 0,
    }
    drawn: list[int] = []
    monkeypatch.setattr("workers.noise.meter.Branch.drew", lambda _self, token: drawn.append(token))
    parsed, _, _, _ = run(model, raw, data, Terms())
    prompt = Prompt(model.tokenizer, parsed.template, None)
    for number, (scores, scale, event) in enumerate(seen):
        token = drawn[:number]
        assert float_up(GRID * scale) == event.shift == float_up(shift(parsed, Terms()))
        texts = ["", *data.batches(1)[None, 0]]
        ids = [prompt.tokens(text, parsed.record_tokens) + token for text in texts]
        logits = supported(model, ids, top_k)[1:]
        clipped = (logits - logits.amax(dim=1, keepdim=True) + 2.5).clamp(-2.5, 2.5).double()
        mean = clipped.sum(dim=0).numpy() / 7 / 0.8
        assert scores * float(scale) == pytest.approx(mean, abs=1e-3)


@pytest.mark.parametrize("size", [0, 1, 20])
def test_the_median_draws_its_tokens_and_pays_for_each(model, size):
    """T draws a batch, whatever they cost and whatever a batch holds; an empty one costs next to
    nothing.
    """
    data = Records((None,), reviews(size), b"k" * 32)
    parameters = {
        "aggregation": "median",
        "ex_post_cap": 1.0,
        "tokens_per_batch": 15,
        "max_text_tokens": 5,
    }
    parsed, _, meter, progress = run(model, {**parameters, "batches_per_label": 1}, data, Terms())
    assert progress.done == 15
    assert releases(meter.realized) == {}
    realized = meter.realized_ex_post / EPSILON_UNITS
    assert realized < 1e-6 if size == 0 else realized > 0
    with pytest.raises(MeterExceeded):
        meter.parallel((None, 0)).ex_post_token(np.zeros(3, np.int64), Fraction(1), np.zeros(3))
    assert parsed.public_contexts == 2


@pytest.mark.parametrize("top_k", [0, 30])
def test_the_medians_costs_are_those_of_the_contexts_that_it_saw(model, monkeypatch, top_k):
    """The meter's costs equal `median_token_costs` of plain forward passes, the public ones
    twice.
    """
    seen = []

    def catch(self, scores, scale, costs):
        seen.append((scores, scale, costs))
        return int(np.argmax(scores))

    monkeypatch.setattr("workers.noise.meter.Branch.ex_post_token", catch)
    data = Records((None,), reviews(5), b"k" * 32)
    parameters = {
        "aggregation": "median",
        "ex_post_cap": 1.0,
        "tokens_per_batch": 2,
        "batches_per_label": 1,
        "top_k": top_k,
        "min_tokens": 0,
    }
    drawn: list[int] = []
    monkeypatch.setattr("workers.noise.meter.Branch.drew", lambda _self, token: drawn.append(token))
    parsed, _, _, _ = run(model, parameters, data, Terms())
    prompt = Prompt(model.tokenizer, parsed.template, None)
    texts = ["", "", *data.batches(1)[None, 0]]
    for number, (scores, scale, costs) in enumerate(seen):
        token = drawn[:number]
        ids = [prompt.tokens(text, parsed.record_tokens) + token for text in texts]
        logits = supported(model, ids, top_k)
        grid = clip_to_grid(logits, parsed.clip).double() * parsed.clip / GRID
        assert costs == pytest.approx(
            median_token_costs(grid, parsed.temperature).numpy(), abs=1e-3
        )
        _, median, _ = median_interval(grid)
        assert scores * float(scale) == pytest.approx(
            (median / parsed.temperature).numpy(), abs=1e-3
        )


def test_a_long_record_is_cut_at_its_public_length(model):
    prompt = Prompt(model.tokenizer, "A review: {record} Another:", None)
    long = prompt.tokens("good food and drink " * 5000, 24)
    assert len(long) == prompt.fixed_tokens + 24


def batch_totals(model, data: Records, parameters: dict, terms: Terms) -> dict:
    """The sum that one step of each batch aggregates, for the first token and after a fixed one."""
    parsed = PRICE.parse(parameters, terms)
    batches = data.batches(parsed.batches_per_label)
    contexts = Contexts(parsed, model.tokenizer, data.labels, NOTHING_PUBLIC)
    held = [
        contexts.batch(label, examples)
        for (label, _), examples in contexts.of(data, parsed.batches_per_label).items()
    ]
    shape = shape_of(parsed, contexts.prompts.values())
    decoder = Decoder(model.structure, held, shape, Sizes(rows=32, reading=32, batches=len(held)))

    def totals(given) -> list:
        means = [Mean(parsed.clip, model.vocabulary) for _ in held]
        for number, logits in given:
            means[number].add(logits)
        return [mean.scores() for mean in means]

    first, second = (
        totals(decoder.read()),
        totals(decoder.step(dict.fromkeys(range(len(held)), 42))),
    )
    return dict(zip(batches, zip(first, second, strict=True), strict=True))


@needs_shared
@pytest.mark.parametrize("bound", [1, 5])
def test_one_author_of_reddit_moves_one_batch_by_at_most_the_priced_sensitivity(bound):
    """Privacy unit by column on real data: adding or removing one author, with up to `bound`
    records.
    """
    folder = SHARED / "data" / "models" / "stories260K"
    model = models.load(folder, models.digest(folder))
    layout = Layout("{bigram}", "author", max_records_per_unit=bound)
    address = str(SHARED / "data" / "reddit_ngrams" / "reddit_bigrams.csv.gz")
    everything = reading.read(address, layout, b"k" * 32)
    authors = [
        name for name, _ in Counter(record.unit for record in everything.records).most_common()
    ]
    kept = set(authors[:150])
    some = tuple(record for record in everything.records if record.unit in kept)
    terms = Terms(max_records_per_unit=bound)
    parameters = {
        "batches_per_label": 4,
        "record_tokens": 16,
        "batch_size": 64,
        "template": "{record} and",
    }
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
