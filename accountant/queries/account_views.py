"""Accounts as people read them: decimals, shares of what is allowed, and the state of every
filter.
"""

from accountant.core.ledger import accounts
from accountant.core.ledger.admission import FilterAccount
from accountant.core.ledger.books import Books, filter_states
from accountant.core.privacy.filters import SOURCES, ZERO
from accountant.core.privacy.secrets import SecretKind, bound_after
from accountant.core.privacy.units import DELTA_UNITS, EPSILON_UNITS, exact, to_decimal
from accountant.schema.datasets import Account, ExPostAccount, Filter, SecretAccount


def account_view(books: Books) -> Account | None:
    """Return the `dp` account in decimals, each filter with what it allows, and how much of the
    best is used.

    A filter that is closed names the job that closed it.
    """
    account = books.account
    if account is None:
        return None
    states = {filter_state.filter.kind: filter_state for filter_state in filter_states(books)}
    filters = [
        _filter_view(
            filter_, states[filter_.filter.kind].state, states[filter_.filter.kind].closed_by
        )
        for filter_ in account.filters
    ]
    if account.whole:
        filters[-1] = filters[-1].model_copy(update={"share": 1.0})
    open_ones = [filter_ for filter_ in filters if filter_.closed == 0]
    # One that is passed in its δ alone has ε to spare and admits nothing.
    open_ones = [filter_ for filter_ in open_ones if filter_.holds] or open_ones
    best = min(open_ones, key=lambda each: each.used_share, default=None)
    return Account(
        epsilon=to_decimal(account.epsilon, EPSILON_UNITS),
        delta=to_decimal(account.delta, DELTA_UNITS),
        largest_epsilon=to_decimal(books.history.largest_epsilon, EPSILON_UNITS),
        largest_delta=to_decimal(books.history.largest_delta, DELTA_UNITS),
        used_share=1.0 if best is None else best.used_share,
        best_filter=None if best is None else best.kind,
        filters=filters,
    )


def _filter_view(each: FilterAccount, state: str, closed_by: str | None) -> Filter:
    limit = each.limit.main
    return Filter(
        kind=str(each.filter.kind),
        source=SOURCES[each.filter.kind],
        order=None if each.filter.order is None else float(each.filter.order),
        share=float(each.filter.share),
        limit=to_decimal(limit, EPSILON_UNITS),
        spent=to_decimal(each.spent.main, EPSILON_UNITS),
        reserved=to_decimal(each.reserved.main, EPSILON_UNITS),
        left=to_decimal(each.left.main, EPSILON_UNITS),
        spent_share=each.spent.main / limit if limit else 1.0,
        reserved_share=each.reserved.main / limit if limit else 0.0,
        used_share=each.share_with(ZERO),
        closed=each.closed,
        holds=each.holds,
        state=state,
        closed_by=closed_by,
    )


def ex_post_view(account: accounts.ExPostAccount, overseer: bool) -> ExPostAccount:
    """Return the ex-post account; realized costs are for stewards and auditors alone."""
    hidden = account.settlement is accounts.Settlement.REALIZED and not overseer

    def shown(units: int) -> str | None:
        return None if hidden else to_decimal(units, EPSILON_UNITS)

    return ExPostAccount(
        limit=to_decimal(account.limit, EPSILON_UNITS),
        spent=shown(account.spent),
        reserved=shown(account.reserved),
        left=shown(account.left),
        settlement=str(account.settlement),
    )


def secret_view(account: accounts.SecretAccount | None) -> SecretAccount | None:
    """Return the statement about secrets and its use: amounts are nats, or r for one job."""
    if account is None:
        return None
    one = account.kind is SecretKind.ONE
    units = DELTA_UNITS if one else EPSILON_UNITS
    used = account.spent + account.reserved
    if account.order is not None:
        prior = exact(account.terms.prior, "prior")
        now = bound_after(prior, account.order, used / EPSILON_UNITS)
    else:
        now = used / DELTA_UNITS if account.jobs else account.terms.prior
    stated = {
        **account.terms.to_json(),
        "kind": str(account.kind),
        "order": None if account.order is None else float(account.order),
    }
    return SecretAccount(
        **stated,
        unit="r" if one else "nats",
        limit=to_decimal(account.limit, units),
        spent=to_decimal(account.spent, units),
        reserved=to_decimal(account.reserved, units),
        left="0" if one and account.jobs else to_decimal(max(account.limit - used, 0), units),
        bound_now=now,
        jobs=account.jobs,
    )
