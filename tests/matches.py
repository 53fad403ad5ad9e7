"""A mechanism for tests that reads records and what two earlier jobs, of other mechanisms,
released.
"""

from collections.abc import Iterator

import numpy as np

from accountant.core.mechanisms.base import Mechanism, Parameters
from accountant.core.mechanisms.vocabulary import TERM_LIST
from accountant.core.privacy.events import Laplace
from accountant.core.privacy.price import Price, Terms

NAME = "match"


class Match(Parameters):
    """Counts records with a listed term."""

    vocabulary: str
    tally: str
    noise_multiplier: float = 1.0


MECHANISM = Mechanism(
    id=NAME,
    title="Match",
    summary="For tests.",
    source="none",
    parameters=Match,
    price=lambda parameters, _: Price(Laplace(parameters.noise_multiplier)),
    resolve=lambda parameters, _: parameters,
    context_tokens=lambda *_: 0,
    size_field="noise_multiplier",
    uses_model=False,
    runner="tests.matches",
    sources=lambda _: {"vocabulary": TERM_LIST, "tally": "noisy-counts"},
)


class Runner:
    """One count, and what the sources say."""

    def total(self, parameters: Match, terms: Terms) -> int:
        return 1

    def run(self, parameters, terms, records, model, meter, progress, public) -> Iterator[object]:
        from workers.data.terms import TermList
        from workers.interface import Text

        listed = TermList.of(public.sources["vocabulary"]["terms"])
        assert set(public.sources["tally"]) == {"counts"}  # that kind, and nothing else of the job
        known = public.sources["tally"]["counts"].json()
        found = sum(bool(listed.distinct(record.text, 1)) for record in records.records)
        noisy = meter.laplace(np.array([found]), 1, Laplace(parameters.noise_multiplier))
        yield Text(f"about {noisy[0]} of {sum(known.values())}")
