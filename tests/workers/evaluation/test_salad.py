"""Word salad is not praised: real words in a random order, beside what a model writes alone."""

import csv
import random

import pytest

from accountant.core.mechanisms.evaluation import MECHANISM
from accountant.core.privacy.price import Terms
from workers import models, sample
from workers.data.public_text import PublicPrompt, vouch
from workers.evaluation import zero_shot
from workers.evaluation.run import LIKENESS, Sides, Texts, Tools, evaluate
from workers.generation.local_writer import LocalWriter, generator
from workers.generation.writer import Manner

pytestmark = pytest.mark.slow

METRICS = "loss, usable, labels, lengths, openings, trts"


@pytest.fixture(scope="module")
def model():
    return models.load(sample.MODEL_DIR, models.digest(sample.MODEL_DIR))


@pytest.fixture(scope="module")
def sides(model) -> Sides:
    """Texts of two labels, what the bundled model writes of each, and real texts shuffled."""
    with sample.PUBLIC_SAMPLE_CSV.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))[:120]
    reference = Texts([row["text"] for row in rows], [row["sentiment"] for row in rows])
    prompts = {
        name: PublicPrompt(vouch(f"A review ({name}):")) for name in ("negative", "positive")
    }
    writer = LocalWriter(model, generator(model.device, 1))
    alone = zero_shot.write(writer, zero_shot.Asked(prompts, Manner(40, 0.7, "\n")), 40)
    return Sides(alone, reference.part(slice(0, 40)), reference.part(slice(40, None)), alone)


def salad(texts: Texts) -> Texts:
    """Return the same words of each text in a random order."""
    draw = random.Random(0)
    shuffled = [" ".join(draw.sample(text.split(), len(text.split()))) for text in texts.texts]
    return Texts(shuffled, texts.labels, [True] * len(shuffled))


def figures(sides: Sides, ours: Texts, model):
    parameters = MECHANISM.parse({"from_job": "0" * 36, "corpus": "c", "metrics": METRICS}, Terms())
    made = evaluate(
        parameters, Sides(ours, sides.real, sides.held_out, sides.zero_shot), Tools(None, model)
    )
    return {each.name: each for each in made}


def test_each_headline_figure_ranks_salad_below_zero_shot_and_says_so(sides, model):
    found = figures(sides, salad(sides.real), model)
    headlines = [each for each in found.values() if each.headline]
    assert [each.name for each in headlines] == ["Loss", "Usable texts", "Right labels"]
    for each in headlines:
        other = each.beside["zero-shot"]
        worse = each.value > other.value if each.name == "Loss" else each.value < other.value
        assert worse, each.name
        assert each.sentence.startswith("Worse than zero-shot"), each.name


def test_salad_has_no_figure_of_likeness_and_real_texts_have_all(sides, model):
    salads, real = (figures(sides, each, model) for each in (salad(sides.real), sides.real))
    for metric in ("lengths", "openings", "trts"):
        name = LIKENESS[metric]
        assert "word salad" in salads[name].sentence, name
        assert real[name].value == real[name].value, name
    assert "Worse" not in real["Usable texts"].sentence
