"""REVERSAL: a charge corrected by two people after its job was settled.

    quoted RESERVE + quoted charge (COMMIT, VOID or an earlier REVERSAL) ── charge_of ──▶ current
      charge
    current charge + the true event ── corrected ──▶ the body ── reverse ──▶ the books

A REVERSAL may raise a charge and lowers none: what is charged was released or may have been, and a
job under which nothing was read is void and charges nothing. Its body quotes both entries whole, so
that anyone who replays the ledger needs only their hashes to check it. A raise beyond the allowance
is recorded all the same, because it is true: the account is then overdrawn and admits nothing that
costs anything.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from accountant.core.errors import UNREADABLE, VerificationFailed, invalid
from accountant.core.ledger.accounts import Accounts, read_demand
from accountant.core.ledger.admission import Account
from accountant.core.ledger.books import Books
from accountant.core.ledger.commitments import is_hidden, opened
from accountant.core.ledger.entry_bodies import costs_json
from accountant.core.ledger.hash_chain import EntryKind, digest
from accountant.core.ledger.reservations import (
    Reservation,
    move,
    read_costs,
    read_reservation,
    settled,
)
from accountant.core.names import is_alike
from accountant.core.privacy.events import FREE, Event, from_json, releases, stated_delta, to_json
from accountant.core.privacy.filters import ZERO, Amount, Costs, Kind
from accountant.core.privacy.units import read_amount

Document = Mapping[str, Any]


@dataclass(frozen=True)
class Charge:
    """The charge of a settled job. `counts`: it is not void. `read`: a private read is recorded."""

    costs: Costs
    ex_post: int = 0
    secret: int = 0
    counts: bool = True
    read: bool = True
    #: Replayed from a public export that shows no realized cost; `ex_post` then says nothing.
    hidden: bool = False


def charge_of(reserve: Document, current: Document) -> Charge:
    """Return the charge after `current`, the entry that settled or last corrected the job."""
    held, body = read_reservation(reserve["body"]), opened(current)["body"]
    match EntryKind(current["kind"]):
        case EntryKind.VOID:
            return Charge({}, counts=False, read=bool(body["read"]))
        case EntryKind.COMMIT:
            costs = settled(held.costs, read_costs(body["costs"])) if held.costs else {}
            unknown = "ex_post" in body and is_hidden(body["ex_post"]["cap"])
            stated = "ex_post" in body and not unknown
            ex_post = (
                read_amount(body["ex_post"]["cap"], "ex_post.cap")
                if stated
                else held.others.ex_post
            )
            secret = (
                read_amount(body["secret"]["cost"], "secret.cost")
                if "secret" in body
                else held.secret_cost
            )
            spends = (
                bool(releases(held.event))
                or held.others.ex_post > 0
                or held.others.secret is not None
            )
            return Charge(costs, ex_post, secret, spends, bool(body["read"]), unknown)
        case EntryKind.REVERSAL:
            return _stated(body)
        case kind:
            raise VerificationFailed(f"it corrects an entry of kind {kind}")


def charge_of_loss(loss: Document) -> Charge:
    """Return what a LOSS charges (losses.py), which is no job's."""
    body = opened(loss)["body"]
    costs = read_costs(body["costs"])
    return Charge(costs, int(body["ex_post"]), int(body["secret"]), counts=False)


def _stated(body: Document) -> Charge:
    unknown = is_hidden(body["ex_post"])
    ex_post = 0 if unknown else read_amount(body["ex_post"], "ex_post")
    costs, secret = read_costs(body["costs"]), read_amount(body["secret"], "secret")
    if type(body["counts"]) is not bool or type(body["read"]) is not bool:
        raise VerificationFailed("its counts and read are not true or false")
    return Charge(costs, ex_post, secret, bool(body["counts"]), bool(body["read"]), unknown)


# --- what the charge becomes --------------------------------------------------------------------


def corrected(
    accounts: Accounts, reserve: Document, before: Charge, event: Event, cap: int
) -> Charge:
    """Return the charge of a job that really released `event` with an ex-post cap of `cap`
    (10^-9).

    No part of the charge falls: filters, cap and secret each take the larger value. Raises
    InvalidRequest if nothing would change, or if an account has no price for it.
    """
    wanted = _wanted(accounts, reserve, event, cap)
    after = Charge(
        _with_deltas(_larger(before.costs, wanted.costs), event),
        max(before.ex_post, wanted.ex_post),
        max(before.secret, wanted.secret),
        before.counts or wanted.counts,
    )
    if _nothing_changes(before, after):
        why = "it changes nothing: a correction lowers no charge"
        raise invalid("event", why, "an event that costs more")
    # Whoever raises a charge says that something was released: that can't be taken back either.
    return replace(after, read=before.read or _raises(before, after))


def _wanted(accounts: Accounts, reserve: Document, event: Event, cap: int) -> Charge:
    """Return the cost of `event` with `cap` and the job's own secret release."""
    if accounts.dp is None and releases(event):
        raise invalid("event", "the dataset has no (epsilon, delta) allowance")
    costs = {} if accounts.dp is None else accounts.dp.costs(event)
    release, secret = read_demand(event, reserve["body"]).secret, 0
    if accounts.secret is not None and (release is not None or releases(event)):
        cost = accounts.secret.cost(event, release)
        if cost is None:
            raise invalid(
                "event", "the secret account has no price for it", "an event that it can price"
            )
        secret = cost
    counts = bool(releases(event)) or cap > 0 or release is not None
    return Charge(costs, cap, secret, counts)


def _larger(one: Costs, other: Costs) -> Costs:
    """Return the larger cost by filter; None, which closes a filter, is the largest."""
    larger: dict[Any, Amount | None] = {}
    for kind in {**one, **other}:
        first, second = one.get(kind, ZERO), other.get(kind, ZERO)
        if first is None or second is None:
            larger[kind] = None
        else:
            larger[kind] = Amount(max(first.main, second.main), max(first.delta, second.delta))
    return larger


def _with_deltas(costs: Costs, event: Event) -> Costs:
    """Return costs that close each filter on which nothing counts stated deltas."""
    closed = stated_delta(event) and costs.get(Kind.BASIC, ZERO) is None
    return dict.fromkeys(Kind) if closed else costs


def _zeros(costs: Costs) -> dict[Any, Amount | None]:
    return {kind: cost for kind, cost in costs.items() if cost != ZERO}


def _nothing_changes(before: Charge, after: Charge) -> bool:
    same = (before.ex_post, before.secret, before.counts) == (
        after.ex_post,
        after.secret,
        after.counts,
    )
    return same and _zeros(before.costs) == _zeros(after.costs)


def _raises(before: Charge, after: Charge) -> bool:
    higher = _zeros(_larger(before.costs, after.costs)) != _zeros(before.costs)
    return higher or after.ex_post > before.ex_post or after.secret > before.secret


@dataclass(frozen=True)
class TwoPeople:
    """The proposer and the confirmer of a correction, who differ, with their reasons."""

    proposer: str
    reason: str
    confirmer: str
    confirmation: str

    def to_json(self) -> dict[str, str]:
        return {
            "proposed_by": self.proposer,
            "reason": self.reason,
            "confirmed_by": self.confirmer,
            "confirmation": self.confirmation,
        }


def reversal_body(
    accounts: Accounts,
    reserve: Document,
    current: Document,
    event: Event,
    cap: int,
    people: TwoPeople,
) -> dict[str, Any]:
    """Return the body of a REVERSAL that charges a settled job what `event` and `cap` cost."""
    after = corrected(accounts, reserve, charge_of(reserve, current), event, cap)
    return {
        **people.to_json(),
        "event": to_json(event),
        "cap": str(cap),
        "costs": costs_json(after.costs),
        "ex_post": str(after.ex_post),
        "secret": str(after.secret),
        "counts": after.counts,
        "read": after.read,
        "reserve": dict(reserve),
        "corrects": dict(current),
    }


# --- replay -------------------------------------------------------------------------------------


def apply(
    books: Books, kind: EntryKind, job: str | None, body: Document, held: Reservation | None = None
) -> Books:
    """Return the books after one more entry of any kind; `held` as for `Books.apply`.

    Raises VerificationFailed if the entry is not valid here.
    """
    if kind is not EntryKind.REVERSAL:
        return books.apply(kind, job, body, held)
    if job is None:
        raise VerificationFailed("it names no reservation")
    return reverse(books, job, body).covered()


def reverse(books: Books, job: str | None, body: Document) -> Books:
    """Return the books after a REVERSAL. Raises VerificationFailed if its body is not valid here.

    Whoever holds the chain also checks that the quoted entries are in it, and that the second is
    the newest of its job (`quoted`).
    """
    try:
        reserve, current = body["reserve"], body["corrects"]
        if EntryKind(reserve["kind"]) is not EntryKind.RESERVE or {
            reserve["job"],
            current["job"],
        } != {job}:
            raise VerificationFailed("it quotes entries of another job")
        if is_alike(body["proposed_by"], body["confirmed_by"]):
            raise VerificationFailed("one person proposed and confirmed it")
        before = charge_of(reserve, current)
        event = from_json(body["event"])
        if before.hidden or is_hidden(body["ex_post"]):
            return _partly(books, body, before, event)
        after = corrected(books.accounts, reserve, before, event, read_amount(body["cap"], "cap"))
        if after != replace(_stated(body), costs=after.costs) or body["costs"] != costs_json(
            after.costs
        ):
            raise VerificationFailed("its charge is not that of its event")
        return _moved(books, reserve, before, after)
    except UNREADABLE as error:
        if isinstance(error, VerificationFailed):
            raise
        raise VerificationFailed(f"{type(error).__name__}: {error}") from None


def _partly(books: Books, body: Document, before: Charge, event: Event) -> Books:
    """Return the books after a REVERSAL with hidden ex-post figures, all else checked."""
    reserve, stated = body["reserve"], _stated(body)
    wanted = _wanted(books.accounts, reserve, event, 0)
    costs = _with_deltas(_larger(before.costs, wanted.costs), event)
    secret = max(before.secret, wanted.secret)
    if body["costs"] != costs_json(costs) or stated.secret != secret or before.read > stated.read:
        raise VerificationFailed("its charge is not that of its event")
    known = replace(before, ex_post=0), replace(stated, costs=costs, ex_post=0)
    moved = _moved(books, reserve, *known)
    return replace(moved, ex_post=replace(moved.ex_post, hidden=True))


def quoted(body: Document) -> tuple[tuple[int, str], tuple[int, str]]:
    """(number, hash) of the RESERVE and of the corrected entry, as the body quotes them."""
    reserve, current = body["reserve"], body["corrects"]
    return (reserve["seq"], digest(reserve)), (current["seq"], digest(current))


def _moved(books: Books, reserve: Document, before: Charge, after: Charge) -> Books:
    account = books.account
    if account is not None:
        account = _charged(_charged(account, before.costs, -1), after.costs, 1)
    ex_post = replace(books.ex_post, spent=books.ex_post.spent - before.ex_post + after.ex_post)
    secret = books.secret
    if secret is not None:
        jobs = secret.jobs + _on_secret(reserve, after) - _on_secret(reserve, before)
        secret = replace(secret, spent=secret.spent - before.secret + after.secret, jobs=jobs)
    held, more = reserve["body"], after.counts - before.counts
    in_ex_post = [
        side.counts and ("ex_post" in held or side.ex_post > 0) for side in (before, after)
    ]
    release = read_demand(FREE, held).secret
    history = books.history._replace(
        jobs=books.history.jobs + more,
        ex_post_jobs=books.history.ex_post_jobs + in_ex_post[1] - in_ex_post[0],
        secret_jobs=books.history.secret_jobs + (more if release is not None else 0),
    )
    moved = replace(books, account=account, ex_post=ex_post, secret=secret, history=history)
    return replace(moved, overdrawn=moved.accounts.passed)


def _on_secret(reserve: Document, charge: Charge) -> int:
    """1 if the secret account counts the job, else 0."""
    return int(charge.counts and ("secret" in reserve["body"] or charge.secret > 0))


def _charged(account: Account, costs: Costs, sign: int) -> Account:
    """Return the account with costs added (1) or taken off (-1); None closes or opens a filter."""
    whole: dict[Any, Amount | None] = {filter_.filter.kind: ZERO for filter_ in account.filters}
    whole |= costs
    closed = tuple(
        filter_._replace(
            closed=filter_.closed + (sign if whole[filter_.filter.kind] is None else 0)
        )
        for filter_ in account.filters
    )
    return move(replace(account, filters=closed), whole, spent=sign, keep_closed=True)
