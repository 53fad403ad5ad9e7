"""What a proposal is, and what it is made of: shared by the planner's parts (planning)."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from accountant.core.errors import FieldProblem, InvalidRequest
from accountant.core.mechanisms.base import Mechanism, Yield
from accountant.core.mechanisms.outlooks import Outlook, outlook
from accountant.core.privacy.price import Price, Terms

Affordable = Callable[[Price], bool]


@dataclass(frozen=True)
class Proposal:
    """What to ask for, and what it is worth. Without a mechanism: nothing would be enough.

    `parameters`: those that are not the mechanism's defaults; `makes`: what the job writes, in the
    mechanism's own words; `lacks`: what a person still has to name; `notes`: why it is as it is.
    """

    goal: str
    outlook: Outlook
    mechanism: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict, hash=False)
    makes: Yield | None = None
    lacks: FieldProblem | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Known:
    """What else is known that a request may name.

    `adapters`: parameters of the jobs that trained adapters for the model, by job, the best first;
    `corpora`: public corpora that one can be trained on, the best first; `label_counts`: records
    of each label by a noisy count that somebody paid for.
    """

    adapters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, hash=False)
    corpora: tuple[str, ...] = ()
    label_counts: Mapping[str, int] = field(default_factory=dict, hash=False)


NOTHING = Known()


@dataclass(frozen=True)
class Asked:
    """What a proposal is for: the dataset's terms, the model's public facts, what else is known,
    and what may be spent.
    """

    terms: Terms
    facts: Mapping[str, Any]
    affordable: Affordable
    known: Known = NOTHING

    def proposal(
        self, mechanism: Mechanism[Any], raw: Mapping[str, Any], notes: tuple[str, ...] = ()
    ) -> Proposal | None:
        """Return this request with its outlook; None where it is refused, or costs too much."""
        try:
            parsed = mechanism.parse(raw, self.terms)
            price = mechanism.price(parsed, self.terms)
        except InvalidRequest:
            return None
        if not self.affordable(price) or mechanism.unfit(parsed, self.facts) is not None:
            return None
        found = outlook(mechanism, parsed, self.terms, self.facts)
        assert found is not None  # every planned mechanism has an outlook
        made, lacks = mechanism.yields(parsed, self.terms), mechanism.missing(parsed)
        return Proposal(mechanism.goal, found, mechanism.id, raw, made, lacks, notes)


#: Round figures, from which the least that is good is taken.
EPSILONS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)


def first_good(requests: Iterator[Proposal | None]) -> Iterator[Proposal]:
    """Yield requests from the cheapest on, to the first that is good, or the last affordable."""
    for each in requests:
        if each is None:
            return
        yield each
        if each.outlook.verdict == "good":
            return
