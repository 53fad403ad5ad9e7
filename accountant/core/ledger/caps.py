"""Caps on people and projects: how much of a dataset one of them may use.

A cap counts the stand-alone epsilon of somebody's jobs on the dataset, live and charged, by basic
composition. It is a planning limit: caps share a dataset out among people, while the privacy of the
dataset rests on its filters alone. Ex-post caps and secret parts are not counted.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

from accountant.core.ledger.admission import Refused
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


@dataclass(frozen=True)
class Usage:
    """The ε that an analyst and a project (0 if the job names none) already use of a dataset, in
    10^-9.

    Of a charge of another program, also what all charges of its level use. None: it is of another
    level, or no charge.
    """

    analyst: int = 0
    project: int = 0
    stated: int | None = None
    signed: int | None = None

    def changed(self, change: Callable[[str, int], int]) -> "Usage":
        """Return the usage with each amount that counts changed, by its name and itself."""
        counting = {name: used for name, used in asdict(self).items() if used is not None}
        return replace(self, **{name: change(name, used) for name, used in counting.items()})

    @property
    def of_a_job(self) -> "Usage":
        """The usage as it limits a job of this service, which is no charge."""
        return replace(self, stated=None, signed=None)


NO_USAGE = Usage()


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
    return {
        name: round_allowance(value, EPSILON_UNITS, f"{name}_epsilon")
        for name, value in stated.items()
        if value is not None
    }


def beyond_caps(usage: Usage, policy: Policy, epsilon_alone: float | None) -> Refused | None:
    """Return a cap's refusal of a job of this epsilon alone, or None. Free jobs always fit."""
    asked = counted(epsilon_alone)
    for name, limit in limits(policy).items():
        used: int | None = getattr(usage, name)
        if asked and used is not None and used + asked > limit:
            left = to_decimal(max(limit - used, 0), EPSILON_UNITS)
            wanted = to_decimal(asked, EPSILON_UNITS)
            whole = to_decimal(limit, EPSILON_UNITS)
            whose = f"the {name}'s" if name in (ANALYST, PROJECT) else f"all {name} charges'"
            why = (
                f"the job is ε {wanted} by itself; {left} is left of {whose} {whole} on "
                "this dataset"
            )
            return Refused(f"{name} cap", left, wanted, why)
    return None
