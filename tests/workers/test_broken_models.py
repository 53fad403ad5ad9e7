"""Models that are not what they claim: each is refused when it is registered, by what is wrong with
it.
"""

import json
import shutil
import struct
import uuid
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel

from accountant import settings
from accountant.catalogue import models as catalogue
from accountant.catalogue import registration
from tests.support import person
from tests.workers.conftest import SAMPLE
from workers import models
from workers.jobs import checks
from workers.models import ModelError

pytestmark = pytest.mark.slow

NAMED = "model.safetensors"
NAME = "model.layers.1.mlp.up_proj.weight"
Tensors = dict[str, torch.Tensor]


@pytest.fixture
def folder(tmp_path) -> Path:
    return Path(shutil.copytree(SAMPLE / "model", tmp_path / "model"))


def change(path: Path, **values: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def weights(edit: Callable[[Tensors], object]) -> Callable[[Path], None]:
    """Return a breaker that edits the tensors of a folder."""

    def break_(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        edit(tensors)
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})

    return break_


def filled(value: float, dtype: torch.dtype = torch.bfloat16) -> Callable[[Path], None]:
    """Return a breaker that puts one such number into a tensor of that type."""

    def edit(tensors: Tensors) -> None:
        tensors[NAME] = tensors[NAME].to(dtype)
        tensors[NAME][3, 5] = value

    return weights(edit)


def raw(edit: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def break_(folder: Path) -> None:
        path = folder / "model.safetensors"
        path.write_bytes(edit(path.read_bytes()))

    return break_


def headed(edit: Callable[[dict], object]) -> Callable[[Path], None]:
    """Return a breaker that edits the header of the file and leaves its numbers."""

    def of(content: bytes) -> bytes:
        size = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + size])
        edit(header)
        written = json.dumps(header).encode()
        return struct.pack("<Q", len(written)) + written + content[8 + size :]

    return raw(of)


def overlapping(header: dict) -> None:
    first, second = (name for name in list(header)[1:3])
    header[second]["data_offsets"] = header[first]["data_offsets"]


def sharded(edit: Callable[[Path, dict], object]) -> Callable[[Path], None]:
    """Return a breaker that saves the model as shards and edits them and their index."""

    def break_(folder: Path) -> None:
        network = AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
        (folder / "model.safetensors").unlink()
        network.save_pretrained(folder, max_shard_size="1MB")
        path = folder / "model.safetensors.index.json"
        index = json.loads(path.read_text())
        edit(folder, index)
        path.write_text(json.dumps(index))

    return break_


def shard_with(name: str) -> Callable[[Path, dict], None]:
    """Return an edit that adds a tensor to the first shard."""

    def edit(folder: Path, _: dict) -> None:
        path = min(folder.glob("model-*.safetensors"))
        save_file(load_file(path) | {name: torch.ones(160)}, path, {"format": "pt"})

    return edit


def index_names(file: str | None) -> Callable[[Path, dict], None]:
    def edit(_: Path, index: dict) -> None:
        name = min(index["weight_map"])
        index["weight_map"][name] = file or min(
            set(index["weight_map"].values()) - {index["weight_map"][name]}
        )

    return edit


def left_over(folder: Path, _: dict) -> None:
    shutil.copy(
        min(folder.glob("model-*.safetensors")), folder / "model-00004-of-00009.safetensors"
    )


def both(folder: Path, _: dict) -> None:
    shutil.copy(SAMPLE / "model" / "model.safetensors", folder)


def config(**values: object) -> Callable[[Path], None]:
    return lambda folder: change(folder / "config.json", **values)


def generation(**values: object) -> Callable[[Path], None]:
    return lambda folder: change(folder / "generation_config.json", **values)


def rename(prefix: str) -> Callable[[Tensors], None]:
    def edit(tensors: Tensors) -> None:
        held = {prefix + name: tensors.pop(name) for name in list(tensors)}
        tensors.update(held)

    return edit


def gpt2(folder: Path, **values: object) -> None:
    """Put a small GPT-2 of learned positions there, then edit its configuration."""
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 64, "vocab_size": 1024}
    GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=1, eos_token_id=2)).save_pretrained(folder)
    change(folder / "config.json", **values)


def other_head(tensors: Tensors) -> None:
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"] * 2


WEIGHTS = {
    "a weight is missing": (
        weights(lambda t: t.pop(NAME)),
        "weights are missing: model.layers.1.mlp.up",
    ),
    "the embeddings are missing": (
        weights(lambda t: t.pop("model.embed_tokens.weight")),
        "are missing",
    ),
    "a trainer's prefix": (weights(rename("module.")), "other names"),
    "torch.compile's prefix": (weights(rename("_orig_mod.")), "other names"),
    "an adapter's prefix": (weights(rename("base_model.model.")), "other names"),
    "one typing error": (weights(lambda t: t.update({NAME + "s": t.pop(NAME)})), "other names"),
    "another layer's shape": (
        weights(lambda t: t.update({NAME: t[NAME].T.contiguous()})),
        "160 × 400, and the",
    ),
    "fewer rows": (weights(lambda t: t.update({NAME: t[NAME][:-1].clone()})), "has the shape 399"),
    "one weight more": (
        weights(lambda t: t.update({"extra": torch.ones(3)})),
        "not used by the model: extra",
    ),
    "one layer more": (config(num_hidden_layers=3), "not used by the model: model.layers.3"),
    "one layer less": (config(num_hidden_layers=5), "weights are missing: model.layers.4"),
    "a wider model": (config(intermediate_size=500), "needs 500 × 160|needs 160 × 500"),
    "lora's weights beside": (
        weights(
            lambda t: t.update({"model.layers.0.mlp.up_proj.lora_A.weight": torch.ones(8, 160)})
        ),
        "not used",
    ),
    "whole numbers": (weights(lambda t: t.update({NAME: t[NAME].to(torch.int8)})), "saved as I8"),
    "another head, said to be tied": (
        weights(other_head),
        "lm_head.weight and model.embed_tokens.weight differ",
    ),
    "nan": (filled(float("nan")), "holds NaN"),
    "infinity": (filled(float("inf")), "holds NaN"),
    "nan in float32": (filled(float("nan"), torch.float32), "holds NaN"),
    "nan in float64": (filled(float("nan"), torch.float64), "holds NaN"),
    "nan in float8": (filled(float("nan"), torch.float8_e5m2), "holds NaN"),
    "nan in the other float8": (filled(float("nan"), torch.float8_e4m3fn), "holds NaN"),
    "beyond bfloat16": (filled(3.4e38, torch.float32), "holds NaN"),
    "cut": (raw(lambda b: b[: len(b) * 2 // 3]), "is cut"),
    "cut by one byte": (raw(lambda b: b[:-1]), "is cut"),
    "cut in the header": (raw(lambda b: b[:500]), "is cut"),
    "empty": (raw(lambda _: b""), "is cut"),
    "a byte too many": (raw(lambda b: b + b"\0"), "is cut"),
    "a header's length that is none": (raw(lambda b: struct.pack("<Q", 2**62) + b[8:]), "is cut"),
    "a page of HTML": (raw(lambda _: b"<html>Not found</html>" * 9), "is cut"),
    "a pointer of git lfs": (
        raw(lambda _: b"version https://git-lfs.github.com/spec/v1\n"),
        "is cut",
    ),
    "overlapping tensors": (headed(overlapping), "is cut"),
    "an unknown type": (headed(lambda h: h[NAME].update(dtype="Q4")), "is cut"),
    "a shard is missing": (
        sharded(lambda f, _: min(f.glob("model-*.safetensors")).unlink()),
        "and missing",
    ),
    "a shard lacks a weight": (sharded(index_names(None)), "lacks"),
    "a weight in two shards": (
        sharded(shard_with("model.norm.weight")),
        "in two shards|has model.norm",
    ),
    "a weight that no index knows": (sharded(shard_with("model.norm.bias")), "unknown to"),
    "an index out of the folder": (sharded(index_names("../other.safetensors")), "of this folder"),
    "an index of a folder below": (
        sharded(index_names("below/other.safetensors")),
        "of this folder",
    ),
    "an index of what is not hashed": (sharded(index_names("other.bin")), "of this folder"),
    "an index of the folder above": (sharded(index_names("..")), "of this folder"),
    "a shard of an earlier save": (sharded(left_over), "does not name model-00004"),
    "shards and a single file": (sharded(both), "are there twice"),
    "an index without weights": (
        sharded(lambda _, index: index.pop("weight_map")),
        "no weight_map",
    ),
    "an adapter": (lambda f: (f / "adapter_config.json").write_text("{}"), "holds an adapter"),
    "another file of weights": (
        config(transformers_weights="other.safetensors"),
        "names a file of weights",
    ),
    "weights of pickle": (
        lambda f: (f / NAMED).rename(f / "pytorch_model.bin"),
        r"no model\.safetensors",
    ),
    "weights of another name": (
        lambda f: (f / NAMED).rename(f / "other.safetensors"),
        r"no model\.safetensors",
    ),
    "more positions than are learned": (
        lambda f: gpt2(f, n_positions=128),
        "wpe.weight has the shape 64",
    ),
}


@pytest.mark.parametrize("case", WEIGHTS)
def test_weights_that_are_not_the_models(folder, case):
    break_, why = WEIGHTS[case]
    break_(folder)
    with pytest.raises(ModelError, match=why):
        models.inspect(folder)


@pytest.mark.parametrize(
    "case", ["a weight is missing", "a trainer's prefix", "fewer rows", "one weight more"]
)
def test_no_weight_is_random_in_a_loaded_model(folder, case):
    """At load as at registration: the hash alone says that files are what they were."""
    WEIGHTS[case][0](folder)
    with pytest.raises(ModelError):
        models.load(folder, models.digest(folder))


def saved(edit: Callable[[dict], object]) -> Callable[[Path], None]:
    """Return a breaker that edits tokenizer.json."""

    def break_(folder: Path) -> None:
        path = folder / "tokenizer.json"
        content = json.loads(path.read_text())
        edit(content)
        path.write_text(json.dumps(content))

    return break_


def added(content: str, token: int, special: bool = True) -> Callable[[dict], None]:
    made = {"id": token, "content": content, "special": special, "normalized": False}
    made |= {"single_word": False, "lstrip": False, "rstrip": False}
    return lambda saved: saved["added_tokens"].append(made)


def word(saved: dict, old: str, new: str) -> None:
    """Give the token `old` another word."""
    vocabulary = saved["model"]["vocab"]
    vocabulary[new] = vocabulary.pop(old)


def without_unknown(saved: dict) -> None:
    saved["model"]["type"] = "WordLevel"
    saved["pre_tokenizer"] = {"type": "Whitespace"}
    saved["decoder"] = saved["normalizer"] = None
    saved["model"] = {"type": "WordLevel", "vocab": saved["model"]["vocab"], "unk_token": "[none]"}


def stated(**values: object) -> Callable[[Path], None]:
    return lambda folder: change(folder / "tokenizer_config.json", **values)


def fewer_tokens(saved: dict) -> None:
    vocabulary = saved["model"]["vocab"]
    last = max(vocabulary, key=vocabulary.__getitem__)
    del vocabulary[last]
    saved["model"]["merges"] = [
        each for each in saved["model"]["merges"] if "".join(each).replace(" ", "") != last
    ]


def more_outputs(folder: Path) -> None:
    """Pad the embeddings, as for a GPU's sake."""
    weights(
        lambda t: t.update(
            {
                "model.embed_tokens.weight": torch.cat(
                    [t["model.embed_tokens.weight"], torch.zeros(64, 160).bfloat16()]
                )
            }
        )
    )(folder)
    change(folder / "config.json", vocab_size=1088)


TOKENIZERS = {
    "a token beyond the embeddings": (
        saved(added("<image>", 1024)),
        "embeddings lack: '<image>' \\(1024\\)",
    ),
    "a word beyond the embeddings": (
        saved(added("zyzzyva", 1024, special=False)),
        "lack: 'zyzzyva'",
    ),
    "a token far beyond": (saved(added("<far>", 60_000)), "embeddings lack: '<far>'"),
    "a special token that nobody has": (
        stated(pad_token="<padding>"),
        "embeddings lack: '<padding>'",
    ),
    "further special tokens": (stated(extra_special_tokens=["<a>", "<b>"]), "embeddings lack"),
    "fewer rows than tokens": (
        lambda f: (
            weights(
                lambda t: t.update(
                    {"model.embed_tokens.weight": t["model.embed_tokens.weight"][:1000].clone()}
                )
            )(f),
            change(f / "config.json", vocab_size=1000),
        ),
        "embeddings lack",
    ),
    "outputs without a token": (more_outputs, "1,024 tokens and the model 1,088 outputs"),
    "one output without a token": (saved(fewer_tokens), "outputs: those without a token"),
    "two tokens of one id": (saved(added("<other>", 5)), "same id, 5"),
    "the padding is the": (stated(pad_token="the"), "special token|same id|lack"),
    "the end is a full stop": (stated(eos_token="."), "special token '\\.'"),
    "the start is an exclamation mark": (stated(bos_token="!"), "special token '!'"),
    "unknown letters end a text": (
        stated(eos_token="<unk>"),
        "unknown letters and for the start or end",
    ),
    "the padding stands for unknown letters": (
        stated(unk_token="<pad>", pad_token="<unk>"),
        "unknown letters",
    ),
    "the end is out of range": (config(eos_token_id=1024), "eos_token_id 1024"),
    "the padding is negative": (config(pad_token_id=-1), "pad_token_id -1"),
    "the start is negative": (config(bos_token_id=-100), "bos_token_id -100"),
    "one of several ends is out of range": (
        generation(eos_token_id=[2, 5000]),
        "eos_token_id 5000",
    ),
    "a word ends texts": (generation(eos_token_id=[2, 400]), "a word of texts"),
    "the end is a word in the configuration": (
        config(bos_token_id=400, eos_token_id=400),
        "a word of texts",
    ),
    "an end that is no number": (
        config(eos_token_id="</s>"),
        "eos_token_id '</s>'|transformers can't open",
    ),
    "fails at unknown letters": (saved(without_unknown), "fails at letters|can't be loaded"),
    "no tokenizer": (
        lambda f: (f / "tokenizer.json").unlink(),
        "tokenizer can't be loaded|lack|tokens and the",
    ),
    "a cut tokenizer": (
        lambda f: (f / "tokenizer.json").write_text((f / "tokenizer.json").read_text()[:9000]),
        "can't be loaded",
    ),
}


@pytest.mark.parametrize("case", TOKENIZERS)
def test_tokenizers_that_are_not_the_models(folder, case):
    break_, why = TOKENIZERS[case]
    break_(folder)
    with pytest.raises(ModelError, match=why):
        models.inspect(folder)
    with pytest.raises(ModelError):
        models.load(folder, models.digest(folder))


def test_weights_that_overflow_on_a_public_text_are_refused(folder):
    """Each number is finite, and their products are not."""
    weights(lambda t: t.update({name: t[name] * 0 + 3e38 for name in t if "layernorm" in name}))(
        folder
    )
    facts = models.inspect(folder)
    for dtype in ("float32", "bfloat16"):
        with pytest.raises(ModelError, match=f"not finite in {dtype}"):
            models.try_out(folder, facts["sha256"], dtype)


def test_weights_count_once(folder):
    """A copy under a second name that is the same, and files that nobody loads, change no
    figure.
    """
    once = models.inspect(folder)["parameters"]
    weights(lambda t: t.update({"lm_head.weight": t["model.embed_tokens.weight"].clone()}))(folder)
    shutil.copy(folder / "model.safetensors", folder / "consolidated.safetensors")
    (folder / "pytorch_model.bin").write_bytes(b"not read")
    assert models.inspect(folder)["parameters"] == models.weight_count(folder) == once
    assert sum(each.numel() for each in load_file(folder / "model.safetensors").values()) > once


def test_shards_are_the_same_model(folder):
    facts = models.inspect(folder)
    sharded(lambda *_: None)(folder)
    assert {**models.inspect(folder), "sha256": ""} == {**facts, "sha256": ""}
    models.load(folder, models.digest(folder))


def test_memory_is_bounded_while_numbers_are_read(folder, monkeypatch):
    """The tensors are mapped in runs, each of which is let go before the next."""
    from workers import weights as files

    held = files.tensors(folder)
    monkeypatch.setattr(files, "MAPPED", 10**5)
    runs = list(files._runs(held))
    assert [name for run in runs for name in run] == list(held)
    assert len(runs) > 5


def test_an_index_of_a_single_file_is_no_second_copy(folder):
    names = load_file(folder / "model.safetensors")
    index = {"weight_map": dict.fromkeys(names, "model.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert models.inspect(folder)["parameters"] == models.inspect(SAMPLE / "model")["parameters"]


def test_the_head_alone_serves_as_both_of_a_tied_pair(folder):
    weights(lambda t: t.update({"lm_head.weight": t.pop("model.embed_tokens.weight")}))(folder)
    facts = models.inspect(folder)
    assert (
        facts["parameters"]
        == models.inspect(SAMPLE / "model")["parameters"]
        == models.weight_count(folder)
    )
    assert models.try_out(folder, facts["sha256"]) == "float32 on cpu"


def test_a_model_that_does_not_fit_says_how_much_it_needs(folder, monkeypatch):
    sha256 = models.digest(folder)
    monkeypatch.setattr(models, "whole_memory", lambda _: 2**20)
    with pytest.raises(ModelError, match=r"does not fit .*: 0\.0 GiB of weights, 0\.0 GiB in all"):
        models.load(folder, sha256, memory_gib=1.3)
    monkeypatch.undo()

    def full(*_: object, **__: object) -> None:
        raise RuntimeError(
            "DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"
        )

    monkeypatch.setattr(models, "_checked", full)
    with pytest.raises(ModelError, match="does not fit"):
        models.load(folder, sha256, memory_gib=1.4)


def test_a_tokenizer_is_read_again_if_its_files_change(folder):
    before = len(models.tokenizer(folder))
    saved(added("<new>", 1024))(folder)
    assert len(models.tokenizer(folder)) == before + 1


@pytest.mark.parametrize("spoilt", [True, False])
def test_a_registered_model_is_tried_on_a_public_text(
    folder, engine, database_url, monkeypatch, spoilt
):
    """By the task that checks it, in the type of jobs; a worker without room leaves it to them."""
    if spoilt:
        weights(
            lambda t: t.update({name: t[name] * 0 + 3e38 for name in t if "layernorm" in name})
        )(folder)
    values = {"DATABASE_URL": database_url, "EXCHEQUER_MODEL_ROOTS": str(folder.parent)}
    for name, value in {**values, "EXCHEQUER_MODEL_DTYPE": "bfloat16"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(settings, "load", settings.Settings)
    steward, found = person(engine, "steward"), []
    for room in (True, False):
        monkeypatch.setattr(models, "has_room", lambda _, split, room=room: room and split)
        model = catalogue.add_model(
            engine, f"m-{uuid.uuid4().hex[:8]}", str(folder), "public", steward
        )
        checks.check_model(str(model))
        found.append(registration.find(engine, "model", model))
    with_room, without = found
    assert with_room.state == ("invalid" if spoilt else "ready")
    assert with_room.error == (
        "path: its logits of a public text are not finite in bfloat16" if spoilt else None
    )
    assert spoilt or with_room.facts["tried"] == "bfloat16 on cpu"
    assert "no room" in without.facts["tried"]
    with pytest.raises(ModelError, match="not finite") if spoilt else nullcontext():
        models.load(folder, without.facts["sha256"], "bfloat16")
