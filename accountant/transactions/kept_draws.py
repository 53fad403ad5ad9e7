"""Draws of a job's attempts, kept under its reservation until it ends, so that none is made twice.

    draws ── sealed under a key made from the job's ──▶ rows of its part ──▶ the next attempt takes
      them
    the job's last transaction ──▶ the rows are deleted

A row is written in a transaction that holds the part's row and checks the lease: a worker whose
lease has ended adds nothing behind what its successor read. Sealing is authenticated and bound to
the job, the part and the row's number, so that no row opens in another's place.
"""

from uuid import UUID

from cryptography.exceptions import InvalidTag
from sqlalchemy import Connection, Engine, delete, select
from sqlalchemy.dialects.postgresql import insert

from accountant import tables
from accountant.core.errors import KeyMismatch, LeaseLost
from accountant.faults import reached
from accountant.sealing import key_for, seal, unseal
from accountant.transactions.rows import Claim, held, show

draws, parts = tables.kept_draws, tables.parts


def keep(engine: Engine, claim: Claim, number: int, content: bytes) -> None:
    """Write the `number`-th row of a claimed part, counted from 0; written again it stays as it is.

    Raises LeaseLost where the lease has ended.
    """
    sealed = seal(_key(claim), _place(claim, number), content)
    with engine.begin() as connection:
        show(connection, claim)
        mine = select(parts.c.number).where(*held(claim)).with_for_update()
        if connection.execute(mine).one_or_none() is None:
            raise LeaseLost("the lease has ended")
        row = {"job_id": claim.job_id, "part": claim.part, "number": number, "sealed": sealed}
        connection.execute(insert(draws).values(row).on_conflict_do_nothing())
        reached("worker.keeps")


def kept(engine: Engine, claim: Claim) -> list[bytes]:
    """Return what earlier attempts at a part kept, in order. Raises KeyMismatch."""
    query = select(draws.c.number, draws.c.sealed).where(
        draws.c.job_id == claim.job_id, draws.c.part == claim.part
    )
    with engine.begin() as connection:
        show(connection, claim)
        rows = connection.execute(query.order_by(draws.c.number)).all()
    if [row.number for row in rows] != list(range(len(rows))):
        raise KeyMismatch("kept draws of the job are missing")
    try:
        return [unseal(_key(claim), _place(claim, row.number), row.sealed) for row in rows]
    except InvalidTag:
        raise KeyMismatch("kept draws of the job are not what was kept under its key") from None


def forget(connection: Connection, job_id: UUID) -> None:
    """Delete what was kept of a job that ends in this transaction."""
    connection.execute(delete(draws).where(draws.c.job_id == job_id))


def _key(claim: Claim) -> bytes:
    if claim.key is None:
        raise KeyMismatch("nothing is kept without the job's key")
    return key_for("kept draws", claim.key)


def _place(claim: Claim, number: int) -> bytes:
    return claim.job_id.bytes + claim.part.to_bytes(8, "big") + number.to_bytes(8, "big")
