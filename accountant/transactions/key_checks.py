"""Keys that all processes of a kind must share: the database holds what each makes of a public
text.

A proof is a MAC under the key, which tells nothing of it. The first process that looks writes it.
"""

import hashlib
import hmac

from sqlalchemy import Engine, select
from sqlalchemy.dialects.postgresql import insert

from accountant import tables
from accountant.settings import Settings

#: A public text, which no key is used for elsewhere.
_TEXT = b"exchequer: a key of this cluster"

checks = tables.key_checks


def problem(engine: Engine, name: str, settings: Settings) -> str | None:
    """Return that this process's key is not the cluster's, or None if it is."""
    mine = hmac.digest(settings.secret(name), _TEXT + name.encode(), hashlib.sha256)
    query = select(checks.c.proof).where(checks.c.name == name)
    with engine.connect() as connection:
        proof = connection.execute(query).scalar_one_or_none()
    if proof is None:
        with engine.begin() as connection:
            row = insert(checks).values(name=name, proof=mine)
            connection.execute(row.on_conflict_do_nothing())
            proof = connection.execute(query).scalar_one()
    if hmac.compare_digest(bytes(proof), mine):
        return None
    return f"the key `{name}` is not the cluster's: give every node the same"
