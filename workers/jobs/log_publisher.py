"""The public log, published on a schedule by the process that holds its key: a thread of the
signer.

    the log outside the database ── what is new ──▶ tiles ── head: remembered, then signed ──▶
      checkpoint

Whatever stops a publication (a full disk, a witness that is away, a database that does not answer)
is logged and tried again at the next turn: signing checkpoints of exports goes on meanwhile.
"""

import threading

import structlog

from accountant.core.errors import LogUnusable
from accountant.database import Engine
from accountant.ledger_log.publication import publish_configured
from accountant.settings import Settings
from accountant.transactions import ledger_log

log = structlog.get_logger()


def publish_new(engine: Engine, configured: Settings, published: int) -> int:
    """Publish what the log holds beyond its first `published` entries; returns how many it holds
    now.

    The log must be the one that the database calls its own. Raises as `publish_configured`.
    """
    outside = ledger_log.log_of(engine)
    if outside is None:
        raise LogUnusable("none is configured (EXCHEQUER_LEDGER_LOG)")
    holds = outside.length()
    if holds in (0, published):  # 0: nobody has written yet, and to begin a log is not the signer's
        return holds
    ledger_log.attach(engine, outside)
    head, key = publish_configured(configured, outside)
    log.info("log published", entries=head.size, root=head.root.hex(), log_key=str(key))
    return head.size


def run(stop: threading.Event, engine: Engine, configured: Settings) -> None:
    """Publish every `public_log_seconds` until `stop` is set."""
    published = -1  # the first turn publishes whatever there is: its checkpoint may have been lost
    while not stop.is_set():
        try:
            published = publish_new(engine, configured, published)
        # of any kind: the next turn may succeed, and nobody else would tell
        except Exception as error:
            log.error("the log is not published", problem=str(error), error=type(error).__name__)
        stop.wait(configured.public_log_seconds)


def start(stop: threading.Event, engine: Engine, configured: Settings) -> threading.Thread | None:
    """Run in a thread of its own; None where no folder is set, or no schedule."""
    if configured.public_log is None or not configured.public_log_seconds:
        return None
    thread = threading.Thread(
        target=run, args=(stop, engine, configured), name="public log", daemon=True
    )
    thread.start()
    return thread
