"""A mechanism for tests that leaves artifacts and can begin from them: noisy counts, and what they
say.

Smaller than any mechanism of the papers and of their shape: `from_job`, vectors as safetensors,
JSON beside it. tests/tally_worker.py is the Celery application of a worker that knows it.
"""

from collections.abc import Iterator, Mapping
from types import ModuleType

import numpy as np

from accountant.core import mechanisms
from accountant.core.mechanisms.base import Mechanism
from accountant.core.mechanisms.noise_fields import (
    ARTIFACTS_ARE_FREE,
    GaussianNoise,
    from_job_field,
    with_multiplier,
    without_noise,
)
from accountant.core.privacy.calibration import gaussian_multiplier
from accountant.core.privacy.events import FREE, Gaussian
from accountant.core.privacy.price import Price, Terms

NAME = "tally"


class Tally(GaussianNoise):
    """The number of records of each label, or an earlier job's result."""

    from_job: str | None = from_job_field("noisy counts")
    fails: bool = False


def price(parameters: Tally, terms: Terms) -> Price:
    if parameters.from_job is not None:
        return Price(FREE, (ARTIFACTS_ARE_FREE,))
    assert parameters.noise_multiplier is not None
    return Price(Gaussian(parameters.noise_multiplier), ("a noisy count per label",))


def resolve(parameters: Tally, terms: Terms) -> Tally:
    if parameters.from_job is not None:
        return without_noise(parameters)
    return with_multiplier(parameters, lambda epsilon: gaussian_multiplier(epsilon, terms.delta))


MECHANISM = Mechanism(
    id=NAME,
    title="Tally",
    summary="For tests.",
    source="none",
    parameters=Tally,
    price=price,
    resolve=resolve,
    context_tokens=lambda _parameters, _template_tokens: 0,
    size_field="epsilon",
    uses_model=False,
    progress_unit="counts",
    releases=("noisy-counts", "noisy-vector", "label"),
    runner="tests.tallies",
)


class Runner:
    """Counts with noise, or says what an earlier job counted."""

    def total(self, parameters: Tally, terms: Terms) -> int:
        return max(1, len(terms.labels))

    def run(self, parameters, terms, records, model, meter, progress, public) -> Iterator[object]:
        from workers.interface import Artifact, Text

        counts = np.array(
            [sum(r.label == label for r in records.records) for label in records.labels]
        )
        noisy = meter.gaussian(counts, 1, Gaussian(parameters.noise_multiplier))
        named = dict(zip(map(str, records.labels), noisy.tolist(), strict=True))
        yield Artifact.of_json("counts", "noisy-counts", named)
        yield Artifact.of_tensors("vector", "noisy-vector", {"layer.0": noisy.astype(np.float32)})
        if parameters.fails:
            raise RuntimeError("a secret that nobody may see")
        progress.advance(len(noisy))
        yield Text("counted")

    def reuse(
        self, parameters, terms, artifacts: Mapping, model, progress, public
    ) -> Iterator[object]:
        from workers.interface import Artifact, Text

        if parameters.fails:
            raise RuntimeError("of no interest")
        counts, vector = artifacts["counts"].json(), artifacts["vector"].tensors()["layer.0"]
        assert list(counts.values()) == vector.tolist()
        for label, count in counts.items():
            progress.advance()
            yield Text(f"about {count}", label)
        yield Artifact.of_json("largest", "label", max(counts, key=counts.get))


def register(module: ModuleType | None = None) -> None:
    """Make a module's mechanism, or this one's, known to this process, as if its two files were
    there.
    """
    mechanism = MECHANISM if module is None else module.MECHANISM
    mechanisms.MECHANISMS[mechanism.id] = mechanism


def forget(module: ModuleType | None = None) -> None:
    """The inverse of `register`."""
    mechanisms.MECHANISMS.pop(NAME if module is None else module.NAME, None)
