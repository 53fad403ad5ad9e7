"""The order of a job, read from its dataset's entries by the process that runs it.

    log outside ── where does the ledger end? ──▶ entries of the database up to there, each hashed
      ──▶ Order

An entry names the hash of the entry before it. So entries that end with the hash that the log holds
are those of the log, every one. A process keeps what it made of a ledger, and hashes each entry
once (decision 0074).
"""

from threading import Lock
from uuid import UUID

from sqlalchemy import Connection, select

from accountant import tables
from accountant.core.errors import LedgerBehind, VerificationFailed
from accountant.core.ledger.export_formats import read_document
from accountant.core.ledger.hash_chain import EntryKind
from accountant.core.ledger.orders import Order, Orders
from accountant.ledger_log.lines import Head
from accountant.transactions import ledger_log

entries = tables.entries

#: By the address of the database and the dataset: what this process made of its entries.
_known: dict[tuple[str, UUID], Orders] = {}
_MOST_KNOWN = 1_000
_lock = Lock()


def read(connection: Connection, job_id: UUID) -> Order:
    """Return the order of a job that is reserved and not ended.

    Raises VerificationFailed if no entry reserves it, an entry ended it, or the entries break a
    rule. Raises LedgerBehind if they are not those of the log.
    """
    query = (
        select(
            entries.c.dataset_id,
            entries.c.seq,
            tables.datasets.c.name,
            tables.jobs.c.dataset_id.label("row"),
        )
        .join(tables.datasets, tables.datasets.c.id == entries.c.dataset_id)
        .join(tables.jobs, tables.jobs.c.id == entries.c.job_id)
        .where(entries.c.job_id == job_id, entries.c.kind == str(EntryKind.RESERVE))
    )
    row = connection.execute(query).one_or_none()
    if row is None or row.row != row.dataset_id:
        raise VerificationFailed(f"no entry of its dataset's ledger reserves the job {job_id}")

    def ledger(name: str) -> Orders:
        named = select(tables.datasets.c.id).where(tables.datasets.c.name == name)
        dataset_id = connection.execute(named).scalar_one_or_none()
        return Orders(name) if dataset_id is None else _orders(connection, dataset_id, name)

    with _lock:
        return _orders(connection, row.dataset_id, row.name).order(str(job_id), ledger)


def require_live(connection: Connection, dataset_id: UUID, order: Order) -> None:
    """Raise VerificationFailed if an entry has ended the job since its order was read.

    Raises LedgerBehind if the entries of this dataset are not those of the order's log.
    """
    with _lock:
        _orders(connection, dataset_id, order.dataset).require_live(order.job)


def _orders(connection: Connection, dataset_id: UUID, name: str) -> Orders:
    """Return what the ledger's entries make, up to the last that the log holds."""
    until = ledger_log.last_logged(connection, dataset_id, name)
    key = (str(connection.engine.url), dataset_id)
    orders = _known.pop(key, None)
    if orders is None or orders.dataset != name or orders.seq > until.seq:
        orders = Orders(name)
    query = select(entries.c.document).where(
        entries.c.dataset_id == dataset_id, entries.c.seq > orders.seq, entries.c.seq <= until.seq
    )
    for text in connection.execute(query.order_by(entries.c.seq)).scalars():
        orders.add(read_document(text))
    if Head(orders.seq, orders.head) != until:
        raise LedgerBehind(name, orders.seq, until.seq, until.seq)
    # Kept only now: where an entry was wrong, the next look reads all of them.
    if len(_known) >= _MOST_KNOWN:
        _known.clear()
    _known[key] = orders
    return orders
