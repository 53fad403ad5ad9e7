"""Embedding models that are not what they claim: each is refused by what is wrong with it."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import processors
from transformers import BertConfig, BertForMaskedLM, RobertaConfig, RobertaModel

from tests.workers.embedding.test_embeddings import WORDS, bert, ready, word_tokenizer, write  # noqa: F401
from workers.embedding import embedders, phrase_vectors
from workers.models import ModelError
from workers.weights import Tensor

LAYER = "encoder.layer.1.output.dense.weight"
Tensors = dict[str, torch.Tensor]


def edited(edit: Callable[[Tensors], object]) -> Callable[[Path], None]:
    def break_(folder: Path) -> None:
        path = next(folder.glob("*.safetensors"))
        tensors = load_file(path)
        edit(tensors)
        save_file(tensors, path, {"format": "pt"})

    return break_


def poisoned(name: str, value: float = float("nan")) -> Callable[[Path], None]:
    def edit(tensors: Tensors) -> None:
        tensors[name].view(-1)[3] = value

    return edited(edit)


def cut(folder: Path) -> None:
    path = next(folder.glob("*.safetensors"))
    path.write_bytes(path.read_bytes()[:-7])


def saved(file: str, edit: Callable[[dict], object]) -> Callable[[Path], None]:
    def break_(folder: Path) -> None:
        content = json.loads((folder / file).read_text())
        edit(content)
        write(folder / file, content)

    return break_


def around(token: int) -> Callable[[Path], None]:
    """Return a breaker whose tokenizer writes a token of such an id around each text."""

    def break_(folder: Path) -> None:
        words = word_tokenizer()
        words.post_processor = processors.TemplateProcessing(
            single="[CLS] $A", special_tokens=[("[CLS]", token)]
        )
        words.save(str(folder / "tokenizer.json"))

    return break_


def word_beyond(content: dict) -> None:
    content["model"]["vocab"]["zyzzyva"] = len(WORDS)


def no_unknown(content: dict) -> None:
    content["model"]["unk_token"] = "[none]"


def both_names(tensors: Tensors) -> None:
    tensors["embedding.weight"] = tensors["embeddings"].clone()


def roberta(folder: Path) -> None:
    """Put an encoder there whose positions begin at 1, and which does not say that one of 16 is
    lost.
    """
    sizes = {
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "intermediate_size": 64,
    }
    RobertaModel(
        RobertaConfig(
            vocab_size=len(WORDS),
            max_position_embeddings=16,
            pad_token_id=0,
            bos_token_id=2,
            **sizes,
        )
    ).save_pretrained(folder)


ENCODERS = {
    "a weight is missing": (edited(lambda t: t.pop(LAYER)), "missing: encoder.layer.1"),
    "a prefix": (
        edited(lambda t: [t.update({f"module.{n}": t.pop(n)}) for n in list(t)]),
        "missing|other names",
    ),
    "a layer that is not used": (
        edited(lambda t: t.update({LAYER.replace("1", "2"): t[LAYER].clone()})),
        "not used by the model: encoder.layer.2",
    ),
    "another shape": (
        edited(lambda t: t.update({LAYER: t[LAYER].T.contiguous()})),
        "has the shape 64 × 32",
    ),
    "nan": (poisoned(LAYER), "holds NaN"),
    "infinity": (poisoned(LAYER, float("inf")), "holds NaN"),
    "cut": (cut, "is cut"),
    "twice": (
        lambda f: shutil.copy(f / "model.safetensors", f / "model-00001-of-00002.safetensors"),
        "twice",
    ),
    "a word beyond the embeddings": (
        saved("tokenizer.json", word_beyond),
        "embeddings lack: 'zyzzyva'",
    ),
    "a padding beyond the embeddings": (
        saved("tokenizer_config.json", lambda c: c.update(pad_token="<padding>")),
        "embeddings lack: '<padding>'",
    ),
    "a token around each text beyond the embeddings": (around(900), "writes the token 900"),
    "fails at unknown words": (
        saved("tokenizer.json", no_unknown),
        "fails at letters|can't be loaded|lack",
    ),
    "positions that are not there": (roberta, "a text as long as its context, 16 tokens, fails"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), r"no model\.safetensors"),
    "an adapter": (lambda f: write(f / "adapter_config.json", {}), "holds an adapter"),
}


@pytest.mark.parametrize("case", ENCODERS)
def test_encoders(bert, tmp_path, case):  # noqa: F811
    folder = Path(shutil.copytree(bert, tmp_path / "model"))
    break_, why = ENCODERS[case]
    break_(folder)
    with pytest.raises(ModelError, match=why):
        ready(folder)


def test_heads_and_poolers_are_no_part_of_an_encoder(bert, tmp_path):  # noqa: F811
    """A masked language model has a head more, and no pooler, which nothing here reads."""
    folder = Path(shutil.copytree(bert, tmp_path / "model"))
    BertForMaskedLM(BertConfig.from_pretrained(bert)).save_pretrained(folder)
    assert np.isfinite(embedders.embed_all(ready(folder), ["the cat", "zyzzyva"])).all()


@pytest.fixture
def static(tmp_path) -> Path:
    random = torch.Generator().manual_seed(0)
    tensors = {
        "embeddings": torch.randn(len(WORDS), 8, generator=random),
        "weights": torch.rand(len(WORDS), generator=random, dtype=torch.float64),
    }
    save_file(tensors, tmp_path / "model.safetensors")
    word_tokenizer().save(str(tmp_path / "tokenizer.json"))
    write(tmp_path / "config.json", {"model_type": "model2vec", "normalize": True})
    return tmp_path


STATIC = {
    "nan": (poisoned("embeddings"), "holds NaN"),
    "infinity in a weight": (poisoned("weights", float("inf")), "holds NaN"),
    "cut": (cut, "missing or not a safetensors file|is cut"),
    "two tables": (edited(both_names), "not all of them used"),
    "a tensor more": (
        edited(lambda t: t.update(extra=torch.ones(3))),
        "extra, not all of them used",
    ),
    "fewer vectors than words": (
        edited(lambda t: t.update({name: t[name][:-1].clone() for name in list(t)})),
        "embeddings lack: 'far'",
    ),
    "a word beyond the vectors": (saved("tokenizer.json", word_beyond), "lack: 'zyzzyva'"),
    "fewer weights": (
        edited(lambda t: t.update(weights=t["weights"][:-1].clone())),
        "not as many weights",
    ),
    "another name": (
        edited(lambda t: t.update(vectors=t.pop("embeddings"))),
        "not all of them used",
    ),
    "fails at unknown words": (saved("tokenizer.json", no_unknown), "fails at letters"),
    "a cut tokenizer": (
        lambda f: (f / "tokenizer.json").write_text("{"),
        "missing or no tokenizer",
    ),
}


@pytest.mark.parametrize("case", STATIC)
def test_static_vectors(static, case):
    assert embedders.embed_all(ready(static), ["the cat"]).any()
    break_, why = STATIC[case]
    break_(static)
    with pytest.raises(ModelError, match=why):
        ready(static)


@pytest.mark.parametrize(
    ("words", "spoil", "why"),
    [
        (["cat", "dog", "cat"], lambda v: v, "has a word twice"),
        (["cat", "dog"], lambda v: v, "row for each word"),
        (["cat", "dog", "mat"], lambda v: v * np.float32(np.nan), "holds NaN"),
        (["cat", "dog", "mat"], lambda v: v / np.float32(0), "holds NaN"),
    ],
)
@pytest.mark.filterwarnings("ignore:divide by zero")
def test_word_vectors(tmp_path, words, spoil, why):
    phrase_vectors.save(tmp_path, words, spoil(np.ones((3, 4), np.float32)))
    with pytest.raises(ModelError, match=why):
        ready(tmp_path)


class Failing:
    """A tokenizer that fails at one word, as those without an unknown token do."""

    def __init__(self, real: object) -> None:
        self.real = real

    def encode(self, text: str, **options: object) -> object:
        if "zyzzyva" in text:
            raise Exception("WordLevel error: Missing [UNK] token from the vocabulary")
        return self.real.encode(text, **options)

    def encode_batch(self, texts: list[str], **options: object) -> list[object]:
        return [self.encode(text, **options) for text in texts]

    def __call__(self, text: str, **options: object) -> object:
        self.encode(text)
        return self.real(text, **options)


@pytest.mark.parametrize("form", ["transformer", "static"])
def test_no_word_ends_a_job(bert, static, form):  # noqa: F811
    """Whatever slips through registration: such a text is a row of zeros, and the others stay as
    they are.
    """
    model = ready(bert if form == "transformer" else static)
    texts = ["the cat", "a mat and zyzzyva", "dogs ran"]
    plain = embedders.embed_all(model, texts)
    model.tokenizer, before = Failing(model.tokenizer), model.tokenizer
    if form == "transformer":
        model.tokenizer.pad_token_id = before.pad_token_id
    found = embedders.embed_all(model, texts)
    model.tokenizer = before
    assert not found[1].any()
    assert np.allclose(found[[0, 2]], plain[[0, 2]], atol=1e-6)


def test_types_of_tensors():
    assert [
        Tensor(Path(), (), dtype).is_float
        for dtype in ("F32", "BF16", "F8_E4M3", "I32", "BOOL", "U8")
    ] == [
        *[True] * 3,
        *[False] * 3,
    ]
