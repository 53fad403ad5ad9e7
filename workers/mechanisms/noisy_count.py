"""`noisy-count`: privacy units per declared label, or in all, with noise on every count.

count[label] = number of units that kept a record with that label
released     = round(count + noise), one vector for all declared labels at once
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from accountant.core.mechanisms.noisy_count import (
    NoisyCount,
    count_event,
    count_labels,
    sensitivity,
)
from accountant.core.privacy.price import Terms
from workers.data.records import Records
from workers.interface import NOTHING_PUBLIC, Count, Progress, Public
from workers.noise.meter import Meter


def true_counts(parameters: NoisyCount, terms: Terms, records: Records) -> dict[str | None, int]:
    """Return units by label, every declared label in its order; under None where there is one count
    for all.

    Where a unit keeps one record the number of records is that of units: records that are units of
    their own may be equal and still count twice.
    """
    single = terms.max_records_per_unit == 1
    labels: tuple[str | None, ...] = records.labels if parameters.per == "label" else (None,)
    seen: dict[str | None, set[Any]] = {label: set() for label in labels}
    for position, record in enumerate(records.records):
        label = record.label if parameters.per == "label" else None
        seen[label].add(position if single else record.unit)
    return {label: len(units) for label, units in seen.items()}


class Runner:
    """Runs `noisy-count`."""

    resumes = True

    def total(self, parameters: NoisyCount, terms: Terms) -> int:
        """Return counts released: public."""
        return count_labels(parameters, terms)

    def run(
        self,
        parameters: NoisyCount,
        terms: Terms,
        records: Records,
        model: None,  # noqa: ARG002  (it uses none)
        meter: Meter,
        progress: Progress,
        public: Public = NOTHING_PUBLIC,  # noqa: ARG002
    ) -> Iterator[Count]:
        """Yield one release of all counts."""
        counts = true_counts(parameters, terms, records)
        add = meter.laplace if parameters.noise == "laplace" else meter.gaussian
        values = np.array(list(counts.values()), dtype=np.int64)  # (counts,)
        noisy = add(values, sensitivity(parameters, terms), count_event(parameters))
        for label, count in zip(counts, noisy.tolist(), strict=True):
            progress.advance()
            yield Count(label, count)
