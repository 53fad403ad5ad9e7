"""Speed of private decoding: ratios within one run, in process CPU time, on one thread.

    python -m benchmarks.decoding [--quick] [--parts steps,reencode,...] [--model FOLDER ...]

A random Llama of 12 layers, width 768, vocabulary 32,000; 64 contexts of 300 tokens, of which the
first 40 are one shared prefix. Alternatives take turns step by step and the medians of their times
are compared, so that a busy machine slows both. Where only the time of a step counts, the caches
are filled with random numbers instead of being read. EXCHEQUER_SHARED adds the small models that
lie there; on CUDA the clock is the wall's, between synchronised steps.
"""

import argparse
import copy
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from transformers import (
    AutoModelForCausalLM,
    DynamicCache,
    LlamaConfig,
    StoppingCriteria,
    StoppingCriteriaList,
)

from tests.aggregates import mean_scores
from workers.engine import Batch, Decoder, Shape, Sizes, prepare
from workers.engine.aggregation import GRID, Mean, Median, grid_costs
from workers.engine.sizing import MOST_ROWS, pass_rows
from workers.noise.token_sampler import draw

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
CONTEXTS, LENGTH, PREFIX, CLIP, TEMPERATURE = 64, 300, 40, 9.0, 1.5


def clock() -> float:
    """Seconds: of this process's CPU, or on a GPU of the wall once it has finished."""
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()
        return time.perf_counter()
    return time.process_time()


def turns(rounds: int, **alternatives: Callable[[], object]) -> dict[str, float]:
    """Median seconds of each alternative, one after another in every round, the first round left
    out.
    """
    times: dict[str, list[float]] = {name: [] for name in alternatives}
    for _ in range(rounds + 1):
        for name, run in alternatives.items():
            begin = clock()
            run()
            times[name].append(clock() - begin)
    return {name: statistics.median(each[1:]) for name, each in times.items()}


def random_llama(layers: int = 12) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=32_000,
        hidden_size=768,
        intermediate_size=2048,
        num_hidden_layers=layers,
        num_attention_heads=12,
        num_key_value_heads=12,
        max_position_embeddings=1024,
    )


class Bench:
    """One model twice: as the engine runs it and as transformers does; and contexts for it."""

    def __init__(
        self, name: str, plain: Any, contexts: int, length: int, steps: int, twice: bool = True
    ) -> None:
        self.name = name
        self.plain = plain.eval().requires_grad_(False).to(DEVICE)
        self.structure = prepare(copy.deepcopy(self.plain) if twice else self.plain)
        self.vocabulary = self.structure.vocabulary
        generator = torch.Generator().manual_seed(3)
        self.prefix = torch.randint(
            3, self.vocabulary, (min(PREFIX, length // 2),), generator=generator
        ).tolist()
        rest = length - len(self.prefix)
        self.contexts = [
            torch.randint(3, self.vocabulary, (rest,), generator=generator).tolist()
            for _ in range(contexts)
        ]
        self.shape = Shape(len(self.prefix), rest, steps)

    def of(self, contexts: int) -> "Bench":
        """The same with fewer contexts."""
        fewer = copy.copy(self)
        fewer.contexts = self.contexts[:contexts]
        return fewer

    def batch(self) -> Batch:
        return Batch(self.contexts, self.prefix)

    def plain_cache(self, length: int) -> DynamicCache:
        """The cache that `generate` would keep of `length` tokens of each context, in random
        numbers.
        """
        config = self.plain.config
        width = (
            getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        )
        shape = (len(self.contexts), config.num_key_value_heads, length, width)
        kept = DynamicCache(config=config)
        for layer in range(config.num_hidden_layers):
            kept.update(torch.randn(shape, device=DEVICE), torch.randn(shape, device=DEVICE), layer)
        return kept

    def sizes(self, batches: int = 1) -> Sizes:
        rows = pass_rows(len(self.contexts) * batches, MOST_ROWS[DEVICE.type])
        return Sizes(rows, min(rows, 16), batches)

    def decoder(self, batches: int = 1, **more: Any) -> Decoder:
        """One whose cache holds random numbers, as if the contexts had been read."""
        held = [self.batch()] * batches
        made = Decoder(self.structure, held, self.shape, self.sizes(batches), **more)
        for _ in made.step({0: 5}):
            pass
        made.restart(0)
        with torch.inference_mode():
            for layer in made.store.own:
                layer.keys.normal_()
                layer.values.normal_()
        return made


def token_of(scores: np.ndarray, size: int, halves: int = 1) -> int:
    scale = Fraction(CLIP) / (GRID * halves * size * Fraction(TEMPERATURE))
    return draw(scores, scale)


def private_step(
    bench: Bench, decoder: Decoder, tokens: dict[int, int], aggregation: str = "mean"
) -> None:
    """One token of every batch: logits, aggregate, exact draw. Begins the texts again where they
    are full.
    """
    if decoder.batches[0].written == bench.shape.text:
        for number in tokens:
            decoder.restart(number)
    collected: list[Mean | Median] = [
        Mean(CLIP, bench.vocabulary) if aggregation == "mean" else Median(CLIP) for _ in tokens
    ]
    for number, logits in decoder.step(tokens):
        collected[number].add(logits)
    for number, each in enumerate(collected):
        if isinstance(each, Mean):
            tokens[number] = token_of(each.scores(), len(bench.contexts))
        else:
            interval = each.interval()
            grid_costs(interval, CLIP, TEMPERATURE)
            tokens[number] = token_of(interval.median, 1, 2)


def stepper(bench: Bench, decoder: Decoder, aggregation: str = "mean") -> Callable[[], None]:
    tokens = dict.fromkeys(range(len(decoder.batches)), 5)
    return lambda: private_step(bench, decoder, tokens, aggregation)


class TakingTurns(StoppingCriteria):
    """Called by `generate` after each of its steps: notes its time and lets the alternatives do a
    step.
    """

    def __init__(self, alternatives: dict[str, Callable[[], None]]) -> None:
        self.alternatives, self.begin = alternatives, 0.0
        self.times: dict[str, list[float]] = {"generate": [], **{name: [] for name in alternatives}}

    def __call__(self, input_ids: torch.Tensor, _scores: Any, **_: Any) -> torch.Tensor:
        self.times["generate"].append(clock() - self.begin)
        for name, step in self.alternatives.items():
            begin = clock()
            step()
            self.times[name].append(clock() - begin)
        self.begin = clock()
        return torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)

    def medians(self) -> dict[str, float]:
        """Seconds a step; the first, which reads the prompts, is left out."""
        return {name: statistics.median(each[1:]) for name, each in self.times.items()}


def line(*cells: object) -> None:
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms"


# --- parts ----------------------------------------------------------------------------------------


def part_steps(bench: Bench, rounds: int) -> None:
    """Private decoding against plain generate at equal rows."""
    decoder = bench.decoder()
    turns_taken = TakingTurns(
        # one text: same length for both
        {name: stepper(bench, decoder, name) for name in ("mean", "median")}
    )
    ids = torch.tensor([[*bench.prefix, *each] for each in bench.contexts], device=DEVICE)
    with torch.inference_mode():
        bench.plain.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            past_key_values=bench.plain_cache(ids.shape[1] - 1),
            max_new_tokens=3 * rounds + 1,
            min_new_tokens=3 * rounds + 1,
            do_sample=True,
            temperature=TEMPERATURE,
            top_k=0,
            pad_token_id=0,
            stopping_criteria=StoppingCriteriaList([turns_taken]),
        )
    found = turns_taken.medians()
    for aggregation, goal in (("mean", 1.2), ("median", 1.0)):
        ratio = found["generate"] / found[aggregation]
        line(
            bench.name,
            f"{aggregation} against generate, steps per second",
            f"{ratio:.2f} (goal {goal})",
            f"{milliseconds(found[aggregation])} and {milliseconds(found['generate'])} a step",
        )


def part_reencode(bench: Bench, rounds: int) -> None:
    """Against reading every prompt again for each token, on a quarter of the contexts."""
    small = bench.of(len(bench.contexts) // 4)
    ids = torch.tensor([[*small.prefix, *each] for each in small.contexts], device=DEVICE)

    def again() -> None:
        with torch.inference_mode():
            small.plain(input_ids=ids, use_cache=False, logits_to_keep=1)

    found = turns(max(1, rounds // 3), again=again, engine=stepper(small, small.decoder()))
    line(
        bench.name,
        f"against reading every prompt again, {len(small.contexts)} contexts",
        f"{found['again'] / found['engine']:.1f}",
        f"{milliseconds(found['engine'])} and {milliseconds(found['again'])} a step",
    )


def part_bfloat16(bench: Bench, rounds: int) -> None:
    """bfloat16 against float32, and how far the aggregated logits of 16 contexts are apart."""
    coarse = copy.copy(bench)
    coarse.structure = prepare(copy.deepcopy(bench.structure.network).to(torch.bfloat16))
    means = []
    for each in (bench, coarse):
        small = each.of(16)
        decoder = Decoder(small.structure, [small.batch()], small.shape, small.sizes())
        scores = mean_scores((logits for _, logits in decoder.read()), CLIP, small.vocabulary)
        means.append(scores * (CLIP / GRID / len(small.contexts)))
    found = turns(
        2 * rounds, fine=stepper(bench, bench.decoder()), rough=stepper(coarse, coarse.decoder())
    )
    apart = np.abs(means[0] - means[1])
    line(
        bench.name,
        "bfloat16 against float32, steps per second",
        f"{found['fine'] / found['rough']:.2f}",
        f"aggregated logits apart: mean {apart.mean():.2g}, largest {apart.max():.2g} of clip "
        f"{CLIP:g}",
    )


def part_together(bench: Bench, rounds: int) -> None:
    """Two batches in one step against one after the other: of half a batch, and of an eighth of
    it.
    """
    for contexts in (len(bench.contexts) // 2, len(bench.contexts) // 8):
        small = bench.of(contexts)
        first, second = stepper(small, small.decoder()), stepper(small, small.decoder())
        found = turns(
            2 * rounds,
            apart=lambda first=first, second=second: (first(), second()),
            both=stepper(small, small.decoder(2)),
        )
        line(
            bench.name,
            f"two batches of {contexts} together against one after the other",
            f"{found['apart'] / found['both']:.2f}",
            f"{milliseconds(found['both'])} a step of both",
        )


def part_steering(bench: Bench, rounds: int) -> None:
    """Steered against unsteered."""
    middle = len(bench.structure.blocks) // 2
    bias = {
        layer: torch.full((bench.structure.hidden,), 1e-3) for layer in range(middle, middle + 2)
    }
    found = turns(
        4 * rounds,
        plain=stepper(bench, bench.decoder()),
        steered=stepper(bench, bench.decoder(steering=bias)),
    )
    line(
        bench.name,
        "steered (two layers) against unsteered, steps per second",
        f"{found['plain'] / found['steered']:.3f} (goal 0.98)",
        f"{milliseconds(found['steered'])} a step",
    )


def part_bytes(bench: Bench, rounds: int) -> None:
    """Bytes that a step must read, weights and cache once, by the time it takes."""
    decoder = bench.decoder()
    found = turns(rounds, step=stepper(bench, decoder))["step"]
    weights = sum(
        each.numel() * each.element_size() for each in bench.structure.network.parameters()
    )
    used = [
        layer.keys[:, :, : bench.shape.prefix + bench.shape.rest] for layer in decoder.store.own
    ]
    cache = sum(2 * each.numel() * each.element_size() for each in used)
    line(
        bench.name,
        "achieved bytes per second",
        f"{(weights + cache) / found / 1e9:.3g} GB/s",
        f"{weights / 1e6:.4g} MB of weights and {cache / 1e6:.4g} MB of cache a step",
    )


def part_aggregation(rounds: int, quick: bool) -> None:
    """Means and medians alone."""
    generator = torch.Generator().manual_seed(0)
    for contexts, vocabulary, goal in ((64, 32_000, "5 ms"), (256, 128_000, "0.1 s")):
        if quick and contexts > 64:
            continue
        logits = (torch.randn((contexts, vocabulary), generator=generator) * 3).to(DEVICE)

        def middle(logits: torch.Tensor = logits) -> None:
            median = Median(6.0)
            median.add(logits)
            median.interval()

        found = turns(
            4 * rounds,
            median=middle,
            mean=lambda logits=logits: mean_scores([logits], 9.0, logits.shape[1]),
        )
        shape = f"{contexts} × {vocabulary:,}"
        line(
            "aggregation",
            f"medians and their ends of {shape}",
            milliseconds(found["median"]),
            f"goal {goal}",
        )
        line("aggregation", f"clipped means of {shape}", milliseconds(found["mean"]), "")
        interval = Median(6.0)
        interval.add(logits)
        known = interval.interval()
        costs = turns(rounds, costs=lambda known=known: grid_costs(known, 6.0, 1.5))["costs"]
        line("aggregation", f"ex-post costs of {vocabulary:,} tokens", milliseconds(costs), "")


def part_memory() -> None:
    """256 contexts of 300 tokens: the peak of this process, which does nothing else.

    One pass of prompts is read, the other rows are filled with random numbers, 16 tokens are
    decoded.
    """
    network = AutoModelForCausalLM.from_config(random_llama()).eval().requires_grad_(False)
    bench = Bench("random Llama, 12 layers", network, 256, LENGTH, 16, twice=False)
    decoder = bench.decoder()
    next(decoder.read())
    step = stepper(bench, decoder)
    for _ in range(16):
        step()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    line(bench.name, f"peak memory, 256 contexts of {LENGTH} tokens", f"{peak:.2f} GB (goal 8)", "")


PARTS = {
    "steps": part_steps,
    "reencode": part_reencode,
    "bfloat16": part_bfloat16,
    "together": part_together,
    "steering": part_steering,
    "bytes": part_bytes,
}


def benches(arguments: argparse.Namespace) -> Iterator[Bench]:
    quick = arguments.quick
    config = random_llama(2 if quick else 12)
    name = f"random Llama, {config.num_hidden_layers} layers"
    torch.manual_seed(0)
    yield Bench(name, AutoModelForCausalLM.from_config(config), CONTEXTS, LENGTH, 16)
    shared = os.environ.get("EXCHEQUER_SHARED")
    folders = [Path(each) for each in arguments.model]
    folders += (
        sorted(Path(shared).glob("data/models/*/config.json"))
        if shared and not arguments.model
        else []
    )
    for folder in folders:
        home = folder.parent if folder.is_file() else folder
        try:
            plain = AutoModelForCausalLM.from_pretrained(
                home, local_files_only=True, use_safetensors=True
            )
        except ValueError:
            continue  # an embedding model
        length = min(LENGTH, plain.config.max_position_embeddings - 40)
        yield Bench(home.name, plain.float(), CONTEXTS, length, 16)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="two layers, few rounds: does it run?")
    parser.add_argument("--parts", default=",".join([*PARTS, "aggregation", "memory"]))
    parser.add_argument("--model", action="append", default=[], help="folder of another model")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    parts = arguments.parts.split(",")
    rounds = 2 if arguments.quick else arguments.rounds
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    if parts == ["memory"]:
        part_memory()
        return
    print(
        f"{DEVICE.type}, torch {torch.__version__}, {torch.get_num_threads()} thread, {rounds} "
        "rounds, "
        f"{CONTEXTS} contexts, temperature {TEMPERATURE}, clip {CLIP:g}"
    )
    line("model", "what", "figure", "details")
    line("---", "---", "---", "---")
    if "aggregation" in parts:
        part_aggregation(rounds, arguments.quick)
    if wanted := [part for part in PARTS if part in parts]:
        for bench in benches(arguments):
            for part in wanted:
                PARTS[part](bench, rounds)
    if "memory" in parts:  # a process of its own: the peak is that of a process's life
        subprocess.run(
            [sys.executable, "-m", "benchmarks.decoding", "--parts", "memory"], check=True
        )


if __name__ == "__main__":
    main()
