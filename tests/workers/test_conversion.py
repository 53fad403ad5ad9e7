"""GGUF files of anybody's own: converted once, dequantised, with tokenizer and chat template."""

import subprocess
import sys
from pathlib import Path

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
        np.testing.assert_allclose(found.float(), weights[f"blk.{layer}.ffn_down.weight"], atol=0.02)
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


@pytest.mark.slow
def test_a_file_that_is_none_is_one_line(tmp_path):
    (tmp_path / "bad.gguf").write_bytes(b"GGUF and then nothing of use")
    command = [sys.executable, "-m", "workers.conversion", tmp_path / "bad.gguf", tmp_path / "model"]
    found = subprocess.run(command, capture_output=True, text=True)
    assert found.returncode == 1
    assert "Traceback" not in found.stderr
    assert found.stderr.strip()
