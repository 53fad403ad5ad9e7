"""The key of a job's coins: which batch each unit lies in, for as long as the job lives and never
after.

    first claim ── 32 random bytes, sealed under `units` ──▶ row ──▶ every later claim opens the
      same key
    the job's last transaction ──▶ the row is deleted

It is drawn by the first worker that takes the job and not by the web service, which needs neither
it nor `units`. Sealing is authenticated and bound to the job: a worker with another `units` can't
open it and takes nothing. Two keys for parts of one job would put some units into two batches: then
no price holds.
"""

import secrets
from uuid import UUID

from cryptography.exceptions import InvalidTag
from sqlalchemy import Connection, Row, delete, insert, select

from accountant import tables
from accountant.core.errors import KeyMismatch
from accountant.sealing import seal, unseal

keys = tables.job_keys

KEY_BYTES = 32


def hold(connection: Connection, job: Row, units: bytes) -> bytes | None:  # type: ignore[type-arg]
    """Return the key of a job whose row is locked; drawn if nothing was read under it yet.

    None where something was read already and no key is left: its units' places are unknown, so the
    job can't go on. Raises KeyMismatch where the key was sealed under another `units` (32 bytes).
    """
    sealed = connection.execute(
        select(keys.c.sealed).where(keys.c.job_id == job.id)
    ).scalar_one_or_none()
    if sealed is not None:
        return _open(units, job.id, sealed)
    if job.reading_began_at is not None:
        return None
    key = secrets.token_bytes(KEY_BYTES)
    connection.execute(insert(keys).values(job_id=job.id, sealed=seal(units, job.id.bytes, key)))
    return key


def forget(connection: Connection, job_id: UUID) -> None:
    """Delete the key of a job that ends in this transaction."""
    connection.execute(delete(keys).where(keys.c.job_id == job_id))


def _open(units: bytes, job_id: UUID, sealed: bytes) -> bytes:
    try:
        return unseal(units, job_id.bytes, sealed)
    except InvalidTag:
        raise KeyMismatch(
            "this worker's units key is not the one that the job began with; every worker needs "
            "the same home/keys/units or EXCHEQUER_KEY_UNITS"
        ) from None
