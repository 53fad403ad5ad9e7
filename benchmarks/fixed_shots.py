"""The noisy histogram behind EPSVec's fixed shots, over a million private records.

    python -m benchmarks.fixed_shots [--records 1000000]

Process CPU time of one thread and this process's peak memory. Embeddings are generated piece by
piece as they are asked for, around 500 themes (384 dimensions, fixed seed), as in
benchmarks.clustering: what an embedding model takes comes on top, and `generating` says what the
generator took.
"""

import argparse
import itertools
import sys
import time
from collections.abc import Iterable, Iterator

import numpy as np

from accountant.core import mechanisms
from accountant.core.privacy.events import FREE
from accountant.core.privacy.price import Terms
from benchmarks.clustering import (
    LABELS,
    PIECE,
    THEMES,
    WIDTH,
    around,
    forget_peak,
    megabytes,
    themes,
    timed,
)
from workers.data.records import Record, Records
from workers.embedding.neighbours import Floats
from workers.mechanisms.epsvec.shots import count_near, largest, release
from workers.noise.meter import Meter

CANDIDATES, SHOTS = 500, 2
MOST_MEMORY = 200  # MB above the records themselves


class Generated:
    """An embedder whose texts are numbers: each lies near the theme of its number."""

    dimensions, context_tokens = WIDTH, 512

    def __init__(self) -> None:
        self.centres, self.seconds = themes(1, THEMES), [0.0]

    def embed(self, texts: Iterable[str], tokens: int | None = None) -> Iterator[Floats]:  # noqa: ARG002
        generator = np.random.default_rng(2)
        stream = iter(texts)
        while group := list(itertools.islice(stream, PIECE)):
            start = time.process_time()
            made = around(self.centres, np.array(group, np.int64) % THEMES, generator)
            self.seconds[0] += time.process_time() - start
            yield made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    count = parser.parse_args().records // len(LABELS) * len(LABELS)
    terms = Terms(delta=1e-6, public_size=count, labels=LABELS)
    raw = {
        "samples_per_label": 500,
        "noise_multiplier": 1.0,
        "shots": SHOTS,
        "candidates": CANDIDATES,
    }
    mechanism = mechanisms.get("epsvec")
    parameters = mechanism.parse(raw, terms)
    meter = Meter(mechanism.price(parameters, terms).dp or FREE)
    records = Records(
        LABELS,
        tuple(
            Record(str(place), LABELS[place % len(LABELS)], str(place)) for place in range(count)
        ),
        b"k" * 32,
    )
    candidates = {label: [str(place) for place in range(CANDIDATES)] for label in LABELS}
    embedder = Generated()
    print(f"{count:,} records of {len(LABELS)} labels, {CANDIDATES} candidates each, one thread")
    before = forget_peak()
    counts = timed(
        "counting",
        lambda: count_near(records, candidates, embedder, 64, lambda: None),
        embedder.seconds,
    )
    noisy = timed("noise", lambda: release(parameters, terms, counts, meter), embedder.seconds)
    chosen = {label: largest(candidates[label], noisy[label], SHOTS) for label in LABELS}
    above = megabytes("VmHWM") - before
    print(f"  peak memory above the records          {above:8.0f} MB  (bound {MOST_MEMORY})")
    print(f"  shots of the first label: {[(shot.text, shot.count) for shot in chosen[LABELS[0]]]}")
    whole = sum(int(each.sum()) for each in counts.values())
    return 0 if above < MOST_MEMORY and whole == count else 1


if __name__ == "__main__":
    sys.exit(main())
