"""`noisy-count` in parts: a worker counts the labels of its share, as one shares the batches of a
long job.

Jobs that need no model have one part in the service. Here those with Gaussian noise have three, so
that faults meet parts too: leases of their own, a last one that publishes for all, outputs put
together.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from accountant.core import mechanisms
from accountant.core.mechanisms.noisy_count import NoisyCount, count_event, sensitivity
from accountant.core.privacy.price import Terms
from workers.data.records import Records, share_of
from workers.interface import NOTHING_PUBLIC, Count, Progress, Public
from workers.mechanisms import noisy_count
from workers.noise.meter import Meter

PARTS = 3


def batches(parameters: NoisyCount, _terms: Terms) -> int:
    return PARTS if parameters.noise == "gaussian" else 1


class Runner(noisy_count.Runner):
    """The counts of a share of the labels, with the noise that each count has in a job of one
    part.
    """

    def run(
        self,
        parameters: NoisyCount,
        terms: Terms,
        records: Records,
        model: None,
        meter: Meter,
        progress: Progress,
        public: Public = NOTHING_PUBLIC,
    ) -> Iterator[Count]:
        counts = list(noisy_count.true_counts(parameters, terms, records).items())
        own = counts[share_of(len(counts), records.share)]
        add = meter.laplace if parameters.noise == "laplace" else meter.gaussian
        values = np.array([count for _, count in own], dtype=np.int64)  # (labels of the share,)
        part = records.share if records.share[1] > 1 else None  # shares are disjoint
        noisy = add(values, sensitivity(parameters, terms), count_event(parameters), part)
        for (label, _), count in zip(own, noisy.tolist(), strict=True):
            progress.advance()
            yield Count(label, count)


def register() -> None:
    """Make it this process's `noisy-count`."""
    known = mechanisms.MECHANISMS["noisy-count"]
    mechanisms.MECHANISMS["noisy-count"] = replace(
        known, batches=batches, runner="tests.faults.split_counts"
    )
