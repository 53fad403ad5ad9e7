"""The Celery application of a worker that knows the mechanisms of tests."""

from tests import blurs, matches, peeks, tallies
from workers.jobs.app import app

__all__ = ["app"]

for each in (tallies, peeks, matches, blurs):
    tallies.register(each)
