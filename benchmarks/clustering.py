"""Clustering of a million private records: public centres, counts, kept centres, each record's
batch.

    python -m benchmarks.clustering [--records 1000000]

Process CPU time of one thread and memory of this process. Embeddings are generated as they are
asked for, in pieces, around 500 themes of which a few are common (384 dimensions, a fixed seed):
what an embedding model takes comes on top, and `generating` says what the generator took. Centres
come from texts as different as public ones are: around 400 of the themes and 200 others.
"""

import argparse
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from workers.data.records import Record, Records
from workers.embedding.clustering import count, keep, within
from workers.embedding.neighbours import Floats, kmeans, unit
from workers.noise.samplers import laplace_on_grid

WIDTH, THEMES, LABELS = 384, 500, ("a", "b", "c", "d")
PIECE = 1024
CENTRES, KEPT, BATCH = 1_000, 60, 64
PUBLIC_TEXTS = 100_000
MOST_MEMORY = 400  # MB above the records themselves


def megabytes(field: str) -> float:
    """VmRSS, what this process holds, or VmHWM, the most that it held since `forget_peak`."""
    found = re.search(rf"{field}:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) / 1024


def forget_peak() -> float:
    """From here on VmHWM is the peak; what is held now."""
    Path("/proc/self/clear_refs").write_text("5")
    return megabytes("VmRSS")


def themes(seed: int, number: int) -> Floats:
    return unit(np.random.default_rng(seed).standard_normal((number, WIDTH)))


def around(centres: Floats, chosen: Any, generator: np.random.Generator) -> Floats:
    """Points near their theme: cosines of about 0.6 with it."""
    return unit(
        centres[chosen] + generator.standard_normal((len(chosen), WIDTH)) * (1.3 / WIDTH**0.5)
    )


def private(records: int, seconds: list[float]) -> dict[str | None, Iterator[Floats]]:
    """Embeddings of each label's records; each time the same ones. Adds up what making them
    takes.
    """
    centres = themes(1, THEMES)
    popular = 1 / np.arange(1, THEMES + 1)
    popular /= popular.sum()

    def of(seed: int, number: int) -> Iterator[Floats]:
        generator = np.random.default_rng(seed)
        for first in range(0, number, PIECE):
            start = time.process_time()
            chosen = generator.choice(
                THEMES, min(PIECE, number - first), p=np.roll(popular, 125 * seed)
            )
            made = around(centres, chosen, generator)
            seconds[0] += time.process_time() - start
            yield made

    return {label: of(place, records // len(LABELS)) for place, label in enumerate(LABELS)}


def public_points() -> Floats:
    generator = np.random.default_rng(2)
    shown = np.concatenate([themes(1, THEMES)[:400], themes(3, 200)])
    pieces: Iterable[Floats] = (
        around(shown, generator.integers(0, len(shown), 10_000), generator)
        for _ in range(PUBLIC_TEXTS // 10_000)
    )
    return np.concatenate(list(pieces))


def timed(what: str, work: Callable[[], Any], generating: list[float]) -> Any:
    generating[0] = 0.0
    start = time.process_time()
    made = work()
    took = time.process_time() - start - generating[0]
    print(f"  {what:38} {took:8.1f} s   (generating {generating[0]:.1f} s)", flush=True)
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    records = parser.parse_args().records // len(LABELS) * len(LABELS)
    generating = [0.0]
    print(f"{records:,} records of {len(LABELS)} labels, {WIDTH} dimensions, one thread")
    public, name = public_points(), f"k-means: {CENTRES:,} centres of {PUBLIC_TEXTS:,}"
    centres = timed(name, lambda: kmeans(public, CENTRES, 0), generating)
    held = Records(
        LABELS,
        tuple(
            Record(str(place), LABELS[place * len(LABELS) // records], "")
            for place in range(records)
        ),
        b"k" * 32,
    )
    before = forget_peak()
    counts = timed("counting", lambda: count(private(records, generating), centres), generating)
    noisy = laplace_on_grid(counts, 10)
    batches = records // len(LABELS) // BATCH
    each, many = KEPT // len(LABELS), [batches] * len(LABELS)
    made = timed("keeping", lambda: keep(centres, noisy, each, many), generating)
    places = timed(
        "assigning", lambda: within(private(records, generating), held, made), generating
    )
    filled = timed("batches", lambda: held.batches(batches, places), generating)
    above = megabytes("VmHWM") - before
    sizes = np.array([len(texts) for texts in filled.values()])
    print(f"  peak memory above records and centres  {above:8.0f} MB  (bound {MOST_MEMORY})")
    print(
        f"  batches: {len(sizes):,}; records in one: median {np.median(sizes):.0f}, 5 % below "
        f"{np.quantile(sizes, 0.05):.0f}, 5 % above {np.quantile(sizes, 0.95):.0f}; "
        f"empty {(sizes == 0).sum()}"
    )
    return 0 if above < MOST_MEMORY and sizes.sum() == records else 1


if __name__ == "__main__":
    sys.exit(main())
