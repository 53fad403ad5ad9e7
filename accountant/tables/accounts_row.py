"""Conversion between an account's books and its row in the accounts table."""

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

from sqlalchemy import Row

from accountant.core.ledger.accounts import ExPostAccount, SecretAccount, Settlement, secret_json
from accountant.core.ledger.admission import Account, FilterAccount
from accountant.core.ledger.books import Books
from accountant.core.ledger.statements import History
from accountant.core.privacy.filters import Amount, Filter, Kind
from accountant.core.privacy.secrets import SecretKind, SecretTerms

#: Fields of History and the columns that hold them.
_HISTORY = {
    "largest_epsilon": "largest_epsilon",
    "largest_delta": "largest_delta",
    "largest_bound": "largest_bound",
    "raises_after_release": "raises_after_release",
    "jobs": "job_count",
    "ex_post_jobs": "ex_post_job_count",
    "secret_jobs": "secret_job_count",
    "failures": "failure_count",
    "coin_jobs": "coin_job_count",
    "losses": "loss_count",
    "overdrafts": "overdraft_count",
    "overdraft_epsilon": "overdraft_epsilon",
}


@lru_cache(maxsize=1024)
def _filter(
    kind: Kind, share: str, order: str | None, step_delta: int, whole_epsilon: int
) -> Filter:
    """Return one object for equal filters: prices are kept by them."""
    fixed = None if order is None else Fraction(order)
    return Filter(kind, Fraction(share), fixed, step_delta, whole_epsilon)


def read_books(row: Row[Any] | Mapping[str, Any]) -> Books:
    """Return the books in an `accounts` row, without reservations and closing jobs."""
    values = row if isinstance(row, Mapping) else dict(row._mapping)
    limit, spent, reserved = (values[f"ex_post_{part}"] for part in ("limit", "spent", "reserved"))
    ex_post = ExPostAccount(limit, spent, reserved, Settlement(values["ex_post_settlement"]))
    history = History(**{name: values[column] for name, column in _HISTORY.items()})
    return Books(
        _read_account(values),
        ex_post=ex_post,
        secret=_read_secret(values),
        history=history,
        overdrawn=values["overdrawn"],
    )


def _read_account(values: Mapping[str, Any]) -> Account | None:
    """Return the `dp` account; None before the first allowance."""
    if values["epsilon"] is None:
        return None
    filters = []
    for kind in Kind:
        basic = kind is Kind.BASIC
        own = (values["basic_step_delta"], values["basic_whole_epsilon"]) if basic else (0, 0)
        share, order = values[f"{kind}_share"], values[f"{kind}_order"]
        each = _filter(kind, share, order, *own)
        amounts = {
            part: Amount(values[f"{kind}_{part}"]) for part in ("limit", "spent", "reserved")
        }
        if basic:
            amounts = {
                part: replace(amount, delta=values[f"basic_delta_{part}"])
                for part, amount in amounts.items()
            }
        filters.append(FilterAccount(each, **amounts, closed=values[f"{kind}_closed"]))
    return Account(values["epsilon"], values["delta"], tuple(filters))


def _read_secret(values: Mapping[str, Any]) -> SecretAccount | None:
    """Return the secret account. Its limit follows from its terms; the CHECK needs the row's."""
    stored = values["secret"]
    if stored is None:
        return None
    return SecretAccount(
        SecretTerms.from_json(stored["terms"]),
        SecretKind(stored["kind"]),
        stored["neighbours"],
        None if stored["order"] is None else Fraction(stored["order"]),
        values["secret_spent"],
        values["secret_reserved"],
        values["secret_jobs"],
    )


def book_columns(books: Books) -> dict[str, Any]:
    """Return the columns of the books' row: the inverse of `read_books`."""
    values: dict[str, Any] = {
        column: getattr(books.history, name) for name, column in _HISTORY.items()
    }
    for part in ("limit", "spent", "reserved"):
        values[f"ex_post_{part}"] = getattr(books.ex_post, part)
    values["overdrawn"] = books.overdrawn
    values["ex_post_settlement"] = str(books.ex_post.settlement)
    if books.secret is not None:
        values |= _secret_columns(books.secret)
    if books.account is not None:
        values |= _account_columns(books.account)
    return values


def _secret_columns(account: SecretAccount) -> dict[str, Any]:
    stored = secret_json(account)
    limit = int(stored.pop("limit"))
    return {
        "secret": stored,
        "secret_limit": limit,
        "secret_spent": account.spent,
        "secret_reserved": account.reserved,
        "secret_jobs": account.jobs,
    }


def _account_columns(account: Account) -> dict[str, Any]:
    values: dict[str, Any] = {"epsilon": account.epsilon, "delta": account.delta}
    for filter_ in account.filters:
        kind = filter_.filter.kind
        values[f"{kind}_share"] = str(filter_.filter.share)
        values[f"{kind}_order"] = (
            None if filter_.filter.order is None else str(filter_.filter.order)
        )
        values[f"{kind}_closed"] = filter_.closed
        for part in ("limit", "spent", "reserved"):
            values[f"{kind}_{part}"] = getattr(filter_, part).main
            if kind is Kind.BASIC:
                values[f"basic_delta_{part}"] = getattr(filter_, part).delta
        if kind is Kind.BASIC:
            values["basic_step_delta"] = filter_.filter.step_delta
            values["basic_whole_epsilon"] = filter_.filter.whole_epsilon
    return values
