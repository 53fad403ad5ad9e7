"""The Celery application of a worker that knows the mechanism of tests/tallies.py."""

from tests import tallies
from workers.jobs.app import app

__all__ = ["app"]

tallies.register()
