"""Every long work is stopped before its next forward pass, whoever runs the network."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from accountant.core.errors import Cancelled
from tests.workers.conftest import SAMPLE
from workers import interruption, models
from workers.data import fingerprints, records
from workers.data.public_text import PublicPrompt, vouch
from workers.embedding import embedders, neighbours
from workers.engine import Batch, Decoder, Shape
from workers.engine.sizing import Sizes
from workers.engine.soft_prompts import soft_loss
from workers.evaluation import adaptation, language
from workers.generation.local_writer import LocalWriter, generator
from workers.generation.writer import Manner

FOLDER = SAMPLE / "model"


class Stop(Exception):
    """What a look raises."""


@pytest.fixture(scope="module")
def model() -> models.LocalModel:
    return models.load(FOLDER, models.digest(FOLDER), "float32")


def after(looks: int) -> Callable[[], None]:
    """A look that stops the work at the so-manieth time, and fails the test where it goes on after
    that.
    """
    left = [looks]

    def look() -> None:
        assert left[0] > 0, "it went on"
        left[0] -= 1
        if not left[0]:
            raise Stop

    return look


def reads_prompts(model) -> None:
    decoder = Decoder(model.structure, [Batch([[1, 2]] * 40)], Shape(0, 2, 4), Sizes(8, 8, 1))
    list(decoder.read())


def steps(model) -> None:
    decoder = Decoder(model.structure, [Batch([[1, 2]])], Shape(0, 2, 40), Sizes(1, 1, 1))
    list(decoder.read())
    for _ in range(40):
        list(decoder.step({0: 3}))


def writes(model) -> None:
    prompt = PublicPrompt(vouch("A review of a lamp:"))
    list(LocalWriter(model, generator(model.device, 0)).write([prompt], Manner(30, 1.0), 4))


def learns_a_soft_prompt(model) -> None:
    for _ in range(20):
        soft_loss(model.structure, torch.zeros((2, model.structure.hidden)), [[1, 2, 3]])


def embeds(model) -> None:
    embedder = embedders.load(FOLDER, models.digest(FOLDER, embedders.FILES))
    list(embedder.embed([f"text {number}" for number in range(40 * embedders.ROWS)], 8))


def evaluates(model) -> None:
    texts = [f"a text about number {number}" for number in range(40)]
    language.next_token_accuracy(FOLDER, texts, texts, steps=20, batch=2, tokens=8)


def adapts(model) -> None:
    rows = np.eye(8, dtype=np.float32)
    pair = rows, ["a", "b"] * 4
    adaptation.adapted_accuracy(pair, rows, pair, features="f")


def clusters(model) -> None:
    neighbours.kmeans(np.random.default_rng(0).normal(size=(600, 4)).astype(np.float32), 20, 0)


def tokenises(model) -> None:
    prompt = models.Prompt(model.tokenizer, "{record}", None)
    for number in range(30):
        prompt.tokens(f"record {number}", 8)


def reads_records(model) -> None:
    list(records.rows(str(SAMPLE / "private.csv"), []))


def hashes_a_model(model) -> None:
    for _ in range(30):
        models.digest(FOLDER)


WORK = (
    *(reads_prompts, steps, writes, learns_a_soft_prompt, embeds, evaluates, adapts),
    *(clusters, tokenises, reads_records, hashes_a_model),
)


@pytest.mark.parametrize("work", WORK)
@pytest.mark.parametrize("looks", [1, 4])
def test_work_stops_at_the_first_look_that_says_so(model, work, looks):
    with interruption.watching(after(looks)), pytest.raises(Stop):
        work(model)


def test_no_pass_begins_after_the_look(model):
    """The base's own count of passes: none between the look that raises and the end."""
    begun = []
    hook = model.structure.base.register_forward_hook(lambda *_: begun.append(1))
    try:
        with interruption.watching(after(3)), pytest.raises(Stop):
            steps(model)
    finally:
        hook.remove()
    assert len(begun) == 2


def test_outside_nothing_looks(model):
    interruption.check()
    with interruption.watching(after(1)):
        pass
    steps(model)


def test_what_stops_the_reading_of_a_corpus_is_no_fault_of_its_data():
    def look() -> None:
        raise Cancelled("cancelled")

    layout = records.Layout(text_template="{text}")
    with interruption.watching(look), pytest.raises(Cancelled):
        list(fingerprints.fingerprints(str(SAMPLE / "private.csv"), layout, b"k" * 32))
