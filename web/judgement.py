"""A judgement of ε beside its bound: what others published, and a scale that tells 3 from 8 and
warns at 50.

No law or standard sets an ε. NIST SP 800-226 (2025) asks to judge it together with the privacy unit
and with everything around it; NIST's account of the field finds no consensus beyond values around 1
that researchers recommend. The scale is this project's own: its steps lie where published values
lie.
"""

from dataclasses import asdict, dataclass
from typing import Any


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
    return next(each for each in SCALE if epsilon <= each.most)


def judgement(epsilon: float) -> dict[str, Any]:
    """Return level and sentence for an ε, whether it is warned of, and what others published."""
    step = step_of(epsilon)
    return {
        "level": step.level,
        "tone": step.tone,
        "sentence": f"ε {epsilon:g} is {step.words}.",
        "warning": epsilon > WARNS_ABOVE,
        "references": [asdict(each) for each in REFERENCES],
    }
