"""The patterns of names that people choose."""

#: People, datasets, models, corpora.
NAME = r"^[a-z0-9][a-z0-9._-]{0,62}$"

#: Projects, and policies' lists of them: a part of a longer pattern.
PROJECT_NAME = r"[a-z0-9][a-z0-9._-]{0,62}"
