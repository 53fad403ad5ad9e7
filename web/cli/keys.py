"""Rotation of the key that signs checkpoints, on the machine that holds it.

Order: the new secret is on disk before it is introduced, and takes the old one's place after. A
rotation that was cut off is finished by the next one. From the environment, the new secret is
EXCHEQUER_KEY_CHECKPOINT_NEXT, which then becomes EXCHEQUER_KEY_CHECKPOINT.
"""

import os

from accountant.settings import Settings
from web.cli import bootstrap
from web.cli.output import note

NAME, NEXT = "checkpoint", "checkpoint_next"


def rotate(configured: Settings) -> str:
    """Put a new key in use; returns its id. Raises Conflict if the old one is not in use."""
    database = bootstrap.engine(configured)
    from accountant.core.ledger.checkpoints import key_id, public_key
    from accountant.transactions import signing

    old, new = configured.secret(NAME), configured.secret(NEXT)
    if not signing.in_use(database, new):  # else an earlier rotation ended here
        signing.rotate(database, old, new)
    if f"EXCHEQUER_KEY_{NEXT.upper()}" in os.environ:
        note(
            "now give the servers EXCHEQUER_KEY_CHECKPOINT = what was EXCHEQUER_KEY_CHECKPOINT_NEXT"
        )
    else:
        folder = configured.keys or configured.home / "keys"
        (folder / NEXT).replace(folder / NAME)
    return key_id(public_key(new))
