"""A drawn fault of every kind does no harm; `make mutations` takes each guard out."""

import pytest

from tests.faults import restores

pytestmark = pytest.mark.slow


def test_restores_and_changed_logs_do_no_harm(servers):
    # The same in every run of a tree; `python -m tests.faults.restores` draws others.
    assert restores.run(servers, 1, len(restores.FAULTS)) == []
