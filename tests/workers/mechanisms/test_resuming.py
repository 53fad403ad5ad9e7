# ruff: noqa: F811 (fixtures of other files)
"""Runs that are stopped and go on: their texts are those of one attempt; what was drawn is not read
again.
"""

from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import workers
from accountant.core import mechanisms
from accountant.core.privacy.events import FREE
from accountant.core.privacy.price import Terms
from tests.workers.mechanisms.test_contexts import CONFIGURATIONS, public  # noqa: F401
from tests.workers.noise.test_kept_draws import Memory, Stopped
from workers import interruption, models
from workers.data.records import Record, Records
from workers.interface import NOTHING_PUBLIC, Progress
from workers.mechanisms import invisible_ink, noisy_count, private_prediction
from workers.noise.kept_draws import KeptDraws
from workers.noise.meter import Meter

pytestmark = pytest.mark.slow

RUNNERS = {
    "private-prediction": private_prediction.Runner,
    "invisible-ink": invisible_ink.Runner,
    "noisy-count": noisy_count.Runner,
}
PREDICTION = {
    "tokens_per_batch": 12,
    "max_text_tokens": 5,
    "record_tokens": 8,
    "batches_per_label": 3,
    "min_tokens": 0,
}
INK = {
    "min_tokens": 0,
    "max_tokens": 4,
    "texts_per_batch": 3,
    "record_tokens": 8,
    "batches_per_label": 3,
}
ROUNDS = {"amplification": "allocation", "rounds": 2, "batches_to_run": 2}
CASES = {
    "mean": ("private-prediction", {**PREDICTION, "batch_size": 3}),
    "median": (
        "private-prediction",
        {**PREDICTION, "aggregation": "median", "ex_post_cap": 9.0, "batch_size": 3},
    ),
    "rounds": ("private-prediction", {**PREDICTION, **ROUNDS, "batch_size": 3}),
    "ink": ("invisible-ink", {**INK, "batch_size": 3}),
    "ink in rounds": ("invisible-ink", {**INK, **ROUNDS, "batch_size": 3}),
}
COUNT = ("noisy-count", {"epsilon": 0.1})
DATA = Records(
    ("a", "b"),
    tuple(
        Record(f"u{i}", "ab"[i % 2], f"Day {i}: the soup was {'cold' if i % 3 else 'hot'}.")
        for i in range(14)
    ),
    b"k" * 32,
)
TERMS = Terms(labels=("a", "b"))


@pytest.fixture(scope="module")
def model():
    """The bundled one with room for two batches at a time, and many tokens that end a text."""
    folder = Path(workers.__file__).parent / "sample" / "model"
    found = models.load(folder, models.digest(folder), "float32")
    ends = frozenset(range(0, found.vocabulary, 3))
    return replace(found, memory_bytes=3_000_000, end_tokens=ends)


class Numbered(KeptDraws):
    """Kept draws that number the draws of each part."""

    now = 0

    def __init__(self, store: Memory | None) -> None:
        super().__init__(store)
        self.numbers: Counter = Counter()

    def take(self, part):
        found = super().take(part)
        self.numbers[part] += found is not None
        return found

    def before_drawing(self, part) -> None:
        super().before_drawing(part)
        Numbered.now = self.numbers[part]
        self.numbers[part] += 1


def chosen(scores, scale) -> int:
    """A draw that follows from its number and what it is drawn from, but for last digits."""
    order = np.argsort(scores, kind="stable")
    return int(order[-1 - (Numbered.now + int(order[-1])) % min(7, len(order))])


class Run:
    """One attempt with the draws kept in `store`."""

    def __init__(self, model, case: str, store: Memory | None = None) -> None:
        name, raw = CASES.get(case, COUNT)
        mechanism, self.runner = mechanisms.get(name), RUNNERS[name]()
        self.parameters = mechanism.parse(raw, TERMS)
        price = mechanism.price(self.parameters, TERMS)
        self.model = model
        self.meter = Meter(price.dp or FREE, price.ex_post_draws, kept=Numbered(store))
        self.progress = Progress(self.runner.total(self.parameters, TERMS))

    def texts(self, public=NOTHING_PUBLIC) -> list:
        with interruption.watching(lambda: None):
            made = list(
                self.runner.run(
                    self.parameters, TERMS, DATA, self.model, self.meter, self.progress, public
                )
            )
        self.meter.kept.keep()
        assert not self.meter.kept.left
        return made


class Passes:
    """Looks before passes: keeps what was drawn, as a worker does, and stops the run at the n-th
    pass.
    """

    def __init__(self, run: Run, most: int | None = None, keeps: bool = True) -> None:
        self.run, self.most, self.keeps = run, most, keeps
        self.count = 0
        self.hook = run.model.structure.base.register_forward_pre_hook(self._begun)

    def _begun(self, *_) -> None:
        self.count += 1
        if self.keeps or self.count != self.most:
            self.run.meter.kept.keep()
        if self.count == self.most:
            raise Stopped

    def __enter__(self) -> "Passes":
        return self

    def __exit__(self, *_) -> None:
        self.hook.remove()


@pytest.mark.parametrize(
    ("case", "keeps"),
    [("mean", True), *((case, False) for case in ("mean", "median", "rounds", "ink in rounds"))],
)
def test_stopped_anywhere_the_texts_are_those_of_one_attempt(model, case, keeps, monkeypatch):
    """Stopped before a pass, its draws kept, or killed with those of one step lost: same texts in
    order.
    """
    monkeypatch.setattr("workers.noise.meter.draw", chosen)
    plain = Run(model, case)
    with Passes(plain) as passes:
        expected = plain.texts()
    assert not all(getattr(text, "complete", True) for text in expected) or case.startswith("ink")
    assert any(text.complete for text in expected)
    for most in range(1, passes.count, max(1, passes.count // 2)):
        store = Memory()
        with suppress(Stopped), Passes(first := Run(model, case, store), most, keeps):
            first.texts()
        before = store.by_part
        with suppress(Stopped), Passes(second := Run(model, case, store), most, keeps):
            second.texts()
        last = Run(model, case, store)
        assert last.texts() == expected
        assert last.meter.realized == plain.meter.realized
        assert last.meter.realized_ex_post == pytest.approx(plain.meter.realized_ex_post, rel=1e-5)
        assert last.progress.done == plain.progress.done == plain.progress.total
        assert all(store.by_part[name][: len(each)] == each for name, each in before.items())


@pytest.mark.parametrize("case", ["median", "rounds", "ink"])
def test_no_draw_is_made_twice_and_no_batch_read_again_once_its_group_is_written(
    model, case, monkeypatch
):
    """After four fifths of all passes: what goes on reads the prompts of its own group and later
    ones.
    """
    made: Counter = Counter()
    real_add = KeptDraws.add

    def add(self, part, outcome) -> None:
        made[part] += 1
        real_add(self, part, outcome)

    read: list[str] = []
    real_tokens = models.Prompt.tokens

    def tokens(self, record, record_tokens, partner=""):
        read.append(record)
        return real_tokens(self, record, record_tokens, partner)

    monkeypatch.setattr("workers.noise.meter.draw", chosen)
    monkeypatch.setattr(KeptDraws, "add", add)
    monkeypatch.setattr(models.Prompt, "tokens", tokens)
    model = replace(model, memory_bytes=1)  # a batch at a time
    with Passes(whole := Run(model, case, Memory())) as passes:
        whole.texts()
    draws, all_read = Counter(made), list(read)
    made.clear(), read.clear()
    store = Memory()
    with suppress(Stopped), Passes(first := Run(model, case, store), passes.count * 4 // 5):
        first.texts()
    half = list(read)
    read.clear()
    with Passes(second := Run(model, case, store)) as later:
        second.texts()
    assert made == draws
    assert sum(made.values()) == len(store.kept())
    again = len(half) + len(read) - len(all_read)
    assert 0 <= again <= 7, "at most the batch that was being written is read again"
    assert later.count <= passes.count / 2


def test_everything_drawn_needs_no_pass(model):
    store = Memory()
    for _ in range(2):
        with Passes(run := Run(model, "mean", store)) as passes:
            texts = run.texts()
    assert passes.count == 0
    assert texts


def test_a_count_is_released_once(model):
    counts = [
        [each.count for each in Run(model, "count", store).texts()] for store in [Memory()] * 3
    ]
    assert counts[0] == counts[1] == counts[2]
    assert np.unique([Run(model, "count", Memory()).texts()[0].count for _ in range(20)]).size > 1


def drawn(store: Memory) -> dict[str, list]:
    """What was kept, but for the ex-post costs of tokens, which differ in their last digits."""
    return {
        name: [each[0] if isinstance(each, list) else each for each in found]
        for name, found in store.by_part.items()
    }


#: Each kind of batch, of partner and of public context once.
KINDS = ("clusters, public partner", "exact slot", "median, fixed shot, public contexts")


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_batch_and_context_goes_on_as_it_began(model, public, name, monkeypatch):
    """Of a whole run, what was kept up to some point: the attempt after it releases the same."""
    monkeypatch.setattr("workers.noise.meter.draw", chosen)
    small = {"tokens_per_batch": 8, "max_text_tokens": 5, "record_tokens": 12, "batch_size": 3}
    CASES[name] = ("private-prediction", {"batches_per_label": 3, **small, **CONFIGURATIONS[name]})
    try:
        store = Memory()
        with Passes(whole := Run(model, name, store)) as passes:
            expected = whole.texts(public=public)
        for share in (0.1, 0.9):
            part = Memory()
            part.rows = store.rows[: max(1, int(share * len(store.rows)))]
            with Passes(later := Run(model, name, part)) as again:
                assert later.texts(public=public) == expected
            assert drawn(part) == drawn(store)
            assert later.meter.realized == whole.meter.realized
        assert again.count <= passes.count
    finally:
        del CASES[name]
