"""The meaning of an allowance, in true sentences: for stewards' forms and the API."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from accountant.core.errors import invalid
from accountant.core.ledger.statements import NOT_FOUND
from accountant.core.privacy.filters import granted
from accountant.core.privacy.hypothesis_testing import best_success, most_detected
from accountant.core.privacy.units import DELTA_UNITS, EPSILON_UNITS, to_decimal

# --- A judgement of ε beside its bound ------------------------------------------------------------
# No law or standard sets an ε. NIST SP 800-226 (2025) asks to judge it together with the privacy
# unit and with everything around it; NIST's account of the field finds no consensus beyond values
# around 1 that researchers recommend. The scale is this project's own: its steps lie where
# published values lie.


@dataclass(frozen=True)
class Reference:
    """An ε that somebody published, with what it covers and where it stands."""

    epsilon: float
    who: str
    covers: str
    source: str


_REGISTRY = "OpenDP Deployments Registry, registry.opendp.org/deployments-registry"

REFERENCES = (
    Reference(
        1,
        "researchers, as NIST reports them",
        "a recommendation, not a use",
        "Near and Darais, NIST Cybersecurity Insights: Differential Privacy: Future Work & Open "
        "Challenges",
    ),
    Reference(4, "Microsoft, assistive AI, 2020", "one user, δ below 1e-7", _REGISTRY),
    Reference(9.98, "Israel's Ministry of Health, births of 2014, 2024", "one birth", _REGISTRY),
    Reference(
        17.14,
        "US Census Bureau, redistricting data of 2020",
        "one person, δ 1e-10",
        "US Census Bureau, 9 June 2021",
    ),
    Reference(
        20, "AWS Clean Rooms", "the largest that may be set", "AWS Clean Rooms API reference"
    ),
    Reference(
        34.9, "LinkedIn, audience engagement, 2020", "one member and month, δ 7e-9", _REGISTRY
    ),
)


@dataclass(frozen=True)
class Step:
    """A step of the scale, up to an ε; `tone` is that of its badge."""

    most: float
    level: str
    tone: str
    words: str


SCALE = (
    Step(1, "strong", "good", "no more than researchers recommend"),
    Step(
        5, "fair", "good", "more than researchers recommend, and as much as careful publishers used"
    ),
    Step(10, "weak", "wait", "among the larger values that were published for one person's data"),
    Step(20, "very weak", "wait", "as large as the largest that some services let anybody set"),
    Step(50, "hardly any", "bad", "larger than nearly all that anybody published"),
    Step(float("inf"), "none to speak of", "bad", "a promise by name only"),
)
#: From here on a warning says that the figure promises next to nothing.
WARNS_ABOVE = 20


def step_of(epsilon: float) -> Step:
    """Return the step of the scale on which an ε lies; 50 itself is on the last."""
    if epsilon >= SCALE[-2].most:
        return SCALE[-1]
    return next(step for step in SCALE if epsilon <= step.most)


def judgement(epsilon: float) -> dict[str, Any]:
    """Return level and sentence for an ε, whether it is warned of, and what others published."""
    step = step_of(epsilon)
    return {
        "level": step.level,
        "tone": step.tone,
        "sentence": f"ε {epsilon:g} is {step.words}.",
        "warning": epsilon > WARNS_ABOVE,
        "references": [asdict(reference) for reference in REFERENCES],
    }


NEIGHBOURS = ("add-remove", "replace-one")
FALSE_ALARMS = (0.001, 0.01, 0.1)

RELATIONS = {
    "add-remove": "One unit is there or not. That somebody is in the data at all is protected, and "
    "so is the number of records: it is never shown.",
    "replace-one": "One unit is exchanged for another. What somebody's records say is protected; "
    "how many records there are is public, and that somebody is among them may be known.",
}

#: What each filter is good for.
FILTER_WORDS = {
    "renyi": "for many jobs of any kind: it adds up their Rényi divergence at one order",
    "gaussian": "for jobs that add Gaussian noise or draw tokens: it adds up their μ²",
    "renyi2": "as the first, at a lower order: for many jobs on samples or secret coins",
    "basic": "for jobs with a pure ε, such as Laplace noise, and for few large jobs: it adds up ε "
    "itself",
}

ABOUT_EX_POST = (
    "An ex-post cap is a planning figure: it is what admission adds up. What a job really cost "
    "depends on the data, so no bound on a guesser follows from a cap."
)
ABOUT_SECRETS = (
    "A bound r for a prior p says: whoever guesses a declared secret with probability at most p "
    "beforehand is right with at most r after all jobs, for secrets in at most the declared number "
    "of records. It says nothing about anything else in them. " + NOT_FOUND
)


def meaning(
    epsilon: object, delta: object, neighbours: str = "add-remove", unit: str = "record"
) -> dict[str, Any]:
    """Return the bound on a guesser for an allowance in decimals, and a judgement of it.

    Raises InvalidRequest for impossible figures.
    """
    if neighbours not in NEIGHBOURS:
        raise invalid("neighbours", repr(neighbours[:40]), ", ".join(NEIGHBOURS))
    eps, dlt = granted(epsilon, delta)
    small, chance = eps / EPSILON_UNITS, dlt / DELTA_UNITS
    success = best_success(small, chance)
    meaning = [
        {"false_alarms": rate, "at_most": most_detected(small, chance, rate)}
        for rate in FALSE_ALARMS
    ]
    which = (
        f"whether one {unit} is in the data"
        if neighbours == "add-remove"
        else f"which of two candidates one {unit} of the data is"
    )
    return {
        "epsilon": to_decimal(eps, EPSILON_UNITS),
        "delta": to_decimal(dlt, DELTA_UNITS),
        "neighbours": neighbours,
        "prior": 0.5,
        "best_success": success,
        "detected": meaning,
        "sentences": [
            f"Somebody who must tell {which}, knows everything else in it and would be right in "
            f"half of all cases without help, is right in at most {at_most(success)} after "
            "everything that the jobs ever publish.",
            "It holds for every way to guess, with the whole allowance spent. It covers what the "
            "(ε, δ) statement covers: neither outputs of ex-post jobs nor jobs that protect "
            "secrets only.",
        ],
        "judgement": judgement(small),
        "source": "Wasserman and Zhou 2010, Theorem 2.4; Kairouz, Oh and Viswanath 2015, Theorem "
        "2.1",
    }


def guesser(account: Mapping[str, Any]) -> str:
    """Return how often somebody who guesses about one person is right at most, for an account.

    They know all else, see all that is ever released, and would be right in half of all cases
    without it. The bound is for the largest allowance ever granted, as the statements are.
    """
    epsilon, delta = float(account["largest_epsilon"]), float(account["largest_delta"])
    return at_most(best_success(epsilon, delta))


def guess(epsilon: float, delta: float, neighbours: str, unit: str) -> str:
    """Return what the output of one job tells a guesser at most."""
    which = (
        f"that a {unit} is in the data"
        if neighbours == "add-remove"
        else f"which of two candidates a {unit} is"
    )
    most = at_most(best_success(epsilon, delta))
    return f"A guesser who is 50 % sure {which} is then right in at most {most} of cases."


def at_most(share: float) -> str:
    """Return a bound in per cent, rounded up, with as many digits as tell it from the whole."""
    for digits in range(1, 10):
        shown = math.ceil(share * 10 ** (digits + 2)) / 10**digits
        if shown < 100:
            return f"{shown:.{digits}f}".rstrip("0").rstrip(".") + " %"
    return "100 %"
