"""Train a small public base language model, for measurements that need one which writes plausible text.

    python -m benchmarks.base_model [--minutes 120] [--threads 2] [--cache DIR]

Text: DBpedia summaries and unlabelled film reviews (dbpedia14 and imdb/unsup15k of EXCHEQUER_SHARED), all
public. A byte-level BPE of 8,192 tokens is made from the same text. On a CPU a Llama of 5.2 million weights,
on CUDA one of 29 million. Documents follow one another, each between a begin and an end token, and are cut
into rows of 512 tokens; 400 documents are held out.

The learning rate follows the time that has passed, so training ends annealed when the minutes end, on any
machine. Everything is kept in DIR (default: the user's cache folder): `model/`, which loads like any other
model folder, `state.pt`, from which an interrupted run goes on, and `log.txt`. A finished run is
only measured again. Public data: seeds are fine.
"""

import argparse
import csv
import ctypes
import gzip
import math
import os
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.utils.logging import disable_progress_bar

from tests.support import SHARED
from workers.sample.train import BOS, EOS, PAD, SPECIAL, UNK, loss_of

SOURCES: Final = {"dbpedia": "data/dbpedia14/train14k.csv.gz", "imdb": "data/imdb/unsup15k.csv.gz"}
SEED: Final = 7
HELD_OUT: Final = 200  # documents of each source
VOCABULARY: Final = 8_192
CONTEXT: Final = 512
PEAK_RATE: Final = 2e-3
WARMUP: Final = 0.02  # share of the time
REPORT_SECONDS: Final = 300
PROMPTS: Final = ("", "The film", "is a village in")

Tokens = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Size:
    """The model and training that one kind of machine manages in its time."""

    width: int
    layers: int
    rows: int
    minutes: float


SMALL: Final = Size(width=256, layers=4, rows=4, minutes=120)
LARGE: Final = Size(width=512, layers=8, rows=64, minutes=3)  # some ten epochs: more would be learnt by heart


def read_texts() -> dict[str, list[str]]:
    """The documents of every source."""
    texts = {}
    for name, path in SOURCES.items():
        with gzip.open(SHARED / path, "rt", encoding="utf-8", newline="") as file:
            texts[name] = [row["text"] for row in csv.DictReader(file)]
    return texts


def make_tokenizer(texts: Sequence[str]) -> PreTrainedTokenizerFast:
    """A byte-level BPE: no text is unknown to it."""
    tokenizer = Tokenizer(models.BPE(unk_token=SPECIAL[UNK]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{SPECIAL[BOS]} $A", special_tokens=[(SPECIAL[BOS], BOS)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=SPECIAL[PAD],
        bos_token=SPECIAL[BOS],
        eos_token=SPECIAL[EOS],
        unk_token=SPECIAL[UNK],
        model_max_length=CONTEXT,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )


def make_model(size: Size) -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=size.width,
        intermediate_size=size.width * 8 // 3 // 32 * 32,
        num_hidden_layers=size.layers,
        num_attention_heads=size.width // 64,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
    )
    return LlamaForCausalLM(config)


def encode(tokenizer: PreTrainedTokenizerFast, texts: Sequence[str]) -> list[Tokens]:
    return [np.array([*ids, EOS], np.int32) for ids in tokenizer(list(texts), verbose=False)["input_ids"]]


def pack(documents: Sequence[Tokens]) -> torch.Tensor:
    """Documents one after another in rows of CONTEXT tokens; what fills no row is left out."""
    stream = np.concatenate(documents)
    return torch.from_numpy(stream[: len(stream) // CONTEXT * CONTEXT].reshape(-1, CONTEXT)).long()


def batches(documents: Sequence[Tokens], rows: int, done: int) -> Iterator[torch.Tensor]:
    """Endless batches, every epoch in an order of its own; the first `done` are passed over."""
    epoch = 0
    while True:
        order = random.Random(SEED + epoch).sample(range(len(documents)), len(documents))
        packed = pack([documents[index] for index in order])
        packed = packed[torch.randperm(len(packed), generator=torch.Generator().manual_seed(epoch))]
        count = len(packed) // rows
        yield from (packed[step * rows : (step + 1) * rows] for step in range(min(done, count), count))
        done = max(0, done - count)
        epoch += 1


def rate(progress: float) -> float:
    """Factor of the peak learning rate: a linear rise, then a cosine down to zero."""
    if progress < WARMUP:
        return progress / WARMUP + 1e-3
    return 0.5 * (1 + math.cos(math.pi * min(1.0, (progress - WARMUP) / (1 - WARMUP))))


class Training:
    """A model, its optimizer and the folder in which they are kept."""

    def __init__(self, folder: Path, minutes: float | None) -> None:
        """Go on with what is in `folder`, or start."""
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.size = LARGE if self.device.type == "cuda" else SMALL
        self.budget = 60 * (minutes or self.size.minutes)
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        texts = read_texts()
        trained = [text for source in texts.values() for text in source[HELD_OUT:]]
        self.exported, self.kept = folder / "model", folder / "state.pt"
        if (self.exported / "tokenizer.json").exists():
            self.tokenizer = PreTrainedTokenizerFast.from_pretrained(self.exported)
        else:
            self.tokenizer = make_tokenizer(trained)
            self.tokenizer.save_pretrained(self.exported)
        self.documents = encode(self.tokenizer, trained)
        self.held_out = {name: encode(self.tokenizer, source[:HELD_OUT]) for name, source in texts.items()}
        self.bytes_per_token = {
            name: sum(len(text.encode()) for text in source[:HELD_OUT]) / sum(map(len, self.held_out[name]))
            for name, source in texts.items()
        }
        torch.manual_seed(SEED)
        self.step, self.seconds = 0, 0.0
        self.model: Any = make_model(self.size).to(self.device)
        matrices = [p for p in self.model.parameters() if p.ndim > 1]
        others = [p for p in self.model.parameters() if p.ndim < 2]
        groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=PEAK_RATE, betas=(0.9, 0.98))
        if self.kept.exists():
            state = torch.load(self.kept, map_location=self.device, weights_only=True)
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.step, self.seconds = state["step"], state["seconds"]

    def loss(self, rows: torch.Tensor) -> torch.Tensor:
        """Mean cross-entropy of the next token in nats; products in bfloat16, sums and softmax in float32."""
        rows = rows.to(self.device, non_blocking=True)
        with torch.autocast(self.device.type, torch.bfloat16):
            return loss_of(self.model, rows, rows)

    def run(self) -> None:
        """Train until the minutes are over, with a report and a checkpoint every five."""
        stream = batches(self.documents, self.size.rows, self.step)
        last, reported, running = time.monotonic(), self.seconds, math.nan
        self.log(
            f"{sum(p.numel() for p in self.model.parameters()):,} weights on {self.device}, "
            f"{sum(map(len, self.documents)):,} tokens an epoch, {self.budget / 60:g} minutes"
        )
        while self.seconds < self.budget:
            for group in self.optimizer.param_groups:
                group["lr"] = PEAK_RATE * rate(self.seconds / self.budget)
            loss = self.loss(next(stream))
            self.optimizer.zero_grad()
            torch.autograd.backward(loss)
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.step += 1
            if self.step % 10 == 0:
                running = loss.item() if math.isnan(running) else 0.9 * running + 0.1 * loss.item()
            now = time.monotonic()
            self.seconds, last = self.seconds + now - last, now
            if self.seconds - reported > REPORT_SECONDS:
                self.log(f"step {self.step:,}  {self.seconds / 60:.0f} min  training loss {running:.3f}")
                self.report()
                self.save()
                reported, last = self.seconds, time.monotonic()
        self.log(f"{self.step:,} steps in {self.seconds / 60:.0f} min")
        self.report()
        self.save()

    def log(self, line: str) -> None:
        print(line, flush=True)
        with (self.folder / "log.txt").open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    @torch.no_grad()
    def report(self) -> None:
        """Held-out loss of every source, and samples."""
        self.model.eval()
        for name, documents in self.held_out.items():
            packed = pack(documents)
            parts = [self.loss(rows).item() * len(rows) for rows in packed.split(self.size.rows)]
            nats = sum(parts) / len(packed)
            bits = nats / math.log(2) / self.bytes_per_token[name]
            self.log(f"  held-out {name}: {nats:.3f} nats per token, {bits:.3f} bits per byte")
        for prompt in PROMPTS:
            start = self.tokenizer(prompt, return_tensors="pt").to(self.device)
            made = self.model.generate(
                input_ids=start["input_ids"],
                attention_mask=start["attention_mask"],
                max_new_tokens=60,
                do_sample=True,
                temperature=0.8,
                top_k=0,
            )
            self.log("  > " + " ".join(self.tokenizer.decode(made[0], skip_special_tokens=True).split()))
        self.model.train()

    def save(self) -> None:
        """The state, which is replaced whole, and a model folder made from it."""
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "step": self.step,
            "seconds": self.seconds,
        }
        new = self.folder / "state.new"
        torch.save(state, new)
        new.replace(self.kept)
        self.model.save_pretrained(self.exported)


def keep_memory() -> None:
    """Have the C library keep large blocks: giving them back at every step costs a quarter of the time."""
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        trim_threshold, mmap_threshold = -1, -3  # of glibc's malloc.h
        library.mallopt(trim_threshold, 2**31 - 1)
        library.mallopt(mmap_threshold, 2**30)


def cache_folder() -> Path:
    """The folder of the checkpoint unless --cache names another; never in the repository."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "exchequer" / "base_model"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, help="of training in all (120; on CUDA 3)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cache", type=Path, default=cache_folder())
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    keep_memory()
    disable_progress_bar()
    Training(arguments.cache, arguments.minutes).run()


if __name__ == "__main__":
    main()
