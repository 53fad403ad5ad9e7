"""GGUF files of anybody's own: converted once, dequantised, with tokenizer and chat template."""

import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tests import tiny_gguf
from workers import conversion, models


@pytest.fixture(scope="module")
def converted(tmp_path_factory) -> tuple[Path, dict[str, np.ndarray]]:
    scratch = tmp_path_factory.mktemp("gguf")
    weights = tiny_gguf.write(scratch / "tiny.gguf")
    conversion.convert(scratch / "tiny.gguf", scratch / "model")
    return scratch / "model", weights


def test_what_was_quantised_is_plain_in_bfloat16(converted):
    folder, weights = converted
    facts = models.inspect(folder)
    assert (facts["dtype"], facts["context_tokens"]) == ("bfloat16", tiny_gguf.CONTEXT)
    tensors = load_file(folder / "model.safetensors")
    for layer in range(tiny_gguf.LAYERS):
        found = tensors[f"model.layers.{layer}.mlp.down_proj.weight"]
        assert found.dtype == torch.bfloat16
        np.testing.assert_allclose(
            found.float(), weights[f"blk.{layer}.ffn_down.weight"], atol=0.02
        )
    np.testing.assert_allclose(
        tensors["model.embed_tokens.weight"].float(), weights["token_embd.weight"], atol=0.01
    )


def test_a_converted_model_runs_and_is_asked_through_its_template(converted):
    folder, _ = converted
    model = models.load(folder, models.digest(folder))
    assert model.end_tokens == {2}
    prompt = models.Prompt(model.tokenizer, "{user}the {record}{assistant}", None)
    shown = model.tokenizer.decode(prompt.tokens("cat", 8))
    assert shown == "<|im_start|>user\nthe cat<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("blk.1.ffn_down.weight", np.nan),  # the scale of a quantised block
        ("blk.0.ffn_up.weight", np.inf),
        ("token_embd.weight", np.nan),
        ("blk.1.attn_norm.weight", -np.inf),
    ],
)
def test_numbers_that_are_none_are_refused(tmp_path, name, value):
    tiny_gguf.write(tmp_path / "bad.gguf")
    tensor = next(
        each for each in gguf.GGUFReader(tmp_path / "bad.gguf", "r+").tensors if each.name == name
    )
    if tensor.data.dtype == np.uint8:
        tensor.data.reshape(-1)[:2] = np.frombuffer(np.float16(value).tobytes(), np.uint8)
    else:
        tensor.data.reshape(-1)[0] = value
    tensor.data.base.flush() if hasattr(tensor.data.base, "flush") else None
    with pytest.raises(models.ModelError, match="holds NaN"):
        conversion.convert(tmp_path / "bad.gguf", tmp_path / "model")


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (b"blk.1.ffn_down.weight", b"blk.1.ffn_dawn.weight", "ffn_dawn|down_proj"),
        (b"output_norm.weight", b"output_narm.weight", "narm|model.norm"),
    ],
)
def test_a_weight_of_another_name_is_never_random(tmp_path, old, new, why):
    tiny_gguf.write(tmp_path / "bad.gguf")
    content = (tmp_path / "bad.gguf").read_bytes()
    assert old in content
    (tmp_path / "bad.gguf").write_bytes(content.replace(old, new))
    with pytest.raises((models.ModelError, KeyError, ValueError), match=why):
        conversion.convert(tmp_path / "bad.gguf", tmp_path / "model")


@pytest.mark.slow
def test_a_file_that_is_none_is_one_line(tmp_path):
    (tmp_path / "bad.gguf").write_bytes(b"GGUF and then nothing of use")
    command = [
        sys.executable,
        "-m",
        "workers.conversion",
        tmp_path / "bad.gguf",
        tmp_path / "model",
    ]
    found = subprocess.run(command, capture_output=True, text=True)
    assert found.returncode == 1
    assert "Traceback" not in found.stderr
    assert found.stderr.strip()
