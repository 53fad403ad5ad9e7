"""The log at a place that the setting names: a folder, or an address of an object store."""

from pathlib import Path

from accountant.ledger_log.files import FolderLog
from accountant.ledger_log.kept_heads import is_address
from accountant.ledger_log.log import LedgerLog
from accountant.ledger_log.objects import ObjectLog
from accountant.ledger_log.signed import SignedPlaces


def log_at(
    place: Path | str, signed: SignedPlaces | None = None, *, mending: bool = False
) -> LedgerLog:
    """Return the log at a place; nothing is read yet.

    `signed`: the places where heads of the log were signed. It must hold what they say, unless it
    is opened for `mending`.
    """
    if is_address(place):
        return ObjectLog(str(place), signed=signed, mending=mending)
    return FolderLog(Path(place), signed=signed, mending=mending)
