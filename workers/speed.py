"""How fast a loaded model is on this machine: a self-test on made-up prompts (core.mechanisms.durations).

Random tokens are read and continued in three shapes, and trained on in two, and the terms of a pass solved
for. It takes about as long as a few dozen steps of a small job, and no private record is in reach.
"""

import time
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog
import torch

from workers import models
from workers.data.public_text import PublicPrompt, constant
from workers.embedding import embedders
from workers.engine import Batch, Decoder, Shape, Sizes, SoftLoss, soft_loss
from workers.engine.aggregation import Mean
from workers.engine.sizing import most_read, reading_rows
from workers.generation import soft_prompt_adapter
from workers.generation.writer import Manner, Written
from workers.model_shelf import free_memory
from workers.noise.clipping import GRID
from workers.noise.token_sampler import draw

log = structlog.get_logger()

if TYPE_CHECKING:
    from workers.models import LocalModel

#: (contexts, tokens of a prompt) of each measured shape.
SHAPES = ((16, 32), (96, 32), (96, 128))
STEPS = 9
SEED = 20261122
WRITTEN, ROWS = 12, 16

#: Targets of each measured pass with gradients, of so many tokens after so many soft tokens.
TRAINED, TARGET, SOFT = (2, 8), 50, 10

#: Texts, and the tokens of each, of each measured reading by an embedding model.
EMBEDDED = ((32, 32), (32, 128))


def fits(weights: int) -> bool:
    """True if so many weights have room here twice, in float32: a worker that checks files may be small."""
    return 8 * weights < free_memory("cuda" if torch.cuda.is_available() else "cpu")


def of_files(folder: Path, facts: dict[str, Any], dtype: str, memory_gib: float | None) -> dict[str, Any]:
    """The speed of a model on this machine; nothing where it can't be loaded: a job will say why."""
    try:
        if not fits(facts["parameters"]):
            return {}
        return {"speed": measure(models.load(folder, facts["sha256"], dtype, memory_gib))}
    except Exception as error:
        log.warning("speed of a model not measured", error=type(error).__name__)
        return {}


def of_embedding(folder: Path, facts: dict[str, Any]) -> dict[str, Any]:
    """As `of_files`, of an embedding model."""
    try:
        if not fits(sum(each.stat().st_size for each in folder.rglob("*.safetensors")) // 2):
            return {}
        loaded = embedders.load.__wrapped__(folder, facts["sha256"])  # and not kept for later jobs
        return {"speed": measure_embedding(loaded)}
    except Exception as error:
        log.warning("speed of an embedding model not measured", error=type(error).__name__)
        return {}


def measure_embedding(model: embedders.Embedder) -> dict[str, Any]:
    """The facts of a `durations.Speed` of a model that reads texts and does nothing else."""
    device = getattr(model, "device", torch.device("cpu"))

    def token(rows: int, tokens: int) -> float:
        texts = ["the " * tokens] * rows
        least = min(_seconds(device, lambda: [None for _ in model.embed(texts, tokens)]) for _ in range(2))
        return least / (rows * tokens)

    (_, short), (_, long) = EMBEDDED
    few, many = (token(rows, tokens) for rows, tokens in EMBEDDED)
    column = max(0.0, (many - few) / (long - short))
    nothing = dict.fromkeys(("pass_", "row", "column", "draw_row", "draw", "written"), 0.0)
    read = {"prompt": max(0.0, few - column * short), "prompt_column": column}
    return {"device": device_name(device, torch.float32), **nothing, **read}


@torch.inference_mode()
def measure(model: "LocalModel") -> dict[str, Any]:
    """The facts of a `durations.Speed`. Takes about as long as 35,000 prompt tokens, on slow ones 13,000."""
    slow = model.device.type == "cpu" and model.structure.hidden * len(model.structure.blocks) > 20_000
    shapes = [(rows // 4, tokens) if slow else (rows, tokens) for rows, tokens in SHAPES]
    found = [_shape(model, rows, tokens) for rows, tokens in shapes]
    (few, short), (many, _), (_, long) = shapes
    steps = [each[1] for each in found]
    column = max(0.0, (steps[2] - steps[1]) / (many * (long - short)))
    row = max(0.0, (steps[1] - steps[0]) / (many - few) - column * short)
    tokens = [each[0] / (rows * length) for each, (rows, length) in zip(found, shapes, strict=True)]
    prompt_column = max(0.0, (tokens[2] - tokens[1]) / (long - short))
    draw_row, draw_one = _draws(model, many)
    return {
        "device": device_name(model.device, model.network.dtype),
        "pass_": max(0.0, steps[0] - few * (row + column * short)),
        "row": row,
        "column": column,
        "prompt": max(0.0, tokens[1] - prompt_column * short),
        "prompt_column": prompt_column,
        "draw_row": draw_row,
        "draw": draw_one,
        "written": _written(model),
        **_training(model),
    }


def device_name(device: torch.device, dtype: torch.dtype) -> str:
    """The device and type that a model runs on, in words."""
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
    else:
        cpu = Path("/proc/cpuinfo")
        lines = cpu.read_text().splitlines() if cpu.exists() else []
        names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
        threads = torch.get_num_threads()
        name = f"{next(names, 'a CPU')}, {threads} thread{'s' * (threads > 1)}"
    return f"{name} in {str(dtype).removeprefix('torch.')}"


def _shape(model: "LocalModel", rows: int, tokens: int) -> tuple[float, float]:
    """Seconds of reading so many prompts of so many tokens, and of a step after them."""
    random = torch.Generator().manual_seed(SEED)
    contexts = torch.randint(model.vocabulary, (rows, tokens), generator=random).tolist()
    sizes = Sizes(rows, reading_rows(rows, most_read(model.device.type, tokens, rows)), 1)
    decoder = Decoder(model.structure, [Batch(contexts)], Shape(0, tokens, STEPS + 1), sizes)
    read = min(_seconds(model.device, lambda: [None for _ in decoder.read()]) for _ in range(2))

    def step() -> None:
        for _ in decoder.step({0: 1}):
            pass

    step()
    # The least: whatever else runs on the machine only adds to it.
    return read, min(_seconds(model.device, step) for _ in range(STEPS))


def _draws(model: "LocalModel", rows: int) -> tuple[float, float]:
    """Seconds of aggregating a context's logits, and of a draw."""
    logits = 4 * torch.randn(rows, model.vocabulary, device=model.device)

    def scores() -> Any:
        mean = Mean(8.0, model.vocabulary)
        mean.add(logits)
        return mean.scores()

    made = scores()
    each = min(_seconds(model.device, scores) for _ in range(3)) / rows
    scale = Fraction(8) / (GRID * rows)
    return each, min(_seconds(model.device, lambda: draw(made, scale)) for _ in range(5))


def _written(model: "LocalModel") -> float:
    """Seconds of a token of public texts that are written side by side."""
    from workers.generation.local_writer import LocalWriter, generator

    writer = LocalWriter(model, generator(model.device, SEED))
    prompt, manner = PublicPrompt(constant("A text:")), Manner(WRITTEN, 1.0)
    least = float("inf")
    for _ in range(4):  # the shortest of the measures, which other work disturbs most
        texts: list[Written] = []
        took = _seconds(model.device, lambda: texts.extend(writer.write([prompt], manner, ROWS)))  # noqa: B023
        least = min(least, took / sum(writer.length(each.text) + 1 for each in texts))
    return least


@torch.inference_mode(False)
def _training(model: "LocalModel") -> dict[str, float]:
    """Seconds of a pass with gradients, of each token in it, and of an adapter's step by its soft tokens."""
    random = torch.Generator().manual_seed(SEED)
    hidden, found = model.structure.hidden, []
    for rows in TRAINED:
        soft = torch.randn(rows, SOFT, hidden, generator=random)
        targets = torch.randint(model.vocabulary, (rows, TARGET), generator=random).tolist()
        call = partial(soft_loss, model.structure, soft, targets)
        found.append(min(_seconds(model.device, call) for _ in range(3)))
    tokens = [rows * (SOFT + TARGET) for rows in TRAINED]
    token = max(0.0, (found[1] - found[0]) / (tokens[1] - tokens[0]))
    adapter = soft_prompt_adapter.Adapter(hidden, SOFT)
    optimiser = torch.optim.Adam(adapter.parameters())
    states = torch.randn(TRAINED[-1], hidden, generator=random)

    def step() -> None:
        soft_prompt_adapter.step(adapter, optimiser, states, lambda made: SoftLoss(0.0, made.detach()))

    least = min(_seconds(torch.device("cpu"), step) for _ in range(4))
    return {
        "trained_pass": max(0.0, found[0] - token * tokens[0]),
        "trained": token,
        "adapted": least / (SOFT + 1),
    }


def _seconds(device: torch.device, call: Callable[[], Any]) -> float:
    """What a call takes; on a processor the time of its threads alone, whatever else the machine does."""
    if device.type == "cpu":
        started = time.process_time()
        call()
        return (time.process_time() - started) / torch.get_num_threads()
    torch.cuda.synchronize(device)
    started = time.perf_counter()
    call()
    torch.cuda.synchronize(device)
    return time.perf_counter() - started
