"""Changes that need two stewards: corrections of a charge; where the policy says so, raises of an allowance
and a weaker policy.

    propose ──▶ open ── confirm, by another steward ──▶ the entry, naming both; or the policy
                  └── withdraw, or nobody decides in time ──▶ withdrawn, expired: nothing happened

A proposal remembers the entry, or the policy, that it would replace. Where another stands by now, or the
account can't bear it any more, it is refused at confirmation with the reason. The account's row is locked
first, then the proposal's, so of two people who confirm at once one is told that the other was faster.
"""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Connection, Engine, Row, func, insert, select, update

from accountant import tables
from accountant.core.errors import (
    Conflict,
    InvalidRequest,
    NotFound,
    NotPermitted,
    VerificationFailed,
    invalid,
)
from accountant.core.ledger.export_formats import read_document
from accountant.core.ledger.hash_chain import EntryKind
from accountant.core.ledger.policy import Policy, weakened
from accountant.core.ledger.reversals import Document, TwoPeople, charge_of, corrected, reversal_body
from accountant.core.names import is_alike
from accountant.core.privacy.events import Event, from_json, to_json
from accountant.core.privacy.units import EPSILON_UNITS, exact, round_price
from accountant.identities import activity_log, credentials
from accountant.identities.actor import Actor
from accountant.tables.lookup import one
from accountant.transactions import cap_usage, owners, signed_acts, two_people
from accountant.transactions.expiry import expire_proposals
from accountant.transactions.idempotency import Once, claim
from accountant.transactions.ledger_log import writing
from accountant.transactions.locked_account import LockedAccount
from accountant.transactions.registrations import state_policy
from accountant.transactions.rows import decide, policy_of
from accountant.transactions.signed_acts import Signature

proposals, entries = tables.proposals, tables.entries

OPEN_DAYS = 14
_SETTLES = ("COMMIT", "VOID", "REVERSAL")

# --- proposing ----------------------------------------------------------------------------------


def correct(
    engine: Engine,
    job_id: UUID,
    actor: Actor,
    reason: str,
    *,
    event: object = "reserved",
    ex_post: object = None,
    once: Once | None = None,
    signature: Signature | None = None,
) -> UUID:
    """Propose that a settled job be charged for what it really released; returns the proposal's id.

    `event`: an event as entries hold it; None: nothing was released; "reserved": all that was reserved.
    `ex_post`: the cap in decimals, where it is another. Raises Conflict while the job is not settled, and
    InvalidRequest where the correction would change nothing, or would lower a charge after a read.
    """
    actor.require("steward")
    if not reason.strip():
        raise invalid("reason", "empty", "why the charge is wrong")
    made = uuid4()
    with writing(engine) as connection:
        job = _job(connection, job_id)
        locked = LockedAccount(connection, job.dataset_id)
        policy = policy_of(_held_dataset(connection, id=job.dataset_id))
        owners.require(actor, policy, "steward")
        earlier = claim(connection, once, made)
        if earlier != made:
            return earlier
        reserve, current = _quoted(connection, job_id)
        true = _event(reserve["body"]["event"] if event == "reserved" else event)
        cap = _cap(reserve, true, ex_post)
        corrected(locked.accounts, reserve, charge_of(reserve, current), true, cap)  # or why not
        asked = {"event": None if true is None else to_json(true), "cap": str(cap)}
        body = {**asked, "reason": reason, "reserve": reserve, "corrects": current}
        named = connection, job.dataset_id, policy, EntryKind.REVERSAL, job_id, actor.name
        signed = signed_acts.by_one(*named, body, signature)
        asked |= {} if signed is None else {"signature": signed}
        basis = current["seq"]
        return propose(
            connection, made, "correction", job.dataset_id, asked, reason, actor, basis=basis, job_id=job_id
        )


def _event(value: object) -> Event | None:
    return None if value is None else from_json(value)


def _cap(reserve: Document, event: Event | None, ex_post: object) -> int:
    if ex_post is not None:
        if event is None:
            raise invalid("ex_post", "given, and nothing was released", "nothing")
        return round_price(exact(ex_post, "ex_post"), EPSILON_UNITS)  # type: ignore[arg-type]
    held = reserve["body"].get("ex_post")
    return 0 if event is None or held is None else int(held["cap"])


def propose(
    connection: Connection,
    proposal_id: UUID,
    kind: str,
    dataset_id: UUID,
    asked: dict[str, Any],
    reason: str,
    actor: Actor,
    *,
    basis: int | None = None,
    job_id: UUID | None = None,
) -> UUID:
    """Record what another steward is to confirm; returns the proposal's id.

    `basis`: the number of the entry that it would replace; 0: there is none yet. None: it replaces none.
    Raises NotPermitted for an administrator, who could make whoever confirms it.
    """
    two_people.require_separate(actor)
    connection.execute(
        insert(proposals).values(
            id=proposal_id,
            dataset_id=dataset_id,
            kind=kind,
            job_id=job_id,
            asked=asked,
            basis_seq=basis,
            reason=reason,
            proposed_by=actor.id,
            expires_at=func.clock_timestamp() + timedelta(days=OPEN_DAYS),
        )
    )
    return proposal_id


# --- policies -----------------------------------------------------------------------------------

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

    Returns the proposal's id then. A policy is weaker where it admits more or asks for less in any field
    (core.ledger.rules.weakened): else one steward could weaken it, act, and set it back. All that the policy
    changes waits for the other steward. Jobs decided before keep their decision.

    `check` gets the policy that would be replaced, while nobody else can change it, and may raise.
    """
    actor.require("steward")
    policy.check()
    with writing(engine) as connection:
        locked = LockedAccount(connection, name)
        dataset = _held_dataset(connection, id=locked.dataset_id)
        stands, wanted = policy_of(dataset), policy.model_dump(mode="json")
        owners.require(actor, stands, "steward")
        owners.check_people(connection, policy)
        check(stands.model_dump(mode="json"))
        weaker = weakened(stands, policy) if stands.two_people else ()
        reason = _WEAKER.format(", ".join(weaker)) if weaker else ""
        named = connection, dataset.id, stands, EntryKind.POLICY, None, actor.name
        body = {"policy": wanted, **({"reason": reason} if weaker else {})}
        signed = signed_acts.by_one(*named, body, signature)
        made = {} if signed is None else {"signature": signed}
        if not weaker:
            _replace_policy(locked, dataset, policy, actor, made)
            return None
        asked = {"policy": wanted, "replaces": stands.model_dump(mode="json"), **made}
        same = select(proposals.c.id).where(
            proposals.c.dataset_id == dataset.id,
            proposals.c.state == "open",
            proposals.c.expires_at > func.clock_timestamp(),
            proposals.c.proposed_by == actor.id,
            proposals.c.asked == asked,
        )
        earlier: UUID | None = connection.execute(same.limit(1)).scalar()
        if earlier is not None:
            return earlier  # sent twice, it is one proposal
        return propose(connection, uuid4(), "policy", dataset.id, asked, reason, actor)


def _replace_policy(
    locked: LockedAccount,
    dataset: Row[Any],
    policy: Policy,
    actor: Actor,
    made: Mapping[str, Any],
    **detail: Any,
) -> int:
    """Write a policy into a dataset's row, which is held, and into its ledger; returns the entry's number.

    `made`: what the entry says of who made it, beside its actor.
    """
    connection = locked.connection
    detail["policy"] = policy.model_dump(mode="json")
    change = update(tables.datasets).where(tables.datasets.c.id == dataset.id)
    connection.execute(change.values(policy=detail["policy"]))
    activity_log.record(connection, actor, "policy set", "dataset", dataset.name, **detail)
    return state_policy(locked, policy, actor.name, made)


# --- deciding -----------------------------------------------------------------------------------


def confirm(
    engine: Engine, proposal_id: UUID, actor: Actor, reason: str, signature: Signature | None = None
) -> int | None:
    """Write the entry that a proposal asks for; returns its number. Confirming again answers the same.

    Of a policy it is None: it stands from then on, and its POLICY entry names both people.

    Raises NotPermitted for one's own proposal, whatever the policy, and Conflict where it is not open any
    more, can't stand any more, or who proposed it is no steward any more, with the reason; SignatureNeeded
    where the policy asks that both sign.
    """
    with writing(engine) as connection:
        locked, found = _locked(connection, proposal_id, actor, reason)
        if found.state == "confirmed" and found.decided_by == actor.id:
            return None if found.entry_seq is None else int(found.entry_seq)
        _require_open(found)
        if expire_proposals(connection, proposal_id):
            raise Conflict("the proposal is expired")  # undone with this transaction; the sweep keeps it
        if found.proposed_by == actor.id:
            raise NotPermitted("nobody confirms a proposal of their own: it takes two people")
        two_people.require_second(connection, actor)
        people = TwoPeople(_proposer(connection, found), found.reason, actor.name, reason)
        if is_alike(people.proposer, people.confirmer):
            raise NotPermitted(f"{people.proposer!r} and {people.confirmer!r} look alike: not two people")
        try:
            seq = _write(locked, found, people, actor, signature)
        except VerificationFailed as error:
            raise Conflict(f"it can't stand any more: {error}") from None
        decide(connection, proposals, found, "confirmed", actor, reason, entry_seq=seq)
        return seq


def withdraw(engine: Engine, proposal_id: UUID, actor: Actor, reason: str) -> None:
    """Close a proposal without effect; any steward may. Raises Conflict where it is not open any more."""
    with writing(engine) as connection:
        _, found = _locked(connection, proposal_id, actor, reason)
        _require_open(found)
        decide(connection, proposals, found, "withdrawn", actor, reason)


def _write(
    locked: LockedAccount, found: Row[Any], people: TwoPeople, actor: Actor, signature: Signature | None
) -> int | None:
    connection = locked.connection
    proposed = {name: value for name, value in found.asked.items() if name == "signature"}

    def signed(kind: EntryKind, body: Mapping[str, Any], policy: Policy) -> dict[str, Any]:
        about = connection, found.dataset_id, policy, kind, found.job_id
        return signed_acts.by_second(*about, {**body, **proposed}, signature)

    if found.kind == "policy":
        dataset = _held_dataset(connection, id=found.dataset_id)
        stands = policy_of(dataset)
        if stands != Policy.model_validate(found.asked["replaces"]):
            raise Conflict("the policy was changed after it was proposed: propose it anew")
        policy = Policy.model_validate(found.asked["policy"])
        try:
            owners.check_people(connection, policy, before=found.created_at)
        except InvalidRequest as error:
            raise Conflict(f"whom it names is not who was meant: {error}; propose it anew") from None
        stated = {"policy": policy.model_dump(mode="json"), **people.to_json()}
        made = signed(EntryKind.POLICY, stated, stands)
        del made["policy"]  # state_policy writes it
        both = {"proposal": str(found.id), "proposed_by": people.proposer}
        _replace_policy(locked, dataset, policy, actor, made, **both)
        return None
    stands = policy_of(_held_dataset(connection, id=found.dataset_id))
    if found.kind == "allowance":
        _require_basis(found, newest_allowance(connection, found.dataset_id))
        body = signed(EntryKind.ALLOW, {**found.asked["body"], **people.to_json()}, stands)
        return locked.append(EntryKind.ALLOW, people.confirmer, None, body).seq
    reserve, current = _quoted(connection, found.job_id)
    _require_basis(found, current["seq"])
    event, cap = _event(found.asked["event"]), int(found.asked["cap"])
    body = reversal_body(locked.accounts, reserve, current, event, cap, people)
    body = signed(EntryKind.REVERSAL, body, stands)
    before = charge_of(reserve, current)
    entry = locked.append(EntryKind.REVERSAL, people.confirmer, found.job_id, body)
    cap_usage.correct(connection, _job(connection, found.job_id), body["counts"] - before.counts)
    return entry.seq


def _require_open(found: Row[Any]) -> None:
    if found.state != "open":
        raise Conflict(f"the proposal is {found.state} already")


def _require_basis(found: Row[Any], stands: int) -> None:
    if stands != found.basis_seq:
        what = f"entry {found.basis_seq}" if found.basis_seq else "no allowance"
        raise Conflict(f"it was made when {what} stood, and entry {stands} stands now: propose it anew")


# --- rows ---------------------------------------------------------------------------------------


def _locked(
    connection: Connection, proposal_id: UUID, actor: Actor, reason: str
) -> tuple[LockedAccount, Row[Any]]:
    """The account's row, then the proposal's, for a steward of the dataset."""
    actor.require("steward")
    if not reason.strip():
        raise invalid("reason", "empty", "a sentence that says why")
    query = select(proposals).where(proposals.c.id == proposal_id)
    locked = LockedAccount(connection, one(connection, query, "proposal", proposal_id).dataset_id)
    if not owners.oversees(connection, actor, locked.dataset_id):
        raise NotFound("proposal", str(proposal_id))
    return locked, connection.execute(query.with_for_update()).one()


def _quoted(connection: Connection, job_id: UUID) -> tuple[Document, Document]:
    """The job's RESERVE and the newest entry that settled or corrected it."""
    query = select(entries.c.kind, entries.c.document).where(entries.c.job_id == job_id)
    rows = connection.execute(query.order_by(entries.c.seq)).all()
    if len(rows) < 2 or rows[-1].kind not in _SETTLES:
        raise Conflict("the job has no charge yet: only what is settled is corrected")
    return read_document(rows[0].document), read_document(rows[-1].document)


def newest_allowance(connection: Connection, dataset_id: UUID) -> int:
    """The number of the dataset's newest ALLOW; 0: there is none."""
    query = select(func.max(entries.c.seq)).where(
        entries.c.dataset_id == dataset_id, entries.c.kind == "ALLOW"
    )
    return connection.execute(query).scalar_one() or 0


def _held_dataset(connection: Connection, **by: Any) -> Row[Any]:
    """A dataset's row, held: nobody else changes its policy. An account's row is held before, or never."""
    return one(connection, select(tables.datasets).filter_by(**by).with_for_update(), "dataset", *by.values())


def _job(connection: Connection, job_id: UUID) -> Row[Any]:
    return one(connection, select(tables.jobs).where(tables.jobs.c.id == job_id), "job", job_id)


def _proposer(connection: Connection, found: Row[Any]) -> str:
    """The name of who proposed it: two stewards write the entry, so both are stewards when it is written."""
    users = tables.users
    row = connection.execute(select(users).where(users.c.id == found.proposed_by)).one()
    actor = credentials.actor_of(row)
    dataset = connection.execute(select(tables.datasets).filter_by(id=found.dataset_id)).one()
    left = owners.steward_departure(row, policy_of(dataset))
    if left is not None:
        raise Conflict(f"{left}, who proposed it: propose it anew")
    if "administrator" in actor.roles:
        raise Conflict(
            "who proposed it is administrator by now, and could make a second person: propose it anew"
        )
    return actor.name
