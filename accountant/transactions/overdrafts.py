"""A charge that is more than what is left and has happened already: two people declare it.

    declare ──▶ decision ── another steward says yes ──▶ RESERVE and COMMIT, whole, at once

What was released can't be taken back: the ledger says it, whatever is left. The dataset is closed
until an allowance covers it. A job that runs here is never declared: it is a charge, at the level
that its policy admits.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid5

from sqlalchemy import Engine, select

from accountant import tables
from accountant.core import mechanisms
from accountant.core.errors import Conflict, invalid
from accountant.core.ledger import charges, lineage
from accountant.core.ledger.accounts import entry_part
from accountant.core.ledger.admission import overdraft_delta
from accountant.core.ledger.canonical_json import canonical
from accountant.core.ledger.entry_bodies import reserve_body
from accountant.core.ledger.hash_chain import EntryKind
from accountant.core.ledger.policy import Policy
from accountant.core.mechanisms.charge import ID
from accountant.core.privacy.events import from_json
from accountant.identities.actor import Actor
from accountant.transactions import (
    cap_usage,
    job_requests,
    owners,
    second_calculation,
    settlement,
    signed_acts,
)
from accountant.transactions.asking import (
    ByTwo,
    Ground,
    Request,
    Result,
    ask,
    held_dataset,
    row_of,
    words,
)
from accountant.transactions.batches import check_unused, looked_up
from accountant.transactions.idempotency import Once, claim
from accountant.transactions.job_requests import JobRequest
from accountant.transactions.ledger_log import writing
from accountant.transactions.locked_account import LockedAccount
from accountant.transactions.rows import policy_of
from accountant.transactions.signed_acts import Signature


@second_calculation.admitting
def declare(
    engine: Engine,
    dataset: str,
    parameters: Mapping[str, Any],
    actor: Actor,
    reason: str,
    *,
    once: Once | None = None,
    signature: Signature | None = None,
) -> UUID:
    """Say that a charge has happened that does not fit; returns the decision's id.

    Another steward answers it. Raises InvalidRequest where it fits or can't be priced, Conflict
    where its price is not confirmed by a second calculation.
    """
    actor.require("steward")
    reason = words(reason)
    with writing(engine) as connection:
        locked = LockedAccount(connection, dataset)
        policy = policy_of(held_dataset(connection, locked.dataset_id))
        owners.require(actor, policy, "steward")
        # Whoever signs it signs this number too, so it is declared once: the same is the same.
        said = {"by": actor.name, "after": locked.head, "why": reason, "what": dict(parameters)}
        made = uuid5(locked.dataset_id, canonical(said).decode())
        earlier = claim(connection, once, made)
        known = select(tables.decisions.c.id).where(tables.decisions.c.id == made)
        if earlier != made or connection.execute(known).first():
            return earlier
        columns, body = _declared(locked, parameters, {"reason": reason}, None)
        about = connection, locked.dataset_id, policy, EntryKind.RESERVE, made, actor.name
        signed = signed_acts.by_one(*about, body, signature)
        asked = {"parameters": columns["parameters"]}
        asked |= {} if signed is None else {"signature": signed}
        return ask(
            connection, made, locked.dataset_id, actor, Request(Overdraft.name, asked, reason)
        )


class Overdraft(ByTwo):
    """A charge that has happened already, and is more than what is left."""

    name, title = "overdraft", "an overdraft"
    effect = (
        "It is charged at once, whole, in both names. The dataset is closed until a new allowance "
        "covers it, and every statement of it says so."
    )

    def write(self, ground: Ground) -> Result:
        """Reserve it and charge it whole. Its job has the id of the decision."""
        connection, locked, row = ground.connection, ground.account, ground.row
        people, asked = ground.people(), dict(ground.row.asked)
        overdraft = {"reason": people.reason}
        overdraft |= {"signature": asked["signature"]} if "signature" in asked else {}
        approval = {"by": people.confirmer, "reason": people.confirmation}
        columns, body = _declared(locked, asked["parameters"], overdraft, approval)
        about = connection, locked.dataset_id, ground.policy, EntryKind.RESERVE, row.id
        signed = signed_acts.by_one(*about, people.proposer, body, ground.signature)
        body["approval"] |= {} if signed is None else {"signature": signed}
        locked.post(EntryKind.RESERVE, people.proposer, row.id, body)
        level = charges.level(ID, body["parameters"])
        holders = cap_usage.holders_of(row.asked_by, None, level)
        locked.usage.reserve(holders, columns["epsilon_alone"], Policy())  # no cap holds it back
        job = columns | {
            "id": row.id,
            "dataset_id": locked.dataset_id,
            "analyst_id": row.asked_by,
            "purpose": people.reason,
            "request_sha256": "0" * 64,
            "state": "queued",
            "decided_by": ground.actor.id,
            "decision_reason": ground.reason,
            "attempt": 1,
        }
        moments = ("created_at", "decided_at", "queued_at", "started_at", "reading_began_at")
        locked.write([(tables.jobs, [job | dict.fromkeys(moments, locked.now)])])
        made = row_of(connection, tables.jobs, row.id)
        settlement.settle_charge(locked, made, from_json(body["event"]), people.confirmer, {})
        return Result(job=row.id)


def _declared(
    locked: LockedAccount,
    parameters: Mapping[str, Any],
    overdraft: Mapping[str, Any],
    approval: Mapping[str, Any] | None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the columns of its job, and the body of its RESERVE. Raises what is wrong with it."""
    facts, accounts = looked_up(locked, []).facts, locked.accounts
    if facts.version_id is None:
        raise Conflict("the dataset is not ready: its data has not been checked")
    if accounts.dp is None:
        raise Conflict("the dataset has no allowance, by which alone it can be priced")
    stated = mechanisms.get(ID).parse(parameters, facts.terms).stated
    terms = replace(facts.terms, delta=overdraft_delta(stated, facts.terms.delta))
    priced = job_requests.priced(JobRequest(locked.dataset, ID, None, parameters), terms)
    job, registered = priced.candidate, locked.rules.terms
    charges.check_admitted(facts.policy, job.parameters)
    assert registered is not None  # every ledger begins with a REGISTER
    charges.check_stated(locked.dataset, registered["unit_column"], job.parameters)
    check_unused(locked, job.parameters.get("signature"))
    if accounts.fits(job.asked):
        raise invalid(
            "parameters.event", "it fits what is left", "a charge, which begins and settles"
        )
    costs = accounts.dp.overdraft_costs(job.asked.dp)
    unconfirmed = second_calculation.refusal(accounts, job, costs)
    if unconfirmed is not None:
        raise Conflict(unconfirmed.why)
    body = reserve_body(
        accounts.dp,
        ID,
        job.parameters,
        job.terms,
        job.asked.dp,
        model=None,
        approval=approval,
        source=lineage.of_version(facts.version_number),
        others=entry_part(accounts, job.asked),
        overdraft=overdraft,
    )
    return {**priced.columns, "version_id": facts.version_id, "reads_records": True}, body
