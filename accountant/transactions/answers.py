"""Answers to decisions: the one place where a second person says yes or no."""

from collections.abc import Mapping
from uuid import UUID

from sqlalchemy import Engine

from accountant.core.errors import Conflict
from accountant.faults import reached
from accountant.identities.actor import Actor
from accountant.transactions.access import Access
from accountant.transactions.allowances import Raise
from accountant.transactions.approval import Approval, price_beforehand
from accountant.transactions.asking import NOTHING, Ground, Kind, Result, words
from accountant.transactions.corrections import Correction
from accountant.transactions.decision import tell_largest
from accountant.transactions.ledger_log import writing
from accountant.transactions.losses import Loss
from accountant.transactions.offers import Offer
from accountant.transactions.overdrafts import Overdraft
from accountant.transactions.policies import PolicyChange
from accountant.transactions.pushes import Push
from accountant.transactions.second_calculation import admitting
from accountant.transactions.signed_acts import Signature

#: Every kind of decision, by name. A new kind is a class, and a line here.
KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Approval(),
        Offer(),
        Raise(),
        Correction(),
        PolicyChange(),
        Access(),
        Loss(),
        Overdraft(),
        Push(),
    )
}


@admitting
def answer(
    engine: Engine,
    decision_id: UUID,
    actor: Actor,
    yes: bool,
    reason: str = "",
    signature: Signature | None = None,
) -> Result:
    """Answer an open decision; a yes makes it true in the same transaction.

    The same yes again returns what it made. Raises NotFound, NotPermitted, InvalidRequest without a
    reason, SignatureNeeded where the policy asks that the answer is signed, and Conflict if the
    decision is closed, expired or can't stand any more.
    """
    price_beforehand(engine, decision_id)
    result = NOTHING
    with writing(engine) as connection:
        ground = Ground.locked(connection, decision_id, actor, reason, signature)
        kind = KINDS[ground.row.kind]
        kind.require_seen(ground)
        state = "accepted"
        if yes:
            kind.require_answerer(ground)
        else:
            state = kind.state_after_no(ground)
        if kind.needs_reason:
            ground = ground.giving(words(reason))
        if yes and ground.was_accepted:
            return Result(ground.row.entry_seq, ground.row.made_job, ground.row.made_decision)
        ground.require_open()
        expired = ground.expire()
        if not expired:
            result = kind.apply(ground) if yes else NOTHING
            kind.close(ground, state, result)
    reached("answer.committed")
    if expired:  # that it expired is kept, so it is told after the transaction
        raise Conflict("nobody answered in time: it is expired")
    if result.untold is not None and result.job is not None:
        tell_largest(engine, result.job, result.untold)
    return result
