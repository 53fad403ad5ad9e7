"""A Llama of a few thousand random weights as a GGUF file, partly quantised, with a chat
template.
"""

from pathlib import Path

import gguf
import numpy as np

WIDTH, INNER, HEADS, LAYERS, CONTEXT = 32, 64, 4, 2, 128
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<file_sep>")
CHAT = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] "
    "}}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def byte_letters() -> list[str]:
    """The 256 letters that stand for bytes in a byte-level vocabulary."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    moved = iter(range(256, 512))
    return [chr(byte) if byte in kept else chr(next(moved)) for byte in range(256)]


def write(path: Path, seed: int = 0) -> dict[str, np.ndarray]:
    """Write the file; returns the weights as they were before they were quantised, by GGUF's
    names.
    """
    letters = byte_letters()
    words = [*SPECIAL, *letters, "th", "the"]
    file = gguf.GGUFWriter(path, "llama")
    file.add_context_length(CONTEXT)
    file.add_embedding_length(WIDTH)
    file.add_block_count(LAYERS)
    file.add_feed_forward_length(INNER)
    file.add_head_count(HEADS)
    file.add_head_count_kv(HEADS)
    file.add_rope_dimension_count(WIDTH // HEADS)
    file.add_rope_freq_base(10_000.0)
    file.add_layer_norm_rms_eps(1e-5)
    file.add_vocab_size(len(words))
    file.add_tokenizer_model("gpt2")
    file.add_token_list(words)
    control, normal = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
    file.add_token_types([control] * len(SPECIAL) + [normal] * (len(words) - len(SPECIAL)))
    file.add_token_merges(["t h", "th e"])
    file.add_bos_token_id(1)
    file.add_eos_token_id(2)
    file.add_unk_token_id(0)
    file.add_chat_template(CHAT)
    random = np.random.default_rng(seed)
    shapes = {"token_embd.weight": (len(words), WIDTH), "output_norm.weight": (WIDTH,)}
    for layer in range(LAYERS):
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            shapes[f"blk.{layer}.{name}.weight"] = (WIDTH, WIDTH)
        for name in ("ffn_gate", "ffn_up"):
            shapes[f"blk.{layer}.{name}.weight"] = (INNER, WIDTH)
        shapes[f"blk.{layer}.ffn_down.weight"] = (WIDTH, INNER)
        for name in ("attn_norm", "ffn_norm"):
            shapes[f"blk.{layer}.{name}.weight"] = (WIDTH,)
    weights = {
        name: random.normal(0, 0.2, shape).astype(np.float32) for name, shape in shapes.items()
    }
    for name, values in weights.items():
        kind = gguf.GGMLQuantizationType.Q8_0
        if ".ffn_" in name and values.ndim == 2:
            file.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
        else:
            file.add_tensor(name, values)
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()
    return weights
