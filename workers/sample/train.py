"""Train the toy language model on the public part of the corpus.

The model has to do one thing well: given a review in the prompt, write another one with the same
label about the same concerns. So the training documents have the very form of `TEMPLATE`, and most
of them pair two reviews that share an aspect. Pairs are drawn evenly over the aspects, so that the
model learns to copy a concern that is rare; documents with an empty record keep the natural rates,
so that without private records the rare concern stays rare.

Private reviews are never read here. Public data: seeds are fine.
"""

import argparse
import math
import random
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch.nn import functional
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

from workers.sample import LABELS, MODEL_DIR, TEMPLATE
from workers.sample.corpus import Review, public_part

SEED: Final = 7
THREADS: Final = 2
HELD_OUT: Final = 1_000
VOCABULARY: Final = 1_024
SPECIAL: Final = ("<pad>", "<s>", "</s>", "<unk>")
PAD, BOS, EOS, UNK = range(4)
CONTEXT: Final = 512
BATCH: Final = 24
STEPS: Final = 600
WARMUP: Final = 50
PEAK_RATE: Final = 4e-3
# The logits are multiplied by this after training. Aggregated generation draws at a temperature
# above 1 from logits that are clipped to a range of 2c, so the unlikely words (all at -c) weigh
# exp(-2c / tau) each: with larger logits, the clip range still holds and the draw is as sharp as
# the training meant it to be.
SHARPEN: Final = 2.0
SHARE_EMPTY: Final = 0.12
SHARE_ANY_PAIR: Final = 0.05
SHARE_TRIPLE: Final = 0.05
SAME_SECOND_ASPECT: Final = 0.85


class Documents:
    """Draws training documents from reviews, by label and by the aspects they talk about."""

    def __init__(self, reviews: Sequence[Review]) -> None:
        """Index the reviews, so that drawing alike ones is a look-up."""
        self.rng = random.Random(SEED)  # noqa: S311 - public data, reproducible on purpose
        self.by_label: dict[str, list[Review]] = defaultdict(list)
        self.by_aspect: dict[str, dict[str, list[Review]]] = defaultdict(lambda: defaultdict(list))
        self.by_pair: dict[tuple[str, frozenset[str]], list[Review]] = defaultdict(list)
        for review in reviews:
            self.by_label[review.label].append(review)
            self.by_pair[review.label, frozenset(review.aspects)].append(review)
            for aspect in review.aspects:
                self.by_aspect[review.label][aspect].append(review)

    def alike(self, label: str) -> tuple[Review, Review]:
        """Return two reviews that share one aspect, or both."""
        pools = self.by_aspect[label]
        pool = pools[self.rng.choice(sorted(a for a in pools if len(pools[a]) > 1))]
        first = self.rng.choice(pool)
        if self.rng.random() < SAME_SECOND_ASPECT:
            both = self.by_pair[label, frozenset(first.aspects)]
            pool = both if len(both) > 1 else pool
        second = self.rng.choice(pool)
        while second is first:
            second = self.rng.choice(pool)
        return first, second

    def draw(self) -> str:
        """Return the text of one document, without the begin and end tokens."""
        label = self.rng.choice(LABELS)
        kind = self.rng.random()
        if kind < SHARE_EMPTY:
            first, second = "", self.rng.choice(self.by_label[label]).text
        elif kind < SHARE_EMPTY + SHARE_ANY_PAIR:
            first, second = (self.rng.choice(self.by_label[label]).text for _ in range(2))
        else:
            pair = self.alike(label)
            first, second = pair[0].text, pair[1].text
            if kind > 1 - SHARE_TRIPLE:
                first += " " + self.rng.choice(self.by_label[label]).text
        return f"{TEMPLATE.format(label=label, record=first)} {second}"


def make_tokenizer(reviews: Sequence[Review]) -> PreTrainedTokenizerFast:
    """Return a BPE over the bytes of printable ASCII; others become <unk>.

    Leaving the other bytes out keeps some 150 tokens that no review needs from being drawn by
    chance, as every token of the vocabulary has a share in the clipped tail.
    """
    tokenizer = Tokenizer(models.BPE(unk_token=SPECIAL[UNK]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    visible = [chr(code) for code in range(33, 127)]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL),
        initial_alphabet=[*visible, "Ġ", "Ċ"],
        show_progress=False,
    )
    texts = (f"{TEMPLATE.format(label=r.label, record=r.text)} {r.text}" for r in reviews)
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


def make_model() -> LlamaForCausalLM:
    """About 1.35 million weights: 2.7 MB as bfloat16."""
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=160,
        intermediate_size=400,
        num_hidden_layers=4,
        num_attention_heads=5,
        num_key_value_heads=5,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
    )
    return LlamaForCausalLM(config)


def batches(
    documents: Documents, tokenizer: PreTrainedTokenizerFast
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield endless batches of token ids and labels, padded on the right."""
    while True:
        encoded = tokenizer([documents.draw() for _ in range(BATCH)])["input_ids"]
        rows = [[*ids, EOS][:CONTEXT] for ids in encoded]
        width = max(map(len, rows))
        inputs = torch.tensor([row + [PAD] * (width - len(row)) for row in rows])
        yield inputs, inputs.masked_fill(inputs == PAD, -100)


def loss_of(model: LlamaForCausalLM, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return mean cross-entropy of the next token, in nats."""
    logits = model(input_ids=inputs, use_cache=False).logits[:, :-1]
    return functional.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten())


@torch.no_grad()
def held_out_loss(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, reviews: Sequence[Review]
) -> float:
    """Return the loss on public reviews that were not trained on, always the same."""
    stream = batches(Documents(reviews), tokenizer)
    losses = [loss_of(model, *next(stream)).item() for _ in range(8)]
    return sum(losses) / len(losses)


def rate(step: int, steps: int) -> float:
    """Return factor of the peak learning rate: a linear rise, then a cosine down to a fiftieth."""
    if step < WARMUP:
        return (step + 1) / WARMUP
    progress = (step - WARMUP) / max(1, steps - WARMUP)
    return 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * progress))


def fit(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    reviews: Sequence[Review],
    steps: int,
) -> float:
    """Train, print progress and return the final held-out loss."""
    trained, held_out = reviews[:-HELD_OUT], reviews[-HELD_OUT:]
    stream = batches(Documents(trained), tokenizer)
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=PEAK_RATE,
        betas=(0.9, 0.98),
        weight_decay=0.05,
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate(step, steps))
    start, running = time.monotonic(), 0.0
    for step in range(1, steps + 1):
        loss = loss_of(model, *next(stream))
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        running = loss.item() if step == 1 else 0.95 * running + 0.05 * loss.item()
        if step % 50 == 0 or step == steps:
            seconds = time.monotonic() - start
            print(f"step {step}/{steps}  loss {running:.4f}  {seconds:.0f} s", flush=True)
        if step % 200 == 0:
            print(f"  held-out loss {held_out_loss(model, tokenizer, held_out):.4f}", flush=True)
    return held_out_loss(model, tokenizer, held_out)


def save(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast) -> None:
    """Sharpen (through the last norm, so the file stays a plain Llama) and write as bfloat16."""
    with torch.no_grad():
        model.model.norm.weight.mul_(SHARPEN)
    model.generation_config.do_sample = True
    model.generation_config.max_new_tokens = 96
    model.bfloat16().save_pretrained(MODEL_DIR)
    tokenizer.save_pretrained(MODEL_DIR)


def main() -> None:
    """Train from nothing and write the model directory."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--steps", type=int, default=STEPS, help="optimizer steps")
    steps = parser.parse_args().steps
    torch.manual_seed(SEED)
    torch.set_num_threads(THREADS)
    reviews = public_part()
    tokenizer = make_tokenizer(reviews[:-HELD_OUT])
    model = make_model()
    print(f"{sum(p.numel() for p in model.parameters()):,} weights")
    final = fit(model, tokenizer, reviews, steps)
    save(model, tokenizer)
    print(f"held-out loss {final:.4f}; wrote {MODEL_DIR.name}/")


if __name__ == "__main__":
    main()
