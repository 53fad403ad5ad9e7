"""The share of the engine's speed that mechanisms keep: ratios within one run, in CPU time, on one
thread.

    python -m benchmarks.mechanisms [--quick] [--parts mean,median,invisible-ink,epsvec] [--repeats
      3]

Each mechanism's own runner decodes 64 private rows, or writes 64 steered texts, and between any two
of its steps the engine's own benchmark (benchmarks.decoding) does one step of the same shape: the
same rows, cache and kind of aggregation, and an exact draw. Steered texts are held against the
engine's bare step, which draws nothing at all. A ratio is the engine's median seconds by the
mechanism's; the figure is the median of `--repeats` runs that take turns. Models as in
benchmarks.decoding: a random Llama of 12 layers, and with EXCHEQUER_SHARED the small ones that lie
there.
"""

import argparse
import os
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

from accountant.core import mechanisms
from accountant.core.privacy.events import FREE, Event
from accountant.core.privacy.price import Terms
from benchmarks.decoding import (
    CLIP,
    CONTEXTS,
    DEVICE,
    TEMPERATURE,
    Bench,
    clock,
    line,
    random_llama,
    stepper,
)
from workers.data.records import Place, Record, Records, Within
from workers.engine import Shape
from workers.generation import local_writer
from workers.generation.local_writer import LocalWriter, generator
from workers.generation.writer import Manner
from workers.interface import Progress
from workers.mechanisms import runner
from workers.models import LocalModel, Prompt
from workers.noise.meter import Meter

LENGTH = 300
GOAL = 0.95
#: Seconds of a step: of the mechanism, "own", and of the engine's alternatives by their names.
Medians = dict[str, float]
SAME, ONE_PASS = "the engine, same passes", "the engine, all contexts in one pass"
TERMS = Terms(delta=1e-6, public_size=CONTEXTS)


class Turns:
    """Seconds between two steps of a mechanism, and of the engine's steps that run between them."""

    def __init__(self, **engines: Callable[[], None]) -> None:
        self.engines, self.began = engines, clock()
        self.times: dict[str, list[float]] = {"own": [], **{name: [] for name in engines}}

    def take(self) -> None:
        """Called where a step of the mechanism is over."""
        self.times["own"].append(clock() - self.began)
        for name, step in self.engines.items():
            begin = clock()
            step()
            self.times[name].append(clock() - begin)
        self.began = clock()

    def medians(self) -> Medians:
        """Seconds of a step of each, without the first two: there prompts are read and room is set
        aside.
        """
        return {name: statistics.median(each[2:]) for name, each in self.times.items()}


class TurnsMeter(Meter):
    """A real meter; a step is over when the first of its batches draws the next token."""

    turns: Turns
    batches: int
    draws = 0

    def _next(self) -> None:
        if self.draws % self.batches == 0:
            self.turns.take()
        self.draws += 1

    def sample_token(
        self, scores: NDArray[np.int64], scale: Fraction, event: Event, part: Any = None
    ) -> int:
        self._next()
        return super().sample_token(scores, scale, event, part)

    def ex_post_token(
        self,
        scores: NDArray[np.int64],
        scale: Fraction,
        costs: NDArray[np.float64],
        part: Any = None,
    ) -> int:
        self._next()
        return super().ex_post_token(scores, scale, costs, part)


class TurnsRows(local_writer._Rows):
    """A writer's rows; a step is over when the next tokens are drawn."""

    turns: Turns

    def _draw(self, logits: torch.Tensor) -> torch.Tensor:
        self.turns.take()
        return super()._draw(logits)


# --- models ---------------------------------------------------------------------------------------


def words(vocabulary: int) -> PreTrainedTokenizerFast:
    """A tokenizer whose every token is a word, for a model without one."""
    known = {f"w{number}": number for number in range(vocabulary)}
    made = Tokenizer(models.WordLevel(known, unk_token="w0"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=made, clean_up_tokenization_spaces=False)


class Even(Records):
    """As many records in each batch as its public size, so that both sides decode as many rows."""

    def batches(
        self,
        count: int,
        within: Within | None = None,  # noqa: ARG002
        run: int | None = None,  # noqa: ARG002
    ) -> dict[Place, list[str]]:
        texts = [record.text for record in self.records]
        return {(None, place): texts[place::count] for place in range(count)}


@dataclass(frozen=True)
class Subject:
    """A model as mechanisms get it, and the records that they read."""

    name: str
    model: LocalModel
    length: int
    text: str

    def records(self) -> "Even":
        """A record for each context, each longer than a job's `record_tokens`."""
        found = tuple(Record(str(place), None, f"{self.text} {place}") for place in range(CONTEXTS))
        return Even((None,), found, b"k" * 32)

    def bench(self, prefix: int, rest: int, steps: int) -> Bench:
        """The engine's benchmark on this model, in the mechanism's shape, with a context to
        spare.
        """
        made = Bench(self.name, self.model.network, 1, 8, steps, twice=False)
        made.structure, made.shape = self.model.structure, Shape(prefix, rest, steps)
        made.prefix = [3] * prefix
        made.contexts = torch.randint(3, made.vocabulary, (CONTEXTS + 1, rest)).tolist()
        return made


def subject(name: str, network: Any, tokenizer: Any, length: int) -> Subject:
    """No token ends a text: every run has the same steps."""
    plain = network.float().eval().requires_grad_(False).to(DEVICE)
    structure = Bench(name, plain, 1, 8, 1, twice=False).structure
    model = LocalModel(
        network=plain,
        structure=structure,
        tokenizer=tokenizer,
        device=DEVICE,
        end_tokens=frozenset(),
        context_tokens=network.config.max_position_embeddings,
        vocabulary=structure.vocabulary,
        memory_bytes=4 * 2**30,
    )
    ids = torch.randint(
        3, structure.vocabulary, (2 * length,), generator=torch.Generator().manual_seed(1)
    )
    return Subject(name, model, length, tokenizer.decode(ids.tolist(), skip_special_tokens=True))


def subjects(quick: bool) -> Iterator[Subject]:
    config = random_llama(2 if quick else 12)
    torch.manual_seed(0)
    network = AutoModelForCausalLM.from_config(config)
    name = f"random Llama, {config.num_hidden_layers} layers"
    yield subject(name, network, words(config.vocab_size), LENGTH)
    shared = os.environ.get("EXCHEQUER_SHARED")
    for found in sorted(Path(shared).glob("data/models/*/config.json")) if shared else []:
        home = found.parent
        try:
            network = AutoModelForCausalLM.from_pretrained(
                home, local_files_only=True, use_safetensors=True
            )
        except ValueError:
            continue  # an embedding model
        length = min(LENGTH, network.config.max_position_embeddings - 80)
        yield subject(home.name, network, AutoTokenizer.from_pretrained(home), length)


# --- parts ----------------------------------------------------------------------------------------


def of_mechanism(
    mechanism: str,
    given: Subject,
    batches: int,
    steps: int,
    engines: Callable[[Bench], dict[str, Callable[[], None]]],
    **more: Any,
) -> Medians:
    """Seconds of a step of a metered mechanism, all batches side by side, and of the engine's."""
    raw = {
        "batch_size": CONTEXTS // batches,
        "batches_per_label": batches,
        "record_tokens": given.length - 40,
        "temperature": TEMPERATURE,
        "clip": CLIP,
        **more,
    }
    found = mechanisms.get(mechanism)
    parameters = found.parse(raw, TERMS)
    price = found.price(parameters, TERMS)
    prompt = Prompt(given.model.tokenizer, parameters.template, None)
    prefix = len(prompt.before) - 1
    rest = prompt.fixed_tokens - prefix + parameters.record_tokens
    meter = TurnsMeter(price.dp or FREE, price.ex_post_draws)
    meter.turns, meter.batches = Turns(**engines(given.bench(prefix, rest, steps))), batches
    running = runner(mechanism)
    progress = Progress(running.total(parameters, TERMS))
    for _ in running.run(parameters, TERMS, given.records(), given.model, meter, progress):
        pass
    return meter.turns.medians()


def of_mean(given: Subject, steps: int) -> Medians:
    def engines(bench: Bench) -> dict[str, Callable[[], None]]:
        own = bench.of(CONTEXTS)
        return {SAME: stepper(own, own.decoder())}

    return of_mechanism("private-prediction", given, 1, steps, engines, tokens_per_batch=steps)


def of_median(given: Subject, steps: int) -> Medians:
    """The one public context beside 64 private ones is the engine's too."""

    def engines(bench: Bench) -> dict[str, Callable[[], None]]:
        own = bench.of(CONTEXTS + 1)
        return {SAME: stepper(own, own.decoder(), "median")}

    more = {"aggregation": "median", "ex_post_cap": 100.0, "tokens_per_batch": steps}
    return of_mechanism("private-prediction", given, 1, steps, engines, **more)


def of_ink(given: Subject, steps: int, batches: int = 1) -> Medians:
    """Public contexts are decoded apart, so that nothing private is near what they give."""

    def engines(bench: Bench) -> dict[str, Callable[[], None]]:
        each = CONTEXTS // batches
        private, all_ = bench.of(each), bench.of(each + 1)
        step = stepper(private, private.decoder(batches))
        alone = Bench.of(given.bench(2, 1, steps), 1).decoder(batches)
        tokens = dict.fromkeys(range(batches), 5)

        def both() -> None:
            step()
            if alone.batches[0].written == steps:
                for number in tokens:
                    alone.restart(number)
            for _ in alone.step(tokens):
                pass

        return {SAME: both, ONE_PASS: stepper(all_, all_.decoder(batches))}

    more = {"max_tokens": steps, "texts_per_batch": 1, "public_template": given.text[:12]}
    return of_mechanism("invisible-ink", given, batches, steps, engines, **more)


def of_epsvec(given: Subject, steps: int) -> Medians:
    """64 steered texts after one prompt, against the engine's bare step."""
    middle = (len(given.model.structure.blocks) - 1) // 2
    bias = {
        layer: torch.full((given.model.structure.hidden,), 1e-3) for layer in (middle, middle + 1)
    }
    bench = given.bench(given.length - 1, 1, steps).of(CONTEXTS)
    decoder = bench.decoder(1, steering=bias)
    tokens, written = torch.full((CONTEXTS,), 5), [0]

    def engine() -> None:
        decoder.extend(tokens, torch.full((CONTEXTS,), written[0] % steps))
        written[0] += 1

    writer = LocalWriter(given.model, generator(DEVICE, 1))
    rows = TurnsRows(writer, Manner(steps, 1.0, "]"), [[*bench.prefix, 5]], CONTEXTS, bias)
    rows.turns = Turns(**{SAME: engine})
    for _ in rows.texts():
        pass
    return rows.turns.medians()


PARTS: dict[str, tuple[str, Callable[[Subject, int], Medians]]] = {
    "mean": ("private-prediction, mean of 64", of_mean),
    "median": ("private-prediction, median of 64", of_median),
    "invisible-ink": ("invisible-ink, one batch of 64", of_ink),
    "small-batches": ("invisible-ink, eight batches of 8", partial(of_ink, batches=8)),
    "epsvec": ("epsvec, 64 steered texts", of_epsvec),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="two layers, few steps: does it run?")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12)
    arguments = parser.parse_args()
    repeats, steps = (1, 4) if arguments.quick else (arguments.repeats, arguments.steps)
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    print(
        f"{DEVICE.type}, torch {torch.__version__}, one thread, {repeats} repeats of {steps} steps"
    )
    line("model", "what", "against", f"ratio (goal {GOAL})", "a step", "the engine's")
    line("---", "---", "---", "---", "---", "---")
    for given in subjects(arguments.quick):
        wanted = arguments.parts.split(",")
        found: dict[str, list[Medians]] = {part: [] for part in wanted}
        for _ in range(repeats):
            for part in wanted:
                found[part].append(PARTS[part][1](given, steps))
        for part, times in found.items():
            report(given.name, PARTS[part][0], times)


def report(model: str, what: str, times: list[Medians]) -> None:
    """A line for each alternative: medians over the repeats."""
    own = 1000 * statistics.median(each["own"] for each in times)
    for against in times[0].keys() - {"own"}:
        ratio = statistics.median(each[against] / each["own"] for each in times)
        engine = 1000 * statistics.median(each[against] for each in times)
        line(model, what, against, f"{ratio:.3f}", f"{own:.3g} ms", f"{engine:.3g} ms")


if __name__ == "__main__":
    main()
