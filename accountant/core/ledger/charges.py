"""Charges of other programs: who vouches for each, and what it may give back.

    measured here         the jobs of this service, by its own meter: no charge
    signed by a runner    a key that the policy names signs the RESERVE's parameters and the end
    as stated             a person's word

A policy admits neither of the last two unless it sets a cap for it. An end that gives something
back is signed; any other is charged whole.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from accountant.core.errors import InvalidRequest, NotPermitted, VerificationFailed, invalid
from accountant.core.ledger.admission import alone
from accountant.core.ledger.caps import SIGNED, STATED, counted
from accountant.core.ledger.commitments import is_hidden
from accountant.core.ledger.policy import Policy
from accountant.core.ledger.reservations import read_event
from accountant.core.ledger.runners import begin_act, is_signed, settle_act
from accountant.core.mechanisms.charge import ID
from accountant.core.privacy import foreign_events
from accountant.core.privacy.events import Event, releases
from accountant.core.privacy.price import Neighbours
from accountant.core.privacy.units import EPSILON_UNITS, to_decimal

Body = Mapping[str, Any]

MEASURED = "measured"
#: What people read of each level.
LEVELS = {
    MEASURED: "measured here",
    SIGNED: "signed by a runner",
    STATED: "as stated",
}


def level(mechanism: str, parameters: Body) -> str:
    """Return who vouches for a job's event."""
    if mechanism != ID:
        return MEASURED
    return STATED if parameters.get("runner") is None else SIGNED


def check_admitted(policy: Policy, parameters: Body) -> None:
    """Raise NotPermitted unless the policy admits charges of this level, and names the runner."""
    vouched, runner = level(ID, parameters), parameters.get("runner")
    cap = f"{vouched}_charges_epsilon"
    if getattr(policy, cap) is None:
        raise NotPermitted(
            f"the dataset's policy admits no charges that are {LEVELS[vouched]}: a steward sets "
            f"{cap}"
        )
    if vouched == SIGNED and runner not in policy.runners:
        raise NotPermitted(f"the dataset's policy names no runner {str(runner)[:80]!r}")


def check_stated(dataset: str, unit: str | None, parameters: Body) -> None:
    """Raise InvalidRequest unless the unit is the dataset's and a runner signed its report."""
    own, runner = unit or "record", parameters.get("runner")
    if parameters["unit"] != own:
        raise invalid(
            "parameters.unit", f"{parameters['unit']!r}, and the dataset's is {own!r}", own
        )
    signature = parameters.get("signature")
    if runner is None and (signature or parameters.get("image")):
        raise invalid("parameters.runner", "not given, and only a runner signs", "name and key")
    if runner is not None and not parameters.get("image"):
        raise invalid("parameters.image", "not given", "the image or commit that the runner ran")
    if runner is not None and not parameters.get("nonce"):
        raise invalid("parameters.nonce", "not given", "text that is drawn for this charge alone")
    if runner is not None and not is_signed(begin_act(dataset, parameters), runner, signature):
        problem = "it is not the runner's signature of these parameters on this dataset"
        raise invalid("parameters.signature", problem, "the runner's, in hex")


def settled_event(parameters: Body, dataset: str, job: str, evidence: Body, held: Event) -> Event:
    """Return what a charge is charged for: what its runner signs, or all that is held.

    Raises InvalidRequest if the signature is not the runner's, or more was released than is held.
    """
    history, signature = evidence.get("history"), evidence.get("signature")
    event = held
    if history is not None:
        event = foreign_events.read_event(history, Neighbours(parameters["relation"]), "event")
        beyond = releases(event) - releases(held)
        if beyond:
            made, whole = (sum(releases(part).values()) for part in (event, held))
            raise invalid(
                "event",
                f"{sum(beyond.values()):,} of its {made:,} releases are not among the {whole:,} "
                "reserved",
                "a part of what was reserved; ask for a charge of its own for the rest",
            )
    if signature is None:
        return held
    act = settle_act(dataset, job, history, evidence.get("output"))
    if parameters["runner"] is None or not is_signed(act, parameters["runner"], signature):
        problem = "it is not the signature of the runner that began the charge"
        raise invalid("signature", problem, "the runner's, in hex, or nothing: all is charged")
    return event


def check_end(parameters: Body, dataset: str, job: str, body: Body, held: Event) -> None:
    """Raise VerificationFailed unless a charge's COMMIT gives back only what its runner signed.

    Args:
        parameters: those of its RESERVE.
        held: the event that is reserved.
    """
    evidence = body.get("evidence", {}) if body["outcome"] == "succeeded" else {}
    try:
        event = settled_event(parameters, dataset, job, evidence, held)
    except InvalidRequest as error:
        raise VerificationFailed(str(error)) from None
    if read_event(body["event"]) != event:
        raise VerificationFailed("it gives back a part of a charge that no runner signed")


class Unproved(NamedTuple):
    """Who vouches for some charges of a program, and how. `confirmed`: who confirmed overdrafts."""

    level: str
    who: str
    tool: str
    confirmed: str = ""


class Vouched:
    """The charges of a ledger that rest on somebody's word, by name and sum.

    Each counts as much as it asked for, also where it ended early, until it is void or corrected to
    nothing: as its level's cap does.
    """

    def __init__(self) -> None:
        self._asked: dict[str | None, tuple[Unproved, int]] = {}
        self._counting: set[str | None] = set()

    def reserve(self, job: str | None, actor: str, body: Body) -> None:
        """Count a RESERVE, if it is a charge."""
        if body["mechanism"] != ID:
            return
        stated = body["parameters"]
        vouched = level(ID, stated)
        who = actor if vouched == STATED else str(stated["runner"]).split(" ")[0]
        amount = counted(alone(read_event(body["event"]), body["terms"]["delta"]))
        confirmed = ""
        if "overdraft" in body:
            approval = body["approval"]
            confirmed = "somebody" if is_hidden(approval) else approval["by"]
        self._asked[job] = Unproved(vouched, who, stated["tool"], confirmed), amount
        self._counting.add(job)

    def count(self, job: str | None, counts: bool) -> None:
        """Count a job on, or no more, if it is a charge: after a VOID or a REVERSAL."""
        if job in self._asked and counts:
            self._counting.add(job)
        else:
            self._counting.discard(job)

    def sums(self) -> dict[str, int]:
        """Return what the charges of each level asked for, each by itself, in 10^-9."""
        totals: Counter[str] = Counter()
        for job in self._counting:
            unproved, amount = self._asked[job]
            totals[unproved.level] += amount
        return dict(+totals)

    def sentences(self) -> tuple[str, ...]:
        """Return what nobody here could measure, a sentence for each name and program."""
        amounts: dict[Unproved, list[int]] = {}
        for job in self._counting:
            unproved, amount = self._asked[job]
            amounts.setdefault(unproved, []).append(amount)
        return tuple(
            f"not measured here: {len(asked):,} {'charge' if len(asked) == 1 else 'charges'} of "
            f"{key.tool}, {'signed by the runner' if key.level == SIGNED else 'as stated by'} "
            f"{key.who or 'somebody'}, ε {to_decimal(sum(asked), EPSILON_UNITS)} by themselves, "
            + (f"an overdraft that {key.confirmed} confirmed" if key.confirmed else "as asked for")
            for key, asked in sorted(amounts.items())
        )
