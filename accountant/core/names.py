"""The patterns of names that people choose, names that look alike, and what filters and jobs are
called.
"""

from datetime import UTC, datetime
from textwrap import shorten

#: People, datasets, models, corpora.
NAME = r"^[a-z0-9][a-z0-9._-]{0,62}$"

#: Characters of names that look like others: what Unicode's confusables (UTS 39) have of those in
#: NAME.
_LOOKS_LIKE = str.maketrans({"0": "o", "1": "l", "m": "rn"})

#: Projects, and policies' lists of them: a part of a longer pattern.
PROJECT_NAME = r"[a-z0-9][a-z0-9._-]{0,62}"

#: The filters of an account, as pages and the command line call them.
FILTER_NAMES = {
    "renyi": "Rényi",
    "gaussian": "Gaussian",
    "renyi2": "Rényi, low order",
    "basic": "Basic",
}

#: Characters of a purpose that stand in the name of a job.
PURPOSE_CHARACTERS = 48


def job_name(noun: str, created_at: datetime, number: int, purpose: str = "") -> str:
    """Return the name by which people call a job: "Texts for onboarding, 3 March, no. 12".

    Args:
        noun: What a job of its mechanism makes (`Mechanism.noun`).
        number: The job's place among the jobs of its dataset.
        purpose: Its analyst's words. Leave them out where a reader may not see them.
    """
    words = shorten(purpose, PURPOSE_CHARACTERS, placeholder=" …").rstrip(".")
    joined = " " if words.lower().startswith(("for ", "to ")) else ": "
    day, about = created_at.astimezone(UTC), f"{noun}{joined}{words}" if words else noun
    return f"{about}, {day.day} {day:%B}, no. {number}"


def skeleton(name: str) -> str:
    """Return the skeleton of a name: names that look alike have the same one."""
    return name.translate(_LOOKS_LIKE)


def is_alike(name: object, other: object) -> bool:
    """Return True if two values are names that are the same, or look the same to people."""
    return isinstance(name, str) and isinstance(other, str) and skeleton(name) == skeleton(other)
