"""Fair use: what one person or project may reserve of a shared ε now, and when more is released.

    shared ε ── equal parts, one a month ──▶ released ── by weights ──▶ shares of this month
                                                 └── what earlier months left ──▶ common to all

Amounts are what caps count, in 10^-9 ε. A month is a calendar month in UTC, and a job belongs to
that of its RESERVE entry. This is a planning limit in front of the filters (decision 0082).
"""

import calendar
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fractions import Fraction
from uuid import UUID

from accountant.core.ledger.policy import Policy
from accountant.core.privacy.units import EPSILON_UNITS, round_allowance, to_decimal


def month_of(at: datetime) -> int:
    """Return the number of a moment's month: 12 for each year, and one for each month."""
    day = at.astimezone(UTC)
    return 12 * day.year + day.month - 1


def first_day(month: int) -> str:
    """Return the first day of a month in words: "1 December 2026"."""
    return f"1 {calendar.month_name[month % 12 + 1]} {month // 12}"


@dataclass(frozen=True)
class Sharing:
    """The release that a policy states, and the weight of each holder of a share."""

    total: int
    start: int
    months: int
    weights: Mapping[str, int]

    @classmethod
    def of(cls, policy: Policy) -> "Sharing | None":
        """Return what a policy that was checked shares out, or None."""
        if policy.shared_epsilon is None:
            return None
        year, month = map(int, str(policy.release_start).split("-"))
        total = round_allowance(policy.shared_epsilon, EPSILON_UNITS, "shared_epsilon")
        return cls(total, 12 * year + month - 1, policy.release_months or 1, policy.weights)

    @property
    def end(self) -> int:
        """The first month by whose beginning everything is common."""
        return self.start + self.months

    def released(self, month: int) -> int:
        """Return what is released in all once a month has begun, rounded down."""
        begun = min(max(month - self.start + 1, 0), self.months)
        return self.total * begun // self.months

    def share(self, holder: str, month: int) -> int:
        """Return a holder's share of what a month releases, rounded down; 0 without a weight."""
        new = self.released(month) - self.released(month - 1)
        return new * self.weights.get(holder, 0) // (sum(self.weights.values()) or 1)


@dataclass(frozen=True)
class Shared:
    """What each holder used of a shared ε: from its first month to the last one, and this month."""

    sharing: Sharing
    month: int
    earlier: Mapping[str, int]
    now: Mapping[str, int]

    def used(self, holder: str) -> int:
        """Return what a holder used since the first month."""
        return self.earlier.get(holder, 0) + self.now.get(holder, 0)

    @property
    def left(self) -> int:
        """What is left of the whole, released or not."""
        return self.sharing.total - sum(self.earlier.values()) - sum(self.now.values())

    def room(self, holder: str) -> int:
        """Return what a holder may reserve now: the rest of the own share, and what is common.

        Common is what earlier months released and nobody used. Who used more than the own share
        took it from there.
        """
        sharing, month = self.sharing, self.month
        shares = {name: sharing.share(name, month) for name in (*sharing.weights, *self.now)}
        beyond = sum(max(used - shares[name], 0) for name, used in self.now.items())
        common = sharing.released(month) - sum(self.earlier.values()) - sum(shares.values())
        own = max(sharing.share(holder, month) - self.now.get(holder, 0), 0)
        return max(own + common - beyond, 0)

    def fits_from(self, holder: str, asked: int) -> int | None:
        """Return the first month in which so much fits if nobody uses more meanwhile, or None."""
        earlier = {name: self.used(name) for name in (*self.earlier, *self.now)}
        first = max(self.month, self.sharing.start - 1) + 1
        for month in range(first, max(self.sharing.end, first) + 1):
            if asked <= Shared(self.sharing, month, earlier, {}).room(holder):
                return month
        return None

    def after(self, holder: str, amount: int) -> "Shared":
        """Return the state once a holder used so much more this month."""
        return replace(self, now={**self.now, holder: self.now.get(holder, 0) + amount})

    def sentence(self, until: int) -> str:
        """Return what is released now, and when the rest comes."""
        released = to_decimal(self.sharing.released(self.month), EPSILON_UNITS)
        total = to_decimal(self.sharing.total, EPSILON_UNITS)
        return f"ε {released} of {total} is released now; the rest waits until {first_day(until)}"

    def dominant_share(self, holder: str, asked: int) -> tuple[bool, Fraction]:
        """Return what orders requests: the use per weight once `asked` is reserved as well.

        Holders without a weight come after those that have one.
        """
        weights = self.sharing.weights
        weight = weights.get(holder, 0) if weights else 1
        return weight == 0, Fraction(self.used(holder) + asked, weight or 1)


@dataclass(frozen=True)
class Request:
    """A request that waits for a release: its job, whose share it takes, and what it asks."""

    key: UUID
    holder: str
    asked: int


def next_of(waiting: Iterable[Request], shared: Shared) -> Request | None:
    """Return the request to decide on next: of those that fit, the smallest dominant share.

    Luo et al., OSDI 2021. `waiting` is in the order of arrival, which decides between equal shares.
    A request that fits no later release either is due as well, as it waits for nothing. Returns
    None if all have to wait.
    """
    due = [
        each
        for each in waiting
        if each.asked <= shared.room(each.holder)
        or shared.fits_from(each.holder, each.asked) is None
    ]
    return min(due, key=lambda each: shared.dominant_share(each.holder, each.asked), default=None)
