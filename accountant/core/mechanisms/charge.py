"""The price of a charge: what another program releases about a dataset, by the event it states.

    submit ─▶ price, approval, RESERVE ─▶ begin ─▶ the other program runs ─▶ settle ─▶ COMMIT

No worker runs a charge. Whoever asks for it vouches for its event: a runner whose key the policy
names signs it, or it stands as a person states it (core.ledger.charges).
"""

from typing import Any

from pydantic import Field

from accountant.core.errors import invalid
from accountant.core.mechanisms.base import Mechanism, Parameters, Yield
from accountant.core.privacy.composition import epsilon_alone
from accountant.core.privacy.events import (
    Event,
    WorstOf,
    releases,
    spends,
)
from accountant.core.privacy.foreign_events import read_event
from accountant.core.privacy.price import Neighbours, Price, Terms

ID = "charge"
_LINE = r"^[ -~]*[!-~][ -~]*$"


class Charge(Parameters):
    """Parameters of a charge: the event, whose it is, and who vouches for it."""

    tool: str = Field(
        pattern=_LINE, max_length=100, description="the program and its version, as opacus 1.6"
    )
    unit: str = Field(
        max_length=200,
        description="the unit that the event protects: the dataset's unit column, or record",
    )
    relation: Neighbours = Field(
        strict=False, description="the neighbouring relation that the event is stated under"
    )
    event: Any = Field(
        description="what the program releases: an event of ours or of dp-accounting, Opacus' "
        "[[sigma, q, steps], ...], epsilon and delta, or rho"
    )
    records_per_unit: int = Field(
        1, ge=1, description="the most records of one unit that the event allows for"
    )
    runner: str | None = Field(
        None, max_length=200, description="the runner that signs, as the policy names it, with key"
    )
    image: str | None = Field(
        None, pattern=_LINE, max_length=200, description="the image or commit that the runner ran"
    )
    nonce: str | None = Field(
        None,
        pattern=_LINE,
        max_length=200,
        description="drawn for this charge, and signed: a runner's signature begins one charge",
    )
    signature: str | None = Field(
        None,
        pattern="^[0-9a-f]{128}$",
        description="the runner's signature of all the other fields",
    )

    @property
    def stated(self) -> Event:
        """The event in our form. Raises InvalidRequest if it has none under the relation."""
        return read_event(self.event, self.relation)


def check_event(event: Event) -> None:
    """Raise InvalidRequest for an event that nobody outside can vouch for."""
    if not spends(event):
        raise invalid("event", "it releases nothing", "an event that costs something")
    if any(isinstance(leaf, WorstOf) for leaf in releases(event)):
        problem = "parts of another program's data are not known to be disjoint here"
        raise invalid("event", problem, "composed, which adds them up")


def resolve(parameters: Charge, terms: Terms) -> Charge:
    """Check that relation, bound and event go with the dataset's terms."""
    if parameters.relation != terms.neighbours:
        raise invalid(
            "relation",
            f"{parameters.relation}, and the dataset's is {terms.neighbours}",
            str(terms.neighbours),
        )
    if parameters.records_per_unit != terms.max_records_per_unit:
        own = terms.max_records_per_unit
        problem = f"{parameters.records_per_unit}, and the dataset's is {own}"
        raise invalid("records_per_unit", problem, str(own))
    check_event(parameters.stated)
    return parameters


def price(parameters: Charge, terms: Terms) -> Price:
    """Return the stated event, as it is."""
    event = parameters.stated
    epsilon, _ = epsilon_alone(event, terms.delta)
    count = sum(releases(event).values())
    return Price(
        event,
        (
            f"{count:,} {'release' if count == 1 else 'releases'} of {parameters.tool}",
            f"ε {epsilon:.6g} at δ {terms.delta:g}, by the event that it states",
        ),
    )


CHARGE = Mechanism(
    id=ID,
    title="Charge",
    summary="What another program releases, by the event that it states.",
    source="whoever vouches for it",
    parameters=Charge,
    price=price,
    resolve=resolve,
    context_tokens=lambda *_: 0,
    size_field="",
    runner="another program",
    uses_model=False,
    progress_unit="steps",
    stops_early=True,
    goal="charge",
    yields=lambda *_: Yield("charges", 1),
)
