"""ALLOW entries: a dataset's allowance is set or changed."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Engine

from accountant.core.errors import (
    Conflict,
    NotPermitted,
    VerificationFailed,
)
from accountant.core.ledger.allowances import Allowance, allowance_body, raises
from accountant.core.ledger.hash_chain import EntryKind
from accountant.identities.actor import Actor
from accountant.transactions.locked_account import LockedAccount
from accountant.transactions.rows import (
    dataset_row,
    policy_of,
)


def allow(engine: Engine, dataset: str, allowance: Allowance, actor: Actor) -> int:
    """Set a dataset's allowance; returns the entry's number.

    Raises InvalidRequest for impossible figures, NotPermitted for anybody but a steward and for a raise
    that needs two people, and Conflict where less would be allowed than is spent and reserved.
    """
    actor.require("steward")
    with engine.begin() as connection:
        locked = LockedAccount(connection, dataset_row(connection, dataset).id)
        found = dataset_row(
            connection, dataset
        )  # again: its policy may have changed while the row was awaited
        body = allowance_body(allowance, locked.books, found.neighbours, found.unit_column)
        if policy_of(found).two_people and raises(locked.books, body):
            raise NotPermitted("raising the allowance needs two people: one proposes it, another confirms")
        return append_allowance(locked, body, actor)


def append_allowance(locked: LockedAccount, body: Mapping[str, Any], actor: Actor) -> int:
    """The entry of an allowance that one person may set, while its account is held; `proposals` asks too."""
    try:
        return locked.append(EntryKind.ALLOW, actor.name, None, body).seq
    except VerificationFailed:
        raise Conflict("more than that is already spent or reserved; nothing was changed") from None
