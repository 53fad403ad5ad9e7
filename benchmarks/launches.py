"""What a decoding step asks of a GPU, counted where there is none: launches, waits and bytes.

    python -m benchmarks.launches [--rows 256] [--columns 300]

A step of the engine is run on small random Llamas of 2 and 6 layers in bfloat16; every operator
that computes (no view) is one launch, on a GPU too, and the two depths give those of a layer and
those of the rest. What the engine does otherwise on a processor (it keeps the cache in float32 and
attends by three calls) is done here as on a GPU. A wait is a copy to the host or a value that is
asked for. Bytes are those of weights, cache and logits that a step has to move, for Llama-3.1-8B's
shape in bfloat16. Speeds of the H200 are its maker's; the time of an eager launch is an assumption,
stated in the table. Nothing here is measured on a GPU.
"""

import argparse
from collections import Counter
from typing import Any

import torch
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoModelForCausalLM, LlamaConfig

from workers.engine import Batch, Decoder, Shape, Sizes, attention, cache, decoder, prepare
from workers.engine.aggregation import Mean

#: Llama-3.1-8B.
LAYERS, HIDDEN, INNER, HEADS, KEY_HEADS, WIDTH, VOCABULARY = 32, 4096, 14336, 32, 8, 128, 128_256
#: An H200: bytes and bfloat16 operations a second.
BANDWIDTH, OPERATIONS = 4.8e12, 989e12
#: Seconds of an eager launch from Python through transformers' modules: assumed.
LAUNCHES = (4e-6, 7e-6, 10e-6)


class Counting(TorchDispatchMode):
    """Counts operators that compute."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made, name = func(*args, **(kwargs or {})), func.overloadpacket.__name__
        given = {
            each.untyped_storage().data_ptr() for each in args if isinstance(each, torch.Tensor)
        }
        alike = isinstance(made, torch.Tensor) and made.untyped_storage().data_ptr() in given
        views = isinstance(made, tuple | list) and name in ("split", "chunk", "unbind")
        if name.endswith("_") or not (alike or views or name == "empty"):
            self.found[name] += 1
        return made


def fused(
    query: torch.Tensor, key: Any, value: Any, mask: torch.Tensor, scaling: Any
) -> torch.Tensor:
    """Attention of single queries by one call, in place of attention._single."""
    rows, heads, columns, width = key.shape
    query, mask = query.reshape(rows, heads, -1, width), mask.view(rows, heads, -1, columns)
    return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scaling)


def as_on_a_gpu() -> None:
    """Let the engine of this process take the paths of an accelerator."""
    attention._single = fused
    cache.kept_type = decoder.kept_type = lambda states, _device: states


@torch.inference_mode()
def counted(layers: int, rows: int, columns: int) -> tuple[Counter[str], Counter[str]]:
    """(operators of a pass, those of aggregating its logits)."""
    config = LlamaConfig(
        **{
            "num_hidden_layers": layers,
            "hidden_size": 64,
            "intermediate_size": 128,
            "vocab_size": 500,
        },
        **{
            "num_attention_heads": 8,
            "num_key_value_heads": 2,
            "max_position_embeddings": 2 * columns,
        },
    )
    network = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    network = network.to(torch.bfloat16).eval().requires_grad_(False)
    model = prepare(network)
    batch = Batch([[1] * columns] * rows)
    made = Decoder(model, [batch], Shape(0, columns, 4), Sizes(rows, rows, 1))
    for _ in made.read():
        pass
    for _ in made.step({0: 1}):
        pass
    with Counting() as passes:
        logits = torch.cat([values for _, values in made.step({0: 1})])
    with Counting() as sums:
        mean = Mean(8.0, config.vocab_size)
        mean.add(logits)
        mean.scores()
    return passes.found, sums.found


def main() -> None:
    """Print the table."""
    own = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    own.add_argument("--rows", type=int, default=256)
    own.add_argument("--columns", type=int, default=300)
    options = own.parse_args()
    as_on_a_gpu()
    (few, aggregated), (many, _) = (counted(layers, 8, 16) for layers in (2, 6))
    layer = {name: (many[name] - few[name]) / 4 for name in many if many[name] != few[name]}
    rest = few.total() - 2 * sum(layer.values())
    launches = LAYERS * sum(layer.values()) + rest
    print(
        "operators of a layer:",
        ", ".join(f"{name} {count:g}" for name, count in sorted(layer.items())),
    )
    print(
        f"a pass: {sum(layer.values()):g} a layer and {rest:g} besides; {launches:g} for {LAYERS} "
        "layers"
    )
    print(
        "aggregation:", ", ".join(f"{name} {count}" for name, count in sorted(aggregated.items()))
    )
    waits = sum(few[name] for name in ("_local_scalar_dense", "nonzero"))
    print(f"waits: {waits} in a pass, and the copy of a batch's scores to the host")

    weights = 2 * (
        LAYERS * HIDDEN * (HEADS * WIDTH * 2 + 2 * KEY_HEADS * WIDTH + 3 * INNER)
        + HIDDEN * VOCABULARY
    )
    cache = 2 * 2 * LAYERS * KEY_HEADS * WIDTH * options.rows * options.columns
    logits = 4 * VOCABULARY * options.rows
    operations = weights * options.rows
    floor = max((weights + cache) / BANDWIDTH, operations / OPERATIONS)
    # written and read; five passes over float64
    aggregating = (2 * logits + 5 * 2 * logits) / BANDWIDTH
    print(f"a step of {options.rows} contexts of {options.columns} columns moves")
    print(
        f"  weights {weights / 1e9:.1f} GB, cache {cache / 1e9:.1f} GB, logits {logits / 1e9:.2f} "
        "GB"
    )
    print(
        f"  at the memory's speed {1e3 * (weights + cache) / BANDWIDTH:.2f} ms; of arithmetic "
        f"{1e3 * operations / OPERATIONS:.2f} ms; logits {1e3 * aggregating:.2f} ms"
    )
    hidden = floor / (floor + aggregating)
    print(f"share of the roofline, launches hidden behind the memory's traffic: {hidden:.0%}")
    for launch in LAUNCHES:
        eager = launches * launch
        share = floor / (max(floor, eager) + aggregating)
        print(f"  launches of {1e6 * launch:g} us each: {1e3 * eager:.2f} ms a step, {share:.0%}")


if __name__ == "__main__":
    main()
