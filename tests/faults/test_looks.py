"""What the drill's look calls untrue."""

import pytest

from tests.faults.looks import Look, untrue

SILENT = "the log outside the database does not answer"


def looks(**middle: object) -> list[Look]:
    same = {"ready": 503, "served": 503, "seconds": 0.1, "said": SILENT}
    return [Look(at=float(at), **(same | (middle if at == 2 else {}))) for at in range(1, 4)]


@pytest.mark.parametrize(
    ("middle", "found"),
    [
        ({}, 0),
        ({"served": 201, "served_seconds": 0.2}, 1),
        ({"served": 201, "served_seconds": 2.0}, 0),
        ({"served": 201, "served_seconds": 2.0, "said": "the log is another database's"}, 1),
    ],
)
def test_silence_is_true_where_a_request_waited_for_longer_than_a_probe_does(middle, found):
    assert len(untrue(looks(**middle), [], [], [])) == found
