"""Balances as plain integers, moved in place: books of frozen values cost a copy of every filter an entry.

A tally is made from books, takes reservations and their ends where nothing but sums moves, and gives books
back. It says no to whatever it can't judge; the books then say what is wrong, or do what is rare.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from accountant.core.ledger.admission import FilterAccount
from accountant.core.ledger.books import Books
from accountant.core.ledger.reservations import Reservation
from accountant.core.privacy.events import releases
from accountant.core.privacy.filters import Amount, Costs, Kind
from accountant.core.privacy.secret_batches import has_secret_batches

#: Main and delta on one filter; None: the filter can't price it.
Pair = tuple[int, int] | None


def pairs(costs: Costs) -> tuple[Pair, ...]:
    """The costs of all four filters as integers, in the order of an account's filters."""
    found = (costs[kind] for kind in Kind)
    return tuple(None if cost is None else (cost.main, cost.delta) for cost in found)


@dataclass(frozen=True, slots=True)
class Known:
    """What a reservation of a shape that was judged before moves. `closes`: filters that can't price it."""

    held: Reservation
    costs: tuple[Pair, ...]
    closes: tuple[Kind, ...]
    #: It releases something; its price counts on secret batches.
    spends: bool
    coins: bool

    @classmethod
    def of(cls, held: Reservation) -> "Known | None":
        """None for a reservation that moves more than the sums of a `dp` account."""
        asked = held.others
        if held.whole or asked.ex_post or asked.secret is not None or held.secret_cost:
            return None
        if set(held.costs) != set(Kind):
            return None
        closes = tuple(kind for kind in Kind if held.costs[kind] is None)
        spends = bool(releases(held.event))
        return cls(held, pairs(held.costs), closes, spends, has_secret_batches(asked.dp))


@dataclass(frozen=True, slots=True)
class Charged:
    """What a COMMIT of a shape that was judged before leaves charged."""

    costs: tuple[Pair, ...]
    failed: bool


def countable(books: Books) -> bool:
    """Whether reservations on these books move nothing but the sums of a `dp` account."""
    amounts = books.ex_post.reserved, 0 if books.ex_post.hidden else books.ex_post.spent
    return books.account is not None and books.secret is None and not books.overdrawn and min(amounts) >= 0


@dataclass(slots=True)
class Row:
    """One filter: its limit, what is spent and reserved, and the live steps that it could not price."""

    limit: int
    limit_delta: int
    spent: int
    spent_delta: int
    reserved: int
    reserved_delta: int
    closed: int

    @classmethod
    def of(cls, each: FilterAccount) -> "Row":
        limit, spent, held = each.limit, each.spent, each.reserved
        return cls(limit.main, limit.delta, spent.main, spent.delta, held.main, held.delta, each.closed)

    def admits(self, cost: Pair) -> bool:
        """True if the filter would still hold with `cost` added."""
        return (
            cost is not None
            and not self.closed
            and self.spent + self.reserved + cost[0] <= self.limit
            and self.spent_delta + self.reserved_delta + cost[1] <= self.limit_delta
        )


class Tally:
    """The sums of countable books (`countable`)."""

    def __init__(self, books: Books) -> None:
        assert books.account is not None
        self._books = books
        self._rows = [Row.of(each) for each in books.account.filters]
        self._jobs = self._coin_jobs = self._failures = 0

    def books(self) -> Books:
        """The books as they are now."""
        account, history = self._books.account, self._books.history
        assert account is not None
        moved = tuple(
            replace(
                old,
                spent=Amount(row.spent, row.spent_delta),
                reserved=Amount(row.reserved, row.reserved_delta),
                closed=row.closed,
            )
            for old, row in zip(account.filters, self._rows, strict=True)
        )
        history = replace(
            history,
            jobs=history.jobs + self._jobs,
            coin_jobs=history.coin_jobs + self._coin_jobs,
            failures=history.failures + self._failures,
        )
        return replace(self._books, account=replace(account, filters=moved), history=history)

    def reserve(self, costs: Sequence[Pair], spends: bool, coins: bool) -> bool:
        """Set costs aside if a filter admits them (or nothing is spent); else False, and nothing moves."""
        rows = self._rows
        if spends and not any(map(Row.admits, rows, costs)):
            return False
        self._jobs += spends
        self._coin_jobs += coins
        for row, cost in zip(rows, costs, strict=True):
            if cost is None:
                row.closed += 1
            else:
                row.reserved += cost[0]
                row.reserved_delta += cost[1]
        return True

    def commit(self, held: Sequence[Pair], charged: Sequence[Pair], failed: bool) -> bool:
        """Move what was set aside to spent, as much as is `charged`; False, and nothing moves, if below 0."""
        if not self._has(held):
            return False
        self._failures += failed
        for row, cost, part in zip(self._rows, held, charged, strict=True):
            if cost is not None and part is not None:
                row.reserved -= cost[0]
                row.reserved_delta -= cost[1]
                row.spent += part[0]
                row.spent_delta += part[1]
        return True

    def void(self, held: Sequence[Pair], spends: bool, coins: bool) -> bool:
        """Give back what was set aside; False, and nothing moves, if a balance would be below zero."""
        if not self._has(held):
            return False
        self._jobs -= spends
        self._coin_jobs -= coins
        for row, cost in zip(self._rows, held, strict=True):
            if cost is None:
                row.closed -= 1
            else:
                row.reserved -= cost[0]
                row.reserved_delta -= cost[1]
        return True

    def _has(self, held: Sequence[Pair]) -> bool:
        """Whether so much is set aside, and nothing is below zero before or after it is taken away."""
        for row, cost in zip(self._rows, held, strict=True):
            if row.spent < 0 or row.spent_delta < 0:
                return False
            if cost is None:
                if row.closed < 1:
                    return False
            elif row.reserved < cost[0] or row.reserved_delta < cost[1]:
                return False
        return True
