"""Entries that were signed and are nowhere: two people settle their loss, dataset by dataset.

    signed heads that neither log nor database holds ── ask ──▶ decision ── answer ──▶ LOSS

Until every dataset of the log has its LOSS, no process uses the log: nothing is admitted. Another
dataset than those that are known to have lost entries may have lost others, which nobody published:
so all of them are charged what they have left. A person signs in here by what the database at hand
knows of them, as no page answers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Connection, Engine, select

from accountant import tables
from accountant.core.errors import Conflict, LogCut
from accountant.core.ledger.export_formats import read_document
from accountant.core.ledger.hash_chain import EntryKind
from accountant.core.ledger.losses import LostEntries, loss_body
from accountant.database import reading
from accountant.identities.actor import Actor
from accountant.ledger_log.log import LedgerLog, named_heads
from accountant.ledger_log.signed import SignedHead
from accountant.transactions import ledger_log, new_log, owners, recovery
from accountant.transactions.asking import ByTwo, Ground, Request, Result, ask, held_dataset, words
from accountant.transactions.ledger_log import writing
from accountant.transactions.locked_account import LockedAccount
from accountant.transactions.rows import policy_of

datasets, decisions, entries, jobs = (
    tables.datasets,
    tables.decisions,
    tables.entries,
    tables.jobs,
)


NEW_LOG = "Move what is in the log's folder to another place, then `exchequer ledger new-log`."


@dataclass(frozen=True)
class Found:
    """What is lost: signed heads, and the published entries of each dataset that are lost.

    `unsettled` names the datasets without a LOSS; `gone` those of which no entry is left.
    """

    heads: list[SignedHead]
    lost: Mapping[str, LostEntries]
    unsettled: list[str]
    gone: list[str]


def find(engine: Engine) -> Found:
    """Return what is lost, by an engine that is `mending` its log.

    Raises Conflict where nothing is lost, or a command mends it, and LogUnusable.
    """
    log = _log_of(engine)
    heads = _lost_heads(log)
    if not heads:
        raise Conflict("the log holds all that was signed: no entries are lost")
    if not lacking(engine):
        raise Conflict(f"the database holds all that was signed: no entries are lost. {NEW_LOG}")
    if recovery.plan(engine, restored=True):
        raise Conflict(
            "the database is behind the log, or jobs have no end: first `exchequer ledger recover "
            "--lost`"
        )
    with reading(engine, snapshot=True) as connection:
        names = sorted(connection.execute(select(datasets.c.name)).scalars())
        lost = _lost_entries(connection, log)
        unsettled = [name for name in names if not _is_settled(connection, name, heads)]
    return Found(heads, lost, unsettled, sorted(lost.keys() - set(names)))


def lacking(engine: Engine) -> list[str]:
    """Return why no new log can be made of the database, where the log is not what was signed.

    Empty if the database holds all that was signed, as far as anybody remembers it.
    """
    log = _log_of(engine)
    problems = new_log.compare(engine, log.signed).problems
    if not problems and log.problems() and not _is_ahead(engine):
        problems = ["it holds no entry that the log lacks"]
    return problems


def _is_ahead(engine: Engine) -> bool:
    """Return whether the database holds entries that its log lacks."""
    try:
        return bool(ledger_log.behind(engine)[1])
    except LogCut:
        return True


def say(engine: Engine, found: Found, dataset: str, actor: Actor, reason: str) -> UUID:
    """Ask for a dataset's loss to be settled; returns the decision, which another steward answers.

    Raises NotPermitted for anybody but its stewards.
    """
    reason = words(reason)
    with writing(engine) as connection:
        locked = LockedAccount(connection, dataset)
        policy = policy_of(held_dataset(connection, locked.dataset_id))
        owners.require(actor, policy, "steward")
        loss = {**_stated(found.heads, found.lost.get(dataset)), "entries": locked.seq}
        return ask(connection, uuid4(), locked.dataset_id, actor, Request(Loss.name, loss, reason))


def waiting(engine: Engine, dataset: str) -> UUID | None:
    """Return the open decision about a dataset's loss, or None."""
    query = (
        select(decisions.c.id)
        .join(datasets, datasets.c.id == decisions.c.dataset_id)
        .where(datasets.c.name == dataset, decisions.c.kind == Loss.name)
    )
    with reading(engine) as connection:
        row = connection.execute(query.where(decisions.c.state == "open"))
        return row.scalar_one_or_none()


class Loss(ByTwo):
    """Entries of a dataset's ledger are lost, and all that it has left is charged."""

    name, title = "loss", "lost entries"

    def write(self, ground: Ground) -> Result:
        """Write the LOSS. Raises Conflict where nothing is lost, or other entries than asked."""
        log = _log_of(ground.connection)
        heads, name = _lost_heads(log), ground.account.dataset
        if not heads:
            raise Conflict("the log holds all that was signed: no entries are lost")
        if _is_settled(ground.connection, name, heads):
            raise Conflict("the ledger says already that these entries are lost")
        stated = _stated(heads, _lost_entries(ground.connection, log).get(name))
        if ground.row.asked != {**stated, "entries": ground.account.seq}:
            raise Conflict("what is lost is not what was asked about: refuse it, and ask again")
        live = select(jobs.c.id).where(
            jobs.c.dataset_id == ground.dataset.id, jobs.c.state.in_(recovery.LIVE)
        )
        if ground.connection.execute(live.limit(1)).first() is not None:
            raise Conflict("a job has no end: first `exchequer ledger recover --lost`")
        body = loss_body(
            ground.people().to_json(), ground.account.accounts, stated["signed"], stated["lost"]
        )
        entry = ground.account.append(EntryKind.LOSS, ground.actor.name, None, body)
        return Result(entry=entry.seq)


def _log_of(engine: Engine | Connection) -> LedgerLog:
    log = ledger_log.log_of(engine)
    if log is None:
        raise Conflict("there is no log outside the database: nothing says that entries are lost")
    return log


def _lost_heads(log: LedgerLog) -> list[SignedHead]:
    return sorted(log.problems(), key=lambda head: (head.log, head.size, head.leaf or ""))


def _stated(heads: list[SignedHead], lost: LostEntries | None) -> dict[str, Any]:
    return {
        "signed": [head.to_json() for head in heads],
        "lost": None if lost is None else lost.to_json(),
    }


def _is_settled(connection: Connection, dataset: str, heads: list[SignedHead]) -> bool:
    query = (
        select(entries.c.document)
        .join(datasets, datasets.c.id == entries.c.dataset_id)
        .where(datasets.c.name == dataset, entries.c.kind == str(EntryKind.LOSS))
    )
    named: set[SignedHead] = set()
    for text in connection.execute(query).scalars():
        named.update(named_heads(read_document(text)))
    return set(heads) <= named


def _lost_entries(connection: Connection, log: LedgerLog) -> dict[str, LostEntries]:
    """Return the published entries that the database lacks, by dataset."""
    if log.signed.published is None:
        return {}
    hashes: dict[str, list[str]] = {}
    lost: dict[str, LostEntries] = {}
    for dataset, seq, entry_hash in new_log.published_leaves(log.signed.published):
        if dataset not in hashes:
            query = select(entries.c.hash).join(datasets, datasets.c.id == entries.c.dataset_id)
            rows = connection.execute(
                query.where(datasets.c.name == dataset).order_by(entries.c.seq)
            )
            hashes[dataset] = list(rows.scalars())
        hashes_of_dataset = hashes[dataset]
        if dataset in lost:
            lost[dataset] = LostEntries(lost[dataset].first, seq, entry_hash)
        elif seq > len(hashes_of_dataset) or hashes_of_dataset[seq - 1] != entry_hash:
            lost[dataset] = LostEntries(seq, seq, entry_hash)
    return lost
