"""What a job is, made from the entries of its dataset's ledger and from nothing else.

    REGISTER   the version of the data that it reads: address, files, columns, template, unit and
               bound
    POLICY     who may ask, who must approve and sign, how attempts are limited
    ALLOW      what approvals are based on
    RESERVE    mechanism, parameters, terms, model, lineage, price, parts, approval
    COMMIT     what an earlier job released, which this one reads

A worker runs the order that `Orders` makes of a ledger. `verify` makes the order of each RESERVE by
the same function, so an auditor and a worker can't disagree. Rows of the database are hints of
where to look.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from accountant.core import mechanisms
from accountant.core.errors import UNREADABLE, VerificationFailed
from accountant.core.ledger.accounts import Demand, demand, read_demand
from accountant.core.ledger.commitments import is_hidden
from accountant.core.ledger.entry_fields import check_fields
from accountant.core.ledger.hash_chain import GENESIS, Entry, EntryKind, digest, read_entry
from accountant.core.ledger.lineage import (
    Releases,
    check_charged,
    check_named,
    corpora_named,
    read_elsewhere,
)
from accountant.core.ledger.policy import Policy
from accountant.core.ledger.reservations import by_value
from accountant.core.ledger.rules import Rules, check_registered
from accountant.core.privacy.events import to_json
from accountant.core.privacy.price import Price, Terms

Body = Mapping[str, Any]


@dataclass(frozen=True)
class Order:
    """A job as its entries state it.

    Args:
        register: the body of the REGISTER of the version that it reads; None: it reads no records.
        parts: how many workers share its batches.
        policy: the newest policy of the dataset.
        corpora: (field, name) of the public corpora that it reads, and of those that jobs whose
            artifacts it reads beside were made of.
    """

    dataset: str
    job: str
    analyst: str
    mechanism: str
    parameters: Body
    terms: Body
    model: Body | None
    source: Body
    event: Body
    costs: Body
    parts: int
    approval: Body | None
    register: Body | None
    policy: Policy
    corpora: tuple[tuple[str, str], ...]

    @property
    def reads_records(self) -> bool:
        return self.register is not None


def order_of(entry: Entry, rules: Rules, policy: Policy | None = None) -> Order:
    """Return the order that a RESERVE makes under the rules before it. Raises VerificationFailed.

    Args:
        policy: the newest policy; None: that of the rules.
    """
    body = entry.body
    source = body["source"]
    policy = policy or rules.policy
    assert policy is not None  # rules are complete before a RESERVE
    register = None
    if "version" in source:
        register = check_registered(source["version"], rules.versions)
    return Order(
        dataset=entry.dataset,
        job=entry.job or "",
        analyst=entry.actor,
        mechanism=body["mechanism"],
        parameters=body["parameters"],
        terms=body["terms"],
        model=body["model"],
        source=source,
        event=body["event"],
        costs=body["costs"],
        parts=body.get("parts", 1),
        approval=body["approval"],
        register=register,
        policy=policy,
        corpora=corpora_named(body),
    )


@dataclass(frozen=True)
class _Live:
    """A job that is reserved and not ended.

    Args:
        rules: the rules before its RESERVE.
        unreleased: why what it reads was not released before it, or None.
    """

    seq: int
    document: Body
    rules: Rules
    unreleased: str | None


class Orders:
    """The jobs of one ledger that wait or run, entry by entry. Settled jobs are not kept.

    Each entry's hash and its place in the chain are checked, and the signatures on the rules.
    Whether a job's own RESERVE kept to the rules is checked when its order is asked for.
    """

    def __init__(self, dataset: str) -> None:
        self.dataset = dataset
        self.seq = 0
        self.head = GENESIS
        self.releases = Releases()
        self._rules = Rules()
        self._live: dict[str, _Live] = {}

    def add(self, document: Body) -> None:
        """Take in the next entry. Raises VerificationFailed."""
        seq = self.seq + 1
        with _naming(seq):
            if (document["dataset"], document["seq"], document["previous"]) != (
                self.dataset,
                seq,
                self.head,
            ):
                raise VerificationFailed("it does not follow the entry before it")
            recorded = digest(document)
            self._take(document, recorded)
        self.seq, self.head = seq, recorded

    def _take(self, document: Body, recorded: str) -> None:
        job = document["job"]
        match document["kind"]:
            case EntryKind.RESERVE:
                if job in self._live:
                    raise VerificationFailed("its job is reserved already")
                # The rest is read when it is asked for: most jobs of a ledger have ended.
                unreleased = None
                try:
                    self.releases.check(document["body"])
                except UNREADABLE as error:
                    unreleased = str(error)
                self._live[job] = _Live(self.seq + 1, document, self._rules, unreleased)
            case EntryKind.COMMIT | EntryKind.VOID:
                if (live := self._live.pop(job, None)) is None:
                    raise VerificationFailed("it resolves a reservation that is not live")
                if document["kind"] == EntryKind.COMMIT:
                    with suppress(*UNREADABLE):  # nothing was released by it then
                        self.releases.add(job, live.document["body"], document["body"])
            case _:
                entry = read_entry(document, self.seq + 1)
                check_fields(entry)
                # Live jobs keep the rules under which they were reserved: these are left as they
                # are.
                rules = self._rules.copy()
                if not rules.follow(entry):
                    raise VerificationFailed("it does not show who signed it")
                rules.acts.written(entry, recorded)
                self._rules = rules

    def order(self, job: str, ledger: Callable[[str], "Orders"]) -> Order:
        """Return the order of a job that is reserved and not ended.

        `ledger` returns the orders of another dataset, whose public jobs may have released what
        this one reads. Raises VerificationFailed if no entry reserves it, if an entry has ended it,
        or if its RESERVE breaks a rule that was in force before it.
        """
        self.require_live(job)
        live = self._live[job]
        with _naming(live.seq):
            entry = read_entry(live.document, live.seq)
            check_fields(entry)
            if not live.rules.follow(entry):
                raise VerificationFailed("it does not show who signed it")
            live.rules.check_reserve(entry, check_price(entry.body))
            check_charged(entry.body)
            check_named(entry.body)
            if live.unreleased is not None:
                raise VerificationFailed(live.unreleased)
            order = order_of(entry, live.rules, self._rules.policy)
            return replace(order, corpora=(*order.corpora, *self._corpora_beside(entry, ledger)))

    def require_live(self, job: str) -> None:
        """Raise VerificationFailed if no entry reserves a job, or one has ended it."""
        if job not in self._live:
            raise VerificationFailed(
                f"no entry of {self.dataset!r:.80} reserves {job}, or one has ended it"
            )

    def _corpora_beside(
        self, entry: Entry, ledger: Callable[[str], "Orders"]
    ) -> list[tuple[str, str]]:
        """Return the corpora that jobs were made of whose artifacts a RESERVE's job reads beside.

        Raises VerificationFailed if another dataset's ledger does not show what is read of it.
        """
        corpora = []
        for field, source in entry.body["source"].get("sources", {}).items():
            if "dataset" not in source:
                corpora += [(field, name) for name in self.releases.of[source["job"]].corpora]
        for elsewhere in read_elsewhere(entry):
            released = ledger(elsewhere.dataset).releases.of
            elsewhere.check(released)
            corpora += [(elsewhere.field, name) for name in released[elsewhere.read["job"]].corpora]
        return corpora


@contextmanager
def _naming(seq: int) -> Iterator[None]:
    """Let what is wrong with an entry say its number."""
    try:
        yield
    except VerificationFailed as error:
        raise error if error.seq is not None else VerificationFailed(str(error), seq) from None
    except UNREADABLE as error:
        raise VerificationFailed(f"it can't be read: {error}", seq) from None


# --- the price of a job -------------------------------------------------------------------------


def check_price(body: Body) -> Demand:
    """Check that the event is the mechanism's for these parameters. Returns what it asks."""
    try:
        event, asked = recomputed(body)
        stated = asked == read_demand(asked.dp, body) and event == body["event"]
    except UNREADABLE as error:
        raise VerificationFailed(f"its price can't be recomputed: {error}") from None
    if not stated:
        raise VerificationFailed("its event is not the price of its parameters")
    return asked


def recomputed(body: Body) -> tuple[dict[str, Any], Demand]:
    """Return the event, as JSON, and the whole demand of a RESERVE's job, from its parameters and
    terms.

    Raises InvalidRequest, KeyError, TypeError or ValueError if it can't be computed.
    """
    _, asked, event = _priced(body["mechanism"], body["parameters"], body["terms"])
    return event, asked


def price_of(mechanism_id: str, parameters: Body, terms: Body) -> Price:
    """Return the price of a job. Raises as `recomputed` does."""
    return _priced(mechanism_id, parameters, terms)[0]


def _priced(
    mechanism_id: str, parameters: Body, terms: Body
) -> tuple[Price, Demand, dict[str, Any]]:
    shown = {name: value for name, value in parameters.items() if not is_hidden(value)}
    return _of_shape(mechanism_id, shown, terms)


@by_value
def _of_shape(
    mechanism_id: str, parameters: Body, stated: Body
) -> tuple[Price, Demand, dict[str, Any]]:
    """Return a job's price by parameters and terms, what it asks, and its event as JSON."""
    mechanism, terms = mechanisms.get(mechanism_id), Terms.from_json(stated)
    price = mechanism.price(mechanism.parse(parameters, terms), terms)
    asked = demand(price)
    return price, asked, to_json(asked.dp)
