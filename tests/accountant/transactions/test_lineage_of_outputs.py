"""A job that reads a published output: free, and only of an output that a job before it
published.
"""

import pytest

from accountant.core.errors import VerificationFailed
from accountant.core.ledger.hash_chain import Entry, EntryKind, read_time
from accountant.core.ledger.lineage import Lineage, of_output
from accountant.core.privacy.events import FREE, Gaussian, to_json

AT = read_time("2026-01-01T00:00:00.000000Z")
PUBLISHED = "a" * 64


def entry(kind: EntryKind, job: str, body: dict) -> Entry:
    return Entry("data", 1, kind, AT, "somebody", job, body, "0" * 64)


def published() -> Lineage:
    lineage = Lineage()
    body = {"outcome": "succeeded", "output_sha256": PUBLISHED}
    lineage.add(entry(EntryKind.COMMIT, "writer", body))
    return lineage


def test_what_was_published_may_be_read_for_nothing():
    body = {"event": to_json(FREE), "source": of_output("writer", PUBLISHED)}
    published().add(entry(EntryKind.RESERVE, "reader", body))


@pytest.mark.parametrize(
    ("source", "event", "problem"),
    [
        (of_output("writer", "b" * 64), FREE, "no job before it published"),
        (of_output("another", PUBLISHED), FREE, "no job before it published"),
        (of_output("writer", PUBLISHED), Gaussian(1.0), "and is charged"),
    ],
)
def test_anything_else_can_not_stand(source, event, problem):
    with pytest.raises(VerificationFailed, match=problem):
        published().add(
            entry(EntryKind.RESERVE, "reader", {"event": to_json(event), "source": source})
        )
