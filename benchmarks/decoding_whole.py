"""Whole work of private decoding: prompts of 128 tokens and 64 written tokens, against plain
alternatives.

    python -m benchmarks.decoding_whole [--rows 64] [--rounds 3] [--layers 12] [--model FOLDER ...]
                                        [--dtype float32 bfloat16] [--only NAME ...]

`generate` is transformers' own, sampling a text of its own for each row; the hand-written loop
calls the plain model with its growing cache, clips and averages the logits of all rows and draws
one token for them. The engine does what a job does: exact sums on the grid and an exact draw. All
read the same prompts, which have no beginning in common, in the same type, on one thread; they take
turns within each round, in processor time (on CUDA the wall's), so that whatever else runs slows
each of them. Printed are medians of the rounds' ratios. Last is the reading of 16 rounds, which
keep what they read, by that of one.
"""

import argparse
import copy
import statistics
from collections.abc import Iterator
from functools import partial
from operator import truediv
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM, DynamicCache

from benchmarks.decoding import CLIP, DEVICE, TEMPERATURE, clock, line, random_llama, token_of
from workers import sample
from workers.engine import Batch, Decoder, KeptContexts, Shape, prepare, sizes
from workers.engine.aggregation import Mean
from workers.engine.sizing import default_memory

LENGTH, STEPS = 128, 64


class Work:
    """One model as transformers runs it and as the engine does, and prompts for it."""

    def __init__(self, plain: Any, rows: int) -> None:
        self.plain = plain.eval().requires_grad_(False).to(DEVICE)
        self.structure = prepare(copy.deepcopy(self.plain))
        random, most = torch.Generator().manual_seed(3), self.structure.vocabulary
        self.ids = torch.randint(3, most, (rows, LENGTH), generator=random).to(DEVICE)
        self.shape = Shape(0, LENGTH, STEPS)
        # As a job's: one batch, and the memory that a worker has unless told otherwise.
        self.memory = default_memory([DEVICE])
        self.sizes = sizes(self.structure.network, self.shape, rows, 1, self.memory)

    @torch.inference_mode()
    def generate(self) -> None:
        """transformers' own loop."""
        self.plain.generate(
            input_ids=self.ids,
            attention_mask=torch.ones_like(self.ids),
            max_new_tokens=STEPS,
            min_new_tokens=STEPS,
            do_sample=True,
            temperature=TEMPERATURE,
            top_k=0,
            pad_token_id=0,
        )

    @torch.inference_mode()
    def by_hand(self) -> None:
        """What somebody would write who needs one token for all rows."""
        cache = DynamicCache(config=self.plain.config)
        given = self.ids
        for _ in range(STEPS):
            output = self.plain(given, past_key_values=cache, use_cache=True, logits_to_keep=1)
            logits = output.logits[:, -1].float()
            clipped = (logits - logits.amax(dim=1, keepdim=True) + CLIP).clamp(-CLIP, CLIP)
            chances = torch.softmax(clipped.mean(dim=0) / TEMPERATURE, dim=0)
            given = torch.multinomial(chances, 1).expand(len(self.ids), 1)

    def engine(self) -> None:
        """A batch as a job decodes it."""
        decoder = Decoder(self.structure, [Batch(self.ids.tolist())], self.shape, self.sizes)
        given = decoder.read()
        for step in range(STEPS):
            mean = Mean(CLIP, self.structure.vocabulary)
            for _, logits in given:
                mean.add(logits)
            token = token_of(mean.scores(), len(self.ids))
            if step < STEPS - 1:
                given = decoder.step({0: token})

    def read(self, rounds: int) -> None:
        """All prompts in so many rounds of a job, a quarter of each prompt a common prefix."""
        begin, ids = LENGTH // 4, self.ids.tolist()
        shape = Shape(begin, LENGTH - begin, STEPS)
        batch = Batch([own[begin:] for own in ids], ids[0][:begin])
        kept = KeptContexts(self.structure, shape, self.memory) if rounds > 1 else None
        for _ in range(rounds):
            if kept is not None:
                kept.begin_round()
            list(Decoder(self.structure, [batch], shape, self.sizes, fixed=True, kept=kept).read())

    def compared(self, rounds: int) -> dict[str, list[float]]:
        """Seconds of each alternative in every round, after one round that is left out."""
        alternatives = {"generate": self.generate, "hand": self.by_hand, "engine": self.engine}
        alternatives |= {"16 rounds": partial(self.read, 16), "one": partial(self.read, 1)}
        times: dict[str, list[float]] = {name: [] for name in alternatives}
        for _ in range(rounds + 1):
            for name, run in alternatives.items():
                begin = clock()
                run()
                times[name].append(clock() - begin)
        return {name: each[1:] for name, each in times.items()}


def plain_models(options: argparse.Namespace) -> Iterator[tuple[str, Any]]:
    """The bundled model, each folder that is named, and a random Llama."""
    for folder in [sample.MODEL_DIR, *options.model]:
        yield folder.name, AutoModelForCausalLM.from_pretrained(folder, local_files_only=True)
    torch.manual_seed(0)
    config = random_llama(options.layers)
    yield f"random Llama, {options.layers} layers", AutoModelForCausalLM.from_config(config)


def main() -> None:
    """Print the table."""
    own = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    own.add_argument("--rows", type=int, default=64)
    own.add_argument("--rounds", type=int, default=3)
    own.add_argument("--layers", type=int, default=12)
    own.add_argument("--model", type=Path, nargs="*", default=[])
    own.add_argument("--dtype", nargs="*", default=["float32"])
    own.add_argument("--only", nargs="*", default=[], help="names of models; default: all")
    options = own.parse_args()
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    print(f"{DEVICE.type}, torch {torch.__version__}, {options.rows} x {LENGTH} + {STEPS} tokens")
    compared = [("generate", "engine"), ("hand", "engine"), ("16 rounds", "one")]
    line("model", "type", *map(" by ".join, compared), "seconds: generate, hand, engine, 16, one")
    line(*["---"] * 6)
    for name, plain in plain_models(options):
        if options.only and not any(name.startswith(each) for each in options.only):
            continue
        for dtype in options.dtype:
            times = Work(plain.to(getattr(torch, dtype)), options.rows).compared(options.rounds)
            ratios = [statistics.median(map(truediv, times[a], times[b])) for a, b in compared]
            seconds = ", ".join(f"{statistics.median(each):.3g}" for each in times.values())
            line(name, dtype, *(f"{ratio:.2f}" for ratio in ratios), seconds)


if __name__ == "__main__":
    main()
