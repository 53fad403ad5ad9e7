"""Batches that nobody knows: rounds under coins of their own, charged whole, in passes of one
shape.
"""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import workers
from accountant.core import mechanisms
from accountant.core.privacy.events import Allocation, SelfComposed, releases
from accountant.core.privacy.price import Neighbours, Terms
from workers import models
from workers.data.records import Record, Records
from workers.engine import Batch, KeptContexts, Shape, Sizes, cache_bytes
from workers.engine import decoder as decoding
from workers.engine.aggregation import Mean
from workers.engine.kept_contexts import PREFIXES
from workers.engine.steadiness import Unsteady
from workers.interface import Progress
from workers.mechanisms import invisible_ink, private_prediction
from workers.noise.meter import Meter, Turn

pytestmark = pytest.mark.slow

PREDICTION, INK = "private-prediction", "invisible-ink"
RUNNERS = {PREDICTION: private_prediction.Runner, INK: invisible_ink.Runner}
TOKENS = {PREDICTION: {"tokens_per_batch": 4}, INK: {"max_tokens": 2, "texts_per_batch": 2}}
ROUNDS, K, G = 2, 4, 3


@pytest.fixture(scope="module")
def model():
    folder = Path(workers.__file__).parent / "sample" / "model"
    return models.load(folder, models.digest(folder))


def some(count: int = 12) -> Records:
    texts = [Record(f"u{i}", "ab"[i % 2], f"The soup was cold on day {i}.") for i in range(count)]
    return Records(("a", "b"), tuple(texts), b"k" * 32)


class Watched(Meter):
    """A meter that keeps the turns of the draws, in their order."""

    def __init__(self, *args) -> None:
        super().__init__(*args)
        self.turns: list[Turn] = []

    def sample_token(self, scores, scale, event, part=None) -> int:
        self.turns.append(part)
        return super().sample_token(scores, scale, event, part)


def run(name: str, model, terms: Terms, data: Records, **parameters):
    mechanism, runner = mechanisms.get(name), RUNNERS[name]()
    raw = {
        **TOKENS[name],
        "amplification": "allocation",
        "rounds": ROUNDS,
        "batches_per_label": K,
        "batches_to_run": G,
        "batch_size": 4,
        "record_tokens": 8,
        "template": "{record}",
        **({"public_template": "A text"} if name == INK else {}),
        **parameters,
    }
    parsed = mechanism.parse(raw, terms)
    price = mechanism.price(parsed, terms)
    meter, progress = Watched(price.dp), Progress(runner.total(parsed, terms))
    texts = list(runner.run(parsed, terms, data, model, meter, progress))
    return price, meter, progress, texts


@pytest.mark.parametrize("name", RUNNERS)
@pytest.mark.parametrize("neighbours", list(Neighbours))
def test_a_run_makes_the_rounds_of_its_price_and_each_batch_writes_in_each(model, name, neighbours):
    price, meter, progress, _ = run(name, model, Terms(neighbours, labels=("a", "b")), some())
    assert isinstance(price.dp, SelfComposed)
    assert isinstance(price.dp.event, Allocation)
    assert releases(meter.realized) == releases(price.dp) == {price.dp.event: ROUNDS}
    assert set(meter.turns) == {
        Turn(r, label, i) for r in range(ROUNDS) for label in "ab" for i in range(G)
    }
    assert progress.done == progress.total == ROUNDS * 2 * G * 4


def test_a_text_that_ends_early_returns_nothing(model, monkeypatch):
    """Under a secret coin, what a token costs depends on what was seen: the round stays charged
    whole.
    """
    end = (
        model.end_tokens[0]
        if isinstance(model.end_tokens, list | tuple)
        else next(iter(model.end_tokens))
    )
    monkeypatch.setattr(invisible_ink._Writer, "draw", ends_at_once(end))
    price, meter, _, texts = run(INK, model, Terms(labels=("a", "b")), some(), rounds=1)
    assert [item.json() for item in texts] == [{"written": 12, "left_out": {"empty": 12}}]
    assert len(meter.turns) == 2 * G * 2, "one token for each text of at most two"
    assert meter.realized == price.dp


def ends_at_once(end: int):
    real = invisible_ink._Writer.draw

    def drawn(self, law) -> int:
        real(self, law)
        return end

    return drawn


@pytest.mark.parametrize("name", RUNNERS)
def test_every_round_puts_units_into_batches_anew(model, name, monkeypatch):
    seen = []
    real = Records.batches

    def noted(self, *args, **options):
        seen.append(real(self, *args, **options))
        return seen[-1]

    monkeypatch.setattr(Records, "batches", noted)
    run(name, model, Terms(labels=("a", "b")), some(60))
    assert len(seen) == ROUNDS
    places = [{text: place for place, texts in found.items() for text in texts} for found in seen]
    assert all(set(found) == {(label, i) for label in "ab" for i in range(G)} for found in seen)
    assert places[0] != places[1]
    # About a quarter of the units lie in the batch that isn't run: 15 of 60, five standard
    # deviations are 17.
    assert all(28 <= len(each) < 60 for each in places)


def test_a_unit_moves_its_own_batch_alone_in_every_round(model, monkeypatch):
    """Bit for bit: the aggregated logits of every other batch are the same without it."""
    monkeypatch.setattr("workers.noise.meter.draw", lambda _scores, _scale: 40)
    laws: list[bytes] = []
    real = Mean.scores

    def noted(self):
        laws.append(real(self).tobytes())
        return real(self)

    monkeypatch.setattr(Mean, "scores", noted)
    data, terms = some(), Terms(labels=("a", "b"))
    run(PREDICTION, model, terms, data, batches_to_run=None)
    full = list(laws)
    laws.clear()
    run(PREDICTION, model, terms, replace(data, records=data.records[1:]), batches_to_run=None)
    # The batches of a step follow one another: 2 labels times K.
    moved = [
        {
            number % (2 * K)
            for number in range(first, first + len(full) // ROUNDS)
            if full[number] != laws[number]
        }
        for first in range(0, len(full), len(full) // ROUNDS)
    ]
    assert [len(each) for each in moved] == [1] * ROUNDS


@pytest.mark.parametrize("name", RUNNERS)
@pytest.mark.parametrize("most", [1_000, 1], ids=["reading", "writing"])
def test_where_memory_runs_out_an_amplified_run_fails_and_another_goes_on(
    model, name, most, monkeypatch
):
    real = decoding.Decoder._forward

    def forward(self, store, masks, positions, ids=None, embedded=None):
        if len(positions) > 8 and positions.shape[1] <= most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return real(self, store, masks, positions, ids, embedded)

    monkeypatch.setattr(decoding.Decoder, "_forward", forward)
    terms = Terms(labels=("a", "b"))
    with pytest.raises(decoding.PassTooLarge, match="EXCHEQUER_DECODING_GIB"):
        run(name, model, terms, some())
    plain = {"amplification": "none", "rounds": 1, "batches_to_run": None}
    *_, progress, _ = run(name, model, terms, some(), **plain)
    assert progress.done == progress.total


@pytest.mark.parametrize("name", RUNNERS)
def test_two_workers_that_share_the_rounds_make_them_together(model, name):
    terms, turns = Terms(labels=("a", "b")), []
    for share in ((0, 2), (1, 2)):
        price, meter, *_ = run(name, model, terms, replace(some(), share=share))
        assert releases(meter.realized) == releases(price.dp)
        turns += sorted(set(meter.turns))
    assert len(turns) == len(set(turns)) == ROUNDS * 2 * G


def test_a_pair_of_private_records_has_coins_in_every_round(model):
    two = {
        "examples_per_context": 2,
        "context_partner": "exact-slot",
        "template": "{record} {partner}",
    }
    _, meter, *_ = run(PREDICTION, model, Terms(labels=("a", "b")), some(60), **two)
    assert len(set(meter.turns)) == ROUNDS * 2 * G
    assert np.unique([turn.round for turn in meter.turns]).tolist() == list(range(ROUNDS))


@pytest.mark.parametrize("name", RUNNERS)
@pytest.mark.parametrize("share", [(0, 1), (1, 2)])
def test_what_is_tried_before_anything_is_read_are_the_passes_of_the_run(
    model, name, share, monkeypatch
):
    module = {PREDICTION: private_prediction, INK: invisible_ink}[name]
    tried, made = [], []
    monkeypatch.setattr(
        module, "check_steady", lambda _, shape, sizes: tried.append((shape, sizes))
    )
    real = decoding.Decoder.__init__

    def noted(self, structure, batches, shape, sizes, *args, **options):
        made.append((shape, sizes))
        real(self, structure, batches, shape, sizes, *args, **options)

    monkeypatch.setattr(decoding.Decoder, "__init__", noted)
    terms, mechanism = Terms(labels=("a", "b")), mechanisms.get(name)
    run(name, model, terms, replace(some(), share=share), labels=("b",))
    raw = {
        **TOKENS[name],
        "batches_per_label": K,
        "batch_size": 4,
        "record_tokens": 8,
        "labels": ("b",),
    }
    raw |= {"template": "{record}", **({"public_template": "A text"} if name == INK else {})}
    plain = mechanism.parse(raw, terms)
    RUNNERS[name]().prepare(plain, terms, model, share)
    assert tried == [], (
        "where batches are known, one record's last digits in others' logits are as before"
    )
    secret = {**raw, "amplification": "allocation", "rounds": ROUNDS, "batches_to_run": G}
    RUNNERS[name]().prepare(mechanism.parse(secret, terms), terms, model, share)
    assert len(tried) == 1
    assert tried[0] in made


@pytest.mark.parametrize("name", RUNNERS)
def test_a_device_on_which_records_act_on_one_another_runs_no_such_job(model, name, monkeypatch):
    real = decoding.Decoder._forward

    def mixing(self, store, masks, positions, ids=None, embedded=None):
        return real(self, store, masks, positions, ids, embedded) * (1 + 1e-6 * ids.float().mean())

    monkeypatch.setattr(decoding.Decoder, "_forward", mixing)
    terms, mechanism = Terms(), mechanisms.get(name)
    secret = {
        "amplification": "allocation",
        "batches_per_label": K,
        "batch_size": 4,
        "record_tokens": 8,
    }
    with pytest.raises(Unsteady):
        RUNNERS[name]().prepare(mechanism.parse(secret, terms), terms, model, (0, 1))


@pytest.mark.parametrize("name", RUNNERS)
@pytest.mark.parametrize("room", [0, 3, 1_000], ids=["none", "of three", "of all"])
def test_a_round_draws_from_the_same_bits_whether_its_prompts_were_kept(
    model, monkeypatch, name, room
):
    """With room for three contexts the others are read again: no law and no draw differs. A prefix
    is read once, be it of private or of public contexts.
    """
    laws: list[bytes] = []
    read = []
    prefixes: list[tuple[int, ...]] = []
    real, real_prefix = decoding.Decoder._read_apart, decoding.Decoder._read_prefix

    def drawn(scores, _scale):
        laws.append(scores.tobytes())
        return len(laws) % len(scores)

    def counted(self, apart, rows):
        read.append(len(rows))
        return real(self, apart, rows)

    def noted(self, prefix):
        prefixes.append(prefix)
        return real_prefix(self, prefix)

    monkeypatch.setattr("workers.noise.meter.draw", drawn)
    monkeypatch.setattr(decoding.Decoder, "_read_prefix", noted)
    texts = [Record(f"u{i}", "ab"[i % 2], f"{i} soups were cold.") for i in range(24)]
    data, terms = Records(("a", "b"), tuple(texts), b"k" * 32), Terms(labels=("a", "b"))
    with monkeypatch.context() as again:
        again.setattr(decoding.Decoder, "_recall", None)  # every round reads all of its prompts
        again.setattr(RUNNERS[name].__module__ + ".KeptContexts", lambda *_: None)
        run(name, model, terms, data, rounds=3, batches_to_run=K, template="Of {label}: {record}")
    plain = list(laws)
    assert set(Counter(prefixes).values()) == {3}
    laws.clear()
    prefixes.clear()
    monkeypatch.setattr(decoding.Decoder, "_read_apart", counted)
    real_room = KeptContexts.__init__

    def small(self, structure, shape, memory):
        real_room(self, structure, shape, memory)
        each = cache_bytes(model.network, shape.rest) + 4 * model.structure.hidden
        self.bytes = room * each

    monkeypatch.setattr(KeptContexts, "__init__", small)
    run(name, model, terms, data, rounds=3, batches_to_run=K, template="Of {label}: {record}")
    assert laws == plain
    assert set(Counter(prefixes).values()) == {1}
    assert sum(read) == 24 + 2 * max(0, 24 - room)


def test_a_context_serves_from_the_next_round_on(model):
    """Or the time of a round would tell how many of its records are alike."""
    kept = KeptContexts(model.structure, Shape(1, 2, 1), 2**20)
    batch, sizes = Batch([[5, 6], [5, 6]], [4]), Sizes(16, 16, 1)

    def read() -> list[int | None]:
        decoder = decoding.Decoder(
            model.structure, [batch], Shape(1, 2, 1), sizes, fixed=True, kept=kept
        )
        list(decoder.read())
        return [kept.place(key) for key in decoder.keys]

    assert read() == [None, None]
    assert kept.used == 2
    kept.begin_round()
    assert read() == [1, 1]
    assert kept.used == 2


def test_nothing_of_a_round_stays_in_memory_that_the_next_one_uses(model):
    """A context without a finite number would else make all that stand in its row so."""
    kept = KeptContexts(model.structure, Shape(1, 2, 2), 2**20)

    @torch.inference_mode()
    def written() -> torch.Tensor:
        kept.begin_round()
        decoder = decoding.Decoder(
            model.structure,
            [Batch([[5, 6], [7]], [4])],
            Shape(1, 2, 2),
            Sizes(16, 16, 1),
            fixed=True,
            whole=True,
            kept=kept,
        )
        list(decoder.read())
        (_, values), *_ = decoder.step({0: 8})
        for layer in decoder.store.own:
            layer.keys.fill_(torch.nan)
            layer.values.fill_(torch.nan)
        return values

    assert torch.equal(written(), written())


def test_prefixes_are_kept_while_there_is_room(model):
    each = cache_bytes(model.network, 2)
    kept = KeptContexts(model.structure, Shape(2, 2, 1), 2 * each * PREFIXES)
    read = []

    def prefix(ids: tuple[int, ...]) -> None:
        read.append(ids)

    for ids in ((1, 2), (3, 4), (5, 6), (1, 2), (3, 4), (5, 6)):
        kept.prefix(ids, prefix)
    assert read == [(1, 2), (3, 4), (5, 6), (5, 6)]
