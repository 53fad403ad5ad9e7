"""Ledgers whose hashes and sums are right and whose entries cannot be: a database's owner can make
them.
"""

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from accountant.core import mechanisms
from accountant.core.errors import VerificationFailed
from accountant.core.ledger.accounts import Demand, entry_part, new_secret_account
from accountant.core.ledger.entry_bodies import allow_body, commit_body, reserve_body
from accountant.core.ledger.hash_chain import GENESIS, Entry, EntryKind, read_time
from accountant.core.ledger.lineage import of_artifacts, of_version
from accountant.core.ledger.verifier import Verifier
from accountant.core.privacy.events import FREE, from_releases, releases
from accountant.core.privacy.filters import Filter, Kind
from accountant.core.privacy.price import Neighbours, Terms
from accountant.core.privacy.secrets import SecretKind, SecretTerms
from accountant.core.privacy.units import DELTA_UNITS, EPSILON_UNITS
from tests.ledger_exports import rules

AT = read_time("2026-01-01T00:00:00.000000Z")
TERMS = Terms()
EPSILON, DELTA = 10 * EPSILON_UNITS, DELTA_UNITS // 10**6
ARTIFACTS = {"vectors": "a" * 64}


def allowance(**others: Any) -> dict[str, Any]:
    return allow_body(None, "10", "1e-6", "why", **others)


class Forger:
    """Chains whatever entries it is given and shows them to a verifier."""

    def __init__(self, allowed: dict[str, Any] | None = None) -> None:
        self.verifier, self.head = Verifier(), GENESIS
        for kind, body in rules(TERMS):
            self.add(kind, None, body)
        self.add(EntryKind.ALLOW, None, allowance() if allowed is None else allowed)

    def add(self, kind: EntryKind, job: str | None, body: dict[str, Any]) -> None:
        seq = self.verifier.count + 1
        entry = Entry("data", seq, kind, AT, "somebody", job, body, self.head)
        self.verifier.add(entry.document(), entry.hash())
        self.head = self.verifier.head

    @property
    def books(self):
        return self.verifier.replay.books

    def reserve(
        self,
        job: str,
        terms: Terms = TERMS,
        source: Any = None,
        named: str = "private-prediction",
        **parameters: object,
    ) -> Any:
        """A RESERVE as the service writes it; returns the event."""
        raw = parameters or {"tokens_per_batch": 4, "batches_per_label": 1}
        mechanism = mechanisms.get(named)
        parsed = mechanism.parse(raw, terms)
        event = mechanism.price(parsed, terms).dp
        body = reserve_body(
            self.books.account,
            mechanism.id,
            mechanism.recorded(parsed),
            terms,
            event,
            model={"name": "small", "sha256": "c" * 64} if mechanism.uses_model else None,
            approval=None,
            others=entry_part(self.books.accounts, Demand(event)),
            source=of_version(1) if source is None else source,
        )
        self.add(EntryKind.RESERVE, job, body)
        return event

    def commit(self, job: str, event: Any, outcome: str = "succeeded", **others: Any) -> None:
        live = self.verifier.replay.held(job)
        held = None if live is None else live.costs
        body = commit_body(self.books.account, event, outcome, 1, None, held=held, **others)
        self.add(EntryKind.COMMIT, job, body)


def test_an_honest_ledger_stands():
    forger = Forger()
    written = forger.reserve("writer", named="epsvec", epsilon=0.5, sampling_rate=0.1)
    artifacts = [
        {"name": name, "kind": "vectors", "sha256": sha256} for name, sha256 in ARTIFACTS.items()
    ]
    forger.commit("writer", written, artifacts=artifacts)
    forger.reserve(
        "reader", source=of_artifacts("writer", ARTIFACTS), named="epsvec", from_job="writer"
    )
    forger.commit("reader", FREE, read=False)
    forger.commit("lost", forger.reserve("lost"), "failed")
    assert forger.verifier.result().entries == 10


# --- what an allowance may say of its filters ---------------------------------------------------


def forged(kind: Kind, **changed: Any) -> dict[str, Any]:
    """The first allowance with one filter's share, order or step changed, and the limit that
    follows.
    """
    body = allowance()
    for each in body["filters"]:
        share = changed.get("shares", {}).get(each["kind"])
        if share is not None:
            each["share"] = share
        if each["kind"] == kind and "order" in changed:
            each["order"] = changed["order"]
        order = None if each["order"] is None else Fraction(each["order"])
        made = Filter(
            Kind(each["kind"]), Fraction(each["share"]), order, int(each.get("step_delta", 0))
        )
        limit = made.limit(EPSILON, DELTA)
        each["limit"] = {"main": str(limit.main), "delta": str(limit.delta)}
    return body


def test_a_gaussian_filter_has_no_order():
    """With one, its limit would be a divergence of nearly all of epsilon, and its costs stay mu
    squared.
    """
    body = forged(Kind.GAUSSIAN, order="1000000")
    honest = {each["kind"]: int(each["limit"]["main"]) for each in allowance()["filters"]}
    assert int(body["filters"][1]["limit"]["main"]) > 2 * honest["gaussian"]
    with pytest.raises(VerificationFailed, match="the gaussian filter has the order"):
        Forger(body)


@pytest.mark.parametrize("order", [None, "1", "1/2"])
def test_a_renyi_filter_has_an_order_above_one(order):
    body = allowance()
    body["filters"][0]["order"] = order
    with pytest.raises(VerificationFailed, match="the renyi filter has the order"):
        Forger(body)


def test_no_share_of_delta_is_negative():
    """Shares that add up to 1 by a negative one would let a filter fail with more than delta."""
    body = forged(Kind.GAUSSIAN, shares={"basic": "-99", "gaussian": "99"})
    assert sum(Fraction(each["share"]) for each in body["filters"]) <= 1
    with pytest.raises(VerificationFailed, match="negative"):
        Forger(body)


def test_a_raise_by_two_people_names_two():
    raised = allowance() | {"epsilon": "10", "proposed_by": "ana", "confirmation": "seen"}
    with pytest.raises(VerificationFailed, match="one person"):
        Forger(raised | {"confirmed_by": "ana"})
    Forger(raised | {"confirmed_by": "somebody"})


# --- what a job may be charged ------------------------------------------------------------------


@pytest.mark.parametrize("outcome", ["failed", "cancelled"])
def test_a_job_that_did_not_succeed_is_charged_whole(outcome):
    forger = Forger()
    event = forger.reserve("lost")
    part = from_releases(_one(event))
    with pytest.raises(VerificationFailed, match="charged less than was reserved"):
        forger.commit("lost", part, outcome)
    honest = Forger()
    honest.commit("lost", honest.reserve("lost"), outcome)


def _one(event: Any) -> Any:
    """A single release of the event: less than all of it."""
    counts = releases(event)
    leaf = next(iter(counts))
    assert counts[leaf] > 1
    return type(counts)({leaf: 1})


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        (of_version(1), "does not read what was released"),
        ({}, "does not read what was released"),
        (of_artifacts("writer", ARTIFACTS), "no job before it released"),
        ({"artifacts": ARTIFACTS}, "KeyError"),
    ],
)
def test_what_reads_records_is_not_free(source, problem):
    """The parameters name an earlier job, so the price is nothing, and the source is another."""
    forger = Forger()
    with pytest.raises(VerificationFailed, match=problem):
        forger.reserve("reader", source=source, named="epsvec", from_job="writer")


def test_the_neighbours_of_a_dataset_never_change():
    """A price under the wrong relation may be half of the true one."""
    forger = Forger()
    forger.reserve("first")
    with pytest.raises(VerificationFailed, match="its neighbours in terms is 'replace-one'"):
        forger.reserve("second", replace(TERMS, neighbours=Neighbours.REPLACE_ONE))


def test_nor_those_that_its_secrets_are_stated_under():
    terms = SecretTerms.from_json(
        {
            "prior": 1e-4,
            "bound": 1e-1,
            "records_per_secret": 1,
            "sampling_rate": 1.0,
            "neighbour": "redacted",
        }
    )
    account = new_secret_account(terms, SecretKind.MANY, "add-remove")
    forger = Forger(allowance(secret=account))
    with pytest.raises(VerificationFailed, match="its neighbours in terms is 'replace-one'"):
        forger.reserve("first", replace(TERMS, neighbours=Neighbours.REPLACE_ONE, secret=terms))


def test_limits_of_the_forgeries_follow_from_their_filters():
    """The forgeries above fail for what they say of their filters, and for no other reason."""
    assert forged(Kind.BASIC) == allowance()
    assert math.isclose(float(Fraction(forged(Kind.BASIC)["filters"][3]["share"])), 0.1)
