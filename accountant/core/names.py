"""The patterns of names that people choose, names that look alike, and the names of filters."""

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


def skeleton(name: str) -> str:
    """Return the skeleton of a name: names that look alike have the same one."""
    return name.translate(_LOOKS_LIKE)


def is_alike(name: object, other: object) -> bool:
    """Return True if two values are names that are the same, or look the same to people."""
    return isinstance(name, str) and isinstance(other, str) and skeleton(name) == skeleton(other)
