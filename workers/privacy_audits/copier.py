"""A language model that copies: the worst case for a mechanism, with weights set by hand.

A model that can't repeat its context leaks nothing, whatever the mechanism does, and an audit with
it would pass for the wrong reason. This one has a single attention head that looks a fixed number
of tokens back and gives the token there SURE nats more than any other, so each context predicts its
own key. Digits start with SURE nats more than other characters, so that texts are mostly numbers.

One layer of a Llama. Coordinates of the residual stream: [token | 1 | copied]. With rotary
positions, q = (cos d w, -sin d w), k = (1, 0) give the score sum of cos((m - n - d) w) over
frequencies w, which is largest at the distance m - n = d.
"""

import math
import string
from pathlib import Path
from typing import Any

SURE = 6.0
HEAD, THETA, SHARPNESS = 64, 30.0, 40.0
CHARACTERS = sorted({*string.digits, *"My 5-digit key is.\n"})


def make(folder: Path, distance: int) -> None:
    """Write a model that repeats the token `distance` back, and a tokenizer by character."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    size = len(CHARACTERS)
    config = LlamaConfig(
        vocab_size=size,
        hidden_size=2 * size + 1,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=HEAD,
        max_position_embeddings=512,
        rms_norm_eps=1e-12,
        rope_parameters={"rope_type": "default", "rope_theta": THETA},
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=None,
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
        _set_weights(model, size, distance)
    model.save_pretrained(folder, safe_serialization=True)
    vocabulary = {character: index for index, character in enumerate(CHARACTERS)}
    tokens = Tokenizer(models.WordLevel(vocabulary, unk_token=" "))  # noqa: S106  (a blank)
    tokens.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokens.decoder = decoders.Fuse()
    PreTrainedTokenizerFast(
        tokenizer_object=tokens, clean_up_tokenization_spaces=False
    ).save_pretrained(folder)


def _set_weights(model: Any, size: int, distance: int) -> None:
    import torch

    one, copied = size, slice(size + 1, 2 * size + 1)
    layer = model.model.layers[0]
    for norm in (layer.input_layernorm, layer.post_attention_layernorm, model.model.norm):
        norm.weight.fill_(1.0)
    model.model.embed_tokens.weight[:, :size] = torch.eye(size)
    model.model.embed_tokens.weight[:, one] = 1.0
    width = 2 * size + 1
    unit = math.sqrt(width / 2)  # what a 1 is after the norm of two of them
    half = HEAD // 2
    angles = distance * THETA ** (-torch.arange(half) / half)
    strength = math.sqrt(SHARPNESS) * HEAD**0.25 / math.sqrt(half) * 2
    attention = layer.self_attn
    attention.q_proj.weight[:half, one] = strength * angles.cos() / unit
    attention.q_proj.weight[half:, one] = -strength * angles.sin() / unit
    attention.k_proj.weight[:half, one] = strength / unit
    attention.v_proj.weight[:size, :size] = torch.eye(size) / unit
    attention.o_proj.weight[copied, :size] = torch.eye(size)
    final = math.sqrt(width / 3)  # and of three
    model.lm_head.weight[:, copied] = torch.eye(size) * SURE / final
    for digit in string.digits:
        model.lm_head.weight[CHARACTERS.index(digit), one] = SURE / final
