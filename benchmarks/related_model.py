"""Go on training the base model on rows of related documents, so that it makes something of its context.

    python -m benchmarks.related_model MODEL TARGET [--minutes 4.5] [--rate 1e-3]

A small model that has only read documents in a random order learns that what came before an end token
tells nothing of what follows (benchmarks.utility --table context). Here a row is a document and its nearest
neighbours by public embeddings, each between a begin and an end token (Shi et al., In-Context Pretraining,
2024). Text: that of benchmarks.base_model, all public. MODEL is a folder as it writes, TARGET one that is
written; to go on, give TARGET as MODEL.
"""

import argparse
import random
import time
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils.logging import disable_progress_bar

from benchmarks.base_model import CONTEXT, EOS, Tokens, keep_memory, rate, read_texts
from benchmarks.utility_data import embedder
from workers.embedding.embedders import embed_all
from workers.embedding.neighbours import nearest
from workers.sample.train import loss_of

DOCUMENTS = 10_000  # of each source
CUT = 96  # tokens of a document
NEIGHBOURS = 8
ROWS = 4


def related(texts: list[str]) -> np.ndarray:
    """(texts, NEIGHBOURS): each text itself, most of the time first, and those most like it."""
    points = embed_all(embedder(), texts)
    return nearest(points, points, NEIGHBOURS)


def row(documents: list[Tokens], members: list[int]) -> torch.Tensor:
    """Documents one after another, in a random order, cut to a full row; short ones come again."""
    random.shuffle(members)
    stream = np.concatenate([documents[each] for each in members])
    return torch.from_numpy(np.resize(stream, CONTEXT)).long()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--minutes", type=float, default=4.5, help="of this process's CPU time")
    parser.add_argument("--rate", type=float, default=1e-3)
    arguments = parser.parse_args()
    keep_memory()
    disable_progress_bar()
    texts = [text for source in read_texts().values() for text in source[-DOCUMENTS:]]
    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    encoded = tokenizer([text[: 8 * CUT] for text in texts], verbose=False)["input_ids"]
    documents = [np.array([*ids[:CUT], EOS], np.int32) for ids in encoded]
    alike = related(texts)
    model = AutoModelForCausalLM.from_pretrained(arguments.model).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.rate, betas=(0.9, 0.98), weight_decay=0.1)
    began, steps, running = time.process_time(), 0, 0.0
    while (progress := (time.process_time() - began) / (60 * arguments.minutes)) < 1:
        for group in optimizer.param_groups:
            group["lr"] = arguments.rate * rate(progress)
        anchors = random.choices(range(len(texts)), k=ROWS)
        rows = torch.stack([row(documents, alike[each][alike[each] >= 0].tolist()) for each in anchors])
        with torch.autocast("cpu", torch.bfloat16):
            loss = loss_of(model, rows, rows)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        steps += 1
        running = loss.item() if steps == 1 else 0.95 * running + 0.05 * loss.item()
    print(f"{steps:,} steps of {ROWS} rows in {arguments.minutes:g} min, training loss {running:.3f}")
    model.save_pretrained(arguments.target)
    tokenizer.save_pretrained(arguments.target)


if __name__ == "__main__":
    main()
