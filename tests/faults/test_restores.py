"""A drawn fault of every kind does no harm; `make mutations` takes each guard out."""

import random

import pytest

from tests.faults import restores

pytestmark = pytest.mark.slow


def test_restores_and_changed_logs_do_no_harm(servers):
    seed = random.SystemRandom().randrange(2**31)
    assert restores.run(servers, seed, len(restores.FAULTS)) == [], seed
