"""A mechanism for tests that costs in the secret currency: noisy counts and centres of two fixed
clusters.
"""

from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from accountant.core.mechanisms.base import Mechanism, Parameters
from accountant.core.privacy.price import Price, Terms
from accountant.core.privacy.secrets import SecretRelease

NAME = "blur"


class Blur(Parameters):
    """`rounds` are priced, `takes` are taken."""

    sigma: float = 4.0
    rounds: int = 1
    takes: int = 1


def release(parameters: Blur, terms: Terms) -> SecretRelease:
    declared = terms.secret
    assert declared is not None
    group = declared.group
    return SecretRelease(
        group.records, group.rate, group.without, parameters.sigma, parameters.rounds
    )


def price(parameters: Blur, terms: Terms) -> Price:
    found = release(parameters, terms)
    stated = {"release": found.to_json(), "prior": 1e-4, "bound": found.blow_up(1e-4)}
    return Price(None, ("for tests",), secret=stated)


MECHANISM = Mechanism(
    id=NAME,
    title="Blur",
    summary="For tests.",
    source="none",
    parameters=Blur,
    price=price,
    resolve=lambda parameters, _: parameters,
    context_tokens=lambda *_: 0,
    size_field="rounds",
    stops_early=True,  # `takes` may be fewer
    uses_model=False,
    runner="tests.blurs",
)


class Runner:
    """Two clusters: short texts and long ones."""

    def total(self, parameters: Blur, terms: Terms) -> int:
        return parameters.takes

    def run(self, parameters, terms, records, model, meter, progress, public) -> Iterator[object]:
        from workers.interface import Text

        long = sum(len(record.text) > 20 for record in records.records)
        counts = np.array([len(records.records) - long, long])
        centres = np.zeros((2, 3), np.int64)
        for _ in range(parameters.takes):
            noisy, _ = meter.secret(
                counts, centres, [Fraction(9), Fraction(2)], release(parameters, terms)
            )
            progress.advance()
            yield Text(f"about {noisy[0]} and {noisy[1]}")
