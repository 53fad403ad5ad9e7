"""Tiny random models of the five families, and their plain twins in float64."""

import copy
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM

from workers.engine import Structure, prepare

VOCABULARY, WIDTH, LAYERS, CONTEXT = 97, 32, 4, 128

COMMON = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "intermediate_size": 48,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT,
    "initializer_range": 0.2,
}
#: Windows shorter than the contexts, so that a wrong mask shows.
SLIDING = {"sliding_window": 6, "layer_types": ["sliding_attention", "full_attention"] * 2}
GEMMA = {**COMMON, "head_dim": 8, "query_pre_attn_scalar": 8}

FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", COMMON),
    "qwen2": ("Qwen2Config", {**COMMON, "use_sliding_window": True, **SLIDING}),
    "qwen3": ("Qwen3Config", {**COMMON, "head_dim": 8}),
    "gemma2": ("Gemma2Config", {**GEMMA, **SLIDING, "attn_logit_softcapping": 2.0}),
    "gemma3": ("Gemma3TextConfig", {**GEMMA, **SLIDING, "final_logit_softcapping": 3.0}),
    "olmo2": ("Olmo2Config", COMMON),
    "olmo3": ("Olmo3Config", {**COMMON, **SLIDING}),
    "gpt2": (
        "GPT2Config",
        {
            "vocab_size": VOCABULARY,
            "n_embd": WIDTH,
            "n_layer": LAYERS,
            "n_head": 4,
            "n_positions": CONTEXT,
            "initializer_range": 0.2,
        },
    ),
}
#: One of each way that the engine has: plain attention, windows with caps, learned positions.
BRANCHES = ("llama", "gemma2", "gpt2")


def family(name: str, dtype: torch.dtype = torch.float32) -> tuple[Structure, Any]:
    """A model as the engine runs it, and the same weights in a plain model in float64."""
    kind, values = FAMILIES[name]
    config = getattr(transformers, kind)(**values)
    twin = copy.deepcopy(config)
    torch.manual_seed(7)
    network = AutoModelForCausalLM.from_config(config).eval().requires_grad_(False)
    plain = AutoModelForCausalLM.from_config(twin, attn_implementation="eager").double().eval()
    plain.load_state_dict(network.state_dict())
    return prepare(network.to(dtype)), plain.requires_grad_(False)
