"""The rules of a dataset as entries of its ledger, REGISTER and POLICY, in the transaction of each change.

    add_dataset, correct_dataset, a version found right ──▶ REGISTER      set_policy, confirm ──▶ POLICY

The row of the dataset says the same, for whoever decides on jobs; `exchequer ledger check` compares the two.
Datasets from before these entries get theirs when the service starts with them (`state_missing`).
"""

import logging
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, select

from accountant import tables
from accountant.core.errors import LedgerBehind
from accountant.core.ledger.hash_chain import EntryKind
from accountant.core.ledger.policy import Policy
from accountant.core.ledger.rules import policy_body, register_body
from accountant.transactions import ledger_log
from accountant.transactions.ledger_log import writing
from accountant.transactions.locked_account import LockedAccount

logger = logging.getLogger(__name__)

#: Who states rules that nobody changed: the service, for a ledger from before they were entries.
SERVICE = "service"

entries, datasets, versions = tables.entries, tables.datasets, tables.dataset_versions


def begin(connection: Connection, dataset_id: UUID, declared: Any, policy: Policy, actor: str) -> None:
    """State the terms and the policy of a dataset that was just declared; its account's row exists."""
    ledger_log.require_known(connection)
    locked = LockedAccount(connection, dataset_id)
    locked.append(EntryKind.REGISTER, actor, None, register_body(declared))
    state_policy(locked, policy, actor)


def declare_anew(connection: Connection, dataset_id: UUID, declared: Any, actor: str) -> None:
    """State corrected terms: no data was found right under those before."""
    LockedAccount(connection, dataset_id).append(EntryKind.REGISTER, actor, None, register_body(declared))


def found_right(connection: Connection, version_id: UUID) -> None:
    """State that a version was found right, in the name of the steward who added it."""
    users = tables.users
    query = (
        select(versions.c.dataset_id, versions.c.number, versions.c.data, users.c.name)
        .join(users, users.c.id == versions.c.created_by)
        .where(versions.c.id == version_id)
    )
    version = connection.execute(query).one()
    locked = LockedAccount(connection, version.dataset_id)
    dataset = connection.execute(select(datasets).where(datasets.c.id == version.dataset_id)).one()
    locked.append(
        EntryKind.REGISTER, version.name, None, register_body(dataset, version.number, version.data)
    )


def state_policy(
    locked: LockedAccount, policy: Policy, actor: str, people: Mapping[str, Any] | None = None
) -> int:
    """State the policy in force from here on; returns the entry's number.

    `people`: where it took two; and signatures, where the policy before asked for them.
    """
    return locked.append(EntryKind.POLICY, actor, None, policy_body(policy, people)).seq


# --- ledgers from before ------------------------------------------------------------------------


def state_missing(engine: Engine) -> int:
    """State the rules of each dataset whose ledger lacks some; returns how many. Repeating does nothing."""
    found = [
        _kind_of(datasets.c.id, kind).correlate(datasets).exists()
        for kind in (EntryKind.REGISTER, EntryKind.POLICY)
    ]
    with engine.connect() as connection:
        lacking = connection.execute(select(datasets.c.id).where(~(found[0] & found[1]))).scalars().all()
    return sum(_state_unless_behind(engine, dataset_id) for dataset_id in lacking)


def _state_unless_behind(engine: Engine, dataset_id: UUID) -> bool:
    try:
        _state(engine, dataset_id)
    except LedgerBehind as error:
        logger.error("rules are not stated: %s", error)
        return False
    return True


def _kind_of(dataset_id: Any, kind: EntryKind) -> Any:
    """Entries of a rare kind; said as the partial index says it, or it can't be used."""
    return select(entries.c.seq).where(
        entries.c.dataset_id == dataset_id,
        entries.c.kind == str(kind),
        entries.c.kind.in_(tables.RARE_KINDS),
    )


def _state(engine: Engine, dataset_id: UUID) -> None:
    with writing(engine) as connection:
        locked = LockedAccount(connection, dataset_id)
        held = select(datasets).where(datasets.c.id == dataset_id).with_for_update()
        dataset = connection.execute(held).one()
        if connection.execute(_kind_of(dataset_id, EntryKind.REGISTER)).first() is None:
            ready = select(versions.c.number).where(
                versions.c.dataset_id == dataset_id, versions.c.state == "ready"
            )
            numbers = connection.execute(ready.order_by(versions.c.number)).scalars().all()
            for number in (None, *numbers):
                locked.append(EntryKind.REGISTER, SERVICE, None, register_body(dataset, number))
        if connection.execute(_kind_of(dataset_id, EntryKind.POLICY)).first() is None:
            state_policy(locked, Policy.model_validate(dataset.policy), SERVICE)
