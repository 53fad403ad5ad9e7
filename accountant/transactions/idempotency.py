"""Idempotency keys of what is made once: the key is taken in the transaction that makes the thing.

So there is no moment at which a thing is made and its key is not taken, or the other way round. The
row keeps no answer: asked again, the service shows what was made as it is now. Jobs keep their keys
in their own rows.
"""

from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Connection, select
from sqlalchemy.dialects.postgresql import insert

from accountant import tables
from accountant.core.errors import Conflict


@dataclass(frozen=True)
class Once:
    """A key of `person`, and the SHA-256 of the request that it stands for."""

    person: UUID
    key: str
    sha256: str


def claim(connection: Connection, once: Once | None, made: UUID) -> UUID:
    """Take the key for the thing `made`, or return what was made under it before.

    Of two transactions at once the second waits for the first. Raises Conflict where the key was
    used for another request.
    """
    if once is None:
        return made
    table = tables.idempotency_keys
    row = {"person_id": once.person, "key": once.key, "request_sha256": once.sha256, "made": made}
    connection.execute(insert(table).values(row).on_conflict_do_nothing())
    found = connection.execute(
        select(table.c.request_sha256, table.c.made).where(
            table.c.person_id == once.person, table.c.key == once.key
        )
    ).one()
    if found.request_sha256 != once.sha256:
        raise Conflict("this idempotency key was used for another request")
    earlier: UUID = found.made
    return earlier
