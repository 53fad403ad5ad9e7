"""Corrections of a settled job's charge: one steward proposes another charge, a second one confirms
it.

A correction remembers the entry that it would replace. If another entry stands when it is
confirmed, or the account can't bear it, it is refused with the reason.
"""

from uuid import UUID, uuid4

from sqlalchemy import Connection, Engine, select

from accountant import tables
from accountant.core.errors import Conflict
from accountant.core.ledger.export_formats import read_document
from accountant.core.ledger.hash_chain import EntryKind
from accountant.core.ledger.reversals import Document, charge_of, corrected, reversal_body
from accountant.core.privacy.events import from_json, to_json
from accountant.core.privacy.units import EPSILON_UNITS, exact, round_price
from accountant.identities.actor import Actor
from accountant.tables.lookup import one
from accountant.transactions import cap_usage, owners, signed_acts
from accountant.transactions.asking import ByTwo, Ground, Request, Result, ask, held_dataset, words
from accountant.transactions.idempotency import Once, claim
from accountant.transactions.ledger_log import writing
from accountant.transactions.locked_account import LockedAccount
from accountant.transactions.rows import policy_of
from accountant.transactions.signed_acts import Signature

entries = tables.entries

_SETTLES = ("COMMIT", "VOID", "REVERSAL")


def correct(
    engine: Engine,
    job_id: UUID,
    actor: Actor,
    reason: str,
    *,
    event: object = None,
    ex_post: object = None,
    once: Once | None = None,
    signature: Signature | None = None,
) -> UUID:
    """Propose that a settled job be charged for what it really released; returns the decision's id.

    `event`: an event as entries hold it; None: all that was reserved. `ex_post`: the cap in
    decimals, where it is another. Raises Conflict while the job is not settled, and InvalidRequest
    where the correction would raise no charge.
    """
    actor.require("steward")
    reason = words(reason)
    made = uuid4()
    with writing(engine) as connection:
        query = select(tables.jobs).where(tables.jobs.c.id == job_id)
        job = one(connection, query, "job", job_id)
        locked = LockedAccount(connection, job.dataset_id)
        policy = policy_of(held_dataset(connection, job.dataset_id))
        owners.require(actor, policy, "steward")
        earlier = claim(connection, once, made)
        if earlier != made:
            return earlier
        reserve, current = _quoted(connection, job_id)
        true = from_json(reserve["body"]["event"] if event is None else event)
        cap = _cap(reserve, ex_post)
        corrected(locked.accounts, reserve, charge_of(reserve, current), true, cap)  # or why not
        asked = {"event": to_json(true), "cap": str(cap)}
        body = {**asked, "reason": reason, "reserve": reserve, "corrects": current}
        named = connection, job.dataset_id, policy, EntryKind.REVERSAL, job_id, actor.name
        signed = signed_acts.by_one(*named, body, signature)
        asked |= {} if signed is None else {"signature": signed}
        request = Request("correction", asked, reason, basis=current["seq"], job_id=job_id)
        return ask(connection, made, job.dataset_id, actor, request)


class Correction(ByTwo):
    """Another charge for a settled job."""

    name, title = "correction", "another charge"

    def write(self, ground: Ground) -> Result:
        """Write the REVERSAL."""
        job, asked = ground.job(), ground.row.asked
        reserve, current = _quoted(ground.connection, job.id)
        ground.require_entry(current["seq"])
        event, cap = from_json(asked["event"]), int(asked["cap"])
        body = reversal_body(ground.account.accounts, reserve, current, event, cap, ground.people())
        before = charge_of(reserve, current)
        signed = ground.signed(EntryKind.REVERSAL, body)
        entry = ground.account.append(EntryKind.REVERSAL, ground.actor.name, job.id, signed)
        cap_usage.correct(ground.connection, job, body["counts"] - before.counts)
        return Result(entry=entry.seq)


def _cap(reserve: Document, ex_post: object) -> int:
    if ex_post is not None:
        return round_price(exact(ex_post, "ex_post"), EPSILON_UNITS)  # type: ignore[arg-type]
    held = reserve["body"].get("ex_post")
    return 0 if held is None else int(held["cap"])


def _quoted(connection: Connection, job_id: UUID) -> tuple[Document, Document]:
    """Return the job's RESERVE and the newest entry that settled or corrected it."""
    query = select(entries.c.kind, entries.c.document).where(entries.c.job_id == job_id)
    rows = connection.execute(query.order_by(entries.c.seq)).all()
    if len(rows) < 2 or rows[-1].kind not in _SETTLES:
        raise Conflict("the job has no charge yet: only what is settled is corrected")
    return read_document(rows[0].document), read_document(rows[-1].document)
