"""Every format against arithmetic by hand; what can't be embedded is a row of zeros and disturbs
nobody.
"""

import csv
import gzip
import json
import uuid
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoModel, BertConfig, BertModel, PreTrainedTokenizerFast

from accountant import settings
from accountant.catalogue import models as model_catalogue
from accountant.catalogue import registration
from tests.support import SHARED, needs_shared, person
from tests.workers.conftest import SAMPLE
from workers.embedding import embedders
from workers.embedding.embedders import embed_all, inspect, load
from workers.embedding.neighbours import kmeans, nearest, unit
from workers.jobs import checks
from workers.models import ModelError

pytestmark = pytest.mark.slow

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "cat", "sat", "on", "a"]
WORDS += ["mat", "and", "dogs", "ran", "far"]
TEXTS = ["the cat sat", "dogs ran far and the cat sat on a mat", "a mat", "the Cat"]


def word_tokenizer() -> Tokenizer:
    made = Tokenizer(
        models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="[UNK]")
    )
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return made


def write(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


@pytest.fixture(scope="module")
def bert(tmp_path_factory) -> Path:
    """A transformers encoder, random, of two layers."""
    folder = tmp_path_factory.mktemp("bert")
    torch.manual_seed(0)
    sizes = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 64,
    }
    network = BertModel(BertConfig(vocab_size=len(WORDS), max_position_embeddings=16, **sizes))
    network.save_pretrained(folder)
    words = word_tokenizer()
    words.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]", model_max_length=16
    ).save_pretrained(folder)
    return folder


def sentence_transformer(bert: Path, folder: Path, pooling: dict, **settings: object) -> Path:
    """The folder that sentence-transformers writes for an encoder with a pooling."""
    for file in bert.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    modules = [
        {"path": path, "type": f"sentence_transformers.models.{kind}"}
        for path, kind in kinds.items()
    ]
    write(folder / "modules.json", modules)
    write(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": 32, **pooling})
    write(folder / "sentence_bert_config.json", settings)
    return folder


def states(folder: Path, text: str) -> np.ndarray:
    """Last hidden states of one text alone, without any padding."""
    ids = [2, *(WORDS.index(word) if word in WORDS else 1 for word in text.split()), 3]
    with torch.no_grad():
        return (
            AutoModel.from_pretrained(folder)(input_ids=torch.tensor([ids]))
            .last_hidden_state[0]
            .numpy()
        )


def ready(folder: Path) -> embedders.Embedder:
    return load(folder, inspect(folder)["sha256"])


# --- formats ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pooling", "pick"),
    [
        (
            {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False},
            lambda s: s.mean(axis=0),
        ),
        ({"pooling_mode_cls_token": True}, lambda s: s[0]),
        ({"pooling_mode_lasttoken": True}, lambda s: s[-1]),
        ({"pooling_mode": "mean"}, lambda s: s.mean(axis=0)),
    ],
)
def test_a_sentence_transformers_folder(bert, tmp_path, pooling, pick):
    folder = sentence_transformer(bert, tmp_path, pooling)
    expected = unit([pick(states(bert, text)) for text in TEXTS])
    made = embed_all(ready(folder), TEXTS)
    assert made.dtype == np.float32
    assert np.allclose(made, expected, atol=1e-5)
    assert np.allclose(np.linalg.norm(made, axis=1), 1, atol=1e-5)


def test_its_cut_case_and_prompt_are_followed(bert, tmp_path):
    folder = sentence_transformer(
        bert, tmp_path, {"pooling_mode_mean_tokens": True}, max_seq_length=6, do_lower_case=True
    )
    write(
        folder / "config_sentence_transformers.json",
        {"prompts": {"q": "a "}, "default_prompt_name": "q"},
    )
    made = embed_all(ready(folder), ["THE CAT", "dogs ran far and the cat"])
    expected = unit(
        [states(bert, "a the cat").mean(axis=0), states(bert, "a dogs ran far").mean(axis=0)]
    )
    assert np.allclose(made, expected, atol=1e-5)


def test_an_encoder_is_pooled_by_its_mean(bert):
    expected = unit([states(bert, text).mean(axis=0) for text in TEXTS])
    assert np.allclose(embed_all(ready(bert), TEXTS), expected, atol=1e-5)
    assert inspect(bert)["dimensions"] == 32


def test_a_causal_model_is_pooled_by_its_mean():
    folder = SAMPLE / "model"
    model = ready(folder)
    network, words = AutoModel.from_pretrained(folder, dtype=torch.float32), model.tokenizer
    texts = ["The food was cold.", "Great service and a friendly waiter!"]
    with torch.no_grad():
        one = [
            network(**words(t, return_tensors="pt")).last_hidden_state[0].mean(dim=0).numpy()
            for t in texts
        ]
    assert np.allclose(embed_all(model, texts, tokens=64), unit(one), atol=1e-5)


@pytest.mark.parametrize("quantised", [True, False])
def test_static_vectors_in_model2vecs_format(tmp_path, quantised):
    made = np.random.default_rng(0)
    vectors = made.standard_normal((5 if quantised else len(WORDS), 8)).astype(np.float32)
    tensors, table = {"embeddings": vectors}, vectors.astype(float)
    if quantised:
        tensors["mapping"] = made.integers(0, 5, len(WORDS)).astype(np.int32)
        tensors["weights"] = made.random(len(WORDS))
        table = table[tensors["mapping"]] * tensors["weights"][:, None]
    save_file(tensors, tmp_path / "model.safetensors")
    word_tokenizer().save(str(tmp_path / "tokenizer.json"))
    write(tmp_path / "config.json", {"model_type": "model2vec", "normalize": True})
    # one unknown word; one word past the cut
    texts = ["the cat sat", "a bird sat", "mat " * 600 + "dogs"]
    ids = [[4, 5, 6], [8, 6], [9] * 512]
    expected = unit([table[each].mean(axis=0) for each in ids])
    assert np.allclose(embed_all(ready(tmp_path), texts), expected, atol=1e-6)
    assert np.allclose(
        embed_all(ready(tmp_path), texts, tokens=1), unit(table[[4, 8, 9]]), atol=1e-6
    )


def test_a_static_embedding_of_sentence_transformers(tmp_path):
    table = np.random.default_rng(0).standard_normal((len(WORDS), 8)).astype(np.float32)
    folder = tmp_path / "0_StaticEmbedding"
    folder.mkdir()
    save_file({"embedding.weight": table}, folder / "model.safetensors")
    word_tokenizer().save(str(folder / "tokenizer.json"))
    kind = "sentence_transformers.sentence_transformer.modules.static_embedding.StaticEmbedding"
    write(tmp_path / "modules.json", [{"path": folder.name, "type": kind}])
    expected = unit([table[[4, 5]].mean(axis=0), table[[13]].mean(axis=0)])
    assert np.allclose(embed_all(ready(tmp_path), ["the cat", "far"]), expected, atol=1e-6)


# --- texts that can't be embedded, and shapes ---------------------------------------------------


def test_texts_without_content_are_zero_and_disturb_nobody(bert):
    model = ready(bert)
    texts = ["the cat", "", " \n\t", "\ud800 cat", "a" * 10**6, "dogs ran"]
    made = embed_all(model, texts)
    assert not made[[1, 2]].any()
    assert np.isfinite(made).all()
    assert np.allclose(made[[0, 5]], embed_all(model, ["the cat", "dogs ran"]), atol=1e-6)
    assert (nearest(made, made[[0, 5]])[[1, 2]] == -1).all()


def test_a_text_whose_states_are_nan_is_zero(bert, tmp_path):
    """Weights are finite when a model is registered; a pass over a text need not be."""
    folder = sentence_transformer(bert, tmp_path, {"pooling_mode_mean_tokens": True})
    model = ready(folder)
    model.network.get_input_embeddings().weight[WORDS.index("far")] = torch.nan
    made = embed_all(model, ["the cat", "dogs ran far", "a mat"])
    assert not made[1].any()
    assert np.allclose(made[[0, 2]], embed_all(ready(bert), ["the cat", "a mat"]), atol=1e-6)


def test_every_pass_has_the_same_shape(bert, monkeypatch):
    """Lengths and counts of private texts show nowhere: every pass has the same shape for all
    texts.
    """
    model, seen = ready(bert), []
    forward = type(model.network).forward
    monkeypatch.setattr(
        type(model.network),
        "forward",
        lambda self, **given: (
            seen.append(tuple(given["input_ids"].shape)),
            forward(self, **given),
        )[1],
    )
    for texts in (["the"], TEXTS, TEXTS * 20, [""] * 33):
        list(model.embed(texts, tokens=9))
    assert set(seen) == {(embedders.ROWS, 9)}
    assert len(seen) == 1 + 1 + 3 + 2


def test_texts_are_streamed(bert):
    """An endless stream of texts is embedded as far as it is asked for."""

    def endless():
        while True:
            yield "the cat"

    assert next(ready(bert).embed(endless())).shape == (embedders.ROWS, 32)
    assert embed_all(ready(bert), []).shape == (0, 32)


# --- folders that are refused -------------------------------------------------------------------


def test_other_modules_are_named(bert, tmp_path):
    folder = sentence_transformer(bert, tmp_path, {"pooling_mode_mean_tokens": True})
    modules = json.loads((folder / "modules.json").read_text())
    write(
        folder / "modules.json",
        [*modules, {"path": "3_Dense", "type": "sentence_transformers.models.Dense"}],
    )
    with pytest.raises(
        ModelError, match="Transformer, Pooling, Normalize, Dense; what can be read is"
    ):
        inspect(folder)


def test_what_can_not_be_read_is_refused(bert, tmp_path):
    both = {"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True}
    folder = sentence_transformer(bert, tmp_path, both)
    with pytest.raises(ModelError, match="pooling mean, pooling_mode_max_tokens"):
        inspect(folder)
    kinds = [
        {"path": "../elsewhere", "type": "a.Transformer"},
        {"path": "1_Pooling", "type": "a.Pooling"},
    ]
    write(folder / "modules.json", kinds)
    with pytest.raises(ModelError, match="points out of the folder"):
        inspect(folder)
    (folder / "modules.json").unlink()
    config = json.loads((folder / "config.json").read_text())
    write(folder / "config.json", {**config, "auto_map": {"AutoModel": "mine.Model"}})
    with pytest.raises(ModelError, match="its own code"):
        inspect(folder)
    write(
        folder / "config.json", {**config, "quantization_config": {"quant_method": "bitsandbytes"}}
    )
    with pytest.raises(ModelError, match="quantised"):
        inspect(folder)
    write(folder / "config.json", config)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"no model\.safetensors"):
        inspect(folder)


def test_a_folder_whose_bytes_changed_is_refused(bert, tmp_path):
    """The settings of the pooling are part of the model."""
    folder = sentence_transformer(bert, tmp_path, {"pooling_mode_mean_tokens": True})
    registered = inspect(folder)["sha256"]
    write(folder / "1_Pooling" / "config.json", {"pooling_mode_cls_token": True})
    with pytest.raises(ModelError, match="not those that were registered"):
        load(folder, registered)


def test_a_model_is_checked_as_what_it_was_registered_for(bert, engine, database_url, monkeypatch):
    """An encoder is a model of kind `embedding`, and no language model."""
    monkeypatch.setenv("DATABASE_URL", database_url)
    monkeypatch.setenv("EXCHEQUER_MODEL_ROOTS", str(bert.parent))
    monkeypatch.setattr(settings, "load", settings.Settings)
    steward = person(engine, "steward")
    rows = {}
    for kind in ("language", "embedding"):
        added = model_catalogue.add_model(
            engine, f"m-{uuid.uuid4().hex[:8]}", str(bert), "public", steward, kind
        )
        checks.check_model(str(added))
        rows[kind] = registration.find(engine, "model", added)
    assert rows["embedding"].facts["dimensions"] == 32
    assert rows["embedding"].facts["sha256"] == inspect(bert)["sha256"]
    assert rows["language"].facts is None


def test_an_embedder_is_tried_where_one_gpu_has_room(bert, engine, database_url, monkeypatch):
    """It is never split: what all GPUs of the worker have together is not its room."""
    monkeypatch.setenv("DATABASE_URL", database_url)
    monkeypatch.setenv("EXCHEQUER_MODEL_ROOTS", str(bert.parent))
    monkeypatch.setattr(settings, "load", settings.Settings)
    monkeypatch.setattr(checks.models, "has_room", lambda _, split: split)
    added = model_catalogue.add_model(
        engine,
        f"m-{uuid.uuid4().hex[:8]}",
        str(bert),
        "public",
        person(engine, "steward"),
        "embedding",
    )
    checks.check_model(str(added))
    assert "no room" in registration.find(engine, "model", added).facts["tried"]


# --- real text ----------------------------------------------------------------------------------


@needs_shared
def test_model2vec_as_published():
    folder = SHARED / "data/models/model2vec64"
    reference = json.loads((folder / "reference_hello_x1000.json").read_text())
    assert np.allclose(embed_all(ready(folder), ["hello " * 1000]), reference, atol=1e-6)


def v_measure(one: np.ndarray, other: np.ndarray) -> float:
    """Harmonic mean of homogeneity and completeness (Rosenberg and Hirschberg 2007)."""
    table = np.zeros((one.max() + 1, other.max() + 1))
    np.add.at(table, (one, other), 1)

    def entropy(counts: np.ndarray) -> float:
        shares = counts[counts > 0] / table.sum()
        return float(-(shares * np.log(shares)).sum())

    ones, others = entropy(table.sum(axis=1)), entropy(table.sum(axis=0))
    return 2 * (ones + others - entropy(table)) / (ones + others)


@needs_shared
def test_clusters_of_news_follow_their_topics():
    """V-measure of k-means on AG News is well above that of shuffled topics (about 0)."""
    with gzip.open(SHARED / "data/ag_news/test.csv.gz", "rt", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))[:4000]
    topics = np.array([int(row["label"]) for row in rows])
    vectors = embed_all(
        ready(SHARED / "data/models/model2vec64"),
        (f"{row['title']}. {row['description']}" for row in rows),
    )
    found = nearest(vectors, kmeans(vectors, 4, seed=0))[:, 0]
    assert v_measure(topics, found) > 0.3
    assert v_measure(np.random.default_rng(0).permutation(topics), found) < 0.01
