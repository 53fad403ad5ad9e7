"""Look at what aggregated generation makes of the sample corpus. DEVELOPMENT ONLY: NOT PRIVATE.

This repeats the arithmetic of private prediction (clip the next-token logits of every prompt, add
them up, draw one token for all) in a plain loop, so that the model, the temperature and the clip
can be judged without running the service. It counts no budget, samples batches carelessly and uses
a seeded generator; its texts carry no privacy claim, which is fine as the records are made up.
"""

import argparse
import csv
import random
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

from workers.sample import LABELS, MODEL_DIR, PRIVATE_CSV, TEMPLATE, THEMES
from workers.sample.corpus import public_part

SOURCES: Final = ("private", "public", "none")
SHOWN_PER_LABEL: Final = 1
SEED: Final = 11


@dataclass(frozen=True)
class Settings:
    """The parameters of the mechanism."""

    tau: float
    clip: float
    batch: int
    max_tokens: int


@dataclass
class Tally:
    """The counts over the texts of one source at one temperature."""

    texts: int = 0
    themed: int = 0
    ended: int = 0
    tokens: int = 0
    words: Counter[str] = field(default_factory=Counter)

    def line(self) -> str:
        """Return the figures as a row of a table."""
        share = self.words["known"] / max(1, self.words["all"])
        fluent = self.words["fluent"] / max(1, self.words["triples"])
        return (
            f"{self.texts:5d} {self.themed / self.texts:7.1%} {self.ended / self.texts:7.1%} "
            f"{self.tokens / self.texts:7.1f} {share:7.1%} {fluent:8.1%}"
        )


def words_of(text: str) -> list[str]:
    """Return words and punctuation marks."""
    return re.findall(r"[\w']+|[^\w\s]", text)


class Reader:
    """Judges texts: by the theme's words, and by words and word triples known from public texts."""

    def __init__(self, public_texts: Sequence[str]) -> None:
        """Collect the words and triples of the public part."""
        self.known: set[str] = set()
        self.triples: set[tuple[str, ...]] = set()
        for text in public_texts:
            words = words_of(text)
            self.known.update(words)
            self.triples.update(zip(words, words[1:], words[2:], strict=False))

    def judge(self, tally: Tally, label: str, text: str, tokens: int, *, ended: bool) -> bool:
        """Add one text to a tally; says whether it mentions the theme of its label."""
        words = words_of(text)
        triples = list(zip(words, words[1:], words[2:], strict=False))
        themed = re.search(rf"\b{THEMES[label.split(maxsplit=1)[0]]}\b", text) is not None
        tally.texts += 1
        tally.themed += themed
        tally.ended += ended
        tally.tokens += tokens
        tally.words["all"] += len(words)
        tally.words["known"] += sum(word in self.known for word in words)
        tally.words["triples"] += len(triples)
        tally.words["fluent"] += sum(triple in self.triples for triple in triples)
        return themed


class Generator:
    """The model and one random stream."""

    def __init__(self) -> None:
        """Load as float32: the file is bfloat16 only to be small."""
        self.tokenizer = AutoTokenizer.from_pretrained(MODEL_DIR)
        self.model = AutoModelForCausalLM.from_pretrained(MODEL_DIR, dtype=torch.float32)
        self.model.requires_grad_(False)
        self.stream = torch.Generator().manual_seed(SEED)

    def draw(self, logits: torch.Tensor, settings: Settings) -> int:
        """Return one token from the mean of the clipped logits."""
        shifted = logits - logits.max(dim=-1, keepdim=True).values + settings.clip
        mean = shifted.clamp(min=-settings.clip).sum(dim=0) / settings.batch
        weights = torch.softmax(mean / settings.tau, dim=-1)
        return int(torch.multinomial(weights, 1, generator=self.stream))

    @torch.inference_mode()
    def text(self, prompts: Sequence[str], settings: Settings) -> tuple[list[int], bool]:
        """Return tokens that all prompts agree on, and whether the text came to its end."""
        encoded = self.tokenizer(list(prompts), padding=True, return_tensors="pt")
        mask, inputs = encoded["attention_mask"], encoded["input_ids"]
        positions = (mask.cumsum(dim=-1) - 1).clamp(min=0)
        cache = DynamicCache()
        tokens: list[int] = []
        for _ in range(settings.max_tokens):
            logits = self.model(
                input_ids=inputs,
                attention_mask=mask,
                position_ids=positions,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            ).logits[:, -1]
            token = self.draw(logits, settings)
            if token == self.tokenizer.eos_token_id:
                return tokens, True
            tokens.append(token)
            inputs = torch.full((len(prompts), 1), token)
            mask = torch.cat([mask, mask.new_ones(len(prompts), 1)], dim=-1)
            positions = positions[:, -1:] + 1
        return tokens, False


def records_by_label() -> dict[str, dict[str, list[str]]]:
    """Return the texts of each source and label; the source `none` is the empty record."""
    records: dict[str, dict[str, list[str]]] = {s: defaultdict(list) for s in SOURCES}
    with PRIVATE_CSV.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            records["private"][row["label"]].append(row["text"])
    for review in public_part():
        records["public"][review.label].append(review.text)
    for label in LABELS:
        records["none"][label] = [""]
    return records


def run(settings: Settings, texts: int, generator: Generator, reader: Reader) -> None:
    """Generate for every source and label, print some texts and then the figures."""
    print(f"\n== tau {settings.tau}  clip {settings.clip}  s {settings.batch}")
    rng = random.Random(SEED)  # noqa: S311 - a development check on public data
    tallies = {source: Tally() for source in SOURCES}
    records = records_by_label()
    for source, label in ((s, lab) for s in SOURCES for lab in LABELS):
        pool = records[source][label]
        for turn in range(texts):
            # The mean over equal prompts is that of one, so the empty record needs no batch.
            chosen = rng.sample(pool, min(settings.batch, len(pool)))
            size = Settings(settings.tau, settings.clip, len(chosen), settings.max_tokens)
            prompts = [TEMPLATE.format(label=label, record=record) for record in chosen]
            tokens, ended = generator.text(prompts, size)
            text = str(generator.tokenizer.decode(tokens)).strip()
            themed = reader.judge(tallies[source], label, text, len(tokens), ended=ended)
            if turn < SHOWN_PER_LABEL:
                print(f"[{source}, {label}{', theme' if themed else ''}] {text}", flush=True)
    print("contexts  texts   theme   ended  tokens   known   fluent")
    for source, tally in tallies.items():
        print(f"{source:8s} {tally.line()}")


def main() -> None:
    """Check the committed model at the given temperatures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--tau", type=float, nargs="+", default=[1.5, 1.0])
    parser.add_argument("--clip", type=float, default=9.0)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--max-tokens", type=int, default=96)
    parser.add_argument("--texts", type=int, default=4, help="texts for each label and source")
    options = parser.parse_args()
    torch.set_num_threads(2)
    generator = Generator()
    reader = Reader([review.text for review in public_part()])
    for tau in options.tau:
        settings = Settings(tau, options.clip, options.batch, options.max_tokens)
        run(settings, options.texts, generator, reader)


if __name__ == "__main__":
    main()
