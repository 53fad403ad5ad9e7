"""The effect of entries on a dataset's accounts: ALLOW, RESERVE, COMMIT and VOID (REVERSAL:
reversals.py).

Pure. The ledger applies an entry here before it writes it, and `exchequer verify` replays an export
through the same steps, so a balance can only be what the entries say.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

from accountant.core.errors import UNREADABLE, VerificationFailed
from accountant.core.ledger.accounts import (
    NO_EX_POST,
    Accounts,
    Demand,
    ExPostAccount,
    SecretAccount,
    Settlement,
    allow_ex_post,
    allow_secret,
    beyond_dp,
    entry_part,
    read_demand,
    secret_json,
)
from accountant.core.ledger.admission import Account, FilterAccount, alone, limits_of
from accountant.core.ledger.canonical_json import value_text
from accountant.core.ledger.caps import counted
from accountant.core.ledger.commitments import is_hidden
from accountant.core.ledger.entry_bodies import costs_json, filter_json, whole_json
from accountant.core.ledger.hash_chain import JOBLESS, EntryKind
from accountant.core.ledger.losses import charged
from accountant.core.ledger.reservations import (
    SHAPES,
    UNFINISHED,
    Reservation,
    move,
    read_event,
    read_reservation,
    settle,
    settled,
    stated,
)
from accountant.core.ledger.statements import NO_HISTORY, History
from accountant.core.names import is_alike
from accountant.core.privacy.events import Event, releases, spends
from accountant.core.privacy.filters import (
    MOST_ORDER,
    Costs,
    Filter,
    Kind,
    granted,
    price_on,
)
from accountant.core.privacy.secret_batches import has_secret_batches
from accountant.core.privacy.secrets import SecretKind
from accountant.core.privacy.units import read_fraction

# --- bodies -------------------------------------------------------------------------------------


# --- replay -------------------------------------------------------------------------------------


@lru_cache(maxsize=SHAPES)
def _costs_on(filters: tuple[Filter, ...], event: Event) -> tuple[Costs, dict[str, Any]]:
    costs = price_on(filters, event)
    return costs, costs_json(costs)


class failing:  # noqa: N801
    """A block in which any error about an entry turns into VerificationFailed."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, UNREADABLE) and not isinstance(error, VerificationFailed):
            raise VerificationFailed(f"{type(error).__name__}: {error}") from None


@dataclass(frozen=True)
class Books:
    """A dataset's accounts after a prefix of the ledger. Callers keep the reservations."""

    account: Account | None = None
    ex_post: ExPostAccount = NO_EX_POST
    secret: SecretAccount | None = None
    history: History = NO_HISTORY
    #: A correction or an overdraft took an account beyond its allowance, and it is not covered yet.
    overdrawn: bool = False

    @property
    def accounts(self) -> Accounts:
        return Accounts(self.account, self.ex_post, self.secret, self.overdrawn)

    def apply(
        self,
        kind: EntryKind,
        job: str | None,
        body: Mapping[str, Any],
        held: Reservation | None = None,
    ) -> "Books":
        """Return the books after one more entry. `held` is the live reservation that a COMMIT or
        VOID resolves.

        Raises VerificationFailed if the entry is not valid here. For a REVERSAL use
        `reversals.apply`.
        """
        with failing():
            return self._applied(kind, job, body, held)

    def covered(self) -> "Books":
        """Return the same books, no longer overdrawn once every account is within its allowance.

        An allowance or a correction covers it. What a job gives back opens no account by itself.
        """
        return replace(self, overdrawn=self.overdrawn and self.accounts.passed)

    def _applied(
        self, kind: EntryKind, job: str | None, body: Mapping[str, Any], held: Reservation | None
    ) -> "Books":
        if kind is EntryKind.ALLOW:
            return self._allow(body)
        if kind is EntryKind.LOSS:
            return self._lose(body)
        if kind in JOBLESS:
            return self  # a rule: it moves nothing
        if job is None:
            raise VerificationFailed("it names no reservation")
        if kind is EntryKind.REVERSAL:
            raise VerificationFailed("a correction is applied by reversals.apply")
        if kind is EntryKind.RESERVE:
            return self._reserve(body, read_reservation(body) if held is None else held)
        if held is None:
            raise VerificationFailed("it resolves a reservation that is not live")
        return self._void(held, body) if kind is EntryKind.VOID else self._commit(held, body)

    def _allow(self, body: Mapping[str, Any]) -> "Books":
        account, history, before = self.account, self.history, self.accounts
        if is_alike(body.get("proposed_by"), body.get("confirmed_by")):
            raise VerificationFailed("one person proposed and confirmed it")
        if "epsilon" in body:
            account = allow(self.account, body)
        ex_post = (
            allow_ex_post(self.ex_post, body["ex_post"]) if "ex_post" in body else self.ex_post
        )
        secret = self.secret
        if "secret" in body:
            if (ex_post.spent and not ex_post.hidden) or ex_post.reserved:
                raise VerificationFailed("it states secrets where ex-post jobs ran")
            secret = allow_secret(self.secret, body["secret"], history.jobs + history.losses)
            if value_text(body["secret"]) != value_text(secret_json(secret)):
                raise VerificationFailed(
                    "its secret part is not in the form in which it is written"
                )
        books = replace(self, account=account, ex_post=ex_post, secret=secret)
        return replace(books, history=_after_allow(history, before, books.accounts)).covered()

    def _lose(self, body: Mapping[str, Any]) -> "Books":
        """Return the books with all that is left charged: lost entries may have spent it."""
        after, history = charged(self.accounts, body), self.history
        return replace(
            self,
            account=after.dp,
            ex_post=after.ex_post,
            secret=after.secret,
            history=history._replace(losses=history.losses + 1),
        )

    def _reserve(self, body: Mapping[str, Any], held: Reservation) -> "Books":
        event, asked, accounts = held.event, held.others, self.accounts
        if entry_part(accounts, asked) != {k: body[k] for k in ("ex_post", "secret") if k in body}:
            raise VerificationFailed("its ex-post or secret part is not that of its event")
        if held.overdraft and accounts.fits(asked):
            raise VerificationFailed("it fits what is left, so it is no overdraft")
        refused = None if held.overdraft else beyond_dp(accounts, asked, True)
        if refused is not None:
            raise VerificationFailed(f"it does not fit: {refused.why}")
        account, spending = self.account, spends(event)
        if account is None and spending:
            raise VerificationFailed("it reserves where there is no allowance")
        if account is not None:
            _check_charge(account, event, body)
            account = move(
                account.with_whole(True) if held.whole else account, held.costs, reserved=1
            )
            holds = held.overdraft or any(filter_.holds for filter_ in account.filters)
            if spending and not holds:
                raise VerificationFailed("no filter holds after it")
        elif held.costs:
            raise VerificationFailed("it states costs where there is no allowance")
        books = self._counted(account, held, 1)
        return books._overdrawn(alone(event, body["terms"]["delta"])) if held.overdraft else books

    def _overdrawn(self, epsilon: float) -> "Books":
        """Return the books with one overdraft more, of this epsilon by itself."""
        history = self.history._replace(
            overdrafts=self.history.overdrafts + 1,
            overdraft_epsilon=self.history.overdraft_epsilon + counted(epsilon),
        )
        return replace(self, history=history, overdrawn=True)

    def _counted(self, account: Account | None, held: Reservation, sign: int) -> "Books":
        """Return the books with `account` and their counts after a RESERVE (1) or its VOID (-1)."""
        history, asked, secret = self.history, held.others, self.secret
        spending = spends(asked.dp)
        if secret is not None and (asked.secret is not None or spending):
            reserved = secret.reserved + sign * held.secret_cost
            secret = replace(secret, reserved=reserved, jobs=secret.jobs + sign)
        history = history._replace(
            jobs=history.jobs + sign * (spending or asked.ex_post > 0 or asked.secret is not None),
            ex_post_jobs=history.ex_post_jobs + sign * (asked.ex_post > 0),
            secret_jobs=history.secret_jobs + sign * (asked.secret is not None),
            coin_jobs=history.coin_jobs + sign * has_secret_batches(asked.dp),
        )
        ex_post = self.ex_post
        if asked.ex_post:
            ex_post = replace(ex_post, reserved=ex_post.reserved + sign * asked.ex_post)
        return Books(account, ex_post, secret, history, self.overdrawn)

    def _void(self, held: Reservation, body: Mapping[str, Any]) -> "Books":
        if body["read"] or held.overdraft:
            raise VerificationFailed("it voids a reservation under which data was read")
        account = self.account
        if account is not None and held.costs:
            moved = move(account, held.costs, reserved=-1)
            if held.whole and moved.untouched:
                moved = moved.with_whole(False)
            elif held.whole:  # jobs after it count on all of delta: the other filters stay closed
                moved = move(account, held.costs, reserved=-1, keep_closed=True)
            account = moved
        return self._counted(account, held, -1)

    def _commit(self, held: Reservation, body: Mapping[str, Any]) -> "Books":
        account = self.account
        event = read_event(body["event"])
        if event != held.event and releases(event) - releases(held.event):
            raise VerificationFailed("it realizes more than was reserved")
        whole = body.get("outcome") in UNFINISHED or held.overdraft
        if whole and releases(event) != releases(held.event):
            raise VerificationFailed("a job that did not succeed is charged less than was reserved")
        if account is not None and held.costs:
            costs = settled(held.costs, _check_costs(account, held, event, body))
            account = settle(account, held.costs, costs)
        elif body["costs"] != ({} if account is None else _costs_of(account, event)[1]):
            raise VerificationFailed("its costs are not those of its event")
        return self._settled_others(account, held, event, body)

    def _settled_others(
        self, account: Account | None, held: Reservation, event: Event, body: Mapping[str, Any]
    ) -> "Books":
        """Return the books with `account`, after a COMMIT in the others.

        Caps stand unless the dataset settles what was realized.
        """
        ex_post, charged = self.ex_post, held.others.ex_post
        on_secret = self.secret is not None and (
            held.others.secret is not None or spends(held.event)
        )
        if ("ex_post" in body, "secret" in body) != (charged > 0, on_secret):
            raise VerificationFailed(
                "it does not settle the ex-post and secret parts of its reservation"
            )
        if "ex_post" in body and is_hidden(body["ex_post"]["cap"]):
            body = {**body, "ex_post": {"cap": str(charged)}}
            ex_post = replace(
                ex_post, hidden=ex_post.hidden or ex_post.settlement is Settlement.REALIZED
            )
        realized = read_demand(event, body)
        if held.others.ex_post and ex_post.settlement is Settlement.REALIZED and "ex_post" in body:
            charged = realized.ex_post
        elif realized.ex_post != charged:
            raise VerificationFailed("an ex-post cap is charged as it was reserved")
        if charged or held.others.ex_post:
            ex_post = replace(
                ex_post,
                reserved=ex_post.reserved - held.others.ex_post,
                spent=ex_post.spent + charged,
            )
        secret, cost = self.secret, held.secret_cost
        if secret is not None and on_secret:
            cost = settled_secret(secret, held.others, held.secret_cost, realized, body)
            secret = replace(
                secret, reserved=secret.reserved - held.secret_cost, spent=secret.spent + cost
            )
        failed = body.get("outcome") in UNFINISHED
        if failed and (charged < held.others.ex_post or cost < held.secret_cost):
            raise VerificationFailed("a job that did not succeed is charged less than was reserved")
        history = self.history._replace(failures=self.history.failures + failed)
        return Books(account, ex_post, secret, history, self.overdrawn)


def _after_allow(history: History, before: Accounts, after: Accounts) -> History:
    """Return the history after an ALLOW: the largest allowances, and raises after a release."""
    dp = after.dp
    epsilon, delta = (0, 0) if dp is None else (dp.epsilon, dp.delta)
    bound = 0.0 if after.secret is None else after.secret.terms.bound
    raised = (
        epsilon > history.largest_epsilon
        or delta > history.largest_delta
        or bound > history.largest_bound
        or after.ex_post.limit > before.ex_post.limit
    )
    return history._replace(
        largest_epsilon=max(epsilon, history.largest_epsilon),
        largest_delta=max(delta, history.largest_delta),
        largest_bound=max(bound, history.largest_bound),
        raises_after_release=history.raises_after_release + (raised and history.jobs > 0),
    )


def settled_secret(
    account: SecretAccount, held: Demand, reserved: int, realized: Demand, body: Mapping[str, Any]
) -> int:
    """Return the amount that a COMMIT leaves charged on the secret account.

    Divergences of rounds add up, so a `many` account returns what was not used. A blow-up bound
    does not add up: the one exact job pays its whole reservation.
    """
    if realized.secret is not None and (
        held.secret is None
        or replace(realized.secret, rounds=1) != replace(held.secret, rounds=1)
        or realized.secret.rounds > held.secret.rounds
    ):
        raise VerificationFailed("it realizes a secret release that was not reserved")
    one = account.kind is SecretKind.ONE
    cost = reserved if one else account.cost(realized.dp, realized.secret) or 0
    if body["secret"]["cost"] != str(cost) or cost > reserved:
        raise VerificationFailed("its secret cost is not that of its event")
    return cost


def closing_jobs(books: Books) -> dict[Kind, str]:
    """Return the first job that each closed filter could not price, by filter."""
    first: dict[Kind, str] = {}
    for kind, job in books.history.closers:
        first.setdefault(kind, job)
    return first


@dataclass(frozen=True)
class FilterState:
    """A filter's state as a page shows it: open, closed by a job that it can't price, or passed.

    A passed filter is beyond its limit because another filter admitted the job; a refund may bring
    it back.
    """

    filter: Filter
    state: Literal["open", "closed", "passed"]
    closed_by: str | None


def filter_states(books: Books) -> tuple[FilterState, ...]:
    """Return the state of every filter; empty if there is no `dp` account."""
    closers = closing_jobs(books)
    states = []
    for filter_ in () if books.account is None else books.account.filters:
        state: Literal["open", "closed", "passed"] = "open" if filter_.holds else "passed"
        if filter_.closed:
            state = "closed"
        states.append(FilterState(filter_.filter, state, closers.get(filter_.filter.kind)))
    return tuple(states)


def _check_charge(account: Account, event: Event, body: Mapping[str, Any]) -> None:
    """Check that a RESERVE states its event's costs, and takes the account whole if it must."""
    known, written = _costs_on(tuple(filter_.filter for filter_ in account.filters), event)
    costs, whole = account.charge(event, known)
    if "overdraft" in body:
        costs, whole = account.overdraft_costs(event), False
    if body.get("whole") != (whole_json(account)["whole"] if whole else None):
        raise VerificationFailed("it doesn't take the account for whole jobs as its event does")
    if body["costs"] != (written if costs == known else costs_json(costs)):
        raise VerificationFailed("its costs are not those of its event")


def _costs_of(account: Account, event: Event) -> tuple[Costs, dict[str, Any]]:
    """Return the costs of an event on an account, and as an entry states them."""
    return _costs_on(tuple(filter_.filter for filter_ in account.filters), event)


def _check_costs(
    account: Account, held: Reservation, event: Event, body: Mapping[str, Any]
) -> Costs:
    """Return the recorded costs, once they equal the costs recomputed from the event."""
    costs, written = _costs_of(account, event)
    if None in held.costs.values():
        written = costs_json(stated(held.costs, costs))
    if body["costs"] != written:
        raise VerificationFailed("its costs are not those of its event")
    return costs


def allow(account: Account | None, body: Mapping[str, Any]) -> Account:
    """Return the account after an ALLOW: new limits, old balances. The first sets filters up."""
    epsilon, delta = granted(body["epsilon"], body["delta"])
    filters = tuple(_read_filter(value) for value in body["filters"])
    if tuple(filter_.kind for filter_ in filters) != tuple(Kind):
        raise VerificationFailed("its filters are not the four kinds in order")
    if sum(filter_.share for filter_ in filters) > 1:
        raise VerificationFailed("its shares of delta exceed 1")
    if account is not None and tuple(filter_.filter for filter_ in account.filters) != filters:
        raise VerificationFailed("it changes orders or shares")
    limits = limits_of(filters, epsilon, delta, account is not None and account.whole)
    written = [filter_json(*each) for each in zip(filters, limits, strict=True)]
    if value_text(body["filters"]) != value_text(written):
        raise VerificationFailed("its limits are not those of its allowance")
    if account is None:
        return Account(epsilon, delta, tuple(map(FilterAccount, filters, limits)))
    moved = tuple(
        old._replace(limit=limit) for old, limit in zip(account.filters, limits, strict=True)
    )
    changed = Account(epsilon, delta, moved)
    if not changed.holds:
        raise VerificationFailed("no filter holds under the new allowance")
    return changed


_RENYI = (Kind.RENYI, Kind.RENYI_LOW)


def _read_filter(value: Mapping[str, Any]) -> Filter:
    """Return a filter of an ALLOW. Its limits follow from fields that its kind must allow."""
    kind, share = Kind(value["kind"]), read_fraction(value["share"], "share")
    order = None if value["order"] is None else read_fraction(value["order"], "order")
    step = int(value.get("step_delta", 0))
    if share < 0:
        raise VerificationFailed("a share of delta is negative")
    if (order is not None) != (kind in _RENYI) or (
        order is not None and not 1 < order <= MOST_ORDER
    ):
        raise VerificationFailed(f"the {kind} filter has the order {order}")
    if step < 0:
        raise VerificationFailed("a step of delta is negative")
    whole = int(value.get("whole_epsilon", 0))
    if (whole > 0) != (kind is Kind.BASIC) or whole < 0:
        raise VerificationFailed(f"the {kind} filter has the epsilon {whole} of whole jobs")
    return Filter(kind, share, order, step, whole)
