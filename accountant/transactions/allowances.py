"""A dataset's allowance: it is set, or proposed where a raise needs two people."""

from uuid import UUID, uuid4

from sqlalchemy import Connection, Engine, func, select

from accountant import tables
from accountant.core.errors import Conflict, VerificationFailed
from accountant.core.ledger.allowances import Allowance, allowance_body, raises
from accountant.core.ledger.hash_chain import EntryKind
from accountant.core.ledger.rules import raise_needs_two
from accountant.identities.actor import Actor
from accountant.tables.lookup import one
from accountant.transactions import owners, signed_acts
from accountant.transactions.asking import ByTwo, Ground, Request, Result, ask
from accountant.transactions.idempotency import Once, claim
from accountant.transactions.ledger_log import writing
from accountant.transactions.locked_account import LockedAccount
from accountant.transactions.rows import policy_of

datasets, decisions, entries = tables.datasets, tables.decisions, tables.entries


def allow(
    engine: Engine,
    dataset: str,
    allowance: Allowance,
    actor: Actor,
    once: Once | None = None,
    signature: signed_acts.Signature | None = None,
) -> UUID | None:
    """Set an allowance, or propose it where it is a raise that needs two people.

    Returns the id of the decision that another steward answers, if it is proposed. Raises
    InvalidRequest for impossible figures, NotPermitted for anybody but a steward, and Conflict
    where less would be allowed than is spent and reserved; SignatureNeeded where the policy asks
    for one.
    """
    actor.require("steward")
    made = uuid4()
    with writing(engine) as connection:
        locked = LockedAccount(connection, dataset)
        found = one(
            connection, select(datasets).where(datasets.c.name == dataset), "dataset", dataset
        )
        policy = policy_of(found)
        owners.require(actor, policy, "steward")
        earlier = claim(connection, once, made)
        if earlier != made:  # what it made then: a decision, or an entry
            return connection.execute(
                select(decisions.c.id).where(decisions.c.id == earlier)
            ).scalar()
        body = allowance_body(allowance, locked.books, found.neighbours, found.unit_column)
        named = connection, found.id, policy, EntryKind.ALLOW, None, actor.name
        signed = signed_acts.by_one(*named, body, signature)
        signatures = {} if signed is None else {"signature": signed}
        if raise_needs_two(policy, locked.books) and raises(locked.books, body):
            basis, asked = _newest(connection, found.id), {"body": body, **signatures}
            request = Request("allowance", asked, allowance.reason, basis=basis)
            return ask(connection, made, found.id, actor, request)
        try:
            locked.append(EntryKind.ALLOW, actor.name, None, {**body, **signatures})
        except VerificationFailed as error:
            raise Conflict(f"it can't stand: {error}; nothing was changed") from None
        return None


class Raise(ByTwo):
    """A larger allowance."""

    name, title = "allowance", "a larger allowance"

    def write(self, ground: Ground) -> Result:
        """Write the ALLOW."""
        ground.require_entry(_newest(ground.connection, ground.dataset.id))
        body = {**ground.row.asked["body"], **ground.people().to_json()}
        signed = ground.signed(EntryKind.ALLOW, body)
        return Result(
            entry=ground.account.append(EntryKind.ALLOW, ground.actor.name, None, signed).seq
        )


def _newest(connection: Connection, dataset_id: UUID) -> int:
    """Return the number of the dataset's newest ALLOW, or 0 if there is none."""
    query = select(func.max(entries.c.seq)).where(
        entries.c.dataset_id == dataset_id, entries.c.kind == "ALLOW"
    )
    return connection.execute(query).scalar_one() or 0
