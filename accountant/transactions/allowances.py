"""A dataset's allowance: it is set, or proposed where a raise needs two people."""

from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Connection, Engine, Row, select

from accountant import tables
from accountant.core.errors import Conflict, VerificationFailed
from accountant.core.ledger.allowances import Allowance, allowance_body, raises
from accountant.core.ledger.hash_chain import EntryKind
from accountant.identities.actor import Actor
from accountant.tables.lookup import one
from accountant.transactions import owners, signed_acts
from accountant.transactions.idempotency import Once, claim
from accountant.transactions.ledger_log import writing
from accountant.transactions.locked_account import LockedAccount
from accountant.transactions.proposals import newest_allowance, propose
from accountant.transactions.rows import policy_of


def allow(
    engine: Engine,
    dataset: str,
    allowance: Allowance,
    actor: Actor,
    once: Once | None = None,
    signature: signed_acts.Signature | None = None,
) -> UUID | None:
    """Set an allowance, or propose it where it is a raise that needs two people: then the proposal's id.

    Raises InvalidRequest for impossible figures, NotPermitted for anybody but a steward, and Conflict where
    less would be allowed than is spent and reserved; SignatureNeeded where the policy asks for one.
    """
    actor.require("steward")
    made = uuid4()
    with writing(engine) as connection:
        locked = LockedAccount(connection, _dataset(connection, dataset).id)
        found = _dataset(connection, dataset)  # again: its policy may have changed while the row was awaited
        owners.require(actor, policy_of(found), "steward")
        earlier = claim(connection, once, made)
        if earlier != made:  # what it made then: a proposal, or an entry
            return connection.execute(
                select(tables.proposals.c.id).where(tables.proposals.c.id == earlier)
            ).scalar()
        body = allowance_body(allowance, locked.books, found.neighbours, found.unit_column)
        named = connection, found.id, policy_of(found), EntryKind.ALLOW, None, actor.name
        signed = signed_acts.by_one(*named, body, signature)
        made_by = {} if signed is None else {"signature": signed}
        if policy_of(found).two_people and raises(locked.books, body):
            basis, asked = newest_allowance(connection, found.id), {"body": body, **made_by}
            reason = allowance.reason
            return propose(connection, made, "allowance", found.id, asked, reason, actor, basis=basis)
        try:
            locked.append(EntryKind.ALLOW, actor.name, None, {**body, **made_by})
        except VerificationFailed as error:
            raise Conflict(f"it can't stand: {error}; nothing was changed") from None
        return None


def _dataset(connection: Connection, name: str) -> Row[Any]:
    return one(connection, select(tables.datasets).where(tables.datasets.c.name == name), "dataset", name)
