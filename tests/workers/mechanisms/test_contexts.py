"""Every configuration of private prediction by the real model: meter against price, what contexts
show.
"""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

import workers
from accountant.core import mechanisms
from accountant.core.mechanisms.private_prediction import count_sensitivity
from accountant.core.privacy.events import FREE, releases
from accountant.core.privacy.price import Neighbours, Terms
from accountant.core.privacy.units import EPSILON_UNITS
from accountant.core.template import NAMED_TEMPLATES
from tests.aggregates import clip_to_grid, median_interval, median_token_costs
from workers import models
from workers.data.corpora import Corpus
from workers.data.records import Record, Records
from workers.embedding import embedders
from workers.embedding.public_contexts import from_corpus, from_shots
from workers.engine.aggregation import GRID
from workers.interface import SAFETENSORS, Artifact, Progress, Public, Text
from workers.mechanisms.private_prediction import Contexts, Runner
from workers.models import ModelError, Prompt
from workers.noise.meter import Meter

PRICE = mechanisms.get("private-prediction")
FOLDER = Path(workers.__file__).parent / "sample" / "model"
LABELS = ("a", "b")
TERMS = Terms(labels=LABELS)

CLUSTERS = {
    "batching": "clusters",
    "public_corpus": "c",
    "embedding": "e",
    "public_centres": 6,
    "clusters": 4,
    "cluster_epsilon": 1.0,
}
TWO = {"examples_per_context": 2}
MEDIAN = {"aggregation": "median", "ex_post_cap": 1.0}
PUBLIC = TWO | {"context_partner": "public", "public_corpus": "c"}
SHOT = TWO | {"context_partner": "shot", "shots": "The bread was fine.\n---\nThe room was cold."}
EXACT, LOWEST = (TWO | {"context_partner": rule} for rule in ("exact-slot", "lowest-hash"))

CONFIGURATIONS = {
    "clusters": CLUSTERS,
    "clusters, public partner": CLUSTERS | PUBLIC,
    "clusters, exact slot": CLUSTERS | EXACT,
    "public partner": PUBLIC,
    "fixed shot": SHOT,
    "exact slot": EXACT,
    "lowest hash": LOWEST,
    "median of clusters": MEDIAN | CLUSTERS,
    "median, public partner": MEDIAN | PUBLIC,
    "median, fixed shot": MEDIAN | SHOT,
    "median, fixed shot, public contexts": MEDIAN | SHOT | {"public_corpus": "c"},
    "median, exact slot": MEDIAN | EXACT,
    "median, public contexts": MEDIAN | {"public_corpus": "c"},
}


@pytest.fixture(scope="module")
def model():
    return models.load(FOLDER, models.digest(FOLDER))


@pytest.fixture(scope="module")
def public(tmp_path_factory) -> Public:
    file = tmp_path_factory.mktemp("public") / "corpus.csv"
    rows = [
        f"{LABELS[i % 2]},Public {'food' if i % 3 else 'room'} number {i} of {LABELS[i % 2]}."
        for i in range(24)
    ]
    file.write_text("label,text\n" + "\n".join(rows) + "\n")
    corpus = Corpus("c", str(file), "{text}", "label")
    embedder = embedders.load(FOLDER, models.digest(FOLDER, embedders.FILES))
    return Public({"public_corpus": corpus}, {"embedding": embedder}, {})


def reviews(count: int, label: str | None = "a") -> tuple[Record, ...]:
    return tuple(
        Record(f"u{i}", label, f"The soup was cold on day {i} and I left.") for i in range(count)
    )


def run(model, public, raw: dict, data: Records, terms: Terms = TERMS):
    small = {"record_tokens": 20, "tokens_per_batch": 8, "max_text_tokens": 4, "batch_size": 4}
    parsed = PRICE.parse({"batches_per_label": 3, **small, **raw}, terms)
    assert PRICE.missing(parsed) is None
    price = PRICE.price(parsed, terms)
    meter = Meter(price.dp or FREE, price.ex_post_draws)
    progress = Progress(Runner().total(parsed, terms))
    out = list(Runner().run(parsed, terms, data, model, meter, progress, public))
    return parsed, price, out, meter, progress


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_meter_equals_price_for_each_configuration(model, public, name):
    """Label b has no record and runs all the same; progress is public; an ex-post job leaves texts
    only.
    """
    raw = CONFIGURATIONS[name]
    data = Records(LABELS, reviews(30), b"k" * 32)
    parsed, price, out, meter, progress = run(model, public, raw, data)
    assert releases(meter.realized) == releases(price.dp or FREE)
    assert progress.done == progress.total == 2 * 3 * 8
    left = [each for each in out if isinstance(each, Artifact)]
    assert {each.label for each in out if isinstance(each, Text)} <= set(LABELS)
    if parsed.aggregation == "median":
        assert meter.realized_ex_post > 0
        assert left == []
    elif parsed.batching == "clusters":
        (artifact,) = left
        tensors = artifact.tensors()
        assert (artifact.kind, artifact.media_type) == ("clusters", SAFETENSORS)
        assert tensors["counts"].shape == (2, 6)
        assert tensors["batches"].sum(axis=1).tolist() == [3, 3]
        assert tensors["kept"].shape == (2, 2)
        assert tensors["centres"].shape == (6, 160)
    else:
        assert left == []


@pytest.mark.parametrize("neighbours", list(Neighbours))
@pytest.mark.parametrize("bound", [1, 3])
def test_the_counts_get_the_noise_that_is_priced(model, public, neighbours, bound, monkeypatch):
    """Scale = 1 / epsilon times the sensitivity, on true counts that add up to the records."""
    seen = []

    def catch(values, scale):
        seen.append((values.copy(), scale))
        return values

    monkeypatch.setattr("workers.noise.meter.laplace_on_grid", catch)
    terms = Terms(neighbours, labels=LABELS, max_records_per_unit=bound)
    data = Records(LABELS, reviews(9), b"k" * 32)
    raw = {**CLUSTERS, "tokens_per_batch": 1, "max_text_tokens": 1, "cluster_epsilon": 0.25}
    run(model, public, raw, data, terms)
    ((counts, scale),) = seen
    assert counts.sum(axis=1).tolist() == [9, 0]
    assert (
        scale
        == 4 * count_sensitivity(terms)
        == 4 * bound * (2 if neighbours is Neighbours.REPLACE_ONE else 1)
    )


def test_batches_are_those_of_the_clusters_that_were_kept(model, public, monkeypatch):
    """Without noise, of two themes: each batch holds one of them."""
    monkeypatch.setattr("workers.noise.meter.laplace_on_grid", lambda values, _: values)
    seen = []
    real = Contexts.batch

    def look(self, label, examples):
        seen.append(examples)
        return real(self, label, examples)

    monkeypatch.setattr(Contexts, "batch", look)
    themes = ("Public food number 7 of a.", "Public room number 6 of a.")
    data = Records(
        (None,), tuple(Record(f"u{i}", None, themes[i % 2]) for i in range(40)), b"k" * 32
    )
    raw = {**CLUSTERS, "clusters": 2, "public_centres": 24, "batches_per_label": 4}
    run(model, public, raw | {"tokens_per_batch": 1, "max_text_tokens": 1}, data, Terms())
    held = [Counter(text for text, _ in batch) for batch in seen]
    assert all(len(each) <= 1 for each in held)
    assert sum(held, Counter()) == dict.fromkeys(themes, 20)


# --- what contexts show -------------------------------------------------------------------------


def contexts(model, public, raw: dict, terms: Terms = TERMS) -> Contexts:
    parsed = PRICE.parse(
        {"record_tokens": 20, "batches_per_label": 1, "batch_size": 4, **raw}, terms
    )
    labels: tuple[str | None, ...] = terms.labels or (None,)
    return Contexts(parsed, model.tokenizer, labels, public)


def test_a_partner_is_public_of_the_same_label_and_follows_its_record_alone(model, public):
    made = contexts(model, public, PUBLIC)
    data = Records(LABELS, (*reviews(8, "a"), *reviews(8, "b")), b"k" * 32)
    found = made.of(data, 1)
    corpus = Counter(public.corpora["public_corpus"].texts())
    pairs = {(label, one): two for (label, _), held in found.items() for one, two in held}
    assert all((two, label) in corpus for (label, _), two in pairs.items())
    assert len(set(pairs.values())) > 3
    fewer = made.of(Records(LABELS, data.records[3:11], data.key), 1)
    assert all(pairs[label, one] == two for (label, _), held in fewer.items() for one, two in held)


def test_a_corpus_without_labels_serves_all_and_one_with_labels_a_dataset_without(public):
    labelled = public.corpora["public_corpus"]
    plain = Corpus("c", labelled.data, "{text}")
    assert len(from_corpus(plain, LABELS).texts["b"]) == 24
    assert len(from_corpus(labelled, (None,)).texts[None]) == 24
    assert all(text.endswith("of b.") for text in from_corpus(labelled, LABELS).texts["b"])


def test_shots_are_one_for_all_labels_or_each_labels_own(model, public):
    made = contexts(model, public, SHOT)
    data = Records(LABELS, (*reviews(2, "a"), *reviews(2, "b")), b"k" * 32)
    shown = {label: {two for _, two in held} for (label, _), held in made.of(data, 1).items()}
    assert shown == {"a": {"The bread was fine."}, "b": {"The room was cold."}}
    assert from_shots(["x"], LABELS).texts == {"a": ["x"], "b": ["x"]}


def test_the_medians_public_contexts_are_the_same_in_every_batch(model, public):
    made = contexts(model, public, MEDIAN | {"public_corpus": "c", "public_contexts": 5})
    assert made.public("a") == made.public("a")
    assert len(set(made.public("a"))) == 5
    assert {text for text, _ in made.public("a")}.isdisjoint(text for text, _ in made.public("b"))
    assert len(made.batch("a", []).contexts) == 5
    many = contexts(model, public, MEDIAN | {"public_corpus": "c", "public_contexts": 30})
    assert len(many.public("a")) == 30  # of 12 texts
    two = contexts(model, public, MEDIAN | EXACT | {"public_corpus": "c"})
    assert all(one and other and one != other for one, other in two.public("a"))
    assert contexts(model, public, MEDIAN).public("a") == [("", "")]
    assert contexts(model, public, {}).public("a") == []


@pytest.mark.parametrize(
    "raw", [MEDIAN | {"public_corpus": "c", "public_contexts": 3}, MEDIAN | PUBLIC, MEDIAN]
)
def test_the_medians_costs_are_those_of_private_and_public_contexts(
    model, public, raw, monkeypatch
):
    """The meter's costs of a first token equal those of plain forward passes of all contexts."""
    seen = []

    def catch(self, scores, scale, costs):
        seen.append((scores * float(scale), costs))
        return int(np.argmax(scores))

    monkeypatch.setattr("workers.noise.meter.Branch.ex_post_token", catch)
    data = Records((None,), reviews(5, None), b"k" * 32)
    small = {"batches_per_label": 1, "tokens_per_batch": 1, "max_text_tokens": 1, "min_tokens": 0}
    parsed, *_ = run(model, public, raw | small, data, Terms())
    made = contexts(model, public, parsed.model_dump(), Terms())
    shown = made.public(None)
    shown = shown * parsed.public_contexts if parsed.public_corpus is None else shown
    shown += made.of(data, 1)[None, 0]
    assert len(shown) == parsed.public_contexts + 5
    ids = [made.prompts[None].tokens(one, parsed.record_tokens, two) for one, two in shown]
    with torch.inference_mode():
        logits = torch.stack([model.network(torch.tensor([each])).logits[0, -1] for each in ids])
        alone = model.network(torch.tensor([made.without_record(None)])).logits[0, -1]
    logits = logits[:, alone.topk(parsed.top_k).indices.sort().values]
    grid = clip_to_grid(logits, parsed.clip).double() * parsed.clip / GRID
    ((scores, costs),) = seen
    assert costs == pytest.approx(median_token_costs(grid, parsed.temperature).numpy(), abs=1e-3)
    assert scores == pytest.approx(
        (median_interval(grid)[1] / parsed.temperature).numpy(), abs=1e-3
    )
    assert max(costs) < 100 * EPSILON_UNITS


# --- templates ----------------------------------------------------------------------------------

CHAT = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content | trim }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


class Chat:
    """The sample's tokenizer, with a chat template."""

    def __init__(self, tokenizer, template: str | None = CHAT) -> None:
        self._own, self.chat_template = tokenizer, template

    def __getattr__(self, name: str):
        return getattr(self._own, name)

    def apply_chat_template(self, *arguments, **named):
        return self._own.apply_chat_template(*arguments, chat_template=self.chat_template, **named)


@pytest.mark.parametrize("name", NAMED_TEMPLATES)
@pytest.mark.parametrize("raw", [{}, SHOT])
def test_named_templates_show_label_and_examples(model, name, raw):
    parsed = PRICE.parse({**raw, "template": name}, TERMS)
    assert parsed == PRICE.parse(parsed.model_dump(), TERMS)
    assert (parsed.stop is not None) == (name == "base")
    tokenizer = Chat(model.tokenizer)
    prompt = Prompt(tokenizer, parsed.template, "a")
    text = model.tokenizer.decode(prompt.tokens("The one.", 20, "The other."))
    shown = ["The one.", "The other."] if raw else ["The one."]
    assert [text.count(each) for each in shown] == [1] * len(shown)
    assert "{" not in text
    assert text.count("<|user|>") == text.count("<|assistant|>") == (name == "instruction")
    if name == "instruction":
        assert text.endswith("<|end|><|assistant|>")
        # the chat template writes its own, or none
        assert prompt.fixed[0][0] != model.tokenizer.bos_token_id


def test_a_chat_needs_a_chat_template_that_shows_the_message(model):
    template = NAMED_TEMPLATES["instruction"][0]
    for broken in (None, "hello"):
        with pytest.raises(ModelError, match="chat template"):
            Prompt(Chat(model.tokenizer, broken), template, None)


def test_both_records_are_cut_at_the_public_length(model):
    prompt = Prompt(model.tokenizer, "One: {partner} two: {record}\nThree:", None)
    long = prompt.tokens("good food " * 500, 24, "bad drink " * 500)
    assert len(long) == prompt.fixed_tokens + 48
    text = model.tokenizer.decode(long)
    assert text.index("bad drink") < text.index("good food")
