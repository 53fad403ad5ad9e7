"""A dataset's policy: it is replaced, or proposed to a second steward where it is weaker than
before.
"""

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Engine, Row, func, select, update

from accountant import tables
from accountant.core.errors import Conflict, InvalidRequest
from accountant.core.ledger.hash_chain import EntryKind
from accountant.core.ledger.policy import Policy, weakened
from accountant.identities import activity_log
from accountant.identities.actor import Actor
from accountant.transactions import owners, signed_acts
from accountant.transactions.asking import (
    NOTHING,
    ByTwo,
    Ground,
    Request,
    Result,
    ask,
    decisions,
    held_dataset,
)
from accountant.transactions.ledger_log import writing
from accountant.transactions.locked_account import LockedAccount
from accountant.transactions.registrations import state_policy
from accountant.transactions.rows import policy_of
from accountant.transactions.signed_acts import Signature

#: Why a policy is proposed and not written; the record of who wanted it says the rest.
_WEAKER = "it admits more or asks for less than the policy in force: {}"


def set_policy(
    engine: Engine,
    name: str,
    policy: Policy,
    actor: Actor,
    check: Callable[[dict[str, Any]], None] = lambda _: None,
    signature: Signature | None = None,
) -> UUID | None:
    """Replace a dataset's policy, or propose it where two people are asked for and it is weaker.

    Returns the id of the decision that another steward answers, if it is proposed. A policy is
    weaker where it admits more or asks for less in any field (core.ledger.policy.weakened): else
    one steward could weaken it, act, and set it back. All that the policy changes waits for the
    other steward. Jobs decided before keep their decision.

    `check` gets the policy that would be replaced, while nobody else can change it, and may raise.
    """
    with writing(engine) as connection:
        return change(LockedAccount(connection, name), policy, actor, check, signature)


def change(
    account: LockedAccount,
    policy: Policy,
    actor: Actor,
    check: Callable[[dict[str, Any]], None] = lambda _: None,
    signature: Signature | None = None,
) -> UUID | None:
    """Replace or propose a policy like `set_policy`, under the account's lock that is held."""
    actor.require("steward")
    policy.check()
    connection, dataset = account.connection, held_dataset(account.connection, account.dataset_id)
    stands, wanted = policy_of(dataset), policy.model_dump(mode="json")
    replaced = stands.model_dump(mode="json")
    owners.require(actor, stands, "steward")
    owners.check_people(connection, policy)
    check(replaced)
    weaker = weakened(stands, policy) if stands.two_people else ()
    reason = _WEAKER.format(", ".join(weaker)) if weaker else ""
    body = {"policy": wanted, **({"reason": reason} if weaker else {})}
    signed = signed_acts.by_one(
        connection, dataset.id, stands, EntryKind.POLICY, None, actor.name, body, signature
    )
    signatures = {} if signed is None else {"signature": signed}
    if not weaker:
        _replace(account, dataset, policy, actor, signatures)
        return None
    asked = {"policy": wanted, "replaces": replaced, **signatures}
    same = select(decisions.c.id).where(
        decisions.c.dataset_id == dataset.id,
        decisions.c.state == "open",
        decisions.c.expires_at > func.clock_timestamp(),
        decisions.c.asked_by == actor.id,
        decisions.c.asked == asked,
    )
    earlier: UUID | None = connection.execute(same.limit(1)).scalar()
    if earlier is not None:
        return earlier  # sent twice, it is one proposal
    return ask(connection, uuid4(), dataset.id, actor, Request("policy", asked, reason))


class PolicyChange(ByTwo):
    """A policy that is weaker than the one in force."""

    name, title = "policy", "a weaker policy"
    effect = "The policy stands at once. Requests that wait are decided under it."

    def write(self, ground: Ground) -> Result:
        """Replace the policy; its POLICY entry names both people."""
        asked, row = ground.row.asked, ground.row
        if ground.policy != Policy.model_validate(asked["replaces"]):
            raise Conflict("the policy was changed after it was proposed: propose it anew")
        policy = Policy.model_validate(asked["policy"])
        try:
            owners.check_people(ground.connection, policy, before=row.created_at)
        except InvalidRequest as error:
            raise Conflict(
                f"whom it names is not who was meant: {error}; propose it anew"
            ) from None
        people = ground.people()
        body = {"policy": policy.model_dump(mode="json"), **people.to_json()}
        signed = ground.signed(EntryKind.POLICY, body)
        del signed["policy"]  # state_policy writes it
        both = {"proposal": str(row.id), "proposed_by": people.proposer}
        _replace(ground.account, ground.dataset, policy, ground.actor, signed, **both)
        return NOTHING


def _replace(
    account: LockedAccount,
    dataset: Row[Any],
    policy: Policy,
    actor: Actor,
    signed: Mapping[str, Any],
    **detail: Any,
) -> None:
    """Write a policy into a dataset's row, which is held, and into its ledger.

    Args:
        signed: What the entry says of who made it, beside its actor.
    """
    connection = account.connection
    detail["policy"] = policy.model_dump(mode="json")
    replaced = update(tables.datasets).where(tables.datasets.c.id == dataset.id)
    connection.execute(replaced.values(policy=detail["policy"]))
    activity_log.record(connection, actor, "policy set", "dataset", dataset.name, **detail)
    state_policy(account, policy, actor.name, signed)
