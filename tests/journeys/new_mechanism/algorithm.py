"""`length-histogram`: counts[i] = records of i * width to (i + 1) * width - 1 words, with noise."""

from collections.abc import Iterator

import numpy as np
from accountant.core.mechanisms.length_histogram import LengthHistogram, event, sensitivity

from accountant.core.privacy.price import Terms
from workers.data.records import Records
from workers.interface import NOTHING_PUBLIC, Artifact, Progress, Public
from workers.noise.meter import Meter


class Runner:
    """Runs `length-histogram`."""

    def total(self, parameters: LengthHistogram, terms: Terms) -> int:
        """Return the number of releases, which is public."""
        return 1

    def run(
        self,
        parameters: LengthHistogram,
        terms: Terms,
        records: Records,
        model: None,
        meter: Meter,
        progress: Progress,
        public: Public = NOTHING_PUBLIC,
    ) -> Iterator[Artifact]:
        """Count the records of each length, release all counts, publish them."""
        counts = np.zeros(parameters.bins, np.int64)
        for record in records.records:
            place = len(record.text.split()) // parameters.width
            counts[min(place, parameters.bins - 1)] += 1
        noisy = meter.laplace(counts, sensitivity(terms), event(parameters))
        progress.advance()
        yield Artifact.of_json("histogram", "length-histogram", noisy.tolist())
