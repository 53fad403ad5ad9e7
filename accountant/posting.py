"""Appending to the ledger: lock the account's row, apply the entry, write it, move the balances.

Only `ledger.py` calls this, inside a transaction. The entry is applied by `core.books`, the same code
with which an auditor replays an export, so the cached balances can't say anything else.
"""

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, func, insert, select, update

from accountant import tables
from accountant.core.admission import Account, FilterAccount
from accountant.core.books import Books, Reservation, read_reservation
from accountant.core.chain import Entry, EntryKind, canonical, digest
from accountant.core.currencies import (
    Accounts,
    ExPostAccount,
    History,
    SecretAccount,
    Settlement,
    secret_json,
)
from accountant.core.errors import NotFound
from accountant.core.filters import Amount, Filter, Kind
from accountant.core.secrets import SecretKind, SecretTerms
from accountant.core.verification import read_document


class LockedAccount:
    """A dataset's account, its row held until the transaction ends."""

    def __init__(self, connection: Connection, dataset_id: UUID) -> None:
        self.connection = connection
        self.dataset_id = dataset_id
        query = (
            select(tables.accounts, tables.datasets.c.name)
            .join(tables.datasets, tables.datasets.c.id == tables.accounts.c.dataset_id)
            .where(tables.accounts.c.dataset_id == dataset_id)
            .with_for_update(of=tables.accounts)
        )
        row = connection.execute(query).one_or_none()
        if row is None:
            raise NotFound("dataset", str(dataset_id))
        self.dataset: str = row.name
        self.seq: int = row.chain_seq
        self.head: str = row.chain_head
        self.books = read_books(row)

    @property
    def accounts(self) -> Accounts:
        return self.books.accounts

    def append(self, kind: EntryKind, actor: str, job_id: UUID | None, body: Mapping[str, Any]) -> Entry:
        """Write the next entry and move the balances with it. Raises where the entry can't stand."""
        job = None if job_id is None else str(job_id)
        # The time is the database's, taken while the row is held: it never runs backwards.
        now = self.connection.execute(select(func.clock_timestamp())).scalar_one()
        entry = Entry(self.dataset, self.seq + 1, kind, now, actor, job, body, self.head)
        after = self.books.apply(kind, job, body, self._held(kind, job_id))
        document = entry.document()
        recorded = digest(document)
        self.connection.execute(
            insert(tables.entries).values(
                dataset_id=self.dataset_id,
                seq=entry.seq,
                kind=str(kind),
                at=now,
                actor=actor,
                job_id=job_id,
                document=canonical(document).decode(),
                previous=self.head,
                hash=recorded,
            )
        )
        self.books = after
        self.seq, self.head = entry.seq, recorded
        self.connection.execute(
            update(tables.accounts)
            .where(tables.accounts.c.dataset_id == self.dataset_id)
            .values(chain_seq=self.seq, chain_head=self.head, **_columns(self.books))
        )
        return entry

    def _held(self, kind: EntryKind, job_id: UUID | None) -> Reservation | None:
        """What an entry resolves. That it is live still, a unique index on the entries checks."""
        if kind not in (EntryKind.COMMIT, EntryKind.VOID) or job_id is None:
            return None
        return read_reservation(self.reservation(job_id))

    def reservation(self, job_id: UUID) -> dict[str, Any]:
        """The body of the job's RESERVE entry."""
        query = select(tables.entries.c.document).where(
            tables.entries.c.job_id == job_id, tables.entries.c.kind == str(EntryKind.RESERVE)
        )
        text = self.connection.execute(query).scalar_one_or_none()
        if text is None:
            raise NotFound("reservation", str(job_id))
        body: dict[str, Any] = read_document(text)["body"]
        return body


# --- rows ---------------------------------------------------------------------------------------

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
}


def read_books(row: Row[Any]) -> Books:
    """The books in an `accounts` row: balances and history, without reservations and closing jobs."""
    ex_post = ExPostAccount(
        row.ex_post_limit, row.ex_post_spent, row.ex_post_reserved, Settlement(row.ex_post_settlement)
    )
    values = row._mapping
    history = History(**{name: values[column] for name, column in _HISTORY.items()})
    return Books(
        _read_account(row),
        ex_post=ex_post,
        secret=_read_secret(row),
        history=history,
        overdrawn=row.overdrawn,
    )


def _read_account(row: Row[Any]) -> Account | None:
    """The `dp` account; None before the first allowance."""
    if row.epsilon is None:
        return None
    values = row._mapping
    filters = []
    for kind in Kind:
        order = values[f"{kind}_order"]
        each = Filter(kind, Fraction(values[f"{kind}_share"]), None if order is None else Fraction(order))
        amounts = {part: Amount(values[f"{kind}_{part}"]) for part in ("limit", "spent", "reserved")}
        if kind is Kind.BASIC:
            each = replace(each, step_delta=row.basic_step_delta)
            amounts = {
                part: replace(amount, delta=values[f"basic_delta_{part}"]) for part, amount in amounts.items()
            }
        filters.append(FilterAccount(each, **amounts, closed=values[f"{kind}_closed"]))
    return Account(row.epsilon, row.delta, tuple(filters))


def _read_secret(row: Row[Any]) -> SecretAccount | None:
    """The secret account; its limit follows from its terms and stands in the row for the CHECK alone."""
    if row.secret is None:
        return None
    stored = row.secret
    return SecretAccount(
        SecretTerms.from_json(stored["terms"]),
        SecretKind(stored["kind"]),
        stored["neighbours"],
        None if stored["order"] is None else Fraction(stored["order"]),
        row.secret_spent,
        row.secret_reserved,
        row.secret_jobs,
    )


def _columns(books: Books) -> dict[str, Any]:
    """The inverse of `read_books`."""
    values: dict[str, Any] = {column: getattr(books.history, name) for name, column in _HISTORY.items()}
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
    for each in account.filters:
        kind = each.filter.kind
        values[f"{kind}_share"] = str(each.filter.share)
        values[f"{kind}_order"] = None if each.filter.order is None else str(each.filter.order)
        values[f"{kind}_closed"] = each.closed
        for part in ("limit", "spent", "reserved"):
            values[f"{kind}_{part}"] = getattr(each, part).main
            if kind is Kind.BASIC:
                values[f"basic_delta_{part}"] = getattr(each, part).delta
        if kind is Kind.BASIC:
            values["basic_step_delta"] = each.filter.step_delta
    return values
