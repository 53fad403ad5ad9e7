"""The patterns of names that people choose, and the names of filters."""

#: People, datasets, models, corpora.
NAME = r"^[a-z0-9][a-z0-9._-]{0,62}$"

#: Projects, and policies' lists of them: a part of a longer pattern.
PROJECT_NAME = r"[a-z0-9][a-z0-9._-]{0,62}"

#: The filters of an account, as pages and the command line call them.
FILTER_NAMES = {
    "renyi": "Rényi",
    "gaussian": "Gaussian",
    "renyi2": "Rényi, twice the order",
    "basic": "Basic",
}
