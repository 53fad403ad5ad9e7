"""Caps on people and projects: how much of a dataset one of them may use, and when (fair_use.py).

A cap counts the stand-alone epsilon of somebody's jobs on the dataset, live and charged, by basic
composition. It is a planning limit: caps share a dataset out among people, while the privacy of the
dataset rests on its filters alone. Ex-post caps and secret parts are not counted.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from accountant.core.ledger.admission import Refused
from accountant.core.ledger.fair_use import Shared, Sharing, first_day
from accountant.core.ledger.policy import Policy
from accountant.core.privacy.units import (
    EPSILON_UNITS,
    measured_up,
    round_allowance,
    round_price,
    to_decimal,
)

ANALYST = "analyst"
PROJECT = "project"
#: Charges of other programs, by who vouches for them.
STATED, SIGNED = "stated", "signed"
#: What is released of a shared ε, for whoever asks.
RELEASE = "release"


@dataclass(frozen=True)
class Usage:
    """The ε that an analyst and a project (0 if the job names none) already use of a dataset, in
    10^-9.

    Of a charge of another program, also what all charges of its level use. None: it is of another
    level, or no charge. `release`: the part of a shared ε that `holder` can't reserve now; `shared`
    says why.
    """

    analyst: int = 0
    project: int = 0
    stated: int | None = None
    signed: int | None = None
    release: int | None = None
    holder: str = ""
    shared: Shared | None = None

    def sharing(self, shared: Shared | None, holder: str) -> "Usage":
        """Return the usage with what a holder can't reserve now of a shared ε."""
        if shared is None:
            return self
        release = shared.sharing.total - shared.room(holder)
        return replace(self, release=release, holder=holder, shared=shared)

    def changed(self, change: Callable[[str, int], int]) -> "Usage":
        """Return the usage with each amount that counts changed, by its name and itself.

        What is released later is not said of it any more.
        """
        names = (ANALYST, PROJECT, STATED, SIGNED, RELEASE)
        counting = {name: used for name in names if (used := getattr(self, name)) is not None}
        changed: dict[str, Any] = {name: change(name, used) for name, used in counting.items()}
        return replace(self, shared=None, **changed)

    @property
    def of_a_job(self) -> "Usage":
        """The usage as it limits a job of this service, which is no charge."""
        return replace(self, stated=None, signed=None)


NO_USAGE = Usage()


@lru_cache(maxsize=4096)
def counted(epsilon_alone: float | None) -> int:
    """Return the ε that a job counts against a cap, in 10^-9, rounded up; 0 without a DP part."""
    return 0 if not epsilon_alone else round_price(measured_up(epsilon_alone), EPSILON_UNITS)


def limits(policy: Policy) -> dict[str, int]:
    """Return the caps that a policy sets, in 10^-9 ε."""
    stated = {
        ANALYST: policy.analyst_epsilon,
        PROJECT: policy.project_epsilon,
        STATED: policy.stated_charges_epsilon,
        SIGNED: policy.signed_charges_epsilon,
    }
    found = {
        name: round_allowance(value, EPSILON_UNITS, f"{name}_epsilon")
        for name, value in stated.items()
        if value is not None
    }
    sharing = Sharing.of(policy)
    return found if sharing is None else {**found, RELEASE: sharing.total}


def beyond_caps(usage: Usage, policy: Policy, epsilon_alone: float | None) -> Refused | None:
    """Return a cap's refusal of a job of this epsilon alone, or None. Free jobs always fit."""
    asked = counted(epsilon_alone)
    for name, limit in limits(policy).items():
        used: int | None = getattr(usage, name)
        if asked and used is not None and used + asked > limit:
            shared = usage.shared if name == RELEASE else None
            month = None if shared is None else shared.fits_from(usage.holder, asked)
            rest = limit - used if shared is None or month is not None else shared.left
            left = to_decimal(max(rest, 0), EPSILON_UNITS)
            wanted = to_decimal(asked, EPSILON_UNITS)
            if shared is not None and month is not None:
                why = f"{shared.sentence(month)}. The job is ε {wanted} by itself; {left} is free"
                return Refused(f"{name} cap", left, wanted, why, until=first_day(month))
            whole = to_decimal(limit, EPSILON_UNITS)
            whose = f"all {name} charges'"
            if name in (ANALYST, PROJECT):
                whose = f"the {name}'s"
            elif name == RELEASE:
                whose = "the shared"
            why = (
                f"the job is ε {wanted} by itself; {left} is left of {whose} {whole} on "
                "this dataset"
            )
            return Refused(f"{name} cap", left, wanted, why)
    return None
