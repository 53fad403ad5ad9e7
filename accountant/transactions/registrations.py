"""The rules of a dataset as entries of its ledger, REGISTER and POLICY, in the transaction of each
change.

    add_dataset, correct_dataset, a version found right ──▶ REGISTER      set_policy, confirm ──▶
      POLICY

The row of the dataset says the same, for whoever decides on jobs; `exchequer ledger check` compares
the two.
"""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, select

from accountant import tables
from accountant.core.errors import DataError
from accountant.core.ledger.hash_chain import EntryKind
from accountant.core.ledger.policy import Policy
from accountant.core.ledger.rules import policy_body, register_body, secrets_digest
from accountant.transactions import ledger_log
from accountant.transactions.locked_account import LockedAccount

datasets, versions = tables.datasets, tables.dataset_versions


def begin(
    connection: Connection, dataset_id: UUID, declared: Any, policy: Policy, actor: str
) -> None:
    """State the terms and policy of a dataset that was just declared and has an account.

    Data that never comes here is in use at once: nobody finds it right.
    """
    ledger_log.require_known(connection)
    locked = LockedAccount(connection, dataset_id)
    version = None if declared.uri is not None else 1
    locked.append(EntryKind.REGISTER, actor, None, register_body(declared) | {"version": version})
    state_policy(locked, policy, actor)


def lock(connection: Connection, name: str) -> LockedAccount:
    """Lock the account of a dataset that is declared anew: before its row, as for an allowance."""
    return LockedAccount(connection, name)


def declare_anew(locked: LockedAccount, declared: Any, actor: str) -> None:
    """State corrected terms: no data was found right under those before."""
    locked.append(EntryKind.REGISTER, actor, None, register_body(declared))


def found_right(connection: Connection, version_id: UUID, checked: Mapping[str, Any]) -> None:
    """State that a version was found right, in the name of the steward who added it.

    Raises DataError if the rows do not say what was `checked`, the body that they made before.
    """
    users = tables.users
    version = connection.execute(select(versions).where(versions.c.id == version_id)).one()
    name = connection.execute(
        select(users.c.name).where(users.c.id == version.created_by)
    ).scalar_one()
    locked = LockedAccount(connection, version.dataset_id)
    dataset = connection.execute(select(datasets).where(datasets.c.id == version.dataset_id)).one()
    body = register_body(dataset, version)
    if body != checked:
        raise DataError("it was declared anew while it was checked: correct it, or add it again")
    locked.append(EntryKind.REGISTER, name, None, body)


def secrets_of(
    engine: Engine, dataset: str, sha256: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the patterns and words of a dataset's secrets, which a REGISTER states by their hash.

    Raises DataError if its row says others.
    """
    with engine.connect() as connection:
        row = connection.execute(select(datasets).where(datasets.c.name == dataset)).one()
    if secrets_digest(row) != sha256:
        raise DataError("the dataset's secrets are not those that were registered")
    return tuple(row.secret_patterns), tuple(row.secret_terms)


def state_policy(
    locked: LockedAccount, policy: Policy, actor: str, people: Mapping[str, Any] | None = None
) -> int:
    """State the policy in force from here on; returns the entry's number.

    `people`: where it took two; and signatures, where the policy before asked for them.
    """
    return locked.append(EntryKind.POLICY, actor, None, policy_body(policy, people)).seq
