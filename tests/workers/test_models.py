"""Facts found about a model before anything is reserved, and refusals when it is loaded."""

import io
import json
import logging
import shutil
from pathlib import Path

import pytest
import torch
import transformers

import workers
from workers import engine, models
from workers.engine import Decoder

SAMPLE = Path(workers.__file__).parent / "sample" / "model"


@pytest.fixture
def folder(tmp_path) -> Path:
    return Path(shutil.copytree(SAMPLE, tmp_path / "model"))


def change(folder: Path, name: str, **values: object) -> None:
    path = folder / name
    kept = {key: value for key, value in json.loads(path.read_text()).items() if key not in values}
    path.write_text(
        json.dumps({**kept, **{key: value for key, value in values.items() if value is not None}})
    )


def test_public_facts_of_a_model():
    facts = models.inspect(SAMPLE)
    config = json.loads((SAMPLE / "config.json").read_text())
    assert facts["layers"] == config["num_hidden_layers"]
    assert facts["hidden_size"] == config["hidden_size"]
    assert facts["vocabulary"] == config["vocab_size"]
    assert facts["end_tokens"] == [2]
    assert facts["dtype"] == config["dtype"]


def test_a_model_without_an_end_token_says_so(folder):
    for name in ("config.json", "generation_config.json"):
        if (folder / name).exists():
            change(folder, name, eos_token_id=None)
    change(folder, "tokenizer_config.json", eos_token=None)
    assert models.inspect(folder)["end_tokens"] == []


def test_every_stated_end_token_counts(folder):
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 7, 9]}))
    assert models.inspect(folder)["end_tokens"] == [2, 7, 9]


def test_a_long_record_leaves_no_line_in_a_log():
    """transformers warns of more tokens than a model takes, with their number: that of a private
    record.
    """
    tokenizer = models.tokenizer(SAMPLE)
    kept = io.StringIO()
    handler = logging.StreamHandler(kept)
    transformers.logging.add_handler(handler)
    try:
        models.Prompt(tokenizer, "{record}", None).tokens("a long private record " * 400, 256)
    finally:
        transformers.logging.remove_handler(handler)
    assert not kept.getvalue()


def test_loading_draws_no_progress_bar(capfd):
    """A process's log has one line of JSON a message."""
    models.inspect(SAMPLE)
    models.load(SAMPLE, models.digest(SAMPLE))
    assert not capfd.readouterr().err


def test_a_model_that_can_not_be_decoded_is_refused_before_any_record_is_read(folder):
    """One with states besides keys and values: else its job would fail, and be charged, in its
    first pass.
    """
    values = {
        "vocab_size": 1024,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "layer_types": ["conv", "full_attention"],
        "max_position_embeddings": 128,
    }
    network = transformers.Lfm2ForCausalLM(transformers.Lfm2Config(**values))
    network.save_pretrained(folder)
    with pytest.raises(models.ModelError, match="can't be decoded"):
        models.load(folder, models.digest(folder))


def test_quantised_models_are_refused_when_registered_and_when_loaded(folder):
    """bitsandbytes, say, picks columns by the largest value in a whole pass: other people's
    records.
    """
    change(
        folder,
        "config.json",
        quantization_config={"quant_method": "bitsandbytes", "load_in_8bit": True},
    )
    with pytest.raises(models.ModelError, match="quantised"):
        models.inspect(folder)
    with pytest.raises(models.ModelError, match="quantised"):
        models.load(folder, models.digest(folder))


@pytest.mark.parametrize("field", ["num_hidden_layers", "hidden_size"])
def test_a_configuration_that_states_no_layers_is_refused(folder, field):
    change(folder, "config.json", **{field: None})
    with pytest.raises(models.ModelError, match="no layers or no width"):
        models.inspect(folder)


def test_a_loaded_model_has_the_inspected_facts_and_its_type():
    facts = models.inspect(SAMPLE)
    model = models.load(SAMPLE, facts["sha256"], "bfloat16", 1.5)
    assert model.network.dtype.itemsize == 2
    assert model.memory_bytes == 3 * 2**29
    assert (len(model.structure.blocks), model.structure.hidden) == (
        facts["layers"],
        facts["hidden_size"],
    )
    assert sorted(model.end_tokens) == facts["end_tokens"]


def mixing(only: torch.dtype | None):
    """A pass in which each context moves the last digits of all others, in one type alone or in
    any.
    """
    real = Decoder._forward

    def forward(self, store, masks, positions, ids=None, embedded=None):
        states = real(self, store, masks, positions, ids, embedded)
        acts = only in (None, states.dtype) and ids is not None
        return states * (1 + 2e-2 * ids.float().mean().sin()).to(states.dtype) if acts else states

    return forward


def test_a_type_in_which_a_record_moves_others_is_not_used(monkeypatch):
    """Tried when a model is loaded, whatever it is loaded for."""
    facts = models.inspect(SAMPLE)
    monkeypatch.setattr(models, "faster_in_bfloat16", lambda folder, device: True)
    monkeypatch.setattr(engine, "rehearse", lambda structure: None)
    monkeypatch.setattr(Decoder, "_forward", mixing(torch.bfloat16))
    assert models.load(SAMPLE, facts["sha256"], "auto", 1.25).network.dtype == torch.float32
    with pytest.raises(models.ModelError, match="in bfloat16 a record that goes or changes moves"):
        models.load(SAMPLE, facts["sha256"], "bfloat16", 1.25)
    monkeypatch.setattr(Decoder, "_forward", mixing(None))
    with pytest.raises(models.ModelError, match="in float32 a record that goes or changes moves"):
        models.load(SAMPLE, facts["sha256"], "float32", 1.25)


def test_a_model_that_fails_a_check_in_bfloat16_alone_is_loaded_in_float32(monkeypatch):
    """As SmolLM2 did, whose own logits in bfloat16 are a third of their size off at some tokens."""
    facts, real = models.inspect(SAMPLE), engine.prepare

    def failing(network):
        if network.dtype == torch.bfloat16:
            raise engine.StructureError("too coarse")
        return real(network)

    monkeypatch.setattr(models, "faster_in_bfloat16", lambda folder, device: True)
    monkeypatch.setattr(engine, "prepare", failing)
    assert models.load(SAMPLE, facts["sha256"], "auto", 1.125).network.dtype == torch.float32
    with pytest.raises(models.ModelError, match="too coarse"):
        models.load(SAMPLE, facts["sha256"], "bfloat16", 1.125)


@pytest.mark.parametrize(
    "name",
    [
        *(
            "config.json",
            "generation_config.json",
            "model.safetensors",
            "model.safetensors.index.json",
        ),
        *(
            "tokenizer.json",
            "tokenizer_config.json",
            "added_tokens.json",
            "special_tokens_map.json",
        ),
        *(
            "vocab.json",
            "vocab.txt",
            "merges.txt",
            "tokenizer.model",
            "spiece.model",
            "qwen.tiktoken",
        ),
        *("chat_template.jinja", "chat_template.json", "additional_chat_templates/tools.jinja"),
    ],
)
def test_whatever_changes_what_a_model_writes_changes_its_hash(folder, name):
    """Present or absent, and every byte of it."""
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    seen = {models.digest(folder)}
    before = path.read_bytes() if path.exists() else b""
    for content in (before + b" ", before + b"\n"):
        path.write_bytes(content)
        seen.add(models.digest(folder))
    assert len(seen) == 3


def test_licence_and_source_are_public_facts(folder):
    (folder / "origin.json").write_text(
        json.dumps({"licence": "Apache-2.0", "source": "a-wheel 1.0"})
    )
    facts = models.inspect(folder)
    assert (facts["licence"], facts["source"]) == ("Apache-2.0", "a-wheel 1.0")


def test_small_models_stay_in_float32_on_a_processor(monkeypatch):
    """Saved in bfloat16, the sample gains nothing by it there; a large model does where that is
    fast.
    """
    assert not models.faster_in_bfloat16(SAMPLE, "cpu")
    assert models.faster_in_bfloat16(SAMPLE, "cuda")
    monkeypatch.setattr(models, "LARGE", 1)
    flags = Path("/proc/cpuinfo").read_text().split()
    assert models.faster_in_bfloat16(SAMPLE, "cpu") == (
        "amx_bf16" in flags or "avx512_bf16" in flags
    )


def test_a_model_whose_files_change_while_it_is_loaded_is_refused(folder, monkeypatch):
    """Its files are opened by name after they were hashed: they are hashed again."""
    registered, open_network = models.digest(folder), models.networks.open_network

    def opened_and_changed(*arguments):
        network = open_network(*arguments)
        change(folder, "generation_config.json", temperature=0.5)
        return network

    monkeypatch.setattr(models.networks, "open_network", opened_and_changed)
    with pytest.raises(models.ModelError, match="not those that were registered"):
        models.load(folder, registered)
